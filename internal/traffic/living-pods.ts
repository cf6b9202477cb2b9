/**
 * Which processes of ingest live: they share a limit that each counts alone, and say which version
 * of the partners' keys they know.
 */
import { randomBytes } from 'node:crypto';
import type { Collection, Db } from 'mongodb';
import { later, type Clock } from '../platform/process/clock.ts';
import type { Loop, Loops } from '../platform/process/loop.ts';
import { bounded } from '../platform/stores/mongo-read.ts';
import { trafficCollection, type TrafficDocument } from './traffic.ts';

const BEAT_EVERY_MS = 10_000;
const RETRY = { firstMs: 500, capMs: BEAT_EVERY_MS } as const;
const BEATS_FAIL_AFTER_MS = 60_000;
/** A process that was killed counts for so long. */
export const LIVES_MS = 30_000;

export class LivingPods {
  readonly #beats: Collection<TrafficDocument>;
  readonly #clock: Clock;
  readonly #loop: Loop;
  /** A restarted process is another one. */
  readonly #_id = `pod ${randomBytes(6).toString('hex')}`;
  #count = 1;
  #keysVersion = 0;

  constructor(tools: {
    readonly db: Db;
    readonly clock: Clock;
    /** Resolves once `clock` is the database's. */
    readonly clockKnown: Promise<void>;
    readonly loops: Pick<Loops<'living_pods'>, 'start'>;
  }) {
    this.#beats = trafficCollection(tools.db);
    this.#clock = tools.clock;
    this.#loop = tools.loops.start({
      name: 'living_pods',
      everyMs: BEAT_EVERY_MS,
      retry: RETRY,
      failsAfterMs: BEATS_FAIL_AFTER_MS,
      run: async () => {
        await tools.clockKnown;
        await this.#beat();
      },
    });
  }

  /** At least 1; while the database is away, as it was last. */
  get count(): number {
    return this.#count;
  }

  /** Resolves once others count this process. */
  get counted(): Promise<void> {
    return this.#loop.succeeded;
  }

  /** Takes the version of the keys that this process uses. */
  knows(keysVersion: number): void {
    this.#keysVersion = keysVersion;
    this.#loop.wake();
  }

  /** Others need not wait for this process. */
  async close(): Promise<void> {
    await this.#loop.stop();
    await this.#beats.updateOne({ _id: this.#_id }, { $set: { expiresAt: this.#clock.now() } });
  }

  async #beat(): Promise<void> {
    const expiresAt = later(this.#clock.now(), LIVES_MS);
    const beat = { $set: { expiresAt, keysVersion: this.#keysVersion } };
    await this.#beats.updateOne({ _id: this.#_id }, beat, { upsert: true });
    const found = await livingAt(this.#beats, this.#clock).toArray();
    this.#count = Math.max(1, found.length);
  }
}

/** The lowest version of the keys that a live process knows; undefined if none lives. */
export async function keysKnownByAll(db: Db, clock: Clock): Promise<number | undefined> {
  const versions = await livingAt(trafficCollection(db), clock)
    .map(({ keysVersion = 0 }) => keysVersion)
    .toArray();
  return versions.length === 0 ? undefined : Math.min(...versions);
}

const livingAt = (beats: Collection<TrafficDocument>, clock: Clock) =>
  beats.find(
    { _id: { $gte: 'pod ', $lt: 'pod!' }, expiresAt: { $gt: clock.now() } },
    { projection: { keysVersion: 1 }, ...bounded },
  );
