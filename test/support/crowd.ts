/** Many sockets at once. */
import type { ChildProcess } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { connect, type Socket } from 'node:net';

/** The number is below the backlog of a server. */
const OPENING_AT_ONCE = 250;

export type Crowd = Awaited<ReturnType<typeof openCrowd>>;

interface CrowdOptions {
  readonly url: string;
  readonly count: number;
  /** The local address of each, because ports and rate limits are by address. */
  readonly from: (index: number) => string;
  readonly begin?: (socket: Socket) => void;
  /** The pause before an ended connection is replaced; without it, none is. */
  readonly againAfterMs?: number;
}

/** Opens the connections; resolves once each is opened or refused. */
export async function openCrowd(options: CrowdOptions) {
  const { hostname, port } = new URL(options.url);
  const sockets = new Set<Socket>();
  let [begun, open, unanswered, over] = [0, 0, 0, false];
  const openOne = (index: number): Promise<void> =>
    new Promise((resolve) => {
      const socket = connect({
        host: hostname,
        port: Number(port),
        localAddress: options.from(index),
      });
      let [answered, connected] = [false, false];
      sockets.add(socket);
      socket.once('connect', () => {
        connected = true;
        open += 1;
        options.begin?.(socket);
        resolve();
      });
      socket.once('data', () => {
        answered = true;
      });
      // A full server may reset the connection, which counts as an end.
      socket.on('error', () => {});
      socket.once('close', () => {
        sockets.delete(socket);
        if (connected) open -= 1;
        if (!answered) unanswered += 1;
        resolve();
        if (options.againAfterMs === undefined) return;
        const again = setTimeout(() => {
          if (!over) void openOne(index);
        }, options.againAfterMs);
        again.unref();
      });
    });
  const openInTurn = async (): Promise<void> => {
    while (begun < options.count) {
      begun += 1;
      await openOne(begun);
    }
  };
  await Promise.all(Array.from({ length: Math.min(options.count, OPENING_AT_ONCE) }, openInTurn));
  return {
    get open() {
      return open;
    },
    /** Connections that ended without an answer. */
    get unanswered() {
      return unanswered;
    },
    destroy: () => {
      over = true;
      for (const socket of sockets) socket.destroy();
    },
  };
}

/** The number of files that this process and its children may open. */
export function openFilesLimit(): number {
  const line = /^Max open files +\w+ +(\w+)/m.exec(readFileSync('/proc/self/limits', 'utf8'))?.[1];
  return line === 'unlimited' ? Infinity : Number(line ?? 0);
}

/** The present and the highest memory of a process, in bytes. */
export function memoryOf({ pid = 0 }: ChildProcess): {
  readonly now: number;
  readonly peak: number;
} {
  const status = readFileSync(`/proc/${pid}/status`, 'utf8');
  const bytes = (name: string): number =>
    Number(new RegExp(`^${name}:\\s+(\\d+) kB`, 'm').exec(status)?.[1]) * 1_024;
  return { now: bytes('VmRSS'), peak: bytes('VmHWM') };
}
