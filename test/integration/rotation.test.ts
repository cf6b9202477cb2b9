/** Credentials that change: a process leaves only if it is not let in any more. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from '@jest/globals';
import { isAccessFault, contactReason } from '../../internal/platform/stores/contact-failure.ts';
import { filesOfUri } from '../../internal/platform/process/follow-credentials.ts';
import { folderOfFile } from '../support/folder.ts';
import { send } from '../support/http.ts';
import { startReplicaSet } from '../support/replica-set/replica-set.ts';
import { HEAL_HANG_MS, eventually } from '../support/wait.ts';
import { newApplication, worldOf } from '../support/world.ts';

const folder = folderOfFile();
const { world } = await worldOf();

const fileOf = (name: string, text: string): string => {
  const file = join(folder, name);
  writeFileSync(file, text);
  return file;
};

test('a healthy process keeps its credentials; one that is not let in leaves to start with new ones', async () => {
  const set = await startReplicaSet(world.stores.mongodbUri, {
    login: { username: 'app', password: 'old' },
  });
  try {
    const { url } = await set.door();
    const withPassword = (password: string): string =>
      url.replace('mongodb://', `mongodb://app:${password}@`);
    const healthyFile = fileOf('healthy', world.stores.mongodbUri);
    const refusedFile = fileOf('refused', withPassword('old'));
    const healthy = await world.spawn('ingest', { MONGODB_URI: '', MONGODB_URI_FILE: healthyFile });
    const refused = await world.spawn('ingest', { MONGODB_URI: '', MONGODB_URI_FILE: refusedFile });

    // Such credentials let nobody in.
    fileOf('healthy', world.stores.mongodbUri.replace('mongodb://', 'mongodb://app:wrong@'));
    fileOf('refused', withPassword('new'));
    set.changeLogin({ username: 'app', password: 'new' });
    await eventually('leaving', () => refused.child.exitCode !== null, HEAL_HANG_MS);
    expect(await refused.exited).toEqual({ code: 0, signal: null });

    // It has looked at its files as often.
    expect(healthy.child.exitCode).toBeNull();
    const body = JSON.stringify(newApplication());
    expect((await send(healthy.url, { key: world.key, body })).status).toBe(202);

    const again = await world.spawn('ingest', { MONGODB_URI: '', MONGODB_URI_FILE: refusedFile });
    expect((await fetch(`${again.adminUrl}/readyz`)).status).toBe(200);
  } finally {
    await set.close();
  }
});

test('the files that a URI names count as credentials', () => {
  const file = fileOf('client.pem', 'a certificate');
  const uri = `mongodb://db/?tls=true&tlsCertificateKeyFile=${encodeURIComponent(file)}&tlsCAFile=/none`;
  expect(filesOfUri(uri)).toEqual({
    tlsCertificateKeyFile: expect.any(Number),
    tlsCAFile: undefined,
  });
});

test.each([
  [true, Object.assign(new Error('Authentication failed.'), { code: 18 })],
  [true, Object.assign(new Error('not authorized'), { code: 13 })],
  [true, new Error('WRONGPASS invalid username-password pair')],
  [true, new Error('ssl/tls alert certificate required:SSL alert number 116')],
  [true, Object.assign(new Error('certificate has expired'), { code: 'CERT_HAS_EXPIRED' })],
  [false, Object.assign(new Error('connect'), { code: 'ECONNREFUSED' })],
  [false, new Error('MISCONF Redis cannot save')],
])('is it a fault of access: %s, %s', (expected, error) => {
  expect(isAccessFault(contactReason({ name: 'Store', setting: 'URL' }, error))).toBe(expected);
});
