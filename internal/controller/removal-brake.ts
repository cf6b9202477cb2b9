/** Holds a round that would remove most of the keys: more often an emptied source than a wish. Single removals pass. */
import { HELD_REMOVAL_MS, type HeldRemovals } from '../partner/held-removals.ts';
import type { Problem } from '../partner/key-secret.ts';
import type { PartnerKey } from '../partner/key-store.ts';
import type { Clock } from '../platform/clock.ts';
import type { Logger } from '../platform/log.ts';
import { REMOVED_FREELY } from './limits.ts';

export interface BrakeTools {
  readonly held: HeldRemovals;
  readonly clock: Clock;
  readonly log: Logger;
}

/** Of the keys that are `gone`, those to remove now, and those that stay active for now. `active` counts all. */
export async function brakeRemovals(
  gone: readonly PartnerKey[],
  active: number,
  owner: string,
  { held, clock, log }: BrakeTools,
): Promise<{ readonly remove: readonly PartnerKey[]; readonly hold: readonly PartnerKey[] }> {
  const begun = await held.of(owner);
  const waits = new Set(begun?.keys);
  const hold = gone.filter(({ _id }) => waits.has(_id));
  const fresh = gone.filter(({ _id }) => !waits.has(_id));
  if (isMost(fresh.length, active - hold.length)) {
    await held.hold(
      owner,
      gone.map(({ _id }) => _id),
    );
    log.error({ removals: gone.length, keys: active }, 'most partner keys would be removed: held for 10 minutes');
    return { remove: [], hold: gone };
  }
  if (begun === undefined) return { remove: fresh, hold: [] };
  if (hold.length === 0) {
    await held.drop(owner);
    return { remove: fresh, hold: [] };
  }
  const isOver = clock.now().getTime() - begun.since.getTime() >= HELD_REMOVAL_MS;
  return begun.confirmedAt !== undefined || isOver ? { remove: gone, hold: [] } : { remove: fresh, hold };
}

function isMost(removals: number, keys: number): boolean {
  return removals > REMOVED_FREELY && removals * 2 > keys;
}

export function heldProblem({ source: { namespace, name, uid } }: PartnerKey): Problem {
  const message =
    'the keys of this Secret are gone together with most others, and stay active for 10 minutes unless "partner-ingest keys confirm" removes them now';
  return { source: { namespace, name, uid }, code: 'removal_held', message };
}
