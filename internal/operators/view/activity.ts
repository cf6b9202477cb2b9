/** What the pods say, and what was last read from the database. */
import type { Finding, SecretProblem } from '../../partner/kept-findings.ts';
import { later } from '../../platform/process/clock.ts';
import { defined } from '../../platform/process/defined.ts';
import type { Pod } from './readings.ts';
import type { KindGroup, TurnedAwayCount } from '../../submission/support-queries.ts';
import type { LineState } from './next.ts';
import type { PartnerView } from './partners.ts';
import { totalOf, type DeadCause } from './search.ts';
import type { NowTraffic } from './traffic.ts';

/** A partner whose last 429 is older has recovered. */
export const LIMITED_MS = 300_000;
/** One every 10 s. */
const ROUNDS_KEPT = LIMITED_MS / 10_000 + 1;

interface Round {
  readonly at: Date;
  /** Answers to known keys since the round before. */
  readonly answered: number;
  /** Of these, with 500. */
  readonly failed: number;
  readonly waits: Waits;
}

/** Waiting work by step; undefined if no controller has counted. */
export type Waits = Readonly<
  Record<'account' | 'mail' | 'onHold' | 'delayed' | 'oldestSeconds', number | undefined>
>;

interface Stored {
  readonly partners: readonly PartnerView[];
  /** Dead letters: all, or the newest since `from`. */
  readonly dead: { readonly causes: readonly DeadCause[]; readonly from?: Date | undefined };
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
  /** What processes stored of requests; undefined before the first reading. */
  readonly traffic?: NowTraffic;
  /** When this was read; undefined before the first reading. */
  readonly at?: Date;
  /** Why the database cannot be read. */
  readonly fault?: string;
}

export class Activity {
  stored: Stored = {
    partners: [],
    dead: { causes: [] },
    secrets: [],
    findings: [],
    putAside: 0,
    turnedAway: { counts: [], recorded: [] },
  };
  pods: readonly Pod[] = [];
  /** Oldest first. */
  readonly rounds: Round[] = [];
  readonly startedAt: Date;
  /** What all processors wait for, and since which round. */
  readonly #awaited = new Map<string, Date>();
  /** What pods say is wrong, and since which round. */
  #told: ReadonlyMap<string, Date> = new Map();
  /** The counters of each pod's last reading. */
  #seen: ReadonlyMap<string, Counters> = new Map();

  constructor(startedAt: Date) {
    this.startedAt = startedAt;
  }

  add(pods: readonly Pod[], at: Date): void {
    const seen = new Map<string, Counters>();
    let [answered, failed] = [0, 0];
    for (const pod of pods) {
      const last = this.#seen.get(pod.at);
      // A pod that misses a round is measured over both rounds.
      const counters = pod.answers ? countersOf(pod) : last;
      if (counters === undefined) continue;
      seen.set(pod.at, counters);
      if (last === undefined) continue;
      answered += growth(counters.answered, last.answered);
      failed += growth(counters.failed, last.failed);
    }
    this.#seen = seen;
    this.pods = namedOnce(pods, this.pods);
    const told = pods.flatMap(({ faults, warnings }) => [...faults, ...warnings]);
    this.#told = new Map(told.map(({ words }) => [words, this.#told.get(words) ?? at]));
    for (const what of ['relay', 'database']) {
      const isAway = this.#processors().every((pod) =>
        gauge([pod], 'worker_paused', { waits_for: what }),
      );
      if (!isAway || this.#processors().length === 0) this.#awaited.delete(what);
      else if (!this.#awaited.has(what)) this.#awaited.set(what, at);
    }
    this.rounds.push({ at, answered, failed, waits: waitsOf(pods) });
    if (this.rounds.length > ROUNDS_KEPT) this.rounds.shift();
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

  /** Since when at least a pod has said so. */
  toldSince(words: string): Date | undefined {
    return this.#told.get(words);
  }

  #processors(): Pod[] {
    return this.pods.filter(({ component }) => component === 'processor');
  }

  /** As last read; not all if `stored.dead` has a `from`. */
  deadLetters(): number {
    return totalOf(this.stored.dead.causes);
  }

  /** Also while the database is away: what the pods answered of late, and how much of it with 500. */
  lately(now: Date): Pick<Round, 'answered' | 'failed'> {
    // One reading shows no growth.
    if (this.rounds.length < 2) return storedAnswers(this.stored);
    const since = later(now, -LIMITED_MS);
    const rounds = this.rounds.filter(({ at }) => at > since);
    return {
      answered: rounds.reduce((sum, round) => sum + round.answered, 0),
      failed: rounds.reduce((sum, round) => sum + round.failed, 0),
    };
  }
}

function storedAnswers({ traffic }: Stored): Pick<Round, 'answered' | 'failed'> {
  const { answers = {} } = traffic?.lately ?? {};
  const answered = Object.values(answers).reduce((sum, count) => sum + count, 0);
  return { answered, failed: answers['500'] ?? 0 };
}

/** A silent pod keeps the name it last gave; processes of one machine have no name of their own. */
function namedOnce(pods: readonly Pod[], before: readonly Pod[]): Pod[] {
  const last = new Map(before.map(({ at, name }) => [at, name]));
  const nameOf = ({ at, answers, name }: Pod) => (answers ? name : last.get(at));
  const all = Map.groupBy(pods, nameOf);
  return pods.map((pod) => {
    const { name: _name, ...rest } = pod;
    const name = nameOf(pod);
    return { ...rest, ...defined({ name: all.get(name)?.length === 1 ? name : undefined }) };
  });
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

type Counters = Pick<Round, 'answered' | 'failed'>;

function countersOf({ samples }: Pod): Counters {
  const all = samples.filter(({ name }) => name === 'partner_requests_total');
  const sum = (some: typeof all): number => some.reduce((whole, { value }) => whole + value, 0);
  return {
    answered: sum(all),
    failed: sum(all.filter(({ labels }) => labels['status'] === '500')),
  };
}

/** A restarted pod counts from 0. */
const growth = (now: number, last: number): number => (now >= last ? now - last : now);

function waitsOf(pods: readonly Pod[]): Waits {
  const [account, mail] = ['recorded', 'account_created'].map((state) =>
    gauge(pods, 'records', { state }),
  );
  return {
    account,
    mail,
    onHold: gauge(pods, 'records_on_hold'),
    delayed: gauge(pods, 'queue_jobs', { state: 'delayed' }),
    oldestSeconds: gauge(pods, 'oldest_waiting_seconds'),
  };
}
