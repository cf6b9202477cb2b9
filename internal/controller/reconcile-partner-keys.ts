/** Makes the stored keys what the partner Secrets ask for: level-based, so a missed event costs nothing. */
import { isDeepStrictEqual } from 'node:util';
import { wantedKeys, type KeySource, type Problem, type WantedKey } from '../partner/key-secret.ts';
import { partnersEnding } from '../partner/key-terms.ts';
import type { KeyStore, PartnerKey, Writer } from '../partner/key-store.ts';
import type { ControllerMetrics } from '../telemetry/metrics.ts';
import { brakeRemovals, heldProblem, type BrakeTools } from './removal-brake.ts';
import type { SecretList } from './secret-source.ts';

export interface ReconcileKeysTools extends BrakeTools {
  readonly store: KeyStore;
  /** Whether the evaluation's published key counts. */
  readonly allowPublished: boolean;
  readonly metrics: Pick<
    ControllerMetrics,
    'keysWanted' | 'partnersEnding' | 'keysRemovalHeld' | 'secretProblems' | 'keyChanges' | 'syncedAt'
  >;
  /** Tells ingest to read the keys again; a failure is harmless, because it does so anyway every 15 s. */
  notify(): Promise<void>;
  /** Told of all problems in every round; repeats are the receiver's to hold back. */
  report(problems: readonly Problem[]): void;
}

/** One round: whether all could be compared, and how many removals wait. Rejects when the store fails, or is no longer ours. */
export async function reconcilePartnerKeys(
  list: SecretList,
  writer: Writer,
  tools: ReconcileKeysTools,
): Promise<{ readonly complete: boolean; readonly held: number }> {
  const { store, metrics } = tools;
  const { keys: wanted, problems } = wantedKeys(list.secrets, tools);
  const stored = new Map((await store.ofOwner(writer.owner)).map((key) => [key._id, key]));
  const unsure = unsurePartners([...stored.values()], list);
  const puts = [...wanted.values()].filter((key) => {
    const current = stored.get(key.hash);
    if (current !== undefined && isSame(current, key)) return false;
    return list.complete || isSafeUnseen(current, key, unsure);
  });
  // A namespace that could not be read proves nothing about what is missing from it.
  const gone = [...stored.values()].filter(
    (key) => key.status !== 'removed' && !wanted.has(key._id) && list.provesGone(key.source),
  );

  const active = [...stored.values()].filter(({ status }) => status !== 'removed').length;
  const { remove, hold } = await brakeRemovals(gone, active, writer.owner, tools);

  const foreign = await store.put(puts, writer);
  const put = puts.length - foreign.length;
  const removed = await store.remove(
    remove.map((key) => key._id),
    writer,
  );
  if (put + removed > 0) {
    metrics.keyChanges.inc({ change: 'put' }, put);
    metrics.keyChanges.inc({ change: 'remove' }, removed);
    tools.log.info({ put, removed, keys: wanted.size, complete: list.complete }, 'partner keys changed');
    await tools.notify().catch((error: unknown) => tools.log.debug({ err: error }, 'ingest could not be notified'));
  }
  if (list.complete) {
    await store.purge(writer);
    await store.markSynced(writer);
    metrics.syncedAt.set(list.asOf.getTime() / 1_000);
  }

  const revoked = [...wanted.values()].flatMap(({ hash, source }) =>
    stored.get(hash)?.revokedAt === undefined ? [] : [revokedProblem(source)],
  );
  const all = [
    ...list.problems,
    ...problems,
    ...foreign.map(ofOtherInstallation),
    ...revoked,
    ...hold.map(heldProblem),
  ];
  metrics.keysWanted.set(wanted.size);
  metrics.partnersEnding.set(partnersEnding(wanted.values(), tools.clock.now()).length);
  metrics.keysRemovalHeld.set(hold.length);
  metrics.secretProblems.reset();
  for (const problem of all) metrics.secretProblems.inc({ problem: problem.code });
  tools.report(all);
  return { complete: list.complete, held: hold.length };
}

function ofOtherInstallation({ source }: WantedKey): Problem {
  const message = 'a key of this Secret is in force for another installation on the same database and was left alone';
  return { source, code: 'other_installation', message };
}

function revokedProblem(source: KeySource): Problem {
  const message = 'a key of this Secret was revoked by an operator and does not count: remove it from the Secret';
  return { source, code: 'key_revoked', message };
}

/**
 * What may be written though some Secret could not be read: new keys of partners whose state is known, and switching off.
 * The unread Secret may make the partner inactive, or be the older owner of a key that two partners claim.
 */
function isSafeUnseen(stored: PartnerKey | undefined, wanted: WantedKey, unsure: ReadonlySet<string>): boolean {
  if (stored === undefined || stored.status === 'removed') {
    return wanted.status === 'inactive' || !unsure.has(wanted.partnerId);
  }
  return stored.partnerId === wanted.partnerId && wanted.status === 'inactive';
}

/** Partners that are off by something unread, perhaps, or have keys of something unread. */
function unsurePartners(stored: readonly PartnerKey[], list: SecretList): ReadonlySet<string> {
  const unsure = stored.filter(
    ({ status, source }) => status === 'inactive' || (status === 'active' && !list.provesGone(source)),
  );
  return new Set(unsure.map(({ partnerId }) => partnerId));
}

function isSame(stored: PartnerKey, wanted: WantedKey): boolean {
  return (
    stored.status === wanted.status &&
    stored.partnerId === wanted.partnerId &&
    isDeepStrictEqual(stored.terms ?? {}, wanted.terms) &&
    stored.source.uid === wanted.source.uid &&
    stored.source.name === wanted.source.name &&
    stored.source.namespace === wanted.source.namespace
  );
}
