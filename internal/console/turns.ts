/** Calls of servers of which few may run at a time, so that people take turns. */
import type { FastifyRequest } from 'fastify';
import { Turns } from '../fair/turns.ts';

/** Large reads at a time; few, to spare the database. */
const READERS = 2;
const READERS_WAITING = 20;
/** Longer than all calls before a waiting one take. */
const WAITS_AT_MOST_MS = 60_000;

/** Calls `run` once it is the owner's turn. */
type OwnersTurns = <T>(owner: string, run: () => Promise<T>) => Promise<T>;

/** Calls `read` once it is the person's turn. */
export type InTurn = <T>(
  request: Pick<FastifyRequest, 'person'>,
  read: () => Promise<T>,
) => Promise<T>;

export function readsInTurns(): InTurn {
  const inTurn = inTurns(READERS, READERS_WAITING);
  return ({ person }, read) => inTurn(person?.sub ?? '', read);
}

/** If too many wait, one of the owner with most is answered 429; so is one that waits too long. */
export function inTurns(atOnce: number, waitingMost: number): OwnersTurns {
  let free = atOnce;
  const waiting = new Turns<PromiseWithResolvers<void>>();
  return async (owner, run) => {
    if (free > 0) free -= 1;
    else {
      const turn = Promise.withResolvers<void>();
      waiting.put(owner, turn);
      if (waiting.count > waitingMost) waiting.giveWay()?.reject(new Error('gave way'));
      const patience = setTimeout(() => {
        waiting.remove(owner, turn);
        turn.reject(new Error('waited too long'));
      }, WAITS_AT_MOST_MS);
      await turn.promise
        .catch((cause: unknown) => {
          throw Object.assign(new Error('too many wait', { cause }), { statusCode: 429 });
        })
        .finally(() => clearTimeout(patience));
    }
    try {
      return await run();
    } finally {
      const [next = ''] = waiting.owners();
      const turn = waiting.takeOf(next);
      if (turn === undefined) free += 1;
      else turn.resolve();
    }
  };
}
