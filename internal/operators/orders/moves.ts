/** Orders about one request and its account, or about many. */
import { normalizeEmail } from '../../application/fields.ts';
import { areBouncesAlike, planOfBounce, reportBounce } from '../../mail/late-bounce.ts';
import { accountOfMessageId } from '../../mail/message.ts';
import { DAY_MS, later } from '../../platform/process/clock.ts';
import { pause } from '../../platform/process/deadline.ts';
import { defined } from '../../platform/process/defined.ts';
import { findingName } from '../../self-audit/rules.ts';
import { suspectsAt } from '../../self-audit/walk.ts';
import { isBounced, type Fact } from '../../submission/submission.ts';
import { isOpen } from '../../submission/states.ts';
import type { Search } from '../../submission/support-queries.ts';
import { lookUp } from '../view/look-up.ts';
import {
  asideWords,
  bounceWords,
  closeWords,
  correctionWords,
  dueWords,
  releaseWords,
  type Correction,
  type CorrectionLeft,
  type RequestTarget,
} from '../view/order-words.ts';
import { isOlderResendOfMany } from '../view/older-words.ts';
import { linkUsed, planOf, stateAfter, type Plan, type PlannedOrder } from '../view/plans.ts';
import { utc } from '../view/words.ts';
import {
  openOrder,
  OrderRefused,
  type Given,
  type OpenOrder,
  type OrderContext,
  type OrderStores,
} from './order.ts';

/** Within this time, a repeated order of many resends nothing twice. */
const RESENT_MS = DAY_MS;
/** A try fails if another order wrote to the account between its read and its release. */
const RELEASE_TRIES = 5;

export async function requestTarget(
  { id = '' }: Given,
  { stores, clock }: OrderContext,
): Promise<RequestTarget> {
  const record = await lookUp(id, stores, clock.now());
  if ('missing' in record) throw new OrderRefused(record.missing);
  const [account, onHold] = await Promise.all([
    stores.accounts.find('requestId', record._id),
    record.partnerId !== undefined && stores.holds.isSet(record.partnerId),
  ]);
  return { record, account, onHold };
}

/** Holds no personal data. */
function requestSeen({ record, account, onHold }: RequestTarget): readonly unknown[] {
  const { state, version, pastRetention } = record;
  const { _id, mailVersion, linkVersion, notifiedAt, releasedAt, closedAt } = account ?? {};
  const used = account?.activation?.usedAt;
  const link = [_id, mailVersion, linkVersion, notifiedAt, releasedAt, closedAt, used];
  return [record._id, state, version, pastRetention, onHold, ...link, account?.mail?.begun];
}

const planned = (
  order: PlannedOrder,
  { record, account }: RequestTarget,
  { clock }: OrderContext,
): Plan => planOf(order, record, account, clock.now());

export async function retry(given: Given, context: OrderContext): Promise<OpenOrder> {
  const target = await requestTarget(given, context);
  const plan = planRetry(target, given, context);
  const words = dueWords(target, plan);
  const act = async () => (await retryAll([target], given, context)) === 1;
  return openOrder('retry', { seen: requestSeen(target), plan, words, act }, context);
}

export const planRetry = (target: RequestTarget, _given: Given, context: OrderContext): Plan =>
  planned('retry', target, context);

export async function retryAll(
  targets: readonly RequestTarget[],
  _given: Given,
  { stores }: OrderContext,
): Promise<number> {
  const open = targets.filter(({ record }) => isOpen(record.state));
  const others = targets.filter(({ record }) => !isOpen(record.state));
  const hurried = await those(open, ({ record }) => stores.moves.hurry(record));
  const ready = await those(others, (target) => wantsMail(target, stores));
  const reason = `operator retry by ${stores.trail.by}`;
  return hurried.length + (await move(ready, 'retry', reason, stores));
}

/**
 * Before a retry: orders an e-mail in place of one that came back. False if the account has
 * changed.
 */
async function wantsMail(target: RequestTarget, stores: OrderStores): Promise<boolean> {
  const { record, account } = target;
  if (account?.notifiedAt === undefined || linkUsed(account) || !isBounced(record)) return true;
  return wish(target, stores, 'mailAgain');
}

/**
 * Orders an e-mail; false if account or request has changed. Written before the record, so that a
 * repeat works after an interruption.
 */
async function wish(
  target: RequestTarget,
  stores: OrderStores,
  how: 'mailAgain' | 'reopen',
): Promise<boolean> {
  return (await isUnchanged(target, stores)) && stores.corrections[how](target.account!);
}

export async function resend(given: Given, context: OrderContext): Promise<OpenOrder> {
  const target = await requestTarget(given, context);
  const plan = planResend(target, given, context);
  const words = dueWords(target, plan, 'the same link is mailed again');
  const act = async () => (await resendAll([target], given, context)) === 1;
  return openOrder('resend', { seen: requestSeen(target), plan, words, act }, context);
}

export const planResend = (target: RequestTarget, given: Given, context: OrderContext): Plan =>
  resentBefore(target, given, context) ?? planned('resend', target, context);

export async function resendAll(
  targets: readonly RequestTarget[],
  given: Given,
  { stores }: OrderContext,
): Promise<number> {
  const reason = resendFact(given, stores.trail.by);
  const resent = await those(targets, async (target) => {
    if (!(await wish(target, stores, 'mailAgain'))) return false;
    const event = target.record.state === 'completed' ? 'resend' : 'retry';
    return (await move([target], event, reason, stores)) === 1;
  });
  return resent.length;
}

function resendFact({ id, why = '' }: Given, by: string): Fact {
  if (id !== undefined) return { code: 'resend', words: `operator resend by ${by}` };
  const words = `operator resend of many${why && ` (${why})`} by ${by}`;
  return { code: 'resent_with_many', of: why, words };
}

/** A repeated order of many mails nobody twice. */
function resentBefore(
  { record }: RequestTarget,
  given: Given,
  { clock }: OrderContext,
): Plan | undefined {
  if (given.id !== undefined) return undefined;
  const since = later(clock.now(), -RESENT_MS);
  const { why = '' } = given;
  const done = record.history.findLast(({ at, reason, code, of }) => {
    const isOurs = code === 'resent_with_many' && of === why;
    return at > since && (isOurs || (code === undefined && isOlderResendOfMany(reason, why)));
  });
  return (
    done && {
      whyNot: `was resent ${utc(done.at)} UTC by this order: another --why makes another order`,
    }
  );
}

export async function close(given: Given, context: OrderContext): Promise<OpenOrder> {
  const target = await requestTarget(given, context);
  const plan = planClose(target, given, context);
  const words = closeWords(target, plan);
  const act = async () => (await closeAll([target], given, context)) === 1;
  return openOrder('close', { seen: requestSeen(target), plan, words, act }, context);
}

export const planClose = (target: RequestTarget, _given: Given, context: OrderContext): Plan =>
  planned('close', target, context);

export async function closeAll(
  targets: readonly RequestTarget[],
  { why = '' }: Given,
  { stores }: OrderContext,
): Promise<number> {
  await move(targets, 'close', `operator closed it: ${why}, by ${stores.trail.by}`, stores);
  const now = await stores.submissions.checked(targets.map(({ record }) => record._id));
  const closed = new Set(now.flatMap(({ _id, state }) => (state === 'closed' ? [_id] : [])));
  const accounts = targets.flatMap(({ record, account }) =>
    account !== undefined && closed.has(record._id) ? [account._id] : [],
  );
  await stores.corrections.close(accounts);
  return closed.size;
}

export async function reopen(given: Given, context: OrderContext): Promise<OpenOrder> {
  const target = await requestTarget(given, context);
  const { stores } = context;
  const plan = planned('reopen', target, context);
  const words = dueWords(target, plan, 'it is worked on again');
  const act = async (): Promise<boolean> => {
    if (target.account !== undefined && !(await wish(target, stores, 'reopen'))) return false;
    const reason = `operator reopened it, by ${stores.trail.by}`;
    return (await move([target], 'reopen', reason, stores)) === 1;
  };
  return openOrder('reopen', { seen: requestSeen(target), plan, words, act }, context);
}

export async function bounce(given: Given, context: OrderContext): Promise<OpenOrder> {
  const mail = mailOf(given);
  const target = await bouncedTarget(given, mail?.accountId, context);
  const { record, account } = target;
  const { moves, trail, submissions } = context.stores;
  const reported = defined({ status: given.status, mail });
  const usual = record.test
    ? planned('bounce', target, context)
    : planOfBounce(record, account, reported);
  const mails = usual.to === 'undeliverable' && !record.test ? [record] : [];
  const alike = await areBouncesAlike(given.status, mails, context.clock.now(), submissions);
  const plan: Plan = alike ? { to: 'dead_lettered' } : usual;
  const act = (): Promise<boolean> => reportBounce(record, { ...reported, alike }, trail.by, moves);
  const words = bounceWords(target, plan, alike);
  return openOrder('bounce', { seen: requestSeen(target), plan, words, act }, context);
}

function mailOf({ messageId }: Given): ReturnType<typeof accountOfMessageId> {
  const mail = messageId === undefined ? undefined : accountOfMessageId(messageId);
  if (messageId !== undefined && mail === undefined)
    throw new OrderRefused('the Message-ID is none of ours: nothing was changed');
  return mail;
}

async function bouncedTarget(
  given: Given,
  accountId: string | undefined,
  context: OrderContext,
): Promise<RequestTarget> {
  const { id, email } = given;
  const recipient =
    email === undefined
      ? undefined
      : await context.stores.accounts.find('emailNormalized', normalizeEmail(email));
  if (email !== undefined && recipient === undefined)
    throw new OrderRefused('no account has this address: nothing was changed');
  return requestTarget({ id: id ?? accountId ?? recipient?.requestId ?? '' }, context);
}

export async function correctEmail(given: Given, context: OrderContext): Promise<OpenOrder> {
  const { email = '' } = given;
  const found = await requestTarget(given, context);
  const { account } = found;
  let plan = planned('correctEmail', found, context);
  if (plan.to !== undefined) {
    const other = await context.stores.accounts.find('emailNormalized', normalizeEmail(email));
    if (other !== undefined && other._id !== account?._id)
      throw new OrderRefused(
        `the address belongs to another account (${other.requestId}); nothing was changed`,
      );
  }
  const target = { ...found, email, left: leftToDo(found, email) };
  if (plan.to !== undefined && target.left === 'nothing')
    plan = { whyNot: `has account ${account?._id}, which has this address already` };
  const words = correctionWords(target, context.reveal === true);
  const act = () => correct(target, context.stores);
  const seen = requestSeen(target);
  return openOrder('account correct-email', { seen, plan, words, act }, context);
}

/** A repeat completes a correction that was cut off after the account was written. */
function leftToDo({ record, account }: RequestTarget, email: string): CorrectionLeft {
  if (account?.email !== email) return 'everything';
  const corrected = account.linkVersion !== undefined;
  if (corrected && account.activation === undefined && account.notifiedAt === undefined)
    return 'record_and_mail';
  const { applicant } = record;
  return applicant !== undefined && applicant.email !== normalizeEmail(email)
    ? 'record'
    : 'nothing';
}

/** False if the request or its account has changed. */
async function correct(target: Correction, stores: OrderStores): Promise<boolean> {
  const { record, account, email, left } = target;
  const { moves, corrections, trail } = stores;
  // A worker about to send to the old address must lose its claim first.
  const takes = left !== 'record' && isOpen(record.state);
  const seen = takes ? await moves.claim(record) : (await isUnchanged(target, stores)) && record;
  if (!seen || account === undefined) return false;
  if (left === 'everything' && !(await corrections.correctEmail(account, email, takes)))
    return false;
  const applicant = { ...record.applicant, email: normalizeEmail(email) };
  await moves.correctEmail(record._id, applicant.email);
  if (left === 'record') return true;
  const corrected = { ...target, record: { ...record, ...seen, applicant } };
  const reason = `operator corrected the address, by ${trail.by}`;
  if ((await move([corrected], 'correct_address', reason, stores)) === 1) return true;
  // Another operator's order came first.
  if ((await stores.accounts.find('_id', account._id))?.email !== email) return false;
  if ((await stores.submissions.byId(record._id))?.state === 'account_created') return true;
  throw new OrderRefused(
    `${account._id} has the address and its old link is void, but ${record._id} changed meanwhile: give the same command again, and it mails the new link`,
  );
}

export async function release(given: Given, context: OrderContext): Promise<OpenOrder> {
  const target = await requestTarget(given, context);
  const { record, account } = target;
  const { stores } = context;
  const plan = planned('release', target, context);
  const act = async (): Promise<boolean> => {
    const moved = { seen: record, accountId: account?._id };
    const reason = `operator release by ${stores.trail.by}`;
    const isFirst =
      record.pastRetention === true
        ? await isUnchanged(target, stores)
        : await stores.moves.move('release', moved, reason);
    return isFirst && releaseAccount(account!._id, stores);
  };
  const words = releaseWords(target);
  return openOrder('account release', { seen: requestSeen(target), plan, words, act }, context);
}

/** An order that lost to this one may still have written to the account. False if it was erased. */
async function releaseAccount(
  accountId: string,
  { accounts, corrections }: OrderStores,
): Promise<boolean> {
  for (let tries = 1; tries <= RELEASE_TRIES; tries += 1) {
    const account = await accounts.find('_id', accountId);
    if (account === undefined) return false;
    if (account.releasedAt !== undefined || (await corrections.release(account))) return true;
  }
  throw new Error('the account changed each time');
}

/** The entry in the trail puts a finding aside; nothing else is written. */
export async function aside({ id = '' }: Given, context: OrderContext): Promise<OpenOrder> {
  const { found, accounts } = await findingsAt(id, context);
  if (found.length === 0) throw new OrderRefused(`the audit finds nothing at ${id}`);
  const put = await context.stores.aside.of(found.map(findingName));
  const [entry] = put.values();
  const plan = found.every((one) => put.has(findingName(one)))
    ? { nothing: `${entry?.by} has put it aside already` }
    : { to: 'aside' };
  const requestId = id.startsWith('req_') ? id : accounts[0]?.requestId;
  const words = asideWords({ id, requestId, found });
  const act = async () => String((await findingsAt(id, context)).found) === String(found);
  return openOrder('aside', { seen: found, plan, words, act }, context);
}

/** Finds more than the audit, because the retention is not known here. */
const findingsAt = (id: string, { stores, clock }: OrderContext) =>
  suspectsAt([id], { ...stores, accountRequestsKeptMs: Infinity }, clock);

/**
 * Checked before the account is changed: after another order between the reads of record and
 * account, nothing would send the e-mail.
 */
async function isUnchanged(
  { record: { _id, state, version, pastRetention } }: RequestTarget,
  { submissions }: Pick<OrderStores, 'submissions'>,
): Promise<boolean> {
  const now = await submissions.byId(_id);
  return now === undefined
    ? pastRetention === true
    : now.state === state && now.version === version;
}

/** Recreates records past their retention. Returns how many targets were unchanged. */
async function move(
  targets: readonly RequestTarget[],
  event: 'retry' | 'resend' | 'correct_address' | 'close' | 'reopen',
  reason: string | Fact,
  { moves }: OrderStores,
): Promise<number> {
  const past = targets.filter(({ record }) => record.pastRetention === true);
  const remade = await those(past, ({ record: { pastRetention: _past, ...record } }) =>
    moves.remake(event, record, reason),
  );
  const ready = targets.flatMap((target) => {
    const { record, account } = target;
    const to = past.includes(target) ? undefined : stateAfter(record, account, event);
    return to === undefined ? [] : [{ seen: record, to, accountId: account?._id }];
  });
  return remade.length + (await moves.moveAll(event, ready, reason));
}

/** The targets for which `act` resolved to true. */
async function those<T>(targets: readonly T[], act: (target: T) => Promise<boolean>): Promise<T[]> {
  const done: T[] = [];
  for (const target of targets) if (await act(target)) done.push(target);
  return done;
}

/** The targets of a search: at most `limit`, and `rate` a second, read part by part. */
export async function* matching(
  search: Search,
  {
    limit,
    rate,
    stop,
  }: { readonly limit: number; readonly rate: number; readonly stop: AbortSignal },
  { stores, clock }: OrderContext,
): AsyncGenerator<RequestTarget[]> {
  const held = new Set((await stores.holds.list()).map(({ _id }) => _id));
  const startedMs = clock.monotonicMs();
  let given = 0;
  for await (const page of stores.submissions.pages(search, { bodies: false })) {
    const size = Math.min(page.length, rate);
    for (let from = 0; from < page.length; from += size) {
      const part = page.slice(from, from + size).slice(0, limit - given);
      if (part.length === 0) return;
      const found = await stores.accounts.ofPerson({}, new Set(part.map(({ _id }) => _id)));
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
