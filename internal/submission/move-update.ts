/** The fields that every move writes, so that no state lacks its dates. */
import type { UpdateFilter } from 'mongodb';
import { DAY_MS, later } from '../platform/clock.ts';
import { defined } from '../platform/defined.ts';
import { isOpen, type RetentionDays, type State } from './states.ts';
import type { SubmissionRecord } from './submission.ts';

export function moveUpdate(
  to: State,
  options: {
    readonly now: Date;
    readonly attempt: number;
    readonly reason?: string | undefined;
    readonly dueInMs: number;
    readonly retention: RetentionDays;
    readonly claimedUntil?: Date | undefined;
  },
) {
  const { now, attempt, reason, retention, claimedUntil } = options;
  const history = { state: to, at: now, attempt, ...defined({ reason }) };
  const days = isOpen(to) || to === 'dead_lettered' ? undefined : retention[to];
  const bodyDays = days === undefined ? undefined : retention.body;
  const dates = {
    ...(isOpen(to)
      ? { dueAt: claimedUntil ?? later(now, options.dueInMs), attempts: 0, ambiguous: 0 }
      : {}),
    ...defined({ claimedUntil }),
    ...(days === undefined ? {} : { expiresAt: later(now, days * DAY_MS) }),
    ...(bodyDays === undefined ? {} : { bodyUntil: later(now, bodyDays * DAY_MS) }),
  };
  return {
    $set: { state: to, stateAt: now, ...dates },
    $unset: {
      firstSeenAt: true,
      ...(claimedUntil === undefined ? { claimedUntil: true } : {}),
      backedOffMs: true,
      crashes: true,
      ...(isOpen(to) ? {} : { dueAt: true }),
      ...(days === undefined ? { expiresAt: true } : {}),
      ...(bodyDays === undefined ? { bodyUntil: true } : {}),
    },
    $push: { history },
  } satisfies UpdateFilter<SubmissionRecord>;
}
