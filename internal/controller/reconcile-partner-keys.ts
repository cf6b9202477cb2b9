/** Makes the stored keys what the partner Secrets ask for: level-based, so a missed event costs nothing. */
import type { Clock } from '../platform/clock.ts';
import type { Logger } from '../platform/log.ts';
import { wantedKeys, type Problem, type WantedKey } from '../partner/key-secret.ts';
import type { KeyStore, PartnerKey, Writer } from '../partner/key-store.ts';
import type { SecretSource } from './secret-source.ts';

export interface ReconcileKeysTools {
  readonly source: SecretSource;
  readonly store: KeyStore;
  readonly writer: Writer;
  readonly clock: Clock;
  readonly log: Logger;
  readonly metrics: {
    readonly keysWanted: { set(value: number): void };
    readonly secretProblems: { reset(): void; inc(labels: { problem: string }): void };
    readonly keyChanges: { inc(labels: { change: string }): void };
    readonly syncedAt: { set(value: number): void };
  };
  /** Tells ingest to read the keys again; a failure is harmless, because it does so anyway every 15 s. */
  notify(): Promise<void>;
  /** Told of each problem in every round; repeats are the receiver's to hold back. */
  report(problem: Problem): void;
}

/** One round. Resolves `true` when the stored keys are now complete; rejects when Secrets or store cannot be read. */
export async function reconcilePartnerKeys(tools: ReconcileKeysTools): Promise<boolean> {
  const { store, writer, metrics } = tools;
  const list = await tools.source.list();
  const { keys: wanted, problems } = wantedKeys(list.secrets);
  metrics.keysWanted.set(wanted.size);
  metrics.secretProblems.reset();
  for (const problem of [...list.problems, ...problems]) {
    metrics.secretProblems.inc({ problem: problem.code });
    tools.report(problem);
  }

  const stored = new Map((await store.ofOwner(writer.owner)).map((key) => [key._id, key]));
  let changes = 0;
  const count = (change: 'put' | 'remove', done: boolean): void => {
    if (done) changes += 1;
    metrics.keyChanges.inc({ change: done ? change : 'not_ours' });
  };
  for (const key of wanted.values()) {
    const current = stored.get(key.hash);
    if (current !== undefined && isSame(current, key)) continue;
    if (list.complete || isSafeUnseen(current, key)) count('put', await store.put(key, writer));
  }
  // A list that is not complete proves nothing about what is missing from it.
  if (list.complete) {
    for (const key of stored.values()) {
      if (key.status !== 'removed' && !wanted.has(key._id)) count('remove', await store.remove(key._id, writer));
    }
    await store.purge(writer);
    await store.markSynced(writer);
    metrics.syncedAt.set(tools.clock.now().getTime() / 1_000);
  }
  if (changes > 0) {
    tools.log.info({ changes, keys: wanted.size, complete: list.complete }, 'partner keys changed');
    await tools.notify().catch((error: unknown) => tools.log.debug({ err: error }, 'ingest could not be notified'));
  }
  return list.complete;
}

/**
 * What may be written though some Secret could not be read: new keys, and switching off. The unread Secret may be the
 * one that makes the partner inactive, or the older owner of a key that two partners claim.
 */
function isSafeUnseen(stored: PartnerKey | undefined, wanted: WantedKey): boolean {
  if (stored === undefined || stored.status === 'removed') return true;
  return stored.partnerId === wanted.partnerId && wanted.status === 'inactive';
}

function isSame(stored: PartnerKey, wanted: WantedKey): boolean {
  return (
    stored.status === wanted.status &&
    stored.partnerId === wanted.partnerId &&
    stored.source.uid === wanted.source.uid &&
    stored.source.name === wanted.source.name &&
    stored.source.namespace === wanted.source.namespace
  );
}
