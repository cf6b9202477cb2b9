/** Mutants of what writes to stores and answers partners, found by tests with real stores, and of the simulation's world. */
import { mutantsOf } from '../mutant.ts';

const GROUP_COMMIT = 'test/integration/group-commit.test.ts';
const IDEMPOTENCY = 'test/simulation/idempotency.test.ts';
const DURABLE = 'test/integration/durable-writes.test.ts';
const CLAIMS = 'test/integration/processor-reconcile.test.ts';
const ERASE = 'test/integration/cli-erase.test.ts';
const EXPIRY = 'test/integration/expiry.test.ts';
const RACES = 'test/integration/operator-races.test.ts';
const CHANGE = 'test/integration/cli-change.test.ts';
const CONTROLLER = 'test/integration/controller.test.ts';
const KEY_ROUNDS = 'test/integration/key-rounds.test.ts';
const KEY_CACHE = 'test/integration/key-cache.test.ts';
const SIMULATION = 'test/simulation/simulation.test.ts';
const LEDGER = 'test/integration/mail-ledger.test.ts';

export const stores = [
  ...mutantsOf('internal/platform/mongo.ts', DURABLE, [
    ["w: 'majority', j: true", 'w: 1, j: false', 'an answered 202 is lost with its server'],
    ["w: 'majority', journal: true", 'w: 1, journal: true', 'what an operator did is lost with its server'],
  ]),
  ...mutantsOf('internal/platform/mongo.ts', GROUP_COMMIT, [
    ['durable: false }', 'durable: true }', 'a write that no majority has counts as stored'],
  ]),
  ...mutantsOf('internal/platform/mongo.ts', 'test/integration/processor-accounts.test.ts', [
    [
      'tries < CONFLICT_TRIES && namesLockConflict(error.code, error.errmsg)',
      'false',
      'a race for a key costs an attempt and 25 s',
    ],
  ]),
  ...mutantsOf('internal/processor/follow-holds.ts', 'test/integration/partner-holds.test.ts', [
    ['if (!this.#sweeping) void this.#sweep(loaded);', '', 'released work is never done'],
  ]),
  ...mutantsOf('internal/submission/group-commit.ts', GROUP_COMMIT, [
    ["durable ? 'stored' : 'in_doubt'", "'stored'", 'a write that no majority has is answered 202'],
    [
      'n + writeErrors.length !== batch.length',
      'n + writeErrors.length > batch.length',
      'a lost record is answered 202',
    ],
    ['entry.deadline - now < ', '-1 > ', 'a record is sent with no time left for its answer'],
    ["other.state !== 'withdrawn' &&", '', 'a withdrawn record is answered 202'],
    ["entry.settle(ours ? 'stored' : 'not_stored'", "entry.settle('stored'", "another one's record is answered 202"],
    [
      "(['in_doubt', 'no_answer'] as const)",
      "(['not_stored', 'no_answer'] as const)",
      'nobody withdraws a record that may be stored',
    ],
    [
      'this.#waiting.length >= limits.maxWaitingDocuments',
      'limits.maxWaitingDocuments < 0',
      'an outage takes all memory',
    ],
  ]),
  ...mutantsOf('internal/ingest/outage-log.ts', 'internal/ingest/outage-log.test.ts', [
    [' && now >= this.#nextAt', '', 'a database that takes every second write fills the log'],
    ['    this.#since = undefined;\n', '', 'the log says of each request that MongoDB is back'],
  ]),
  ...mutantsOf('internal/submission/withdrawals.ts', IDEMPOTENCY, [
    ['adopted: { $exists: false }, ', '', 'a request answered 202 is withdrawn by its first try'],
    [', idempotencyDigest: true }', ' }', 'a key stays bound to what was withdrawn'],
  ]),
  ...mutantsOf('internal/submission/withdrawals.ts', 'test/simulation/withdrawals.test.ts', [
    ['first?.tried !== false', 'true', 'an outage leaves withdrawals untried for long'],
    ['Math.ceil(this.#batch / 4)', 'this.#batch', 'a slow database never settles a withdrawal'],
  ]),
  ...mutantsOf('internal/submission/idempotency.ts', IDEMPOTENCY, [
    [
      "first.bodySha256 !== bodySha256) return { first, result: 'mismatched' }",
      "first.bodySha256 !== bodySha256) return { first, result: 'replayed' }",
      'another body is answered 202',
    ],
    [
      'q: { idempotencyDigest: digest, bodySha256 }',
      'q: { idempotencyDigest: digest }',
      'another body adopts the first record',
    ],
    ['`${partnerId}\\n${key}`', 'key', "a partner is told of another one's request"],
  ]),
  ...mutantsOf('internal/submission/group-commit.ts', IDEMPOTENCY, [
    ['{ again: true })', '{ again: false })', 'a key that was freed meanwhile is answered 500'],
    ["entry.adopting ? 'unknown' : 'in_doubt'", "'in_doubt'", 'what may be adopted is answered 500'],
  ]),
  ...mutantsOf('internal/submission/withdrawals.ts', 'test/integration/withdrawals.test.ts', [
    ['if (!this.#pending.delete(record._id)) return;', 'return;', 'a stall tries the oldest again and again'],
  ]),
  ...mutantsOf('internal/submission/indexes.ts', DURABLE, [
    [
      "name: 'rate_limited_expiry', key: { expiresAt: 1 }, expireAfterSeconds: 0",
      "name: 'rate_limited_expiry', key: { expiresAt: 1 }, expireAfterSeconds: 315_360_000",
      'addresses are kept ten years longer',
    ],
    [
      'partialFilterExpression: { expiresAt: { $exists: true } },\n    expireAfterSeconds: 0',
      'partialFilterExpression: { expiresAt: { $exists: true } },\n    expireAfterSeconds: 315_360_000',
      'personal data is kept ten years longer',
    ],
  ]),
  ...mutantsOf('internal/submission/operator-moves.ts', CLAIMS, [
    ['erasedAt: now, version: seen.version + 1', 'erasedAt: now', 'an operator writes to what another one erased'],
    ['{ _id, state, version, erasedAt', '{ _id, state, erasedAt', 'an operator undoes what another one did'],
    [
      '        version,\n        ...(isOpen(to)',
      '        ...(isOpen(to)',
      'a late worker writes into the new round of work',
    ],
  ]),
  ...mutantsOf('internal/submission/operator-moves.ts', 'test/integration/cli-change.test.ts', [
    [
      ', mailsSince: version }',
      ' }',
      'what may have been mailed three times is never mailed again, whatever an operator does',
    ],
  ]),
  ...mutantsOf('internal/mail/mailer.ts', 'test/integration/mail-mailer.test.ts', [
    ['lapsed = !mayGoOn()', 'lapsed = false', 'a process that wakes up after its claim is lost mails once more'],
    ['envelope: { from, to: [to] }', 'envelope: { from, to: [recipient] }', 'an address names a second recipient'],
    ["responseCode === 421 ? 'rcpt' : undefined", 'undefined', 'a relay that is full counts as one that was cut off'],
    ['pipe: (socket', 'readableDidRead: false, pipe: (socket', 'a 421 in an open session is lost'],
  ]),
  ...mutantsOf('internal/processor/notify-applicant.ts', 'test/integration/processor-notify.test.ts', [
    ['    await claim.confirm();\n', '', 'two workers mail the same applicant'],
  ]),
  ...mutantsOf('internal/submission/worker-moves.ts', CLAIMS, [
    ['{ heldUntil: { $lte: now } }', '{}', 'a claim takes what another one holds'],
    ['          state: { $in: [...openStates] },\n', '', 'what is finished is worked on again'],
    [
      'q: { state: position.state, version: position.version }',
      'q: { state: position.state }',
      'a worker that lost its claim moves the record',
    ],
  ]),
  ...mutantsOf('internal/submission/due-records.ts', CLAIMS, [
    [
      '$lte: upTo }, schema: { $lte: RECORD_SCHEMA } }',
      '$lte: upTo } }',
      'an old version works on a record of a newer one',
    ],
  ]),
  ...mutantsOf('internal/submission/due-records.ts', 'test/integration/due-records.test.ts', [
    ['(now - progress.upTo) * DUE_SHARE', 'Infinity', 'a search reads the whole backlog'],
    ['dueAt: { $gt: ANY_TIME, $lte: upTo }', 'dueAt: { $lte: upTo }', 'FerretDB does not take the index'],
  ]),
  ...mutantsOf('internal/submission/move-update.ts', EXPIRY, [
    ['...(bodyDays === undefined ? { bodyUntil: true } : {}),', '', 'a request that is due again loses its body'],
  ]),
  ...mutantsOf('internal/submission/move-update.ts', CLAIMS, [
    ['...(isOpen(to) ? {} : { dueAt: true }),', '', 'what is finished stays due'],
  ]),
  ...mutantsOf('internal/submission/operator-moves.ts', ERASE, [
    ['userAgent: true, ', '', 'what a caller said of itself outlives its erasure'],
    ['applicant: true }', '}', 'an erased applicant is still found'],
    [
      '{ $unset: { body: true, bodyUntil: true } });',
      '{ $unset: { body: true, bodyUntil: true, bodySha256: true } });',
      "another applicant's repeat is answered 422",
    ],
  ]),
  ...mutantsOf('internal/cli/erase.ts', ERASE, [
    [
      'if (bodyOnly && (isOpen(record.state)',
      'if (bodyOnly && (!isOpen(record.state)',
      "another applicant's request loses its body",
    ],
    ["|| record.state === 'dead_lettered'", '', 'a dead letter of another applicant is retried without its body'],
    ['|| !isEmailAddress(own) ? {}', '? {}', 'all requests with the same faulty address are erased with one'],
    ['if (values.yes && tally.left)', 'if (false)', 'what an erasure left can no longer be erased by the request'],
  ]),
  ...mutantsOf('internal/submission/body-expiry.ts', EXPIRY, [
    ['$lte: clock.now()', '$lte: new Date(0)', 'a body stays as long as its record'],
  ]),
  ...mutantsOf('internal/cli/many.ts', CHANGE, [
    ['if (values.yes && planned.length > 0)', 'if (planned.length > 0)', 'a dry run changes requests'],
  ]),
  ...mutantsOf('internal/account/account-corrections.ts', CHANGE, [
    ['...(used ? {} : { $unset: { activation: true } }),', '$unset: { activation: true },', 'a used link is forgotten'],
  ]),
  ...mutantsOf('internal/cli/account.ts', CHANGE, [
    ['if (!canMailAgain(record)) throw', 'if (false) throw', 'an address is corrected that nobody mails'],
  ]),
  ...mutantsOf('internal/submission/operator-moves.ts', CHANGE, [
    ['reasons: [discardedReason]', 'reasons: []', 'a partner does not learn why its request was ended'],
  ]),
  ...mutantsOf('internal/audit/trail.ts', RACES, [
    ["done ? 'done' : 'not_done'", "'done'", 'a lost race is noted as done'],
    ['unique: true, sparse: true', 'sparse: true', 'two operators at once fork the trail'],
  ]),
  ...mutantsOf('internal/account/account-corrections.ts', RACES, [
    ['    mailVersion: account.mailVersion ?? { $exists: false },\n', '', 'two operators mail twice'],
    [
      '$inc: { mailVersion: 1, linkVersion: 1 }',
      '$inc: { mailVersion: 1 }',
      'a link that went to a wrong address still works',
    ],
  ]),
  ...mutantsOf('internal/account/account.ts', 'test/integration/processor-accounts.test.ts', [
    ['key: { ein: 1 }, unique: true', 'key: { ein: 1 }', 'one business gets two accounts'],
  ]),
  ...mutantsOf('internal/mail/ledger-store.ts', 'test/integration/links.test.ts', [
    ['...LINK_NOT_USED, [path]', '[path]', 'a used link works again'],
  ]),
  ...mutantsOf('internal/mail/ledger-store.ts', LEDGER, [
    ["$inc: { 'mail.begun': 1, 'mail.possible': 1 }", "$inc: { 'mail.begun': 1 }", 'a second mail is not counted'],
    ["{ ...q, 'mail.begun': 1 }", 'q', 'a mail passes for the only one of its account beside another'],
  ]),
  ...mutantsOf('internal/processor/notify-applicant.ts', SIMULATION, [
    [
      'else if (!(await tools.ledger.confirmOut(account)))',
      'else if (false)',
      'a failover takes back that a mail is out',
    ],
  ]),
  ...mutantsOf('internal/partner/key-store.ts', KEY_CACHE, [
    [
      'keys: all.filter((key) => isClaimed(key) && ',
      'keys: all.filter((key) => ',
      'whoever writes a document has a key',
    ],
  ]),
  ...mutantsOf('internal/partner/key-store.ts', 'test/integration/cli-usage.test.ts', [
    [
      "status === 'removed' || revokedAt !== undefined",
      "status === 'removed'",
      'a leaked key goes on until its Secret is gone',
    ],
  ]),
  ...mutantsOf('internal/partner/key-cache.ts', KEY_CACHE, [
    ['if (!all.synced) return;', '', 'an emptied database locks all partners out'],
    ['if (isNew && this.#loaded) await this.refresh();', '', 'a revoked key goes on for 15 s'],
  ]),
  ...mutantsOf('internal/partner/key-store.ts', CONTROLLER, [
    [
      "'source.owner': owner, term: { $lte: term }",
      "'source.owner': owner",
      'a controller that woke up brings a revoked key back',
    ],
  ]),
  ...mutantsOf('internal/controller/reconcile-partner-keys.ts', KEY_ROUNDS, [
    ["wanted.status === 'inactive' || !unsure.has(wanted.partnerId)", 'true', 'an unread Secret switches a new key on'],
    [' && list.provesGone(key.source)', '', 'an API server that does not answer locks partners out'],
    ['stored.partnerId === wanted.partnerId && ', '', "an unread Secret's key goes to another partner"],
  ]),
  ...mutantsOf('internal/controller/removal-brake.ts', KEY_ROUNDS, [
    ['removals > REMOVED_FREELY && removals * 2 > keys', 'false', 'an emptied source locks all partners out'],
  ]),
  ...mutantsOf('internal/processor/reconcile.ts', CLAIMS, [
    ['record.version === 0 && record.firstSeenAt === undefined', 'false', 'reconcile is faster than a withdrawal'],
    ['record.version > 0 || !withdrawalsMayBeLate', 'true', 'after a stall reconcile is faster than the withdrawals'],
    ['fresh.length + handed.length === due.length', 'true', 'reconcile finds what waits without a pause'],
    ['if (worker.paused) return false;', '', 'hints pile up during an outage'],
    ['worker.take(oldest.map(hintFor));', '', 'a lost hint waits for the end of an overload'],
  ]),
  ...mutantsOf('internal/processor/process-submission.ts', SIMULATION, [
    ['...(goesOn ? { keepClaim: true } : {}),', '', 'a request that is being mailed is free for another worker'],
  ]),
  ...mutantsOf('internal/processor/limits.ts', SIMULATION, [
    [
      'mailerLimits.beforeContentMs + mailerLimits.afterContentMs + 10_000',
      '10_000',
      'a processor that is replaced leaves its mails behind',
    ],
  ]),
  ...mutantsOf('internal/ingest/submit-application.ts', SIMULATION, [
    ['>= FIRST_DUE_MS', '>= Infinity', 'a process that was frozen answers 500 for what is being processed'],
    ["if (result === 'in_doubt') tools.withdraw(record);", '', 'what was answered 500 is processed'],
  ]),
  ...mutantsOf('internal/ingest/limit-policy.ts', 'test/integration/ingest-limiter.test.ts', [
    ['Math.ceil(ttlMs / 1_000)', 'Math.ceil(ttlMs / 2_000)', 'a partner that waits as told is refused again'],
    ['if (current <= max) return;', 'if (current > 0) return;', "a partner's own bound holds back nothing"],
  ]),
  ...mutantsOf('internal/submission/over-limit.ts', 'test/integration/ingest-limiter.test.ts', [
    ['$inc: { count }', '$set: { count }', 'a flood looks like a few requests'],
  ]),
  ...mutantsOf('internal/submission/status-reader.ts', 'test/integration/status.test.ts', [
    ['{ _id: requestId, partnerId }', '{ _id: requestId }', "a partner reads of another one's request"],
  ]),
  ...mutantsOf('internal/telemetry/definition.ts', 'test/integration/metrics.test.ts', [
    ['made.inc(series, 0);', 'void series;', 'the first failure of a kind raises no alert'],
  ]),
  ...mutantsOf('cmd/ingest/wire.ts', 'test/integration/ingest-drain.test.ts', [
    ['draining: () => state.draining', 'draining: () => false', 'a rollout resets connections in use'],
  ]),
  ...mutantsOf('cmd/cli/wire.ts', CHANGE, [
    [
      'by = said ?? (readTerminalEnvironment(environment).user || account)',
      'by = account',
      'the trail names the wrong person',
    ],
  ]),
];
