/**
 * Rules of what partners were answered against what is stored and mailed in the end. They do not
 * trust a mark that the service set: what excuses a finding is known to those who caused it.
 */
import { hash } from 'node:crypto';
import type { Account } from '../../internal/account/account.ts';
import { handOversOf, mayHaveArrived } from '../../internal/account/mail-ledger.ts';
import { MAX_AMBIGUOUS } from '../../internal/processor/verdict.ts';
import { checkAccount, checkAlone, kinds, type Kind } from '../../internal/self-audit/rules.ts';
import type { SubmissionRecord } from '../../internal/submission/submission.ts';

const KEPT_BYTES = 65_000;

/** A request, and what it was answered. */
export interface Asked {
  readonly id: string;
  readonly key: string | undefined;
  readonly body: Buffer;
  /** Only a part of the body was sent. */
  readonly cut: boolean;
  /** Undefined without an answer. */
  readonly status: number | undefined;
  /** The record that the answer names, else its own. */
  readonly record: SubmissionRecord | undefined;
  /** Its own records: a repeat of a key has none. */
  readonly stored: readonly SubmissionRecord[];
}

export interface Mailed {
  /** Undefined if the recipient has no account. */
  readonly accountId: string | undefined;
  readonly to: string;
  readonly startedAt: number;
}

export interface History<Request extends Asked = Asked, Mail extends Mailed = Mailed> {
  readonly asked: readonly Request[];
  readonly records: ReadonlyMap<string, SubmissionRecord>;
  readonly accounts: readonly Account[];
  readonly erasedAccounts: readonly Account[];
  readonly mails: readonly Mail[];
  /** What an erasure took of this record. */
  readonly erased: (record: SubmissionRecord, body: Buffer) => 'all' | 'body' | undefined;
  /** Says whether a fault kept ingest from withdrawing the record. */
  couldNotWithdraw(asked: Request, record: SubmissionRecord): boolean;
  /**
   * Whether the request surely stood first: it was stored before any worker could have looked for the
   * account of the later one, and kept its place.
   */
  keptItsPlace(earlier: SubmissionRecord, account: Account): boolean;
  /** When an operator reopened the request; undefined if at an unknown time. */
  reopened(requestId: string): readonly number[] | undefined;
  /** Says which second mail no fault explains. */
  unexplained(account: Account, mails: readonly Mail[]): string | undefined;
}

export type Broken =
  | Kind
  | 'lost'
  | 'altered'
  | 'wrong_state'
  | 'processed_after_500'
  | 'doubled_key'
  | 'doubled_account'
  | 'overtaken'
  | 'wrong_account'
  | 'wrong_reason'
  | 'missing_mail'
  | 'doubled_mail'
  | 'stray_mail'
  | 'untrue_ledger';

/** `id` is of a request, a key or a recipient. */
export type Report = (kind: Broken, id: string, words: string) => void;

export function judgeHistory<Request extends Asked, Mail extends Mailed>(
  history: History<Request, Mail>,
  report: Report,
): void {
  const { accounts, records, erasedAccounts } = history;
  const accountOf = new Map(accounts.map((account) => [account.requestId, account]));
  checkUnique(accounts, report);
  for (const asked of history.asked) checkAnswer(asked, { history, accountOf, report });
  const keyed = history.asked.filter(({ key }) => key !== undefined);
  for (const [key = '', tries] of Map.groupBy(keyed, (asked) => asked.key))
    checkKey(key, tries, history.erased, report);
  for (const record of records.values()) {
    checkRecord(record, { records, accountOf, report });
    checkOrder(record, accountOf, history.keptItsPlace.bind(history), report);
  }
  const mailsOf = Map.groupBy(history.mails, ({ accountId }) => accountId);
  for (const account of [...accounts, ...erasedAccounts]) {
    checkMails(account, mailsOf.get(account._id) ?? [], history, report);
    mailsOf.delete(account._id);
  }
  for (const [{ to }] of mailsOf.values() as Iterable<[Mail]>)
    report('stray_mail', to, 'was mailed, and has no account');
}

function checkUnique(accounts: readonly Account[], report: Report): void {
  for (const key of ['emailNormalized', 'ein', 'requestId'] as const) {
    for (const [value, same] of Map.groupBy(accounts, (account) => account[key])) {
      const ids = same.map(({ _id }) => _id).join(', ');
      for (const { requestId } of same.slice(1))
        report('doubled_account', requestId, `has an account; ${ids} share the ${key} ${value}`);
    }
  }
}

function checkAnswer<Request extends Asked>(
  asked: Request,
  {
    history,
    accountOf,
    report,
  }: {
    readonly history: Pick<History<Request>, 'asked' | 'erased' | 'couldNotWithdraw'>;
    readonly accountOf: ReadonlyMap<string, Account>;
    readonly report: Report;
  },
): void {
  const { id, key, body, status, record } = asked;
  const wrong = (kind: Broken, words: string): void => report(kind, id, `was answered ${words}`);
  const isKept = status === 202 || status === 400;
  if (isKept && record === undefined) wrong('lost', `${status} and is lost`);
  if (isKept && record !== undefined) {
    const { state, httpStatus } = record;
    const fits = (state === 'malformed') === (status === 400) && httpStatus === status;
    if (state === 'withdrawn' || state === 'refused')
      wrong('wrong_state', `${status} and then ${state}`);
    else if (!fits) wrong('wrong_state', `${status}, and is ${state} with status ${httpStatus}`);
  }
  const isWhole = isKept || (status === undefined && record?.body !== undefined && !asked.cut);
  if (isWhole && record !== undefined && !isWhatWasSent(record, body, history.erased(record, body)))
    report('altered', record._id, `is not what was sent: ${body.length} bytes`);
  if (status === 422 && key === undefined) wrong('wrong_answer', '422 without a key');
  if (status !== 500) return;
  const account = accountOf.get(record?._id ?? id);
  const isGone = record === undefined || record.state === 'withdrawn';
  if (isGone && account === undefined) return;
  // A later try of the key has adopted the record.
  const isTriedAgain =
    key !== undefined && history.asked.some((other) => other !== asked && other.key === key);
  if (record?.adopted === true && isTriedAgain) return;
  if (isGone || !history.couldNotWithdraw(asked, record))
    wrong('processed_after_500', `500 and processed: ${record?.state}, ${account?._id}`);
}

function isWhatWasSent(
  { body, bodyBytes, bodySha256 }: SubmissionRecord,
  sent: Buffer,
  erased: 'all' | 'body' | undefined,
): boolean {
  if (bodySha256 === undefined) return erased === 'all';
  const kept = sent.subarray(0, KEPT_BYTES);
  if (bodySha256 !== hash('sha256', kept, 'hex') || bodyBytes !== sent.length) return false;
  return body === undefined ? erased !== undefined : kept.equals(body.value());
}

/** A key has one live record, whose id is in each 202, and one body. */
function checkKey(
  key: string,
  tries: readonly Asked[],
  erased: History['erased'],
  report: Report,
): void {
  const wrong = (words: string): void => report('doubled_key', key, words);
  const own = tries.flatMap(({ stored }) => stored);
  const live = own.filter(({ state }) => state !== 'withdrawn' && state !== 'malformed');
  if (live.length > 1) wrong(`has the live records ${live.map(({ _id }) => _id).join(', ')}`);
  const accepted = tries.filter(({ status }) => status === 202);
  const answers = new Set(accepted.map(({ record }) => record?._id));
  if (answers.size > 1) wrong(`was answered 202 with ${[...answers].join(', ')}`);
  if (accepted.some(({ body }) => !body.equals(accepted[0]!.body)))
    wrong('was answered 202 for two bodies');
  const ids = new Set(own.map(({ _id }) => _id));
  if (live.some(({ reasons = [] }) => reasons.some(({ duplicateOf = '' }) => ids.has(duplicateOf))))
    report('wrong_reason', key, 'has a submission that is called a duplicate of itself');
  for (const { id, status, body, record } of tries) {
    if (status !== 422) continue;
    const isOther = tries.some(
      (one) => !one.body.equals(body) && one.stored.some(({ _id }) => _id === record?._id),
    );
    const isGone =
      record !== undefined && (record.state === 'withdrawn' || erased(record, body) === 'all');
    if (!isOther && !isGone)
      report('wrong_answer', id, `was answered 422 because of ${record?._id}`);
  }
}

function checkRecord(
  record: SubmissionRecord,
  {
    records,
    accountOf,
    report,
  }: {
    readonly records: ReadonlyMap<string, SubmissionRecord>;
    readonly accountOf: ReadonlyMap<string, Account>;
    readonly report: Report;
  },
): void {
  const { _id: id, state, reasons = [] } = record;
  const account = accountOf.get(id);
  for (const kind of [...checkAlone(record), ...checkAccount(record, account)])
    if (kinds[kind].weight === 'problem') report(kind, id, `${state}: ${kinds[kind].meaning}`);
  if (record.erasedAt !== undefined) return;
  if (account !== undefined && ![undefined, account._id].includes(record.accountId))
    report('account_disagrees', id, `names ${record.accountId}, which is not its own`);
  if (state !== 'rejected') return;
  if (reasons.length === 0) report('wrong_reason', id, 'is rejected without a reason');
  for (const { duplicateOf } of reasons) {
    if (duplicateOf === undefined) continue;
    const stands = accountOf.has(duplicateOf) || records.get(duplicateOf)?.erasedAt !== undefined;
    if (duplicateOf === id || !stands)
      report('wrong_reason', id, `is called a duplicate of ${duplicateOf}, which has no account`);
  }
}

/** An EIN never belongs to a later request while an earlier one was due. */
function checkOrder(
  record: SubmissionRecord,
  accountOf: ReadonlyMap<string, Account>,
  keptItsPlace: History['keptItsPlace'],
  report: Report,
): void {
  const { _id: id, reasons = [] } = record;
  for (const { code, duplicateOf = '' } of reasons) {
    const account = code === 'duplicate_ein' ? accountOf.get(duplicateOf) : undefined;
    if (account !== undefined && duplicateOf > id && keptItsPlace(record, account))
      report('overtaken', id, `came before ${duplicateOf}, whose account stands in its way`);
  }
}

/** One mail for each account, except for operators' wishes and explained second ones. */
function checkMails<Request extends Asked, Mail extends Mailed>(
  account: Account,
  mails: readonly Mail[],
  history: History<Request, Mail>,
  report: Report,
): void {
  const { requestId: id, mail: ledger = { begun: 0, possible: 0 } } = account;
  const record = history.records.get(id);
  const isErased = history.erasedAccounts.includes(account);
  if (record === undefined && !isErased)
    report('wrong_account', id, `has no record, and the account ${account._id}`);
  const { email } = account.released ?? account;
  // A released account is owed no e-mail: a release may overtake that of a correction.
  const hasMail = mails.some(
    ({ to }) => account.releasedAt !== undefined || to.toLowerCase() === email.toLowerCase(),
  );
  if (record?.state === 'completed' && record.erasedAt === undefined && !hasMail)
    report('missing_mail', id, 'is completed without a mail to its address');
  const { begun, possible } = ledger;
  if (mails.length > possible)
    report('untrue_ledger', id, `was mailed ${mails.length} times; its ledger says ${possible}`);
  const entries = handOversOf(account.mail);
  const arrived = entries.filter(mayHaveArrived).length;
  if (begun < entries.length || (begun === entries.length && possible !== arrived))
    report('untrue_ledger', id, `has ${begun} begun, and ${entries.length} in its ledger`);
  const reopened = history.reopened(id);
  if (reopened === undefined) return;
  const periodOf = ({ startedAt }: Mail): number => reopened.filter((at) => at <= startedAt).length;
  for (const some of Map.groupBy(mails, (mail) => `${periodOf(mail)} ${mail.to}`).values())
    if (some.length > MAX_AMBIGUOUS)
      report('doubled_mail', id, `was mailed ${some.length} times without an operator's wish`);
  const words = history.unexplained(account, mails);
  if (words !== undefined) report('doubled_mail', id, words);
}
