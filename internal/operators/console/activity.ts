/** What the pods' counters say of the last hour, and what was last read from the database. */
import type { Finding, SecretProblem } from '../../partner/kept-findings.ts';
import { later } from '../../platform/process/clock.ts';
import type { Pod, Sample } from './readings.ts';
import type { KindGroup, TurnedAwayCount } from '../../submission/support-queries.ts';
import type { LineState } from '../view/next.ts';
import type { PartnerView } from '../view/partners.ts';
import type { TallyLine } from '../view/search.ts';

/** How far back charts and counts go. */
const SHOWN_MS = 3_600_000;
/** Rounds of two hours, one every 10 s. */
const HISTORY_ROUNDS = 750;
/** The mean of rounds this close to an hour ago is shown; one round says little. */
const COMPARED_MS = 150_000;

/** A partner whose last 429 is older has recovered. */
export const LIMITED_MS = 300_000;

/** Sums by the value of a label. */
type Sums = Readonly<Record<string, number>>;

interface Round extends Measured {
  readonly at: Date;
  /** False if no pod had been read before. */
  readonly isCompared: boolean;
  /** Answers since the round before. */
  readonly got: readonly Got[];
}

const WAITS = ['account', 'mail', 'onHold', 'delayed', 'oldestSeconds'] as const;
/** Waiting work by step; undefined if no controller has counted. */
type Waits = Readonly<Record<(typeof WAITS)[number], number | undefined>>;

interface Measured {
  /** Answers per minute, like `finished` and `mails`. */
  readonly answers: Sums;
  readonly finished: Sums;
  readonly mails: Sums;
  /** Time of accepts since the round before; undefined without any. */
  readonly p99Seconds: number | undefined;
  readonly waits: Waits;
}

/** Answers by status; later rejections as `rejected`. */
type ByPartner = ReadonlyMap<string, Sums>;

interface Got {
  readonly partner: string;
  readonly got: string;
  readonly count: number;
}

/** Growth of a series since its pod was read before. */
interface Growth extends Sample {
  readonly aMinute: number;
}

interface SeenSamples {
  readonly samples: readonly Sample[];
  readonly at: Date;
}

const FINAL = ['completed', 'rejected', 'undeliverable', 'dead_lettered'];

interface Stored {
  readonly partners: readonly PartnerView[];
  /** Dead letters: all, or the newest since `from`. */
  readonly dead: { readonly lines: readonly TallyLine[]; readonly from?: Date | undefined };
  readonly secrets: readonly SecretProblem[];
  /** Findings that are neither settled nor put aside. */
  readonly findings: readonly Finding[];
  /** How many put aside findings still exist. */
  readonly putAside: number;
  /** Requests turned away in the last `LIMITED_MS`, or since `from`. */
  readonly turnedAway: {
    readonly counts: readonly TurnedAwayCount[];
    readonly recorded: readonly KindGroup[];
    readonly from?: Date;
  };
  /** When this was read; undefined before the first reading. */
  readonly at?: Date;
  /** Why the database cannot be read. */
  readonly fault?: string;
}

export class Activity {
  stored: Stored = {
    partners: [],
    dead: { lines: [] },
    secrets: [],
    findings: [],
    putAside: 0,
    turnedAway: { counts: [], recorded: [] },
  };
  pods: readonly Pod[] = [];
  /** Oldest first; at most two hours. */
  readonly rounds: Round[] = [];
  readonly startedAt: Date;
  /** What all processors wait for, and since which round. */
  readonly #awaited = new Map<string, Date>();
  #seen: ReadonlyMap<string, SeenSamples> = new Map();

  constructor(startedAt: Date) {
    this.startedAt = startedAt;
  }

  add(pods: readonly Pod[], at: Date): void {
    const seen = new Map<string, SeenSamples>();
    const grown: Growth[][] = [];
    for (const { at: address, answers, samples } of pods) {
      const last = this.#seen.get(address);
      if (last !== undefined) grown.push(growthOf({ samples, at }, last));
      // A pod that misses a round is measured over both rounds.
      const newest = answers ? { samples, at } : last;
      if (newest !== undefined) seen.set(address, newest);
    }
    this.#seen = seen;
    this.pods = pods;
    for (const what of ['relay', 'database']) {
      const isAway = this.#processors().every((pod) =>
        gauge([pod], 'worker_paused', { waits_for: what }),
      );
      if (!isAway || this.#processors().length === 0) this.#awaited.delete(what);
      else if (!this.#awaited.has(what)) this.#awaited.set(what, at);
    }
    this.rounds.push(roundOf(grown.flat(), pods, at));
    if (this.rounds.length > HISTORY_ROUNDS) this.rounds.shift();
  }

  /** Undefined if the pods were not read. */
  line(): LineState | undefined {
    if (this.rounds.length === 0 || this.pods.some(({ isUnread }) => isUnread)) return undefined;
    const told = this.#processors().flatMap(({ faults, warnings }) => [...faults, ...warnings]);
    const outageOf = (what: string, server: string) => {
      const since = this.#awaited.get(what);
      return since && { since, why: told.find(({ of }) => of === server)?.words ?? '' };
    };
    return {
      processors: this.#processors().length,
      relay: outageOf('relay', 'Relay'),
      database: outageOf('database', 'MongoDB'),
    };
  }

  #processors(): Pod[] {
    return this.pods.filter(({ component }) => component === 'processor');
  }

  /** As last read; not all if `stored.dead` has a `from`. */
  deadLetters(): number {
    return this.stored.dead.lines.reduce((sum, { count }) => sum + count, 0);
  }

  /** The rounds of the last hour. */
  shown(): readonly Round[] {
    const since = this.#ago(SHOWN_MS);
    return this.rounds.filter(({ at }) => at > since);
  }

  /** A mean; undefined if nothing was read then. */
  hourBefore(): Measured | undefined {
    const [from, to] = [SHOWN_MS + COMPARED_MS, SHOWN_MS - COMPARED_MS].map((ms) => this.#ago(ms));
    const rounds = this.rounds.filter((one) => one.isCompared && one.at > from! && one.at < to!);
    return rounds.length === 0 ? undefined : meanOf(rounds);
  }

  /** How many requests ended in each state in the last hour. */
  ended(): Sums {
    const rounds = this.shown();
    return summed(
      rounds.flatMap(({ at, finished }, index) => {
        const minutes = (at.getTime() - (rounds[index - 1]?.at ?? at).getTime()) / 60_000;
        return Object.entries(finished).map(([state, rate]) => [state, rate * minutes] as const);
      }),
    );
  }

  #ago(ms: number): Date {
    return later(this.rounds.at(-1)?.at ?? this.startedAt, -ms);
  }

  /** What each partner's requests got, in the last hour by default. */
  partners(since = this.#ago(SHOWN_MS)): ByPartner {
    const all = this.rounds.flatMap(({ at, got }) => (at > since ? got : []));
    const groups = [...Map.groupBy(all, ({ partner }) => partner)];
    return new Map(
      groups.map(([partner, theirs]) => [
        partner,
        summed(theirs.map(({ got, count }) => [got, count])),
      ]),
    );
  }
}

function summed(counts: readonly (readonly [string, number])[]): Sums {
  const byKey = Object.create(null) as Record<string, number>;
  for (const [key, count] of counts) byKey[key] = (byKey[key] ?? 0) + count;
  return byKey;
}

/** The highest of all pods: only the leader counts the whole service. */
export function gauge(pods: readonly Pod[], name: string, labels: object = {}) {
  const wanted = Object.entries(labels);
  const values = pods
    .flatMap(({ samples }) => samples)
    .filter((one) => one.name === name && wanted.every(([key, value]) => one.labels[key] === value))
    .map(({ value }) => value);
  return values.length === 0 ? undefined : Math.max(...values);
}

function growthOf(now: SeenSamples, before: SeenSamples): Growth[] {
  const minutes = (now.at.getTime() - before.at.getTime()) / 60_000;
  if (minutes <= 0) return [];
  const values = new Map(before.samples.map(({ series, value }) => [series, value]));
  return now.samples.map((one) => {
    const last = values.get(one.series) ?? 0;
    // A restarted pod counts from 0.
    const value = one.value >= last ? one.value - last : one.value;
    return { ...one, value, aMinute: value / minutes };
  });
}

function roundOf(grown: readonly Growth[], pods: readonly Pod[], at: Date): Round {
  const [account, mail] = ['recorded', 'account_created'].map((state) =>
    gauge(pods, 'records', { state }),
  );
  const of = (name: string): Growth[] => grown.filter((one) => one.name === name);
  const finished = of('outcomes_total').filter(({ labels }) => FINAL.includes(labels['state']!));
  const got = (name: string, label: string): Got[] =>
    of(name).map(({ labels, value: count }) => ({
      partner: labels['partner'] ?? '',
      got: labels[label] ?? '',
      count,
    }));
  const outcomes = got('partner_outcomes_total', 'state').filter((one) => one.got === 'rejected');
  const counted = [...got('partner_requests_total', 'status'), ...outcomes];
  return {
    at,
    isCompared: grown.length > 0,
    answers: aMinute(of('requests_total'), 'status'),
    finished: aMinute(finished, 'state'),
    mails: aMinute(of('mails_total'), 'result'),
    p99Seconds: quantile(of('accept_seconds_bucket'), 0.99),
    waits: {
      account,
      mail,
      onHold: gauge(pods, 'records_on_hold'),
      delayed: gauge(pods, 'queue_jobs', { state: 'delayed' }),
      oldestSeconds: gauge(pods, 'oldest_waiting_seconds'),
    },
    got: counted.filter(({ count }) => count > 0),
  };
}

function meanOf(rounds: readonly Round[]): Measured {
  const ofSums = (what: 'answers' | 'finished' | 'mails'): Sums =>
    summed(
      rounds.flatMap((round) =>
        Object.entries(round[what]).map(([key, value]) => [key, value / rounds.length] as const),
      ),
    );
  const of = (read: (round: Round) => number | undefined): number | undefined => {
    const values = rounds.map(read).filter((value) => value !== undefined);
    return values.length === 0
      ? undefined
      : values.reduce((sum, one) => sum + one, 0) / values.length;
  };
  return {
    answers: ofSums('answers'),
    finished: ofSums('finished'),
    mails: ofSums('mails'),
    p99Seconds: of(({ p99Seconds }) => p99Seconds),
    waits: Object.fromEntries(
      WAITS.map((name) => [name, of(({ waits }) => waits[name])]),
    ) as unknown as Waits,
  };
}

function aMinute(grown: readonly Growth[], label: string): Sums {
  const counted = grown.filter(({ value }) => value > 0);
  return summed(counted.map((one) => [one.labels[label] ?? '', one.aMinute]));
}

/** Like Prometheus' histogram_quantile: linear within a bucket. */
function quantile(grown: readonly Growth[], wanted: number): number | undefined {
  const byBound = summed(grown.map(({ labels, value }) => [labels['le'] ?? '', value]));
  const buckets = Object.entries(byBound)
    .map(([bound, count]) => [bound === '+Inf' ? Infinity : Number(bound), count] as const)
    .toSorted(([one], [other]) => one - other);
  const total = buckets.at(-1)?.[1] ?? 0;
  if (total === 0) return undefined;
  const index = buckets.findIndex(([, count]) => count >= wanted * total);
  const [bound, count] = buckets[index] ?? [0, 0];
  const [from, below] = buckets[index - 1] ?? [0, 0];
  if (bound === Infinity) return from;
  return from + (bound - from) * ((wanted * total - below) / (count - below));
}

const MEANINGS: Readonly<Record<string, string>> = {
  '200': 'looked up',
  '202': 'accepted',
  '400': 'not a JSON object, too large, or not valid HTTP',
  '401': 'its key has ended or was revoked, or came from a foreign address',
  '403': 'the partner or the key is inactive',
  '404': 'asked for what does not exist',
  '405': 'wrong method',
  '408': 'came too slowly',
  '422': 'its Idempotency-Key was used with another body',
  '429': 'over the limit of its address or of the partner',
  '500': 'our fault: not accepted, and may be sent again',
  '503': 'our fault: its status could not be looked up',
  rejected: 'accepted, and later found invalid or a duplicate',
};

/** A partner's answers, most frequent first; shares are undefined without a request. */
export function answersOf(got: Readonly<Record<string, number>> = {}) {
  const counts = Object.entries(got);
  const total = (fits: (got: string) => boolean): number =>
    counts.reduce((sum, [key, count]) => (fits(key) ? sum + count : sum), 0);
  const requests = total((key) => key !== 'rejected');
  const isFailed = (key: string): boolean => key === 'rejected' || key >= '4';
  const answers = counts
    .map(([key, count]) => ({
      got: key,
      count,
      failed: isFailed(key),
      meaning: MEANINGS[key] ?? '',
      // Requests of the hour before may be rejected in this hour.
      share: requests === 0 ? undefined : Math.min(1, count / requests),
    }))
    .toSorted((one, other) => other.count - one.count);
  return {
    requests,
    answers,
    failedShare: requests === 0 ? undefined : Math.min(1, total(isFailed) / requests),
  };
}
