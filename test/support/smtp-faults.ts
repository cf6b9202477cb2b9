/** Everything a mail server can do wrong, and what follows: one table for the tests that try it. */
import type { SmtpFault } from './mail-catcher.ts';
import type { MailHandOver } from '../../internal/account/mail-ledger.ts';
import type { SubmissionRecord } from '../../internal/submission/submission.ts';

/**
 * Share of a back-off that is random, and the most that a busy machine needs between two writes:
 * the rows differ by more.
 */
const [JITTER, BETWEEN_WRITES_S] = [0.2, 10];

export interface FaultRow {
  readonly fault: SmtpFault;
  /** After this one attempt. */
  readonly state: SubmissionRecord['state'];
  readonly attempts?: number;
  readonly ambiguous?: number;
  /** Middle of the time until the next attempt, in seconds. */
  readonly nextIn?: number;
  /** It is no matter of this mail: the record keeps its place in the line. */
  readonly keepsPlace?: true;
  /** Mails that came to the applicant; none when left out. */
  readonly mails?: number;
  /** What the record's `lastError` says. */
  readonly words: string;
  readonly ledger: Pick<MailHandOver, 'result' | 'phase' | 'code' | 'enhancedCode'>;
}

const again = { state: 'account_created', attempts: 1, nextIn: 30 } as const;
const ambiguous = { state: 'account_created', attempts: 0, ambiguous: 1, nextIn: 30 } as const;
const ours = { state: 'account_created', attempts: 0, nextIn: 60 } as const;
const relay = { state: 'account_created', attempts: 0, keepsPlace: true } as const;
const later = { state: 'account_created', attempts: 0, nextIn: 30 } as const;
const undeliverable = { state: 'undeliverable' } as const;

/** The row of an answer that says no; the ledger has its codes. */
function refusal(
  at: 'mail' | 'rcpt' | 'data-command' | 'data',
  code: number,
  text: string,
  then: Partial<FaultRow> & { readonly state: FaultRow['state'] },
): FaultRow {
  const what = {
    mail: 'our sender address',
    rcpt: "the applicant's address",
    'data-command': 'the mail',
    data: 'the mail',
  };
  const phase = ({ mail: 'mail', rcpt: 'rcpt', 'data-command': 'data', data: 'content' } as const)[
    at
  ];
  const [enhancedCode] = /^\d\.\d\.\d/.exec(text) ?? [];
  return {
    ...then,
    fault: { at, answer: { code, message: text } },
    words: `the mail server did not accept ${what[at]} (${[code, enhancedCode].filter((part) => part !== undefined).join(' ')})`,
    ledger: {
      result: 'refused',
      phase,
      code,
      ...(enhancedCode === undefined ? {} : { enhancedCode }),
    },
  };
}

const lost = {
  words: 'ended the connection without an answer',
  ledger: { result: 'ambiguous', phase: 'content' },
} as const;

/** Tried against the whole service in test/integration/mail-faults.test.ts. */
export const faultsOfOneMail: readonly FaultRow[] = [
  refusal('mail', 451, '4.3.0 try later', relay),
  refusal('mail', 550, '5.7.1 sender refused', relay),
  refusal('rcpt', 421, '4.7.0 try again later', relay),
  refusal('rcpt', 450, '4.2.1 mailbox busy', later),
  refusal('rcpt', 451, 'greylisted', later),
  refusal('rcpt', 550, '5.1.1 unknown user', undeliverable),
  refusal('rcpt', 550, 'unknown user', undeliverable),
  refusal('rcpt', 552, '5.2.2 mailbox full', undeliverable),
  refusal('rcpt', 550, '5.7.1 relaying denied', ours),
  refusal('rcpt', 550, 'Requested action not taken: mailbox unavailable', undeliverable),
  refusal('data-command', 451, '4.3.0 no room', relay),
  refusal('data', 451, '4.3.0 no room', relay),
  refusal('data', 550, '5.1.1 no', undeliverable),
  refusal('data', 554, '5.7.1 looks like spam', ours),
  { fault: { at: 'data', cut: 'before-store' }, ...ambiguous, ...lost },
  { fault: { at: 'data', cut: 'after-store' }, ...ambiguous, ...lost, mails: 1 },
];

const unusable = (phase: 'connect' | 'session') =>
  ({
    words: 'the mail server could not be used',
    ledger: { result: 'unreachable', phase },
  }) as const;

/** Tried one by one with short time-outs in test/integration/processor-notify.test.ts. */
export const faultsOfTheServer: readonly FaultRow[] = [
  {
    fault: { at: 'connect', answer: { code: 421, message: '4.3.2 closing' } },
    ...relay,
    ...unusable('connect'),
  },
  { fault: { at: 'connect', hang: true }, ...relay, ...unusable('connect') },
  {
    fault: { at: 'auth', answer: { code: 535, message: '5.7.8 wrong login' } },
    ...relay,
    ...unusable('connect'),
  },
  { fault: { at: 'mail', hang: true }, ...again, ...unusable('session') },
  { fault: { at: 'rcpt', hang: true }, ...again, ...unusable('session') },
  { fault: { at: 'data-command', hang: true }, ...again, ...unusable('session') },
  { fault: { at: 'data', hang: true }, ...ambiguous, ...lost },
];

export function nameOf({ fault }: FaultRow): string {
  if ('answer' in fault) return `${fault.at} ${fault.answer.code} ${fault.answer.message}`;
  return 'cut' in fault ? `${fault.at} cut ${fault.cut}` : `${fault.at} hangs`;
}

/** Seconds from the end of the hand-over to the next attempt, where that is not what `row` says. */
export function wrongPause(
  row: FaultRow,
  record: Pick<SubmissionRecord, 'dueAt'>,
  handOver: MailHandOver | undefined,
): number | undefined {
  const seconds =
    ((record.dueAt?.getTime() ?? NaN) - (handOver?.endedAt?.getTime() ?? NaN)) / 1_000;
  const middle = row.nextIn ?? NaN;
  const right =
    seconds >= middle * (1 - JITTER) && seconds <= middle * (1 + JITTER) + BETWEEN_WRITES_S;
  return right ? undefined : seconds;
}
