/** What follows from a bounce that comes after the relay had taken the e-mail. */
import type { Account } from '../account/account.ts';
import { handOversOf } from '../account/mail-ledger.ts';
import { domainOf } from '../application/fields.ts';
import { mailReason } from '../application/reasons.ts';
import { DAY_MS, later } from '../platform/process/clock.ts';
import type { OperatorMoves, Seen } from '../submission/operator-moves.ts';
import { isBounced, type SubmissionRecord } from '../submission/submission.ts';
import type { Applied, SupportQueries } from '../submission/support-queries.ts';
import type { accountOfMessageId } from './message.ts';
import { isOfRecipient, reasonOf } from './relay-answers.ts';
import { ALIKE_DOMAINS, ALIKE_RECIPIENTS } from './relay-trust.ts';

export interface LateBounce {
  /** Of RFC 3463. */
  readonly status?: string;
  /** Which e-mail came back, if its Message-ID is known. */
  readonly mail?: NonNullable<ReturnType<typeof accountOfMessageId>>;
  /** When it came back, if known. */
  readonly at?: Date;
  /** It is about us, as of `areBouncesAlike`. */
  readonly alike?: boolean;
}

/** `whyNot` continues a sentence that begins with the request's id. */
interface BouncePlan {
  readonly to?: 'undeliverable' | 'dead_lettered';
  readonly nothing?: string;
  readonly whyNot?: string;
  readonly later?: true;
}

type BouncedRecord = Pick<SubmissionRecord, 'state' | 'stateAt' | 'bouncedAt' | 'erasedAt'> & {
  readonly pastRetention?: true;
};

/** The clocks of a provider and of the database differ by less. */
const CLOCKS_DIFFER_MS = 60_000;

export function planOfBounce(
  record: BouncedRecord,
  account: Account | undefined,
  bounce: LateBounce,
): BouncePlan {
  if (account !== undefined && isOfEarlierMail(account, bounce))
    return {
      nothing: 'it is about an earlier e-mail, which was reported before or followed by another',
    };
  if (account !== undefined && (record.state === 'undeliverable' || isBounced(record)))
    return { nothing: `it is ${record.state} already` };
  const plan = mayBounce(record, account);
  return plan.to !== undefined && !isFinal(bounce) ? { to: 'dead_lettered' } : plan;
}

const isFinal = ({ status, alike }: LateBounce): boolean => isOfRecipient(status) && !alike;

/**
 * Whether late bounces of one status are about us, as refusals in the same words are
 * (relay-trust.ts): of different recipients within a day, while fewer e-mails of that time stayed.
 * `mails` are the completed ones that are reported now.
 */
export async function areBouncesAlike(
  status: string | undefined,
  mails: readonly Applied[],
  now: Date,
  submissions: Pick<SupportQueries, 'bouncedWith' | 'countCompleted'>,
): Promise<boolean> {
  if (status === undefined || !isOfRecipient(status) || mails.length === 0) return false;
  const all = [...mails, ...(await submissions.bouncedWith(status, later(now, -DAY_MS)))];
  const ids = [...new Set(all.map(({ _id }) => _id))].toSorted();
  const domains = new Set(all.map(({ applicant }) => domainOf(applicant?.email ?? '')));
  if (ids.length < ALIKE_RECIPIENTS || domains.size < ALIKE_DOMAINS) return false;
  const reported = mails.map(({ _id }) => _id);
  const [first = '', last = ''] = [ids[0], ids.at(-1)];
  return (await submissions.countCompleted(first, last, reported, ids.length)) < ids.length;
}

/** What a bounce with a final status leads to. */
export function mayBounce(
  { state, pastRetention, erasedAt }: BouncedRecord,
  account: Account | undefined,
): Omit<BouncePlan, 'nothing'> {
  if (account === undefined) return { whyNot: `is ${state} and has no account` };
  if (account.releasedAt !== undefined) return { whyNot: 'has an account that was released' };
  if (account.activation?.usedAt !== undefined)
    return { whyNot: 'has a link that has been used, so the e-mail arrived: nothing was changed' };
  if (pastRetention === true) return { whyNot: 'is past its retention: nothing was changed' };
  if (erasedAt !== undefined) return { whyNot: 'was erased: nothing was changed' };
  if (state === 'account_created') {
    return {
      whyNot: `is account_created: its e-mail is not noted as sent yet, so report it again later`,
      later: true,
    };
  }
  return state === 'completed'
    ? { to: 'undeliverable' }
    : { whyNot: `is ${state}: only the e-mail of a completed request can bounce later` };
}

/** A Message-ID shows it, else the time: none comes back before it was handed over. */
function isOfEarlierMail({ mailVersion, mail }: Account, bounce: LateBounce): boolean {
  if (bounce.mail !== undefined) return mailVersion !== bounce.mail.mailVersion;
  const last = handOversOf(mail).at(-1);
  if (bounce.at === undefined || last === undefined) return false;
  return later(bounce.at, CLOCKS_DIFFER_MS) < last.startedAt;
}

/**
 * Moves the request; false if it has changed since. Only the record changes: the account keeps
 * `notifiedAt` until a retry removes it.
 */
export function reportBounce(
  seen: Seen,
  bounce: LateBounce,
  by: string,
  moves: Pick<OperatorMoves, 'move'>,
): Promise<boolean> {
  const { status, alike } = bounce;
  const code = status === undefined ? '' : ` (${status})`;
  const others = alike === true ? ', as most others did' : '';
  const reason = `the e-mail bounced after the mail server had taken it, reported by ${by}${code}${others}`;
  const moved = { seen, accountId: seen.accountId };
  if (!isFinal(bounce)) return moves.move('report_refusal', moved, reason);
  return moves.move('report_bounce', { ...moved, reasons: [mailReason(reasonOf(status))] }, reason);
}
