/** A queue in which owners take turns, each with its items in order. */
import { largest } from './shares.ts';

interface Queue<Item> {
  readonly items: Item[];
  size: number;
}

interface TurnsOptions<Item> {
  /** An item is put behind the last one that it may follow; by default, at the end. */
  readonly mayFollow?: (later: Item, earlier: Item) => boolean;
  readonly sizeOf?: (item: Item) => number;
}

export class Turns<Item> {
  readonly #options: Required<TurnsOptions<Item>>;
  /** The next owner comes first. */
  readonly #queues = new Map<string, Queue<Item>>();
  #count = 0;
  #size = 0;

  constructor({ mayFollow = () => true, sizeOf = () => 1 }: TurnsOptions<Item> = {}) {
    this.#options = { mayFollow, sizeOf };
  }

  get count(): number {
    return this.#count;
  }

  get size(): number {
    return this.#size;
  }

  owners(): Iterable<string> {
    return this.#queues.keys();
  }

  countOf(owner: string): number {
    return this.#queues.get(owner)?.items.length ?? 0;
  }

  put(owner: string, item: Item): void {
    const queue = this.#queues.get(owner) ?? { items: [], size: 0 };
    this.#queues.set(owner, queue);
    const { mayFollow } = this.#options;
    const at = queue.items.findLastIndex((earlier) => mayFollow(item, earlier)) + 1;
    queue.items.splice(at, 0, item);
    this.#count += 1;
    this.#grow(queue, item, 1);
  }

  /** Takes the owner's first item; its next turn comes last. */
  takeOf(owner: string): Item | undefined {
    const [item] = this.#cut(owner, 0, 1, { toBack: true });
    return item;
  }

  /**
   * Removes items in turn until one does not fit. Leaves each owner's first items for which `mayGo`
   * is false.
   */
  take(fits: (item: Item) => boolean, mayGo: (item: Item) => boolean = () => true): Item[] {
    const taken: Item[] = [];
    const turns = [...this.#queues].flatMap(([owner, { items }]) => {
      const from = items.findIndex(mayGo);
      return from < 0 ? [] : [{ owner, items, from, count: 0 }];
    });
    const served = new Set<(typeof turns)[number]>();
    for (let turn = turns.shift(); turn !== undefined; turn = turns.shift()) {
      const { items, from, count } = turn;
      const item = items[from + count]!;
      if (!fits(item)) break;
      taken.push(item);
      turn.count += 1;
      // The owner served last has its next turn last.
      served.delete(turn);
      served.add(turn);
      if (from + turn.count < items.length) turns.push(turn);
    }
    for (const { owner, from, count } of served) this.#cut(owner, from, count, { toBack: true });
    return taken;
  }

  /** Removes each owner's first items for which `isOver` is true. */
  shed(isOver: (item: Item) => boolean): Item[] {
    return [...this.#queues].flatMap(([owner, { items }]) => {
      const first = items.findIndex((item) => !isOver(item));
      return this.#cut(owner, 0, first < 0 ? items.length : first);
    });
  }

  remove(owner: string, item: Item): void {
    const at = this.#queues.get(owner)?.items.indexOf(item) ?? -1;
    if (at >= 0) this.#cut(owner, at, 1);
  }

  /** Makes room: removes the last item of the owner that has most. */
  giveWay(by: 'count' | 'size' = 'count'): Item | undefined {
    const most = largest(this.#queues, ([, { items, size }]) =>
      by === 'count' ? items.length : size,
    );
    return most && this.#cut(most[0], most[1].items.length - 1, 1)[0];
  }

  #cut(owner: string, from: number, count: number, { toBack = false } = {}): Item[] {
    const queue = this.#queues.get(owner);
    if (queue === undefined) return [];
    const gone = queue.items.splice(from, count);
    this.#count -= gone.length;
    for (const item of gone) this.#grow(queue, item, -1);
    if (toBack || queue.items.length === 0) this.#queues.delete(owner);
    if (toBack && queue.items.length > 0) this.#queues.set(owner, queue);
    return gone;
  }

  #grow(queue: Queue<Item>, item: Item, by: 1 | -1): void {
    const size = by * this.#options.sizeOf(item);
    queue.size += size;
    this.#size += size;
  }
}
