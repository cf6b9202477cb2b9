/** Reconciles the keys while this process leads, after changes and at intervals. */
import { backoffMs, pause } from '../platform/deadline.ts';
import type { Logger } from '../platform/log.ts';
import type { Problem } from '../partner/key-secret.ts';
import { SupersededError } from '../partner/key-document.ts';
import type { Leadership } from './leadership.ts';
import { FAILURE_BACKOFF, RESYNC_MS, ROUND_GAP_MS } from './limits.ts';
import { KeyRounds, type ReconcileKeysTools } from './reconcile-partner-keys.ts';
import type { SecretSource, SecretView } from './secret-source.ts';

export interface KeyKeeper {
  readonly leads: () => boolean;
  readonly faults: () => readonly string[];
  readonly warnings: () => readonly string[];
  close(): Promise<void>;
}

export function keepKeysReconciled(
  tools: ReconcileKeysTools & { readonly source: SecretSource; readonly leadership: Leadership },
): KeyKeeper {
  const stop = new AbortController();
  let current: { readonly view: SecretView; readonly rounds: KeyRounds } | undefined;
  const logged = onceEach((problem) => {
    const { namespace, name } = problem.source;
    tools.log.warn(
      { namespace, secret: name, problem: problem.code, hint: problem.message },
      'a partner Secret needs correction',
    );
  });
  const report = (problems: readonly Problem[]): void => {
    logged(problems);
    tools.report(problems);
  };

  const lead = async (signal: AbortSignal): Promise<void> => {
    // A view of an earlier term may be older than the stored keys.
    const over = new AbortController();
    const change = changeFlag(signal);
    const view = tools.source.follow(change.raise, AbortSignal.any([signal, over.signal]));
    const rounds = new KeyRounds({ ...tools, report });
    current = { view, rounds };
    try {
      await roundsUntilOver({ view, rounds, change, log: tools.log }, signal);
    } finally {
      current = undefined;
      over.abort();
      rounds.end();
    }
  };
  const working = tools.leadership.run(lead, stop.signal);
  return {
    leads: () => current !== undefined,
    faults: () => {
      if (current === undefined) return tools.leadership.faults();
      const { view, rounds } = current;
      return rounds.synced
        ? view.faults()
        : ['the partner Secrets have not been reconciled completely yet; see the log'];
    },
    warnings: () => current?.rounds.warnings ?? [],
    close: async () => {
      stop.abort();
      await working;
    },
  };
}

async function roundsUntilOver(
  term: {
    readonly view: SecretView;
    readonly rounds: KeyRounds;
    readonly change: ReturnType<typeof changeFlag>;
    readonly log: Logger;
  },
  signal: AbortSignal,
): Promise<void> {
  const { view, rounds, change, log } = term;
  for (let failures = 0; !signal.aborted;) {
    change.lower();
    try {
      await rounds.round(await view.list());
      failures = 0;
      await pause(ROUND_GAP_MS, signal);
      await change.raised();
    } catch (error) {
      if (error instanceof SupersededError) return;
      failures += 1;
      log[failures === 1 ? 'warn' : 'debug'](
        { err: error },
        'partner keys could not be reconciled; trying again',
      );
      await pause(backoffMs(failures, FAILURE_BACKOFF), signal);
    }
  }
}

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
    /** Resolves after `RESYNC_MS` at the latest. */
    raised: async (): Promise<void> => {
      if (isRaised) return;
      const sleep = new AbortController();
      wake = () => sleep.abort();
      await pause(RESYNC_MS, AbortSignal.any([sleep.signal, signal]));
    },
  };
}

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
