/** A request that an order is about, with its account. */
import type { Account } from '../account/account.ts';
import { defined } from '../platform/defined.ts';
import type { SubmissionRecord } from '../submission/submission.ts';
import type { FoundSubmission } from '../view/look-up.ts';
import { planOf, type Order, type Plan } from '../view/plans.ts';
import { submissionById, type Call, type Desk } from './command.ts';
import type { Words } from './order.ts';

export interface RequestTarget {
  readonly record: FoundSubmission;
  readonly account: Account | undefined;
  /** So is its partner. */
  readonly onHold: boolean;
}

export async function requestTarget(id: string, { desk, clock }: Call): Promise<RequestTarget> {
  const record = await submissionById(id, desk, clock.now());
  const [account, onHold] = await Promise.all([
    desk.accounts.find('requestId', record._id),
    record.partnerId !== undefined && desk.holds.isSet(record.partnerId),
  ]);
  return { record, account, onHold };
}

/**
 * Before the account is changed: it may have been read after the e-mail of another order, and the
 * record before that order. Then nothing would send what the account wants.
 */
export async function isUnchanged(
  { record: { _id, state, version, pastRetention } }: RequestTarget,
  { submissions }: Pick<Desk, 'submissions'>,
): Promise<boolean> {
  const now = await submissions.byId(_id);
  return now === undefined
    ? pastRetention === true
    : now.state === state && now.version === version;
}

export const planned =
  (order: Order) =>
  ({ record, account }: RequestTarget, { clock }: Call): Plan =>
    planOf(order, record, account, clock.now());

/** Of one request; `would` is about its account. */
export function requestWords(
  { record, account }: RequestTarget,
  { would, done, json }: { readonly would?: string; readonly done: string; readonly json: object },
): Words {
  const { _id: id, state } = record;
  const accountId = account?._id;
  return {
    subject: id,
    about: { requestId: id, ...defined({ accountId }) },
    would: `${accountId} of ${id} (${state}): ${would}`,
    done,
    json: {
      dry: { request_id: id, ...defined({ account_id: accountId, would }) },
      done: { request_id: id, ...json },
    },
  };
}

/** What the request still waits for once it is due; `json` is for programs. */
export function whenDue({ record: { partnerId }, onHold }: RequestTarget): {
  readonly text: string;
  readonly json: { readonly waits_for?: string };
} {
  if (!onHold) return { text: 'it is due now, and a processor takes it by itself', json: {} };
  return {
    text: `it waits: ${partnerId} is on hold until "partner release ${partnerId}"`,
    json: { waits_for: `partner ${partnerId} is on hold` },
  };
}

/** What is stored again of a record that is past its retention. */
export function stored({ pastRetention: _past, ...record }: FoundSubmission): SubmissionRecord {
  return record;
}

/** Returns how many times `act` did something. */
export async function each<T>(
  targets: readonly T[],
  act: (target: T) => Promise<boolean>,
): Promise<number> {
  let done = 0;
  for (const target of targets) if (await act(target)) done += 1;
  return done;
}
