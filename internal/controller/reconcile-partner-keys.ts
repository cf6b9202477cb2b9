/**
 * Makes the stored keys match the partner Secrets by comparing states, so missed events do no harm.
 */
import { wantedKeys, type KeySource, type Problem } from '../partner/key-secret.ts';
import { partnersEnding } from '../partner/key-terms.ts';
import type { KeyChange, KeyStore, PartnerKey } from '../partner/key-store.ts';
import type { Clock } from '../platform/clock.ts';
import type { Logger } from '../platform/log.ts';
import type { ControllerMetrics } from '../telemetry/metrics.ts';
import { planRound } from './plan-round.ts';
import type { SecretList } from './secret-source.ts';

export interface ReconcileKeysTools {
  readonly store: KeyStore;
  readonly clock: Clock;
  readonly log: Logger;
  readonly allowPublished: boolean;
  readonly metrics: Pick<
    ControllerMetrics,
    | 'keysWanted'
    | 'partnersEnding'
    | 'deferredRemovals'
    | 'secretProblems'
    | 'keyChanges'
    | 'syncedAt'
  >;
  report(problems: readonly Problem[]): void;
}

export class KeyRounds {
  readonly #term: number;
  readonly #tools: ReconcileKeysTools;
  /** An earlier leader may have died before it counted its changes. */
  #uncounted = true;
  #synced = false;
  #revoked = 0;

  constructor(term: number, tools: ReconcileKeysTools) {
    this.#term = term;
    this.#tools = tools;
  }

  get synced(): boolean {
    return this.#synced;
  }

  async round(list: SecretList): Promise<{ readonly deferred: number }> {
    const { store, clock, metrics } = this.#tools;
    const stored = new Map((await store.all()).map((key) => [key._id, key]));
    const { keys: wanted, problems } = wantedKeys(list.secrets, {
      allowPublished: this.#tools.allowPublished,
      ownerOf: (hash) => ownerOf(stored.get(hash)),
    });
    const plan = planRound(list, wanted, stored, clock.now());

    // An operator's command may have died before it counted a revocation.
    const revoked = [...stored.values()].filter(({ revokedAt }) => revokedAt !== undefined).length;
    this.#uncounted ||= plan.changes.length > 0 || revoked !== this.#revoked;
    await store.write(plan.changes, this.#term);
    if (list.complete) await store.purge(this.#term);
    if (this.#uncounted || (list.complete && !this.#synced)) {
      await store.sync.count(this.#term, { synced: list.complete });
      this.#uncounted = false;
    }
    this.#revoked = revoked;
    this.#noteChanges(plan.changes, list);

    metrics.keysWanted.set(wanted.size);
    metrics.partnersEnding.set(partnersEnding(wanted.values(), clock.now()).length);
    metrics.deferredRemovals.set(plan.deferred);
    const ofRevoked = [...wanted.values()].flatMap(({ hash, source }) =>
      stored.get(hash)?.revokedAt === undefined ? [] : [revokedProblem(source)],
    );
    const all = [...list.problems, ...problems, ...ofRevoked, ...plan.problems];
    metrics.secretProblems.reset();
    for (const problem of all) metrics.secretProblems.inc({ problem: problem.code });
    this.#tools.report(all);
    return { deferred: plan.deferred };
  }

  /** What it counted says nothing once another process leads. */
  end(): void {
    const { metrics } = this.#tools;
    for (const gauge of [metrics.keysWanted, metrics.partnersEnding, metrics.deferredRemovals])
      gauge.set(0);
    metrics.secretProblems.reset();
  }

  #noteChanges(changes: readonly KeyChange[], list: SecretList): void {
    const { log, metrics } = this.#tools;
    const [put, remove, deferred] = (['put', 'remove', 'defer'] as const).map(
      (kind) => changes.filter((change) => change.kind === kind).length,
    );
    metrics.keyChanges.inc({ change: 'put' }, put);
    metrics.keyChanges.inc({ change: 'remove' }, remove);
    if (changes.length > 0)
      log.info({ put, remove, complete: list.complete }, 'partner keys changed');
    if (deferred !== 0)
      log.error({ deferred }, 'most partner keys would end: removals deferred for 10 minutes');
    if (!list.complete) return;
    this.#synced = true;
    metrics.syncedAt.set(list.asOf.getTime() / 1_000);
  }
}

function ownerOf(stored: PartnerKey | undefined): string | undefined {
  return stored?.status === 'removed' ? undefined : stored?.partnerId;
}

function revokedProblem(source: KeySource): Problem {
  const message =
    'a key of this Secret was revoked by an operator and does not count: remove it from the Secret';
  return { source, code: 'key_revoked', message };
}
