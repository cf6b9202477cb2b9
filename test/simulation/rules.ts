/** Rules that hold at every write, and rules that hold in the end. */
import { hash } from 'node:crypto';
import type { Account } from '../../internal/account/account.ts';
import { checkAlone, checkRecord, kinds as findings } from '../../internal/self-audit/rules.ts';
import {
  eventsOf,
  firstStates,
  isOpen,
  moves,
  type Actor,
} from '../../internal/submission/states.ts';
import { FIRST_DUE_MS, type SubmissionRecord } from '../../internal/submission/submission.ts';
import type { SentMail } from './relay.ts';
import { judgeEnded } from './told.ts';
import type { Sent, World } from './world.ts';
import { CLAIM_TRUSTED_MS, MAX_AMBIGUOUS } from '../../internal/processor/step.ts';

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
    if (world.mongo.caller === 'processor' && after.version > (before?.version ?? 0))
      world.claimed.add(after._id);
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
    const wished = before?.['notifiedAt'] !== undefined && stored['notifiedAt'] === undefined;
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
    const corrected = actor === 'operator' && after.version === before.version;
    check(isOpen(from) || adopted || corrected, `${_id} was written to although it is ${from}`);
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

interface End {
  readonly world: World;
  readonly byId: ReadonlyMap<string, SubmissionRecord>;
  readonly accounts: readonly Account[];
  readonly windows: Windows;
}

/** Throws a `Violation` if a promise is broken. */
export function judge(world: World): Windows {
  const windows: Windows = { ambiguous: 0, killed: 0, frozen: 0, cutOff: 0, processedAfter500: 0 };
  const byId = new Map(world.records().map((record) => [record._id, record]));
  const accounts = world.allAccounts();
  const end = { world, byId, accounts, windows };
  for (const key of ['emailNormalized', 'ein', 'requestId'] as const) {
    const values = accounts.map((account) => account[key]);
    const twice = values.find((value, index) => values.indexOf(value) !== index);
    insist(twice === undefined, `two accounts share the ${key} ${twice}`);
  }
  judgeAnswers(end);
  judgeKeys(end);
  for (const record of byId.values()) judgeRecord(record, end);
  for (const account of accounts) judgeMails(account, end);
  judgeErasures(end);
  for (const ended of world.ended) judgeEnded(world, ended);
  insist(world.untrue.length === 0, world.untrue.join('; '));
  judgeAudit(end);
  return windows;
}

/** `partner-ingest audit` must find nothing. */
function judgeAudit({ world, byId, accounts }: End): void {
  const options = { now: world.scheduler.date(), onHold: new Set<string>() };
  for (const record of byId.values()) {
    const account = accounts.find(({ requestId }) => requestId === record._id);
    const found = checkRecord(record, account, options);
    const problem = found.find((kind) => findings[kind].weight === 'problem');
    insist(problem === undefined, `audit says ${problem} of ${record._id}`);
  }
}

/** An erased account is gone, and only a worker with an older claim may mail it. */
function judgeErasures(end: End): void {
  const { world, byId } = end;
  for (const [id, named = id] of world.toErase) {
    // By the time of the erasure it may have stood for another address.
    if (named !== id && world.corrected.has(named)) continue;
    const { body, applicant } = byId.get(id) ?? {};
    insist(body === undefined && applicant === undefined, `${id} is not erased`);
  }
  for (const account of world.erasedAccounts.values()) {
    const { _id, requestId } = account;
    // A crash of the database has restored it.
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
    judgeMails(account, end);
  }
}

function judgeAnswers({ world, byId, windows }: End): void {
  for (const sent of world.sent) {
    const { requestId, answer, answeredAt, answeredId = requestId, body } = sent;
    const record = byId.get(answeredId);
    if (answer === 202) {
      insist(record !== undefined, `${requestId} was answered 202 and is lost`);
      insist(record.state !== 'withdrawn', `${requestId} was answered 202 and then withdrawn`);
      insist(isKept(body, record, world), `${requestId} is not what was sent`);
      insist(
        sent.at <= (world.erasures.get(answeredId)?.at ?? Infinity),
        `${requestId} was answered 202 because of ${answeredId}, which is erased`,
      );
    }
    const isSame = body.equals(record?.body?.buffer ?? Buffer.alloc(0));
    insist(
      answer !== 422 || (record !== undefined && !isSame),
      `${requestId} was answered 422 because of ${answeredId}`,
    );
    if (answer === 500 && record !== undefined && wasProcessed(record, world)) {
      // Reconcile had the record by then, so no answer may be a 500.
      insist(answeredAt! - sent.at < FIRST_DUE_MS, `${requestId} was answered 500 too late`);
      insist(couldNotWithdraw(world, sent), `${requestId} was answered 500 and processed`);
      windows.processedAfter500 += 1;
    }
  }
}

/** Says whether the body is kept. One that mentions an erased person goes alone. */
function isKept(
  sent: Buffer,
  { body, bodySha256 }: SubmissionRecord,
  { erasedPeople }: World,
): boolean {
  if (bodySha256 === undefined) return true;
  if (body !== undefined) return sent.equals(body.buffer);
  const text = sent.toString().toLowerCase();
  return (
    hash('sha256', sent, 'hex') === bodySha256 &&
    [...erasedPeople].some((person) => text.includes(person))
  );
}

function wasProcessed(
  { _id, state, adopted, erasedAt }: SubmissionRecord,
  { claimed }: World,
): boolean {
  const endedUnread = (erasedAt !== undefined || state === 'closed') && !claimed.has(_id);
  // A repeat has adopted the record.
  return state !== 'withdrawn' && adopted !== true && !endedUnread;
}

/** Each key has one open record, whose id is in every 202. */
function judgeKeys({ world, byId }: End): void {
  const keyed = world.sent.filter(({ key }) => key !== null);
  for (const [key, tries] of Map.groupBy(keyed, (sent) => sent.key)) {
    const ids = new Set(tries.map(({ requestId }) => requestId));
    const records = [...byId.values()].filter(
      ({ _id, state }) => ids.has(_id) && state !== 'withdrawn',
    );
    insist(records.length <= 1, `${key} has ${records.length} live records`);
    const accepted = tries.filter(({ answer }) => answer === 202);
    const answers = new Set(accepted.map(({ answeredId }) => answeredId));
    insist(answers.size <= 1, `${key} was answered 202 with ${answers.size} ids`);
    const bodies = new Set(accepted.map(({ body }) => body.toString()));
    insist(bodies.size <= 1, `${key} was answered 202 for ${bodies.size} bodies`);
    const own = records
      .flatMap(({ reasons = [] }) => reasons)
      .find(({ duplicateOf = '' }) => ids.has(duplicateOf));
    insist(own === undefined, `${key}: a submission is called a duplicate of itself`);
  }
}

/** Says whether ingest died or was cut off until reconcile found the record. */
function couldNotWithdraw(world: World, { ingest, at }: Sent): boolean {
  return world.disturbances.some(({ kind, process, from, until }) =>
    kind === 'cutOff'
      ? from <= at + FIRST_DUE_MS && until > at + FIRST_DUE_MS
      : process === ingest && until >= at,
  );
}

function judgeRecord(record: SubmissionRecord, { byId, accounts }: End): void {
  if (record.erasedAt !== undefined) return;
  const account = accounts.find(({ requestId }) => requestId === record._id);
  insist(
    [undefined, account?._id].includes(record.accountId),
    `${record._id} names an account that is not its own`,
  );
  if (record.state !== 'rejected') return;
  insist(record.reasons !== undefined && record.reasons.length > 0, `${record._id} has no reason`);
  for (const { duplicateOf } of record.reasons) {
    if (duplicateOf === undefined) continue;
    const other = byId.get(duplicateOf);
    const stands =
      other?.erasedAt !== undefined || accounts.some((one) => one.requestId === other?._id);
    insist(
      other?._id !== record._id && stands,
      `${record._id} is called a duplicate of ${duplicateOf}, which has no account`,
    );
  }
}

/** One mail for each account and each wish, except for the windows. */
function judgeMails(account: Account, { world, byId, windows }: End): void {
  const record = byId.get(account.requestId);
  const wishes = world.mailWishes.get(account._id) ?? [];
  const { requestId: id } = account;
  const mails = world.relay.mails.filter(({ accountId }) => accountId === account._id);
  const completed = record?.state === 'completed' && record.erasedAt === undefined;
  insist(
    !completed || mails.some(({ to }) => to === (account.released ?? account).email),
    `${id} is completed without a mail to its address`,
  );
  const bouncedAt = record?.bouncedAt === undefined ? 0 : (world.bounces.get(id) ?? 0);
  insist(
    !completed || mails.some(({ at }) => at >= bouncedAt),
    `${id} is completed, and its mail came back`,
  );
  const wishedSince = wishes.some((at) => at >= (mails.at(-1)?.at ?? 0));
  insist(
    !completed || account.notifiedAt !== undefined || wishedSince,
    `${id} is completed, but its account does not know that the mail is out`,
  );
  insist(
    mails.length <= (account.mail?.possible ?? 0),
    `${id} was mailed ${mails.length} times; its ledger says ${account.mail?.possible}`,
  );
  const periods = [0, ...(world.reopenings.get(account.requestId) ?? []), Infinity];
  for (const [index, from] of periods.slice(0, -1).entries()) {
    const within = mails.filter(
      ({ startedAt }) => startedAt >= from && startedAt < periods[index + 1]!,
    );
    for (const [to, some] of Map.groupBy(within, (mail) => mail.to)) {
      insist(
        some.length <= MAX_AMBIGUOUS,
        `${id} was mailed ${some.length} times at ${to} without an operator's wish`,
      );
    }
  }
  // An earlier mail may arrive after the one that an operator asked for.
  const begun = mails.toSorted((one, other) => one.startedAt - other.startedAt);
  for (const [index, mail] of begun.entries()) {
    const before = begun.slice(0, index).findLast(({ to }) => to === mail.to);
    // A wish during a hand-over is not met by that hand-over.
    if (before === undefined || wishes.some((at) => at >= before.startedAt && at <= mail.at))
      continue;
    const window = windowOf(world, before, mail);
    insist(window !== undefined, `${id} was mailed twice, at ${before.at} and ${mail.at} ms`);
    windows[window] += 1;
  }
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
