import type { Db } from 'mongodb';

/** The database `db` with the test's clock; it serves collections and the time only. */
export function timedDatabase(db: Db, now: () => Date): Db {
  return {
    collection: (name: string) => db.collection(name),
    command: () => Promise.resolve({ localTime: now() }),
  } as unknown as Db;
}
