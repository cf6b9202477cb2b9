/** Reads the backlog while the database is away; a real store has tests of its own. */
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { MongoClient } from 'mongodb';
import { readBacklog } from './due-work.ts';

const unhandled: unknown[] = [];
const note = (error: unknown): void => void unhandled.push(error);
beforeAll(() => void process.on('unhandledRejection', note));
afterAll(() => void process.off('unhandledRejection', note));

test('several failed reads are one rejection, and none stays unhandled', async () => {
  const client = new MongoClient('mongodb://127.0.0.1:1', { serverSelectionTimeoutMS: 50 });
  await expect(readBacklog(client.db('away'), new Date())).rejects.toThrow();
  // Node reports unhandled rejections once its microtask queue is empty.
  for (let turn = 0; turn < 10; turn += 1) await new Promise(setImmediate);
  await client.close();
  expect(unhandled).toEqual([]);
});
