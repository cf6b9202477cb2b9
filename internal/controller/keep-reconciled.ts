/** Reconciles the keys whenever a Secret may have changed, now and then anyway, and again soon after a failure. */
import { backoffMs, pause } from '../platform/deadline.ts';
import type { Problem } from '../partner/key-secret.ts';
import type { Writer } from '../partner/key-store.ts';
import { reconcilePartnerKeys, type ReconcileKeysTools } from './reconcile-partner-keys.ts';

/** Even when no event says so, the keys are compared this often. */
const RESYNC_MS = 60_000;
const FAILURE_BACKOFF = { firstMs: 250, capMs: 5_000, jitter: 0.2 } as const;

export interface KeyKeeper {
  /** Whether a complete reconcile has succeeded since the start. */
  readonly synced: () => boolean;
  close(): Promise<void>;
}

export function keepKeysReconciled(tools: Omit<ReconcileKeysTools, 'writer' | 'report'>): KeyKeeper {
  const stop = new AbortController();
  let synced = false;
  let wake = (): void => {};
  let dirty = true;
  const changed = (): void => {
    dirty = true;
    wake();
  };
  const report = onceEach((problem) => {
    const { namespace, name } = problem.source;
    tools.log.warn(
      { namespace, secret: name, problem: problem.code, hint: problem.message },
      'a partner Secret needs mending',
    );
  });

  const work = async (): Promise<void> => {
    let writer: Writer | undefined;
    let failures = 0;
    while (!stop.signal.aborted) {
      dirty = false;
      try {
        writer ??= { owner: tools.source.owner, term: await tools.store.nextTerm(tools.source.owner) };
        synced = (await reconcilePartnerKeys({ ...tools, writer, report: report.tell })) || synced;
        report.endRound();
        failures = 0;
      } catch (error) {
        failures += 1;
        dirty = true;
        tools.log[failures === 1 ? 'warn' : 'debug'](
          { err: error },
          'partner keys could not be reconciled; trying again',
        );
        await pause(backoffMs(failures, FAILURE_BACKOFF), stop.signal);
      }
      if (!dirty) {
        const sleep = new AbortController();
        wake = () => sleep.abort();
        await pause(RESYNC_MS, AbortSignal.any([sleep.signal, stop.signal]));
      }
    }
  };
  tools.source.watch(changed, stop.signal);
  const working = work();
  return {
    synced: () => synced,
    close: async () => {
      stop.abort();
      await working;
    },
  };
}

/** Tells each problem once, and again only after a round without it. */
function onceEach(tell: (problem: Problem) => void) {
  let told = new Set<string>();
  let seen = new Set<string>();
  return {
    tell: (problem: Problem): void => {
      const key = JSON.stringify(problem);
      seen.add(key);
      if (!told.has(key)) tell(problem);
    },
    endRound: (): void => {
      told = seen;
      seen = new Set();
    },
  };
}
