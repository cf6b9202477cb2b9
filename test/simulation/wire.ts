/** The network to MongoDB: calls are slow, lost or late. */
import { MongoNetworkError, MongoServerSelectionError } from 'mongodb';
import type { Actor } from '../../internal/submission/states.ts';
import type { Wire } from './driver.ts';
import type { Scheduler } from './scheduler.ts';
import type { World } from './world.ts';

/** Time-outs of internal/platform/stores/mongo.ts. */
const SERVER_SELECTION_MS = 2_000;
const SOCKET_TIMEOUT_MS = 10_000;
/** A request may be carried out this long after its client gave up. */
export const VERY_LATE_MS = 90_000;

const fates = ['request lost', 'answer lost', 'given up', 'slow'] as const;

/** A wire for a process; `socketTimeoutMs` is how long the client waits. */
export function newWire(
  scheduler: Scheduler,
  weather: World['mongo'],
  caller: Actor,
  socketTimeoutMs = SOCKET_TIMEOUT_MS,
): Wire {
  const { random } = scheduler;
  const onTheWay = (): number => random.between(0.2, random.chance(0.02) ? 800 : 4);
  return <T>(execute: () => T) =>
    new Promise<T>((resolve, reject) => {
      const process = scheduler.process;
      const settle = (delayMs: number, settled: () => void): void =>
        void scheduler.after(delayMs, settled, process);
      if (weather.away) {
        const message = 'Server selection timed out';
        settle(random.between(0, SERVER_SELECTION_MS), () => {
          reject(
            Object.assign(Object.create(MongoServerSelectionError.prototype) as Error, { message }),
          );
        });
        return;
      }
      const lose = (delayMs: number): void =>
        settle(delayMs, () => reject(new MongoNetworkError('connection closed')));
      const carryOut = (delayMs: number, answered: boolean): void =>
        scheduler.outside(delayMs, () => {
          if (weather.away && random.chance(0.5)) {
            if (answered) lose(random.between(0, socketTimeoutMs));
            return;
          }
          let answer: () => void;
          weather.caller = caller;
          try {
            const result = execute();
            answer = () => resolve(result);
          } catch (error) {
            answer = () => reject(error);
          }
          if (answered) settle(onTheWay(), answer);
        });
      const fate = random.chance(weather.shaky) ? random.pick(fates) : 'fine';
      switch (fate) {
        case 'request lost':
          lose(random.between(0, socketTimeoutMs));
          break;
        case 'answer lost':
          carryOut(onTheWay(), false);
          lose(random.between(5, socketTimeoutMs));
          break;
        case 'given up': // The request arrives after its client has given up.
          lose(socketTimeoutMs);
          carryOut(random.between(socketTimeoutMs, VERY_LATE_MS), false);
          break;
        case 'slow':
          carryOut(random.between(100, socketTimeoutMs / 2), true);
          break;
        case 'fine':
          carryOut(onTheWay(), true);
      }
    });
}
