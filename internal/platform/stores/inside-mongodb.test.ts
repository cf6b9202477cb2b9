/** What a version of the driver or of Node must not change. */
import { expect, test } from '@jest/globals';
import { once } from 'node:events';
import { connect, createServer } from 'node:net';
import { MongoServerSelectionError } from 'mongodb';
import { listen } from '../../../test/support/listen.ts';
import { wasSent } from './inside-mongodb.ts';

test('who waits for a client socket to drain goes on when it closes', async () => {
  const server = createServer((socket) => socket.on('error', () => {}));
  const socket = connect(await listen(server));
  await once(socket, 'connect');
  const drained = once(socket, 'drain');
  socket.destroy();
  await drained;
  server.close();
});

test('an error before the sending is told apart', () => {
  const selection = new MongoServerSelectionError('none', {} as never);
  const cleared = Object.assign(new Error('cleared'), { name: 'MongoPoolClearedError' });
  expect([selection, cleared, new Error('reset')].map(wasSent)).toEqual([false, false, true]);
});
