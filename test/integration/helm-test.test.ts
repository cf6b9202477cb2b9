/**
 * The program of `helm test`, as its pod runs it: it follows an application, and leaves nothing in
 * the database.
 */
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { execFile } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { HANG_MS } from '../support/wait.ts';
import { NO_REDIS, openWorld, type InProcess, type World } from '../support/world.ts';

const ROOT = fileURLToPath(new URL('../../', import.meta.url));
const program = readFileSync(`${ROOT}charts/partner-ingest/files/send-one.mjs`, 'utf8');

let world: World;
let ingest: InProcess;
let processor: InProcess;
let folder: string;

beforeAll(async () => {
  world = await openWorld();
  ingest = await world.start('ingest');
  processor = await world.start('processor');
  folder = mkdtempSync(join(tmpdir(), 'helm-test-'));
});
afterAll(async () => {
  await world.close();
  rmSync(folder, { recursive: true });
});

const addressesOf = (...processes: readonly InProcess[]): string =>
  processes.map(({ adminUrl }) => new URL(adminUrl).host).join(' ');

const runTest = (environment: Readonly<Record<string, string>>) =>
  promisify(execFile)(process.execPath, ['--input-type=module', '--eval', program], {
    cwd: ROOT,
    timeout: HANG_MS,
    env: { BASE_URL: `${ingest.url}/api/v1`, TIMEOUT_SECONDS: '60', ...environment },
  });

test('fails where a pod is ready with a warning, and says what to set', async () => {
  const alone = await world.start('ingest', { REDIS_URL: NO_REDIS });
  const ran = runTest({ ADMIN_ADDRESSES: addressesOf(alone, processor) });
  await expect(ran).rejects.toMatchObject({
    stderr: expect.stringMatching(/Redis at 127\.0\.0\.1:1: the connection is refused/),
  });
});

test('sends an application, sees it through, and removes what it made', async () => {
  const { mongodbUri, database } = world.stores;
  const [uriFile, keyFile] = [join(folder, 'uri'), join(folder, 'key')];
  writeFileSync(uriFile, mongodbUri);
  writeFileSync(keyFile, world.key);
  const run = await runTest({
    ADMIN_ADDRESSES: addressesOf(ingest, processor),
    EMAIL: 'helm-test@example.com',
    MONGODB_DATABASE: database,
    MONGODB_URI_FILE: uriFile,
    API_KEY_FILE: keyFile,
  });
  expect(run.stdout).toContain('e-mail handed over');
  expect(world.mail.mails).toHaveLength(1);
  expect(await world.records()).toEqual([]);
  expect(await world.accounts()).toEqual([]);
});
