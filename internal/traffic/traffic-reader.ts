/** Operators' reads of what was counted: of one owner over a time, or of all partners lately. */
import type { Collection, Db } from 'mongodb';
import { DAY_MS, later } from '../platform/process/clock.ts';
import { bounded } from '../platform/stores/mongo-read.ts';
import {
  documentId,
  EVERYBODY,
  HOUR_MS,
  MINUTE_MS,
  partnerOfPart,
  spans,
  startOf,
  SUMS_SHARDS,
  sumsId,
  trafficCollection,
  type Counts,
  type PartnerSums,
  type Span,
  type TrafficDocument,
} from './traffic.ts';

/** How long the parts of a series are. Days are those of UTC. */
export const units = { minute: MINUTE_MS, hour: HOUR_MS, day: DAY_MS } as const;
export type Unit = keyof typeof units;

const spanOf = { minute: 'hour', hour: 'day', day: 'day' } as const satisfies Record<Unit, Span>;

export interface Part {
  readonly at: Date;
  /** Empty where nothing was counted. */
  readonly counts: Counts;
}

export interface SeriesAsked {
  readonly unit: Unit;
  readonly since: Date;
  /** Not included, but the part that it lies in is. */
  readonly until: Date;
}

export class TrafficReader {
  readonly #collection: Collection<TrafficDocument>;
  /** Once it is known, only old days go. */
  #since: Date | undefined;

  constructor(db: Db) {
    this.#collection = trafficCollection(db);
  }

  /**
   * Every part from the one of `since` on, oldest first. Minutes are kept for 8 days, hours and days
   * for 400: earlier ones are empty.
   */
  async series(owner: string, asked: SeriesAsked): Promise<Part[]> {
    const [parts = []] = (await this.seriesOf([owner], asked)).values();
    return parts;
  }

  async seriesOf(
    owners: readonly string[],
    { unit, since, until }: SeriesAsked,
  ): Promise<Map<string, Part[]>> {
    const span = spanOf[unit];
    const { ms, partMs, keptDays } = spans[span];
    const first = Math.max(
      startOf(since.getTime(), units[unit]),
      until.getTime() - (keptDays + 1) * DAY_MS,
    );
    const ids: string[] = [];
    for (const owner of owners)
      for (let at = startOf(first, ms); at < until.getTime(); at += ms)
        ids.push(documentId(span, at, owner));
    const found = await this.#collection
      .find({ _id: { $in: ids } }, { projection: { parts: 1 }, ...bounded })
      .toArray();
    const byId = new Map(found.map(({ _id, parts }) => [_id, parts]));
    const length = units[unit];
    return new Map(
      owners.map((owner) => {
        const parts: Part[] = [];
        for (let at = startOf(first, length); at < until.getTime(); at += length) {
          const inside = byId.get(documentId(span, at, owner));
          const counts =
            unit === 'day'
              ? sumOf(Object.values(inside ?? {}))
              : (inside?.[String((at % ms) / partMs)] ?? {});
          parts.push({ at: new Date(at), counts });
        }
        return [owner, parts];
      }),
    );
  }

  /** Of each partner, without tests: the sums of the hour of `now` and those before; at most 24. */
  async partners(now: Date, many = 2): Promise<ReadonlyMap<string, PartnerSums>> {
    const hours = Array.from({ length: many }, (_, ago) => now.getTime() - ago * HOUR_MS);
    const shards = Array.from({ length: SUMS_SHARDS }, (_, shard) => shard);
    const ids = hours.flatMap((at) => shards.map((shard) => sumsId(at, shard)));
    const sum = (name: keyof PartnerSums) => ({ $sum: `$part.v.${name}` });
    // Of 10,000 partners a day has 11 MB of sums, which stay there.
    const found = await this.#collection
      .aggregate<PartnerSums & { readonly _id: string }>(
        [
          { $match: { _id: { $in: ids } } },
          { $project: { part: { $objectToArray: '$parts' } } },
          { $unwind: '$part' },
          { $group: { _id: '$part.k', requests: sum('requests'), failed: sum('failed') } },
        ],
        bounded,
      )
      .toArray();
    return new Map(
      found.map(({ _id, requests, failed }) => [
        partnerOfPart(_id),
        { requests, failed: Math.max(0, failed) },
      ]),
    );
  }

  /** The first hour in which anything was counted, as far as it is kept; undefined before that. */
  async countedSince(now: Date): Promise<Date | undefined> {
    const kept = later(now, -spans.day.keptDays * DAY_MS);
    if (this.#since === undefined) {
      const ids: string[] = [];
      for (let ms = startOf(kept.getTime(), DAY_MS); ms <= now.getTime(); ms += DAY_MS)
        ids.push(documentId('day', ms, EVERYBODY));
      const days = await this.#collection
        .find({ _id: { $in: ids } }, { projection: { _id: 1 }, ...bounded })
        .toArray();
      const [first] = days.map(({ _id }) => new Date(_id.split(' ')[1] ?? '')).toSorted(byTime);
      if (first === undefined) return undefined;
      const hours = await this.series(EVERYBODY, { unit: 'hour', since: first, until: now });
      this.#since = hours.find(({ counts }) => Object.keys(counts).length > 0)?.at;
    }
    return this.#since && new Date(Math.max(this.#since.getTime(), kept.getTime()));
  }
}

const byTime = (one: Date, other: Date): number => one.getTime() - other.getTime();

/** Adds numbers of the same name, at any depth; of levels the highest counts. */
export function sumOf(all: readonly Counts[]): Counts {
  const sum = {};
  for (const one of all) addInto(sum, one as Sum);
  return sum;
}

interface Sum {
  [name: string]: number | Sum;
}

function addInto(sum: Sum, one: Sum, isLevel = false): void {
  for (const [name, value] of Object.entries(one)) {
    const known = sum[name];
    if (typeof value === 'number') {
      const before = typeof known === 'number' ? known : 0;
      sum[name] = isLevel ? Math.max(before, value) : before + value;
    } else {
      const inner = typeof known === 'object' ? known : {};
      sum[name] = inner;
      addInto(inner, value, name === 'waits');
    }
  }
}
