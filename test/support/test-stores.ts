/** A database and a Redis number for each test file. */
/* oxlint-disable node/no-process-env -- set by global-setup.ts */
import { randomBytes } from 'node:crypto';
import { afterAll } from '@jest/globals';
import { Redis } from 'ioredis';
import { MongoClient } from 'mongodb';
import { accountIndexes, ACCOUNTS, type Account } from '../../internal/account/account.ts';
import { ensureIndexes } from '../../internal/platform/stores/mongo-indexes.ts';
import {
  submissionIndexes,
  type SubmissionRecord,
  SUBMISSIONS,
} from '../../internal/submission/submission.ts';

/** Numbers 1 to 255 are used in turn; 0 holds the counter. */
const REDIS_DATABASES = 255;

export async function openTestStores() {
  const mongodbUri = required('TEST_MONGODB_URI');
  const redisBase = required('TEST_REDIS_URL');
  const counter = new Redis(redisBase);
  const number = ((await counter.incr('partner-ingest-tests')) % REDIS_DATABASES) + 1;
  counter.disconnect();
  const redisUrl = new URL(redisBase);
  redisUrl.pathname = `/${number}`;
  const redis = new Redis(redisUrl.href);
  await redis.flushdb();
  const client = new MongoClient(mongodbUri, { writeConcern: { w: 'majority', journal: true } });
  const database = `test_${randomBytes(6).toString('hex')}`;
  const db = client.db(database);
  return {
    mongodbUri,
    database,
    redisUrl: redisUrl.href,
    db,
    requests: db.collection<SubmissionRecord>(SUBMISSIONS),
    accounts: db.collection<Account>(ACCOUNTS),
    redis,
    /**
     * Deletes all documents. Dropping a collection can fail while other files create theirs
     * (FerretDB).
     */
    empty: async () => {
      for (const collection of await db.collections()) await collection.deleteMany({});
    },
    close: async () => {
      try {
        await db.dropDatabase();
        await redis.flushdb();
      } finally {
        redis.disconnect();
        await client.close();
      }
    },
  };
}

/** Opens stores for a test file, with the processor's indexes if it asks, and closes them after it. */
export async function storesOfFile({ indexes = false } = {}) {
  const stores = await openTestStores();
  afterAll(() => stores.close());
  try {
    if (indexes) await ensureIndexes(stores.db, [...submissionIndexes, ...accountIndexes]);
    return stores;
  } catch (error) {
    await stores.close();
    throw error;
  }
}

function required(name: string): string {
  const value = process.env[name];
  if (value === undefined)
    throw new Error(`${name} is not set: run tests with "make test" or "npm run jest"`);
  return value;
}
