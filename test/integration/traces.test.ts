/** Traces of the real processes in a real OTLP receiver. */
import { afterAll, afterEach, expect, test } from '@jest/globals';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:net';
import type { ServiceProcess } from '../../deploy/local/processes.ts';
import type { SubmissionRecord } from '../../internal/submission/submission.ts';
import { send, type Answer } from '../support/http.ts';
import { listen } from '../support/listen.ts';
import { printTrace, startOtlpReceiver, type ReceivedSpan } from '../support/otlp-receiver.ts';
import { failedOnce } from '../support/processing.ts';
import { HEAL_HANG_MS, eventually } from '../support/wait.ts';
import { NO_REDIS, newApplication, requestIdOf, worldOf } from '../support/world.ts';

const DOCS = new URL('../../docs/traces-and-logs.md', import.meta.url);

const { world } = await worldOf();
const collector = await startOtlpReceiver();
const [ingest, processor] = await Promise.all([
  world.spawn('ingest', collector.environment),
  world.spawn('processor', collector.environment),
]);
afterAll(() => collector.close());
afterEach(async () => {
  world.mail.setFault(undefined);
  // Unfinished work would keep the processor busy, and the next test's requests would wait.
  await eventually(
    'nothing to be left',
    async () =>
      (await world.records({ state: { $in: ['recorded', 'account_created'] } })).length === 0,
    HEAL_HANG_MS,
  );
});

let traces = 0;

/** A new traceparent, as of a partner's service. */
function partnerTraceparent(flags: '00' | '01'): {
  traceparent: string;
  traceId: string;
  spanId: string;
} {
  traces += 1;
  const [traceId, spanId] = [String(traces).padStart(32, 'a'), String(traces).padStart(16, 'b')];
  return { traceparent: `00-${traceId}-${spanId}-${flags}`, traceId, spanId };
}

async function post(
  to: ServiceProcess,
  headers: Readonly<Record<string, string>> = {},
  fields: object = newApplication(),
): Promise<{ readonly requestId: string; readonly answer: Answer }> {
  const answer = await send(to.url, { key: world.key, body: JSON.stringify(fields), headers });
  expect(answer.status).toBe(202);
  return { requestId: requestIdOf(answer), answer };
}

const traceIdOf = (record: SubmissionRecord): string => record.traceparent!.slice(3, 35);

/** Waits for `count` spans; a hint sent twice may add some. */
const spansOf = (traceId: string, count: number): Promise<ReceivedSpan[]> =>
  eventually(`${count} spans of ${traceId}`, () => {
    const found = collector.ofTrace(traceId);
    return found.length >= count ? found : undefined;
  });

const logLines = (process: ServiceProcess, requestId: string): Record<string, unknown>[] =>
  process.lines
    .filter((line) => line.includes(requestId))
    .map((line) => JSON.parse(line) as Record<string, unknown>);

/** Log lines of a request, which come after its record. */
const logged = (process: ServiceProcess, requestId: string): Promise<Record<string, unknown>[]> =>
  eventually(`a line about ${requestId}`, () => {
    const lines = logLines(process, requestId);
    return lines.length > 0 ? lines : undefined;
  });

const SPANS = 9;

test('a request is one trace, as docs/traces-and-logs.md prints it', async () => {
  // A busy machine may send a hint twice or let a mail wait.
  const { record, spans, parent } = await eventually('a request that nothing held up', async () => {
    const { traceparent, traceId, spanId } = partnerTraceparent('01');
    const { requestId } = await post(ingest, { traceparent });
    const completed = await world.recordIn('completed', requestId);
    const seen = await spansOf(traceId, SPANS);
    return seen.length === 9 && { record: completed, spans: seen, parent: spanId };
  });
  const tree = printTrace(spans);
  expect(tree.split('\n')).toEqual([
    'POST /api/v1/capital/ingest (ingest, server) status=202',
    '├─ insert requests (ingest, client) batch=1',
    '├─ send applications (ingest, producer)',
    '├─ process applications (processor, consumer) attempt=1 ← send applications',
    '│  ├─ insert accounts (processor, client) account=created',
    '│  └─ update requests (processor, client) state=account_created',
    '└─ mail applicant (processor, internal) attempt=1',
    '   ├─ send mail (processor, client) mail=accepted',
    '   └─ update requests (processor, client) state=completed',
  ]);
  expect(readFileSync(DOCS, 'utf8')).toContain(`\`\`\`text\n${tree}\n\`\`\``);
  // The record keeps the span of the request, as parent of later work.
  const root = spans.find(({ kind }) => kind === 'server')!;
  expect(root.parentSpanId).toBe(parent);
  expect(record.traceparent).toBe(`00-${root.traceId}-${root.spanId}-01`);
  expect(await logged(processor, record._id)).toMatchObject([
    { level: 'info', msg: 'application completed', trace_id: root.traceId, request_id: record._id },
  ]);
  expect(logLines(ingest, record._id)).toEqual([]);

  const attributes = Object.fromEntries(
    spans.map((span) => [`${span.kind} ${span.name}`, span.attributes]),
  );
  const work = { 'partner_ingest.request_id': record._id, 'partner_ingest.attempt': 1 };
  // The names are those of OpenTelemetry's conventions.
  expect(attributes).toMatchObject({
    'server POST /api/v1/capital/ingest': {
      'http.request.method': 'POST',
      'http.route': '/api/v1/capital/ingest',
      'http.response.status_code': 202,
      'partner_ingest.request_id': record._id,
    },
    'client insert requests': {
      'db.system.name': 'mongodb',
      'db.namespace': world.stores.database,
      'db.collection.name': 'requests',
      'db.operation.name': 'insert',
    },
    'consumer process applications': {
      'messaging.system': 'bullmq',
      'messaging.operation.type': 'process',
      'messaging.operation.name': 'process',
      'messaging.destination.name': 'applications',
      ...work,
    },
    'internal mail applicant': work,
    'client send mail': { 'network.protocol.name': 'smtp', 'server.address': '127.0.0.1' },
  });
});

test('work without a job and a retry belong to the same trace', async () => {
  world.mail.setFault(() => ({ at: 'rcpt', answer: { code: 452, message: '4.3.1 later' } }));
  const withoutRedis = await world.spawn('ingest', {
    ...collector.environment,
    REDIS_URL: NO_REDIS,
  });
  const { requestId } = await post(withoutRedis);
  await failedOnce(world, requestId);
  world.mail.setFault(undefined);
  const record = await world.recordIn('completed', requestId);
  const spans = await spansOf(traceIdOf(record), SPANS + 3);
  const tree = printTrace(spans).split('\n');
  expect(tree).toEqual(
    expect.arrayContaining([
      '├─ insert requests (ingest, client) batch=1',
      '├─ send applications (ingest, producer, failed) error=RedisAwayError',
      '├─ process applications (processor, consumer) attempt=1',
      '├─ mail applicant (processor, internal, failed) attempt=1 error=throttled',
      '├─ send applications (processor, producer)',
      expect.stringContaining('└─ mail applicant (processor, internal) attempt=1'),
    ]),
  );
  expect(await withoutRedis.stop()).toBe(0);
});

test('a request that its partner does not sample has no span, and is processed', async () => {
  const { traceparent, traceId } = partnerTraceparent('00');
  const { requestId } = await post(ingest, { traceparent });
  const record = await world.recordIn('completed', requestId);
  expect(record.traceparent).toMatch(new RegExp(`^00-${traceId}-[0-9a-f]{16}-00$`));
  expect(await logged(processor, requestId)).toMatchObject([{ trace_id: traceId }]);
  // Spans are sent in order, so a later request proves that none is pending.
  const later = await post(ingest);
  const finished = await world.recordIn('completed', later.requestId);
  await spansOf(traceIdOf(finished), SPANS);
  expect(collector.ofTrace(traceId)).toEqual([]);
});

test('a hung collector delays no request and no shutdown, and is logged once', async () => {
  const silent = createServer((socket) => void socket.resume());
  const port = await listen(silent);
  const lonely = await world.spawn('ingest', {
    OTEL_EXPORTER_OTLP_ENDPOINT: `http://127.0.0.1:${port}`,
    OTEL_BSP_SCHEDULE_DELAY: '10',
    // The export must time out during the test.
    OTEL_BSP_EXPORT_TIMEOUT: '500',
  });
  await post(lonely);
  const complaints = (): string[] =>
    lonely.lines.filter((line) => line.includes('traces are incomplete'));
  await eventually('a complaint', () => complaints().length > 0);
  const readyz = await send(lonely.adminUrl, { method: 'GET', path: '/readyz' });
  expect(readyz.json).toMatchObject({
    faults: [],
    warnings: expect.arrayContaining([expect.stringContaining('OTEL_EXPORTER_OTLP_ENDPOINT')]),
  });
  for (let number = 0; number < 10; number += 1) await post(lonely);
  // An exit code shows that it was not killed.
  expect(await lonely.stop()).toBe(0);
  expect(complaints()).toHaveLength(1);
  silent.close();
});

test('without a collector a traceparent is kept, and its trace_id is logged', async () => {
  const plain = await world.spawn('ingest', {
    LOG_LEVEL: 'debug',
    OTEL_EXPORTER_OTLP_ENDPOINT: 'http://127.0.0.1:1',
    OTEL_SDK_DISABLED: 'True',
  });
  const { traceparent, traceId } = partnerTraceparent('01');
  const { requestId } = await post(plain, { traceparent });
  expect((await world.record(requestId))?.traceparent).toBe(traceparent);
  const [line] = await logged(plain, requestId);
  expect(line).toMatchObject({ level: 'debug', msg: 'answered', status: 202, trace_id: traceId });
  const own = await post(plain);
  expect((await world.record(own.requestId))?.traceparent).toBeUndefined();
  expect(await plain.stop()).toBe(0);
});

test('the default protocol is protobuf', async () => {
  const { OTEL_EXPORTER_OTLP_PROTOCOL: _, ...environment } = collector.environment;
  const plain = await world.spawn('ingest', environment);
  await post(plain);
  expect(await plain.stop()).toBe(0);
  await eventually('protobuf', () => collector.text().includes('application/x-protobuf'));
});
