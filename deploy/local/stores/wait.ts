// Waiting with a deadline, and free ports: what every way of starting a server needs.

import { randomInt } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { connect, createServer } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';

const LOOPBACK = '127.0.0.1';
const POLL_INTERVAL_MS = 20;
const CONNECT_TIMEOUT_MS = 1_000;
const LOG_TAIL_LINES = 15;

// Below Linux's range for outgoing connections (32768 and up). A port inside that range can be
// taken, while its server is down for a restart, by the very client that tries to reconnect: TCP
// then connects to itself and the server cannot bind.
const FIRST_PORT = 15_000;
const LAST_PORT = 32_000;
const PORT_ATTEMPTS = 100;
/** One whose server has not started yet still looks free. */
const given = new Set<number>();

/**
 * Finds a port of 127.0.0.1 that nothing listens on. It is free now; another process may still be
 * quicker.
 */
export async function freePort(): Promise<number> {
  for (let attempt = 0; attempt < PORT_ATTEMPTS; attempt++) {
    const port = randomInt(FIRST_PORT, LAST_PORT);
    if (given.has(port)) continue;
    given.add(port);
    if (await canListen(port)) return port;
  }
  throw new Error(
    `no free port between ${FIRST_PORT} and ${LAST_PORT} on ${LOOPBACK} after ${PORT_ATTEMPTS} attempts`,
  );
}

/** Says whether a server can listen on this port of 127.0.0.1. */
export function canListen(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const server = createServer();
    server.once('error', () => resolve(false));
    server.listen(port, LOOPBACK, () => server.close(() => resolve(true)));
  });
}

/** Says whether something accepts connections on this port of 127.0.0.1. */
export function accepts(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect({ port, host: LOOPBACK, timeout: CONNECT_TIMEOUT_MS });
    function answer(accepted: boolean): void {
      socket.destroy();
      resolve(accepted);
    }
    socket.once('connect', () => answer(true));
    socket.once('timeout', () => answer(false));
    socket.once('error', () => answer(false));
  });
}

/**
 * Asks until the answer is true; gives false when the time (milliseconds) is over. An error of
 * `ask` ends the wait.
 */
export async function poll(timeoutMs: number, ask: () => Promise<boolean>): Promise<boolean> {
  const deadline = performance.now() + timeoutMs;
  while (performance.now() < deadline) {
    if (await ask()) return true;
    await sleep(POLL_INTERVAL_MS);
  }
  return false;
}

/** Gives the first result of `attempt`; throws what it threw last when the time is over. */
export async function retried<T>(timeoutMs: number, attempt: () => Promise<T>): Promise<T> {
  let last: unknown = new Error('no attempt was made');
  let result: { value: T } | undefined;
  await poll(timeoutMs, async () => {
    try {
      result = { value: await attempt() };
      return true;
    } catch (error) {
      last = error;
      return false;
    }
  });
  if (result === undefined) throw last;
  return result.value;
}

/** What an error says, whatever was thrown. */
export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** The last lines of a log file, for an error message. */
export async function logTail(file: string): Promise<string> {
  const text = await readFile(file, 'utf8').catch(() => '');
  const lines = text.trimEnd().split('\n').slice(-LOG_TAIL_LINES);
  return `log: ${file}${text === '' ? ' (empty)' : `, last lines:\n  ${lines.join('\n  ')}`}`;
}
