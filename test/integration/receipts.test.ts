/** Receipts from the answer to a check by libraries of other languages, and after a restore. */
import { execFile } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { beforeAll, expect, test } from '@jest/globals';
import { compactVerify, createLocalJWKSet, type JSONWebKeySet } from 'jose';
import { newApiKey } from '../../internal/partner/api-key.ts';
import { MODE_ANNOTATION } from '../../internal/partner/key-terms.ts';
import { systemClock } from '../../internal/platform/process/clock.ts';
import { readKeySet, ReceiptSigner } from '../../internal/receipt/receipt.ts';
import { ROOT } from '../../tools/root.ts';
import { runCli } from '../support/cli.ts';
import { folderOfFile } from '../support/folder.ts';
import { send, type RequestOptions } from '../support/http.ts';
import { findVerifiers, verifyCommands } from '../support/jose.ts';
import { newRecord } from '../support/records.ts';
import { newApplication, requestIdOf, worldOf, type InProcess } from '../support/world.ts';

const ISSUER = 'https://api.example.com/api/v1';
const JWKS = '/api/v1/capital/jwks.json';
const keys = { always: newApiKey(), test: newApiKey({ test: true }) };
const { world, ingest: without } = await worldOf(['ingest'], {
  partners: [
    {
      partner: 'always',
      keys: [keys.always],
      annotations: { 'partner-ingest.io/receipts': 'always' },
    },
    {
      partner: 'demo',
      name: 'tests',
      keys: [keys.test],
      annotations: { [MODE_ANNOTATION]: 'test' },
    },
  ],
});
const folder = folderOfFile();
const file = (name: string, content: string | Buffer): string => {
  writeFileSync(join(folder, name), content);
  return join(folder, name);
};
const cli = (...words: string[]) => runCli(world.environment, ...words);

let set: string;
let ingest: InProcess;
let published: string;
beforeAll(async () => {
  set = await newSet('--issuer', `${ISSUER}/`);
  ingest = await world.start('ingest', { RECEIPT_KEYS: set });
  published = await publishedBy(ingest);
});

async function newSet(...words: string[]): Promise<string> {
  const made = await cli('receipt', 'keys', ...words, '--json');
  expect(made).toMatchObject({ code: 0 });
  type Made = { readonly manifest: { readonly stringData: { readonly 'keys.json': string } } };
  return made.json<Made>().manifest.stringData['keys.json'];
}

const publishedBy = async ({ url }: InProcess): Promise<string> =>
  (await send(url, { method: 'GET', path: JWKS })).text;

const body = (): string => JSON.stringify(newApplication());
const prefer = { prefer: 'wait=1, Receipt; a="b"' };

async function claimsOf(receipt = ''): Promise<unknown> {
  const { payload, protectedHeader } = await compactVerify(
    receipt,
    createLocalJWKSet(JSON.parse(published) as JSONWebKeySet),
  );
  expect(protectedHeader).toMatchObject({ alg: 'ES256', typ: 'receipt+jwt' });
  return JSON.parse(Buffer.from(payload).toString()) as unknown;
}

async function received(options: RequestOptions) {
  const answer = await send(ingest.url, { key: world.key, body: body(), ...options });
  const { receipt, 'preference-applied': applied } = answer.headers;
  return { answer, status: answer.status, receipt, applied };
}

test('a 202 has a receipt where it is asked for, and no other answer', async () => {
  const sent = body();
  const { answer, receipt, applied } = await received({ body: sent, headers: prefer });
  expect(applied).toBe('receipt');
  const id = requestIdOf(answer);
  const record = await world.record(id);
  expect(await claimsOf(receipt)).toEqual({
    iss: ISSUER,
    partner: 'demo',
    request_id: id,
    received_at: record?.receivedAt.toISOString(),
    body_sha256: record?.bodySha256,
    body_length: sent.length,
  });
  const always = await received({ key: keys.always });
  expect(await claimsOf(always.receipt)).toMatchObject({ partner: 'always' });
  expect(always.applied).toBeUndefined();
  const ofTest = await received({ key: keys.test, headers: prefer });
  expect(await claimsOf(ofTest.receipt)).toMatchObject({ partner: 'demo', test: true });
  const none: readonly [RequestOptions, number][] = [
    [{}, 202],
    [{ headers: { prefer: 'receipt=no' } }, 202],
    [{ headers: { prefer: 'respond-async' } }, 202],
    [{ body: '[]', headers: prefer }, 400],
    [{ body: 'x'.repeat(65_001), headers: prefer }, 400],
    [{ headers: { ...prefer, 'idempotency-key': 'a b' } }, 400],
    [{ key: 'pik_nobody', headers: prefer }, 401],
    [{ key: world.inactiveKey, headers: prefer }, 403],
    [{ key: keys.test, body: '{"ein":"000000500"}', headers: prefer }, 500],
  ];
  for (const [options, status] of none)
    expect(await received(options)).toMatchObject({
      status,
      receipt: undefined,
      applied: undefined,
    });
  const sentOnes = { result: 'sent' };
  expect(await world.metric(ingest, 'partner_ingest_receipts_total', sentOnes)).toBe(2);
  // Without keys the preference is ignored.
  const ignored = await send(without.url, { key: world.key, body: body(), headers: prefer });
  expect(ignored).toMatchObject({ status: 202 });
  expect(ignored.headers).not.toHaveProperty('receipt');
  expect(ignored.headers).not.toHaveProperty('preference-applied');
  expect(await send(without.url, { method: 'GET', path: JWKS })).toMatchObject({ status: 404 });
});

test('a repeat gets a receipt of the first acceptance, and another body none', async () => {
  const headers = { ...prefer, 'idempotency-key': 'receipted' };
  const [first, again] = [body(), body()];
  const one = await received({ body: first, headers });
  const two = await received({ body: first, headers });
  expect(two.answer.headers['idempotent-replayed']).toBe('true');
  expect(await claimsOf(two.receipt)).toEqual(await claimsOf(one.receipt));
  const other = await received({ body: again, headers });
  expect(other).toMatchObject({ status: 422, receipt: undefined, applied: undefined });
});

test('jose, PyJWT and go-jose take what is published, and refuse what was changed', async () => {
  const sent = body();
  const { receipt = '' } = await received({ body: sent, headers: prefer });
  const [head = '', payload = '', signature = ''] = receipt.split('.');
  const flip = (text: string): string => (text.startsWith('A') ? 'B' : 'A') + text.slice(1);
  const changed = [
    [head, flip(payload), signature],
    [head, payload, flip(signature)],
    [head, payload.slice(0, -4), signature],
  ].map((parts) => parts.join('.'));
  const claims = await claimsOf(receipt);
  for (const one of changed) await expect(claimsOf(one)).rejects.toThrow();
  const given = [file('jwks.json', published), file('receipts', [receipt, ...changed].join('\n'))];
  const verifiers = await findVerifiers();
  for (const [program = '', ...args] of Object.values(verifyCommands(verifiers))) {
    const { stdout } = await promisify(execFile)(program, [...args, ...given]);
    const [first = '', ...rest] = stdout.trim().split('\n');
    expect(JSON.parse(first)).toEqual(claims);
    expect(rest).toEqual(changed.map(() => 'refused'));
  }
  // The sample asks ingest for the keys.
  const sample = join(ROOT, 'docs/samples/verify.py');
  const program = [sample, `${ingest.url}/api/v1`, file('receipt', receipt)];
  const check = (bytes: string) =>
    promisify(execFile)(verifiers.python, [...program, file('body', bytes)]);
  expect((await check(sent)).stdout).toContain("'partner': 'demo'");
  await expect(check(`${sent} `)).rejects.toThrow('another body');
});

test('keys are rotated without a receipt that no pod can prove', async () => {
  const later = await newSet('--beside', file('keys.json', set));
  const next = await world.start('ingest', { RECEIPT_KEYS: later });
  // The new pod still signs with the old key, so the set of an old pod suffices.
  const { headers } = await send(next.url, { key: world.key, body: body(), headers: prefer });
  await claimsOf(headers['receipt']);
  type Keys = { readonly keys: readonly { readonly kid: string; readonly d?: string }[] };
  const idsOf = (text: string) => (JSON.parse(text) as Keys).keys.map(({ kid }) => kid);
  expect(idsOf(await publishedBy(next))).toEqual([...idsOf(published), expect.any(String)]);
  expect(await publishedBy(next)).not.toContain('"d"');
  // Before the first key has begun there is no receipt; only a metric tells.
  const notYet = set.replace(/"not_before":"[^"]*"/, '"not_before":"2999-01-01T00:00:00Z"');
  const early = await world.start('ingest', { RECEIPT_KEYS: notYet });
  const options = { key: keys.always, body: body(), headers: prefer };
  const { status, headers: bare } = await send(early.url, options);
  expect([status, bare['receipt'], bare['preference-applied']]).toEqual([
    202,
    undefined,
    undefined,
  ]);
  const noKey = { result: 'no_key' };
  expect(await world.metric(early, 'partner_ingest_receipts_total', noKey)).toBe(1);
  expect(await publishedBy(early)).toBe(published);
  // Once the second signs, a third ends the first one's private half.
  const secondSigns = later.replaceAll(
    /"not_before":"[^"]*"/g,
    '"not_before":"2026-01-01T00:00:00Z"',
  );
  const third = await newSet('--beside', file('keys.json', secondSigns));
  expect((JSON.parse(third) as Keys).keys.map(({ d }) => d !== undefined)).toEqual([
    false,
    true,
    true,
  ]);
  expect(await cli('receipt', 'keys')).toMatchObject({ code: 2 });
  expect(await cli('receipt', 'keys', '--beside', file('keys.json', '{}'))).toMatchObject({
    code: 1,
  });
});

test('receipt verify says what fails', async () => {
  const sent = body();
  const { answer, receipt = '' } = await received({ body: sent, headers: prefer });
  const verify = (text: string, ...words: string[]) =>
    cli('receipt', 'verify', file('receipt', `${text}\n`), '--keys', published, ...words);
  const genuine = await verify(receipt, '--body', file('body', sent));
  expect(genuine.stdout).toContain(`genuine: ${ISSUER} received this body from demo`);
  expect(genuine.stdout).toContain(requestIdOf(answer));
  expect((await verify(receipt)).stdout).toContain('give --body');
  const wrong: readonly [string, readonly string[], string][] = [
    [`${receipt}=`, [], 'three parts'],
    [
      receipt.replace(/\.(.)/, (_, letter) => (letter === 'e' ? '.f' : '.e')),
      [],
      'signature is wrong',
    ],
    [receipt, ['--body', file('other', `${sent} `)], 'bytes, that of the receipt'],
    [receipt, ['--body', file('changed', sent.replace('{', '['))], 'another content'],
    [receipt, ['--body', join(folder, 'nowhere')], 'cannot be read (ENOENT)'],
    [receipt, ['--body', folder], 'cannot be read (EISDIR)'],
  ];
  for (const [text, words, why] of wrong) {
    const refused = await verify(text, ...words);
    expect(refused).toMatchObject({ code: 1, stdout: '' });
    expect(refused.stderr).toContain(why);
  }
});

test('receipt missing lists what was receipted and is not stored', async () => {
  const some = await Promise.all(Array.from({ length: 3 }, () => received({ headers: prefer })));
  const [kept, lost, withdrawn] = some.map(({ receipt = '' }) => receipt);
  const ids = some.map(({ answer }) => requestIdOf(answer));
  await world.stores.requests.deleteOne({ _id: ids[1]! });
  await world.stores.requests.updateOne({ _id: ids[2]! }, { $set: { state: 'withdrawn' } });
  const log = file(
    'access.log',
    [
      kept,
      JSON.stringify({ status: 202, receipt: lost }),
      '',
      'no receipt in this line',
      `{"log":{"entries":[{"name":"receipt","value":"${withdrawn}"},{"value":"${kept}"}`,
      lost!.replace('.', '.A'),
      // A line without an end, longer than the command keeps.
      `${'A'.repeat(3e6)} eyJ${'b'.repeat(3e6)}`,
    ].join('\n'),
  );
  const words = ['receipt', 'missing', log, '--keys', published];
  const { code, stdout, stderr } = await cli(...words, '--json');
  expect(code).toBe(1);
  const lines = stdout.trim().split('\n');
  expect(lines.map((line) => JSON.parse(line) as unknown)).toEqual([
    expect.objectContaining({ result: 'refused', line: 6 }),
    expect.objectContaining({ result: 'refused', line: 7 }),
    expect.objectContaining({ result: 'missing', line: 2, request_id: ids[1], partner: 'demo' }),
    expect.objectContaining({ result: 'missing', line: 5, request_id: ids[2] }),
  ]);
  expect(stderr).toContain('6 receipts: 2 missing, 2 refused; 1 lines held none');
  expect((await cli(...words)).stdout).toMatch(new RegExp(`^${ids[1]}  demo  .*  missing$`, 'm'));
  // However far apart, each is listed once.
  const signer = new ReceiptSigner({ keys: readKeySet(set), clock: systemClock });
  const unknown = Array.from({ length: 1_100 }, () => signer.sign(newRecord())!);
  const doubled = file('doubled.log', [...unknown, ...unknown.toReversed()].join('\n'));
  const twice = await cli('receipt', 'missing', doubled, '--keys', published);
  expect(twice.stdout.trim().split('\n')).toHaveLength(1_100);
  expect(twice.stderr).toContain('2200 receipts: 1100 missing, 0 refused');
  expect((await cli(...words, '--until', '2026-01-01')).stderr).toContain('0 missing');
  const whole = ['receipt', 'missing', file('kept', kept!), '--keys', published];
  expect(await cli(...whole)).toMatchObject({ code: 0, stdout: '' });
  expect(await cli('receipt', 'missing', log)).toMatchObject({ code: 2 });
});
