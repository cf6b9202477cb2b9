/** Runs docs/restore.md: MongoDB from an older dump, an empty Redis, then the audit. */
import { execFile } from 'node:child_process';
import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
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

const ISSUER = 'https://api.example.com/api/v1';
type Made = { readonly manifest: { readonly stringData: { readonly 'keys.json': string } } };

async function contentOf(folder: string): Promise<string> {
  const names = await readdir(folder);
  return (await Promise.all(names.map((name) => readFile(join(folder, name), 'utf8')))).join('');
}

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
  keys = '',
): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'restore-'));
  try {
    await writeFile(join(folder, file), `${lines.join('\n')}\n`);
    const command = `partner-ingest() { node "$PROJECT/cmd/cli/main.ts" "$@"; }; set -eo pipefail; ${block}`;
    const env = { PATH: process.env['PATH'], PROJECT: process.cwd(), keys, ...world.environment };
    const options = { cwd: folder, env, timeout: HANG_MS };
    return (await promisify(execFile)('bash', ['-c', command], options)).stdout;
  } finally {
    await rm(folder, { recursive: true });
  }
}

test.each(['empty', 'as it was'] as const)(
  'after a restore, with Redis %s, each kept request ends once, and ended ones stay ended',
  async (redis) => {
    const register = await mkdtemp(join(tmpdir(), 'erasures-'));
    const world = await openWorld({
      controller: false,
      environment: { ERASURE_REGISTER: register, ERASURE_REGISTER_KEY: 'k'.repeat(32) },
    });
    try {
      const cli = cliOf(world);
      const made = await cli('receipt', 'keys', '--issuer', ISSUER, '--json');
      const set = made.json<Made>().manifest.stringData['keys.json'];
      const keys = { revoked: newApiKey(), disabled: newApiKey(), held: newApiKey() };
      for (const [partner, key] of Object.entries(keys))
        await world.writePartner({ partner, keys: [key] });
      let controller = await world.start('controller');
      const before = await world.start('ingest', { RECEIPT_KEYS: set });
      const receipts: string[] = [];
      const submitted = async (application: object, key = world.key): Promise<string> => {
        const body = JSON.stringify(application);
        const answer = await send(before.url, { key, body, headers: { prefer: 'receipt' } });
        receipts.push(answer.headers['receipt'] ?? 'none');
        return requestIdOf(answer);
      };
      let processor = await world.start('processor');
      const done = { application: newApplication(), id: '' };
      done.id = await submitted(done.application);
      await world.recordIn('completed', done.id);
      // Erased after the dump: completed, open, and mentioned by another applicant.
      const gone = { ...newApplication(), email: 'gone@example.com' };
      const goneIds = [await submitted(gone)];
      await world.recordIn('completed', goneIds[0]!);
      const mentioning = await submitted({ ...newApplication(), contact: gone.email });
      await world.recordIn('completed', mentioning);

      // Open at the dump: one that waits for its mail, and one that is not yet processed.
      await world.mail.stopListening();
      const mailing = { application: newApplication(), id: '' };
      mailing.id = await submitted(mailing.application);
      await world.recordIn('account_created', mailing.id);
      await processor.close();
      const waiting = { application: newApplication(), id: '' };
      waiting.id = await submitted(waiting.application);
      goneIds.push(await submitted({ ...gone, ein: newApplication().ein }));
      const held = await submitted(newApplication(), keys.held);
      const dumped = await dump(world);

      const erased = await cli('erase', '--email', gone.email, '--yes');
      expect(erased).toMatchObject({ code: 0 });
      for (const words of [
        ['keys', 'revoke', hashApiKey(keys.revoked).slice(0, 12), '--yes'],
        ['partner', 'disable', 'disabled'],
        ['partner', 'disable', 'held'],
        ['partner', 'hold', 'held'],
        ['partner', 'enable', 'held'],
      ]) {
        expect(await cli(...words)).toMatchObject({ code: 0 });
      }
      expect(await contentOf(register)).not.toMatch(new RegExp(`gone|${goneIds.join('|')}`));
      await world.mail.listenAgain();
      processor = await world.start('processor');
      const lost = { application: newApplication(), id: '' };
      lost.id = await submitted(lost.application);
      // Received and erased after the dump: nobody may send it again.
      const late = { ...newApplication(), email: 'late@example.com' };
      const lateId = await submitted(late);
      for (const id of [mailing.id, waiting.id, lost.id, lateId])
        await world.recordIn('completed', id);
      expect(await cli('erase', '--email', late.email, '--yes')).toMatchObject({ code: 0 });
      for (const running of [processor, controller, before]) await running.close();

      await restore(world, dumped, redis);
      controller = await world.start('controller');
      expect(await cli('audit')).toMatchObject({ code: 0 });
      const nameLost = blockOf('docs/restore.md', 'partner-ingest receipt missing ');
      const told = await runBlock(world, nameLost, 'receipted.txt', receipts, set);
      expect(told).toMatch(new RegExp(`^${lost.id}  demo  .*  missing\n$`));
      const listed = await cli('erase', '--replay');
      expect(listed.stdout).toMatch(/keys revoke +[0-9a-f]{12} +would be revoked/);
      expect(await world.record(goneIds[0]!)).not.toHaveProperty('erasedAt');
      const replayed = blockOf('docs/restore.md', 'partner-ingest erase --replay');
      await runBlock(world, replayed, 'nothing', []);
      for (const id of goneIds)
        expect(await world.record(id)).toMatchObject({ erasedAt: expect.any(Date) });
      expect(await world.record(mentioning)).not.toHaveProperty('body');
      expect(await world.stores.accounts.countDocuments({ emailNormalized: gone.email })).toBe(0);
      expect(await world.record(done.id)).not.toHaveProperty('erasedAt');
      const again = await cli('erase', '--replay', '--yes');
      expect(again).toMatchObject({ code: 0, stdout: expect.stringContaining('nothing is back') });
      processor = await world.start('processor');
      const ingest = await world.start('ingest');
      const answers = Object.values(keys).map(
        async (key) => (await send(ingest.url, { key })).status,
      );
      expect(await Promise.all(answers)).toEqual([401, 403, 400]);
      await hurryReconcile(world, [waiting.id, held]);
      for (const { id } of [mailing, waiting]) await world.recordIn('completed', id);
      const unknown = await cli('show', lost.id);
      expect(unknown).toMatchObject({ code: 1 });

      // An applicant mailed after the backup has a second mail now: a lost request can be sent again.
      await world.recordIn('completed', await submit(world, ingest, lost.application));
      const mails = [done, mailing, waiting, lost].map(
        ({ application }) => world.mail.mailsTo(application.email).length,
      );
      expect(mails).toEqual([1, 2, 2, 2]);
      expect(await world.record(held)).toMatchObject({ state: 'recorded', version: 0 });
      expect(await cli('partner', 'release', 'held')).toMatchObject({ code: 0 });
      await world.recordIn('completed', held);
      const [first, second] = world.mail.mailsTo(mailing.application.email);
      expect(second?.links).toEqual(first?.links);
      const left = { erasedAt: { $exists: false } };
      expect(await world.stores.accounts.countDocuments(left)).toBe(6);
      await eventually('audit to agree', async () => (await cli('audit')).code === 0);
    } finally {
      await world.close();
      await rm(register, { recursive: true });
    }
  },
);
