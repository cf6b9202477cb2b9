/** Runs docs/restore.md: MongoDB from an older dump, an empty Redis, then the audit. */
import { execFile } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { expect, test } from '@jest/globals';
import type { Document } from 'mongodb';
import { ACCOUNTS } from '../../internal/account/account.ts';
import { cliOf } from '../support/cli.ts';
import { read } from '../support/pages.ts';
import { hurryReconcile, submit } from '../support/processing.ts';
import { HANG_MS, eventually } from '../support/wait.ts';
import { newApplication, openWorld, type World } from '../support/world.ts';

type Dump = ReadonlyMap<string, Document[]>;

async function dump(world: World): Promise<Dump> {
  const collections = await world.stores.db.listCollections().toArray();
  const documents = collections.map(
    async ({ name }) => [name, await world.stores.db.collection(name).find().toArray()] as const,
  );
  return new Map(await Promise.all(documents));
}

/** Replaces all collections and their indexes by the dump's documents, as a restore does. */
async function restore(world: World, dumped: Dump): Promise<void> {
  await world.stores.db.dropDatabase();
  for (const [name, documents] of dumped) {
    if (documents.length > 0) await world.stores.db.collection(name).insertMany(documents);
  }
  await world.stores.redis.flushdb();
}

/** Runs the page's own commands; they print the log lines of requests that the database lacks. */
async function namedAsLost(world: World, lines: readonly string[]): Promise<unknown[]> {
  const [, block = ''] =
    /^## Which requests are lost$[^]*?^```sh\n([^]*?)^```/m.exec(read('docs/restore.md')) ?? [];
  const folder = await mkdtemp(join(tmpdir(), 'restore-'));
  try {
    await writeFile(join(folder, 'accepts.log'), `${lines.join('\n')}\n`);
    const command = `partner-ingest() { node "$PROJECT/cmd/cli/main.ts" "$@"; }; set -eo pipefail; ${block}`;
    const env = { PATH: process.env['PATH'], PROJECT: process.cwd(), ...world.environment };
    const { stdout } = await promisify(execFile)('bash', ['-c', command], {
      cwd: folder,
      env,
      timeout: HANG_MS,
    });
    return stdout
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line) as unknown);
  } finally {
    await rm(folder, { recursive: true });
  }
}

test('after a restore each kept request ends once, and audit announces each second mail', async () => {
  const world = await openWorld({ controller: false });
  try {
    const cli = cliOf(world);
    let controller = await world.start('controller');
    const logging = await world.spawn('ingest', { LOG_ACCEPTS: 'true' });
    let processor = await world.start('processor');
    const done = { application: newApplication(), id: '' };
    done.id = await submit(world, logging, done.application);
    await world.recordIn('completed', done.id);

    // Open at the dump: one that waits for its mail, and one that is not yet processed.
    await world.mail.stopListening();
    const mailing = { application: newApplication(), id: '' };
    mailing.id = await submit(world, logging, mailing.application);
    await world.recordIn('account_created', mailing.id);
    await processor.close();
    const waiting = { application: newApplication(), id: '' };
    waiting.id = await submit(world, logging, waiting.application);
    const dumped = await dump(world);

    await world.mail.listenAgain();
    processor = await world.start('processor');
    const lost = { application: newApplication(), id: '' };
    lost.id = await submit(world, logging, lost.application);
    for (const { id } of [mailing, waiting, lost]) await world.recordIn('completed', id);
    for (const running of [processor, controller]) await running.close();
    expect(await logging.stop()).toBe(0);

    await restore(world, dumped);
    controller = await world.start('controller');
    expect(await cli('audit')).toMatchObject({ code: 0 });
    const told = await namedAsLost(world, logging.lines);
    expect(told).toMatchObject([{ request_id: lost.id, partner: 'demo', status: 202 }]);
    processor = await world.start('processor');
    const ingest = await world.start('ingest');
    await hurryReconcile(world, [waiting.id]);
    for (const { id } of [mailing, waiting]) await world.recordIn('completed', id);
    const unknown = await cli('show', lost.id);
    expect(unknown).toMatchObject({ code: 1 });

    // Lost requests can be sent again; each survivor's first mail shows which got a second one.
    await world.recordIn('completed', await submit(world, ingest, lost.application));
    const mails = [done, mailing, waiting, lost].map(
      ({ application }) => world.mail.mailsTo(application.email).length,
    );
    expect(mails).toEqual([1, 2, 2, 2]);
    const [first, second] = world.mail.mailsTo(mailing.application.email);
    expect(second?.links).toEqual(first?.links);
    expect(await world.stores.db.collection(ACCOUNTS).countDocuments()).toBe(4);
    await eventually('audit to agree', async () => (await cli('audit')).code === 0);
  } finally {
    await world.close();
  }
});
