/**
 * Entries that wait to be written, the oldest of each partner in turn: a partner that sends more
 * than the database takes waits for itself. A partner alone has all of it.
 */
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
    const partner = entry.record.partnerId ?? '';
    const queue = this.#queues.get(partner) ?? { entries: [], bytes: 0 };
    this.#queues.set(partner, queue);
    queue.entries.push(entry);
    this.#count(queue, entry, 1);
  }

  /** Removes each entry that `take` says is `taken` or `ended`, and stops at the first `full`. */
  take(take: (entry: Entry) => 'taken' | 'ended' | 'full'): void {
    for (;;) {
      const [partner, queue] = this.#queues.entries().next().value ?? [];
      if (partner === undefined || queue === undefined) return;
      const told = take(queue.entries[0]!);
      if (told === 'full') return;
      this.#count(queue, queue.entries.shift()!, -1);
      if (told === 'ended' && queue.entries.length > 0) continue;
      this.#queues.delete(partner);
      if (queue.entries.length > 0) this.#queues.set(partner, queue);
    }
  }

  /** Removes the newest entry of the partner with most bytes. */
  displace(): Entry | undefined {
    let [most, partnerOfMost]: [Queue | undefined, string] = [undefined, ''];
    for (const [partner, queue] of this.#queues)
      if (queue.bytes > (most?.bytes ?? 0)) [most, partnerOfMost] = [queue, partner];
    const entry = most?.entries.pop();
    if (most === undefined || entry === undefined) return undefined;
    this.#count(most, entry, -1);
    if (most.entries.length === 0) this.#queues.delete(partnerOfMost);
    return entry;
  }

  /** Removes the entries whose deadline has passed. */
  expire(now: number): Entry[] {
    const expired: Entry[] = [];
    for (const [partner, queue] of this.#queues) {
      while ((queue.entries[0]?.deadline ?? Infinity) <= now) {
        const entry = queue.entries.shift()!;
        this.#count(queue, entry, -1);
        expired.push(entry);
      }
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
