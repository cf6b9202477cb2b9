/** Credentials that change: a process leaves only if it is not let in any more. */
import { X509Certificate } from 'node:crypto';
import { cpSync, mkdirSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { createServer, type TLSSocket } from 'node:tls';
import { join } from 'node:path';
import { expect, test } from '@jest/globals';
import { filesOfUri, writtenAt } from '../../internal/platform/process/follow-credentials.ts';
import { authorityFiles } from '../../internal/platform/process/config.ts';
import { certificateIn, makeCertificate } from '../support/certificate.ts';
import { folderOfFile } from '../support/folder.ts';
import { send } from '../support/http.ts';
import { listen } from '../support/listen.ts';
import { startReplicaSet } from '../support/replica-set/replica-set.ts';
import { HEAL_HANG_MS, eventually } from '../support/wait.ts';
import { newApplication, worldOf } from '../support/world.ts';

type Pair = ReturnType<typeof certificateIn>;

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
    fileOf('healthy', withPassword('wrong'));
    fileOf('refused', withPassword('new'));
    set.changeLogin({ username: 'app', password: 'new' });
    await eventually('leaving', () => refused.child.exitCode !== null, HEAL_HANG_MS);
    expect(await refused.exited).toEqual({ code: 0, signal: null });

    // It has looked at its files as often, and tells that they would not let it in.
    expect(healthy.child.exitCode).toBeNull();
    const readiness = await eventually(
      'the warning',
      async () => {
        const answer = await fetch(`${healthy.adminUrl}/readyz`);
        const text = await answer.text();
        return text.includes('a new start would be refused') && { status: answer.status, text };
      },
      HEAL_HANG_MS,
    );
    expect(readiness.status).toBe(200);
    expect(readiness.text).not.toContain('wrong');
    const body = JSON.stringify(newApplication());
    expect((await send(healthy.url, { key: world.key, body })).status).toBe(202);

    const again = await world.spawn('ingest', { MONGODB_URI: '', MONGODB_URI_FILE: refusedFile });
    expect((await fetch(`${again.adminUrl}/readyz`)).status).toBe(200);
  } finally {
    await set.close();
  }
});

test('a renewed certificate is taken where the server ends old connections without a word', async () => {
  const database = new URL(world.stores.mongodbUri);
  const [server, old, renewed] = ['server', 'old', 'renewed'].map((name) => {
    const files = join(folder, name);
    mkdirSync(files);
    makeCertificate(files);
    return certificateIn(files);
  }) as [Pair, Pair, Pair];
  let taken = old;
  const open = new Set<TLSSocket>();
  const front = createServer(
    { ...server, requestCert: true, rejectUnauthorized: false },
    (client) => {
      client.on('error', () => client.destroy());
      const { raw } = client.getPeerX509Certificate() ?? {};
      if (raw === undefined || !new X509Certificate(taken.cert).raw.equals(raw))
        return void client.destroy();
      open.add(client);
      const store = connect(Number(database.port), database.hostname);
      store.on('error', () => client.destroy());
      client
        .on('close', () => store.destroy())
        .pipe(store)
        .pipe(client);
    },
  );
  const port = await listen(front);
  try {
    const textOf = ({ cert, key }: Pair): string => `${String(cert)}${String(key)}`;
    const pem = fileOf('renewed.pem', textOf(old));
    const options = `tls=true&tlsCAFile=${join(folder, 'server', 'ca.pem')}&tlsCertificateKeyFile=${pem}`;
    const MONGODB_URI = `mongodb://127.0.0.1:${port}/?directConnection=true&${options}`;
    const process = await world.spawn('ingest', { MONGODB_URI });
    taken = renewed;
    for (const client of open) client.destroy();
    const body = JSON.stringify(newApplication());
    await eventually(
      'a 500',
      async () => (await send(process.url, { key: world.key, body })).status === 500,
    );
    fileOf('renewed.pem', textOf(renewed));
    await eventually('leaving', () => process.child.exitCode !== null, HEAL_HANG_MS);
    expect(await process.exited).toEqual({ code: 0, signal: null });
    const again = await world.spawn('ingest', { MONGODB_URI });
    expect((await fetch(`${again.adminUrl}/readyz`)).status).toBe(200);
  } finally {
    for (const client of open) client.destroy();
    front.close();
  }
});

test('a start that fails ends with its reason in plain words, of which a running process warns before', async () => {
  const MAIL_TEMPLATES = join(folder, 'texts');
  cpSync('internal/mail/templates', MAIL_TEMPLATES, { recursive: true });
  const MONGODB_URI_FILE = fileOf('texts-uri', world.stores.mongodbUri);
  const environment = { MONGODB_URI: '', MONGODB_URI_FILE, MAIL_TEMPLATES };
  const processor = await world.spawn('processor', environment);
  writeFileSync(join(MAIL_TEMPLATES, 'login-instructions.txt'), 'no link');
  const told = async (): Promise<string> => (await fetch(`${processor.adminUrl}/readyz`)).text();
  await eventually(
    'the warning',
    async () => /a new start would be refused: MAIL_TEMPLATES: /.test(await told()),
    HEAL_HANG_MS,
  );
  await expect(world.spawn('processor', environment)).rejects.toThrow(
    /\nprocessor: could not start: MAIL_TEMPLATES: 1 fault[^{]*login-instructions\.txt: /,
  );
});

test('the files that a URI names count as credentials', () => {
  const file = fileOf('client.pem', 'a certificate');
  const uri = `mongodb://db/?tls=true&tlsCertificateKeyFile=${encodeURIComponent(file)}&tlsCAFile=/none`;
  expect(filesOfUri(uri)).toEqual({
    tlsCertificateKeyFile: expect.any(Number),
    tlsCAFile: undefined,
  });
});

test('the bundle of authorities that Node reads at its start counts, too', () => {
  const bundle = fileOf('bundle.pem', 'authorities');
  const files = authorityFiles({ NODE_EXTRA_CA_CERTS: bundle });
  expect(writtenAt(files)).toEqual({ NODE_EXTRA_CA_CERTS: expect.any(Number) });
});
