/** Mutants of what decides without a store: applications, keys, failures, states, e-mails. */
import { mutantsOf } from '../mutant.ts';

const identity = 'internal/application/identity';
const decide = 'internal/application/decide';
const apiKey = 'internal/partner/api-key';
const keySecret = 'internal/partner/key-secret';
const failures = 'internal/processor/failures';

/** A file of a room and the unit test beside it. */
const beside = (path: string, changes: Parameters<typeof mutantsOf>[2]) =>
  mutantsOf(`${path}.ts`, `${path}.test.ts`, changes);

export const rules = [
  ...mutantsOf('internal/partner/key-terms.ts', `${keySecret}.test.ts`, [
    ['Math.min(one[field]', 'Math.max(one[field]', 'a second Secret widens the bound of a partner'],
  ]),
  ...mutantsOf(`${keySecret}.ts`, `${keySecret}.test.ts`, [
    ['homes.get(partnerId) === namespace;', 'true;', 'who may write in one namespace switches any partner off'],
    ['namespace } of secrets.toSorted(byAge)', 'namespace } of secrets', 'a new Secret takes a partner over'],
  ]),
  ...mutantsOf('internal/partner/published.ts', `${keySecret}.test.ts`, [
    ['publishedHashes.has(keyHash)', 'false', 'everybody has a key of every installation'],
  ]),
  ...beside('internal/audit/chain', [
    ['previous?.sha256 !== digestOf(before)', 'false', 'a changed entry of the trail passes'],
    ['previous.expiresAt > now', 'false', 'entries are taken out of the trail unnoticed'],
  ]),
  ...mutantsOf('internal/settings/relation-faults.ts', 'internal/settings/settings.test.ts', [
    ['mongoLink(mongodb).exposed', 'false', 'applications travel in clear'],
    ['redisExposed(redis)', 'false', 'hints travel in clear'],
  ]),
  ...mutantsOf('internal/platform/store-link.ts', 'internal/settings/settings.test.ts', [
    ['rejectUnauthorized === false || ', '', 'a server with any certificate is believed'],
    [
      'hosts.every(({ host, socketPath })',
      'hosts.some(({ host, socketPath })',
      'one host on loopback hides the others',
    ],
  ]),
  ...beside('internal/ingest/authenticate', [
    ['tools.now() >= terms.notAfter', 'false', 'a key goes on after its end'],
    ['!found.admits(address)', 'false', 'a leaked key works from everywhere'],
  ]),
  ...beside(identity, [
    ['.toLowerCase()', '', 'the same address in capitals makes a second account'],
    ['email.trim()', 'email', 'a blank makes a second account'],
  ]),
  ...beside(decide, [
    ["duplicateReason('ein', fact.einBy,", "duplicateReason('ein', 'req_0',", 'support looks at another account'],
    ["!elsewhere.includes('ein')", 'true', 'a partner learns that another partner has an EIN'],
    ["fact.kind !== 'taken'", "fact.kind === 'created'", 'a request meets its own account as a duplicate'],
  ]),
  ...beside('internal/application/email-address', [
    ['EMAIL_MAX = 254', 'EMAIL_MAX = 2_540', 'an address that no mail server takes gets an account'],
  ]),
  ...beside('internal/application/parse-application', [
    ['{ fatal: true }', '{ fatal: false }', 'broken bytes are taken for an application'],
  ]),
  ...beside(apiKey, [
    ['KEY_MIN_LENGTH = 20', 'KEY_MIN_LENGTH = 2', 'keys that can be guessed are accepted'],
    ["hash('sha256', key", "hash('sha256', key.toLowerCase()", 'keys that differ in case are one key'],
  ]),
  ...beside(keySecret, [
    [
      "inactive.has(secret.partnerId) ? 'inactive'",
      "secret.status === 'inactive' ? 'inactive'",
      'a partner that is switched off submits with its other Secret',
    ],
    [
      "status === undefined || status === 'active'",
      "status !== 'inactive'",
      'a misspelt status leaves a partner active',
    ],
    ['age !== 0 ? age :', 'age !== 0 ? -age :', 'a newer Secret takes a key from its owner'],
    ['name.length < KEY_MIN_LENGTH ?', 'name.length > 0 ?', 'a key that stands in place of a name is quoted'],
  ]),
  ...beside('internal/partner/holds', [
    ['receivedAt >= hold.since', 'receivedAt > hold.since', 'the first request of a leaked key is worked on'],
    ['receivedAt < hold.until', 'receivedAt >= hold.since!', 'what comes after a discard is discarded'],
  ]),
  ...beside('internal/queue/shares', [
    ['this.#counts.get(partnerId) ?? 0', '0', 'the many of one partner make another wait'],
  ]),
  ...beside('internal/processor/claim', [
    [' && !this.#stopped()', '', 'a hold does not stop an e-mail that is about to go out'],
  ]),
  ...beside(failures, [
    ['pauseWorker: true }', 'pauseWorker: false }', 'an outage is met again at full speed'],
    ['counts.ambiguous >= MAX_AMBIGUOUS', 'counts.ambiguous > MAX_AMBIGUOUS', 'one second mail more than promised'],
    ['counts.attempts >= MAX_ATTEMPTS', 'counts.attempts > MAX_ATTEMPTS', 'a dead letter comes hours late'],
    ["ours: 'ours', busy", "ours: 'permanent', busy", 'a refused sender ends every application'],
    ['waitedMs >= PARKED_AT_MOST_MS', 'waitedMs >= Infinity', 'a request is parked for ever'],
    [
      "handOver.connected && relayAnswers ? 'transient'",
      "handOver.connected ? 'transient'",
      'an outage uses attempts up',
    ],
    ['error instanceof DeadlineError', 'error instanceof RangeError', 'a database that hangs uses attempts up'],
  ]),
  ...beside('internal/mail/relay-answers', [
    ["'recipient' : 'ours';", "'recipient' : 'recipient';", 'a policy of the relay ends applications'],
    ['PERMANENT_FROM = 500', 'PERMANENT_FROM = 400', 'a busy mail server counts as a refused sender'],
  ]),
  ...beside('internal/processor/sender-breaker', [
    ['this.#answers.delete(accountId);', 'accountId += Math.random();', 'one bad mail stops all others'],
  ]),
  ...beside('internal/processor/outage', [
    ["'probe').catch(() => false)", "'probe').catch(() => true)", 'a worker goes on while its database is away'],
    ['if (this.#waiting !== undefined) return;', '', 'an outage is probed many times at once'],
  ]),
  ...beside('internal/platform/deadline', [
    ['Math.min(shape.capMs,', 'Math.max(shape.capMs,', 'the first retry comes after hours'],
    ['failures = 1; !options.signal.aborted;', 'failures = 1; ;', 'a drain never ends'],
  ]),
  ...beside('internal/platform/batcher', [
    ["else if ('error' in outcome) reject(outcome.error);", '', 'a failure looks like a success'],
    ['for (const { reject } of calls) reject(error);', '', 'a call waits for ever'],
  ]),
  ...beside('internal/platform/closers', [
    ['this.#steps.toReversed()', 'this.#steps', 'the stores close before what needs them'],
    [
      'this.#log.warn({ err: error, step: step.name }',
      'throw error; this.#log.warn({ err: error }',
      'the rest stays open',
    ],
  ]),
  ...beside('internal/platform/log', [
    ['stack.slice(start + message.length)', 'stack', 'a message that quotes data is logged'],
  ]),
  ...mutantsOf('internal/platform/config-rules.ts', 'internal/settings/settings.test.ts', [
    ['value >= min && value <= max', 'value <= max', 'a limit of nothing is taken'],
  ]),
  ...beside('internal/settings/settings', [
    ['usedBy: every,\n    secret: true,', 'usedBy: every,', 'the password of the database is logged'],
  ]),
  ...beside('internal/mail/ledger', [
    [
      "result === undefined || result === 'accepted'",
      "result === 'accepted'",
      'a mail of a dead process is not counted',
    ],
    ['handOver.claim > counted', 'handOver.claim >= counted', 'a second mail is counted twice'],
    ["'ambiguous' ? 'ambiguous_data' :", "'ambiguous' ? 'resent' :", 'a second mail by fault looks wanted'],
  ]),
  ...beside('internal/mail/domain-slots', [
    ['if (state.freed === freed) ', '', 'a domain that many mails go to gets four in half a minute'],
  ]),
  ...beside('internal/mail/message', [
    ['\\p{Cc}\\p{Zl}', '\\p{Zl}', 'a name adds lines to the mail'],
    ['LINK.test(seen) || ', '', 'a name brings a link into the mail'],
    ["replaceAll(HOST_DOT, ' ')", "replaceAll(HOST_DOT, '.')", 'a mail program makes a link of a name'],
    ['login-instructions${again}', 'login-instructions', 'a mail that was asked for is dropped as a repeat'],
  ]),
  ...beside('internal/mail/activation', [
    ['key.id === madeWith.keyId', 'false', 'a rotation voids links that are out'],
  ]),
  ...beside('internal/processor/sending', [
    ['handOver.busy === true', 'false', 'a relay that greets with 421 is asked as fast as before'],
    ['!this.#pace.isFree(now) || ', '', 'a mail at once does not wait for the pace'],
  ]),
  ...beside('internal/mail/delivery-status', [
    ['verdicts.find(({ action }) => action === FAILED) ?? ', '', 'a failure behind a delay is missed'],
    [
      'if (given.length > 0) return',
      'if (ourMessageId(given) !== undefined) return',
      'a bounce of an answer of ours ends the request',
    ],
    [
      'if (DELAY.test(words) && !GIVEN_UP.test(words))',
      'if (DELAY.test(words) && false)',
      'a mail that is only late counts as failed',
    ],
    ["if (failed === '' && !toNobody", 'if (false && !toNobody', 'an answer while on leave ends the request'],
  ]),
  ...beside('internal/mail/mailer', [
    [
      "if (progress === 'content') return { result: 'ambiguous', cause };",
      '',
      'a mail that may be out goes out again as new',
    ],
    ['responseCode >= 400', 'responseCode >= 500', 'a busy relay counts as away'],
  ]),
  ...beside('internal/submission/states', [
    [
      "to: 'withdrawn', when: 'never claimed or adopted' },\n  { event: 'withdraw', from: 'malformed'",
      "to: 'withdrawn' },\n  { event: 'withdraw', from: 'malformed'",
      'a record is taken from its worker',
    ],
    ['return facts.account && !facts.erased', 'return facts.account', 'what was erased is mailed'],
  ]),
  ...beside('internal/queue/job', [
    ['removeOnFail: true', 'removeOnFail: false', 'a failed job blocks the next hint of its record'],
    ['Math.ceil(hints.length / SPREAD)', 'hints.length', 'one processor gets a whole burst'],
  ]),
  ...beside('internal/queue/hint-outbox', [
    ['if (this.#failed) await', 'if (false) await', 'a failover delays what the old server took by half a minute'],
    ['this.#failed = false;\n    const since', 'const since', 'each hint after an outage sends all of them again'],
  ]),
  ...beside('internal/queue/hints-in-hand', [
    ['this.count + 1 >= this.#slots', 'false', 'mails at once take every slot, and more than there are'],
    ['while (!this.#paused && !this.#closed', 'while (!this.#closed', 'a paused worker goes on through an outage'],
    ['this.#paused || this.#closed ? 0', 'this.#closed ? 0', 'reconcile fills the hands of a paused worker'],
  ]),
  ...beside('internal/cli/person', [
    ['account.released ?? account', 'account', 'a released account is not erased'],
    ['(person.email === undefined ? valid.ein : valid.email)', 'false', 'another applicant is erased'],
  ]),
  ...beside('internal/application/mentions', [
    ['!isDigit(text[found.index - 1]) && ', '', 'a longer number is taken for the EIN'],
    ["'.+_-'.includes(text[before]!)", 'false', 'an address that only ends alike is taken for the person'],
    ['swap16()', 'subarray()', 'a body in big-endian UTF-16 keeps the person'],
  ]),
  ...beside('internal/cli/check-records', [
    [
      'if (kept && expiresAt !== undefined)',
      'if (!kept && expiresAt !== undefined)',
      'audit misses records that will be lost',
    ],
    ['return httpStatus === 500;', 'return true;', 'audit misses a 202 that was withdrawn'],
  ]),
  ...beside('internal/ingest/authenticate', [
    ['if (!found.active) return', 'if (found.partnerId === "") return', 'a partner that is switched off submits'],
    ['if (!found.known) return', 'if (!found.known && key === "x") return', 'any key is good'],
  ]),
  ...beside('internal/ingest/client-address', [
    ['SUBNET_BITS = 64', 'SUBNET_BITS = 128', 'one IPv6 client has endless addresses'],
    ['isIP(bare) === 0', 'isIP(bare) === 9', 'a client chooses any text as its address'],
  ]),
  ...beside('internal/ingest/body-room', [['oldest.giveWay();', '', 'bodies on their way take all memory']]),
];
