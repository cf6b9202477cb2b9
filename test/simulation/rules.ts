/** Rules that hold at every write, and what the world knows to judge its end. */
import type { Account } from '../../internal/account/account.ts';
import { CLAIM_TRUSTED_MS } from '../../internal/processor/claim.ts';
import { checkAlone, kinds as findings } from '../../internal/self-audit/rules.ts';
import {
  eventsOf,
  firstStates,
  isOpen,
  moves,
  type Actor,
} from '../../internal/submission/states.ts';
import {
  FIRST_DUE_MS,
  FIRST_SIGHT_GRACE_MS,
  type SubmissionRecord,
} from '../../internal/submission/submission.ts';
import { judgeHistory, type Asked } from '../support/history-rules.ts';
import type { SentMail } from './relay.ts';
import { judgeEnded } from './told.ts';
import type { Sent, World } from './world.ts';

/** A broken promise. */
export class Violation extends Error {
  override readonly name = 'Violation';
}

function insist(holds: boolean, words: string): asserts holds {
  if (!holds) throw new Violation(words);
}

/** Second mails and late processing, by the documented window that explains them. */
export interface Windows {
  /** The relay hung up after the content. */
  ambiguous: number;
  /** The worker was killed before it noted the 250. */
  killed: number;
  /** The worker was frozen until its claim expired. */
  frozen: number;
  /** The worker was cut off from MongoDB until its claim expired. */
  cutOff: number;
  /** Ingest died or was cut off before its withdrawal. */
  processedAfter500: number;
}

/** Checks every write; keeps violations, because a throw would look like a failed write. */
export function watch(world: World): { readonly violations: Violation[] } {
  const violations: Violation[] = [];
  const check = (holds: boolean, words: string): void => {
    if (!holds) violations.push(new Violation(words));
  };
  world.requests.onWrite = (stored, storedBefore) => {
    const after = stored as unknown as SubmissionRecord;
    const before = storedBefore as unknown as SubmissionRecord | undefined;
    checkDates(after, check);
    if (before === undefined)
      check(firstStates.includes(after.state), `${after._id} began as ${after.state}`);
    else checkStep(before, after, world.mongo.caller, check);
    if (
      world.mongo.caller === 'operator' &&
      before !== undefined &&
      after.history.length > before.history.length
    ) {
      note(world.reopenings, after._id, world.scheduler.now);
    }
    const { now } = world.scheduler;
    if (before === undefined) world.storedAt.set(after._id, now);
    const isClaimed = world.mongo.caller === 'processor' && after.version > (before?.version ?? 0);
    if (isClaimed && !world.claimedAt.has(after._id)) world.claimedAt.set(after._id, now);
    if (after.bouncedAt?.getTime() !== before?.bouncedAt?.getTime())
      world.bounces.set(after._id, world.scheduler.now);
    if (before?.erasedAt === undefined && after.erasedAt !== undefined) {
      const accounts = [...world.erasedAccounts.values(), ...world.allAccounts()];
      const account = accounts.findLast(({ requestId }) => requestId === after._id);
      world.erasures.set(after._id, {
        at: world.scheduler.now,
        possibleMails: account?.mail?.possible ?? 0,
      });
    }
    for (const tell of world.onDue) tell();
  };
  world.accounts.onDelete = (account) =>
    world.erasedAccounts.set(account._id, account as unknown as Account);
  world.accounts.onWrite = (stored, before) => {
    if (before === undefined)
      world.accountsAt.set((stored as unknown as Account).requestId, world.scheduler.now);
    const wished = before?.['notifiedAt'] !== undefined && stored['notifiedAt'] === undefined;
    if (world.mongo.caller === 'operator') world.placesMayChange = true;
    if (world.mongo.caller === 'operator' || wished)
      note(world.mailWishes, stored._id, world.scheduler.now);
  };
  return { violations };
}

const note = (times: Map<string, number[]>, id: string, now: number): void =>
  void times.set(id, [...(times.get(id) ?? []), now]);

type Check = (holds: boolean, words: string) => void;

function checkDates(record: SubmissionRecord, check: Check): void {
  const { _id, state } = record;
  for (const kind of checkAlone(record)) check(false, `${_id} ${findings[kind].meaning}`);
  check(isOpen(state) || record.dueAt === undefined, `${_id} is ${state} and yet due`);
  if (state === 'dead_lettered') {
    check(
      /^[a-z][^@\d]*(\(.*\))?$/i.test(record.lastError ?? ''),
      `${_id} is a dead letter with "${record.lastError}"`,
    );
  }
}

function checkStep(
  before: SubmissionRecord,
  after: SubmissionRecord,
  actor: Actor | undefined,
  check: Check,
): void {
  const { _id } = before;
  const grown = after.history.length - before.history.length;
  const [from, to] = [before.state, after.state];
  check(
    after.version === before.version || after.version === before.version + 1,
    `${_id} lost or jumped a version`,
  );
  const isErased = after.erasedAt !== undefined;
  // An erasure removes the body, also where another applicant's request mentions the person.
  const bodyGoes = after.body === undefined && actor === 'operator' && !isOpen(to);
  check(bodyGoes || after.body === before.body, `the body of ${_id} changed`);
  const personal = (['body', 'bodySha256', 'applicant', 'userAgent'] as const).filter(
    (key) => after[key] !== undefined,
  );
  check(!isErased || personal.length === 0, `${_id} is erased and has ${personal.join(', ')}`);
  const byErasing = isErased && actor === 'operator';
  check(byErasing || before.erasedAt === undefined, `${_id} was written to although it is erased`);
  if (grown === 0) {
    check(from === to, `${_id} went from ${from} to ${to} without a trace`);
    if (byErasing) return;
    const adopted = actor === 'ingest' && after.adopted === true && from !== 'withdrawn';
    const isReleased = after.releasedAt?.getTime() !== before.releasedAt?.getTime();
    const byOperator = actor === 'operator' && (isReleased || after.version === before.version);
    check(isOpen(from) || adopted || byOperator, `${_id} was written to although it is ${from}`);
    return;
  }
  check(grown === 1, `${_id} got ${grown} entries of history at once`);
  const own: readonly string[] = actor === undefined ? [] : eventsOf[actor];
  const allowed = moves.some(
    (move) => move.from === from && move.to === to && own.includes(move.event),
  );
  check(allowed, `${actor} moved ${_id} from ${from} to ${to}`);
  if (actor === 'operator')
    check(after.version === before.version + 1, `${_id} was reopened under its old version`);
}

/** Throws a `Violation` if a promise is broken. */
export function judge(world: World): Windows {
  const windows: Windows = { ambiguous: 0, killed: 0, frozen: 0, cutOff: 0, processedAfter500: 0 };
  const records = new Map(world.records().map((record) => [record._id, record]));
  judgeHistory(
    {
      asked: world.sent.map((sent) => askedOf(sent, records)),
      records,
      accounts: world.allAccounts(),
      // A crash of the database may have restored an account.
      erasedAccounts: [...world.erasedAccounts.values()].filter(
        ({ _id }) => world.accounts.get(_id) === undefined,
      ),
      mails: world.relay.mails,
      erased({ _id }, body) {
        if (world.erasures.has(_id)) return 'all';
        const text = body.toString().toLowerCase();
        return [...world.erasedPeople].some((person) => text.includes(person)) ? 'body' : undefined;
      },
      couldNotWithdraw({ sent }, { _id, state, erasedAt }) {
        const isEndedUnread = erasedAt !== undefined || state === 'closed';
        if (isEndedUnread && !world.claimedAt.has(_id)) return true;
        // Reconcile had the record by then, so no answer may be a 500.
        insist(
          sent.answeredAt! - sent.at < FIRST_DUE_MS,
          `${sent.requestId} was answered 500 too late`,
        );
        const could = wasCutOff(world, sent);
        if (could) windows.processedAfter500 += 1;
        return could;
      },
      keptItsPlace: (earlier, account) => keptItsPlace(world, earlier, account),
      reopened: (requestId) => world.reopenings.get(requestId) ?? [],
      unexplained: (account, mails) =>
        unexplained(mails, { world, windows, wishes: world.mailWishes.get(account._id) ?? [] }),
    },
    (kind, id, words) => insist(false, `${kind}: ${id} ${words}`),
  );
  for (const { _id, state, bouncedAt, erasedAt } of records.values()) {
    if (state !== 'completed' || bouncedAt === undefined || erasedAt !== undefined) continue;
    const account = world.allAccounts().find(({ requestId }) => requestId === _id);
    const mails = world.relay.mails.filter(({ accountId }) => accountId === account?._id);
    insist(
      mails.some(({ at }) => at >= (world.bounces.get(_id) ?? 0)),
      `${_id} is completed, and its mail came back`,
    );
  }
  judgeErasures(world, records);
  for (const ended of world.ended) judgeEnded(world, ended);
  insist(world.untrue.length === 0, world.untrue.join('; '));
  return windows;
}

/** No worker waits longer, by any clock; a minute is for their difference. */
const WAITED_FOR_MS = 59 * 60_000;

function keptItsPlace(
  world: World,
  { _id: id, history }: SubmissionRecord,
  { requestId }: Account,
): boolean {
  const looks = world.claimedAt.get(requestId) ?? -Infinity;
  const made = world.accountsAt.get(requestId) ?? Infinity;
  const isMovedByOperator = [id, requestId].some((one) => world.reopenings.has(one));
  return (
    (world.storedAt.get(id) ?? Infinity) < looks &&
    made - looks < WAITED_FOR_MS &&
    !isMovedByOperator &&
    !world.placesMayChange &&
    history.every(({ state }) => state !== 'dead_lettered')
  );
}

function askedOf(
  sent: Sent,
  records: ReadonlyMap<string, SubmissionRecord>,
): Asked & { readonly sent: Sent } {
  const { requestId: id, body, key, answer: status, answeredId = id } = sent;
  const own = records.get(id);
  return {
    id,
    key: key ?? undefined,
    body,
    cut: false,
    status,
    record: records.get(answeredId),
    stored: own === undefined ? [] : [own],
    sent,
  };
}

/** Not before has reconcile a record without a claim. */
const RECONCILED_MS = FIRST_DUE_MS + FIRST_SIGHT_GRACE_MS;

/** Says whether ingest died or was cut off until reconcile found the record. */
function wasCutOff(world: World, { ingest, at }: Sent): boolean {
  return world.disturbances.some(({ kind, process, from, until }) =>
    kind === 'cutOff'
      ? from <= at + FIRST_DUE_MS && until > at + FIRST_DUE_MS
      : process === ingest && from <= at + RECONCILED_MS && until >= at,
  );
}

/** An erased account is gone, and only a worker with an older claim may mail it. */
function judgeErasures(world: World, records: ReadonlyMap<string, SubmissionRecord>): void {
  for (const { requestId, answer, answeredId = requestId, at } of world.sent) {
    const erasedAt = answer === 202 ? world.erasures.get(answeredId)?.at : undefined;
    insist(
      at <= (erasedAt ?? Infinity),
      `${requestId} was answered 202 because of ${answeredId}, which is erased`,
    );
  }
  for (const [id, named = id] of world.toErase) {
    // By the time of the erasure it may have stood for another address.
    if (named !== id && world.corrected.has(named)) continue;
    const { body, applicant } = records.get(id) ?? {};
    insist(body === undefined && applicant === undefined, `${id} is not erased`);
  }
  for (const { _id, requestId } of world.erasedAccounts.values()) {
    if (world.accounts.get(_id) !== undefined) continue;
    const erasure = world.erasures.get(requestId);
    insist(erasure !== undefined, `the account of ${requestId} is erased, its record is not`);
    const mails = world.relay.mails.filter(({ accountId }) => accountId === _id);
    // The worker with the claim may be about to note its hand-over.
    insist(
      mails.length <= erasure.possibleMails + 1 &&
        mails.every(({ at }) => at <= erasure.at + CLAIM_TRUSTED_MS),
      `${requestId} was mailed after it was erased`,
    );
  }
}

/** Says which mail came again without a wish and without a window, and counts the windows. */
function unexplained(
  mails: readonly SentMail[],
  {
    world,
    windows,
    wishes,
  }: { readonly world: World; readonly windows: Windows; readonly wishes: readonly number[] },
): string | undefined {
  // An earlier mail may arrive after the one that an operator asked for.
  const begun = mails.toSorted((one, other) => one.startedAt - other.startedAt);
  for (const [index, mail] of begun.entries()) {
    const before = begun.slice(0, index).findLast(({ to }) => to === mail.to);
    // A wish during a hand-over is not met by that hand-over.
    if (before === undefined || wishes.some((at) => at >= before.startedAt && at <= mail.at))
      continue;
    const window = windowOf(world, before, mail);
    if (window === undefined) return `was mailed twice, at ${before.at} and ${mail.at} ms`;
    windows[window] += 1;
  }
  return undefined;
}

/** The window that kept the worker of `first` from noting it before `second`. */
function windowOf(world: World, first: SentMail, second: SentMail): keyof Windows | undefined {
  if (first.told === 'ambiguous') return 'ambiguous';
  const kinds = world.disturbances
    .filter(({ process }) => process === undefined || process === first.process)
    .filter(({ from, until }) => from <= second.at && until >= first.at)
    .map(({ kind }) => kind);
  return (['killed', 'frozen', 'cutOff'] as const).find((kind) => kinds.includes(kind));
}
