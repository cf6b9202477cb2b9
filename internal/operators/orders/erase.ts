/** Removes one applicant's personal data from records, raw bodies and accounts. */
import type { Account } from '../../account/account.ts';
import { isEmailAddress, normalizeEin, normalizeEmail } from '../../application/fields.ts';
import { claimedIn } from '../../application/parse-application.ts';
import { endingOf } from '../../application/sandbox-endings.ts';
import { defined } from '../../platform/process/defined.ts';
import { isOpen } from '../../submission/states.ts';
import type { SubmissionRecord } from '../../submission/submission.ts';
import type { PersonalRecord } from '../../submission/support-queries.ts';
import { ALIKE_LISTED, NO_REGISTER, type Alike } from '../view/order-words.ts';
import { claimEnd } from '../view/plans.ts';
import { mentions, type Person } from './find-person.ts';
import type { Many } from './many.ts';
import { EMPTY } from './register.ts';
import { requestTarget } from './moves.ts';
import {
  OrderRefused,
  type Given,
  type OrderContext,
  type OrderPlan,
  type Outcome,
} from './order.ts';

const ERASE_TRIES = 5;

/** What an erasure has found, and what it does to it. */
export interface Erasure {
  readonly order: Many<Found>;
  /** Who is erased. */
  readonly person: Person;
  /** Whether a repeat may do what was left. */
  readonly isLeft: () => boolean;
  /** Requests that stay but may be the same person's. */
  readonly alike: () => Promise<Alike>;
  /** Why a restore would bring back what is erased; undefined if it would not. */
  readonly unregistered: string | undefined;
}

/**
 * `given` has one of `id`, `email` and `ein`; a request stands for its address. If `acts` is false,
 * it only finds. Throws `OrderRefused`.
 */
export async function openErasure(
  given: Pick<Given, 'id' | 'email'> & { readonly ein?: string },
  acts: boolean,
  context: OrderContext,
): Promise<Erasure> {
  const work: ErasureWork = {
    acts,
    context,
    ...(await subjectOf(given, context)),
    looked: new Set(),
    gone: new Set(),
    others: new Set(),
    isLeft: false,
  };
  const about = defined({ requestId: work.named });
  const { stores } = context;
  // The list shows where a person is found.
  if (!acts) await stores.trail.revealed({ action: 'erase without --yes', ...about });
  return {
    order: {
      action: 'erase',
      pages: everything(work),
      size: 1,
      acts,
      about,
      plan: (found) => planOf(found, work),
      act: async ([found]) => ((await eraseFound(found!, context)) ? 1 : 0),
      total: await stores.submissions.about(),
      row: (found, plan, outcome) => rowOf(found, plan, outcome, work),
    },
    person: work.person,
    isLeft: () => work.isLeft,
    alike: () => alikeOf(work),
    unregistered: await unregistered(stores),
  };
}

async function unregistered({ register }: OrderContext['stores']): Promise<string | undefined> {
  if (register === undefined) return NO_REGISTER;
  return (await register.isEmpty()) ? EMPTY : undefined;
}

/** A request, or an account without a record. */
export interface ErasureTarget {
  readonly id: string;
  readonly requestId: string;
  readonly relation: Relation;
  readonly record?: PersonalRecord;
}

export interface Found extends ErasureTarget {
  readonly what: 'request' | 'account';
  readonly state: string;
  /** The applicant; empty if only `mentioned`. */
  readonly owner: Person;
}

interface ErasureWork {
  readonly acts: boolean;
  readonly context: OrderContext;
  readonly person: Person;
  /** The request that named the person. */
  readonly named: string | undefined;
  readonly looked: Set<string>;
  readonly gone: Set<string>;
  /** EINs found by address, or addresses found by EIN. */
  readonly others: Set<string>;
  isLeft: boolean;
}

async function subjectOf(
  { id, email, ein }: Parameters<typeof openErasure>[0],
  context: OrderContext,
): Promise<Pick<ErasureWork, 'person' | 'named'>> {
  if (id === undefined) return { person: defined({ email, ein }), named: undefined };
  const { record, account } = await requestTarget({ id }, context);
  if (record.erasedAt !== undefined && account === undefined)
    throw new OrderRefused(`${record._id} was erased before`);
  // Only the address identifies the person, because a mistyped EIN may be another's.
  const own = record.erasedAt === undefined ? applicantOf(record).email : account?.emailNormalized;
  // A value such as "none" may stand in requests of many people.
  const person = own === undefined || !isEmailAddress(own) ? {} : { email: own };
  return { person, named: record._id };
}

/** Yields what the indexes find, then what kept bodies mention, and the named request last. */
async function* everything(work: ErasureWork): AsyncGenerator<Found[]> {
  const { person, named, looked, context } = work;
  const { submissions, accounts } = context.stores;
  const others = (page: readonly PersonalRecord[]) => page.filter(({ _id }) => _id !== named);
  for await (const page of submissions.ofApplicant(person)) {
    const theirs = others(page).filter((record) => isSame(person, applicantOf(record)));
    yield* withAccounts(theirs, 'applicant', work);
  }
  const known = [...(await accounts.ofPerson(person, new Set())), ...(await accounts.released())];
  for (const found of known.map(accountFound)) {
    const { requestId, owner } = found;
    if (!isSame(person, owner) || requestId === named || looked.has(requestId)) continue;
    const record = await submissions.byId(requestId);
    if (record === undefined) yield [found];
    else yield* withAccounts([record], 'applicant', work);
  }
  // A person may appear in a body whose fields are unknown.
  for await (const page of submissions.personalPages())
    yield* withAccounts(others(page), undefined, work);
  // Without the named request a repeat could not find the rest.
  if (named === undefined) return;
  const record = await submissions.byId(named);
  if (record !== undefined) yield* withAccounts([record], 'applicant', work);
  // The record may have expired while its account remains.
  else yield (await accounts.ofPerson({}, new Set([named]))).map(accountFound);
}

function accountFound(account: Account): Found {
  const { _id: id, requestId, releasedAt } = account;
  const { email, ein } = account.released ?? account;
  const state = releasedAt === undefined ? 'in use' : 'released';
  const owner = { email: normalizeEmail(email), ein };
  return { what: 'account', id, requestId, state, relation: 'applicant', owner };
}

/** An account is erased after its request, and not while a worker may create it again. */
async function* withAccounts(
  records: readonly PersonalRecord[],
  known: Relation | undefined,
  { person, named, gone, context }: ErasureWork,
): AsyncGenerator<Found[]> {
  yield records.map((record) => {
    const { _id: id, state } = record;
    const relation = known ?? relationOf(person, record);
    const owner = relation === 'applicant' ? applicantOf(record) : {};
    return { what: 'request', id, requestId: id, state, relation, owner, record };
  });
  const ids = new Set(records.flatMap(({ _id }) => (gone.has(_id) ? [_id] : [])));
  if (ids.size === 0) return;
  const accounts = (await context.stores.accounts.ofPerson({}, ids)).map(accountFound);
  yield accounts.filter(({ owner, requestId }) => isSame(person, owner) || requestId === named);
}

function planOf(
  found: Found,
  { acts, context, named, looked, isLeft }: ErasureWork,
): OrderPlan | undefined {
  const { id, requestId, relation, record } = found;
  if (relation === 'none' || looked.has(id)) return undefined;
  if (acts && isLeft && requestId === named) return { whyNot: 'comes last' };
  if (relation === 'mentioned') {
    // Another applicant's request still needs its body, even as a dead letter.
    const needsBody = isOpen(record!.state) || record!.state === 'dead_lettered';
    return needsBody ? { whyNot: 'still open' } : { to: 'body erased' };
  }
  // The worker may be creating the account, with all that is to be erased.
  const isClaimed = record !== undefined && claimEnd(record, context.clock.now()) !== undefined;
  return acts && isClaimed ? { whyNot: 'being worked on' } : { to: 'erased' };
}

/** Says whether it is erased; false if others changed it meanwhile. */
export async function eraseFound(
  { id, requestId, record, relation }: ErasureTarget,
  { stores, clock }: OrderContext,
): Promise<boolean> {
  if (record === undefined) {
    await stores.corrections.erase(requestId);
    return true;
  }
  if (relation === 'mentioned') return stores.moves.eraseBody(record);
  // A worker's insert may still be pending in the database, although its claim has ended.
  await stores.corrections.takePlace(id);
  let seen = record;
  // Others may move the request between read and write, so it is read again a few times.
  for (let tries = 1; ; tries += 1) {
    if (await stores.moves.move('erase', { seen }, `operator erase by ${stores.trail.by}`))
      return true;
    const now = await stores.submissions.byId(id);
    if (now === undefined || now.erasedAt !== undefined) return now !== undefined;
    if (tries === ERASE_TRIES || claimEnd(now, clock.now()) !== undefined)
      return keepWhole(id, stores);
    seen = now;
  }
}

/** Frees the place of an account, unless another order erased the request meanwhile. */
async function keepWhole(
  id: string,
  { corrections, submissions }: OrderContext['stores'],
): Promise<boolean> {
  await corrections.freePlace(id);
  const isErased = (await submissions.byId(id))?.erasedAt !== undefined;
  if (isErased) await corrections.takePlace(id);
  return isErased;
}

const WOULD_BE: Readonly<Record<string, string>> = {
  erased: 'would be erased',
  'body erased': 'body would be erased',
};

function rowOf(found: Found, plan: OrderPlan, outcome: Outcome, work: ErasureWork) {
  const { what, id, state, owner } = found;
  const { to = '', whyNot = '' } = plan;
  work.looked.add(id);
  work.others.add(otherHalf(work.person, owner));
  if (outcome === 'left' || outcome === 'unsure') work.isLeft = true;
  else if (to === 'erased') work.gone.add(id);
  const result = {
    possible: WOULD_BE[to] ?? '',
    done: to,
    unsure: 'changed',
    left: whyNot,
  }[outcome];
  const row = { what, id, state, result };
  return { json: row, cells: Object.values(row) };
}

/** The EIN after a search by address, otherwise the address; empty if it is nobody's. */
function otherHalf(person: Person, { email = '', ein = '' }: Person): string {
  if (person.ein !== undefined) return isEmailAddress(email) ? email : '';
  return /^[0-9]{9}$/.test(ein) && endingOf(ein) === undefined ? ein : '';
}

/** Requests of the same EIN or address that are left; they may be the same person's. */
async function alikeOf({ person, named, others, gone, context }: ErasureWork): Promise<Alike> {
  const { submissions, accounts } = context.stores;
  const same = person.ein === undefined ? 'ein' : 'email';
  const found = new Set<string>();
  others.delete('');
  for (const half of others) {
    for await (const page of submissions.ofApplicant({ [same]: half }))
      for (const { _id } of page) if (!gone.has(_id) && _id !== named) found.add(_id);
    for (const { _id, requestId } of await accounts.ofPerson({ [same]: half }, new Set()))
      if (!gone.has(_id) && requestId !== named) found.add(requestId);
    if (found.size >= ALIKE_LISTED) break;
  }
  return { same, requestIds: [...found].slice(0, ALIKE_LISTED) };
}

/* Recognises one person in a record: in its applicant and in its raw bytes. */

/**
 * - `applicant`: the record is the person's;
 * - `mentioned`: it is another applicant's, but its bytes mention the person.
 */
export type Relation = 'applicant' | 'mentioned' | 'none';

type Searched = Pick<SubmissionRecord, 'applicant' | 'body' | 'test'>;

/** An EIN by which a test chooses its ending is nobody's. */
const isNobodys = (ein: string | undefined, { test }: Searched): boolean =>
  test === true && endingOf(ein) !== undefined;

export function relationOf(person: Person, record: Searched): Relation {
  if (isNobodys(person.ein, record)) return 'none';
  const own = applicantOf(record);
  if (isSame(person, own)) return 'applicant';
  const valid = {
    email: own.email !== undefined && isEmailAddress(own.email),
    ein: own.ein !== undefined && /^[0-9]{9}$/.test(own.ein),
  };
  // A faulty field such as "Jane <jane@x.test>" cannot belong to another person's account.
  const faulty = [valid.email ? '' : own.email, valid.ein ? '' : own.ein].join('\n');
  if (mentions(person, Buffer.from(faulty))) return 'applicant';
  if (record.body === undefined || !mentions(person, record.body.buffer)) return 'none';
  // Without a valid address of its own, the record's bytes name its applicant; likewise the EIN.
  return (person.email === undefined ? valid.ein : valid.email) ? 'mentioned' : 'applicant';
}

/** A malformed record has no applicant, and an open one of an older version: its body is read. */
export function applicantOf(record: Searched): Person {
  const { email, ein } = record.applicant ?? claimedIn(record.body?.buffer ?? new Uint8Array());
  return {
    ...(email === undefined ? {} : { email: normalizeEmail(email) }),
    ...(ein === undefined || isNobodys(normalizeEin(ein), record)
      ? {}
      : { ein: normalizeEin(ein) }),
  };
}

export function isSame({ email, ein }: Person, owner: Person): boolean {
  return (email !== undefined && owner.email === email) || (ein !== undefined && owner.ein === ein);
}
