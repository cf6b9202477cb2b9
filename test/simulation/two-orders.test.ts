/** Each pair of operators' orders at one moment, cut around each write of the first. */
import { expect, test } from '@jest/globals';
import { meet, orders, starts, writesOf, type Meeting } from './two-orders.ts';

/** Around each write; and after the first call, as what is read then may not fit what it found. */
const cutsOf = (writes: readonly number[]): number[] =>
  writes.length === 0 ? [] : [...new Set([1, ...writes.flatMap((call) => [call - 1, call])])];

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
      for (const second of orders)
        for (const firstMakes of cutsOf(writes.get(first)!)) {
          const pair = { orders: [first, second], firstMakes } as const;
          const met = await play({ ...pair, then: 'goes on' });
          if (met.isOpen) await play({ ...pair, then: 'goes on later' });
          if (met.changed || first === second) await play({ ...pair, then: 'dies' });
          // Before its first write, the first order is one that comes second.
          if (firstMakes < writes.get(first)![0]!) continue;
          for (const secondMakes of cutsOf(writes.get(second)!).slice(0, -1))
            await play({ ...pair, secondMakes, then: 'goes on' });
        }
    expect(broken).toEqual([]);
    expect(changed).toBeGreaterThan(orders.length);
  },
);
