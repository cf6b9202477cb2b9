/** Gives the audit a clean world, and worlds with one violation each. */
import { describe, expect, test } from '@jest/globals';
import { createHash, generateKeyPairSync } from 'node:crypto';
import { Binary } from 'mongodb';
import type { Account, MailHandOver, MailLedger } from '../../internal/account/account.ts';
import { mayHaveArrived } from '../../internal/account/mail-ledger.ts';
import { systemClock } from '../../internal/platform/process/clock.ts';
import { ReceiptSigner, readKeySet } from '../../internal/receipt/receipt.ts';
import { isOpen, type State } from '../../internal/submission/states.ts';
import type { SubmissionRecord } from '../../internal/submission/submission.ts';
import { audit, type AuditInput } from './audit.ts';
import { CLIENT_GAVE_UP, FAULT_USER_AGENT, userAgentOf, type LedgerEntry } from './ledger.ts';

const AT = new Date('2026-01-01T00:00:00Z');
const at = (seconds: number): number => AT.getTime() + seconds * 1_000;
const ADA = { email: 'ada@example.com', ein: '100000001' };

type Changes<T> = { -readonly [Key in keyof T]?: T[Key] | undefined };

const answers: Partial<Record<State, number>> = { malformed: 400, refused: 401, withdrawn: 500 };

const bodyOf = (n: number): Buffer => Buffer.from(`{"n":${n}}`);

function record(n: number, state: State, changes: Changes<SubmissionRecord> = {}) {
  const body = bodyOf(n);
  const made: Changes<SubmissionRecord> = {
    _id: `req_${n}`,
    receivedAt: AT,
    remoteIp: '127.0.0.1',
    userAgent: userAgentOf(n),
    body: new Binary(body),
    bodyBytes: body.length,
    bodySha256: createHash('sha256').update(body).digest('hex'),
    httpStatus: answers[state] ?? 202,
    schema: 1,
    state,
    stateAt: AT,
    version: 1,
    attempts: 0,
    history: [{ state, at: AT, attempt: 0 }],
    ...(isOpen(state) ? { dueAt: AT } : state === 'dead_lettered' ? {} : { expiresAt: AT }),
    ...changes,
  };
  return made as SubmissionRecord;
}

const duplicate = (n: number, of: string): SubmissionRecord =>
  record(n, 'rejected', {
    reasons: [
      { field: 'email', code: 'duplicate_email', message: 'exists', duplicateOf: of },
      { field: 'ein', code: 'duplicate_ein', message: 'exists', duplicateOf: of },
    ],
  });

/** A request and its answer with this status; without a status the connection broke. */
function sent(n: number, status?: number, changes: Partial<LedgerEntry> = {}): LedgerEntry {
  const id = `req_${n}`;
  const requestId = status === 202 || status === 400 ? { requestId: id } : {};
  return {
    n,
    phase: 'test',
    kind: status === 400 ? 'malformed' : 'valid',
    ...(status === 400 ? {} : { applicant: ADA }),
    instance: 'ingest-1.1',
    sentAt: at(0),
    body: bodyOf(n),
    ...(status === undefined
      ? { failure: { at: at(0), error: 'ECONNRESET' } }
      : { answer: { at: at(0), status, xRequestId: id, ...requestId } }),
    ...changes,
  };
}

/** Hand-overs with times in seconds after the start; one without a result never ended. */
function mailLedger(...handOvers: [MailHandOver['result'], number, number?][]): MailLedger {
  const entries = handOvers.map(([result, from, to = from], index) => ({
    claim: index + 1,
    attempt: 1,
    host: 'processor-1',
    startedAt: new Date(at(from)),
    ...(result === undefined ? {} : { result, endedAt: new Date(at(to)) }),
  }));
  return {
    begun: entries.length,
    possible: entries.filter(mayHaveArrived).length,
    handOvers: Object.fromEntries(entries.map((entry) => [entry.claim, entry])),
  };
}

const account = (n: number, changes: Partial<Account> = {}): Account => ({
  _id: `acc_${n}`,
  email: ADA.email,
  emailNormalized: ADA.email,
  ein: ADA.ein,
  businessName: 'Ada Ltd',
  requestId: `req_${n}`,
  partnerId: 'demo',
  createdAt: AT,
  notifiedAt: AT,
  mail: mailLedger(['accepted', 0, 0.1]),
  ...changes,
});

const mail = (seconds = 0) => ({
  to: ADA.email,
  at: at(seconds),
  messageId: '<acc_1@example.com>',
});

const NO_FACTS: AuditInput['facts'] = {
  killedIngest: new Map(),
  processorStops: [],
  databaseBack: [],
  mailStops: [],
  ambiguous: new Map(),
  refused: new Set(),
  reopened: new Set(),
};

/** One request of each kind, all treated as promised. */
const clean: AuditInput = {
  ledger: [
    sent(1, 202),
    sent(2, 202),
    sent(3, 400),
    sent(4, 500),
    sent(5, 500),
    sent(6),
    sent(7, undefined, { kind: 'cut' }),
  ],
  records: [
    record(1, 'completed', { accountId: 'acc_1' }),
    duplicate(2, 'req_1'),
    record(3, 'malformed'),
    record(4, 'withdrawn'),
    duplicate(6, 'req_1'),
  ],
  accounts: [account(1)],
  mails: [mail()],
  facts: NO_FACTS,
  allows: new Set(['processed_after_500', 'second_mail', 'undeliverable', 'dead_letter']),
};

/** The clean world with these records in place of those of the same id. */
const withRecords = (...changed: readonly SubmissionRecord[]): AuditInput => ({
  ...clean,
  records: [
    ...clean.records.filter(({ _id }) => changed.every((one) => one._id !== _id)),
    ...changed,
  ],
});
const withRequests = (...changed: readonly LedgerEntry[]): AuditInput => ({
  ...clean,
  ledger: [...clean.ledger.filter(({ n }) => changed.every((one) => one.n !== n)), ...changed],
});
const withAccounts = (...accounts: readonly Account[]): AuditInput => ({ ...clean, accounts });
const withLedger = (ledger: MailLedger): AuditInput => withAccounts(account(1, { mail: ledger }));
const lacking = (id: string): AuditInput => ({
  ...clean,
  records: clean.records.filter(({ _id }) => _id !== id),
});
const withFacts = (input: AuditInput, facts: Partial<AuditInput['facts']>): AuditInput => ({
  ...input,
  facts: { ...NO_FACTS, ...facts },
});

const kinds = (input: AuditInput): string =>
  [...new Set(audit(input).violations.map(({ kind }) => kind))].toSorted().join();

test('a clean world has no violation', () => {
  const { total, violations, windows } = audit(clean);
  expect({ violations, windows }).toEqual({ violations: [], windows: [] });
  const counts = { requests: 7, accepted: 2, malformed: 1, failed: 2, noAnswer: 1 };
  expect(total).toMatchObject({ ...counts, withdrawnLanded: 1, withdrawnAbsent: 0, lost: 0 });
});

describe('what the partner has besides', () => {
  const keyOf = () => {
    const { privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
    const issuer = 'https://api.example.com/api/v1';
    return readKeySet(JSON.stringify({ issuer, keys: [privateKey.export({ format: 'jwk' })] }));
  };
  const receiptKeys = keyOf();
  const receiptOf = (n: number, keys = receiptKeys, body = bodyOf(n)): string =>
    new ReceiptSigner({ keys, clock: systemClock }).sign({
      _id: `req_${n}`,
      receivedAt: AT,
      bodySha256: createHash('sha256').update(body).digest('hex'),
      bodyBytes: body.length,
    })!;
  const answered = (receipt?: string, status = 202) => {
    const { answer, ...entry } = sent(1, status);
    return [
      { ...entry, receipted: true as const, answer: { ...answer!, ...(receipt && { receipt }) } },
    ];
  };
  const followed = new Map([
    ['req_1', 'completed'],
    ['req_2', 'rejected'],
    ['req_6', 'rejected'],
  ]);
  const found = (ledger: LedgerEntry[], more: ReadonlyMap<string, string> = followed): string =>
    kinds({ ...withRequests(...ledger), extensions: { receiptKeys, followed: more } });

  test('receipts and outcomes that are as promised', () => {
    expect(found(answered(receiptOf(1)))).toBe('');
  });
  test.each<[string, LedgerEntry[]]>([
    ['none', answered()],
    ['of another request', answered(receiptOf(2, receiptKeys, bodyOf(1)))],
    ['of other bytes', answered(receiptOf(1, receiptKeys, bodyOf(2)))],
    ['by another key', answered(receiptOf(1, keyOf()))],
    ['that nobody asked for', [{ ...sent(1, 202), answer: answered(receiptOf(1))[0]!.answer }]],
  ])('a wrong receipt: %s', (_, ledger) => {
    expect(found(ledger)).toBe('wrong_receipt');
  });
  test('an end that its partner was not told, or otherwise', () => {
    expect(found([], new Map([...followed].slice(1)))).toBe('not_followed');
    expect(found([], new Map([...followed, ['req_2', 'completed']]))).toBe('not_followed');
  });
});

/** The second request has the account, and its client sent it after that many seconds. */
const overtaken = (afterSeconds: number): AuditInput => ({
  ...withRecords(
    duplicate(1, 'req_2'),
    record(2, 'completed', { accountId: 'acc_2' }),
    duplicate(6, 'req_2'),
  ),
  ledger: withRequests(sent(2, 202, { sentAt: at(afterSeconds) })).ledger,
  accounts: [account(2)],
  mails: [{ ...mail(), messageId: '<acc_2@example.com>' }],
});

test('of two requests at the same time, any may be first', () => {
  expect(kinds(overtaken(0))).toBe('');
});

const twiceMalformed = [3, 3].map(() => ({ state: 'malformed' as const, at: AT, attempt: 0 }));
const undeliverable = withRecords(record(1, 'undeliverable', { accountId: 'acc_1' }));
const deadLetter = withRecords(record(1, 'dead_lettered', { accountId: 'acc_1' }));
const processed500 = withRecords(duplicate(4, 'req_1'));
/** After that 500 its ingest got another request. */
function withLater(n: number, status: number): AuditInput {
  const later = sent(n, status);
  const answer = { ...later.answer!, at: at(2) };
  const { ledger } = withRequests({ ...later, sentAt: at(1), answer });
  return { ...processed500, ledger };
}
const killed = (input: AuditInput, seconds: number, instance = 'ingest-1.1'): AuditInput =>
  withFacts(input, { killedIngest: new Map([[instance, at(seconds)]]) });
const GRACE = { email: 'grace@example.com', emailNormalized: 'grace@example.com', ein: '2' };
const ofFault = { userAgent: FAULT_USER_AGENT, body: undefined };

test.each<[string, AuditInput, string]>([
  ['a lost 202', lacking('req_2'), 'lost'],
  [
    'a request left open',
    withRequests(sent(6, undefined, { failure: { at: at(0), error: CLIENT_GAVE_UP } })),
    'left_open',
  ],
  ['altered bytes', withRecords(record(3, 'malformed', { body: new Binary() })), 'altered'],
  ['another length', withRecords(record(3, 'malformed', { bodyBytes: 1 })), 'altered'],
  ['another hash', withRecords(record(3, 'malformed', { bodySha256: '0' })), 'altered'],
  [
    'neither bytes nor their hash',
    withRecords(record(3, 'malformed', { body: undefined, bodySha256: undefined })),
    'altered',
  ],
  [
    'altered bytes of an unanswered request',
    withRecords(record(6, 'malformed', { body: new Binary() })),
    'altered',
  ],
  ['a 202 that was withdrawn', withRecords(record(2, 'withdrawn')), 'wrong_state'],
  ['a 202 that was refused', withRecords(record(2, 'refused')), 'wrong_state'],
  ['a 400 that is worked on', withRecords(duplicate(3, 'req_1')), 'wrong_state'],
  ['a cut body that is worked on', withRecords(duplicate(7, 'req_1')), 'wrong_state'],
  [
    'a cut body that is a duplicate of nobody',
    withRecords(duplicate(7, 'req_9')),
    'wrong_reason,wrong_state',
  ],
  ['a 422 without a key', withRequests(sent(2, 422)), 'wrong_answer'],
  [
    'a doubled account',
    withAccounts(account(1), account(6, { _id: 'acc_2' })),
    'account_unexpected,doubled_account,missing_mail',
  ],
  ['an account of a later request', overtaken(1), 'overtaken'],
  ['an account of no request', withAccounts(account(1), account(9, GRACE)), 'wrong_account'],
  [
    'an account of a withdrawn request',
    withAccounts(account(1), account(4, GRACE)),
    'account_unexpected,processed_after_500',
  ],
  [
    'a record that names the account of another',
    {
      ...withRecords(record(6, 'dead_lettered', { accountId: 'acc_1' })),
      accounts: [account(1), account(6, GRACE)],
    },
    'account_disagrees,unexplained_failure',
  ],
  ['no account', withAccounts(), 'account_missing,missing_account,stray_mail,wrong_reason'],
  ['a second mail', { ...clean, mails: [mail(), mail(40)] }, 'doubled_mail,untrue_ledger'],
  ['a mail the ledger calls refused', withLedger(mailLedger(['refused', 0])), 'untrue_ledger'],
  [
    'a ledger that lists more than it counts',
    withLedger({ ...mailLedger(['accepted', 0]), begun: 0 }),
    'untrue_ledger',
  ],
  [
    'a ledger that counts more than arrived',
    withLedger({ ...mailLedger(['accepted', 0]), possible: 2 }),
    'untrue_ledger',
  ],
  ['no mail', { ...clean, mails: [] }, 'missing_mail'],
  [
    'a mail to another address than that of the account',
    withAccounts(account(1, { email: GRACE.email })),
    'missing_mail',
  ],
  [
    'a mail to nobody',
    { ...clean, mails: [mail(), { ...mail(), to: 'x@example.com' }] },
    'stray_mail',
  ],
  ['a 500 that was processed', processed500, 'processed_after_500'],
  [
    'a 500 that another killed ingest gave',
    killed(processed500, 1, 'ingest-2.1'),
    'processed_after_500',
  ],
  ['a 500 whose ingest could withdraw it', killed(withLater(2, 202), 18), 'processed_after_500'],
  [
    'a 500 that was processed, of an ingest that stored another',
    withLater(2, 202),
    'processed_after_500',
  ],
  ['a stuck record', withRecords(record(6, 'recorded')), 'stuck'],
  ['a dead letter', deadLetter, 'unexplained_failure'],
  ['an undeliverable one', undeliverable, 'unexplained_failure'],
  ['a duplicate of nobody', withRecords(duplicate(2, 'req_9')), 'wrong_reason'],
  ['a rejection without a reason', withRecords(record(2, 'rejected')), 'wrong_reason'],
  [
    'an invalid one that is a duplicate',
    withRequests(sent(2, 202, { kind: 'invalid' })),
    'wrong_reason',
  ],
  [
    'an id given twice',
    withRequests({ ...sent(3, 400), n: 7, body: bodyOf(7) }),
    'altered,doubled_id',
  ],
  [
    'one request stored twice',
    withRecords({ ...record(6, 'withdrawn'), _id: 'req_6b' }),
    'doubled_record',
  ],
  ['a record nobody sent', withRecords(record(9, 'malformed')), 'stray_record'],
  [
    'a request of a fault that is worked on',
    withRecords(record(9, 'rejected', ofFault)),
    'stray_record,wrong_reason',
  ],
  [
    'a state twice',
    withRecords(record(3, 'malformed', { history: twiceMalformed })),
    'repeated_state',
  ],
  ['a 202 for a malformed body', withRequests(sent(1, 202, { kind: 'malformed' })), 'wrong_answer'],
])('%s is a violation', (_name, input, expected) => {
  expect(kinds(input)).toBe(expected);
});

test.each<[string, AuditInput]>([
  ['a 500 whose ingest was killed before it could withdraw it', killed(withLater(2, 202), 16)],
  ['a 500 whose ingest stored nothing until it was killed', killed(withLater(7, 500), 60)],
  ['a 500 that was processed, of an ingest that stored nothing afterwards', withLater(7, 500)],
  [
    'undeliverable, where the relay refused the recipient',
    withFacts(undeliverable, { refused: new Set([ADA.email]) }),
  ],
  [
    'dead-lettered, where the session of the recipient was cut',
    withFacts(deadLetter, { ambiguous: new Map([[ADA.email, [at(0)]]]) }),
  ],
])('%s: allowed only if a fault of the run allows it', (_name, input) => {
  expect(kinds(input)).toBe('');
  expect(kinds({ ...input, allows: new Set() })).not.toBe('');
});

test('a request that a fault sent itself may be refused', () => {
  expect(kinds(withRecords(record(9, 'refused', ofFault)))).toBe('');
});

describe('a second mail', () => {
  const [inTime, afterwards] = [at(1), at(30)];
  const cut = mailLedger(['ambiguous', 0, 0.1], ['accepted', 39, 40]);
  const crash = mailLedger([undefined, 0], ['accepted', 39, 40]);
  const resent = mailLedger(['accepted', 0, 0.1], ['accepted', 39, 40]);
  const often = mailLedger(['ambiguous', 0], ['ambiguous', 1], ['ambiguous', 2], ['accepted', 3]);
  const ofAda = (...when: number[]) => ({ ambiguous: new Map([[ADA.email, when]]) });
  const anything = { processorStops: [inTime], mailStops: [inTime], ...ofAda(inTime) };
  const four = [0, 1, 2, 3];
  const twice = (
    ledger: MailLedger,
    facts: Partial<AuditInput['facts']>,
    mails: AuditInput['mails'],
  ): AuditInput => withFacts({ ...withLedger(ledger), mails }, facts);

  test.each<[string, MailLedger, Partial<AuditInput['facts']>]>([
    ['its session cut', cut, ofAda(inTime)],
    ['all sessions ended', cut, { mailStops: [inTime] }],
    ['a processor stopped', crash, { processorStops: [inTime] }],
    ['its database was away', crash, { processorStops: [afterwards], databaseBack: [at(29)] }],
  ])('is allowed if ledger and run name the same window: %s', (_name, ledger, facts) => {
    const { violations, windows, total } = audit(twice(ledger, facts, [mail(), mail(40)]));
    expect([violations.length, windows.length, total.secondMails]).toEqual([0, 1, 1]);
  });

  test.each<[string, MailLedger, Partial<AuditInput['facts']>, AuditInput['mails']?]>([
    ['its session cut later', cut, ofAda(afterwards)],
    ['a crash in the ledger, but only a cut session', crash, ofAda(inTime)],
    ['nothing happened', crash, {}],
    ['a processor stopped late', crash, { processorStops: [afterwards], databaseBack: [at(14)] }],
    ['accepted before', resent, anything],
    ['another Message-ID', cut, ofAda(inTime), [mail(), { ...mail(40), messageId: '<other>' }]],
    ['a fourth one', often, ofAda(...four.map(at)), four.map(mail)],
  ])('is a violation: %s', (_name, ledger, facts, mails = [mail(), mail(40)]) => {
    expect(kinds(twice(ledger, facts, mails))).toBe('doubled_mail');
  });
});

describe('requests with an idempotency key', () => {
  const keyed = { idempotencyKey: 'a key', body: bodyOf(1) };
  const first = { at: at(0), status: 202, requestId: 'req_1', xRequestId: 'req_1' };
  const completed = record(1, 'completed', { accountId: 'acc_1', adopted: true });
  const told = { ...first, status: 422 };
  const other = sent(2, 422, { ...keyed, body: bodyOf(2), answer: told });

  test.each<[string, string, LedgerEntry[], SubmissionRecord[]]>([
    [
      'may be sent again until one is answered 202, with the id of the first',
      '',
      [sent(1, 500, keyed), sent(2, undefined, keyed), sent(3, 202, { ...keyed, answer: first })],
      [completed],
    ],
    [
      'are processed after a 500 only if they were sent again',
      'processed_after_500',
      [sent(1, 500, keyed)],
      [completed],
    ],
    [
      'have one record',
      'altered,doubled_key',
      [sent(1, 202, keyed), sent(2, undefined, keyed)],
      [completed, record(2, 'refused')],
    ],
    [
      'are no duplicates of themselves',
      'account_unexpected,processed_after_500,wrong_reason',
      [sent(1, 500, keyed), sent(2, 202, { ...keyed, body: bodyOf(2) })],
      [record(1, 'withdrawn'), duplicate(2, 'req_1')],
    ],
    [
      'have one id',
      'altered,doubled_key,wrong_state',
      [sent(1, 202, keyed), sent(2, 202, keyed)],
      [completed, record(2, 'withdrawn', { body: undefined })],
    ],
    ['are answered 422 for another body', '', [sent(1, 202, keyed), other], [completed]],
    [
      'are answered 422 only for another body',
      'wrong_answer',
      [sent(1, 202, keyed), { ...other, body: bodyOf(1) }],
      [completed],
    ],
    [
      'are answered 422 only with the id of their key',
      'doubled_id,wrong_answer',
      [sent(1, 202, keyed), { ...other, idempotencyKey: 'another key' }],
      [completed],
    ],
    [
      'are accepted for one body',
      'altered,doubled_key',
      [sent(1, 202, keyed), sent(2, 202, { ...keyed, body: bodyOf(2), answer: first })],
      [completed],
    ],
  ])('%s', (_name, expected, ledger, records) => {
    expect(kinds({ ...clean, ledger, records })).toBe(expected);
  });
});
