/**
 * One-line changes that break a promise of docs/proof.md, each with the test that must turn red.
 * `make mutants` tries them. A row: the file, the test, a text that stands in the file once, what
 * replaces it, and what breaks.
 */
import { mutantsOf } from './mutant.ts';

const ALERTS = 'charts/partner-ingest/files/alerts.yaml';
const TEMPLATES = 'charts/partner-ingest/templates';

const alertsTest = 'test/chart/alerts.test.ts';
const claims = 'test/integration/processor-reconcile.test.ts';
const groupCommit = 'test/integration/group-commit.test.ts';
const durable = 'test/integration/roles.test.ts';
const ledger = 'test/integration/mail-ledger.test.ts';
const keyCache = 'test/integration/key-cache.test.ts';
const keyRounds = 'test/integration/key-rounds.test.ts';
const simulation = 'test/simulation/simulation.test.ts';
const idempotency = 'test/simulation/idempotency.test.ts';
const withdrawals = 'test/simulation/withdrawals.test.ts';
const render = 'test/chart/render.test.ts';

/** The unit test beside the file. */
const beside = '';

export const mutants = [
  ...mutantsOf('Nothing is lost after a 202; no account is doubled', [
    [
      'internal/platform/mongo.ts',
      durable,
      "w: 'majority', j: true",
      'w: 1, j: false',
      'an answered 202 is lost with its server',
    ],
    [
      'internal/platform/mongo.ts',
      groupCommit,
      'durable: false }',
      'durable: true }',
      'a write that no majority has counts as stored',
    ],
    [
      'internal/submission/group-commit.ts',
      groupCommit,
      'durable ? STORED : NOT_DURABLE',
      'STORED',
      'a write that no majority has is answered 202',
    ],
    [
      'internal/submission/group-commit.ts',
      groupCommit,
      'n + writeErrors.length !== batch.length',
      'n + writeErrors.length > batch.length',
      'a lost record is answered 202',
    ],
    [
      'internal/submission/group-commit.ts',
      groupCommit,
      "ours ? STORED : { kind: 'not_stored', reason: 'id_taken' }",
      'STORED',
      "another one's record is answered 202",
    ],
    [
      'internal/submission/group-commit.ts',
      groupCommit,
      "({ kind: 'in_doubt', reason: 'no_answer' } as const)",
      "({ kind: 'not_stored', reason: 'no_answer' } as const)",
      'nobody withdraws a record that may be stored',
    ],
    [
      'internal/platform/batcher.ts',
      beside,
      "else if ('error' in outcome) reject(outcome.error);",
      '',
      'a failure looks like a success',
    ],
    [
      'internal/ingest/submit-application.ts',
      simulation,
      '      tools.withdraw(record);\n',
      '',
      'what was answered 500 is processed',
    ],
    [
      'internal/ingest/submit-application.ts',
      simulation,
      '>= FIRST_DUE_MS',
      '>= Infinity',
      'a process that was frozen answers 500 for what is being processed',
    ],
    [
      'internal/submission/withdrawals.ts',
      withdrawals,
      'first?.tried !== false',
      'true',
      'an outage leaves withdrawals untried for long',
    ],
    [
      'internal/submission/worker-moves.ts',
      claims,
      'q: { ...q, claimedUntil: { $lte: now } }',
      'q: { ...q }',
      'a claim takes what another one holds',
    ],
    [
      'internal/submission/worker-moves.ts',
      claims,
      'state: { $in: [...openStates] }, schema',
      'schema',
      'what is finished is worked on again',
    ],
    [
      'internal/processor/reconcile.ts',
      claims,
      'record.version === 0 && record.firstSeenAt === undefined',
      'false',
      'reconcile is faster than a withdrawal',
    ],
    [
      'internal/processor/create-account.ts',
      simulation,
      '...(keepClaim ? { keepClaim } : {}),',
      '',
      'a request that is being mailed is free for another worker',
    ],
    [
      'internal/processor/mail-applicant.ts',
      simulation,
      'else if (!(await tools.ledger.confirmOut(account)))',
      'else if (false)',
      'a failover takes back that a mail is out',
    ],
    [
      'internal/mail/ledger-store.ts',
      ledger,
      "$inc: { 'mail.begun': 1, 'mail.possible': 1 }",
      "$inc: { 'mail.begun': 1 }",
      'a second mail is not counted',
    ],
    [
      'internal/mail/mailer.ts',
      beside,
      "if (progress === 'content') return",
      "if (progress === 'connecting') return",
      'a mail that may be out goes out again as new',
    ],
    [
      'internal/processor/failures.ts',
      beside,
      'soFar.ambiguous >= MAX_AMBIGUOUS',
      'soFar.ambiguous > MAX_AMBIGUOUS',
      'one second mail more than promised',
    ],
    [
      'internal/processor/failures.ts',
      beside,
      'backedOffMs >= BACKED_OFF_AT_MOST_MS',
      'backedOffMs >= Infinity',
      'a request is never given up',
    ],
    [
      'internal/account/account.ts',
      'test/integration/processor-accounts.test.ts',
      'key: { ein: 1 }, unique: true',
      'key: { ein: 1 }',
      'one business gets two accounts',
    ],
    [
      'internal/application/identity.ts',
      beside,
      '.toLowerCase()',
      '',
      'the same address in capitals makes a second account',
    ],
    [
      'internal/application/decide.ts',
      beside,
      "fact.kind !== 'taken'",
      "fact.kind === 'created'",
      'a request meets its own account as a duplicate',
    ],
  ]),
  ...mutantsOf('A repeated request with its idempotency key is one request', [
    [
      'internal/submission/withdrawals.ts',
      idempotency,
      'adopted: { $exists: false },\n',
      '',
      'a request answered 202 is withdrawn by its first try',
    ],
    [
      'internal/submission/withdrawals.ts',
      idempotency,
      ', idempotencyDigest: true }',
      ' }',
      'a key stays bound to what was withdrawn',
    ],
    [
      'internal/submission/idempotency.ts',
      idempotency,
      "first.bodySha256 !== bodySha256) return { kind: 'mismatched', first }",
      "first.bodySha256 !== bodySha256) return { kind: 'replayed', first }",
      'another body is answered 202',
    ],
    [
      'internal/submission/idempotency.ts',
      idempotency,
      '`${partnerId}\\n${key}`',
      'key',
      "a partner is told of another one's request",
    ],
    [
      'internal/submission/group-commit.ts',
      idempotency,
      "entry.adopting ? 'unknown' : 'in_doubt'",
      "'in_doubt'",
      'what may be adopted is answered 500',
    ],
  ]),
  ...mutantsOf('Hostile clients cannot exhaust the memory of ingest', [
    [
      'internal/ingest/body-memory.ts',
      beside,
      'oldest.giveWay();',
      '',
      'bodies on their way take all memory',
    ],
    [
      'internal/submission/group-commit.ts',
      groupCommit,
      'this.#waiting.length >= limits.maxWaitingDocuments',
      'limits.maxWaitingDocuments < 0',
      'an outage takes all memory',
    ],
    [
      'internal/ingest/client-address.ts',
      beside,
      'SUBNET_BITS = 64',
      'SUBNET_BITS = 128',
      'one IPv6 client has endless addresses',
    ],
  ]),
  ...mutantsOf('Workers resume after an outage of Redis', [
    [
      'internal/queue/hint-outbox.ts',
      beside,
      'if (this.#failed) await',
      'if (false) await',
      'a failover delays what the old server took by half a minute',
    ],
    [
      'internal/queue/hints-in-hand.ts',
      beside,
      'while (!this.#paused && !this.#closed',
      'while (!this.#closed',
      'a paused worker goes on through an outage',
    ],
    [
      'internal/queue/job.ts',
      beside,
      'removeOnFail: true',
      'removeOnFail: false',
      'a failed job blocks the next hint of its record',
    ],
    [
      'internal/platform/deadline.ts',
      beside,
      'Math.min(shape.capMs,',
      'Math.max(shape.capMs,',
      'the first retry comes after hours',
    ],
    [
      'internal/processor/outage.ts',
      beside,
      "'probe').catch(() => false)",
      "'probe').catch(() => true)",
      'a worker goes on while its database is away',
    ],
    [
      'internal/processor/reconcile.ts',
      claims,
      'worker.take(oldest.map(hintFor));',
      '',
      'a lost hint waits for the end of an overload',
    ],
  ]),
  ...mutantsOf("One partner's backlog costs another's application less than 5 s", [
    [
      'internal/queue/busy-partners.ts',
      beside,
      'this.#counts.get(partnerId) ?? 0',
      '0',
      'the many of one partner make another wait',
    ],
  ]),
  ...mutantsOf('A hold, a revoked key and a disabled partner take effect at once', [
    [
      'internal/ingest/authenticate.ts',
      beside,
      'if (!found.active) return',
      'if (found.partnerId === "") return',
      'a partner that is switched off submits',
    ],
    [
      'internal/ingest/authenticate.ts',
      beside,
      'if (!found.known) return',
      'if (!found.known && key === "x") return',
      'any key is good',
    ],
    [
      'internal/ingest/authenticate.ts',
      beside,
      'tools.now() >= terms.notAfter',
      'false',
      'a key goes on after its end',
    ],
    [
      'internal/partner/key-cache.ts',
      keyCache,
      'version !== undefined && version !== this.#version',
      'version !== undefined && this.#version === undefined',
      'a revoked key goes on',
    ],
    [
      'internal/partner/key-store.ts',
      keyRounds,
      '({ term: { $not: { $gt: term } } })',
      '({ term: { $gte: 0 * term } })',
      'a leader that stood still brings an ended key back',
    ],
    [
      'internal/partner/key-store.ts',
      keyRounds,
      'revokedAt: { $exists: false },\n      ...upTo',
      '...upTo',
      'a revoked key works again a day after its Secret went and came back',
    ],
    [
      'internal/controller/plan-round.ts',
      keyRounds,
      'const lost = lostLately(all, now);',
      'const lost = 0 * lostLately(all, now);',
      'most keys end one by one',
    ],
    [
      'internal/partner/key-sync.ts',
      keyCache,
      'found?.syncedAt === undefined\n',
      'found === null\n',
      'an emptied database locks all partners out',
    ],
    [
      'internal/processor/claim.ts',
      beside,
      ' && !this.#stopped()',
      '',
      'a hold does not stop an e-mail that is about to go out',
    ],
  ]),
  ...mutantsOf('Each fault raises its alert and no other', [
    [ALERTS, alertsTest, '{$(in)}) != 1', '{$(in)}) < 1', 'two leaders raise no alert'],
    [
      ALERTS,
      alertsTest,
      'or absent(partner_ingest_leader{$(in)})',
      '',
      'no controller at all raises no alert',
    ],
    [ALERTS, alertsTest, 'for: 20m', 'for: 60m', 'lost work is told an hour late'],
    [
      ALERTS,
      alertsTest,
      '{$(in),cause!="resent"}',
      '{$(in)}',
      'an operator who resends mails is woken',
    ],
    [
      ALERTS,
      alertsTest,
      'ratio_rate1h{$(in)} > 14.4',
      'ratio_rate1h{$(in)} > 144',
      'broken promises go unnoticed for hours',
    ],
    [
      'internal/telemetry/definition.ts',
      'test/integration/metrics.test.ts',
      'made.inc(series, 0);',
      'void series;',
      'the first failure of a kind raises no alert',
    ],
  ]),
  ...mutantsOf('A rollout breaks no request', [
    [
      'cmd/ingest/wire.ts',
      'test/integration/ingest-drain.test.ts',
      'draining: () => state.draining',
      'draining: () => false',
      'a rollout resets connections in use',
    ],
    [
      `${TEMPLATES}/_deployment.tpl`,
      render,
      '.drainSeconds | default 60) 5',
      '.preStopSeconds | default 0) 5',
      'a pod is killed in the middle of its drain',
    ],
    [
      `${TEMPLATES}/_deployment.tpl`,
      render,
      'readinessProbe:\n  httpGet: { path: /readyz',
      'readinessProbe:\n  httpGet: { path: /livez',
      'a pod without keys gets requests',
    ],
    [
      'internal/platform/closers.ts',
      beside,
      'this.#steps.toReversed()',
      'this.#steps',
      'the stores close before what needs them',
    ],
  ]),
  ...mutantsOf('Random histories of crashes, orders and weeks keep every promise', [
    [
      'internal/submission/worker-moves.ts',
      claims,
      'q: { state: position.state, version: position.version }',
      'q: { state: position.state }',
      'a worker that lost its claim moves the record',
    ],
    [
      'internal/submission/states.ts',
      beside,
      'return facts.account && !facts.erased',
      'return facts.account',
      'what was erased is mailed',
    ],
    [
      'internal/submission/operator-moves.ts',
      claims,
      '{ _id, state, version, erasedAt',
      '{ _id, state, erasedAt',
      'an operator undoes what another one did',
    ],
  ]),
];
