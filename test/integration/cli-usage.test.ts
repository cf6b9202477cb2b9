/** Faults at the command line: one clear line and an exit code; help; keys. */
import { expect, test } from '@jest/globals';
import { readFileSync } from 'node:fs';
import { parse, parseAllDocuments } from 'yaml';
import { rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { commands, help } from '../../internal/operators/cli/command-line.ts';
import { hashApiKey, newApiKey } from '../../internal/partner/api-key.ts';
import { KEY_USES } from '../../internal/partner/key-store.ts';
import { DAY_MS, later } from '../../internal/platform/process/clock.ts';
import type { Json } from '../support/chart.ts';
import { cliOf, runCli, spawnCli } from '../support/cli.ts';
import { send } from '../support/http.ts';
import { storedKey } from '../support/stored-keys.ts';
import { eventually } from '../support/wait.ts';
import { worldOf } from '../support/world.ts';

const { world, ...first } = await worldOf(['controller'], { controller: false });
let { controller } = first;
const cli = cliOf(world);
const labels = (partner: string) => ({ 'partner-ingest.io/partner': partner });

test('a command without configuration names what is missing, except keys new', async () => {
  const lost = await spawnCli({}, 'audit');
  expect(lost).toMatchObject({ code: 2, stdout: '' });
  expect(lost.stderr).toContain('MONGODB_URI: is required');
  expect(await spawnCli({}, 'keys', 'new', 'acme')).toMatchObject({ code: 0 });
});

test('every command has help with examples, which are commands that exist, and stands on its page', async () => {
  const page = readFileSync(new URL('../../docs/operations.md', import.meta.url), 'utf8');
  const all = await spawnCli({}, '--help');
  expect(all).toMatchObject({ code: 0, stderr: '' });
  expect(await runCli({})).toMatchObject({ code: 2, stdout: '', stderr: all.stdout });
  for (const command of commands) {
    expect(page).toContain(`\`${command.name}`);
    expect(all.stdout).toContain(`  ${command.name.split(' ')[0]}`);
    const printed = await runCli({}, ...command.name.split(' '), '--help');
    expect(printed).toMatchObject({ code: 0, stderr: '' });
    const { examples } = help[command.name]!;
    expect(examples.length).toBeGreaterThan(0);
    for (const example of examples) {
      expect(printed.stdout).toContain(`  partner-ingest ${example}`);
      expect(example.startsWith(command.name)).toBe(true);
      for (const option of example.match(/--[a-z]+/g) ?? [])
        expect(printed.stdout).toContain(`  ${option}`);
    }
  }
});

test('keys new prints a Secret that works, and keys list shows its last use', async () => {
  const made = await cli('keys', 'new', 'Acme.Corp');
  expect(made).toMatchObject({ code: 0 });
  const secret = parse(made.stdout) as {
    metadata: { name: string };
    stringData: Record<string, string>;
  };
  const key = /: (\S+)\n$/.exec(made.stderr)?.[1] ?? '';
  expect(secret.stringData).toEqual({ 'key-1': `sha256:${hashApiKey(key)}` });
  expect(made.stdout).not.toContain(key);
  expect(secret).toMatchObject({
    apiVersion: 'v1',
    kind: 'Secret',
    metadata: {
      name: expect.stringMatching(/^partner-acme-corp-[0-9a-f]{12}$/),
      namespace: 'partner-ingest-keys',
      labels: { 'partner-ingest.io/partner': 'Acme.Corp' },
    },
  });
  expect(key).toMatch(/^pik_[0-9A-Za-z]{46}$/);
  const ofTests = await cli('keys', 'new', 'Acme.Corp', '--test');
  expect(ofTests.stderr).toMatch(/: pik_test_[0-9A-Za-z]{46}\n$/);

  await writeFile(join(world.keyFolder, 'acme.yaml'), `${made.stdout}---\n${ofTests.stdout}`);
  const stored = async () => (await storedKey(world.stores.db, key)) !== undefined;
  await eventually('the key to be in force', stored);
  const list = async () =>
    (await cli('keys', 'list', '--partner', 'Acme.Corp', '--json')).json<
      { key: string; mode: string; last_used_at: string | null }[]
    >();
  expect((await list()).map(({ mode }) => mode).toSorted()).toEqual(['live', 'test']);
  expect(await list()).not.toContainEqual(
    expect.objectContaining({ last_used_at: expect.any(String) }),
  );

  // Ingest writes last uses in batches, the last one as it stops.
  const before = Date.now();
  const ingest = await world.start('ingest');
  expect((await send(ingest.url, { key, body: '{}' })).status).toBe(202);
  await ingest.close();
  const listed = (await list()).find(({ mode }) => mode === 'live');
  expect(new Date(listed?.last_used_at ?? 0).getTime()).toBeGreaterThanOrEqual(before);
  const uses = world.stores.db.collection<{ _id: string }>(KEY_USES);
  const lastUsedAt = later(new Date(), -91 * DAY_MS);
  await uses.updateOne({ _id: hashApiKey(key) }, { $set: { lastUsedAt } });
  await eventually('the unused key', async () =>
    (await cli('keys', 'list')).stdout.includes('active, unused for 90 days'),
  );
  await uses.updateOne({ _id: hashApiKey(key) }, { $set: { lastUsedAt: new Date() } });
  const text = await cli('keys', 'list');
  expect(text.stdout).toMatch(
    /Acme\.Corp +active +[0-9a-f]{12} +partner-ingest-keys\/partner-acme-corp-[0-9a-f]{12} +\d{4}-/,
  );
  expect(text.stdout).not.toContain(key);
  const ended = made.stdout.replace(
    'labels:',
    "annotations: { partner-ingest.io/not-after: '2025-12-31T00:00:00Z' }\n  labels:",
  );
  await writeFile(join(world.keyFolder, 'acme.yaml'), `${ended}---\n${ofTests.stdout}`);
  await eventually('the ended key', async () =>
    /Acme\.Corp +ended /.test((await cli('keys', 'list')).stdout),
  );
  expect(await cli('keys', 'list', '--partner', 'nobody')).toMatchObject({ code: 1, stdout: '' });
});

test('keys new prints a Partner too where the controller follows them', async () => {
  const made = await runCli({ WATCH_PARTNERS: 'true' }, 'keys', 'new', 'Acme_1', '--test');
  const [secret, partner] = parseAllDocuments(made.stdout).map((one) => one.toJS() as Json);
  expect(secret).toMatchObject({ kind: 'Secret', metadata: { labels: labels('Acme_1') } });
  expect(partner).toMatchObject({
    kind: 'Partner',
    metadata: { name: expect.stringMatching(/^acme-1-[0-9a-f]{6}$/) },
    spec: { partnerId: 'Acme_1', keys: [{ secretName: secret?.['metadata'].name, mode: 'test' }] },
  });
  expect(made.stderr).toContain('kubectl apply --server-side --field-manager=partner-acme-1-');
});

test.each(['no', 'Y', 'on', '1_000', '0b11', '0777', '2027-01-01'])(
  'the partner %s is text in what kubectl reads',
  async (partner) => {
    const secret = { kind: 'Secret', metadata: { name: partner, labels: labels(partner) } };
    const file = join(world.keyFolder, 'secrets.list');
    await writeFile(file, JSON.stringify(secret));
    const [made, moved] = await Promise.all([
      runCli({ WATCH_PARTNERS: 'true' }, 'keys', 'new', partner),
      runCli({}, 'partner', 'manifests', file),
    ]);
    await rm(file);
    const read = `${made.stdout}\n---\n${moved.stdout}`;
    const version = { version: '1.1' } as const;
    const [held, listed, found] = parseAllDocuments(read, version).map((one) => one.toJS() as Json);
    const idOf = ({ metadata, spec }: Json) => spec.partnerId ?? metadata.name;
    expect([held?.['metadata'].labels, ...[listed!, found!].map(idOf)]).toEqual([
      labels(partner),
      partner,
      partner,
    ]);
    expect(found?.['spec'].keys).toEqual([{ secretName: partner }]);
  },
);

test('partner manifests say what annotations say, and leave out what no Partner can', async () => {
  const secret = (name: string, partner: string, annotations: Record<string, string> = {}) => ({
    kind: 'Secret',
    metadata: {
      name,
      labels: labels(partner),
      annotations: Object.fromEntries(
        Object.entries(annotations).map(([key, value]) => [`partner-ingest.io/${key}`, value]),
      ),
    },
    data: { key: 'canary' },
  });
  const items = [
    secret('a', 'acme', { 'max-per-minute': '60', cidrs: '192.0.2.0/24, ::1' }),
    secret('b', 'acme', { 'max-per-minute': '50', 'key-format': 'older', receipts: 'always' }),
    secret('c', 'acme', { mode: 'test', 'not-after': '2027-01-31T12:00:00+01:00' }),
    secret('d', 'off', { status: 'inactive' }),
    secret('e', 'wrong', { 'max-per-minute': 'abc' }),
    secret('f', 'odd', { status: 'Active' }),
    secret('g', 'half'),
    secret('h', 'half', { mode: 'test', status: 'inactive' }),
    { kind: 'Secret', metadata: { name: 'stranger' } },
  ];
  const file = join(world.keyFolder, 'secrets.list');
  await writeFile(file, JSON.stringify({ kind: 'List', items }));
  const told = await runCli({}, 'partner', 'manifests', file);
  expect(told.code).toBe(1);
  expect(parseAllDocuments(told.stdout).map((one) => (one.toJS() as Json)['spec'])).toEqual([
    {
      limits: { maxPerMinute: 50 },
      keys: [
        { secretName: 'a', cidrs: ['192.0.2.0/24', '::1'] },
        { secretName: 'b', format: 'older', receipts: 'always' },
        { secretName: 'c', mode: 'test', notAfter: '2027-01-31T11:00:00.000Z' },
      ],
    },
    { suspend: true, keys: [{ secretName: 'd' }] },
  ]);
  expect(told.stderr.match(/^\w+ is left out/gm)).toEqual([
    'wrong is left out',
    'odd is left out',
    'half is left out',
  ]);
  expect(told.stdout + told.stderr).not.toContain('canary');
  expect(await runCli({}, 'partner', 'manifests', `${file}x`)).toMatchObject({ code: 2 });
  await rm(file);
});

test('keys revoke takes effect without a controller, and stays when one returns', async () => {
  const key = newApiKey();
  const id = hashApiKey(key).slice(0, 12);
  const stored = () => storedKey(world.stores.db, key);
  const file = await world.writePartner({ partner: 'leaky', keys: [key] });
  await eventually('the key', async () => (await stored())?.status === 'active');
  const ingest = await world.start('ingest');
  const status = async () => (await send(ingest.url, { key, body: '{}' })).status;
  expect(await status()).toBe(202);
  await controller.close();

  expect((await cli('keys', 'revoke', id)).stdout).toContain(
    `key ${id} of leaky, from partner-keys/partner-leaky,`,
  );
  for (const [words, code] of [
    [['000000000000', '--yes'], 1],
    [[id.slice(1), '--yes'], 2],
    [[key, '--yes'], 2],
  ] as const)
    expect(await cli('keys', 'revoke', ...words)).toMatchObject({ code, stdout: '' });
  expect(await status()).toBe(202);

  const revoke = ['keys', 'revoke', id.toUpperCase(), '--yes'];
  const revoked = await cli(...revoke, '--json', '--why', 'leaked');
  const startedAt = performance.now();
  expect(revoked.json()).toMatchObject({ key: id, partner: 'leaky', result: 'revoked' });
  await eventually('401', async () => (await status()) === 401);
  console.log(`revoked: 401 ${Math.round(performance.now() - startedAt)} ms after the command`);
  expect((await cli('keys', 'revoke', id, '--yes')).code).toBe(1);
  expect((await cli('keys', 'list', '--partner', 'leaky', '--json')).json()).toMatchObject([
    { status: 'revoked' },
  ]);
  expect(await world.trail({ action: 'keys revoke', result: 'done' })).toMatchObject([
    { partnerId: 'leaky', keyId: id, why: 'leaked' },
  ]);

  controller = await world.start('controller');
  const problems = () =>
    world.metric(controller, 'partner_ingest_secret_problems', { problem: 'key_revoked' });
  await eventually('the problem', async () => (await problems()) === 1);
  expect(await status()).toBe(401);
  await rm(file);
  await eventually('its removal', async () => (await stored()) === undefined);
});
