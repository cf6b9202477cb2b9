/** A partner is switched off and on, by the real command and by Secrets; each says which one it was. */
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { newApiKey } from '../../internal/partner/api-key.ts';
import { partnerSecretManifest } from '../../internal/partner/key-manifest.ts';
import { cliOf, type Ran } from '../support/cli.ts';
import { send } from '../support/http.ts';
import { eventually } from '../support/wait.ts';
import { openWorld, type InProcess, type World } from '../support/world.ts';

let world: World;
let ingest: InProcess;
let cli: (...words: string[]) => Promise<Ran>;
const otherKey = newApiKey();

beforeAll(async () => {
  world = await openWorld();
  await world.writePartner({ partner: 'other', keys: [otherKey] });
  ingest = await world.start('ingest');
  cli = cliOf(world);
  await answers(otherKey, 202);
});
afterAll(() => world.close());

const answers = (key: string, status: number) =>
  eventually(
    `${status}`,
    async () => (await send(ingest.url, { key, body: '{}' })).status === status,
  );

interface Listed {
  readonly partner: string;
}
const listed = async (partner: string) =>
  (await cli('partner', 'list', '--json')).json<Listed[]>().find((one) => one.partner === partner);

/** A further Secret of the partner, and whether its keys count. */
async function addSecret(name: string, status: string): Promise<string> {
  const key = newApiKey();
  const { yaml } = partnerSecretManifest({
    name,
    namespace: 'partner-keys',
    partner: 'demo',
    keys: [key],
    status,
  });
  await writeFile(join(world.keyFolder, `${name}.yaml`), yaml);
  return key;
}

test('a disabled partner is answered 403 with every key, also a later one; enabled, as before', async () => {
  const why = ['--as', 'jane', '--why', 'contract ended'];
  const disabled = await cli('partner', 'disable', 'demo', ...why, '--json');
  expect(disabled.json()).toEqual({ partner: 'demo', result: 'disabled', inactive_by: [] });
  await answers(world.key, 403);
  const later = await addSecret('later', 'active');
  await answers(later, 403);
  await answers(otherKey, 202);
  expect(await listed('demo')).toMatchObject({
    status: 'disabled',
    keys: { active: 2, inactive: 0 },
    disabled: { by: 'jane' },
  });
  expect((await cli('partner', 'list')).stdout).toMatch(/^demo +disabled +2 .* by jane$/m);
  expect((await cli('keys', 'list')).stdout).toMatch(/^demo +disabled /m);
  expect(await cli('partner', 'disable', 'demo')).toMatchObject({ code: 1 });
  expect(await cli('partner', 'disable', '../acme')).toMatchObject({ code: 2 });
  const unknown = await cli('partner', 'disable', 'nobody');
  expect(unknown).toMatchObject({ code: 0 });
  expect(unknown.stderr).toContain('no key of nobody is known');

  // It does not depend on what an ingest has in memory.
  await ingest.close();
  ingest = await world.start('ingest');
  await answers(world.key, 403);

  expect((await cli('partner', 'enable', 'demo')).stdout).toMatch(/^demo is enabled: /);
  await answers(world.key, 202);
  await answers(later, 202);
  expect(await cli('partner', 'enable', 'demo')).toMatchObject({ code: 1 });
  expect(await listed('demo')).toMatchObject({ status: 'active', disabled: null });
});

test('a partner that a Secret switched off: the lists name this Secret, and enable says what to type', async () => {
  const key = await addSecret('old', 'inactive');
  await answers(key, 403);
  await answers(world.key, 403);
  expect(await listed('demo')).toMatchObject({
    status: 'inactive',
    inactive_by: ['partner-keys/old'],
  });
  expect((await cli('keys', 'list', '--partner', 'demo', '--json')).json()).toContainEqual(
    expect.objectContaining({ secret: 'partner-keys/later', inactive_by: 'partner-keys/old' }),
  );
  expect((await cli('keys', 'list')).stdout).toMatch(/^demo +inactive by partner-keys\/old /m);
  const { code, stderr } = await cli('partner', 'enable', 'demo');
  expect(code).toBe(1);
  expect(stderr).toContain(
    'kubectl -n partner-keys annotate secret old partner-ingest.io/status=active --overwrite',
  );

  await addSecret('old', 'Active');
  await answers(world.key, 202);
  expect(await listed('demo')).toMatchObject({
    status: 'active',
    inactive_by: ['partner-keys/old'],
  });
});
