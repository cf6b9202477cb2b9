/** The command `rejudge`, on requests that were decided as an older version would have. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { text } from 'node:stream/consumers';
import { expect, test } from '@jest/globals';
import { Binary, type Document } from 'mongodb';
import { later } from '../../internal/platform/process/clock.ts';
import { newId } from '../../internal/platform/stores/ids.ts';
import { RECORD_SCHEMA } from '../../internal/submission/submission.ts';
import { endOf } from '../../tools/program.ts';
import { ROOT } from '../../tools/root.ts';
import { operatorWorld } from '../support/cli.ts';
import { send } from '../support/http.ts';
import { submit } from '../support/processing.ts';
import { recordOf } from '../support/records.ts';
import { HANG_MS } from '../support/wait.ts';
import { newApplication, requestIdOf } from '../support/world.ts';

const { world, ingest, cli, done, completed } = await operatorWorld();
const { requests, accounts } = world.stores;

interface Line {
  readonly request_id: string;
  readonly state: string;
  readonly was: { readonly end: string; readonly reasons: readonly string[] };
  readonly would_be: Line['was'];
}
interface Summary {
  readonly looked_at: number;
  readonly same: number;
  readonly differ: number;
  readonly not_judged: Readonly<Record<string, number>>;
}

async function rejudged(...words: readonly string[]) {
  const { code, stdout } = await cli('rejudge', '--since', '1h', '--json', ...words);
  const lines = stdout
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line) as Line & Summary);
  const summary = lines.pop()!;
  return { code, lines, summary, of: (id: string) => lines.find((line) => line.request_id === id) };
}

const set = (id: string, $set: Document): Promise<unknown> =>
  requests.updateOne({ _id: id }, { $set });
const bodyOf = (body: object | string) => {
  const bytes = Buffer.from(typeof body === 'string' ? body : JSON.stringify(body));
  return { body: new Binary(bytes), bodyBytes: bytes.length };
};
const rejectedBy = async (fields: object): Promise<string> => {
  const id = await submit(world, ingest, fields);
  await world.recordIn('rejected', id);
  return id;
};

test('what this version decided it decides again, and each difference has its reason', async () => {
  const { id: first, application } = await completed();
  const twice = await rejectedBy(application);
  const faulty = await rejectedBy({ ...newApplication(), ein: '12' });
  const malformed = requestIdOf(await send(ingest.url, { key: world.key, body: '{' }));
  const badKey = requestIdOf(
    await send(ingest.url, {
      key: world.key,
      body: JSON.stringify(newApplication()),
      headers: { 'idempotency-key': '"' },
    }),
  );
  await world.recordIn('malformed', badKey);
  const { id: corrected, application: before } = await completed();
  await done('account', 'correct-email', corrected, newApplication().email, '--yes');
  // The old address is free again.
  const { id: released, application: freed } = await completed();
  await rejectedBy(freed);
  await done('account', 'release', released, '--yes');
  const reused = await submit(world, ingest, { ...newApplication(), email: before.email });
  for (const id of [reused, corrected]) await world.recordIn('completed', id);
  const erased = await rejectedBy({ ...newApplication(), ein: '1' });
  await done('erase', erased, '--yes');
  const closed = recordOf(newApplication(), new Date(), { state: 'closed' });
  const newer = recordOf({}, new Date(), { schema: RECORD_SCHEMA + 1 });
  await requests.insertMany([closed, newer]);

  const calm = await rejudged();
  expect(calm).toMatchObject({ code: 0, lines: [], summary: { differ: 0, looked_at: 12 } });
  expect(calm.summary.not_judged).toEqual({
    'it was answered 400 for more than its body': 1,
    'an account of the same applicant was made just then, or has changed since': 1,
    'its body is not kept': 1,
    'an operator ended it': 1,
    'a newer version stored it': 1,
  });

  // As if an older version had known other rules.
  await set(first, bodyOf({ ...application, business_name: ' ' }));
  await set(faulty, bodyOf(newApplication()));
  await set(twice, bodyOf({ ...application, email: newApplication().email }));
  await set(reused, bodyOf('[]'));
  await set(malformed, { ...bodyOf('{'), bodyBytes: 70_000 });
  const { code, summary, of } = await rejudged();
  expect([code, summary.differ]).toEqual([1, 4]);
  const account = { end: 'account', reasons: [] };
  expect(of(first)).toMatchObject({
    state: 'completed',
    was: account,
    would_be: { end: 'rejected', reasons: ['business_name: blank'] },
  });
  expect(of(faulty)).toMatchObject({
    was: { end: 'rejected', reasons: ['ein: invalid_format'] },
    would_be: account,
  });
  expect(of(twice)).toMatchObject({
    was: { reasons: ['ein: duplicate_ein', 'email: duplicate_email'].toSorted() },
    would_be: { end: 'rejected', reasons: ['ein: duplicate_ein'] },
  });
  expect(of(reused)).toMatchObject({ was: account, would_be: { end: 'malformed' } });
  expect(summary.not_judged['its body is kept in part']).toBe(1);

  // A duplicate by what this version compares, of an account that stood before.
  const { id: second, application: other } = await completed();
  const stored = await world.record(second);
  await set(second, bodyOf({ ...other, ein: before.ein }));
  const madeAt = (createdAt: Date) =>
    accounts.updateOne(
      { requestId: corrected },
      { $set: { createdAt }, $unset: { linkVersion: true } },
    );
  await madeAt(later(stored!.stateAt, -60_000));
  expect((await rejudged()).of(second)).toMatchObject({
    was: account,
    would_be: { end: 'rejected', reasons: ['ein: duplicate_ein'] },
  });
  // One that came later does not count.
  await madeAt(later(stored!.stateAt, 60_000));
  expect((await rejudged()).of(second)).toBeUndefined();

  const people = await cli('rejudge', '--since', '1h');
  expect(people.code).toBe(1);
  expect(people.stdout).toMatch(
    new RegExp(`^ *1 +account → rejected \\(business_name: blank\\) +${first}$`, 'm'),
  );
  expect(people.stdout).toMatch(/^13 requests: 4 would end otherwise, \d as they did$/m);
  for (const person of [application, before, freed])
    for (const value of [person.email, person.ein, person.business_name])
      expect(people.stdout + JSON.stringify(calm)).not.toContain(value);
  expect((await rejudged('--partner', 'dormant')).summary.looked_at).toBe(0);
  expect(await world.trail({ action: /rejudge/ })).toEqual([]);
});

test('it needs a time', async () => {
  expect(await cli('rejudge')).toMatchObject({
    code: 2,
    stderr: expect.stringContaining('--since is missing'),
  });
});

test('over many requests its memory is bounded, and a stop says where to go on', async () => {
  const from = new Date(Date.now() - 5 * 86_400_000);
  const COUNT = 20_000;
  const body = JSON.stringify({ ...newApplication(), ein: '1', padding: 'x'.repeat(4_000) });
  for (let made = 0; made < COUNT; made += 1_000)
    await requests.insertMany(
      Array.from({ length: 1_000 }, (_, index) => {
        const at = later(from, (made + index) * 10);
        const reasons = [{ field: 'ein', code: 'invalid_format', message: '' } as const];
        const more = {
          _id: newId('req', at),
          state: 'rejected',
          reasons,
          ...bodyOf(body),
        } as const;
        return recordOf({}, at, more);
      }),
    );
  const words = ['rejudge', '--since', from.toISOString(), '--until', '2d', '--rate', '1000000'];
  const { code, stdout } = await cli(...words, '--json');
  expect([code, JSON.parse(stdout)]).toEqual([
    0,
    expect.objectContaining({ looked_at: COUNT, same: COUNT }),
  ]);
  // 80 MB of bodies in a heap of 48 MB.
  const args = ['--max-old-space-size=48', 'cmd/cli/main.ts', ...words];
  const env = { PATH: process.env['PATH'], ...world.environment };
  const small = await endOf(process.execPath, args, { cwd: ROOT, env, timeoutMs: HANG_MS });
  expect(small).toMatchObject({ code: 0, out: expect.stringContaining(`${COUNT} requests: 0`) });

  const slow = ['rejudge', '--since', from.toISOString(), '--until', '2d', '--rate', '1000'];
  const child = spawn(process.execPath, ['cmd/cli/main.ts', ...slow], { cwd: ROOT, env });
  const [out, err] = [child.stdout, child.stderr].map((stream) => text(stream));
  // The first word of its progress.
  await once(child.stderr, 'data');
  child.kill('SIGINT');
  const [ended] = (await once(child, 'exit')) as [number];
  expect([ended, await out]).toEqual([130, expect.stringMatching(/^\d+ requests: 0 would end/)]);
  const [, since = ''] = /go on, .* --since "(.*)"$/m.exec(await err!) ?? [];
  expect(new Date(`${since}Z`).getTime()).toBeGreaterThanOrEqual(from.getTime() - 60_000);
});
