/** A folder of manifests; test/integration/controller.test.ts has what every source must do. */
import { appendFile, mkdir, mkdtemp, rename, rm, utimes, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from '@jest/globals';
import { PARTNER_LABEL } from '../partner/key-secret.ts';
import { directorySource } from './directory-source.ts';
import { systemClock } from '../platform/process/clock.ts';
import type { SecretView } from './secret-source.ts';

const NAMESPACE = 'keys';
let folder: string;
let view: SecretView;
let stop: AbortController;

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'source-'));
  stop = new AbortController();
  view = directorySource(folder, systemClock).follow(() => {}, stop.signal);
});
afterEach(async () => {
  stop.abort();
  await rm(folder, { recursive: true, force: true });
});

const manifestOf = (name: string): string =>
  `apiVersion: v1\nkind: Secret\nmetadata: { name: ${name}, namespace: ${NAMESPACE}, labels: { ${PARTNER_LABEL}: ${name} } }\nstringData:\n  one: key-of-${name}\n`;
/** Writes a file that was last changed a minute ago. */
const settled = async (name: string, text: string): Promise<void> => {
  const minuteAgo = new Date(Date.now() - 60_000);
  await writeFile(join(folder, name), text);
  await utimes(join(folder, name), minuteAgo, minuteAgo);
};
const names = async (): Promise<string[]> => (await view.list()).secrets.map(({ name }) => name);

test('a file that is still being written counts as unreadable until it is complete', async () => {
  const file = join(folder, 'many.yaml');
  await writeFile(file, manifestOf('first'));
  const appends: Promise<void>[] = [];
  const growing = setInterval(() => appends.push(appendFile(file, '# more\n')), 20);
  const while_ = await view.list();
  clearInterval(growing);
  await Promise.all(appends);
  expect(while_).toMatchObject({ complete: false, secrets: [] });
  expect(while_.problems.map(({ code }) => code)).toEqual(['unreadable_file']);
  await appendFile(file, `---\n${manifestOf('second')}`);
  expect(await names()).toEqual(['first', 'second']);
  expect(await view.list()).toMatchObject({ complete: true, problems: [] });
});

test('a malformed Secret is told by its name and field, without a value', async () => {
  const malformed = manifestOf('acme').replace('labels:', 'annotations: { a/max: 4711 }, labels:');
  await settled('all.yaml', `${manifestOf('zeta')}---\n${malformed}`);
  const [problem] = (await view.list()).problems;
  expect(problem?.message).toContain(
    '(Secret acme: metadata.annotations.a/max must be text, in quotes)',
  );
  await settled('all.yaml', manifestOf('acme').replace('key-of-acme', '4711'));
  expect((await view.list()).problems[0]?.message).toContain('(Secret acme: stringData must be');
});

test('an empty or missing folder removes no key, because it may be unmounted', async () => {
  const noList = { complete: false, problems: [{ code: 'unreadable_file' }] };
  expect(await view.list()).toMatchObject({ secrets: [], ...noList });
  await settled('a.yaml', manifestOf('acme'));
  expect(await names()).toEqual(['acme']);
  await rename(folder, `${folder}-away`);
  const unmounted = async (): Promise<void> => {
    const list = await view.list();
    expect(list).toMatchObject({ secrets: [{ name: 'acme' }], ...noList });
  };
  await unmounted();
  await mkdir(folder);
  await unmounted();
  await rm(folder, { recursive: true });
  await rename(`${folder}-away`, folder);
  expect((await view.list()).problems).toEqual([]);
  await rm(join(folder, 'a.yaml'));
  await unmounted();
  await settled('b.yaml', manifestOf('bolt'));
  expect(await view.list()).toMatchObject({ complete: true, secrets: [{ name: 'bolt' }] });
});
