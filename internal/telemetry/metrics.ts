/** Every metric of the service in one table: name, help, labels. No label holds an address, an e-mail or a request_id. */
import { Counter, Gauge, Histogram, Registry, collectDefaultMetrics } from 'prom-client';

const PREFIX = 'partner_ingest_';

/** From half a millisecond to the longest an accept may take by default, and one beyond. */
const LATENCY_SECONDS = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2, 5];
const BATCH_DOCUMENTS = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512];

/** A registry with Node's own metrics; `service` is on every series. */
export function createRegistry(service: string): Registry {
  const registry = new Registry();
  registry.setDefaultLabels({ service });
  collectDefaultMetrics({ register: registry });
  return registry;
}

const counter =
  (registry: Registry) =>
  <Label extends string = never>(name: string, help: string, labelNames: readonly Label[] = []): Counter<Label> =>
    new Counter({ name: `${PREFIX}${name}_total`, help, labelNames: [...labelNames], registers: [registry] });

const gauge =
  (registry: Registry) =>
  <Label extends string = never>(name: string, help: string, labelNames: readonly Label[] = []): Gauge<Label> =>
    new Gauge({ name: `${PREFIX}${name}`, help, labelNames: [...labelNames], registers: [registry] });

const histogram =
  (registry: Registry) =>
  (name: string, help: string, buckets: readonly number[]): Histogram =>
    new Histogram({ name: `${PREFIX}${name}`, help, buckets: [...buckets], registers: [registry] });

/** What the door counts. */
export function createIngestMetrics(registry: Registry) {
  const [count, set, observe] = [counter(registry), gauge(registry), histogram(registry)];
  return {
    requests: count('requests', 'Answers given on the partner port, by status code.', ['status']),
    acceptSeconds: observe('accept_seconds', 'Time from request headers to a 202 or 400, in seconds.', LATENCY_SECONDS),
    brokenHttp: count('broken_http', 'Connections answered before any route ran, by kind of fault.', ['kind']),
    untrustedForwardedFor: count(
      'untrusted_forwarded_for',
      'Requests with X-Forwarded-For from a peer that is not in TRUSTED_PROXIES.',
    ),
    batchDocuments: observe('batch_documents', 'Records written by one insert.', BATCH_DOCUMENTS),
    commitSeconds: observe(
      'commit_seconds',
      'Time from sending a batch to its durable answer, in seconds.',
      LATENCY_SECONDS,
    ),
    waitingDocuments: set('waiting_documents', 'Records waiting to be written by this process.'),
    notAccepted: count('not_accepted', 'Records that could not be made durable, by reason.', ['reason']),
    refusedDropped: count('refused_dropped', 'Records of refused requests dropped for want of spare room.'),
    withdrawals: count('withdrawals', 'Records in doubt that were settled, by result.', ['result']),
    withdrawalsPending: set('withdrawals_pending', 'Records in doubt whose withdrawal is not acknowledged yet.'),
    hints: count('hints', 'Queue hints sent to wake workers, by result.', ['result']),
    limiterDecisions: count('limiter_decisions', 'Rate-limit decisions, by where they were made and what they were.', [
      'store',
      'decision',
    ]),
    limiterFallback: set(
      'limiter_fallback',
      '1 while this process limits on its own memory because Redis is away or slow.',
    ),
    keys: set('keys', 'API keys held in memory.'),
    keysRefreshedAt: set('keys_refreshed_timestamp_seconds', 'When the keys in memory were last read, as Unix time.'),
  };
}

/** What the background work counts. */
export function createProcessorMetrics(registry: Registry) {
  const [count, set, observe] = [counter(registry), gauge(registry), histogram(registry)];
  return {
    outcomes: count('outcomes', 'Moves into a state, by state and first reason.', ['state', 'reason']),
    attempts: count('attempts', 'Jobs worked on, by queue and result.', ['queue', 'result']),
    mails: count('mails', 'Hand-overs to the mail server, by result.', ['result']),
    possibleSecondMails: count(
      'possible_second_mails',
      'Mails that may have reached an applicant who may have got one before, by cause; the mail ledger lists them.',
      ['cause'],
    ),
    duplicateKeys: count('duplicate_keys', 'Account inserts decided by a unique index, by what was found.', ['found']),
    completionSeconds: observe(
      'completion_seconds',
      'Time from receiving a request to its e-mail being handed over, in seconds.',
      [0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 3_600, 86_400],
    ),
    hints: count('hints', 'Queue hints sent to wake workers, by result.', ['result']),
    reconcileRequeued: count(
      'reconcile_requeued',
      'Records queued again because nobody worked on them in time, by state.',
      ['state'],
    ),
    reconcileUnknown: set('reconcile_unknown_records', 'Due records of a newer schema or state, left alone.'),
    oldestDueSeconds: set('oldest_due_seconds', 'How long the most overdue open record has been due, in seconds.'),
    workerPaused: set('worker_paused', '1 while a worker waits for an outage to end, by queue.', ['queue']),
    queueJobs: set('queue_jobs', 'Jobs in Redis, by queue and state.', ['queue', 'state']),
  };
}

/** What the controller counts. */
export function createControllerMetrics(registry: Registry) {
  const [count, set] = [counter(registry), gauge(registry)];
  return {
    keysWanted: set('keys_wanted', 'API keys the partner Secrets ask for.'),
    secretProblems: set('secret_problems', 'Secrets or entries that could not be used, by problem.', ['problem']),
    keyChanges: count('key_changes', 'Key documents written, by change.', ['change']),
    syncedAt: set(
      'keys_synced_timestamp_seconds',
      'When the stored keys were last known to be what the partner Secrets ask for, as Unix time.',
    ),
    leader: set('leader', '1 while this process leads.'),
    secretsSeenAt: set(
      'secrets_seen_timestamp_seconds',
      'When the partner Secrets of a namespace were last known to be current, as Unix time; only while leading.',
      ['namespace'],
    ),
    secretLists: count('secret_lists', 'Complete lists of partner Secrets, by result.', ['namespace', 'result']),
    secretWatches: count('secret_watches', 'Watches of partner Secrets that ended, by result.', [
      'namespace',
      'result',
    ]),
    secretEvents: count('secret_events', 'Warning Events about partner Secrets, by result.', ['result']),
  };
}
