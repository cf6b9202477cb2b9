/** Runs docs/restore.md: MongoDB from an older dump, an empty Redis, then the audit. */
import { execFile } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { expect, test } from '@jest/globals';
import type { Document } from 'mongodb';
import { hashApiKey, newApiKey } from '../../internal/partner/api-key.ts';
import { blockOf } from '../e2e/page-blocks.ts';
import { cliOf } from '../support/cli.ts';
import { send } from '../support/http.ts';
import { hurryReconcile, submit } from '../support/processing.ts';
import { HANG_MS, eventually } from '../support/wait.ts';
import { newApplication, openWorld, requestIdOf, type World } from '../support/world.ts';

type Dump = ReadonlyMap<string, Document[]>;

async function dump(world: World): Promise<Dump> {
  const collections = await world.stores.db.listCollections().toArray();
  const documents = collections.map(
    async ({ name }) => [name, await world.stores.db.collection(name).find().toArray()] as const,
  );
  return new Map(await Promise.all(documents));
}

/** Replaces all collections and their indexes by the dump's documents, as a restore does. */
async function restore(world: World, dumped: Dump, redis: 'empty' | 'as it was'): Promise<void> {
  await world.stores.db.dropDatabase();
  for (const [name, documents] of dumped) {
    if (documents.length > 0) await world.stores.db.collection(name).insertMany(documents);
  }
  if (redis === 'empty') await world.stores.redis.flushdb();
}

/** Runs commands of the page with `lines` in `file`, and gives what they print. */
async function runBlock(
  world: World,
  block: string,
  file: string,
  lines: readonly string[],
): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'restore-'));
  try {
    await writeFile(join(folder, file), `${lines.join('\n')}\n`);
    const command = `partner-ingest() { node "$PROJECT/cmd/cli/main.ts" "$@"; }; set -eo pipefail; ${block}`;
    const env = { PATH: process.env['PATH'], PROJECT: process.cwd(), ...world.environment };
    const options = { cwd: folder, env, timeout: HANG_MS };
    return (await promisify(execFile)('bash', ['-c', command], options)).stdout;
  } finally {
    await rm(folder, { recursive: true });
  }
}

test.each(['empty', 'as it was'] as const)(
  'after a restore, with Redis %s, each kept request ends once, and ended ones stay ended',
  async (redis) => {
    const world = await openWorld({ controller: false });
    try {
      const cli = cliOf(world);
      const keys = { revoked: newApiKey(), disabled: newApiKey(), held: newApiKey() };
      for (const [partner, key] of Object.entries(keys))
        await world.writePartner({ partner, keys: [key] });
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
      const held = await send(logging.url, {
        key: keys.held,
        body: JSON.stringify(newApplication()),
      });
      const dumped = await dump(world);

      const trail: string[] = [];
      for (const words of [
        ['keys', 'revoke', hashApiKey(keys.revoked).slice(0, 12), '--yes'],
        ['partner', 'disable', 'disabled'],
        ['partner', 'disable', 'held'],
        ['partner', 'hold', 'held'],
        ['partner', 'enable', 'held'],
      ]) {
        const { code, stderr } = await cli(...words);
        expect(code).toBe(0);
        trail.push(...stderr.split('\n'));
      }
      await world.mail.listenAgain();
      processor = await world.start('processor');
      const lost = { application: newApplication(), id: '' };
      lost.id = await submit(world, logging, lost.application);
      for (const { id } of [mailing, waiting, lost]) await world.recordIn('completed', id);
      for (const running of [processor, controller]) await running.close();
      expect(await logging.stop()).toBe(0);

      await restore(world, dumped, redis);
      controller = await world.start('controller');
      expect(await cli('audit')).toMatchObject({ code: 0 });
      const nameLost = blockOf('docs/restore.md', 'grep \'"msg"');
      const told = await runBlock(world, nameLost, 'accepts.log', logging.lines);
      expect(
        told
          .trim()
          .split('\n')
          .map((line) => JSON.parse(line) as unknown),
      ).toMatchObject([{ request_id: lost.id, partner: 'demo', status: 202 }]);
      await runBlock(world, blockOf('docs/restore.md', 'grep \'"operator'), 'trail.log', trail);
      processor = await world.start('processor');
      const ingest = await world.start('ingest');
      const answers = Object.values(keys).map(
        async (key) => (await send(ingest.url, { key })).status,
      );
      expect(await Promise.all(answers)).toEqual([401, 403, 400]);
      await hurryReconcile(world, [waiting.id, requestIdOf(held)]);
      for (const { id } of [mailing, waiting]) await world.recordIn('completed', id);
      const unknown = await cli('show', lost.id);
      expect(unknown).toMatchObject({ code: 1 });

      // An applicant mailed after the backup has a second mail now: a lost request can be sent again.
      await world.recordIn('completed', await submit(world, ingest, lost.application));
      const mails = [done, mailing, waiting, lost].map(
        ({ application }) => world.mail.mailsTo(application.email).length,
      );
      expect(mails).toEqual([1, 2, 2, 2]);
      expect(await world.record(requestIdOf(held))).toMatchObject({
        state: 'recorded',
        version: 0,
      });
      expect(await cli('partner', 'release', 'held')).toMatchObject({ code: 0 });
      await world.recordIn('completed', requestIdOf(held));
      const [first, second] = world.mail.mailsTo(mailing.application.email);
      expect(second?.links).toEqual(first?.links);
      expect(await world.stores.accounts.countDocuments()).toBe(5);
      await eventually('audit to agree', async () => (await cli('audit')).code === 0);
    } finally {
      await world.close();
    }
  },
);
