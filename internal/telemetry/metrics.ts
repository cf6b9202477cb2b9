/**
 * Every metric with all values of its labels. No label contains an address, an e-mail or a
 * request_id.
 */
import type { Registry } from 'prom-client';
import { reasonCodes } from '../application/reasons.ts';
import { hintResults, jobStates } from '../queue/job.ts';
import { notAcceptedReasons } from '../submission/group-commit.ts';
import { withdrawalResults } from '../submission/withdrawals.ts';
import {
  counter,
  gauge,
  histogram,
  make,
  ofProcess,
  openValues,
  valuesOf,
  type MetricsOf,
} from './definition.ts';
import { problemCodes } from '../partner/key-secret.ts';
import { backlogStates, openStates } from '../submission/states.ts';

/** The alert promises 1 s; an accept takes 2 s at most by default. */
const LATENCY_SECONDS = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2, 5];
const BATCH_DOCUMENTS = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512];
/** A relay may take ten minutes after the content. */
const HAND_OVER_SECONDS = [0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 600];
const COMPLETION_SECONDS = [0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 3_600, 86_400];

const hints = counter('hints', 'Jobs sent, counted by record.', {
  result: hintResults,
});

const answerStatus = [
  '200',
  '202',
  '400',
  '401',
  '403',
  '404',
  '405',
  '408',
  '422',
  '429',
  '500',
  '503',
] as const;

export const ingestMetrics = {
  ...ofProcess,
  requests: counter('requests', 'Answers on the partner port.', {
    status: answerStatus,
  }),
  partnerRequests: counter('partner_requests', 'Answers to requests with a known key.', {
    partner: openValues,
    status: answerStatus,
  }),
  testRequests: counter('test_requests', 'Answers to requests with a test key.', {
    status: answerStatus,
  }),
  keysOutOfTerms: counter('keys_out_of_terms', 'Requests answered 401 with a known key.', {
    because: ['revoked', 'ended', 'address', 'mode'],
  }),
  acceptSeconds: histogram(
    'accept_seconds',
    'Time from request headers to a 202 or 400.',
    LATENCY_SECONDS,
  ),
  brokenHttp: counter('broken_http', 'Connections answered before any route ran.', {
    kind: [
      'too_many_connections',
      'too_many_from_address',
      'too_many_pipelined',
      'answer_unread',
      'bad_version',
      'no_host',
      'bad_host',
      'bad_transfer_encoding',
      'not_http',
      'connection',
      'too_slow',
      'headers_too_large',
      'chunk_extensions_too_large',
    ],
  }),
  untrustedForwardedFor: counter(
    'untrusted_forwarded_for',
    'Requests whose proxy is untrusted or names no address.',
  ),
  batchDocuments: histogram('batch_documents', 'Records written by one insert.', BATCH_DOCUMENTS),
  commitSeconds: histogram(
    'commit_seconds',
    'Time from sending a batch to its durable answer.',
    LATENCY_SECONDS,
  ),
  waitingDocuments: gauge('waiting_documents', 'Records waiting to be written by this process.'),
  notAccepted: counter('not_accepted', 'Records that could not be made durable.', {
    reason: notAcceptedReasons,
  }),
  idempotencyKeys: counter(
    'idempotency_keys',
    'Requests whose Idempotency-Key was bound already.',
    {
      result: ['replayed', 'mismatched', 'erased'],
    },
  ),
  receipts: counter('receipts', 'Receipts signed for accepted submissions.', {
    result: ['sent', 'failed', 'no_key'],
  }),
  refusedDropped: counter(
    'refused_dropped',
    'Requests answered 401 or 403 that were only counted: MongoDB took no record in time.',
  ),
  withdrawals: counter('withdrawals', 'Records in doubt that were settled.', {
    result: withdrawalResults,
  }),
  withdrawalsPending: gauge(
    'withdrawals_pending',
    'Records in doubt whose withdrawal is not acknowledged yet.',
  ),
  hints,
  limiterDecisions: counter('limiter_decisions', 'Rate-limit decisions.', {
    store: ['redis', 'local'],
    decision: ['served', 'refused'],
  }),
  limitDryRun: counter(
    'limit_dry_run',
    'Submissions that `max-per-minute-dry-run` would turn away.',
    { partner: openValues },
  ),
  limiterFallback: gauge(
    'limiter_fallback',
    '1 while this process counts for the limits by itself, without Redis.',
  ),
  keys: gauge('keys', 'API keys held in memory.'),
  keysRefreshedAt: gauge(
    'keys_refreshed_timestamp_seconds',
    'When the keys in memory were last the stored ones.',
  ),
};

export const bounceResults = [
  'undeliverable',
  'dead_lettered',
  /** Reported before, or about an earlier e-mail. */
  'repeated',
  /** Of no account. */
  'unknown',
  /** The request cannot bounce any more. */
  'not_possible',
  /** The e-mail is not noted as sent yet, or the request has just changed. */
  'later',
] as const;
const bounceAnswers = ['reported', 'faulty', 'not_signed', 'limited', 'later'] as const;

const byStep = { step: ['account', 'mail'] } as const;
const byHandOver = {
  result: ['accepted', 'refused', 'unreachable', 'ambiguous', 'aborted'],
} as const;
const deadLetterClasses = [
  'transient',
  'ambiguous',
  'ours',
  'busy',
  'throttled',
  'crashed',
] as const;
const outcomes = [
  { state: 'account_created', reason: 'none' },
  { state: 'completed', reason: 'none' },
  ...reasonCodes.map((reason) => ({ state: 'rejected', reason }) as const),
  { state: 'undeliverable', reason: 'permanent' },
  ...deadLetterClasses.map((reason) => ({ state: 'dead_lettered', reason }) as const),
] as const;

export const processorMetrics = {
  ...ofProcess,
  outcomes: counter(
    'outcomes',
    'Moves into a state, with the first reason.',
    { state: valuesOf(outcomes, 'state'), reason: valuesOf(outcomes, 'reason') },
    { series: outcomes },
  ),
  partnerOutcomes: counter('partner_outcomes', 'Moves into a state by partner.', {
    partner: openValues,
    state: valuesOf(outcomes, 'state'),
    reason: valuesOf(outcomes, 'reason'),
  }),
  attempts: counter(
    'attempts',
    'Attempts of workers; `repeat` found the record claimed or done, `waits` an earlier request.',
    {
      ...byStep,
      result: ['done', 'failed', 'repeat', 'claim_lost', 'waits'],
    },
  ),
  failures: counter(
    'failures',
    'Failed attempts; `ours` is our sender, settings, rights or disk.',
    {
      ...byStep,
      class: ['permanent', 'infrastructure', 'relay', ...deadLetterClasses],
    },
  ),
  mails: counter('mails', 'Hand-overs to the mail server.', byHandOver),
  mailsRefusedAlike: counter(
    'mails_refused_alike',
    'E-mails not given up, because the relay refuses different applicants in the same words.',
  ),
  mailsNotTaken: gauge(
    'mails_not_taken',
    'Applicants whose e-mail the relay did not take since it last took one.',
  ),
  testMails: counter('test_mails', 'Hand-overs of tests to the mail server.', {
    to: ['TEST_MAIL_TO', 'PROBE_MAIL_TO'],
    ...byHandOver,
  }),
  handOverSeconds: histogram(
    'hand_over_seconds',
    'Time from asking for a connection to the last answer.',
    HAND_OVER_SECONDS,
    byHandOver,
  ),
  bounces: counter('bounces', 'Late bounces that a program reported.', { result: bounceResults }),
  bounceRequests: counter('bounce_requests', 'Requests that reported late bounces.', {
    answer: bounceAnswers,
  }),
  possibleSecondMails: counter('possible_second_mails', 'Possible second mails of an applicant.', {
    cause: ['ambiguous_data', 'crash', 'resent'],
  }),
  duplicateKeys: counter('duplicate_keys', 'Account inserts decided by a unique index.', {
    found: ['own', 'taken'],
  }),
  completionSeconds: histogram(
    'completion_seconds',
    'Time from a request to its e-mail.',
    COMPLETION_SECONDS,
  ),
  hints,
  reconcileRequeued: counter('reconcile_requeued', 'Records whose job or worker was lost.'),
  reconcileUnknown: gauge(
    'reconcile_unknown_records',
    'Due records of a newer version, left alone.',
  ),
  senderRefused: gauge('sender_refused', '1 while the relay refuses our sender or login.'),
  partnersHeld: gauge('partners_held', 'Partners that operators have on hold.'),
  workerPaused: gauge('worker_paused', '1 while work waits.', {
    waits_for: ['database', 'relay'],
  }),
};

/** Only the leader sets the backlog, so that one process queries the stores. */
export const controllerMetrics = {
  ...ofProcess,
  records: gauge('records', 'Records with work ahead or given up, up to 100,000 each.', {
    state: backlogStates,
  }),
  recordsOnHold: gauge(
    'records_on_hold',
    'Records of partners on hold, which `records` leaves out.',
  ),
  partnerRecords: gauge('partner_records', 'Records with work ahead, of the first 20,000.', {
    partner: openValues,
  }),
  bouncedMails: gauge('bounced_mails', 'Late bounces reported in the last 24 hours.'),
  oldestWaitingSeconds: gauge(
    'oldest_waiting_seconds',
    'Age of the oldest application in a state.',
    { state: openStates },
  ),
  queueJobs: gauge('queue_jobs', 'Jobs in Redis; none while Redis is away.', {
    state: jobStates,
  }),
  backlogReadAt: gauge('backlog_read_timestamp_seconds', 'When records and ages were last read.'),
  auditFindings: gauge('audit_findings', 'Open findings of the audit, 1,000 of a kind at most.', {
    kind: openValues,
  }),
  probeSuccess: gauge(
    'probe_success',
    '1 if the last submission of the probe was completed, else 0.',
  ),
  probeMailSuccess: gauge(
    'probe_mail_success',
    '1 if the relay took the last e-mail of the probe, else 0.',
  ),
  probeSeconds: gauge('probe_seconds', 'Time that each successful step of the last probe took.', {
    step: ['accept', 'outcome'],
  }),
  keysWanted: gauge('keys_wanted', 'API keys the partner Secrets ask for.'),
  partnersEnding: gauge(
    'partners_keys_ending',
    'Partners whose last key ends within 14 days or ended within one.',
  ),
  secretProblems: gauge('secret_problems', 'Secrets or entries that cannot be used.', {
    problem: problemCodes,
  }),
  keyChanges: counter('key_changes', 'Keys written or removed.', {
    change: ['put', 'remove'],
  }),
  syncedAt: gauge(
    'keys_synced_timestamp_seconds',
    'When the stored keys were last those of the Secrets.',
  ),
  leader: gauge('leader', '1 while this process leads.'),
  secretsSeenAt: gauge('secrets_seen_timestamp_seconds', 'When the Secrets were last current.'),
  secretLists: counter('secret_lists', 'Complete lists of partner Secrets.', {
    result: ['complete', 'failed'],
  }),
  secretWatches: counter('secret_watches', 'Watches of partner Secrets that ended.', {
    result: ['ended', 'expired', 'failed'],
  }),
  secretEvents: counter('secret_events', 'Warning Events about partner Secrets.', {
    result: ['created', 'failed', 'held_back'],
  }),
};

export const definitions = {
  ingest: ingestMetrics,
  processor: processorMetrics,
  controller: controllerMetrics,
  console: ofProcess,
};

export const createIngestMetrics = (registry: Registry) => make(ingestMetrics, registry);
export const createProcessorMetrics = (registry: Registry) => make(processorMetrics, registry);
export const createControllerMetrics = (registry: Registry) => make(controllerMetrics, registry);
export const createConsoleMetrics = (registry: Registry) => make(ofProcess, registry);

export type IngestMetrics = MetricsOf<typeof ingestMetrics>;
export type ProcessorMetrics = MetricsOf<typeof processorMetrics>;
export type ControllerMetrics = MetricsOf<typeof controllerMetrics>;

/* Bounds the partners among label values, because each makes a series. */

export const PARTNER_LABELS = 100;
const OTHER = 'other';

export class PartnerLabels {
  readonly #named = new Set<string>();

  of(partnerId: string): string {
    if (this.#named.has(partnerId)) return partnerId;
    if (this.#named.size >= PARTNER_LABELS) return OTHER;
    this.#named.add(partnerId);
    return partnerId;
  }
}
