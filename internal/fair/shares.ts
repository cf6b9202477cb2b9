/**
 * Shares a bound among owners, and an owner's share among its parts, such as a partner's addresses.
 * Until the bound is full, one owner may hold all. Then the owner that holds most gives way: the
 * oldest holder of its largest part, else of another part if `mayGiveWay` spares those. With
 * `newest` the newest does, also of equal shares: a holder keeps its place until somebody with a
 * smaller share comes.
 */
export type Owner = readonly [owner: string, part: string];

interface Share<Key, Within> {
  size: number;
  readonly within: Map<Key, Within>;
}

const empty = <Key, Within>(): Share<Key, Within> => ({ size: 0, within: new Map() });

export class FairShares<Holder> {
  readonly #max: number;
  readonly #giveWay: (holder: Holder) => void;
  readonly #mayGiveWay: (holder: Holder) => boolean;
  readonly #newest: boolean;
  readonly #all = empty<string, Share<string, Share<Holder, number>>>();
  readonly #owners = new Map<Holder, Owner>();

  /** `giveWay` is called after the holder was removed. */
  constructor(
    max: number,
    giveWay: (holder: Holder) => void,
    mayGiveWay: (holder: Holder) => boolean = () => true,
    which: 'oldest' | 'newest' = 'oldest',
  ) {
    this.#max = max;
    this.#giveWay = giveWay;
    this.#mayGiveWay = mayGiveWay;
    this.#newest = which === 'newest';
  }

  has(holder: Holder): boolean {
    return this.#owners.has(holder);
  }

  get holders(): Iterable<Holder> {
    return this.#owners.keys();
  }

  /** Sets owner and size of `holder`, which may have to give way itself. */
  hold(holder: Holder, owner: Owner, size = 1): void {
    const before = this.#owners.get(holder);
    if (before !== undefined && before.some((name, level) => name !== owner[level]))
      this.#set(holder, before, 0);
    this.#owners.set(holder, owner);
    this.#set(holder, owner, size);
    while (this.#all.size > this.#max) {
      const next = this.#next() ?? holder;
      this.remove(next);
      this.#giveWay(next);
    }
  }

  remove(holder: Holder): void {
    const owner = this.#owners.get(holder);
    if (owner === undefined) return;
    this.#set(holder, owner, 0);
    this.#owners.delete(holder);
  }

  #set(holder: Holder, [owner, part]: Owner, size: number): void {
    const share = this.#all.within.get(owner) ?? empty();
    const ofPart = share.within.get(part) ?? empty();
    const by = size - (ofPart.within.get(holder) ?? 0);
    for (const each of [this.#all, share, ofPart]) each.size += by;
    put(ofPart.within, holder, size, size === 0);
    put(share.within, part, ofPart, ofPart.within.size === 0);
    put(this.#all.within, owner, share, share.within.size === 0);
  }

  #next(): Holder | undefined {
    const sizeOf = ({ size }: { readonly size: number }): number => size;
    const ofOwner = largest(this.#all.within.values(), sizeOf, this.#newest);
    const ofPart = ofOwner && largest(ofOwner.within.values(), sizeOf, this.#newest);
    if (this.#newest) return [...(ofPart?.within.keys() ?? [])].at(-1);
    const parts = [ofPart, ...(ofOwner?.within.values() ?? [])];
    return parts
      .values()
      .flatMap((part) => part?.within.keys() ?? [])
      .find(this.#mayGiveWay);
  }
}

function put<Key, Value>(map: Map<Key, Value>, key: Key, value: Value, gone: boolean): void {
  if (gone) map.delete(key);
  else map.set(key, value);
}

/** The first, or last, with the largest size; undefined if there are none. */
export function largest<Each>(
  all: Iterable<Each>,
  sizeOf: (each: Each) => number,
  last = false,
): Each | undefined {
  let [found, most]: [Each | undefined, number] = [undefined, -Infinity];
  for (const each of all) {
    const size = sizeOf(each);
    if (size > most || (last && size === most)) [found, most] = [each, size];
  }
  return found;
}
