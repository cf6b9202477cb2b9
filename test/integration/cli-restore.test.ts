/** The runbook of docs/restore.md: MongoDB back from an older dump, Redis empty, and audit says what that means. */
import { expect, test } from '@jest/globals';
import type { Document } from 'mongodb';
import { ACCOUNTS } from '../../internal/account/account.ts';
import { cliOf } from '../support/cli.ts';
import { submit } from '../support/processing.ts';
import { eventually } from '../support/wait.ts';
import { newApplication, openWorld, type World } from '../support/world.ts';

type Dump = ReadonlyMap<string, Document[]>;

async function dump(world: World): Promise<Dump> {
  const collections = await world.stores.db.listCollections().toArray();
  const documents = collections.map(
    async ({ name }) => [name, await world.stores.db.collection(name).find().toArray()] as const,
  );
  return new Map(await Promise.all(documents));
}

/** As a restore does: everything of now goes, indexes too, and the dump's documents come back. */
async function restore(world: World, dumped: Dump): Promise<void> {
  await world.stores.db.dropDatabase();
  for (const [name, documents] of dumped) {
    if (documents.length > 0) await world.stores.db.collection(name).insertMany(documents);
  }
  await world.stores.redis.flushdb();
}

test('a dump of an hour ago and an empty Redis: what survived ends once, second mails only where announced', async () => {
  const world = await openWorld({ controller: false });
  try {
    const cli = cliOf(world);
    let controller = await world.start('controller');
    let ingest = await world.start('ingest');
    let processor = await world.start('processor');
    const done = { application: newApplication(), id: '' };
    done.id = await submit(world, ingest, done.application);
    await world.recordIn('completed', done.id);

    // Open at the dump: one with its account made and its mail waiting, one not even looked at.
    await world.mail.stopListening();
    const mailing = { application: newApplication(), id: '' };
    mailing.id = await submit(world, ingest, mailing.application);
    await world.recordIn('account_created', mailing.id);
    await processor.close();
    const waiting = { application: newApplication(), id: '' };
    waiting.id = await submit(world, ingest, waiting.application);
    const dumped = await dump(world);

    await world.mail.listenAgain();
    processor = await world.start('processor');
    const lost = { application: newApplication(), id: '' };
    lost.id = await submit(world, ingest, lost.application);
    for (const { id } of [mailing, waiting, lost]) await world.recordIn('completed', id);
    for (const running of [ingest, processor, controller]) await running.close();

    await restore(world, dumped);
    controller = await world.start('controller');
    expect(await cli('audit')).toMatchObject({ code: 0 });
    processor = await world.start('processor');
    ingest = await world.start('ingest');
    for (const { id } of [mailing, waiting]) await world.recordIn('completed', id);
    const unknown = await cli('show', lost.id);
    expect(unknown).toMatchObject({ code: 1 });

    // What was lost can be sent again, and the first mail of each survivor says which got a second one.
    await world.recordIn('completed', await submit(world, ingest, lost.application));
    const mails = [done, mailing, waiting, lost].map(({ application }) => world.mail.mailsTo(application.email).length);
    expect(mails).toEqual([1, 2, 2, 2]);
    const [first, second] = world.mail.mailsTo(mailing.application.email);
    expect(second?.links).toEqual(first?.links);
    expect(await world.stores.db.collection(ACCOUNTS).countDocuments()).toBe(4);
    await eventually('audit to agree', async () => (await cli('audit')).code === 0);
  } finally {
    await world.close();
  }
});
