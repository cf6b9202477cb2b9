/** What orders about requests select, and how they write. */
import type { Account } from '../account/account.ts';
import { defined } from '../platform/process/defined.ts';
import { pause } from '../platform/process/deadline.ts';
import type { Search } from '../submission/support-queries.ts';
import { lookUp, type FoundSubmission } from '../view/look-up.ts';
import { planOf, stateAfter, type Order, type Plan } from '../view/plans.ts';
import { OrderRefused, type Given, type Office, type OrderDesk, type Words } from './order.ts';

/** A request with its account. */
export interface RequestTarget {
  readonly record: FoundSubmission;
  readonly account: Account | undefined;
  /** So is its partner. */
  readonly onHold: boolean;
}

export async function requestTarget(
  { id = '' }: Given,
  { desk, clock }: Office,
): Promise<RequestTarget> {
  const record = await lookUp(id, desk, clock.now());
  if ('missing' in record) throw new OrderRefused(record.missing);
  const [account, onHold] = await Promise.all([
    desk.accounts.find('requestId', record._id),
    record.partnerId !== undefined && desk.holds.isSet(record.partnerId),
  ]);
  return { record, account, onHold };
}

/** Without personal data. */
export function requestSeen({ record, account, onHold }: RequestTarget): readonly unknown[] {
  const { state, version, pastRetention } = record;
  const { _id, mailVersion, linkVersion, notifiedAt, releasedAt, closedAt } = account ?? {};
  const used = account?.activation?.usedAt;
  const link = [_id, mailVersion, linkVersion, notifiedAt, releasedAt, closedAt, used];
  return [record._id, state, version, pastRetention, onHold, ...link, account?.mail?.begun];
}

export const planned =
  (order: Order) =>
  ({ record, account }: RequestTarget, _given: Given, { clock }: Office): Plan =>
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
    ...defined({ would: would && `${accountId} of ${id} (${state}): ${would}` }),
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

/**
 * Before the account is changed: it may have been read after the e-mail of another order, and the
 * record before that order. Then nothing would send what the account wants.
 */
export async function isUnchanged(
  { record: { _id, state, version, pastRetention } }: RequestTarget,
  { submissions }: Pick<OrderDesk, 'submissions'>,
): Promise<boolean> {
  const now = await submissions.byId(_id);
  return now === undefined
    ? pastRetention === true
    : now.state === state && now.version === version;
}

/** A record that is past its retention is made again. Returns how many were unchanged. */
export async function move(
  targets: readonly RequestTarget[],
  event: 'retry' | 'resend' | 'correct_address' | 'close' | 'reopen',
  reason: string,
  { moves }: OrderDesk,
): Promise<number> {
  const past = targets.filter(({ record }) => record.pastRetention === true);
  const remade = await those(past, ({ record: { pastRetention: _past, ...record } }) =>
    moves.remake(record, reason),
  );
  const ready = targets.flatMap((target) => {
    const { record, account } = target;
    const to = past.includes(target) ? undefined : stateAfter(record, account, event);
    return to === undefined ? [] : [{ seen: record, to, accountId: account?._id }];
  });
  return remade.length + (await moves.moveAll(event, ready, reason));
}

/** Those of which `act` says that it did something. */
export async function those<T>(
  targets: readonly T[],
  act: (target: T) => Promise<boolean>,
): Promise<T[]> {
  const done: T[] = [];
  for (const target of targets) if (await act(target)) done.push(target);
  return done;
}

/** All of a query: at most `limit`, and `rate` a second, each part read when it is its turn. */
export async function* matching(
  search: Search,
  {
    limit,
    rate,
    stop,
  }: { readonly limit: number; readonly rate: number; readonly stop: AbortSignal },
  { desk, clock }: Office,
): AsyncGenerator<RequestTarget[]> {
  const held = new Set((await desk.holds.list()).map(({ _id }) => _id));
  const startedMs = clock.monotonicMs();
  let given = 0;
  for await (const page of desk.submissions.pages(search, { bodies: false })) {
    const size = Math.min(page.length, rate);
    for (let from = 0; from < page.length; from += size) {
      const part = page.slice(from, from + size).slice(0, limit - given);
      if (part.length === 0) return;
      const found = await desk.accounts.ofPerson({}, new Set(part.map(({ _id }) => _id)));
      const accounts = new Map(found.map((account) => [account.requestId, account]));
      yield part.map((record) => ({
        record,
        account: accounts.get(record._id),
        onHold: held.has(record.partnerId ?? ''),
      }));
      given += part.length;
      const aheadMs = (given * 1_000) / rate - (clock.monotonicMs() - startedMs);
      if (aheadMs > 0) await pause(aheadMs, stop);
    }
  }
}
