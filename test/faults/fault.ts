/** Describes a fault: how it begins and ends, what it raises, and what it allows. */
import type { ServiceName } from '../../deploy/local/processes.ts';
import type { Random } from '../support/random.ts';
import type { ChaosWorld, RedisSetKind, Slot } from './world.ts';

export interface Injector {
  readonly about: string;
  /** What must be there before the fault begins. */
  prepare?(world: ChaosWorld): Promise<void>;
  inject(world: ChaosWorld, random: Random): Promise<void>;
  /** Ends the fault; resolves once the part is back. */
  heal(world: ChaosWorld): Promise<void>;
  tidy?(world: ChaosWorld): Promise<void>;
  /** Processes use this kind of Redis during the fault. */
  readonly redis?: RedisSetKind;
  /** The stores' data are on disks that can lose power. */
  readonly onPowerDisks?: true;
  /**
   * Repeats the fault: on for `onMs`, off for `offMs`. Without it, the fault lasts all the time.
   */
  readonly rhythm?: { readonly onMs: number; readonly offMs: number };
  /** The shortest duration that shows an effect. */
  readonly leastMs?: number;
  readonly times?: number;
}

/** Findings that the audit allows where the run caused them. */
export type Allowance =
  /** An ingest was killed between a 500 and its withdrawal. */
  | 'processed_after_500'
  /** A hand-over was repeated after a lost answer or a dead processor. */
  | 'second_mail'
  /** The relay refused the recipient, or the mail bounced. */
  | 'undeliverable'
  /** The relay cut every hand-over of a request. */
  | 'dead_letter'
  /** A processor of a version that does not ask which request came first. */
  | 'overtaken';

export interface Expectation {
  readonly raises: readonly string[];
  readonly may?: readonly string[];
  readonly allows?: readonly Allowance[];
  /** What an operator does afterwards by the runbook. */
  readonly repair?: (world: ChaosWorld) => Promise<void>;
}

export interface Fault extends Injector, Expectation {
  readonly name: string;
}

export const BETWEEN_MS = 700;
export const KILL_WITHIN_MS = 1_200;

export function pickSlot(world: ChaosWorld, name: ServiceName, random: Random): Slot {
  return random.pick(world.slotsOf(name));
}

export async function refill(world: ChaosWorld): Promise<void> {
  await Promise.all(
    world.slots.filter((slot) => slot.process === undefined).map((slot) => world.start(slot)),
  );
}

export const STORES = ['mongodb', 'redis'] as const;
export type StoreName = (typeof STORES)[number];

export async function killStore(world: ChaosWorld, name: StoreName): Promise<void> {
  world.facts.killed(name, name);
  await (name === 'mongodb' ? world.mongo : world.redis).signal('SIGKILL');
}
