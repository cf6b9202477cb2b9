/**
 * Traces over the real processes, taken by a real OTLP receiver: one request is one trace, whatever
 * way its job came.
 */
import { afterAll, afterEach, beforeAll, describe, expect, test } from '@jest/globals';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:net';
import type { AddressInfo } from 'node:net';
import type { ServiceProcess } from '../../deploy/local/processes.ts';
import { SUBMISSIONS, type SubmissionRecord } from '../../internal/submission/submission.ts';
import { send, type Answer } from '../support/http.ts';
import {
  printTrace,
  startOtlpReceiver,
  type OtlpReceiver,
  type ReceivedSpan,
} from '../support/otlp-receiver.ts';
import { HEAL_HANG_MS, eventually } from '../support/wait.ts';
import { NO_REDIS, newApplication, openWorld, requestIdOf, type World } from '../support/world.ts';

const DOCS = new URL('../../docs/traces-and-logs.md', import.meta.url);

let world: World;
let collector: OtlpReceiver;
let ingest: ServiceProcess;
let processor: ServiceProcess;

beforeAll(async () => {
  [world, collector] = await Promise.all([openWorld(), startOtlpReceiver()]);
  [ingest, processor] = await Promise.all([
    world.spawn('ingest', collector.environment),
    world.spawn('processor', collector.environment),
  ]);
});
afterAll(async () => {
  await world.close();
  await collector.close();
});

afterEach(async () => {
  world.mail.setFault(undefined);
  // What is left would hold the places of the next test, whose mail would then wait in the line.
  await eventually(
    'nothing to be left',
    async () =>
      (await world.records({ state: { $in: ['recorded', 'account_created'] } })).length === 0,
    HEAL_HANG_MS,
  );
});

let traces = 0;

/** A traceparent nobody has used before, as a partner's own service would send it. */
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

/**
 * The spans of a trace once `count` have come; more where a hint was sent twice, as a busy machine
 * does.
 */
const spansOf = (traceId: string, count: number): Promise<ReceivedSpan[]> =>
  eventually(`${count} spans of ${traceId}`, () => {
    const found = collector.ofTrace(traceId);
    return found.length >= count ? found : undefined;
  });

const logLines = (process: ServiceProcess, requestId: string): Record<string, unknown>[] =>
  process.lines
    .filter((line) => line.includes(requestId))
    .map((line) => JSON.parse(line) as Record<string, unknown>);

/** The lines about a request once there is one: they are written after the record. */
const logged = (process: ServiceProcess, requestId: string): Promise<Record<string, unknown>[]> =>
  eventually(`a line about ${requestId}`, () => {
    const lines = logLines(process, requestId);
    return lines.length > 0 ? lines : undefined;
  });

/** How many spans a finished request has, whether its mail waited in the line or not. */
const SPANS = 9;

test('HTTP, store, queue, processor, store, SMTP, store: one trace, as the documentation prints it', async () => {
  // On a busy machine a hint may be sent twice, or a mail wait for its place.
  const { record, spans } = await eventually('a request that nothing held up', async () => {
    const { requestId } = await post(ingest);
    const completed = await world.recordIn('completed', requestId);
    const seen = await spansOf(traceIdOf(completed), SPANS);
    return seen.length === 9 && { record: completed, spans: seen };
  });
  const tree = printTrace(spans);
  expect(tree.split('\n')).toEqual([
    'POST /api/v1/capital/ingest (ingest, server) status=202',
    '├─ insert requests (ingest, client) batch=1',
    '├─ send applications (ingest, producer)',
    '├─ process applications (processor, consumer) attempt=1 ← send applications',
    '│  └─ insert accounts (processor, client) account=created',
    '└─ mail applicant (processor, internal) attempt=1',
    '   ├─ update requests (processor, client) state=account_created',
    '   ├─ send mail (processor, client) mail=accepted',
    '   └─ update requests (processor, client) state=completed',
  ]);
  expect(readFileSync(DOCS, 'utf8')).toContain(`\`\`\`text\n${tree}\n\`\`\``);
  // What the record keeps is the span of the request itself, so that the worker of a later attempt is
  // that span's child.
  const root = spans.find(({ kind }) => kind === 'server')!;
  expect(record.traceparent).toBe(`00-${root.traceId}-${root.spanId}-01`);
  expect(await logged(processor, record._id)).toMatchObject([
    { level: 'info', msg: 'application completed', trace_id: root.traceId, request_id: record._id },
  ]);
  expect(logLines(ingest, record._id)).toEqual([]);
});

test('each span has the attributes of the conventions and ours, and no others', async () => {
  const { traceparent, traceId, spanId } = partnerTraceparent('01');
  const { requestId } = await post(ingest, {
    traceparent,
    'user-agent': 'canary/1.0',
    'x-forwarded-for': '203.0.113.9',
  });
  const spans = await spansOf(traceId, SPANS);
  expect(spans.find(({ kind }) => kind === 'server')?.parentSpanId).toBe(spanId);
  const attributes = Object.fromEntries(
    spans.map((span) => [`${span.kind} ${span.name}`, span.attributes]),
  );
  const database = (operation: string, collection: string) => ({
    'db.system.name': 'mongodb',
    'db.namespace': world.stores.database,
    'db.collection.name': collection,
    'db.operation.name': operation,
  });
  const queue = (operation: string, name: string) => ({
    'messaging.system': 'bullmq',
    'messaging.operation.type': operation,
    'messaging.operation.name': operation,
    'messaging.destination.name': name,
  });
  const work = { 'partner_ingest.request_id': requestId, 'partner_ingest.attempt': 1 };
  expect(attributes).toEqual({
    'server POST /api/v1/capital/ingest': {
      'http.request.method': 'POST',
      'http.route': '/api/v1/capital/ingest',
      'http.response.status_code': 202,
      'url.path': '/api/v1/capital/ingest',
      'url.scheme': 'http',
      'network.protocol.version': '1.1',
      'partner_ingest.request_id': requestId,
    },
    'client insert requests': { ...database('insert', 'requests'), 'db.operation.batch.size': 1 },
    'producer send applications': queue('send', 'applications'),
    'consumer process applications': { ...queue('process', 'applications'), ...work },
    'client insert accounts': {
      ...database('insert', 'accounts'),
      'partner_ingest.account': 'created',
    },
    'internal mail applicant': work,
    'client send mail': {
      'network.protocol.name': 'smtp',
      'server.address': '127.0.0.1',
      'server.port': Number(new URL(world.mail.smtpUrl).port),
      'partner_ingest.mail': 'accepted',
    },
    // Of two with this name the later one.
    'client update requests': {
      ...database('update', 'requests'),
      'partner_ingest.state': 'completed',
    },
  });
});

test.each(['', 'canary', `00-${'0'.repeat(32)}-b7ad6b7169203331-01`, 'ff-x'])(
  'the malformed traceparent %j is left out, and a new trace begins',
  async (traceparent) => {
    const { requestId } = await post(ingest, { traceparent });
    const record = await world.recordIn('completed', requestId);
    const spans = await spansOf(traceIdOf(record), SPANS);
    expect(spans.find(({ kind }) => kind === 'server')?.parentSpanId).toBeUndefined();
  },
);

test('requests that share an insert each have it in their own trace', async () => {
  const count = 40;
  const requestIds = await Promise.all(
    Array.from({ length: count }, async () => (await post(ingest)).requestId),
  );
  const records = await Promise.all(
    requestIds.map((id) => world.recordIn('completed', id, HEAL_HANG_MS)),
  );
  const sizes: number[] = [];
  for (const record of records) {
    const spans = await spansOf(traceIdOf(record), SPANS);
    sizes.push(
      Number(
        spans.find(({ name }) => name === 'insert requests')?.attributes['db.operation.batch.size'],
      ),
    );
  }
  expect(Math.max(...sizes)).toBeGreaterThan(1);
  expect(new Set(records.map(traceIdOf)).size).toBe(count);
});

test('a duplicate and an address that does not exist: what came of each is in its trace', async () => {
  const fields = newApplication();
  const first = await post(ingest, {}, fields);
  await world.recordIn('completed', first.requestId);
  const second = await post(ingest, {}, fields);
  const rejected = await world.recordIn('rejected', second.requestId);
  expect(
    printTrace(await spansOf(traceIdOf(rejected), 6))
      .split('\n')
      .slice(3),
  ).toEqual([
    '└─ process applications (processor, consumer) attempt=1 ← send applications',
    '   ├─ insert accounts (processor, client) account=taken',
    '   └─ update requests (processor, client) state=rejected',
  ]);
  expect(await logged(processor, second.requestId)).toMatchObject([
    { level: 'info', msg: 'application rejected', trace_id: traceIdOf(rejected) },
  ]);

  world.mail.setFault(() => ({ at: 'rcpt', answer: { code: 550, message: '5.1.1 unknown' } }));
  const third = await post(ingest);
  const undeliverable = await world.recordIn('undeliverable', third.requestId);
  expect(
    printTrace(await spansOf(traceIdOf(undeliverable), SPANS))
      .split('\n')
      .slice(5),
  ).toEqual([
    '└─ mail applicant (processor, internal, failed) attempt=1 error=permanent',
    '   ├─ update requests (processor, client) state=account_created',
    '   ├─ send mail (processor, client, failed) mail=refused error=550',
    '   └─ update requests (processor, client) state=undeliverable',
  ]);
  expect(await logged(processor, third.requestId)).toMatchObject([
    { level: 'info', msg: 'attempt failed', trace_id: traceIdOf(undeliverable) },
  ]);
});

test('a job that reconcile made again belongs to the same trace and is linked to its sending', async () => {
  const withoutRedis = await world.spawn('ingest', {
    ...collector.environment,
    REDIS_URL: NO_REDIS,
  });
  const { requestId } = await post(withoutRedis);
  // What the clock would do in 30 s: reconcile has seen the record once, and it is due again.
  const due = new Date(Date.now() - 1_000);
  await world.stores.db
    .collection<SubmissionRecord>(SUBMISSIONS)
    .updateOne({ _id: requestId }, { $set: { dueAt: due, firstSeenAt: due } });
  const record = await world.recordIn('completed', requestId);
  const tree = printTrace(await spansOf(traceIdOf(record), 1 + SPANS)).split('\n');
  expect(tree.slice(1, 5)).toEqual([
    '├─ insert requests (ingest, client) batch=1',
    '├─ send applications (ingest, producer, failed) error=RedisAwayError',
    '├─ send applications (processor, producer) by=reconcile',
    '├─ process applications (processor, consumer) attempt=1 ← send applications',
  ]);
  const spans = collector.ofTrace(traceIdOf(record));
  const made = spans.find(({ attributes }) => attributes['partner_ingest.sent_by'] === 'reconcile');
  const worked = spans.find(({ name }) => name === 'process applications');
  expect(worked?.links).toEqual([{ traceId: made?.traceId, spanId: made?.spanId }]);
  expect(await withoutRedis.stop()).toBe(0);
});

describe('sampling', () => {
  test('a partner that does not sample gets no span, and is processed all the same', async () => {
    const { traceparent, traceId } = partnerTraceparent('00');
    const { requestId } = await post(ingest, { traceparent });
    const record = await world.recordIn('completed', requestId);
    expect(record.traceparent).toMatch(new RegExp(`^00-${traceId}-[0-9a-f]{16}-00$`));
    expect(await logged(processor, requestId)).toMatchObject([{ trace_id: traceId }]);
    // Spans leave in order, so those of a later request prove that none of this one is on its way.
    const later = await post(ingest);
    const finished = await world.recordIn('completed', later.requestId);
    await spansOf(traceIdOf(finished), SPANS);
    expect(collector.ofTrace(traceId)).toEqual([]);
  });

  test('the decision made at ingest holds for the processor, too', async () => {
    const environment = { ...collector.environment, OTEL_TRACES_SAMPLER: 'parentbased_always_off' };
    const choosy = await world.spawn('ingest', environment);
    const unsampled = await post(choosy);
    const record = await world.recordIn('completed', unsampled.requestId);
    expect(record.traceparent).toMatch(/-00$/);
    const { traceparent, traceId } = partnerTraceparent('01');
    await post(choosy, { traceparent });
    await spansOf(traceId, 9);
    expect(collector.ofTrace(traceIdOf(record))).toEqual([]);
    expect(await choosy.stop()).toBe(0);
  });

  test('a share of the traces is a share of whole traces', async () => {
    const environment = {
      ...collector.environment,
      OTEL_TRACES_SAMPLER: 'traceidratio',
      OTEL_TRACES_SAMPLER_ARG: '0.5',
    };
    const half = await world.spawn('ingest', environment);
    const requestIds = await Promise.all(
      Array.from({ length: 60 }, async () => (await post(half)).requestId),
    );
    const records = await Promise.all(
      requestIds.map((id) => world.recordIn('completed', id, HEAL_HANG_MS)),
    );
    const sampled = records.filter(({ traceparent }) => traceparent?.endsWith('01'));
    // 1 in 10^8 that of 60 fair coins fewer than 9 or more than 51 show heads.
    expect(sampled.length).toBeGreaterThan(8);
    expect(sampled.length).toBeLessThan(52);
    for (const record of sampled) await spansOf(traceIdOf(record), SPANS);
    for (const record of records) {
      if (!sampled.includes(record)) expect(collector.ofTrace(traceIdOf(record))).toEqual([]);
    }
    expect(await half.stop()).toBe(0);
  });
});

describe('a collector that is away', () => {
  test.each(['refuses', 'hangs'] as const)(
    'and %s: no request notices, one line tells, and closing does not wait for it',
    async (how) => {
      const silent = createServer((socket) => void socket.resume());
      await new Promise<void>((resolve) => silent.listen(0, '127.0.0.1', resolve));
      const { port } = silent.address() as AddressInfo;
      if (how === 'refuses') await new Promise((resolve) => silent.close(resolve));
      const lonely = await world.spawn('ingest', {
        OTEL_EXPORTER_OTLP_ENDPOINT: `http://127.0.0.1:${port}`,
        OTEL_BSP_SCHEDULE_DELAY: '10',
        // So that a hanging export fails while the test looks.
        OTEL_BSP_EXPORT_TIMEOUT: '500',
      });
      for (let number = 0; number < 20; number += 1) await post(lonely);
      const complaints = (): string[] =>
        lonely.lines.filter((line) => line.includes('traces are incomplete'));
      await eventually('a complaint', () => complaints().length > 0);
      const readyz = await send(lonely.adminUrl, { method: 'GET', path: '/readyz' });
      expect(readyz.json).toMatchObject({
        faults: [],
        warnings: expect.arrayContaining([expect.stringContaining('OTEL_EXPORTER_OTLP_ENDPOINT')]),
      });
      for (let number = 0; number < 20; number += 1) await post(lonely);
      const signalledAt = performance.now();
      // Not null: it ended by itself, before anybody lost patience.
      expect(await lonely.stop()).toBe(0);
      console.log(
        `a collector that ${how}: closed after ${Math.round(performance.now() - signalledAt)} ms`,
      );
      expect(complaints()).toHaveLength(1);
      silent.close();
    },
  );
});

describe('off', () => {
  /** Tells on standard error which packages a process loads. */
  const NODE_OPTIONS = `--import=data:text/javascript,${encodeURIComponent(`
    import { registerHooks } from 'node:module';
    registerHooks({
      load(url, context, next) {
        if (url.includes('/@opentelemetry/sdk-node/')) console.error('loaded the SDK of OpenTelemetry');
        return next(url, context);
      },
    });
  `)}`;
  const loadedIn = (process: ServiceProcess): boolean =>
    process.lines.some((line) => line.includes('loaded the SDK of OpenTelemetry'));

  test.each<[loaded: boolean, environment: Record<string, string>]>([
    [false, {}],
    [false, { OTEL_EXPORTER_OTLP_ENDPOINT: 'http://127.0.0.1:1', OTEL_SDK_DISABLED: 'true' }],
    [true, { OTEL_EXPORTER_OTLP_ENDPOINT: 'http://127.0.0.1:1' }],
  ])('the SDK is loaded: %j, with %j', async (loaded, environment) => {
    const plain = await world.spawn('ingest', { NODE_OPTIONS, ...environment });
    const { requestId } = await post(plain);
    expect((await world.record(requestId))?.traceparent !== undefined).toBe(loaded);
    if (loaded) await eventually('the line of the SDK', () => loadedIn(plain));
    expect(await plain.stop()).toBe(0);
    expect(loadedIn(plain)).toBe(loaded);
  });

  test("a partner's traceparent is kept all the same, and its trace_id stands in the log", async () => {
    const plain = await world.spawn('ingest', { LOG_LEVEL: 'debug' });
    const { traceparent, traceId } = partnerTraceparent('01');
    const { requestId } = await post(plain, { traceparent });
    expect((await world.record(requestId))?.traceparent).toBe(traceparent);
    const [line] = await logged(plain, requestId);
    expect(line).toMatchObject({ level: 'debug', msg: 'answered', status: 202, trace_id: traceId });
    expect(await plain.stop()).toBe(0);
  });
});

test('the default protocol is protobuf, which a collector understands without further settings', async () => {
  const { OTEL_EXPORTER_OTLP_PROTOCOL: _, ...environment } = collector.environment;
  const plain = await world.spawn('ingest', environment);
  await post(plain);
  expect(await plain.stop()).toBe(0);
  await eventually('protobuf', () => collector.text().includes('application/x-protobuf'));
});
