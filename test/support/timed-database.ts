import type { Db } from 'mongodb';

/** The database `db` whose clock is the test's. It can be asked for collections and the time only. */
export function timedDatabase(db: Db, now: () => Date): Db {
  return {
    collection: (name: string) => db.collection(name),
    command: () => Promise.resolve({ localTime: now() }),
  } as unknown as Db;
}
