/**
 * MongoDB hung in the middle of a large message: the driver's own calls must end, although it waits
 * for the socket alone.
 */
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { startMongo, type Store } from '../../deploy/local/stores.ts';
import { withDeadline } from '../../internal/platform/deadline.ts';
import { createMongo } from '../../internal/platform/mongo.ts';
import { HANG_MS } from '../support/wait.ts';

/** Of the other calls as well, on a busy machine. */
const SOCKET_TIMEOUT_MS = 5_000;
/** Far more than sockets hold on both sides. */
const LARGE = Array.from({ length: 12 }, () => ({ text: 'x'.repeat(1_000_000) }));
let store: Store;

beforeAll(async () => {
  store = await startMongo({ log: () => {} });
});
afterAll(() => store.stop());

test('a call that meets a full socket ends with its connection', async () => {
  const client = createMongo(store.url, 'hung', {
    socketTimeoutMS: SOCKET_TIMEOUT_MS,
    retryWrites: false,
  });
  const things = client.db('hung').collection('things');
  await things.insertOne({});
  await store.signal('SIGSTOP');
  try {
    await expect(
      withDeadline(things.insertMany(LARGE), HANG_MS, 'insertMany'),
    ).rejects.toMatchObject({
      name: expect.stringMatching(/^Mongo/),
    });
  } finally {
    await store.signal('SIGCONT');
  }
  await things.insertOne({});
  await client.close();
});
