/** Each pair of operators' orders at one moment, cut at each write. */
import { expect, test } from '@jest/globals';
import { ordersOfOne as orders } from './plan.ts';
import { meet, starts, writesOf, type Meeting } from './two-orders.ts';

/** Before each write; and after the first call, as what is read then may not fit what it found. */
const stopsOf = (writes: readonly number[]): Set<number> =>
  new Set(writes.length === 0 ? [] : [1, ...writes.map((call) => call - 1)]);

test.each(Object.keys(starts) as Meeting['start'][])(
  'two orders at one moment keep every promise on a request that is %s',
  async (start) => {
    const broken: unknown[] = [];
    let changed = 0;
    const play = async (meeting: Omit<Meeting, 'start'>) => {
      try {
        const met = await meet({ start, ...meeting });
        if (met.changed) changed += 1;
        return met;
      } catch (error) {
        broken.push({ ...meeting, error });
        return { changed: true, isOpen: true };
      }
    };
    const writes = new Map<string, readonly number[]>();
    for (const order of orders) writes.set(order, await writesOf(start, order));
    for (const first of orders)
      for (const second of orders) {
        const pair = [first, second] as const;
        const [ofFirst, ofSecond] = [writes.get(first)!, writes.get(second)!];
        for (const firstMakes of stopsOf(ofFirst)) {
          const met = await play({ orders: pair, firstMakes, fate: 'goes on' });
          if (met.isOpen) await play({ orders: pair, firstMakes, fate: 'goes on later' });
          if (!ofFirst.includes(firstMakes + 1)) continue;
          for (const write of ofSecond)
            await play({ orders: pair, firstMakes, secondMakes: write - 1, fate: 'goes on' });
        }
        for (const firstMakes of ofFirst) await play({ orders: pair, firstMakes, fate: 'dies' });
      }
    expect(broken).toEqual([]);
    expect(changed).toBeGreaterThan(orders.length);
  },
);
