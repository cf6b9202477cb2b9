/** Reconciles the keys while this process leads: whenever a Secret may have changed, now and then anyway, and again soon after a failure. */
import { backoffMs, pause } from '../platform/deadline.ts';
import type { Problem } from '../partner/key-secret.ts';
import { SupersededError, type Writer } from '../partner/key-store.ts';
import type { Election } from './election.ts';
import { FAILURE_BACKOFF, HELD_LOOK_MS, RESYNC_MS, ROUND_GAP_MS } from './limits.ts';
import { reconcilePartnerKeys, type ReconcileKeysTools } from './reconcile-partner-keys.ts';
import type { SecretSource, SecretView } from './secret-source.ts';

export interface KeyKeeper {
  readonly leads: () => boolean;
  /** Why the stored keys may not be what the Secrets ask for, as far as this process is to see to it. */
  readonly faults: () => readonly string[];
  /** Resolves once nothing more is written and no other process needs to wait for us. */
  close(): Promise<void>;
}

export function keepKeysReconciled(
  tools: ReconcileKeysTools & { readonly source: SecretSource; readonly election: Election },
): KeyKeeper {
  const stop = new AbortController();
  let term: { readonly view: SecretView; synced: boolean } | undefined;
  const logged = onceEach((problem) => {
    const { namespace, name } = problem.source;
    tools.log.warn(
      { namespace, secret: name, problem: problem.code, hint: problem.message },
      'a partner Secret needs mending',
    );
  });
  const report = (problems: readonly Problem[]): void => {
    logged(problems);
    tools.report(problems);
  };

  const lead = async (writer: Writer, signal: AbortSignal): Promise<void> => {
    // Followed anew for each term: what an earlier term of ours had seen may be older than what is stored now.
    const over = new AbortController();
    const change = changeFlag(signal);
    const view = tools.source.follow(change.raise, AbortSignal.any([signal, over.signal]));
    const own = { view, synced: false };
    term = own;
    try {
      for (let failures = 0; !signal.aborted;) {
        change.lower();
        try {
          const { complete, held } = await reconcilePartnerKeys(await view.list(), writer, { ...tools, report });
          own.synced ||= complete;
          failures = 0;
          await pause(ROUND_GAP_MS, signal);
          await change.raised(held > 0 ? HELD_LOOK_MS : RESYNC_MS);
        } catch (error) {
          if (error instanceof SupersededError) return;
          failures += 1;
          tools.log[failures === 1 ? 'warn' : 'debug'](
            { err: error },
            'partner keys could not be reconciled; trying again',
          );
          await pause(backoffMs(failures, FAILURE_BACKOFF), signal);
        }
      }
    } finally {
      term = undefined;
      over.abort();
    }
  };
  const working = tools.election.run(lead, stop.signal);
  return {
    leads: () => term !== undefined,
    faults: () => {
      if (term === undefined) return tools.election.faults();
      if (!term.synced) return ['the partner Secrets have not been reconciled completely yet; see the log'];
      return term.view.faults();
    },
    close: async () => {
      stop.abort();
      await working;
    },
  };
}

/** Any number of changes are one, until somebody looks. */
function changeFlag(signal: AbortSignal) {
  let isRaised = false;
  let wake = (): void => {};
  return {
    raise: (): void => {
      isRaised = true;
      wake();
    },
    lower: (): void => {
      isRaised = false;
    },
    /** Resolves once raised, after `milliseconds` at the latest, or when `signal` aborts. */
    raised: async (milliseconds: number): Promise<void> => {
      if (isRaised) return;
      const sleep = new AbortController();
      wake = () => sleep.abort();
      await pause(milliseconds, AbortSignal.any([sleep.signal, signal]));
    },
  };
}

/** Tells each problem once, and again only after a round without it. */
function onceEach(tell: (problem: Problem) => void): (problems: readonly Problem[]) => void {
  let told = new Set<string>();
  return (problems) => {
    const seen = new Set<string>();
    for (const problem of problems) {
      const key = JSON.stringify(problem);
      if (!told.has(key) && !seen.has(key)) tell(problem);
      seen.add(key);
    }
    told = seen;
  };
}
