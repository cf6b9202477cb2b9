/**
 * One-line changes that break a promise of docs/proof.md, each with the test that must turn red.
 * `make mutants` tries them. A row: a text that stands in the file once, what replaces it, and what
 * breaks.
 */
export interface Change {
  readonly file: string;
  readonly find: string;
  readonly replace: string;
}

export interface Mutant extends Change {
  /** The promise as docs/proof.md words it. */
  readonly promise: string;
  readonly test: string;
  readonly why: string;
}

type Row = readonly [find: string, replace: string, why: string];

const promise = (words: string, mutants: readonly Omit<Mutant, 'promise'>[]): Mutant[] =>
  mutants.map((mutant) => ({ promise: words, ...mutant }));

const file = (path: string, test: string, rows: readonly Row[]): Omit<Mutant, 'promise'>[] =>
  rows.map(([find, replace, why]) => ({
    file: path,
    test: test === beside ? path.replace(/\.ts$/, '.test.ts') : test,
    find,
    replace,
    why,
  }));

/** The text with the change; undefined unless the original stands there once. */
export function mutated(text: string, { find, replace }: Change): string | undefined {
  const parts = text.split(find);
  return parts.length === 2 ? parts.join(replace) : undefined;
}

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
const idempotency = 'test/integration/idempotency.test.ts';
const lateAdoption = 'test/simulation/idempotency.test.ts';
const withdrawals = 'test/simulation/withdrawals.test.ts';
const render = 'test/chart/render.test.ts';

/** The unit test beside the file. */
const beside = '';

export const mutants: readonly Mutant[] = [
  ...promise('Nothing is lost after a 202; no account is doubled', [
    ...file('internal/platform/mongo.ts', durable, [
      ["w: 'majority', j: true", 'w: 1, j: false', 'an answered 202 is lost with its server'],
    ]),
    ...file('internal/submission/group-commit.ts', groupCommit, [
      ['durable ? STORED : NOT_DURABLE', 'STORED', 'a write without a majority is answered 202'],
      ['writeErrors.length !== batch', 'writeErrors.length > batch', 'a lost one is answered 202'],
      ["? ({ kind: 'in_doubt'", "? ({ kind: 'not_stored'", 'nobody withdraws what may be stored'],
    ]),
    ...file('internal/ingest/submit-application.ts', simulation, [
      ['      tools.withdraw(record);\n', '', 'what was answered 500 is processed'],
      ['>= FIRST_DUE_MS', '>= Infinity', 'a thawed process answers 500 for what is processed'],
    ]),
    ...file('internal/submission/withdrawals.ts', withdrawals, [
      ['first?.tried !== false', 'true', 'an outage leaves withdrawals untried for long'],
    ]),
    ...file('internal/submission/move-of.ts', beside, [
      [
        "expired': (_seen, now) => ({",
        "expired': (_seen, now) => true || ({",
        'a claim takes what another holds',
      ],
      [
        'state: from.length === 1 ? from[0]! : { $in: [...from] },',
        '',
        'what is final is worked on',
      ],
    ]),
    ...file('internal/processor/reconcile.ts', claims, [
      ['firstSeenAt === undefined', 'false', 'reconcile is faster than a withdrawal'],
    ]),
    ...file('internal/processor/mail-applicant.ts', simulation, [
      ['(await tools.ledger.confirmOut(account)) ?', 'true ?', 'a failover takes back a sent mail'],
    ]),
    ...file('internal/mail/ledger-store.ts', ledger, [
      ["1, 'mail.possible': 1 }", '1 }', 'a second mail is not counted'],
    ]),
    ...file('internal/mail/relay-answers.ts', beside, [
      ["=== 'content') return", "=== 'x') return", 'a mail that may be out goes out again as new'],
    ]),
    ...file('internal/processor/failures.ts', beside, [
      ['(0, ambiguous - 1', '(0, ambiguous - 2', 'one second mail more than promised'],
      ['>= BACKED_OFF_AT_MOST_MS', '>= Infinity', 'a request is never given up'],
    ]),
    ...file('internal/account/account.ts', 'test/integration/processor-accounts.test.ts', [
      ['key: { ein: 1 }, unique: true', 'key: { ein: 1 }', 'one business gets two accounts'],
    ]),
    ...file('internal/application/identity.ts', beside, [
      ['.toLowerCase()', '', 'the same address in capitals makes a second account'],
    ]),
    ...file('internal/application/decide.ts', beside, [
      ["fact.kind !== 'taken'", "fact.kind === 'created'", 'a request is a duplicate of itself'],
    ]),
  ]),
  ...promise('A repeated request with its idempotency key is one request', [
    ...file('internal/submission/move-of.ts', simulation, [
      [', idempotencyDigest: undefined', '', 'a key stays bound to what was withdrawn'],
      ['adopted: { $exists: false }', '', 'a withdrawal takes what was answered 202'],
    ]),
    ...file('internal/submission/idempotency.ts', idempotency, [
      ["kind: 'mismatched', first }", "kind: 'replayed', first }", 'another body is answered 202'],
    ]),
    ...file('internal/submission/idempotency.ts', beside, [
      [
        '`${owner}\\n${scopes[operation]}${key}`',
        'key',
        "a partner is told of another one's request",
      ],
    ]),
    ...file('internal/submission/group-commit.ts', lateAdoption, [
      ["adopting ? 'unknown' :", "adopting ? 'in_doubt' :", 'what may be adopted is answered 500'],
      ['if (this.#isLate(entry))', 'if (false)', 'what was answered 500 keeps the first record'],
    ]),
  ]),
  ...promise('Hostile clients cannot exhaust the memory of ingest', [
    ...file('internal/platform/fair-shares.ts', beside, [
      ['this.#giveWay(next);', '', 'bodies on their way take all memory'],
    ]),
    ...file('internal/submission/group-commit.ts', groupCommit, [
      [
        'waiting.length > maxWaiting',
        'waiting.length < 0 * maxWaiting',
        'an outage takes all memory',
      ],
    ]),
    ...file('internal/ingest/client-address.ts', beside, [
      ['SUBNET_BITS = 64', 'SUBNET_BITS = 128', 'one IPv6 client has endless addresses'],
    ]),
  ]),
  ...promise('Workers resume after an outage of Redis', [
    ...file('internal/queue/hint-outbox.ts', beside, [
      ['await otherwise?.(batch).catch(() => {});', '', 'an outage delays all work'],
    ]),
    ...file('internal/processor/line.ts', beside, [
      [
        'begins && !this.#paused && !this.#closed;',
        'begins && !this.#closed;',
        'a paused worker goes on',
      ],
    ]),
    ...file('internal/queue/consume.ts', 'test/integration/consumer.test.ts', [
      [
        'if (!this.#paused) void this.#worker.resume();',
        '',
        'workers stop after one error of Redis',
      ],
    ]),
    ...file('internal/platform/deadline.ts', beside, [
      ['Math.min(capMs,', 'Math.max(capMs,', 'the first retry comes after hours'],
    ]),
    ...file('internal/processor/outage.ts', beside, [
      ['probe.catch(() => false)', 'probe.catch(() => true)', 'work goes on without database'],
    ]),
  ]),
  ...promise("One partner's backlog costs another's application less than 5 s", [
    ...file('internal/processor/line.ts', beside, [
      [
        'this.#ofPartner.delete(partnerId);\n    if (works',
        'if (works',
        'the many of one partner make another wait',
      ],
    ]),
  ]),
  ...promise('A hold, a revoked key and a disabled partner take effect at once', [
    ...file('internal/ingest/authenticate.ts', beside, [
      ['!found.active', 'false', 'a partner that is switched off submits'],
      ['!found.known', 'false', 'any key is good'],
      ['tools.now() >= terms.notAfter', 'false', 'a key goes on after its end'],
    ]),
    ...file('internal/partner/key-cache.ts', keyCache, [
      ['version !== this.#version', 'this.#version === undefined', 'a revoked key goes on'],
      ['this.#revoked.has(hash)', 'false', 'a revoked key goes on'],
      ['?.syncedAt ===', '===', 'a restart of the controller locks all out'],
    ]),
    ...file('internal/partner/key-document.ts', keyRounds, [
      ['{ _id: KEYS, version }', '{ _id: KEYS }', 'a former leader brings an ended key back'],
    ]),
    ...file('internal/controller/plan-round.ts', keyRounds, [
      ['next.size === 0 &&', 'false &&', 'a lost namespace ends all keys'],
    ]),
    ...file('internal/processor/claim.ts', beside, [
      [' && !onHold', '', 'a hold does not stop an e-mail that is about to go out'],
    ]),
  ]),
  ...promise('Each fault raises its alert and no other', [
    ...file(ALERTS, alertsTest, [
      ['or absent(partner_ingest_leader{$(in)})', '', 'no controller at all raises no alert'],
      [
        '"relay"}[30m])) > 0',
        '"relay"}[30m])) > 1',
        'a dead relay wakes nobody at ten mails a day',
      ],
      ['rate1h{$(in)} > 14.4', 'rate1h{$(in)} > 144', 'broken promises go unnoticed for hours'],
    ]),
    ...file('internal/telemetry/definition.ts', 'test/integration/metrics.test.ts', [
      ['made.inc(series, 0);', 'void series;', 'the first failure of a kind raises no alert'],
    ]),
  ]),
  ...promise('A rollout breaks no request', [
    ...file('cmd/ingest/wire.ts', 'test/integration/ingest-drain.test.ts', [
      ['draining.abort();', '', 'a rollout resets connections in use'],
    ]),
    ...file(`${TEMPLATES}/_deployment.tpl`, render, [
      ['.drainSeconds | default 60)', '.preStopSeconds | default 0)', 'a drain is cut short'],
      ['{ path: /readyz', '{ path: /livez', 'a pod without keys gets requests'],
    ]),
    ...file('internal/platform/closers.ts', beside, [
      ['this.#steps.toReversed()', 'this.#steps', 'the stores close before what needs them'],
    ]),
  ]),
  ...promise('Random histories of crashes, orders and weeks keep every promise', [
    ...file('internal/submission/move-of.ts', beside, [
      ['...defined({ version }),', '', 'who lost its claim, or saw an older record, moves it'],
      ['erasedAt: { $exists: false }', '', 'what was erased is mailed'],
    ]),
  ]),
];
