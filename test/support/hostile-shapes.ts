/**
 * What hostile and broken clients do with a connection to ingest, in the shapes that cost it
 * memory.
 */
import type { Socket } from 'node:net';
import { head } from './ingest.ts';

export interface HostileShape {
  readonly what: string;
  readonly connections: number;
  readonly begin: (socket: Socket) => void;
}

const LARGEST_BODY = 65_000;
const TEN_MEGABYTES = 10_000_000;
const CHUNK = `10000\r\n${'x'.repeat(0x10000)}\r\n`;

/**
 * One of each shape; `key` is that of a partner. A connection that is ended is to be opened again.
 */
export function hostileShapes(key: string): readonly HostileShape[] {
  const authorized = `Authorization: Bearer ${key}`;
  const withLength = (bytes: number, ...lines: string[]): string =>
    head([...lines, `Content-Length: ${bytes}`]);
  const chunked = head([authorized, 'Transfer-Encoding: chunked']);
  const say =
    (...parts: (string | Buffer)[]) =>
    (socket: Socket): void =>
      parts.forEach((part) => socket.write(part));

  const allButOne = Buffer.alloc(LARGEST_BODY - 1, 'x');
  const largest = Buffer.alloc(LARGEST_BODY, 'x');
  const tenMegabytes = Buffer.alloc(TEN_MEGABYTES, 'x');
  const singleBytes = Buffer.from('1\r\nx\r\n'.repeat(LARGEST_BODY - 1));
  const small = `${withLength(2, authorized)}{}`;
  const pipeline = Buffer.from(small.repeat(600));
  return [
    { what: 'nothing at all', connections: 1_000, begin: () => {} },
    {
      what: '16 kB of one header',
      connections: 300,
      begin: say(`${head([]).slice(0, -2)}X: ${'x'.repeat(16_000)}`),
    },
    {
      what: '16 kB of many headers',
      connections: 300,
      begin: say(head([]).slice(0, -2), 'a:b\r\n'.repeat(2_500)),
    },
    {
      what: 'a body without its end',
      connections: 700,
      begin: say(withLength(LARGEST_BODY, authorized), allButOne),
    },
    { what: 'a body in single bytes', connections: 10, begin: say(chunked, singleBytes) },
    {
      what: 'the same without a key',
      connections: 10,
      begin: say(head(['Transfer-Encoding: chunked']), singleBytes),
    },
    {
      what: 'a whole body without a key',
      connections: 500,
      begin: say(withLength(LARGEST_BODY), largest),
    },
    {
      what: '10 MB',
      connections: 10,
      begin: say(withLength(TEN_MEGABYTES, authorized), tenMegabytes),
    },
    {
      what: '10 MB without a key',
      connections: 10,
      begin: say(withLength(TEN_MEGABYTES), tenMegabytes),
    },
    {
      what: 'chunks forever',
      connections: 10,
      begin: (socket) => {
        const more = (): void => {
          while (socket.writable && socket.write(CHUNK));
        };
        socket.on('drain', more).write(chunked);
        more();
      },
    },
    {
      what: 'requests without waiting for answers',
      connections: 5,
      begin: (socket) => {
        socket.write(pipeline);
      },
    },
    {
      what: 'requests whose answers it does not read',
      connections: 5,
      begin: (socket) => {
        socket.pause();
        socket.write(pipeline);
      },
    },
  ];
}
