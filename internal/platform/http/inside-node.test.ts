/** What a version of Node must not change. */
import { afterEach, expect, test } from '@jest/globals';
import { once } from 'node:events';
import { createServer, type RequestListener } from 'node:http';
import { connect, type Socket } from 'node:net';
import { listen } from '../../../test/support/listen.ts';
import { eventually } from '../../../test/support/wait.ts';
import { afterLastAnswer, hasRequestBegun } from './inside-node.ts';

const ends: (() => unknown)[] = [];
afterEach(() => {
  for (const end of ends.splice(0)) end();
});

async function connectionTo(answer: RequestListener) {
  const server = createServer(answer);
  const accepted = once(server, 'connection');
  const client = connect({ port: await listen(server), allowHalfOpen: true });
  ends.push(
    () => client.destroy(),
    () => server.close(),
  );
  const [socket] = (await accepted) as [Socket];
  return { client, socket };
}

test('a request has begun with its first byte, but not with an empty line', async () => {
  const { client, socket } = await connectionTo(() => {});
  expect(hasRequestBegun(socket)).toBe(false);
  client.write('\r\n');
  await eventually('the line', () => socket.bytesRead === 2);
  expect(hasRequestBegun(socket)).toBe(false);
  client.write('POST / HT');
  await eventually('more', () => socket.bytesRead > 2);
  expect(hasRequestBegun(socket)).toBe(true);
});

test('after the last answer a connection is still read until we close it', async () => {
  const answered = Promise.withResolvers<() => void>();
  const { client, socket } = await connectionTo((request, answer) => {
    afterLastAnswer(request.socket, answered.resolve);
    request.resume();
    answer.setHeader('connection', 'close').end();
  });
  client.write('POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n');
  const close = await answered.promise;
  await once(client.resume(), 'end');
  const read = socket.bytesRead;
  client.write('body');
  await eventually('the body', () => socket.bytesRead > read);
  close();
  await eventually('the end', () => socket.destroyed);
});
