/** Joins the client's ledger with database and mails, and finds what is lost, doubled or untrue. */
import type { Account } from '../../internal/account/account.ts';
import { handOversOf, secondMails, type SecondMail } from '../../internal/account/mail-ledger.ts';
import { MAX_AMBIGUOUS } from '../../internal/processor/verdict.ts';
import { cards, endStates, isOpen, type State } from '../../internal/submission/states.ts';
import { bodyFault, checkReceipt, type ReceiptKeys } from '../../internal/receipt/receipt.ts';
import {
  FIRST_DUE_MS,
  FIRST_SIGHT_GRACE_MS,
  type SubmissionRecord,
} from '../../internal/submission/submission.ts';
import { judgeHistory, type Asked, type Broken, type Mailed } from '../support/history-rules.ts';
import type { RunFacts, SentMail } from './facts.ts';
import type { Allowance } from './fault.ts';
import {
  CLIENT_GAVE_UP,
  FAULT_USER_AGENT,
  userAgentOf,
  type LedgerEntry,
  type RequestKind,
} from './ledger.ts';

export interface AuditInput {
  readonly ledger: readonly LedgerEntry[];
  readonly records: readonly SubmissionRecord[];
  readonly accounts: readonly Account[];
  readonly mails: readonly SentMail[];
  readonly facts: RunFacts;
  /** Findings that the faults of this run allow (list.ts). */
  readonly allows: ReadonlySet<Allowance>;
  /** What the run's partner has beside its answers: the keys of receipts, and its outcomes. */
  readonly extensions?: {
    readonly receiptKeys: ReceiptKeys;
    /** The state that its feed told last of each request. */
    readonly followed: ReadonlyMap<string, string>;
  };
}

type ViolationKind =
  | Broken
  | 'left_open'
  | 'doubled_id'
  | 'doubled_record'
  | 'stray_record'
  | 'missing_account'
  | 'stuck'
  | 'unexplained_failure'
  | 'repeated_state'
  | 'wrong_receipt'
  | 'not_followed'
  | 'not_allowed';

export interface Violation {
  readonly kind: ViolationKind;
  readonly phase: string;
  /** A request_id, a key or an e-mail address. */
  readonly id: string;
  readonly words: string;
}

export const counted = [
  'requests',
  'accepted',
  'malformed',
  'refused',
  'failed',
  /** Requests without an answer, except those that the client cut. */
  'noAnswer',
  'lost',
  /** Requests that were answered 500 and processed. */
  'untrueFailed',
  'doubledAccounts',
  'secondMails',
  /** Withdrawn records with a body (the late write landed), and without. */
  'withdrawnLanded',
  'withdrawnAbsent',
] as const;
type Counted = (typeof counted)[number];
type Counts = Readonly<Record<Counted, number>>;

export interface AuditResult {
  readonly phases: ReadonlyMap<string, Counts>;
  readonly total: Counts;
  readonly violations: readonly Violation[];
  /** Findings in a documented window, which are allowed and listed. */
  readonly windows: readonly (Omit<Violation, 'kind'> & { readonly of: Allowance })[];
}

interface AskedInRun extends Asked {
  readonly entry: LedgerEntry;
}
interface MailInRun extends Mailed, SentMail {}

interface Judging extends AuditInput {
  readonly byId: ReadonlyMap<string, SubmissionRecord>;
  readonly accountOf: ReadonlyMap<string, Account>;
  readonly phaseOf: (id: string) => string;
  readonly wrong: (kind: ViolationKind, id: string, words: string) => void;
  readonly count: (phase: string, what: Counted, number?: number) => void;
}

/** An earlier request is waited for an hour at most; a minute is for the difference of clocks. */
const WAITED_FOR_MS = 59 * 60_000;

/** The phase of findings without a request. */
const UNKNOWN_PHASE = '(not joined)';

/** For each status, what it counts as and the kinds of requests that may get it. */
const answers: Readonly<
  Record<number, { readonly count?: Counted; readonly to?: readonly RequestKind[] }>
> = {
  202: { count: 'accepted', to: ['valid', 'invalid'] },
  400: { count: 'malformed', to: ['malformed'] },
  401: { count: 'refused', to: ['unauthorized'] },
  403: { count: 'refused', to: ['unauthorized'] },
  422: { to: ['valid'] },
  500: { count: 'failed' },
};
const countOf: Partial<Record<ViolationKind, Counted>> = {
  lost: 'lost',
  processed_after_500: 'untrueFailed',
  doubled_account: 'doubledAccounts',
};

const zero = (): Record<Counted, number> =>
  Object.fromEntries(counted.map((name) => [name, 0])) as Record<Counted, number>;

export function audit(input: AuditInput): AuditResult {
  const { ledger, records, accounts, facts, allows } = input;
  const phases = new Map<string, Record<Counted, number>>();
  const total = zero();
  const violations: Violation[] = [];
  const windows: AuditResult['windows'][number][] = [];
  const byId = new Map(records.map((record) => [record._id, record]));
  const byAgent = Map.groupBy(records, ({ userAgent }) => userAgent);
  const asked = ledger.map((entry) => askedOf(entry, byId, byAgent));
  /** By request_id, by the id of an unanswered request, and by key. */
  const entryOf = new Map<string, LedgerEntry>();
  const phaseOf = (id: string): string => entryOf.get(id)?.phase ?? UNKNOWN_PHASE;
  const count: Judging['count'] = (phase, what, number = 1) => {
    if (!phases.has(phase)) phases.set(phase, zero());
    phases.get(phase)![what] += number;
    total[what] += number;
  };
  const wrong: Judging['wrong'] = (kind, id, words) => {
    violations.push({ kind, phase: phaseOf(id), id, words });
    const counter = countOf[kind];
    if (counter !== undefined) count(phaseOf(id), counter);
  };
  const allow = (of: Allowance, id: string, words: string): void => {
    windows.push({ of, phase: phaseOf(id), id, words });
    if (!allows.has(of)) wrong('not_allowed', id, `no fault of this run allows it: ${words}`);
  };
  const accountOf = new Map(accounts.map((account) => [account.requestId, account]));
  const judging: Judging = { ...input, byId, accountOf, phaseOf, wrong, count };

  for (const one of asked) join(one, entryOf, wrong);
  for (const one of asked) checkAnswer(one, judging);
  for (const record of records) {
    const entry = entryOf.get(record._id);
    checkOrigin(record, entry, judging);
    checkOutcome(record, entry, judging);
  }
  checkApplicants(judging);
  if (input.extensions !== undefined) checkExtensions(judging, input.extensions);
  const accountTo = new Map(accounts.map((account) => [account.emailNormalized, account._id]));
  const mails: MailInRun[] = input.mails.map((mail) => ({
    ...mail,
    accountId: accountTo.get(mail.to),
    startedAt: mail.at,
  }));
  checkMessageIds(mails, judging);
  judgeHistory<AskedInRun, MailInRun>(
    {
      asked,
      records: byId,
      accounts,
      erasedAccounts: [],
      mails,
      erased: () => undefined,
      couldNotWithdraw({ id, entry }) {
        const isKilled = wasKilledTooEarly(entry, ledger, facts);
        if (!isKilled && !wasCutOff(entry, ledger)) return false;
        count(entry.phase, 'untrueFailed');
        const why = isKilled ? 'killed before it could withdraw' : 'cut off from its database';
        allow('processed_after_500', id, `processed after its 500: ingest was ${why}`);
        return true;
      },
      keptItsPlace({ _id: id, history }, { requestId, createdAt }) {
        const [earlier, later] = [entryOf.get(id), entryOf.get(requestId)];
        const before = earlier?.answer?.at ?? Infinity;
        const waited = createdAt.getTime() - (later?.sentAt ?? -Infinity);
        return (
          !allows.has('overtaken') &&
          before < (later?.sentAt ?? -Infinity) &&
          waited < WAITED_FOR_MS &&
          ![id, requestId].some((one) => facts.reopened.has(one)) &&
          history.every(({ state }) => state !== 'dead_lettered')
        );
      },
      reopened: (requestId) => (facts.reopened.has(requestId) ? undefined : []),
      unexplained(account, own) {
        const came = Math.max(0, own.length - 1);
        count(phaseOf(account.requestId), 'secondMails', came);
        const listed = secondMails(handOversOf(account.mail));
        const explained = listed.filter((second) => isExplained(account, second, own, facts));
        for (const { cause } of explained.slice(0, came))
          allow('second_mail', account.requestId, `second mail: ${causes[cause]}`);
        if (explained.length >= came) return undefined;
        return `was mailed ${own.length} times; the run opened ${explained.length} of ${listed.length} windows in its ledger`;
      },
    },
    wrong,
  );
  return { phases, total, violations, windows };
}

function askedOf(
  entry: LedgerEntry,
  byId: ReadonlyMap<string, SubmissionRecord>,
  byAgent: ReadonlyMap<string | undefined, readonly SubmissionRecord[]>,
): AskedInRun {
  const { n, answer, idempotencyKey: key, body, kind } = entry;
  const stored = byAgent.get(userAgentOf(n)) ?? [];
  const { status, requestId, xRequestId = '' } = answer ?? {};
  const names = status === 202 || status === 400 || status === 422;
  const record = names ? byId.get(requestId ?? '') : (byId.get(xRequestId) ?? stored[0]);
  const id = answer?.xRequestId ?? `request ${n}`;
  return { id, key, body, cut: kind === 'cut', status, record, stored, entry };
}

/** Joins a request with its records; only a key joins several requests with one. */
function join(
  { id, key, stored, entry }: AskedInRun,
  entryOf: Map<string, LedgerEntry>,
  wrong: Judging['wrong'],
): void {
  for (const { _id } of stored) entryOf.set(_id, entry);
  if (key !== undefined && !entryOf.has(key)) entryOf.set(key, entry);
  const ids = stored.map(({ _id }) => _id).join(', ');
  if (stored.length > 1) wrong('doubled_record', stored[0]!._id, `request ${entry.n} has ${ids}`);
  const other = entryOf.get(id);
  if (key !== undefined && other?.idempotencyKey === key) return;
  if (other !== undefined && other !== entry)
    wrong('doubled_id', id, `of requests ${other.n} and ${entry.n}`);
  entryOf.set(id, entry);
}

function checkAnswer({ id, record, status, entry }: AskedInRun, judging: Judging): void {
  const { answer, kind, phase } = entry;
  const wrong = (what: ViolationKind, words: string): void => judging.wrong(what, id, words);
  judging.count(phase, 'requests');
  if (answer === undefined || status === undefined) {
    if (kind !== 'cut') judging.count(phase, 'noAnswer');
    if (entry.failure?.error === CLIENT_GAVE_UP)
      wrong('left_open', 'neither an answer nor the end of its connection');
    if (kind === 'cut' && record?.body !== undefined) {
      const stored = Buffer.from(record.body.value());
      if (!entry.body.subarray(0, stored.length).equals(stored))
        wrong('altered', 'the record of a body that was cut off holds other bytes');
      if (record.state !== 'malformed' && record.state !== 'withdrawn')
        wrong('wrong_state', `its body was cut off, but it is ${record.state}`);
    }
    return;
  }
  const { requestId, xRequestId } = answer;
  if (xRequestId === undefined) wrong('wrong_answer', `a ${status} without X-Request-Id`);
  const { count, to } = answers[status] ?? { to: [] };
  if (count !== undefined) judging.count(phase, count);
  if (to?.includes(kind) === false) wrong('wrong_answer', `${kind} was answered ${status}`);
  if ((status === 202 || status === 400) && requestId !== xRequestId)
    wrong('wrong_answer', `request_id is ${requestId}`);
  // There may be a record of the refusal, without a body.
  const isRefusal = record === undefined || (record.state === 'refused' && !record.body);
  if (count === 'refused' && !isRefusal)
    wrong('wrong_state', `answered ${status}, but the record is ${record.state}`);
}

function checkOrigin(
  { _id: id, state, userAgent, body }: SubmissionRecord,
  entry: LedgerEntry | undefined,
  { phaseOf, wrong, count }: Judging,
): void {
  // A withdrawal without an answer has no request to join.
  if (state === 'withdrawn')
    count(phaseOf(id), body === undefined ? 'withdrawnAbsent' : 'withdrawnLanded');
  const ofFault = userAgent === FAULT_USER_AGENT && state === 'refused';
  if (entry === undefined && state !== 'withdrawn' && !ofFault)
    wrong('stray_record', id, `nobody sent it: ${userAgent}`);
}

/** A receipt comes with a 202 that was asked for one, is of its bytes, and each end was told. */
function checkExtensions(
  { ledger, records, wrong }: Judging,
  { receiptKeys, followed }: NonNullable<AuditInput['extensions']>,
): void {
  for (const { n, answer, receipted, body } of ledger) {
    const { status, receipt: text, requestId = '' } = answer ?? {};
    const wants = receipted === true && status === 202;
    if (answer === undefined || (text !== undefined) === wants) {
      if (text === undefined) continue;
      const { receipt, fault } = checkReceipt(text, receiptKeys);
      const why = fault ?? bodyFault(receipt, body);
      if (why !== undefined) wrong('wrong_receipt', requestId, `its receipt: ${why}`);
      else if (receipt!.request_id !== requestId)
        wrong('wrong_receipt', requestId, `its receipt is of ${receipt!.request_id}`);
    } else wrong('wrong_receipt', requestId || `request ${n}`, `${status} has ${text ?? 'none'}`);
  }
  for (const { _id: id, state, test } of records) {
    const told = cards[state].status;
    if (test || !endStates.includes(state) || followed.get(id) === told) continue;
    wrong(
      'not_followed',
      id,
      `is ${told}, and its partner was told ${followed.get(id) ?? 'nothing'}`,
    );
  }
}

/** Its window was open: a withdrawal has this time once its ingest stores again. */
function wasKilledTooEarly(
  { instance, answer }: LedgerEntry,
  ledger: readonly LedgerEntry[],
  { killedIngest }: RunFacts,
): boolean {
  const [since, killedAt] = [answer?.at ?? Infinity, killedIngest.get(instance) ?? Infinity];
  const storesAgain = ledger.find(
    ({ instance: by, sentAt, answer: later }) =>
      by === instance &&
      sentAt > since &&
      later?.status === 202 &&
      later.requestId === later.xRequestId,
  );
  const until = (storesAgain?.answer?.at ?? Infinity) + FIRST_SIGHT_GRACE_MS;
  return killedAt < until;
}

/** Nothing that the ingest was sent until then could be stored: its withdrawal neither. */
function wasCutOff({ instance, answer }: LedgerEntry, ledger: readonly LedgerEntry[]): boolean {
  const since = answer?.at ?? Infinity;
  const until = since + FIRST_DUE_MS;
  const ends = ledger
    .filter((one) => one.instance === instance && one.kind === 'valid' && one.sentAt > since)
    .map((one) => ({ at: one.answer?.at ?? one.failure?.at ?? Infinity, answer: one.answer }))
    .filter(({ at }) => at < until);
  return (
    ends.length > 0 && ends.every((one) => one.answer === undefined || one.answer.status === 500)
  );
}

const OWNING: ReadonlySet<State> = new Set(['account_created', 'completed', 'undeliverable']);
const isDuplicate = ({ code }: { readonly code: string }): boolean =>
  code === 'duplicate_email' || code === 'duplicate_ein';

/** Every record is final, as its body says. */
function checkOutcome(
  record: SubmissionRecord,
  entry: LedgerEntry | undefined,
  judging: Judging,
): void {
  const { _id: id, state, reasons = [], lastError = 'no error' } = record;
  const wrong = (kind: ViolationKind, words: string): void => judging.wrong(kind, id, words);
  if (isOpen(state)) wrong('stuck', `still ${state}, version ${record.version}: ${lastError}`);
  const states = record.history.map((one) => one.state);
  if (new Set(states).size !== states.length && !judging.facts.reopened.has(id))
    wrong('repeated_state', states.join(' > '));
  if (!isExcused(record, entry, judging))
    wrong('unexplained_failure', `${state}, which no fault explains: ${lastError}`);
  if (entry?.kind === 'valid' && state === 'rejected') {
    if (!reasons.every(isDuplicate))
      wrong('wrong_reason', `valid, but rejected: ${JSON.stringify(reasons)}`);
    for (const { code, duplicateOf = '' } of reasons) {
      const first = judging.accountOf.get(duplicateOf);
      const isSame =
        code === 'duplicate_email'
          ? first?.emailNormalized === entry.applicant?.email
          : first?.ein === entry.applicant?.ein;
      if (!isSame) wrong('wrong_reason', `${code} of "${duplicateOf}", which owns ${first?._id}`);
    }
  }
  if (entry?.kind !== 'invalid') return;
  if (state === 'rejected' && reasons.some(isDuplicate))
    wrong('wrong_reason', 'its fields were invalid, which no reason says');
  if (OWNING.has(state) || state === 'dead_lettered')
    wrong('wrong_state', `its fields were invalid, but it is ${state}`);
}

/** Without a fault that explains it, every mail arrives. */
function isExcused(
  { _id: id, state }: SubmissionRecord,
  entry: LedgerEntry | undefined,
  { facts, allows, accountOf }: Judging,
): boolean {
  const email = entry?.applicant?.email ?? '';
  if (state === 'undeliverable') return allows.has('undeliverable') && facts.refused.has(email);
  if (state !== 'dead_lettered') return true;
  const mails = accountOf.get(id)?.mail?.possible ?? 0;
  const stopped = facts.processorStops.length > 0 && mails >= MAX_AMBIGUOUS;
  return allows.has('dead_letter') && (facts.ambiguous.has(email) || stopped);
}

/** An accepted applicant has an account. */
function checkApplicants({ accounts, ledger, wrong }: Judging): void {
  const known = (key: keyof Account): Set<unknown> =>
    new Set(accounts.map((account) => account[key]));
  const [emails, eins] = [known('emailNormalized'), known('ein')];
  for (const { applicant, answer } of ledger) {
    if (applicant === undefined || answer?.status !== 202) continue;
    // Both values belong to others, so either reason is right.
    if (emails.has(applicant.email) || eins.has(applicant.ein)) continue;
    const words = `no account has ${applicant.email} or ${applicant.ein}`;
    wrong('missing_account', answer.requestId ?? '', words);
  }
}

function checkMessageIds(mails: readonly MailInRun[], { wrong }: Judging): void {
  for (const [to, same] of Map.groupBy(mails, (mail) => mail.to))
    if (new Set(same.map(({ messageId }) => messageId)).size > 1)
      wrong('doubled_mail', to, 'was mailed again with another Message-ID');
}

/** Mails and stops are timed by different processes. */
const CLOCK_SLACK_MS = 1_500;
/** A processor that ran this long after a mail, with its database there, must have noted it. */
const STOP_WITHIN_MS = 15_000;

/** Why a second mail went out, as docs/decisions/0002 lists it; no run asks for a resend. */
const causes: Readonly<Record<SecondMail['cause'], string>> = {
  ambiguous_data: 'the session of the one before was cut after the content',
  crash: 'the processor of the one before was killed or frozen before it wrote down the result',
  resent: 'somebody asked for it',
};

/** Says whether the run did at that time what the ledger claims. */
function isExplained(
  account: Account,
  { before, handOver, cause }: SecondMail,
  mails: readonly SentMail[],
  { ambiguous, mailStops, processorStops, databaseBack }: RunFacts,
): boolean {
  const from = before.startedAt.getTime() - CLOCK_SLACK_MS;
  const within = (to: number) => (at: number) => at > from && at < to;
  const next = handOver.startedAt.getTime();
  if (cause === 'ambiguous_data') {
    const during = within((before.endedAt?.getTime() ?? next) + CLOCK_SLACK_MS);
    return ambiguous.get(account.emailNormalized)?.some(during) === true || mailStops.some(during);
  }
  const sent = mails.findLast(({ at }) => at < next)?.at ?? next;
  const noted = Math.max(sent, ...databaseBack.filter(within(next)));
  return cause === 'crash' && processorStops.some(within(Math.min(next, noted + STOP_WITHIN_MS)));
}
