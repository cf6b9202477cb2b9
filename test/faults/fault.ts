/** What a fault is: how it comes and goes, what it must raise, and what it excuses. */
import type { ServiceName } from '../../deploy/local/processes.ts';
import type { Random } from '../support/random.ts';
import type { ChaosWorld, RedisSetKind, Slot } from './world.ts';

/** How a part of the system is taken away, and how it comes back. */
export interface Injector {
  readonly about: string;
  inject(world: ChaosWorld, random: Random): Promise<void>;
  /** Undoes it; resolves once the part is there again. */
  heal(world: ChaosWorld): Promise<void>;
  /** Restores what the service does not wait for. */
  tidy?(world: ChaosWorld): Promise<void>;
  /** The processes use such a Redis meanwhile, instead of a single server. */
  readonly redis?: RedisSetKind;
  /** The data of the stores lie on disks that can lose their power. */
  readonly onPowerDisks?: true;
  /**
   * Injected again and again: held for `onMs`, healed for `offMs`. Without it once, for the whole
   * time.
   */
  readonly rhythm?: { readonly onMs: number; readonly offMs: number };
  /** Lasts at least this long, whatever is asked for: shorter would show nothing. */
  readonly leastMs?: number;
  /** Ends after this many injections instead of by time. */
  readonly times?: number;
}

/** What the audit lists instead of calling it a violation, where the run caused it. */
export type Allowance =
  /** Answered 500 by an ingest that was killed before its withdrawal. */
  | 'processed_after_500'
  /** A hand-over whose answer was lost, or whose processor died, is repeated. */
  | 'second_mail'
  /** The relay refused the recipient for good, or the mail bounced. */
  | 'undeliverable'
  /** Hand-over after hand-over was cut. */
  | 'dead_letter';

export interface Expectation {
  /** Alerts that must fire; none for what the system heals by itself. No others may. */
  readonly raises: readonly string[];
  /** Alerts that may fire as well, because the fault sometimes causes them. */
  readonly may?: readonly string[];
  readonly allows?: readonly Allowance[];
  /** What an operator does afterwards, again and again, as the runbook says. */
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

/** Starts a process in each slot that has none. */
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
