/**
 * Entries that wait to be written, the oldest of each partner in turn: a partner that sends more
 * than the database takes waits for itself. A partner alone has all of it.
 */
import { ownerName } from '../partner/mode.ts';
import type { Entry } from './commit-entry.ts';

interface Queue {
  readonly entries: Entry[];
  bytes: number;
}

export class FairQueue {
  readonly #queues = new Map<string, Queue>();
  #length = 0;
  #bytes = 0;

  get length(): number {
    return this.#length;
  }

  get bytes(): number {
    return this.#bytes;
  }

  push(entry: Entry): void {
    const partner = ownerName(entry.record.partnerId ?? '', entry.record);
    const queue = this.#queues.get(partner) ?? { entries: [], bytes: 0 };
    this.#queues.set(partner, queue);
    queue.entries.push(entry);
    this.#count(queue, entry, 1);
  }

  /**
   * Removes entries that have enough time, in turn, until one does not fit. Those with too little
   * are the oldest of each partner; they stay.
   */
  take(hasTime: (entry: Entry) => boolean, fits: (entry: Entry) => boolean): Entry[] {
    const taken: Entry[] = [];
    const turns = [...this.#queues].flatMap(([partner, queue]) => {
      const from = queue.entries.findIndex(hasTime);
      return from < 0 ? [] : [{ partner, queue, from, count: 0 }];
    });
    const served = new Set<(typeof turns)[number]>();
    for (let turn = turns.shift(); turn !== undefined; turn = turns.shift()) {
      const { queue, from, count } = turn;
      const entry = queue.entries[from + count]!;
      if (!fits(entry)) break;
      taken.push(entry);
      turn.count += 1;
      // The last to be served is the last of the next batch.
      served.delete(turn);
      served.add(turn);
      if (from + turn.count < queue.entries.length) turns.push(turn);
    }
    for (const { partner, queue, from, count } of served) {
      for (const entry of queue.entries.splice(from, count)) this.#count(queue, entry, -1);
      this.#queues.delete(partner);
      if (queue.entries.length > 0) this.#queues.set(partner, queue);
    }
    return taken;
  }

  /** Removes the newest entry of the partner with most entries, or most bytes. */
  displace(by: 'entries' | 'bytes'): Entry | undefined {
    const sizeOf = ({ entries, bytes }: Queue): number => (by === 'bytes' ? bytes : entries.length);
    let largest: readonly [string, Queue] | undefined;
    for (const each of this.#queues)
      if (largest === undefined || sizeOf(each[1]) > sizeOf(largest[1])) largest = each;
    if (largest === undefined) return undefined;
    const [partner, queue] = largest;
    const entry = queue.entries.pop()!;
    this.#count(queue, entry, -1);
    if (queue.entries.length === 0) this.#queues.delete(partner);
    return entry;
  }

  /** Removes the entries whose deadline has passed. */
  expire(now: number): Entry[] {
    const expired: Entry[] = [];
    for (const [partner, queue] of this.#queues) {
      const alive = queue.entries.findIndex(({ deadline }) => deadline > now);
      const over = queue.entries.splice(0, alive < 0 ? queue.entries.length : alive);
      for (const entry of over) this.#count(queue, entry, -1);
      expired.push(...over);
      if (queue.entries.length === 0) this.#queues.delete(partner);
    }
    return expired;
  }

  #count(queue: Queue, { bytes }: Entry, by: 1 | -1): void {
    queue.bytes += by * bytes;
    this.#bytes += by * bytes;
    this.#length += by;
  }
}
