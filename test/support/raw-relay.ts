/** A small mail relay for behaviour that no SMTP server has. */
import { createServer, type Socket } from 'node:net';
import { listen } from './listen.ts';

type Command = 'GREETING' | 'EHLO' | 'AUTH' | 'MAIL' | 'RCPT' | 'DATA' | 'CONTENT' | 'QUIT';

/**
 * Another answer than the usual one: with an end of the connection, with unended lines, or
 * repeated.
 */
interface Oddity {
  readonly at: Command;
  readonly says: string;
  readonly closes?: true;
  readonly unended?: true;
  readonly drips?: true;
}

const DRIP_MS = 100;

export type RawRelay = Awaited<ReturnType<typeof startRawRelay>>;

const usual: Readonly<Record<Command, string>> = {
  GREETING: '220 relay.example',
  EHLO: '250-relay.example\r\n250-PIPELINING\r\n250 AUTH PLAIN',
  AUTH: '235 hello',
  MAIL: '250 sender taken',
  RCPT: '250 recipient taken',
  DATA: '354 go on',
  CONTENT: '250 2.0.0 Ok: queued as 4ABC12',
  QUIT: '221 bye',
};

/** `pipelining` lets clients send commands together. */
export async function startRawRelay({ pipelining = true } = {}) {
  const sockets = new Set<Socket>();
  const server = createServer((socket) => {
    relay.connections += 1;
    sockets.add(socket);
    socket.on('error', () => undefined).on('close', () => sockets.delete(socket));
    serve(socket);
  });
  const port = await listen(server);
  const relay = {
    port,
    /** Every line of every client, without the content. */
    heard: [] as string[],
    contents: [] as string[],
    connections: 0,
    odd: undefined as Oddity | undefined,
    close: (): Promise<void> => {
      for (const socket of sockets) socket.destroy();
      return new Promise((resolve) => void server.close(() => resolve()));
    },
  };
  return relay;

  function serve(socket: Socket): void {
    const answer = (command: Command): boolean => {
      const { odd } = relay;
      if (odd?.at !== command) {
        socket.write(
          `${pipelining ? usual[command] : usual[command].replace('250-PIPELINING\r\n', '')}\r\n`,
        );
        return true;
      }
      const words = `${odd.says}${odd.unended === true ? '' : '\r\n'}`;
      if (odd.closes === true) socket.end(words);
      else socket.write(words);
      if (odd.drips === true) {
        const drip = setInterval(() => socket.write(words), DRIP_MS);
        socket.on('close', () => clearInterval(drip));
      }
      return odd.closes !== true;
    };
    let [received, content] = ['', false];
    socket.setEncoding('latin1').on('data', (text: string) => {
      received += text;
      for (;;) {
        const [separator, keep] = content ? ['\r\n.\r\n', 2] : ['\r\n', 0];
        const end = received.indexOf(separator);
        if (end < 0) return;
        const said = received.slice(0, end + keep);
        received = received.slice(end + separator.length);
        if (content) relay.contents.push(said);
        else relay.heard.push(said);
        const word = content ? 'CONTENT' : (said.split(' ', 1)[0] ?? '').toUpperCase();
        content = false;
        if (!(word in usual)) socket.write('250 fine\r\n');
        else if (answer(word as Command)) content = word === 'DATA' && relay.odd?.at !== 'DATA';
        else return;
        if (word === 'QUIT' && relay.odd?.at !== 'QUIT') socket.end();
      }
    });
    answer('GREETING');
  }
}
