/** Constructs ingest's parts. */
import type { Db, MongoClientOptions } from 'mongodb';
import { Registry } from 'prom-client';
import {
  DRAIN_DEADLINE_MS,
  LAST_ANSWERS_MS,
  LIMITER_PROBE_MS,
  STATUS_TIMEOUT_MS,
} from '../../internal/ingest/bounds.ts';
import { openApiDocument } from '../../internal/ingest/contract.ts';
import { SharedLimiterStore } from '../../internal/ingest/rate-limit.ts';
import { createIngestServer } from '../../internal/ingest/routes.ts';
import { Statuses } from '../../internal/ingest/look-up-status.ts';
import { Outcomes } from '../../internal/ingest/outcomes.ts';
import { Installation } from '../../internal/installation/installation.ts';
import { KeyCache } from '../../internal/partner/key-cache.ts';
import { KeyStore } from '../../internal/partner/key-store.ts';
import { listenHost, urlOf } from '../../internal/platform/http/admin-server.ts';
import { pause, withDeadline } from '../../internal/platform/process/deadline.ts';
import type { Fault } from '../../internal/platform/process/fault.ts';
import { makeFirstContact } from '../../internal/platform/stores/mongo-indexes.ts';
import { createMongo, mongoFault, WriteContact } from '../../internal/platform/stores/mongo.ts';
import {
  type Opened,
  openProcess,
  type ProcessTools,
} from '../../internal/platform/open-process.ts';
import { createRedis } from '../../internal/platform/stores/redis.ts';
import { hearEnds } from '../../internal/queue/consume.ts';
import { HintSender, HintOutbox } from '../../internal/queue/enqueue.ts';
import { publishedSet, readKeySet, ReceiptSigner } from '../../internal/receipt/receipt.ts';
import { type ConfigOf, printableConfig, redisOf } from '../../internal/settings/settings.ts';
import { DueWork } from '../../internal/submission/due-work.ts';
import { GroupCommit, groupCommitLimits } from '../../internal/submission/group-commit.ts';
import { submissionIndexes } from '../../internal/submission/submission.ts';
import { OutcomeReader, StatusReader } from '../../internal/submission/status-reader.ts';
import { OverLimitRecorder } from '../../internal/submission/over-limit.ts';
import { Withdrawals } from '../../internal/submission/withdrawals.ts';
import {
  createIngestMetrics,
  PartnerLabels,
  type IngestMetrics,
} from '../../internal/telemetry/metrics.ts';
import { trafficIndexes } from '../../internal/traffic/traffic.ts';
import { LivingPods } from '../../internal/traffic/living-pods.ts';
import { TrafficReader } from '../../internal/traffic/traffic-reader.ts';
import { TrafficCounter } from '../../internal/traffic/traffic-counter.ts';

/** Listens before readiness, which needs the indexes and the keys. */
export async function startIngest(config: ConfigOf<'ingest'>, tools: ProcessTools) {
  const { closers } = tools;
  const settings = settingsOf(config);
  const metrics = createIngestMetrics(tools.registry);
  const openApi = openApiDocument(settings);
  const opened = await openProcess(
    config,
    {
      name: 'ingest',
      metrics,
      indexes: [...submissionIndexes, ...trafficIndexes],
      traced: true,
      documents: { '/openapi.json': openApi },
    },
    tools,
  );
  const { contact, ready, adminUrl, serving } = opened;
  const installation = new Installation(opened);
  ready.push(contact.hides(installation.faults));
  const draining = new AbortController();
  const { signal: drain } = draining;
  ready.push(() => (drain.aborted ? [{ code: 'draining', words: 'draining' }] : []));
  const parts: IngestParts = { ...opened, installation, partnerLabels: new PartnerLabels(), drain };

  const pods = new LivingPods(parts);
  closers.add('living pod', () => pods.close(), LAST_BEAT_MS);
  const limiter = openLimiter(config, pods, parts);
  const app = await createIngestServer(settings, {
    ...parts,
    retention: {
      malformedDays: config.RETENTION_MALFORMED_DAYS,
      refusedDays: config.RETENTION_REFUSED_DAYS,
    },
    ...receiptsOf(config, opened),
    limiter,
    openApi: config.OPENAPI_ENDPOINT ? openApi : undefined,
    ...openStores(config, pods, parts),
    metricsOfTests: createIngestMetrics(new Registry()),
  });
  closers.add('partner port', () => app.close(), LAST_ANSWERS_MS + DRAIN_DEADLINE_MS);
  await app.listen({ host: listenHost(config.HTTP_HOST), port: config.HTTP_PORT });
  closers.add(
    'endpoint',
    async () => {
      draining.abort();
      await pause(config.SHUTDOWN_DELAY_MS);
    },
    config.SHUTDOWN_DELAY_MS + 1_000,
  );

  const url = urlOf(app.server);
  serving({ config: printableConfig(config), url });
  return { url, adminUrl };
}

function settingsOf(config: ConfigOf<'ingest'>) {
  return {
    trustedProxies: config.TRUSTED_PROXIES,
    clientHeader: config.CLIENT_ADDRESS_HEADER,
    keepAliveSeconds: config.HTTP_KEEP_ALIVE_SECONDS,
    rateLimitMax: config.RATE_LIMIT_MAX,
    rateLimitWindowSeconds: config.RATE_LIMIT_WINDOW_SECONDS,
    statusEndpoint: config.STATUS_ENDPOINT,
  };
}

function receiptsOf({ RECEIPT_KEYS: text }: ConfigOf<'ingest'>, { clock }: Opened<unknown>) {
  if (text === undefined) return { receipts: undefined, receiptKeys: undefined };
  const keys = readKeySet(text);
  return { receipts: new ReceiptSigner({ keys, clock }), receiptKeys: publishedSet(keys) };
}

function openLimiter(config: ConfigOf<'ingest'>, pods: LivingPods, parts: IngestParts) {
  const { log, closers, warnings } = parts;
  const use = { commandTimeoutMs: LIMITER_PROBE_MS, autoPipeline: true } as const;
  const { redisUrl, redisTls } = redisOf(config);
  const redis = createRedis(redisUrl, use, { log, warnings, redisTls });
  const limiter = new SharedLimiterStore({ ...parts, redis, pods });
  warnings.push(limiter.warnings);
  closers.add('limiter', () => {
    limiter.close();
    redis.disconnect();
  });
  return limiter;
}

/* Constructs what ingest reads from and writes to its stores. */

/** Two for look-ups, lists and outcomes each, three for all waits, one for waits that ended. */
const STATUS_CONNECTIONS = 10;
const ENDS_TIMEOUT_MS = 1_000;

/** Others stop to count this process after 30 s anyway. */
const LAST_BEAT_MS = 2_000;
/** Without the right to be counted a pod serves all the same. */
const COUNTED_MS = 2_000;

type IngestParts = Opened<IngestMetrics> & {
  readonly installation: Installation;
  readonly partnerLabels: PartnerLabels;
  readonly drain: AbortSignal;
};

function openStores(config: ConfigOf<'ingest'>, pods: LivingPods, parts: IngestParts) {
  const commitClient = { retryWrites: false, maxPoolSize: groupCommitLimits.maxInFlight + 1 };
  const commitDb = openDatabase(
    'group commit',
    config.ACCEPT_TIMEOUT_MS,
    commitClient,
    config,
    parts,
  );
  // Hints close after the commits and before the database, their fallback.
  const hints = openHints(config, parts);

  const lookUps = config.STATUS_ENDPOINT ? openLookUps(config, parts) : undefined;

  const overLimit = new OverLimitRecorder({
    ...parts,
    windowMs: config.RATE_LIMIT_WINDOW_SECONDS * 1_000,
    retentionDays: config.RETENTION_REFUSED_DAYS,
  });
  parts.closers.add('over-limit counts', () => overLimit.close());

  const traffic = new TrafficCounter(parts);
  parts.closers.add('traffic', () => traffic.close());

  const keys = openKeys(pods, parts);
  return { hints, lookUps, overLimit, traffic, keys, ...openCommits(config, commitDb, parts) };
}

/** Opened last and closed first, so that withdrawals have the whole drain to settle. */
function openCommits(config: ConfigOf<'ingest'>, commitDb: Db, parts: IngestParts) {
  const { closers } = parts;
  const withdrawals = new Withdrawals({
    ...parts,
    retentionDays: config.RETENTION_WITHDRAWN_DAYS,
  });
  // Pending withdrawals are logged, however the process ends.
  const abandon = (): void => withdrawals.stop();
  process.once('exit', abandon);
  closers.add(
    'withdrawals',
    async () => {
      await withDeadline(withdrawals.whenSettled(), DRAIN_DEADLINE_MS, 'withdrawals').finally(
        abandon,
      );
      process.off('exit', abandon);
    },
    DRAIN_DEADLINE_MS + 1_000,
  );
  const contact = new WriteContact(commitDb.client, parts.log);
  parts.warnings.push(parts.contact.hides(contact.warnings));
  const commits = new GroupCommit({
    ...parts,
    db: commitDb,
    contact,
    limits: groupCommitLimits,
    timeoutMs: config.ACCEPT_TIMEOUT_MS,
    pendingWithdrawals: () => withdrawals.pending,
  });
  closers.add('group commit', () => commits.whenIdle());
  return { commits, withdrawals };
}

function openDatabase(
  name: string,
  timeoutMs: number,
  options: MongoClientOptions,
  config: ConfigOf<'ingest'>,
  { log, closers, ready }: IngestParts,
): Db {
  const mongo = createMongo(config.MONGODB_URI, `partner-ingest ${name}`, {
    socketTimeoutMS: timeoutMs,
    serverSelectionTimeoutMS: timeoutMs,
    waitQueueTimeoutMS: timeoutMs,
    ...options,
  });
  closers.add(`mongodb ${name}`, () => mongo.close());
  const db = mongo.db(config.MONGODB_DATABASE);
  const contact = makeFirstContact(db, [], log);
  closers.add(`${name} connection`, () => contact.stop());
  ready.push(contact.faults);
  return db;
}

function openLookUps(config: ConfigOf<'ingest'>, parts: IngestParts) {
  const client = { maxPoolSize: STATUS_CONNECTIONS };
  const db = openDatabase('status', STATUS_TIMEOUT_MS, client, config, parts);
  const statuses = new Statuses({ ...parts, reader: new StatusReader({ db }) });
  const outcomes = new Outcomes({ ...parts, reader: new OutcomeReader({ db }) });
  const { redisUrl, redisTls } = redisOf(config);
  const use = { commandTimeoutMs: ENDS_TIMEOUT_MS };
  const redis = createRedis(redisUrl, use, { ...parts, redisTls });
  const unsubscribe = hearEnds(redis, parts.installation, (ids) => statuses.ended(ids));
  parts.closers.add('ends', unsubscribe);
  return { statuses, outcomes, counts: new TrafficReader(db) };
}

function openHints(config: ConfigOf<'ingest'>, parts: IngestParts) {
  const { db, clock, closers, metrics } = parts;
  const sender = new HintSender({ ...parts, ...redisOf(config) });
  parts.installation.follow((id) => sender.follow(id));
  closers.add('queues', () => sender.close());
  const due = new DueWork({ db, clock });
  const outbox = new HintOutbox({
    sender,
    otherwise: (batch) => due.makeDue(batch),
    results: metrics.hints,
  });
  closers.add('hints', () => outbox.whenEmpty());
  return outbox;
}

function openKeys(pods: LivingPods, parts: IngestParts): KeyCache {
  const { db, contact, loops, closers, metrics, partnerLabels, ready } = parts;
  const keys = new KeyCache({
    ...parts,
    store: new KeyStore(parts),
    onLoad: ({ keys: all, version }) => {
      pods.knows(version);
      // Sorting makes all pods show the same partners.
      for (const partnerId of all.map((key) => key.partnerId).toSorted())
        partnerLabels.of(partnerId);
      metrics.keys.set(all.length);
    },
    onCurrent: (at) => metrics.keysRefreshedAt.set(at.getTime() / 1_000),
  });
  closers.add('last uses of keys', () => keys.touch());
  // Keys are loaded once the clock is known, so every record has the database's time. The controller
  // waits for each pod that counts, so one that counts before it reads keys misses no version.
  const mayRead = parts.clockKnown.then(() => Promise.race([pods.counted, pause(COUNTED_MS)]));
  keys.start(loops, mayRead);
  const notLoaded = (): Fault[] => {
    if (keys.loaded) return [];
    const words = 'partner keys are not loaded yet: has the controller finished its first sync?';
    if (keys.failure === undefined) return [{ code: 'keys_unloaded', words }];
    const fault = mongoFault(db.client, keys.failure);
    return [{ ...fault, words: `partner keys cannot be read: ${fault.words}` }];
  };
  ready.push(contact.hides(notLoaded));
  return keys;
}
