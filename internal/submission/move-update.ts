/** What a move writes: the same update whoever moves the record, so that no state can lack its dates. */
import type { UpdateFilter } from 'mongodb';
import { later } from '../platform/clock.ts';
import { isOpen, type RetentionDays, type State } from './states.ts';
import type { SubmissionRecord } from './submission.ts';

const DAY_MS = 86_400_000;

/**
 * The update that puts a record into `to`. An open state gets a `dueAt` and fresh counts; a final one loses its `dueAt`
 * and gets an `expiresAt` if its state is ever deleted. Either way the dates of the state before are gone.
 */
export function moveUpdate(
  to: State,
  options: {
    readonly now: Date;
    readonly attempt: number;
    readonly reason?: string | undefined;
    /** Until work on an open state is looked for, in milliseconds. */
    readonly dueInMs: number;
    readonly retention: RetentionDays;
  },
) {
  const { now, attempt, reason, retention } = options;
  const history = { state: to, at: now, attempt, ...(reason === undefined ? {} : { reason }) };
  const days = isOpen(to) || to === 'dead_lettered' ? undefined : retention[to];
  const dates = {
    ...(isOpen(to) ? { dueAt: later(now, options.dueInMs), attempts: 0, ambiguous: 0 } : {}),
    ...(days === undefined ? {} : { expiresAt: later(now, days * DAY_MS) }),
  };
  return {
    $set: { state: to, stateAt: now, ...dates },
    $unset: {
      firstSeenAt: true,
      heldUntil: true,
      ...(isOpen(to) ? {} : { dueAt: true }),
      ...(days === undefined ? { expiresAt: true } : {}),
    },
    $push: { history },
  } satisfies UpdateFilter<SubmissionRecord>;
}
