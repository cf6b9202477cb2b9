/**
 * Makes the stored keys match the partner Secrets while this process leads, after changes and at
 * intervals. It compares states, so missed events do no harm.
 */
import { SupersededError } from '../partner/key-document.ts';
import { wantedKeys, type Problem } from '../partner/key-secret.ts';
import type { KeyStore } from '../partner/key-store.ts';
import { partnersEnding } from '../partner/key-terms.ts';
import type { Clock } from '../platform/clock.ts';
import { pause } from '../platform/deadline.ts';
import type { Logger } from '../platform/log.ts';
import type { Loop } from '../platform/loop.ts';
import type { ControllerMetrics } from '../telemetry/metrics.ts';
import type { Leadership } from './leadership.ts';
import { planRound } from './plan-round.ts';
import type { SecretList, SecretSource, SecretView } from './secret-source.ts';

/** Changes that come together share a round. */
const ROUND_GAP_MS = 200;

export interface ReconcileTools {
  readonly store: KeyStore;
  /** Under which this process takes the lease. */
  readonly holder: string;
  readonly clock: Clock;
  readonly log: Logger;
  readonly allowPublished: boolean;
  readonly metrics: ControllerMetrics;
}

/**
 * Resolves to what is wrong with the Secrets. Rejects with `SupersededError` if another process
 * leads or the document is gone.
 */
export async function reconcileKeys(
  list: SecretList,
  { store, holder, allowPublished, clock, log, metrics }: ReconcileTools,
): Promise<readonly Problem[]> {
  const [document, revoked] = await Promise.all([store.documents.read(), store.revoked()]);
  if (document?.holder !== holder) throw new SupersededError();
  const stored = new Map(document.keys.map((key) => [key.hash, key]));
  const { keys: wanted, problems } = wantedKeys(list.secrets, {
    allowPublished,
    heldBy: (hash) => stored.get(hash)?.source,
  });
  const now = clock.now();
  const { ended: endedBefore = [] } = document;
  // What is incomplete changes nothing.
  const plan = planRound(list.complete ? wanted : stored, stored, {
    now,
    ended: endedBefore,
    revoked,
  });
  const { keys, put, removed, problems: ofPlan, ended } = plan;
  const isChange = put > 0 || removed.length > 0;
  if (isChange || (list.complete && document.syncedAt === undefined))
    await store.documents.replace(document.version, keys, { synced: list.complete, ended });
  if (isChange)
    log.info({ put, remove: removed.length, complete: list.complete }, 'partner keys changed');
  metrics.keyChanges.inc({ change: 'put' }, put);
  metrics.keyChanges.inc({ change: 'remove' }, removed.length);
  if (list.complete) metrics.syncedAt.set(list.asOf.getTime() / 1_000);
  await store.forgetUses(removed);

  metrics.keysWanted.set(wanted.size);
  metrics.partnersEnding.set(partnersEnding(wanted.values(), now).length);
  const ofRevoked = [...wanted.values()].flatMap(({ hash, source }): Problem[] => {
    const message =
      'a key of this Secret was revoked by an operator and does not count: remove it from the Secret';
    return revoked.has(hash) ? [{ source, code: 'key_revoked', message }] : [];
  });
  return [...list.problems, ...problems, ...ofRevoked, ...ofPlan];
}

interface KeyKeeperTools extends ReconcileTools {
  readonly leadership: Leadership;
  readonly source: SecretSource;
  report(problems: readonly Problem[]): void;
}

export class KeyKeeper {
  readonly #tools: KeyKeeperTools;
  readonly #loop: Loop;
  /** Followed for one term, because that of an earlier one may be older than the stored keys. */
  #view: SecretView | undefined;
  #isSynced = false;
  #warnings: readonly string[] = [];
  #logged: ReadonlySet<string> = new Set();

  constructor(tools: KeyKeeperTools) {
    this.#tools = tools;
    this.#loop = tools.leadership.start({
      name: 'partner_secrets',
      everyMs: () => this.#view?.everyMs ?? 60_000,
      retry: { firstMs: 250, capMs: 5_000 },
      failsAfterMs: 120_000,
      run: (term) => this.#round(term),
      forget: () => this.#forget(),
    });
  }

  readonly faults = (): readonly string[] => {
    if (!this.#tools.leadership.leads) return [];
    if (this.#isSynced && this.#view !== undefined) return this.#view.faults();
    return ['the partner Secrets have not been reconciled completely yet; see the log'];
  };

  readonly warnings = (): readonly string[] => this.#warnings;

  async #round(term: AbortSignal): Promise<void> {
    const { source, leadership } = this.#tools;
    this.#view ??= source.follow(() => this.#loop.wake(), term);
    try {
      const list = await this.#view.list();
      const problems = await reconcileKeys(list, this.#tools);
      if (list.complete) this.#isSynced = true;
      this.#report(problems);
      await this.#tools.store.problems.keep(problems, list.secrets);
    } catch (error) {
      if (!(error instanceof SupersededError)) throw error;
      leadership.resign();
    }
    await pause(ROUND_GAP_MS, term);
  }

  #report(problems: readonly Problem[]): void {
    const { log, metrics } = this.#tools;
    metrics.secretProblems.reset();
    for (const { code } of problems) metrics.secretProblems.inc({ problem: code });
    this.#warnings = problems
      .filter(({ code }) => code === 'keys_would_end')
      .map(({ message }) => message);
    const byText = new Map(problems.map((problem) => [JSON.stringify(problem), problem]));
    for (const [text, { source, code: problem, message: hint }] of byText) {
      const { namespace, name: secret } = source;
      if (!this.#logged.has(text))
        log.warn({ namespace, secret, problem, hint }, 'a partner Secret needs correction');
    }
    this.#logged = new Set(byText.keys());
    this.#tools.report(problems);
  }

  /** What rounds counted says nothing once another process leads. */
  #forget(): void {
    const { metrics, store } = this.#tools;
    store.problems.forget();
    metrics.keysWanted.set(0);
    metrics.partnersEnding.set(0);
    metrics.secretProblems.reset();
    this.#view = undefined;
    this.#isSynced = false;
    this.#warnings = [];
  }
}
