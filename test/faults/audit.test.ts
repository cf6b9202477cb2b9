/**
 * Feeds the audit a clean world and, one by one, everything it must see: an audit that is never red
 * proves nothing.
 */
import { describe, expect, test } from '@jest/globals';
import { createHash } from 'node:crypto';
import { Binary } from 'mongodb';
import type { Account } from '../../internal/account/account.ts';
import type { MailHandOver, MailLedger } from '../../internal/account/mail-ledger.ts';
import { mayHaveArrived } from '../../internal/mail/ledger.ts';
import type { State } from '../../internal/submission/states.ts';
import type { SubmissionRecord } from '../../internal/submission/submission.ts';
import { audit, type AuditInput } from './audit.ts';
import type { SentMail } from './facts.ts';
import {
  CLIENT_GAVE_UP,
  FAULT_USER_AGENT,
  userAgentOf,
  type LedgerEntry,
  type RequestKind,
} from './ledger.ts';

const AT = new Date('2026-01-01T00:00:00Z');
const ADA = { email: 'ada@example.com', ein: '100000001' };

type Changes<T> = { -readonly [Key in keyof T]?: T[Key] | undefined };

function record(
  n: number,
  state: State,
  changes: Changes<SubmissionRecord> = {},
): SubmissionRecord {
  const body = bodyOf(n);
  const made: Changes<SubmissionRecord> = {
    _id: `req_${n}`,
    receivedAt: AT,
    remoteIp: '127.0.0.1',
    userAgent: userAgentOf(n),
    body: new Binary(body),
    bodyBytes: body.length,
    bodySha256: createHash('sha256').update(body).digest('hex'),
    httpStatus: state === 'malformed' ? 400 : 202,
    schema: 1,
    state,
    stateAt: AT,
    version: 1,
    attempts: 0,
    history: [{ state, at: AT, attempt: 0 }],
    ...changes,
  };
  for (const key of Object.keys(made) as (keyof typeof made)[])
    if (made[key] === undefined) delete made[key];
  return made as SubmissionRecord;
}

function bodyOf(n: number): Buffer {
  return Buffer.from(`{"n":${n}}`);
}

function sent(
  n: number,
  status: number | undefined,
  changes: Partial<LedgerEntry> = {},
): LedgerEntry {
  const kind: RequestKind = status === 400 ? 'malformed' : 'valid';
  const id = `req_${n}`;
  return {
    n,
    phase: 'test',
    kind,
    ...(kind === 'valid' ? { applicant: ADA } : {}),
    instance: 'ingest-1.1',
    sentAt: AT.getTime(),
    body: bodyOf(n),
    ...(status === undefined
      ? { failure: { at: AT.getTime(), error: 'ECONNRESET' } }
      : {
          answer: {
            at: AT.getTime(),
            status,
            xRequestId: id,
            ...(status === 202 || status === 400 ? { requestId: id } : {}),
          },
        }),
    ...changes,
  };
}

function account(n: number, changes: Partial<Account> = {}): Account {
  return {
    _id: `acc_${n}`,
    email: ADA.email,
    emailNormalized: ADA.email,
    ein: ADA.ein,
    businessName: 'Ada Ltd',
    requestId: `req_${n}`,
    partnerId: 'demo',
    createdAt: AT,
    mail: mailLedger(['accepted', 0, 0.1]),
    ...changes,
  };
}

/**
 * Hand-overs by result, and when they began and ended, in seconds after the start; without a
 * result, they never ended.
 */
function mailLedger(...handOvers: [MailHandOver['result'], number, number?][]): MailLedger {
  const entries = handOvers.map(([result, from, to], index) => ({
    claim: index + 1,
    attempt: 1,
    host: 'processor-1',
    startedAt: new Date(AT.getTime() + from * 1_000),
    ...(result === undefined
      ? {}
      : { result, endedAt: new Date(AT.getTime() + (to ?? from) * 1_000) }),
  }));
  return {
    begun: entries.length,
    possible: entries.filter(mayHaveArrived).length,
    handOvers: Object.fromEntries(entries.map((entry) => [entry.claim, entry])),
  };
}

const mail = (secondsLater = 0): SentMail => ({
  to: ADA.email,
  at: AT.getTime() + secondsLater * 1_000,
  messageId: '<acc_1@example.com>',
});

function duplicate(n: number, of: string): SubmissionRecord {
  const reasons = (['duplicate_email', 'duplicate_ein'] as const).map((code) => ({
    field: code === 'duplicate_email' ? ('email' as const) : ('ein' as const),
    code,
    message: 'exists',
    duplicateOf: of,
  }));
  return record(n, 'rejected', { reasons });
}

const NO_FACTS: AuditInput['facts'] = {
  killedIngest: new Set(),
  processorStops: [],
  mailStops: [],
  ambiguous: new Map(),
  refused: new Set(),
  reopened: new Set(),
};
const ALL: AuditInput['allows'] = new Set([
  'processed_after_500',
  'second_mail',
  'undeliverable',
  'dead_letter',
]);

/**
 * One accepted application, its duplicate, a malformed one, one 500 that was withdrawn, one that
 * never was, one without answer, one cut by its client.
 */
function cleanWorld(): AuditInput {
  return {
    ledger: [
      sent(1, 202),
      sent(2, 202),
      sent(3, 400),
      sent(4, 500),
      sent(5, 500),
      sent(6, undefined),
      sent(7, undefined, { kind: 'cut' }),
    ],
    records: [
      record(1, 'completed', { accountId: 'acc_1' }),
      duplicate(2, 'req_1'),
      record(3, 'malformed'),
      record(4, 'withdrawn', { httpStatus: 500 }),
      duplicate(6, 'req_1'),
    ],
    accounts: [account(1)],
    mails: [mail()],
    facts: NO_FACTS,
    allows: ALL,
  };
}

/** The clean world with other records in place of those of the same id. */
function withRecords(...changed: readonly SubmissionRecord[]): AuditInput {
  const world = cleanWorld();
  const ids = new Set(changed.map(({ _id }) => _id));
  return { ...world, records: [...world.records.filter(({ _id }) => !ids.has(_id)), ...changed] };
}

const withLedger = (ledger: MailLedger | undefined): AuditInput => {
  const { mail: _mail, ...without } = account(1);
  return {
    ...cleanWorld(),
    accounts: [ledger === undefined ? without : { ...without, mail: ledger }],
  };
};

const kinds = (input: AuditInput): string[] =>
  [...new Set(audit(input).violations.map(({ kind }) => kind))].toSorted();

test('a clean world is green, and counted', () => {
  const { total, violations, windows } = audit(cleanWorld());
  expect({ violations, windows }).toEqual({ violations: [], windows: [] });
  expect(total).toMatchObject({
    requests: 7,
    accepted: 2,
    malformed: 1,
    failed: 2,
    noAnswer: 1,
    storedWithoutAnswer: 1,
    withdrawnLanded: 1,
    withdrawnAbsent: 0,
    lost: 0,
  });
});

test.each<[string, AuditInput, string[]]>([
  [
    'a lost 202',
    { ...cleanWorld(), records: cleanWorld().records.filter(({ _id }) => _id !== 'req_2') },
    ['lost'],
  ],
  [
    'a lost 400',
    { ...cleanWorld(), records: cleanWorld().records.filter(({ _id }) => _id !== 'req_3') },
    ['lost'],
  ],
  [
    'a request left open',
    {
      ...cleanWorld(),
      ledger: [
        ...cleanWorld().ledger.slice(0, 5),
        sent(6, undefined, { failure: { at: AT.getTime(), error: CLIENT_GAVE_UP } }),
      ],
    },
    ['left_open'],
  ],
  [
    'altered bytes',
    withRecords(record(3, 'malformed', { body: new Binary(Buffer.from('{"n":8}')) })),
    ['altered'],
  ],
  ['a wrong SHA-256', withRecords(record(3, 'malformed', { bodySha256: 'abc' })), ['altered']],
  ['a wrong length', withRecords(record(3, 'malformed', { bodyBytes: 8 })), ['altered']],
  ['a 202 that was withdrawn', withRecords(record(2, 'withdrawn')), ['wrong_state']],
  ['a 400 that is worked on', withRecords(record(3, 'rejected')), ['wrong_state']],
  [
    'a doubled account',
    { ...cleanWorld(), accounts: [account(1), account(6, { _id: 'acc_2' })] },
    ['doubled_account', 'wrong_account'],
  ],
  [
    'two accounts of one request',
    {
      ...cleanWorld(),
      accounts: [account(1), account(1, { emailNormalized: 'b@example.com', ein: '2' })],
    },
    ['doubled_account', 'missing_mail', 'wrong_reason'],
  ],
  [
    'no account',
    { ...cleanWorld(), accounts: [] },
    ['missing_account', 'stray_mail', 'wrong_reason'],
  ],
  [
    'a second mail',
    { ...cleanWorld(), mails: [mail(), mail(40)] },
    ['doubled_mail', 'untrue_ledger'],
  ],
  ['a mail no ledger knows of', withLedger(undefined), ['untrue_ledger']],
  ['a mail the ledger calls refused', withLedger(mailLedger(['refused', 0])), ['untrue_ledger']],
  [
    'a ledger that counts wrong',
    withLedger({ ...mailLedger(['accepted', 0]), possible: 2 }),
    ['untrue_ledger'],
  ],
  [
    'a ledger that lists more than it counts',
    withLedger({ ...mailLedger(['accepted', 0]), begun: 0 }),
    ['untrue_ledger'],
  ],
  ['no mail', { ...cleanWorld(), mails: [] }, ['missing_mail']],
  [
    'a mail to nobody',
    { ...cleanWorld(), mails: [mail(), { ...mail(), to: 'x@example.com' }] },
    ['stray_mail'],
  ],
  ['a 500 that was processed', withRecords(duplicate(4, 'req_1')), ['processed_after_500']],
  [
    'a withdrawn 500 with an account',
    {
      ...cleanWorld(),
      accounts: [account(1), account(4, { emailNormalized: 'b@example.com', ein: '2' })],
    },
    ['processed_after_500', 'wrong_account'],
  ],
  ['a stuck record', withRecords(record(6, 'recorded')), ['stuck']],
  ['a dead letter', withRecords(record(6, 'dead_lettered')), ['unexplained_failure']],
  [
    'an undeliverable one',
    withRecords(record(1, 'undeliverable', { accountId: 'acc_1' })),
    ['unexplained_failure'],
  ],
  ['a duplicate of nobody', withRecords(duplicate(2, 'req_9')), ['wrong_reason']],
  ['a duplicate of itself', withRecords(duplicate(2, 'req_2')), ['wrong_reason']],
  [
    'a valid one rejected for nothing',
    withRecords(record(2, 'rejected', { reasons: [] })),
    ['wrong_reason'],
  ],
  [
    'an id given twice',
    {
      ...cleanWorld(),
      ledger: [...cleanWorld().ledger, { ...sent(3, 400), n: 7, body: bodyOf(7) }],
    },
    ['altered', 'doubled_id'],
  ],
  [
    'one request stored twice',
    withRecords({ ...record(6, 'withdrawn'), _id: 'req_6b' }),
    ['doubled_record'],
  ],
  ['a record nobody sent', withRecords(record(9, 'malformed')), ['stray_record']],
  [
    'a state twice',
    withRecords(
      record(3, 'malformed', {
        history: [3, 3].map(() => ({ state: 'malformed', at: AT, attempt: 0 })),
      }),
    ),
    ['repeated_state'],
  ],
  [
    'a 202 for a malformed body',
    {
      ...cleanWorld(),
      ledger: [...cleanWorld().ledger.slice(1), sent(1, 202, { kind: 'malformed' })],
    },
    ['wrong_answer'],
  ],
  ['a 503', { ...cleanWorld(), ledger: [...cleanWorld().ledger, sent(7, 503)] }, ['wrong_answer']],
])('%s is red', (_name, input, expected) => {
  expect(kinds(input)).toEqual([...expected].toSorted());
});

test('a 500 that was processed is allowed only of an ingest that was killed, and then listed', () => {
  const input = withRecords(duplicate(4, 'req_1'));
  const killed = audit({ ...input, facts: { ...NO_FACTS, killedIngest: new Set(['ingest-1.1']) } });
  expect(killed.violations).toEqual([]);
  expect(killed.windows).toHaveLength(1);
  expect(killed.total.windowProcessed).toBe(1);
  expect(
    kinds({
      ...input,
      facts: { ...NO_FACTS, killedIngest: new Set(['ingest-1.1']) },
      allows: new Set(['second_mail']),
    }),
  ).toEqual(['not_allowed']);
  expect(
    kinds({ ...input, facts: { ...NO_FACTS, killedIngest: new Set(['ingest-2.1']) } }),
  ).toEqual(['processed_after_500']);
});

test('a request of a fault itself is allowed only where it was refused', () => {
  const ofFault = { userAgent: FAULT_USER_AGENT, body: undefined, bodySha256: undefined };
  expect(kinds(withRecords(record(9, 'refused', ofFault)))).toEqual([]);
  expect(kinds(withRecords(record(9, 'rejected', ofFault)))).toEqual(['stray_record']);
});

test.each(['undeliverable', 'dead_lettered'] as const)(
  'a record that is %s is allowed only where a fault of the run allows it',
  (state) => {
    const input = {
      ...withRecords(record(1, state, { accountId: 'acc_1' })),
      facts: { ...NO_FACTS, refused: new Set([ADA.email]), ambiguous: new Map([[ADA.email, []]]) },
    };
    expect(kinds(input)).toEqual([]);
    expect(kinds({ ...input, allows: new Set() })).toEqual(['unexplained_failure']);
  },
);

describe('a second mail', () => {
  const inTime = AT.getTime() + 1_000;
  const afterwards = AT.getTime() + 30_000;
  const cut = mailLedger(['ambiguous', 0, 0.1], ['accepted', 39, 40]);
  const crash = mailLedger([undefined, 0], ['accepted', 39, 40]);
  const resent = mailLedger(['accepted', 0, 0.1], ['accepted', 39, 40]);
  const ofAda = (...at: number[]): Partial<AuditInput['facts']> => ({
    ambiguous: new Map([[ADA.email, at]]),
  });
  const twice = (
    ledger: MailLedger,
    facts: Partial<AuditInput['facts']>,
    mails = [mail(), mail(40)],
  ) => audit({ ...withLedger(ledger), mails, facts: { ...NO_FACTS, ...facts } });

  test.each<[string, MailLedger, Partial<AuditInput['facts']>]>([
    ['its session cut', cut, ofAda(inTime)],
    ['all sessions ended', cut, { mailStops: [inTime] }],
    ['a processor stopped', crash, { processorStops: [inTime] }],
  ])(
    'is allowed where the ledger names the window that the run opened, and then listed: %s',
    (_name, ledger, facts) => {
      const result = twice(ledger, facts);
      expect(result.violations).toEqual([]);
      expect(result.windows).toHaveLength(1);
      expect(result.total).toMatchObject({ secondMails: 1, possibleSecondMails: 1 });
    },
  );

  test.each<[string, MailLedger, Partial<AuditInput['facts']>]>([
    ["another's session cut", cut, { ambiguous: new Map([['x@example.com', [inTime]]]) }],
    ['its session cut later', cut, ofAda(afterwards)],
    ['all sessions ended later', cut, { mailStops: [afterwards] }],
    ['a processor stopped long after', crash, { processorStops: [afterwards] }],
    ['a crash in the ledger, but only a cut session', crash, ofAda(inTime)],
    [
      'an ambiguous end in the ledger, but only a stopped processor',
      cut,
      { processorStops: [inTime] },
    ],
    ['nothing happened', crash, {}],
    [
      'accepted before',
      resent,
      { processorStops: [inTime], mailStops: [inTime], ...ofAda(inTime) },
    ],
  ])('is red: %s', (_name, ledger, facts) => {
    expect(twice(ledger, facts).violations.map(({ kind }) => kind)).toEqual(['doubled_mail']);
  });

  test('that only may have come is counted', () => {
    const result = twice(crash, {}, [mail(40)]);
    expect(result.violations).toEqual([]);
    expect(result.total).toMatchObject({ secondMails: 0, possibleSecondMails: 1 });
  });

  test('with another Message-ID is red, and so is a fourth mail, also after a crash', () => {
    const other = { ...mail(40), messageId: '<other@example.com>' };
    expect(twice(cut, ofAda(inTime), [mail(), other]).violations.map(({ kind }) => kind)).toEqual([
      'doubled_mail',
    ]);
    const often = mailLedger(['ambiguous', 0], ['ambiguous', 1], ['ambiguous', 2], ['accepted', 3]);
    const mails = [0, 1, 2, 3].map((seconds) => mail(seconds));
    expect(
      twice(often, ofAda(...mails.map(({ at }) => at)), mails).violations.map(({ kind }) => kind),
    ).toEqual(['doubled_mail']);
    const crashed = mailLedger(['ambiguous', 0], ['ambiguous', 1], [undefined, 2], ['accepted', 3]);
    const facts = { ...ofAda(...mails.map(({ at }) => at)), processorStops: [mails[2]!.at + 500] };
    expect(twice(crashed, facts, mails).violations.map(({ kind }) => kind)).toEqual([
      'doubled_mail',
    ]);
  });
});

test('undeliverable and dead-lettered ones are allowed only for the recipients a fault was about', () => {
  const undeliverable = withRecords(record(1, 'undeliverable', { accountId: 'acc_1' }));
  expect(
    kinds({ ...undeliverable, facts: { ...NO_FACTS, refused: new Set([ADA.email]) } }),
  ).toEqual([]);
  const dead = withRecords(record(1, 'dead_lettered', { accountId: 'acc_1' }));
  expect(
    kinds({ ...dead, facts: { ...NO_FACTS, ambiguous: new Map([[ADA.email, [AT.getTime()]]]) } }),
  ).toEqual([]);
});

describe('requests with an idempotency key', () => {
  const keyed = { idempotencyKey: 'a key', body: bodyOf(1) };
  const first = { at: AT.getTime(), status: 202, requestId: 'req_1', xRequestId: 'req_1' };
  const completed = record(1, 'completed', { accountId: 'acc_1', adopted: true });
  const kindsOf = (
    ledger: readonly LedgerEntry[],
    ...records: readonly SubmissionRecord[]
  ): string[] => kinds({ ...cleanWorld(), ledger, records });

  test('may be sent again until one is answered 202, with the id of the first', () => {
    const ledger = [
      sent(1, 500, keyed),
      sent(2, undefined, keyed),
      sent(3, 202, { ...keyed, answer: first }),
    ];
    expect(kindsOf(ledger, completed)).toEqual([]);
  });

  test('are processed after a 500 only if they were sent again', () => {
    const { adopted: _, ...alone } = completed;
    expect(kindsOf([sent(1, 500, keyed)], alone)).toContain('processed_after_500');
  });

  test('have one id', () => {
    const ledger = [sent(1, 202, keyed), sent(2, 202, keyed)];
    const second = record(2, 'withdrawn', { body: undefined, bodySha256: undefined });
    expect(kindsOf(ledger, completed, second)).toContain('doubled_key');
  });

  test('have one live record', () => {
    const ledger = [sent(1, 202, keyed), sent(2, undefined, keyed)];
    expect(kindsOf(ledger, completed, record(2, 'rejected'))).toContain('doubled_key');
  });

  test('are answered 422 only for another body, with the id of the first', () => {
    const told = { at: AT.getTime(), status: 422, requestId: 'req_1', xRequestId: 'req_1' };
    const [one, other] = [
      sent(1, 202, keyed),
      sent(2, 422, { ...keyed, body: bodyOf(2), answer: told }),
    ];
    expect(kindsOf([one, other], completed)).toEqual([]);
    expect(kindsOf([one, { ...other, body: bodyOf(1) }], completed)).toEqual(['wrong_answer']);
    const { idempotencyKey: _, ...plain } = other;
    expect(kindsOf([one, plain], completed)).toContain('wrong_answer');
    const stranger = { ...other, idempotencyKey: 'another key' };
    expect(kindsOf([one, stranger], completed)).toContain('wrong_answer');
  });

  test('are accepted for one body', () => {
    const other = sent(2, 202, { ...keyed, body: bodyOf(2), answer: first });
    expect(kindsOf([sent(1, 202, keyed), other], completed)).toContain('doubled_key');
  });
});
