/** What the pods' counters say of the last hour, kept in this process's memory. */
import { HISTORY_ROUNDS } from './limits.ts';
import type { Pod, Sample } from './readings.ts';

/** By the value of a label. */
type Rates = Readonly<Record<string, number>>;

/** Rates are a minute. */
export interface Round {
  readonly at: Date;
  readonly answers: Rates;
  readonly finished: Rates;
  readonly mails: Rates;
  /** Of accepts since the round before; undefined if there were none. */
  readonly p99Seconds: number | undefined;
  /** Undefined where no controller has counted them. */
  readonly waiting: number | undefined;
  readonly byPartner: ReadonlyMap<string, PartnerCounts>;
}

/** Since the round before. */
export interface PartnerCounts {
  readonly requests: number;
  /** Answered 400 or 422, or found invalid or a duplicate later. */
  readonly rejected: number;
}

/** Growth of one series since its pod was read before. */
interface Growth extends Sample {
  readonly minutes: number;
}

const COUNTERS = new Set([
  'requests_total',
  'accept_seconds_bucket',
  'outcomes_total',
  'mails_total',
  'partner_requests_total',
  'partner_outcomes_total',
]);
const FINAL = ['completed', 'rejected', 'undeliverable', 'dead_lettered'];

export class Activity {
  readonly #rounds: Round[] = [];
  #seen: ReadonlyMap<string, { readonly pod: Pod; readonly at: Date }> = new Map();

  /** Oldest first; at most an hour. */
  get rounds(): readonly Round[] {
    return this.#rounds;
  }

  add(pods: readonly Pod[], at: Date): void {
    const grown = pods.flatMap((pod) => {
      const last = this.#seen.get(pod.at);
      return last === undefined ? [] : growthOf(pod, last.pod, at.getTime() - last.at.getTime());
    });
    this.#seen = new Map(
      pods.flatMap((pod) => {
        // A pod that misses a round is measured over both when it answers again.
        const seen = pod.answers ? { pod, at } : this.#seen.get(pod.at);
        return seen === undefined ? [] : [[pod.at, seen]];
      }),
    );
    this.#rounds.push(roundOf(grown, pods, at));
    if (this.#rounds.length > HISTORY_ROUNDS) this.#rounds.shift();
  }

  /** Of all rounds together. */
  partners(): ReadonlyMap<string, PartnerCounts> {
    return summed(this.#rounds.flatMap(({ byPartner }) => [...byPartner]));
  }
}

function summed(counts: readonly (readonly [string, PartnerCounts])[]): Map<string, PartnerCounts> {
  const sums = new Map<string, PartnerCounts>();
  for (const [partner, { requests, rejected }] of counts) {
    const sum = sums.get(partner) ?? { requests: 0, rejected: 0 };
    sums.set(partner, {
      requests: sum.requests + requests,
      rejected: sum.rejected + rejected,
    });
  }
  return sums;
}

/** The highest of all pods: each counts the whole service, and only the leader has counted. */
export function gauge(pods: readonly Pod[], name: string, labels: Rates | object = {}) {
  const values = pods
    .flatMap(({ samples }) => samples)
    .filter((one) => one.name === name && matches(one, labels))
    .map(({ value }) => value);
  return values.length === 0 ? undefined : Math.max(...values);
}

function matches({ labels }: Sample, wanted: object): boolean {
  return Object.entries(wanted).every(([label, value]) => labels[label] === value);
}

const keyOf = ({ name, labels }: Sample): string => JSON.stringify([name, labels]);

function growthOf({ samples }: Pod, before: Pod, elapsedMs: number): Growth[] {
  if (elapsedMs <= 0) return [];
  const minutes = elapsedMs / 60_000;
  const values = new Map(before.samples.map((one) => [keyOf(one), one.value]));
  return samples
    .filter(({ name }) => COUNTERS.has(name))
    .map((one) => {
      const last = values.get(keyOf(one)) ?? 0;
      // A restarted pod counts from 0.
      return { ...one, minutes, value: one.value >= last ? one.value - last : one.value };
    });
}

function roundOf(grown: readonly Growth[], pods: readonly Pod[], at: Date): Round {
  const [account, mail] = ['recorded', 'account_created'].map((state) =>
    gauge(pods, 'records', { state }),
  );
  return {
    at,
    answers: rates(grown, 'requests_total', 'status'),
    finished: rates(
      grown.filter(({ labels: { state = '' } }) => FINAL.includes(state)),
      'outcomes_total',
      'state',
    ),
    mails: rates(grown, 'mails_total', 'result'),
    p99Seconds: quantile(grown, 0.99),
    waiting: account === undefined ? undefined : account + (mail ?? 0),
    byPartner: summed(grown.flatMap(partnerCounts)),
  };
}

function rates(grown: readonly Growth[], name: string, label: string): Rates {
  const sums: Record<string, number> = {};
  for (const one of grown) {
    if (one.name !== name) continue;
    const key = one.labels[label] ?? '';
    sums[key] = (sums[key] ?? 0) + one.value / one.minutes;
  }
  return sums;
}

function partnerCounts({ name, labels, value }: Growth): (readonly [string, PartnerCounts])[] {
  const { partner = '', status = '', state } = labels;
  if (partner === '' || value === 0) return [];
  if (name !== 'partner_requests_total')
    return [[partner, { requests: 0, rejected: state === 'rejected' ? value : 0 }]];
  const isRejected = ['400', '422'].includes(status);
  return [[partner, { requests: value, rejected: isRejected ? value : 0 }]];
}

/** As Prometheus' histogram_quantile: linear within a bucket. */
function quantile(grown: readonly Growth[], wanted: number): number | undefined {
  const byBound = new Map<number, number>();
  for (const { name, labels, value } of grown) {
    if (name !== 'accept_seconds_bucket') continue;
    const bound = labels['le'] === '+Inf' ? Infinity : Number(labels['le']);
    byBound.set(bound, (byBound.get(bound) ?? 0) + value);
  }
  const buckets = [...byBound].toSorted(([one], [other]) => one - other);
  const total = buckets.at(-1)?.[1] ?? 0;
  if (total === 0) return undefined;
  const index = buckets.findIndex(([, count]) => count >= wanted * total);
  const [bound, count] = buckets[index] ?? [0, 0];
  const [from, below] = buckets[index - 1] ?? [0, 0];
  if (bound === Infinity) return from;
  return from + (bound - from) * ((wanted * total - below) / (count - below));
}
