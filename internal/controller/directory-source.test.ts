/** A folder of manifests; test/integration/controller.test.ts has what every source must do. */
import { execFile } from 'node:child_process';
import {
  appendFile,
  mkdir,
  mkdtemp,
  rename,
  rm,
  symlink,
  utimes,
  writeFile,
} from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterEach, beforeEach, describe, expect, test } from '@jest/globals';
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

describe('a file that cannot be read', () => {
  const file = (): string => join(folder, 'bad.yaml');
  const NONE = 'it has something that is no manifest';
  const good = manifestOf('bad');
  const aliases = Array.from({ length: 11 }, (_, at) => {
    const many = Array(9).fill(`*a${at}`).join(', ');
    return `a${at + 1}: &a${at + 1} [${many}]\n`;
  });
  /** Its text, or how it is made. */
  test.each<[string, told: string, text: string | (() => Promise<unknown>)]>([
    ['empty', 'it is empty', ''],
    ['of comments only', 'it is empty', '# Keys of acme\n---\n'],
    ['of other text', NONE, 'not found\n'],
    ['of another map', NONE, '404: Not Found\n'],
    ['cut after a key of a map', NONE, 'apiVersion: v1\n'],
    ['without YAML', 'SyntaxError', 'kind: ['],
    ['half written', 'SyntaxError', good.slice(0, 60)],
    ['with a good and a bad document', 'SyntaxError', `${good}---\nkind: [\n`],
    ['of 10 MB', 'file too large', '#'.repeat(10_000_000)],
    ['that is a folder', 'it is no file', () => mkdir(file())],
    ['that is a pipe', 'it is no file', () => promisify(execFile)('mkfifo', [file()])],
    ['that is a broken link', 'ENOENT', () => symlink('nowhere', file())],
    ['that is a link to itself', 'ELOOP', () => symlink(file(), file())],
    [
      'of nested aliases',
      'ReferenceError',
      `kind: Secret\na0: &a0 [x, x, x, x]\n${aliases.join('')}`,
    ],
  ])('%s: keeps what it held, and others come and go', async (_, told, text) => {
    for (const name of ['bad', 'goes', 'stays']) await settled(`${name}.yaml`, manifestOf(name));
    expect(await names()).toEqual(['bad', 'goes', 'stays']);
    await rm(file());
    await (typeof text === 'string' ? writeFile(file(), text) : text());
    await rm(join(folder, 'goes.yaml'));
    await settled('comes.yaml', manifestOf('comes'));
    const list = await view.list();
    expect(list).toMatchObject({
      complete: true,
      problems: [{ code: 'unreadable_file', message: expect.stringContaining(`(${told})`) }],
    });
    expect(list.secrets.map(({ name }) => name)).toEqual(['bad', 'comes', 'stays']);
    expect(list.secrets.filter((one) => list.isUnread?.(one))).toEqual([]);
    // A process that never read it says whose keys it does not know.
    const later = await directorySource(folder, systemClock)
      .follow(() => {}, stop.signal)
      .list();
    expect(later.secrets.map(({ name }) => name)).toEqual(['comes', 'stays']);
    expect(list.secrets.filter((one) => later.isUnread?.(one))).toMatchObject([{ name: 'bad' }]);
    await rm(file(), { recursive: true });
    expect(await names()).toEqual(['comes', 'stays']);
  });

  test('is no list where it is the only one', async () => {
    await settled('bad.yaml', manifestOf('bad'));
    expect(await names()).toEqual(['bad']);
    await settled('bad.yaml', 'kind: [');
    expect(await view.list()).toMatchObject({ complete: false, secrets: [{ name: 'bad' }] });
  });
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
