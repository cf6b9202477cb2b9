/** No personal data and no key in logs, metrics, traces or Redis, however requests end. */
import { afterAll, expect, test } from '@jest/globals';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { newApiKey } from '../../internal/partner/api-key.ts';
import { PARTNER_LABEL } from '../../internal/partner/key-secret.ts';
import { LOG_FIELDS } from '../../internal/platform/process/log.ts';
import type { SubmissionRecord } from '../../internal/submission/submission.ts';
import { head, openRaw } from '../support/ingest.ts';
import { INGEST_PATH, send } from '../support/http.ts';
import type { SmtpFault } from '../support/mail-catcher.ts';
import { startOtlpReceiver } from '../support/otlp-receiver.ts';
import { openOwnWorld, submit } from '../support/processing.ts';
import { eventually } from '../support/wait.ts';
import { newApplication } from '../support/world.ts';

/** Canaries are searched in any case. */
const NAME = 'CanaryName';
const MAILBOX = 'canarymailbox';
const RELAY_PASSWORD = 'canary-relay-password';
const USER_AGENT = 'canary-agent';
const QUERY = 'canary-query';
const IDEMPOTENCY_KEY = 'canary-idempotency-key';
const eins = ['918273645', '918273646', '918273647', '918273648', '918273649'] as const;
const HEADERS =
  'traceparent tracestate baggage X-Request-Id X-Forwarded-For Cookie Content-Type Expect'.split(
    ' ',
  );
const keys = {
  unknown: newApiKey(),
  short: 'canary-short-key',
  shared: newApiKey(),
  broken: newApiKey(),
  swapped: newApiKey(),
};

const own = await openOwnWorld({ controller: false });
const { world } = own;
const collector = await startOtlpReceiver();
await writeBadSecrets(world.keyFolder);
const redisTexts: string[] = [];
const monitor = await world.stores.redis.monitor();
monitor.on('monitor', (_time: string, command: string[]) => redisTexts.push(command.join(' ')));
const loud = {
  ...collector.environment,
  LOG_LEVEL: 'trace',
  ACCEPT_TIMEOUT_MS: '5000',
  SMTP_URL: world.mail.smtpUrl.replace('smtp://', `smtp://relay:${RELAY_PASSWORD}@`),
};
const controller = await world.spawn('controller', loud);
const ingest = await world.spawn('ingest', loud);
const processes = [controller, ingest, await world.spawn('processor', loud)];
afterAll(async () => {
  monitor.disconnect();
  await own.close();
  await collector.close();
});

/** Fields of the lines that are not in the list of fields, or have another type there. */
function unknownFields(logs: string): string[] {
  const line = { level: 'text', time: 'text', service: 'text', msg: 'text' };
  const types: Readonly<Record<string, string>> = { ...LOG_FIELDS, ...line };
  const typeOf = { text: 'string', error: 'object' } as Readonly<Record<string, string>>;
  const found = logs.split('\n').flatMap((text) =>
    Object.entries(JSON.parse(text) as object).flatMap(([name, value]) => {
      const type = types[name] ?? 'not in the list';
      return typeof value === (typeOf[type] ?? type) ? [] : [`${name}: ${type}`];
    }),
  );
  return [...new Set(found)];
}

/** Writes faulty Secrets that contain keys. */
async function writeBadSecrets(folder: string): Promise<void> {
  const secret = (partner: string, entries: string): string =>
    `{apiVersion: v1, kind: Secret, metadata: {name: ${partner}, labels: {${PARTNER_LABEL}: ${partner}}}, ${entries}}`;
  const manifests = {
    'too-short': secret('too-short', `stringData: {key: ${keys.short}}`),
    'first-owner': secret('first-owner', `stringData: {key: ${keys.shared}}`),
    'second-owner': secret('second-owner', `stringData: {key: ${keys.shared}}`),
    'not-base64': secret('not-base64', `data: {key: "${keys.broken}!"}`),
    // The key is the name of an entry, with different faulty values.
    'swapped-short': secret('swapped-short', `stringData: {${keys.swapped}: partner}`),
    'swapped-not-base64': secret('swapped-not-base64', `data: {${keys.swapped}: "!"}`),
    'swapped-shared': secret('swapped-shared', `stringData: {${keys.swapped}: ${keys.shared}}`),
  };
  for (const [name, text] of Object.entries(manifests))
    await writeFile(join(folder, `${name}.yaml`), text);
}

/** Writes unreadable files, once the controller has synced. */
async function writeBrokenFiles(folder: string): Promise<void> {
  const number = `{apiVersion: v1, kind: Secret, metadata: {name: n, labels: {${PARTNER_LABEL}: n}}, data: {${keys.swapped}: 1}}`;
  await writeFile(join(folder, 'swapped-number.yaml'), number);
  await writeFile(join(folder, 'swapped-broken.yaml'), `kind: Secret\n  ${keys.swapped}: [`);
  const unreadable = () =>
    world.metric(controller, 'partner_ingest_secret_problems', { problem: 'unreadable_file' });
  await eventually('both to be told', async () => (await unreadable()) === 2);
}

const fields = (index: number): { email: string; business_name: string; ein: string } => ({
  email: `${MAILBOX}${index}@example.com`,
  // The end of the name looks like a stack trace.
  business_name: `${NAME} ${index}\n    at ${NAME} (file.ts:1:1)`,
  ein: eins[index] ?? '',
});

/** Sends requests that fail at every stage; returns the first lines of the answers. */
async function attack(): Promise<string[]> {
  const body = JSON.stringify(fields(0));
  const authorized = `Authorization: Bearer ${world.key}`;
  const post = (lines: readonly string[], text = body): string =>
    head(['Connection: close', `Content-Length: ${Buffer.byteLength(text)}`, ...lines]) + text;
  const attacks: readonly string[] = [
    post([`Authorization: Basic ${world.key}`]),
    post([`Authorization: Bearer ${keys.unknown}`]),
    post([`Authorization: Bearer ${world.key} ${MAILBOX}`]),
    post([`Authorization: Bearer ${world.inactiveKey}`]),
    post([
      authorized,
      `User-Agent: ${USER_AGENT}`,
      ...HEADERS.map((name) => `${name}: ${MAILBOX}`),
    ]),
    ...[body, body, JSON.stringify(fields(1))].map((each) =>
      post([authorized, `Idempotency-Key: "${IDEMPOTENCY_KEY}"`], each),
    ),
    post([authorized, `Idempotency-Key: ${IDEMPOTENCY_KEY} ${MAILBOX}`]),
    post([authorized], `["${MAILBOX}`),
    post(
      [authorized],
      `{"__proto__":{"email":"${MAILBOX}"},"email":{"$where":"${MAILBOX}"},"ein":${eins[0]}}`,
    ),
    post([authorized], `{"email":"${MAILBOX}${'x'.repeat(66_000)}"}`),
    head([authorized, `Content-Length: 200`]) + body,
    head([authorized, 'Transfer-Encoding: chunked']) + `5\r\n{"a":\r\n${MAILBOX}\r\n`,
    head([authorized, `X-Large: ${MAILBOX.repeat(2_000)}`]),
    head([authorized, 'Connection: close'], `GET /${MAILBOX}?key=${world.key} HTTP/1.1`),
    head([authorized, 'Connection: close'], `POST ${INGEST_PATH}/${MAILBOX}?key=${QUERY} HTTP/1.1`),
    post([authorized]).replace(INGEST_PATH, `${INGEST_PATH}?email=${QUERY}&key=${world.key}`),
    `${MAILBOX} ${world.key}\r\n\r\n`,
  ];
  return Promise.all(
    attacks.map(async (bytes) => {
      const connection = await openRaw(ingest.url);
      connection.write(bytes);
      const cutOff = bytes.includes('Content-Length: 200');
      if (cutOff) connection.socket.end();
      await connection.closed();
      return connection.text().split('\r\n', 1)[0] ?? '';
    }),
  );
}

test('no log, trace, metric, Redis key or Event holds personal data, however a request ends', async () => {
  const answer = { code: 550, message: `5.1.1 <${MAILBOX}1@example.com> ${NAME} unknown` };
  const faults: readonly (SmtpFault | undefined)[] = [
    undefined,
    { at: 'rcpt', answer },
    { at: 'rcpt', answer: { ...answer, code: 450 } },
    { at: 'data', cut: 'before-store' },
    { at: 'data', answer: { ...answer, code: 451 } },
  ];
  world.mail.setFault(({ rcptTo }) => faults[Number(rcptTo[0]?.[MAILBOX.length])]);
  const ids: string[] = [];
  for (const index of eins.keys()) ids.push(await submit(world, ingest, fields(index)));
  await world.recordIn('completed', ids[0]!);
  ids.push(await submit(world, ingest, fields(0)));
  ids.push(await submit(world, ingest, { ...fields(0), email: `${MAILBOX}@`, ein: `${eins[0]}0` }));
  await writeBrokenFiles(world.keyFolder);
  const answers = await attack();
  expect(
    answers.filter((line) => !/^HTTP\/1\.1 (202|400|401|403|404|422) /.test(line)).length,
  ).toBeLessThanOrEqual(1);
  expect(new Set(answers.map((line) => line.split(' ')[1])).size).toBeGreaterThanOrEqual(5);

  const records = await eventually('every first attempt', async () => {
    const found = await world.records({ _id: { $in: ids } });
    const settled = (record: SubmissionRecord): boolean =>
      record.state !== 'recorded' &&
      (record.state !== 'account_created' || record.lastError !== undefined);
    return found.length === ids.length && found.every(settled) ? found : undefined;
  });
  expect(records.map(({ state }) => state).toSorted()).toEqual([
    ...Array.from({ length: 3 }, () => 'account_created'),
    'completed',
    'rejected',
    'rejected',
    'undeliverable',
  ]);
  expect(world.mail.mailsTo(`${MAILBOX}0@example.com`)).toHaveLength(1);
  // People read the relay's words; they do not name the applicant.
  const ledgers = JSON.stringify((await world.accounts()).map(({ mail }) => mail));
  expect(ledgers).toMatch(/550 5\.1\.1 … \w+ unknown/);
  expect(ledgers).not.toContain(MAILBOX);

  // The database dies while ingest and processor work.
  world.mail.setFault(undefined);
  const underWork = Array.from({ length: 30 }, () => ({
    ...newApplication(),
    business_name: NAME,
  }));
  const sent = underWork.map((one) =>
    send(ingest.url, { key: world.key, body: JSON.stringify(one) }),
  );
  await sent[0];
  await own.mongo.signal('SIGKILL');
  await Promise.all(sent);
  const away = await send(ingest.url, { key: world.key, body: JSON.stringify(fields(0)) });
  expect(away.status).toBe(500);
  await own.mongo.restart();
  const lastId = await eventually('ingest to accept again', async () =>
    submit(world, ingest, fields(0)),
  );
  await world.recordIn('rejected', lastId);

  const metrics = await Promise.all(
    processes.map(async ({ adminUrl }) => (await fetch(`${adminUrl}/metrics`)).text()),
  );
  for (const process of processes.toReversed()) expect(await process.stop()).toBe(0);
  const logs = processes.flatMap(({ lines }) => lines).join('\n');
  expect(unknownFields(logs)).toEqual([]);
  const tokens = world.mail.mails.map(({ links }) =>
    new URL(links[0] ?? '').searchParams.get('token')!,
  );
  expect(tokens.length).toBeGreaterThan(0);
  const mailboxes = underWork.map(({ email }) => email.split('@')[0]!);
  const partnerKeys = [world.key, world.inactiveKey, ...Object.values(keys)];
  const secrets = [
    NAME,
    MAILBOX,
    RELAY_PASSWORD,
    USER_AGENT,
    QUERY,
    IDEMPOTENCY_KEY,
    ...eins,
    ...mailboxes,
    ...partnerKeys,
    ...tokens,
  ];

  // Each text holds what belongs into it, so the search can find something.
  const nets: Readonly<Record<string, string>> = {
    logs,
    metrics: metrics.join('\n'),
    traces: collector.text(),
    redis: redisTexts.join('\n'),
    // Errors that support reads.
    records: JSON.stringify(
      (await world.records()).map(({ lastError, history, reasons }) => [
        lastError,
        history,
        reasons,
      ]),
    ),
  };
  const held: readonly (readonly [net: string, text: string | RegExp])[] = [
    ['logs', '"problem":"same_key_two_partners"'],
    ['logs', '"status":500'],
    ['metrics', 'partner_ingest_outcomes_total'],
    ['traces', ids[0]!],
    ['traces', 'send mail'],
    ['redis', ids[0]!],
  ];
  for (const [net, text] of held) expect(nets[net]).toMatch(text);
  const found = Object.entries(nets).flatMap(([net, text]) =>
    secrets
      .filter((secret) => text.toLowerCase().includes(secret.toLowerCase()))
      .map((secret) => [net, secret]),
  );
  expect(found).toEqual([]);
  const all = await world.records();
  expect(all.filter(({ idempotencyDigest }) => idempotencyDigest !== undefined)).toHaveLength(1);
  expect(JSON.stringify(all)).not.toContain(IDEMPOTENCY_KEY);
});
