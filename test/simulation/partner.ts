/** A simulated partner. With an idempotency key it repeats until it is answered. */
import type { Ingest, Submission } from './ingest.ts';
import type { Sent, World } from './world.ts';

/** The earlier try or its withdrawal may still be under way. */
const AGAIN_MS = { from: 50, to: 4_000 } as const;

export interface Partner {
  submit(submission: Submission): void;
  atRest(): boolean;
}

export function startPartner(world: World, ingestNow: () => Ingest): Partner {
  const { scheduler } = world;
  let waiting = 0;
  const heard = ({ answer }: Sent): boolean => answer !== undefined && answer !== 500;
  const trySending = (submission: Submission, tries: readonly Sent[]): void => {
    if (tries.some(heard)) {
      waiting -= 1;
      return;
    }
    const ingest = ingestNow();
    const up = ingest.process.alive && ingest.process.frozenUntil <= scheduler.now;
    const sent = up ? [ingest.submit(submission)] : [];
    if (submission.key === null) return;
    scheduler.after(scheduler.random.between(AGAIN_MS.from, AGAIN_MS.to), () =>
      trySending(submission, [...tries, ...sent]),
    );
  };
  return {
    submit: (submission) => {
      if (submission.key !== null) waiting += 1;
      trySending(submission, []);
    },
    atRest: () => waiting === 0,
  };
}
