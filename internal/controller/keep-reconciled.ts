/** Reconciles the keys while this process leads, after changes and at intervals. */
import type { Problem } from '../partner/key-secret.ts';
import { SupersededError } from '../partner/key-document.ts';
import { pause } from '../platform/deadline.ts';
import type { Loop, Loops } from '../platform/loop.ts';
import { Leadership } from './leadership.ts';
import { RESYNC_MS, ROUNDS_FAIL_AFTER_MS, ROUND_GAP_MS, ROUND_RETRY } from './limits.ts';
import { KeyRounds, forgetRounds, type ReconcileKeysTools } from './reconcile-partner-keys.ts';
import type { SecretSource, SecretView } from './secret-source.ts';
import type { ControllerMetrics } from '../telemetry/metrics.ts';

interface KeyKeeperTools extends ReconcileKeysTools {
  readonly source: SecretSource;
  readonly loops: Pick<Loops<'lease' | 'partner_secrets'>, 'start'>;
  readonly metrics: ReconcileKeysTools['metrics'] & Pick<ControllerMetrics, 'leader'>;
}

export class KeyKeeper {
  readonly #tools: KeyKeeperTools;
  readonly #leadership: Leadership;
  readonly #loop: Loop;
  #term: { readonly view: SecretView; readonly rounds: KeyRounds } | undefined;

  constructor(tools: KeyKeeperTools) {
    const logged = onceEach(
      ({ source: { namespace, name: secret }, code: problem, message: hint }) =>
        tools.log.warn({ namespace, secret, problem, hint }, 'a partner Secret needs correction'),
    );
    const report = (problems: readonly Problem[]): void => {
      logged(problems);
      tools.report(problems);
    };
    this.#tools = { ...tools, report };
    const lease = tools.store.documents;
    this.#leadership = new Leadership({ ...tools, lease }, (term) => this.#lead(term));
    this.#loop = tools.loops.start({
      name: 'partner_secrets',
      everyMs: () => this.#term?.view.everyMs ?? RESYNC_MS,
      retry: ROUND_RETRY,
      failsAfterMs: ROUNDS_FAIL_AFTER_MS,
      run: (signal) => this.#round(signal),
    });
  }

  readonly leads = (): boolean => this.#term !== undefined;

  readonly faults = (): readonly string[] => {
    if (this.#term === undefined) return this.#leadership.faults();
    const { view, rounds } = this.#term;
    return rounds.synced
      ? view.faults()
      : ['the partner Secrets have not been reconciled completely yet; see the log'];
  };

  readonly warnings = (): readonly string[] => this.#term?.rounds.warnings ?? [];

  async close(): Promise<void> {
    await this.#loop.stop();
    await this.#leadership.close();
  }

  /** A view of an earlier term may be older than the stored keys. */
  #lead(term: AbortSignal): void {
    const view = this.#tools.source.follow(() => this.#loop.wake(), term);
    this.#term = { view, rounds: new KeyRounds(this.#tools) };
    term.addEventListener('abort', () => {
      this.#term = undefined;
      this.#loop.wake();
    });
    this.#loop.wake();
  }

  async #round(signal: AbortSignal): Promise<void> {
    if (this.#term === undefined) {
      forgetRounds(this.#tools.metrics);
      return;
    }
    const { view, rounds } = this.#term;
    try {
      await rounds.round(await view.list());
    } catch (error) {
      if (!(error instanceof SupersededError)) throw error;
      this.#leadership.resign();
    }
    // Changes that come together share a round.
    await pause(ROUND_GAP_MS, signal);
  }
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
