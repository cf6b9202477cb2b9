/**
 * Counts in memory what a process answers or ends, and adds it to `traffic` every 10 s at most.
 *
 * - A count of a live owner also counts for `EVERYBODY`, once it is written.
 * - A batch stays as it is until the database has answered for it. Each update raises the number of
 *   this process in `writes` and matches only a lower one, so one that is sent again counts once.
 * - What cannot be written waits within `rowsMax`. Counts beyond are `lost`, which is stored, too.
 */
import { randomBytes } from 'node:crypto';
import type { Collection, Db } from 'mongodb';
import { isTestOwner } from '../partner/key-terms.ts';
import type { Clock } from '../platform/process/clock.ts';
import type { Loop, Loops } from '../platform/process/loop.ts';
import {
  isDuplicateKey,
  requireDurable,
  sendPastLockConflicts,
  writeTogether,
  type UpdateItem,
} from '../platform/stores/mongo.ts';
import {
  ACCEPT_MS,
  documentId,
  EVERYBODY,
  expiryOf,
  MINUTE_MS,
  spans,
  startOf,
  sumsPlace,
  trafficCollection,
  type Span,
  type TrafficDocument,
} from './traffic.ts';

/** With the jitter of loops, 10 s at most. */
const FLUSH_MS = 8_000;
const FAILS_AFTER_MS = 60_000;
/** One command takes some 100 ms. */
const WRITTEN_TOGETHER = 500;
/** An update that the database refuses by itself is lost after as many rounds. */
const TRIES = 5;
const LIMITS = {
  /** Owners in minutes, some 15 MB. With 10,000 partners, two minutes of an outage. */
  rowsMax: 20_000,
  writeWithinMs: 5_000,
} as const;
/** Of levels that wait for an absent database. */
const MINUTES_MAX = 1_440;
/** Of one owner in one minute. The service's own codes are fewer. */
const NAMES_MAX = 150;

/** Counts by name, which is the path in `Counts`. */
type CountsByName = Map<string, number>;
type CountsByOwner = Map<string, CountsByName>;

interface Unsent extends UpdateItem {
  readonly u: { readonly $inc?: Readonly<Record<string, number>> };
  tries: number;
}

const sumOf = (counts: Readonly<Record<string, number>> = {}): number =>
  Object.values(counts).reduce((sum, count) => sum + Math.abs(count), 0);

interface EndedRecord {
  readonly receivedAt: Date;
  readonly history: readonly { readonly state: string }[];
}

interface Why {
  readonly field?: string;
  readonly code: string;
}

/** The ends that processors reach. */
const ENDS = ['completed', 'rejected', 'undeliverable', 'dead_lettered'];

type Bounds = Readonly<Record<keyof typeof LIMITS, number>>;

interface CounterTools {
  readonly db: Db;
  readonly clock: Clock;
  readonly loops: Pick<Loops<'traffic'>, 'start'>;
}

export class TrafficCounter {
  readonly #limits: Bounds;
  readonly #clock: Clock;
  readonly #collection: Collection<TrafficDocument>;
  readonly #loop: Loop;
  /** A restarted process is another one. */
  readonly #writer = randomBytes(4).toString('hex');
  #written = 0;
  /** By the start of the minute, then by owner. */
  #minutes = new Map<number, CountsByOwner>();
  /** The most requests that waited, by the start of the minute, then by name. */
  #levels = new Map<number, CountsByName>();
  #size = 0;
  #lost = 0;
  #current: CountsByOwner = new Map();
  /** Monotonic, so that no request makes a `Date`. */
  #currentUntilMs = -Infinity;
  #unsent: Unsent[] = [];

  constructor({ db, clock, loops }: CounterTools, limits: Bounds = LIMITS) {
    this.#limits = limits;
    this.#clock = clock;
    this.#collection = trafficCollection(db);
    this.#loop = loops.start({
      name: 'traffic',
      everyMs: FLUSH_MS,
      failsAfterMs: FAILS_AFTER_MS,
      run: () => this.#write(),
    });
  }

  /** `owner` is empty without a known key. `acceptMs`: of a submission that was accepted. */
  answered(
    owner: string,
    kind: 'answers' | 'reads',
    status: number | 'replayed',
    acceptMs?: number,
  ): void {
    const rows = this.#now();
    const whose = owner === '' ? EVERYBODY : owner;
    this.#add(rows, whose, nameOf(kind, status));
    if (acceptMs !== undefined) this.#add(rows, whose, nameOf('accept', bucketOf(acceptMs)));
  }

  /** A processor moved the record to `state`; `history` does not have that yet. */
  ended(
    owner: string,
    { receivedAt, history }: EndedRecord,
    state: string,
    reasons: readonly Why[] = [],
  ): void {
    const received = this.#at(receivedAt.getTime());
    this.#add(received, owner, nameOf('ends', state));
    const before = endedBefore(history);
    if (before !== undefined) this.#add(received, owner, nameOf('ends', before), -1);
    for (const why of new Set(reasons.map(({ field = '', code }) => `${field} ${code}`)))
      this.#add(received, owner, nameOf(`reasons.${state}`, why));
    this.#add(this.#now(), owner, nameOf('finished', state));
  }

  mailed(owner: string, result: string): void {
    this.#add(this.#now(), owner, nameOf('mails', result));
  }

  /** How many live requests wait in this state. Later levels of a minute replace lower ones. */
  waiting(state: string, requests: number): void {
    const minute = startOf(this.#clock.now().getTime(), MINUTE_MS);
    const levels = this.#levels.get(minute) ?? (new Map() as CountsByName);
    this.#levels.set(minute, levels);
    const name = nameOf('waits', state);
    levels.set(name, Math.max(levels.get(name) ?? 0, requests));
    if (this.#levels.size <= MINUTES_MAX) return;
    const [oldest = minute] = this.#levels.keys();
    this.#levels.delete(oldest);
  }

  async close(): Promise<void> {
    await this.#loop.stop();
    // An update that is refused must not keep the last counts back.
    await this.#writeAll().catch(() => this.#writeAll());
  }

  async #writeAll(): Promise<void> {
    while (this.#unsent.length + this.#size + this.#levels.size + this.#lost > 0)
      await this.#write();
  }

  #now(): CountsByOwner {
    const monotonicMs = this.#clock.monotonicMs();
    if (monotonicMs >= this.#currentUntilMs) {
      const nowMs = this.#clock.now().getTime();
      this.#current = this.#at(nowMs);
      this.#currentUntilMs = monotonicMs + startOf(nowMs, MINUTE_MS) + MINUTE_MS - nowMs;
    }
    return this.#current;
  }

  #at(ms: number): CountsByOwner {
    const minute = startOf(ms, MINUTE_MS);
    let rows = this.#minutes.get(minute);
    if (rows === undefined) this.#minutes.set(minute, (rows = new Map()));
    return rows;
  }

  #add(rows: CountsByOwner, owner: string, name: string, by = 1): void {
    let row = rows.get(owner);
    if (row === undefined) {
      // The figures of all stay whole for longer than those of each.
      if (this.#size >= (owner === EVERYBODY ? 2 : 1) * this.#limits.rowsMax) {
        if (owner !== EVERYBODY && !isTestOwner(owner)) this.#add(rows, EVERYBODY, name, by);
        this.#lost += Math.abs(by);
        return;
      }
      rows.set(owner, (row = new Map()));
      this.#size += 1;
    }
    const known = row.get(name);
    if (known === undefined && row.size >= NAMES_MAX) this.#lost += Math.abs(by);
    else row.set(name, (known ?? 0) + by);
  }

  /** What is not written stays for the next round. */
  async #write(): Promise<void> {
    // A document's updates arrive in the order of their numbers.
    await this.#sendAll();
    this.#unsent = this.#batch();
    await this.#sendAll();
  }

  async #sendAll(): Promise<void> {
    const again: Unsent[] = [];
    let error: unknown;
    try {
      while (this.#unsent.length > 0) {
        const some = this.#unsent.slice(0, WRITTEN_TOGETHER);
        const refused = await this.#send(some);
        this.#unsent.splice(0, some.length);
        for (const [item, reason] of refused) {
          error = reason;
          item.tries += 1;
          if (item.tries < TRIES) again.push(item);
          else this.#lost += sumOf(item.u.$inc);
        }
      }
    } finally {
      this.#unsent.push(...again);
    }
    if (error !== undefined) throw error;
  }

  /** Resolves with those that the database refused. Rejects if they are in doubt. */
  async #send(items: readonly Unsent[]): Promise<Map<Unsent, unknown>> {
    const send = (some: readonly Unsent[]) =>
      sendPastLockConflicts(some, async (those) => {
        const updates = those.map(({ q, u, upsert }) => ({ q, u, upsert: upsert === true }));
        return requireDurable(
          await writeTogether(this.#collection, { updates }, this.#limits.writeWithinMs),
        );
      });
    const { failed } = await send(items);
    const [taken, refused] = [new Set<Unsent>(), new Map<Unsent, unknown>()];
    for (const [item, error] of failed)
      if (isDuplicateKey(error)) taken.add(item);
      else refused.set(item, error);
    if (taken.size === 0) return refused;
    // Another process made the document at the same moment, or this update has been counted. The
    // document is there now: if the update still does not match it, it has been counted.
    const repeated = await send([...taken]);
    for (const [item, error] of repeated.failed)
      if (!isDuplicateKey(error)) refused.set(item, error);
    return refused;
  }

  /** All that was counted, in the order of ids, which prevents most deadlocks. */
  #batch(): Unsent[] {
    if (this.#size + this.#levels.size === 0 && this.#lost === 0) return [];
    if (this.#lost > 0) {
      const everybody = this.#now();
      this.#size += everybody.has(EVERYBODY) ? 0 : 1;
      const row = everybody.get(EVERYBODY) ?? (new Map() as CountsByName);
      everybody.set(EVERYBODY, row.set('lost', this.#lost));
      this.#lost = 0;
    }
    const [minutes, levels] = [this.#minutes, this.#levels];
    this.#minutes = new Map();
    this.#levels = new Map();
    this.#size = 0;
    this.#currentUntilMs = -Infinity;
    this.#written += 1;
    const documents = new Map<string, Addition>();
    for (const span of Object.keys(spans) as Span[]) {
      for (const [minute, rows] of minutes)
        for (const [owner, row] of withEverybody(rows))
          addTo(documents, placeOf(span, minute, owner), '$inc', row);
      for (const [minute, row] of levels)
        addTo(documents, placeOf(span, minute, EVERYBODY), '$max', row);
    }
    for (const [minute, rows] of minutes)
      for (const [owner, row] of rows)
        if (owner !== EVERYBODY && !isTestOwner(owner))
          addTo(documents, sumsPlace(minute, owner), '$inc', sumsOf(row));
    const written = `writes.${this.#writer}`;
    const number = this.#written;
    return [...documents]
      .toSorted(([one], [other]) => (one < other ? -1 : 1))
      .map(([_id, { expiresAt, $inc, $max }]) => ({
        q: { _id, [written]: { $not: { $gte: number } } },
        u: {
          ...($inc.size > 0 && { $inc: Object.fromEntries($inc) }),
          ...($max.size > 0 && { $max: Object.fromEntries($max) }),
          $set: { [written]: number },
          $setOnInsert: { expiresAt },
        },
        upsert: true,
        tries: 0,
      }));
  }
}

/** A bounce that an operator reported after a completion was not counted. */
function endedBefore(history: EndedRecord['history']): string | undefined {
  return history.findLast(
    ({ state }, index) =>
      ENDS.includes(state) &&
      !(state === 'undeliverable' && history[index - 1]?.state === 'completed'),
  )?.state;
}

function bucketOf(ms: number): number | 'more' {
  for (const bound of ACCEPT_MS) if (ms < bound) return bound;
  return 'more';
}

/** The same string each time, so that a count allocates nothing. */
function nameOf(kind: string, value: string | number): string {
  let names = knownNames.get(kind);
  if (names === undefined) knownNames.set(kind, (names = new Map()));
  let name = names.get(value);
  if (name === undefined) {
    name = `${kind}.${String(value).replaceAll(/[.$\0]/g, '_')}`;
    if (names.size < NAMES_MAX) names.set(value, name);
  }
  return name;
}

const knownNames = new Map<string, Map<string | number, string>>();

function withEverybody(rows: CountsByOwner): CountsByOwner {
  const all: CountsByName = new Map(rows.get(EVERYBODY));
  for (const [owner, row] of rows) {
    if (owner === EVERYBODY || isTestOwner(owner)) continue;
    for (const [name, count] of row) all.set(name, (all.get(name) ?? 0) + count);
  }
  return all.size === 0 ? rows : new Map(rows).set(EVERYBODY, all);
}

/** What one update adds to a document, by path. */
interface Addition {
  readonly expiresAt: Date;
  readonly $inc: CountsByName;
  readonly $max: CountsByName;
}

interface DocumentPart {
  readonly _id: string;
  readonly expiresAt: Date;
  readonly part: number | string;
}

function placeOf(span: Span, minute: number, owner: string): DocumentPart {
  const { ms, partMs } = spans[span];
  const start = startOf(minute, ms);
  return {
    _id: documentId(span, start, owner),
    expiresAt: expiryOf(span, start, owner),
    part: Math.floor((minute - start) / partMs),
  };
}

/** Empty if neither changed. */
function sumsOf(row: CountsByName): CountsByName {
  let [requests, failed] = [0, 0];
  for (const [name, count] of row) {
    if (name.startsWith('answers.')) requests += count;
    if (/^(answers\.[45]|ends\.(?!completed$))/.test(name)) failed += count;
  }
  const sums = Object.entries({ requests, failed }).filter(([, count]) => count !== 0);
  return new Map(sums);
}

function addTo(
  documents: Map<string, Addition>,
  { _id, expiresAt, part }: DocumentPart,
  how: '$inc' | '$max',
  row: CountsByName,
): void {
  if (row.size === 0) return;
  let document = documents.get(_id);
  if (document === undefined) {
    document = { expiresAt, $inc: new Map(), $max: new Map() };
    documents.set(_id, document);
  }
  const values = document[how];
  for (const [name, value] of row) {
    const path = `parts.${part}.${name}`;
    const known = values.get(path) ?? 0;
    values.set(path, how === '$max' ? Math.max(known, value) : known + value);
  }
}
