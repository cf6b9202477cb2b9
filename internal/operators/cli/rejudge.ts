/** The command `rejudge`: which stored requests this version would decide otherwise. */
import { holdersOf, type Account } from '../../account/account.ts';
import { normalizedApplicant, printable, type Application } from '../../application/fields.ts';
import { parseApplication, parseJsonObject } from '../../application/parse-application.ts';
import { decideOnCreation, type StoredReason } from '../../application/reasons.ts';
import { later } from '../../platform/process/clock.ts';
import { pause } from '../../platform/process/deadline.ts';
import { defined } from '../../platform/process/defined.ts';
import { timeOfId } from '../../platform/stores/ids.ts';
import { cardOf } from '../../submission/states.ts';
import { RECORD_SCHEMA, type SubmissionRecord } from '../../submission/submission.ts';
import { table } from '../view/terminal.ts';
import { utc } from '../view/words.ts';
import {
  EXIT,
  RATE_DEFAULT,
  UsageError,
  type Call,
  type Command,
  type ExitCode,
  type Report,
} from './command.ts';
import { progressOf } from './orders.ts';

/** Reasons are like `ein: invalid_format`. */
interface Judged {
  readonly end: 'account' | 'rejected' | 'malformed';
  readonly reasons: readonly string[];
}

interface NotJudged {
  readonly notJudged: string;
}

interface Difference {
  readonly record: SubmissionRecord;
  readonly was: Judged;
  readonly wouldBe: Judged;
}

const SAME = { isSame: true } as const;
type Judgement = Difference | NotJudged | typeof SAME;

interface Judgements {
  looked: number;
  same: number;
  differ: number;
  readonly kinds: Map<string, { count: number; readonly examples: string[] }>;
  readonly notJudged: Map<string, number>;
  reached?: string | undefined;
  isStopped: boolean;
}

/** Faulty records could make a kind of each; the rest count as one. */
const KINDS_MAX = 100;
const EXAMPLES = 3;
const OTHERS = 'other differences';

type Keeper = Pick<
  Account,
  'requestId' | 'partnerId' | 'emailNormalized' | 'ein' | 'createdAt' | 'linkVersion' | 'releasedAt'
>;
const keeperFields = {
  requestId: 1,
  partnerId: 1,
  emailNormalized: 1,
  ein: 1,
  createdAt: 1,
  linkVersion: 1,
  releasedAt: 1,
} as const;

/** What is read there and differs may only be old. */
const nearby = { readPreference: 'secondaryPreferred' } as const;

export const rejudge: Command = {
  name: 'rejudge',
  positionals: [],
  options: ['since', 'until', 'partner', 'rate'],
  run: async (call) => {
    if (call.values.since === undefined) throw new UsageError('rejudge: --since is missing');
    const tally: Judgements = {
      looked: 0,
      same: 0,
      differ: 0,
      kinds: new Map(),
      notJudged: new Map(),
      isStopped: false,
    };
    const differences = walk(call, tally);
    if (call.values.json) {
      const end = () => ({ code: codeOf(tally) });
      return { lines: linesOf(differences, tally), end };
    }
    let fault: unknown;
    try {
      while ((await differences.next()).done !== true);
    } catch (error) {
      // The report says what was done.
      if (tally.looked === 0) throw error;
      fault = error;
    }
    return { ...reportOf(tally), ...(fault === undefined ? {} : { fault }) };
  },
};

/** A page at a time; a stop ends it between two pages. */
async function* walk(call: Call, tally: Judgements): AsyncGenerator<Difference> {
  const { stores, values, clock, stop, note } = call;
  const { since, until, partner, rate = RATE_DEFAULT } = values;
  const search = { ...defined({ since, until, partner }), mode: 'live' } as const;
  const startedMs = clock.monotonicMs();
  const paged = progressOf(undefined, call);
  try {
    for await (const page of stores.submissions.pages(search, { bodies: true, ...nearby })) {
      if (stop.aborted) break;
      const first = await judgeAll(page, call, nearby);
      const ids = first.flatMap((judged) => ('was' in judged ? [judged.record._id] : []));
      const again = await stores.submissions.ofIds(ids, { bodies: true });
      const judged = [
        ...first.filter((one) => !('was' in one)),
        ...(await judgeAll(again, call, {})),
      ];
      for (const one of judged) {
        count(one, tally);
        if ('was' in one) yield one;
      }
      tally.looked += page.length;
      tally.reached = page.at(-1)?._id;
      paged(page.length);
      const aheadMs = (tally.looked * 1_000) / rate - (clock.monotonicMs() - startedMs);
      if (aheadMs > 0) await pause(aheadMs, stop);
    }
    tally.isStopped = stop.aborted;
  } catch (error) {
    tally.isStopped = true;
    throw error;
  } finally {
    if (tally.isStopped) note(stoppedInWords(tally));
  }
}

function count(judged: Judgement, tally: Judgements): void {
  if ('isSame' in judged) tally.same += 1;
  else if ('notJudged' in judged) {
    const { notJudged } = judged;
    tally.notJudged.set(notJudged, (tally.notJudged.get(notJudged) ?? 0) + 1);
  } else {
    tally.differ += 1;
    const named = `${inWords(judged.was)} → ${inWords(judged.wouldBe)}`;
    const { kinds } = tally;
    const kind = kinds.has(named) || kinds.size < KINDS_MAX ? named : OTHERS;
    const { count: before = 0, examples = [] } = kinds.get(kind) ?? {};
    if (examples.length < EXAMPLES) examples.push(judged.record._id);
    kinds.set(kind, { count: before + 1, examples });
  }
}

/** What was accepted and is valid, with what its account would be unique by. */
interface Valid {
  readonly record: SubmissionRecord;
  readonly was: Judged;
  readonly keys: { readonly emailNormalized: string; readonly ein: string };
}

/** Reads at most four times, however many records there are. */
async function judgeAll(
  records: readonly SubmissionRecord[],
  { stores }: Pick<Call, 'stores'>,
  read: { readonly readPreference?: 'secondaryPreferred' },
): Promise<Judgement[]> {
  const judged = records.map((record) => judgeBody(record));
  const valid = judged.filter((one): one is Valid => 'keys' in one);
  const keepers = await stores.accounts.having(
    {
      emailNormalized: valid.map(({ keys }) => keys.emailNormalized),
      ein: valid.map(({ keys }) => keys.ein),
      requestId: valid.flatMap(({ record: { reasons = [] } }) =>
        reasons.flatMap(({ duplicateOf }) => duplicateOf ?? []),
      ),
    },
    { ...read, projection: keeperFields },
  );
  const by = (name: 'emailNormalized' | 'ein' | 'requestId') =>
    new Map(keepers.map((keeper) => [keeper[name], keeper]));
  const found = { email: by('emailNormalized'), ein: by('ein'), request: by('requestId') };
  return judged.map((one) => ('keys' in one ? judgeDuplicate(one, found) : one));
}

/** By the body alone, as ingest and the first step of the processor do. */
function judgeBody(record: SubmissionRecord): Judgement | Valid {
  const was = judgedBefore(record);
  if ('notJudged' in was) return was;
  const { body, bodyBytes } = record;
  if (body === undefined) return { notJudged: 'its body is not kept' };
  if (body.length() < bodyBytes) return { notJudged: 'its body is kept in part' };
  const bytes = body.buffer;
  const isObject = parseJsonObject(bytes) !== undefined;
  if (was.end === 'malformed')
    return isObject ? { notJudged: 'it was answered 400 for more than its body' } : SAME;
  if (!isObject) return { record, was, wouldBe: { end: 'malformed', reasons: [] } };
  const parsed = parseApplication(bytes);
  if (!parsed.valid) return compared(record, was, rejected(parsed.reasons));
  return { record, was, keys: keysOf(parsed.application) };
}

function keysOf(application: Application): Valid['keys'] {
  const { email = '', ein = '' } = normalizedApplicant(application);
  return { emailNormalized: email, ein };
}

/** How the request ended for the reasons that this command judges. */
function judgedBefore({ state, ...record }: SubmissionRecord): Judged | NotJudged {
  if (cardOf(state) === undefined || record.schema > RECORD_SCHEMA)
    return { notJudged: 'a newer version stored it' };
  const { reasons = [], accountId } = record;
  if (state === 'refused' || state === 'withdrawn')
    return { notJudged: `it is ${state}: not its body was judged` };
  if (state === 'malformed')
    return record.httpStatus === 400
      ? { end: 'malformed', reasons: [] }
      : { notJudged: 'its body came too slowly' };
  if (state === 'rejected')
    return reasons.some(({ code }) => code === 'discarded')
      ? { notJudged: 'an operator ended it' }
      : rejected(reasons);
  if (accountId !== undefined) return { end: 'account', reasons: [] };
  return { notJudged: state === 'closed' ? 'an operator ended it' : 'it is not decided yet' };
}

interface Keepers {
  readonly email: ReadonlyMap<string, Keeper>;
  readonly ein: ReadonlyMap<string, Keeper>;
  readonly request: ReadonlyMap<string, Keeper>;
}

const UNSURE = {
  notJudged: 'an account of the same applicant was made just then, or has changed since',
} as const;
/** From the look for other accounts to the end of a request; more only where a worker died. */
const DECIDED_WITHIN_MS = 10_000;

/**
 * By the accounts that stood when the request was decided. What operators corrected, released or
 * erased since says nothing of that moment.
 */
function judgeDuplicate({ record, was, keys }: Valid, { email, ein, request }: Keepers): Judgement {
  const { _id, accountId, stateAt, partnerId = 'unknown', reasons: stored = [] } = record;
  const decidedAt = timeOfId(accountId ?? '') ?? stateAt;
  const keepers = [email.get(keys.emailNormalized), ein.get(keys.ein)].filter(
    (keeper) => keeper !== undefined && keeper.requestId !== _id && keeper.createdAt < decidedAt,
  ) as readonly Keeper[];
  const holders = holdersOf({ ...keys, partnerId }, keepers);
  const decision = decideOnCreation(
    holders.length > 0 ? { kind: 'taken', holders } : { kind: 'created', accountId: _id },
  );
  const wouldBe: Judged =
    decision.verdict === 'reject' ? rejected(decision.reasons) : { end: 'account', reasons: [] };
  const outcome = compared(record, was, wouldBe);
  if ('isSame' in outcome) return outcome;
  const found = stored.flatMap(({ duplicateOf }) => duplicateOf ?? []);
  const since = later(decidedAt, -DECIDED_WITHIN_MS);
  const isSure =
    found.every((id) => request.has(id) && !hasChanged(request.get(id)!)) &&
    keepers.every(
      (keeper) =>
        found.includes(keeper.requestId) || (keeper.createdAt < since && !hasChanged(keeper)),
    );
  return isSure ? outcome : UNSURE;
}

const hasChanged = ({ linkVersion, releasedAt }: Keeper): boolean =>
  linkVersion !== undefined || releasedAt !== undefined;

function rejected(reasons: readonly StoredReason[]): Judged {
  const named = reasons.map(({ field, code }) =>
    field === undefined ? code : `${field}: ${code}`,
  );
  return { end: 'rejected', reasons: named.toSorted() };
}

function compared(
  record: SubmissionRecord,
  was: Judged,
  wouldBe: Judged,
): Difference | typeof SAME {
  return inWords(was) === inWords(wouldBe) ? SAME : { record, was, wouldBe };
}

const inWords = ({ end, reasons }: Judged): string =>
  reasons.length === 0 ? end : `${end} (${reasons.join(', ')})`;

/* The report. */

async function* linesOf(
  differences: AsyncIterable<Difference>,
  tally: Judgements,
): AsyncGenerator<object> {
  for await (const { record, was, wouldBe } of differences) {
    const { _id, partnerId = null, receivedAt, state } = record;
    yield {
      request_id: _id,
      partner_id: partnerId,
      received_at: receivedAt,
      state,
      was,
      would_be: wouldBe,
    };
  }
  yield summaryOf(tally);
}

function summaryOf({ looked, same, differ, notJudged, kinds, isStopped }: Judgements): object {
  return {
    looked_at: looked,
    same,
    differ,
    not_judged: Object.fromEntries(notJudged),
    differences: [...kinds].map(([kind, told]) => ({ kind, ...told })),
    stopped: isStopped,
  };
}

function codeOf({ differ, isStopped }: Judgements): ExitCode {
  if (isStopped) return EXIT.stopped;
  return differ > 0 ? EXIT.found : EXIT.ok;
}

function reportOf(tally: Judgements): Report {
  const { looked, same, differ, kinds, notJudged } = tally;
  const rows = [...kinds].toSorted(([, one], [, other]) => other.count - one.count);
  const lines = [
    ...(rows.length === 0
      ? []
      : [
          table(
            rows.map(([kind, told]) =>
              [String(told.count), kind, told.examples.join(' ')].map(printable),
            ),
            '',
          ),
        ]),
    `${looked} requests: ${differ} would end otherwise, ${same} as they did`,
    ...[...notJudged].map(([why, number]) => `${number} not judged: ${why}`),
  ];
  return { json: summaryOf(tally), text: lines.join('\n'), code: codeOf(tally) };
}

function stoppedInWords({ reached }: Judgements): string {
  const since = timeOfId(reached ?? '');
  const where = since === undefined ? '' : ` with --since "${utc(since)}"`;
  return `stopped: to go on, give the same command again${where}`;
}
