/** What requests were answered and how they ended, over a range, as pages and tables show it. */
import { ownerName, TESTS_KEPT_SECONDS } from '../../partner/key-terms.ts';
import { DAY_MS, later } from '../../platform/process/clock.ts';
import {
  ACCEPT_MS,
  EVERYBODY,
  HOUR_MS,
  MINUTE_MS,
  startOf,
  type Counts,
} from '../../traffic/traffic.ts';
import {
  sumOf,
  units,
  type Part,
  type TrafficReader,
  type Unit,
} from '../../traffic/traffic-reader.ts';
import { handOversOf } from '../../account/mail-ledger.ts';
import type { Reads } from './reads.ts';
import { reasonInWords } from './reason-words.ts';
import { toneOf, type Tone } from './request.ts';
import { relaySaid } from './timeline.ts';
import { errorOf } from './words.ts';
import type { State } from '../../submission/states.ts';

/** Processes write what they counted within this time, so a figure is as old at most. */
export const WRITTEN_WITHIN_S = 10;

export const rangeNames = ['1h', 'today', 'yesterday', '7d'] as const;
type RangeName = (typeof rangeNames)[number];

/** Longer picked ranges have parts of an hour, then of a day. */
const MINUTES_UP_TO_MS = 3 * HOUR_MS;
const HOURS_UP_TO_MS = 8 * DAY_MS;
/** Minutes are kept for 8 days. */
const MINUTES_KEPT_MS = 8 * DAY_MS;
/** Hours and days are kept for 400 days. */
const KEPT_MS = 400 * DAY_MS;

export interface Range {
  readonly unit: Unit;
  /** The beginning of a part. */
  readonly since: Date;
  /** The end of a part, or now. */
  readonly until: Date;
  /** The range that figures are compared with. */
  readonly before: { readonly since: Date; readonly until: Date };
}

/** Days are those of UTC. */
export function rangeOf(name: RangeName, now: Date): Range {
  const nowMs = now.getTime();
  const day = startOf(nowMs, DAY_MS);
  const range = (unit: Unit, since: number, until: number, lengthMs: number): Range => ({
    unit,
    since: new Date(since),
    until: new Date(until),
    before: {
      since: new Date(since - lengthMs),
      until: new Date(Math.min(since, until - lengthMs)),
    },
  });
  switch (name) {
    case '1h':
      return range('minute', startOf(nowMs, MINUTE_MS) - HOUR_MS + MINUTE_MS, nowMs, HOUR_MS);
    case 'today':
      return range('hour', day, nowMs, DAY_MS);
    case 'yesterday':
      return range('hour', day - DAY_MS, day, DAY_MS);
    case '7d':
      return range('hour', day - 6 * DAY_MS, nowMs, 7 * DAY_MS);
  }
}

/** Undefined if nothing of the range can have been counted. Widened to whole parts. */
export function pickedRange(since: Date, until: Date, now: Date): Range | undefined {
  const [from, to] = [since.getTime(), Math.min(until.getTime(), now.getTime())];
  if (from >= to || from < now.getTime() - KEPT_MS) return undefined;
  const unit = unitOf(from, to, now.getTime());
  const length = units[unit];
  const first = startOf(from, length);
  const last = Math.min(now.getTime(), startOf(to + length - 1, length));
  return {
    unit,
    since: new Date(first),
    until: new Date(last),
    before: {
      since: new Date(2 * first - startOf(last + length - 1, length)),
      until: new Date(first),
    },
  };
}

function unitOf(from: number, to: number, nowMs: number): Unit {
  if (to - from <= MINUTES_UP_TO_MS && from >= nowMs - MINUTES_KEPT_MS) return 'minute';
  return to - from <= HOURS_UP_TO_MS ? 'hour' : 'day';
}

export interface Figures {
  /** Submissions, however they were answered. */
  readonly requests: number;
  /** Answered 202, each request once. */
  readonly accepted: number;
  readonly turnedAway: number;
  /** Answered 5xx; with look-ups. */
  readonly faults: number;
  readonly completed: number;
  readonly rejected: number;
  /** Refused by the applicant's server, or given up. */
  readonly notDelivered: number;
  /** Accepted, and not ended by a processor. */
  readonly open: number;
  /** Turned away, at fault, rejected or not delivered; share of all requests. */
  readonly failed: number;
  readonly failedShare: number | undefined;
}

export const total = (
  numbers: Readonly<Record<string, number>> = {},
  fits: (name: string) => boolean = () => true,
) => Object.entries(numbers).reduce((sum, [name, count]) => (fits(name) ? sum + count : sum), 0);

const isFault = (status: string): boolean => status.startsWith('5');

export function figuresOf({ answers = {}, reads = {}, ends = {} }: Counts): Figures {
  const [requests, accepted] = [total(answers), answers['202'] ?? 0];
  const turnedAway = total(answers, (status) => status.startsWith('4'));
  const ownFaults = total(answers, isFault);
  // An end before counting began is taken back without having been counted.
  const ended = (state: string): number => Math.max(0, ends[state] ?? 0);
  const [completed, rejected] = [ended('completed'), ended('rejected')];
  const notDelivered = ended('undeliverable') + ended('dead_lettered');
  const failed = turnedAway + ownFaults + rejected + notDelivered;
  return {
    requests,
    accepted,
    turnedAway,
    faults: ownFaults + total(reads, isFault),
    completed,
    rejected,
    notDelivered,
    open: Math.max(0, accepted - total(ends)),
    failed,
    failedShare: requests === 0 ? undefined : Math.min(1, failed / requests),
  };
}

/**
 * The bound, in milliseconds, that this share of the counted times is below. Infinity if they took
 * longer than the last bound; undefined without any.
 */
export function timeBelow(buckets: Counts['accept'] = {}, share: number): number | undefined {
  const all = Object.entries(buckets)
    .map(([bound, count]) => [bound === 'more' ? Infinity : Number(bound), count] as const)
    .toSorted(([one], [other]) => one - other);
  const wanted = share * total(buckets);
  let counted = 0;
  return all.find(([, count]) => (counted += count) >= wanted && count > 0)?.[0];
}

interface ReasonLine {
  readonly state: State;
  readonly field: string;
  readonly code: string;
  readonly count: number;
}

const REASONS_SHOWN = 30;

/** Most frequent first. A request with two reasons is in both lines. */
export function reasonsOf({ reasons = {}, ends = {} }: Counts): ReasonLine[] {
  const lines = Object.entries(reasons).flatMap(([state, codes]) =>
    Object.entries(codes).map(([fieldAndCode, count]): ReasonLine => {
      const [field = '', code = ''] = fieldAndCode.split(' ');
      // Requests that were worked on again left the state, not its reasons.
      return { state: state as State, field, code, count: Math.min(count, ends[state] ?? 0) };
    }),
  );
  return lines
    .filter(({ count }) => count > 0)
    .toSorted((one, other) => other.count - one.count)
    .slice(0, REASONS_SHOWN);
}

interface OutcomeLine {
  /** `turned away` and `our fault`: by their answer. */
  readonly state: State | 'open' | 'turned away' | 'our fault';
  readonly tone: Tone | 'quiet';
  readonly count: number;
  /** Requests in this state are on a list. */
  readonly listed: boolean;
}

/** What became of the requests of a time, each once; most frequent first. */
function outcomesOf(counts: Counts): OutcomeLine[] {
  const { turnedAway, open, requests, accepted } = figuresOf(counts);
  const replayed = counts.answers?.['replayed'] ?? 0;
  const ends = Object.entries(counts.ends ?? {}).map(([state, count]): OutcomeLine => {
    return { state: state as State, tone: toneOf(state as State), count, listed: true };
  });
  const others: OutcomeLine[] = [
    { state: 'open', tone: 'open', count: open, listed: false },
    { state: 'turned away', tone: 'quiet', count: turnedAway, listed: false },
    {
      state: 'our fault',
      tone: 'bad',
      count: requests - accepted - replayed - turnedAway,
      listed: false,
    },
  ];
  return [...ends, ...others]
    .filter(({ count }) => count > 0)
    .toSorted((one, other) => other.count - one.count);
}

type ChartLines = Readonly<Record<string, (counts: Counts) => number | undefined>>;

/** Of the requests of a part. */
const OUTCOME_LINES: ChartLines = {
  good: (counts) => figuresOf(counts).completed,
  open: (counts) => figuresOf(counts).open,
  other: (counts) => figuresOf(counts).rejected,
  lost: ({ ends }) => Math.max(0, ends?.['undeliverable'] ?? 0),
  away: (counts) => figuresOf(counts).turnedAway,
  fault: ({ answers, ends }) => total(answers, isFault) + Math.max(0, ends?.['dead_lettered'] ?? 0),
};

export const NOW_LINES: ChartLines = {
  accepted: (counts) => figuresOf(counts).accepted,
  turnedAway: (counts) => figuresOf(counts).turnedAway,
  faults: (counts) => figuresOf(counts).faults,
  p99Ms: ({ accept }) => finite(timeBelow(accept, 0.99)),
  forAccount: ({ waits }) => waits?.['recorded'],
  forMail: ({ waits }) => waits?.['account_created'],
  finished: ({ finished }) => total(finished),
};

const finite = (ms: number | undefined): number | undefined =>
  ms === Infinity ? ACCEPT_MS.at(-1) : ms;

/**
 * Columns for a chart: times, and each line, in which undefined is a gap. A part that goes on stands
 * apart, behind a gap, because its figures still grow.
 */
export function chartOf(parts: readonly Part[], lines: ChartLines, now: Date) {
  const lastMs = parts.at(-1)?.at.getTime() ?? 0;
  const lengthMs = lastMs - (parts.at(-2)?.at.getTime() ?? 0);
  const isUnfinished = parts.length > 1 && lastMs + lengthMs > now.getTime();
  const columns: readonly (Part | undefined)[] = isUnfinished
    ? [...parts.slice(0, -1), undefined, ...parts.slice(-1)]
    : parts;
  return {
    at: columns.map((part) => part?.at ?? new Date(lastMs - lengthMs / 2)),
    values: Object.fromEntries(
      Object.entries(lines).map(([name, value]) => [
        name,
        columns.map((part) => part && value(part.counts)),
      ]),
    ),
  };
}

/** What became of one owner's requests that came in a range. */
export async function trafficView(
  owner: string,
  range: Range,
  now: Date,
  traffic: Pick<TrafficReader, 'series' | 'countedSince'>,
) {
  const { unit, since, until, before } = range;
  const [parts, earlier, countedSince] = await Promise.all([
    traffic.series(owner, { unit, since, until }),
    traffic.series(owner, { unit, ...before }),
    traffic.countedSince(now),
  ]);
  const counts = sumOf(parts.map((one) => one.counts));
  const countsBefore = sumOf(earlier.map((one) => one.counts));
  return {
    ...range,
    /** Nothing was counted before; undefined if nothing has been counted yet. */
    countedSince,
    /** The last part goes on. */
    isUnfinished: until >= now,
    parts,
    counts,
    figures: figuresOf(counts),
    figuresBefore: figuresOf(countsBefore),
    outcomes: outcomesOf(counts),
    reasons: reasonsOf(counts),
    acceptP99Ms: timeBelow(counts.accept, 0.99),
    chart: chartOf(parts, OUTCOME_LINES, now),
  };
}

type Tried = (counts: Counts) => number | undefined;
const rejectedFor =
  (code: string): Tried =>
  ({ reasons }) =>
    total(reasons?.['rejected'], (fieldAndCode) => fieldAndCode.split(' ')[1] === code);
const answeredWith =
  (status: string): Tried =>
  ({ answers }) =>
    answers?.[status];

/** Of docs/contract.md, those that leave a count of their own. */
const ENDINGS: Readonly<Record<string, Tried>> = {
  Completed: ({ ends }) => ends?.['completed'],
  ...Object.fromEntries(
    ['duplicate_ein', 'duplicate_email', 'duplicate', 'discarded'].map((code) => [
      reasonInWords({ code }),
      rejectedFor(code),
    ]),
  ),
  'Not delivered': ({ ends }) => ends?.['undeliverable'],
  'Sent again with its Idempotency-Key': answeredWith('replayed'),
  ...Object.fromEntries(
    ['400', '403', '408', '422', '429', '500'].map((status) => [
      `Answered ${status}`,
      answeredWith(status),
    ]),
  ),
};

/** Which endings a partner's tests had, as long as tests are kept. */
export async function certificationOf(
  partner: string,
  now: Date,
  traffic: Pick<TrafficReader, 'series'>,
) {
  const since = new Date(startOf(now.getTime(), DAY_MS) - TESTS_KEPT_SECONDS * 1_000);
  const owner = ownerName(partner, { test: true });
  const days = await traffic.series(owner, { unit: 'day', since, until: now });
  const counts = countsIn(days);
  const endings = Object.entries(ENDINGS).map(([words, tried]) => ({
    words,
    isTried: (tried(counts) ?? 0) > 0,
  }));
  return { since, requests: figuresOf(counts).requests, endings };
}

/** Of all partners; the others have fewer failed requests. */
export const PARTNERS_SHOWN = 30;
const LATELY_MINUTES = 5;
/** Days ago; minutes are kept for 8 days. */
const USUAL_OF_DAYS = [1, 2, 3, 4, 5, 6, 7];
/** Fewer days do not say what is usual. */
const USUAL_DAYS = 3;
/** Minutes beyond these shares of all are not usual. */
const USUAL_SHARES = [0.05, 0.95] as const;

const RATES = {
  accepted: (counts) => figuresOf(counts).accepted,
  finished: ({ finished }) => total(finished),
  faults: (counts) => figuresOf(counts).faults,
  acceptP99Ms: ({ accept }) => timeBelow(accept, 0.99),
} as const satisfies ChartLines;
type Rates<T> = Readonly<Record<keyof typeof RATES, T | undefined>>;

const eachRate = <T>(value: (of: (counts: Counts) => number | undefined) => T): Rates<T> =>
  Object.fromEntries(Object.entries(RATES).map(([name, of]) => [name, value(of)])) as Rates<T>;

/** Means of the last minutes of which all was written; the p99 is that of all of them. */
function ratesOf(minutes: readonly Part[], now: Date, many = LATELY_MINUTES): Rates<number> {
  const writtenMs = now.getTime() - MINUTE_MS - WRITTEN_WITHIN_S * 1_000;
  const whole = minutes.filter(({ at }) => at.getTime() <= writtenMs).slice(-many);
  const sum = countsIn(whole);
  const rates = eachRate((of) => (of(sum) ?? 0) / Math.max(1, whole.length));
  return { ...rates, acceptP99Ms: timeBelow(sum.accept, 0.99) };
}

function usualOf(days: readonly (readonly Part[])[]) {
  if (days.length < USUAL_DAYS) return undefined;
  return eachRate((of) => {
    const values = days.flatMap((parts) => parts.flatMap(({ counts }) => of(counts) ?? []));
    const sorted = values.toSorted((one, other) => one - other);
    const [least, most] = USUAL_SHARES.map(
      (share) => sorted[Math.round(share * (sorted.length - 1))],
    );
    return least === undefined || most === undefined ? undefined : { least, most };
  });
}

export type NowTraffic = Awaited<ReturnType<typeof nowTraffic>>;

/** What the first page shows of all live requests. */
export async function nowTraffic(
  traffic: Pick<TrafficReader, 'series' | 'seriesOf' | 'partners' | 'countedSince'>,
  now: Date,
) {
  const hour = rangeOf('1h', now);
  const [minutes, lastHours, countedSince, ...days] = await Promise.all([
    traffic.series(EVERYBODY, { ...hour, since: hour.before.since }),
    traffic.partners(now),
    traffic.countedSince(now),
    ...USUAL_OF_DAYS.map(async (ago) => {
      const [since, until] = [hour.since, now].map((at) => later(at, -ago * DAY_MS));
      return traffic.series(EVERYBODY, { unit: 'minute', since: since!, until: until! });
    }),
  ]);
  const worst = [...lastHours].map(([partner, sums]) => ({ partner, ...sums }));
  const shown = worst.toSorted(worstFirst).slice(0, PARTNERS_SHOWN);
  const theirs = await traffic.seriesOf(
    shown.map(({ partner }) => partner),
    hour,
  );
  const last = minutes.filter(({ at }) => at >= hour.since);
  const before = minutes.slice(0, minutes.length - last.length);
  return {
    /** Nothing was counted before; undefined if nothing has been counted yet. */
    countedSince,
    /** The first minute of `minutes`. */
    since: hour.since,
    /** Minutes of the last hour, of which the last has just begun. */
    minutes: last,
    hour: countsIn(last),
    /** The last five minutes, and the one that has just begun. */
    lately: countsIn(last.slice(-LATELY_MINUTES - 1)),
    /** A minute; undefined where it cannot be told. */
    rates: ratesOf(last, now),
    ratesBefore: ratesOf(before, now, before.length),
    /** A minute at this time of the last days; undefined if too few were counted. */
    usual: usualOf(days.filter(([first]) => countedSince && first && first.at >= countedSince)),
    /** Worst first. */
    partners: [...theirs].map(([partner, parts]) => ({
      partner,
      counts: countsIn(parts),
      lately: countsIn(parts.slice(-LATELY_MINUTES - 1)),
    })),
    /** Partners with requests in the last two hours at most. */
    seen: worst.length,
  };
}

/** The hour that has just begun, and those before. */
const LIST_HOURS = 24;

/** Of each partner with requests in the hours of the list. */
export const sumsForList = (traffic: Pick<TrafficReader, 'partners'>, now: Date) =>
  traffic.partners(now, LIST_HOURS);

/** What the list of partners shows of some of them. */
export async function trafficForList(
  partners: readonly string[],
  now: Date,
  traffic: Pick<TrafficReader, 'seriesOf'>,
) {
  const since = new Date(startOf(now.getTime(), HOUR_MS) - (LIST_HOURS - 1) * HOUR_MS);
  const theirs = await traffic.seriesOf(partners, { unit: 'hour', since, until: now });
  const rows = [...theirs].map(([partner, parts]) => {
    const { requests, failed, failedShare } = figuresOf(countsIn(parts));
    const course = parts.map(({ counts }) => figuresOf(counts).requests);
    return [partner, { requests, failed, failedShare, course }] as const;
  });
  return { since, of: new Map(rows) };
}

const countsIn = (parts: readonly Part[]): Counts => sumOf(parts.map(({ counts }) => counts));

/** A hundred of ten thousand requests are less than five of five. */
export function worstFirst(
  one: Pick<Figures, 'failed' | 'requests'>,
  other: Pick<Figures, 'failed' | 'requests'>,
): number {
  const weight = ({ failed, requests }: typeof one): number => (failed * failed) / (requests || 1);
  return weight(other) - weight(one) || other.requests - one.requests;
}

/** A search for an example ends then. */
const EXAMPLE_WITHIN_MS = 500;

/** The last error of the newest request in each state that failed, with the relay's answer. */
export async function lastErrors(
  { partner, test, since, until }: { partner: string; test: boolean; since: Date; until: Date },
  { ends = {} }: Counts,
  { submissions, accounts }: Pick<Reads, 'submissions' | 'accounts'>,
) {
  const failed = (['undeliverable', 'dead_lettered'] as const).filter((state) => ends[state]);
  const mode = test ? 'test' : 'live';
  const found = failed.map(async (state) => {
    const search = { partner, state, mode, since, until } as const;
    const [record] = (await submissions.list(search, 1, EXAMPLE_WITHIN_MS)).found;
    const error = record && errorOf(record);
    if (error === undefined) return [];
    const account = await accounts.find('requestId', record!._id);
    const last = handOversOf(account?.mail).at(-1);
    const words = error + (last?.result === 'accepted' ? '' : relaySaid(last));
    return [[state, { request: record!._id, words }] as const];
  });
  return new Map<string, { readonly request: string; readonly words: string }>(
    (await Promise.all(found)).flat(),
  );
}
