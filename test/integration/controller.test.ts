/** Partner keys from a folder of Secrets to ingest. */
import { rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, test } from '@jest/globals';
import { newApiKey } from '../../internal/partner/api-key.ts';
import { send } from '../support/http.ts';
import { storedKey } from '../support/stored-keys.ts';
import { eventually } from '../support/wait.ts';
import { newApplication, worldOf } from '../support/world.ts';

const { world, ingest, ...first } = await worldOf(['controller', 'ingest'], {
  controller: false,
  documentedRights: true,
});
let { controller } = first;

const status = async (key: string, of: { readonly url: string } = ingest): Promise<number> =>
  (await send(of.url, { key, body: JSON.stringify(newApplication()) })).status;

const becomes = (key: string, wanted: number): Promise<boolean> =>
  eventually(`${wanted}`, async () => (await status(key)) === wanted);

async function write(name: string, text: string): Promise<void> {
  const file = join(world.keyFolder, name);
  await writeFile(`${file}.new`, text);
  await rename(`${file}.new`, file);
}

const problems = (problem: string): Promise<number> =>
  world.metric(controller, 'partner_ingest_secret_problems', { problem });

/** A Secret manifest with these lines below `metadata` and at the top level. */
const manifest = (partner: string, lines: readonly string[], kind = 'Secret'): string =>
  [
    'apiVersion: v1',
    `kind: ${kind}`,
    'metadata:',
    `  name: s-${partner}`,
    '  labels:',
    `    partner-ingest.io/partner: ${partner}`,
    ...lines,
    '',
  ].join('\n');

const stored = (key: string) => storedKey(world.stores.db, key);

test('a key is valid from its own addresses, until its end and in its mode', async () => {
  const key = newApiKey();
  const annotate = (annotations: Readonly<Record<string, string>>) =>
    world.writePartner({ partner: 'bound', keys: [key], annotations });
  await annotate({ 'partner-ingest.io/cidrs': '127.0.0.0/8' });
  await becomes(key, 202);
  await annotate({ 'partner-ingest.io/cidrs': '192.0.2.0/24' });
  await becomes(key, 401);
  // The record is written after the answer.
  await eventually(
    'its record',
    async () => (await world.records({ partnerId: 'bound', httpStatus: 401 })).length > 0,
  );
  await annotate({ 'partner-ingest.io/cidrs': '192.0.2.0/240' });
  await eventually('the problem', async () => (await problems('invalid_annotation')) === 1);
  await annotate({});
  await becomes(key, 202);
  // Ingest compares the end with its clock, without a write.
  await annotate({ 'partner-ingest.io/not-after': new Date(Date.now() + 3_000).toISOString() });
  await eventually(
    'the end to be known',
    async () => (await stored(key))?.terms.notAfter !== undefined,
  );
  await becomes(key, 401);
  expect(await world.metric(controller, 'partner_ingest_partners_keys_ending')).toBe(1);
  // The Secret holds a digest, which does not show the mode of its key.
  const ofTests = newApiKey({ test: true });
  await world.writePartner({ partner: 'misplaced', keys: [ofTests] });
  for (const because of ['address', 'ended', 'mode'])
    await eventually(`a refusal because of ${because}`, async () => {
      expect(await status(ofTests)).toBe(401);
      const labels = { because };
      return (await world.metric(ingest, 'partner_ingest_keys_out_of_terms_total', labels)) > 0;
    });
});

test('files may hold data, stringData, several documents or JSON, and other objects are ignored', async () => {
  const [clear, encoded, second, json] = [newApiKey(), newApiKey(), newApiKey(), newApiKey()];
  const [inMap, unlabelled] = [newApiKey(), newApiKey()];
  await write('map.yaml', manifest('map', ['data:', `  a: ${inMap}`], 'ConfigMap'));
  await write(
    'unlabelled.yaml',
    `apiVersion: v1\nkind: Secret\nmetadata:\n  name: x\nstringData:\n  a: ${unlabelled}\n`,
  );
  const base64 = Buffer.from(`${encoded}\n`).toString('base64');
  await write(
    'many.yaml',
    [
      manifest('clear', ['data:', `  a: ${base64}`, 'stringData:', `  b: ${clear}`]),
      manifest('second', ['stringData:', `  a: ${second}`]),
    ].join('---\n'),
  );
  await write(
    'one.json',
    JSON.stringify({
      apiVersion: 'v1',
      kind: 'Secret',
      metadata: { name: 'json', labels: { 'partner-ingest.io/partner': 'json' } },
      stringData: { a: json },
    }),
  );
  for (const key of [clear, encoded, second, json]) await becomes(key, 202);
  expect(await stored(encoded)).toMatchObject({ partnerId: 'clear' });
  for (const key of [inMap, unlabelled]) expect(await status(key)).toBe(401);
  expect(await problems('unreadable_file')).toBe(0);
});

test('a broken file changes nothing of its own keys and everything of others, after a restart too', async () => {
  const [victim, off, ends] = [newApiKey(), newApiKey(), newApiKey()];
  const [fresh, later] = [newApiKey(), newApiKey()];
  const bound = { 'partner-ingest.io/max-per-minute': '1000' };
  await world.writePartner({ partner: 'victim', keys: [victim], annotations: bound });
  await world.writePartner({ partner: 'off', keys: [off], status: 'inactive' });
  await world.writePartner({ partner: 'ends', keys: [ends] });
  await becomes(victim, 202);
  await becomes(off, 403);
  await becomes(ends, 202);
  for (const file of ['victim.yaml', 'off.yaml'])
    await write(file, 'kind: Secret\n  metadata: [broken');
  await eventually('the problems', async () => (await problems('unreadable_file')) === 2);
  const before = [await stored(victim), await stored(off)];
  // Another file of a partner goes on, too, but what switched it off counts.
  await write('off-2.yaml', manifest('off', ['stringData:', `  a: ${later}`]));
  for (const again of [false, true]) {
    if (again) {
      await controller.close();
      await rm(join(world.keyFolder, 'ends.yaml'));
      await world.writePartner({ partner: 'fresh', keys: [fresh] });
      controller = await world.start('controller');
      await becomes(fresh, 202);
      await becomes(ends, 401);
    }
    await becomes(later, 403);
    expect([await status(victim), await status(off)]).toEqual([202, 403]);
    expect([await stored(victim), await stored(off)]).toEqual(before);
    expect(await problems('no_keys')).toBe(0);
  }
  for (const file of ['victim.yaml', 'off.yaml']) await rm(join(world.keyFolder, file));
  await becomes(victim, 401);
  await becomes(later, 202);
});

test('a Partner in the folder counts; its loss ends and opens nothing, after a restart too', async () => {
  const key = newApiKey();
  const file = 'filed.json';
  const partner = (suspend: boolean) => ({
    apiVersion: 'partner-ingest.io/v1alpha1',
    kind: 'Partner',
    metadata: { name: 'filed' },
    spec: { suspend, keys: [{ secretName: 's-filed' }] },
  });
  const annotated = ['  annotations:', '    partner-ingest.io/cidrs: 192.0.2.1'];
  await write('filed.yaml', manifest('filed', [...annotated, 'stringData:', `  a: ${key}`]));
  await write(file, JSON.stringify(partner(false)));
  await becomes(key, 202);
  await write(file, JSON.stringify(partner(true)));
  await becomes(key, 403);
  await write(file, '{');
  await eventually('the problem', async () => (await problems('unreadable_file')) === 1);
  await controller.close();
  controller = await world.start('controller');
  await eventually('the problem', async () => (await problems('unreadable_file')) === 1);
  expect(await status(key)).toBe(403);
  await rm(join(world.keyFolder, file));
  await eventually('the loss', async () => (await problems('partner_gone')) === 1);
  expect(await status(key)).toBe(403);
  await write(file, JSON.stringify(partner(false)));
  await becomes(key, 202);

  await controller.close();
  const told = await world.spawn('controller');
  await write(file, JSON.stringify({ ...partner(false), spec: { suspend: 'yes' } }));
  const line =
    /"kind":"Partner","id":"filed","problem":"invalid_partner".*"a Partner needs correction"/;
  await eventually('the line', () => told.lines.some((one) => line.test(one)));
  expect(await status(key)).toBe(202);
  await told.stop();
  controller = await world.start('controller');
});

test('a clear key is nowhere in MongoDB', async () => {
  for (const { name } of await world.stores.db.listCollections().toArray()) {
    const documents = await world.stores.db.collection(name).find().toArray();
    expect(JSON.stringify(documents)).not.toContain(world.key);
  }
});

test('without the controller the stored keys stay valid, also for an ingest that starts then', async () => {
  const key = newApiKey();
  await world.writePartner({ partner: 'stays', keys: [key] });
  await becomes(key, 202);
  await controller.close();
  await rm(join(world.keyFolder, 'stays.yaml'));
  const fresh = await world.start('ingest');
  expect(await status(key, fresh)).toBe(202);
  expect(await status(key)).toBe(202);
  controller = await world.start('controller');
  await becomes(key, 401);
});
