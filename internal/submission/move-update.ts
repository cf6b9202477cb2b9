/** What every move writes, so that no state lacks its dates. */
import type { UpdateFilter } from 'mongodb';
import { DAY_MS, later } from '../platform/clock.ts';
import { defined } from '../platform/defined.ts';
import { isOpen, type RetentionDays, type State } from './states.ts';
import type { SubmissionRecord } from './submission.ts';

/**
 * The update that puts a record into `to`. An open state gets a `dueAt` and fresh counts; a final
 * one loses its `dueAt` and gets an `expiresAt` if its state is ever deleted, and `bodyUntil` if
 * its body goes earlier. Both remove the dates of the state before.
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
    /**
     * Until when the worker goes on to hold the record, in an open state; undefined: nobody holds
     * it.
     */
    readonly heldUntil?: Date | undefined;
  },
) {
  const { now, attempt, reason, retention, heldUntil } = options;
  const history = { state: to, at: now, attempt, ...defined({ reason }) };
  const days = isOpen(to) || to === 'dead_lettered' ? undefined : retention[to];
  const bodyDays = days === undefined ? undefined : retention.body;
  const dates = {
    ...(isOpen(to)
      ? { dueAt: heldUntil ?? later(now, options.dueInMs), attempts: 0, ambiguous: 0 }
      : {}),
    ...defined({ heldUntil }),
    ...(days === undefined ? {} : { expiresAt: later(now, days * DAY_MS) }),
    ...(bodyDays === undefined ? {} : { bodyUntil: later(now, bodyDays * DAY_MS) }),
  };
  return {
    $set: { state: to, stateAt: now, ...dates },
    $unset: {
      firstSeenAt: true,
      ...(heldUntil === undefined ? { heldUntil: true } : {}),
      urgent: true,
      backedOffMs: true,
      crashes: true,
      ...(isOpen(to) ? {} : { dueAt: true }),
      ...(days === undefined ? { expiresAt: true } : {}),
      ...(bodyDays === undefined ? { bodyUntil: true } : {}),
    },
    $push: { history },
  } satisfies UpdateFilter<SubmissionRecord>;
}
