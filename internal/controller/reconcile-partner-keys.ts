/**
 * Makes the stored keys match the partner Secrets by comparing states, so missed events do no harm.
 */
import { SupersededError } from '../partner/key-document.ts';
import { wantedKeys, type KeySource, type Problem } from '../partner/key-secret.ts';
import type { KeyStore } from '../partner/key-store.ts';
import { partnersEnding } from '../partner/key-terms.ts';
import type { Clock } from '../platform/clock.ts';
import type { Logger } from '../platform/log.ts';
import type { ControllerMetrics } from '../telemetry/metrics.ts';
import { planRound, type Plan } from './plan-round.ts';
import type { SecretList } from './secret-source.ts';

export interface ReconcileKeysTools {
  readonly store: KeyStore;
  /** Under which this process takes the lease. */
  readonly holder: string;
  readonly clock: Clock;
  readonly log: Logger;
  readonly allowPublished: boolean;
  readonly metrics: Pick<
    ControllerMetrics,
    'keysWanted' | 'partnersEnding' | 'secretProblems' | 'keyChanges' | 'syncedAt'
  >;
  report(problems: readonly Problem[]): void;
}

export class KeyRounds {
  readonly #tools: ReconcileKeysTools;
  #synced = false;
  #warnings: readonly string[] = [];

  constructor(tools: ReconcileKeysTools) {
    this.#tools = tools;
  }

  get synced(): boolean {
    return this.#synced;
  }

  get warnings(): readonly string[] {
    return this.#warnings;
  }

  /** Rejects with `SupersededError` if another process leads or the document is gone. */
  async round(list: SecretList): Promise<void> {
    const { store, holder, allowPublished, clock, metrics } = this.#tools;
    const [document, revoked] = await Promise.all([store.documents.read(), store.revoked()]);
    if (document?.holder !== holder) throw new SupersededError();
    const sources = new Map(document.keys.map(({ hash, source }) => [hash, source]));
    const { keys: wanted, problems } = wantedKeys(list.secrets, {
      allowPublished,
      heldBy: (hash) => sources.get(hash),
    });
    const plan = planRound(list, wanted, document.keys, clock.now());
    if (isChange(plan) || (list.complete && document.syncedAt === undefined))
      await store.documents.replace(document.version, plan.keys, { synced: list.complete });
    this.#noteChanges(plan, list);
    await store.forgetUses(plan.removed);

    metrics.keysWanted.set(wanted.size);
    metrics.partnersEnding.set(partnersEnding(wanted.values(), clock.now()).length);
    const ofRevoked = [...wanted.values()].flatMap(({ hash, source }) =>
      revoked.has(hash) ? [revokedProblem(source)] : [],
    );
    const all = [...list.problems, ...problems, ...ofRevoked, ...plan.problems];
    metrics.secretProblems.reset();
    for (const problem of all) metrics.secretProblems.inc({ problem: problem.code });
    this.#warnings = plan.problems
      .filter(({ code }) => code === 'all_keys_would_end')
      .map(({ message }) => message);
    this.#tools.report(all);
  }

  #noteChanges(plan: Plan, list: SecretList): void {
    const { log, metrics } = this.#tools;
    const { put, removed } = plan;
    metrics.keyChanges.inc({ change: 'put' }, put);
    metrics.keyChanges.inc({ change: 'remove' }, removed.length);
    if (isChange(plan))
      log.info({ put, remove: removed.length, complete: list.complete }, 'partner keys changed');
    if (!list.complete) return;
    this.#synced = true;
    metrics.syncedAt.set(list.asOf.getTime() / 1_000);
  }
}

/** What rounds counted says nothing once another process leads. */
export function forgetRounds(metrics: ReconcileKeysTools['metrics']): void {
  for (const gauge of [metrics.keysWanted, metrics.partnersEnding]) gauge.set(0);
  metrics.secretProblems.reset();
}

const isChange = ({ put, removed }: Plan): boolean => put > 0 || removed.length > 0;

function revokedProblem(source: KeySource): Problem {
  const message =
    'a key of this Secret was revoked by an operator and does not count: remove it from the Secret';
  return { source, code: 'key_revoked', message };
}
