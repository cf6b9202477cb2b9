import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { once } from 'node:events';
import {
  createConnection,
  createServer,
  type AddressInfo,
  type Server,
  type Socket,
} from 'node:net';
import './closed-sockets.ts';

let deaf: Server;
const unheard: Socket[] = [];
beforeAll(async () => {
  deaf = createServer((socket) => void unheard.push(socket.pause().on('error', () => {}))).listen(
    0,
    '127.0.0.1',
  );
  await once(deaf, 'listening');
});
afterAll(() => {
  for (const socket of unheard) socket.destroy();
  deaf.close();
});

test('also when it was being closed before the write, and nobody had been told yet', async () => {
  const closing = await connect();
  closing.destroy();
  expect(closing.write('late')).toBe(false);
  await once(closing, 'drain', { signal: AbortSignal.timeout(5_000) });
  expect(closing.closed).toBe(true);
});

async function connect(): Promise<Socket> {
  const socket = createConnection((deaf.address() as AddressInfo).port, '127.0.0.1');
  await once(socket, 'connect');
  return socket.on('error', () => {});
}
