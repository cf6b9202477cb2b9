/**
 * Makes the stored keys match the partner Secrets while this process leads, after changes and at
 * intervals. It compares states, so missed events do no harm.
 */
import { isDeepStrictEqual } from 'node:util';
import { KEYS_MAX, shareRoom, type StoredKey, SupersededError } from '../partner/key-document.ts';
import { inTurn } from '../partner/kept-findings.ts';
import { type Problem, type WantedKey, wantedKeys } from '../partner/key-secret.ts';
import type { KeyStore } from '../partner/key-store.ts';
import {
  type Governed,
  governed,
  type PartnerResource,
  partnerSource,
} from '../partner/partner-resource.ts';
import { boundsOf, endsSoon, partnersEnding } from '../partner/key-terms.ts';
import type { Clock } from '../platform/process/clock.ts';
import { pause } from '../platform/process/deadline.ts';
import { defined } from '../platform/process/defined.ts';
import type { Fault } from '../platform/process/fault.ts';
import type { Logger } from '../platform/process/log.ts';
import type { Loop } from '../platform/process/loop.ts';
import type { ControllerMetrics } from '../telemetry/metrics.ts';
import { guardKeys, type GuardMemory, type Loss } from './key-guard.ts';
import type { Leadership } from './leadership.ts';
import {
  secretsOfStored,
  type SecretList,
  type SecretSource,
  type SecretView,
} from './secret-source.ts';

/** Changes that come together share a round. */
const ROUND_GAP_MS = 200;

export interface ReconcileTools {
  readonly store: KeyStore;
  /** The name under which this process takes the lease. */
  readonly holder: string;
  readonly clock: Clock;
  readonly log: Logger;
  readonly allowPublished: boolean;
  /** The hash of the test key that the probe uses. */
  readonly probeHash?: string;
  readonly metrics: ControllerMetrics;
}

/** What a round found, for the status of each `Partner`. */
export interface RoundResult extends Pick<Governed, 'partners' | 'voided'> {
  readonly all: readonly PartnerResource[];
  readonly problems: readonly Problem[];
  /** The stored keys after the round. */
  readonly keys: readonly StoredKey[];
  /** The version of the stored keys that the round read, and the one after it. */
  readonly readAt: number;
  readonly version: number;
  /** Partners whose keys the round changed. */
  readonly changed: ReadonlySet<string>;
}

/**
 * Returns what the round found. Rejects with `SupersededError` if another process leads or
 * the document is gone.
 */
export async function reconcileKeys(
  list: SecretList,
  { store, holder, allowPublished, probeHash, clock, log, metrics }: ReconcileTools,
): Promise<RoundResult> {
  const [document, revoked] = await Promise.all([store.documents.read(), store.revoked()]);
  if (document?.holder !== holder) throw new SupersededError();
  const stored = new Map(document.keys.map((key) => [key.hash, key]));
  const { isUnread = () => false } = list;
  const { ended = [], arrived = [], followers: before = [] } = document;
  const unread = secretsOfStored(document.keys, isUnread);
  const rules = governed(list.secrets, list.partners, document.keys, {
    unread,
    lacksPartners: list.lacksPartners === true,
    followers: before,
  });
  const { keys: wanted, problems } = wantedKeys([...rules.secrets, ...unread], {
    allowPublished,
    ...defined({ probeHash }),
    heldBy: (hash) => stored.get(hash)?.source,
    lastBounds: boundsOf(document.keys),
  });
  const now = clock.now();
  // An incomplete list changes no key.
  const plan = planRound(list.complete ? wanted : stored, stored, {
    now,
    memory: { ended, arrived },
    revoked,
  });
  const { keys, changed, removed, memory } = plan;
  const put = changed.length - removed.length;
  const isChange = put > 0 || removed.length > 0;
  const followers = list.complete ? rules.followers : before;
  const isFirst = list.complete && document.syncedAt === undefined;
  const isWritten = isChange || isFirst || !isDeepStrictEqual(followers, before);
  const about = { synced: list.complete, ...memory, followers };
  const version = isWritten
    ? await store.documents.replace(document.version, keys, about)
    : document.version;
  if (isChange)
    log.info({ put, remove: removed.length, complete: list.complete }, 'partner keys changed');
  metrics.keyChanges.inc({ change: 'put' }, put);
  metrics.keyChanges.inc({ change: 'remove' }, removed.length);
  if (list.complete) metrics.syncedAt.set(list.asOf.getTime() / 1_000);
  await store.forgetUses(removed);

  metrics.keysWanted.set(wanted.size);
  const { counting = [], gone = [] } = Object.groupBy(wanted.values(), ({ hash }) =>
    revoked.has(hash) ? 'gone' : 'counting',
  );
  const ending = new Set(partnersEnding(counting, now));
  metrics.partnersEnding.set(ending.size);
  // The list has the problem of what it could not read.
  const readable = problems.filter(({ source }) => !isUnread(source));
  const all = [
    ...list.problems,
    ...rules.problems,
    ...readable,
    ...gone.map(isRevoked),
    ...counting.filter((key) => isLast(key, ending, now)).map(isEnding),
    ...plan.problems,
  ];
  return {
    ...rules,
    all: list.partners,
    problems: all.map((problem) => toldOf(problem, rules.partners)),
    keys,
    readAt: document.version,
    version,
    changed: new Set(changed.map(({ partnerId }) => partnerId)),
  };
}

function isLast({ partnerId, status, terms }: WantedKey, ending: Set<string>, now: Date): boolean {
  return status === 'active' && ending.has(partnerId) && !terms.test && endsSoon(terms, now);
}

/** With the `Partner` that shows it. */
function toldOf(problem: Problem, partners: Governed['partners']): Problem {
  const partner = partners.get(problem.partnerId ?? '');
  return partner === undefined || problem.source.kind === 'Partner'
    ? problem
    : { ...problem, about: partnerSource(partner) };
}

interface KeyKeeperTools extends ReconcileTools {
  readonly leadership: Leadership;
  readonly source: SecretSource;
  report(problems: readonly Problem[]): void;
  /** Called after each complete round. */
  reconciled?: ((result: RoundResult, view: SecretView) => void) | undefined;
}

export class KeyKeeper {
  readonly #tools: KeyKeeperTools;
  readonly #loop: Loop;
  /** Kept for one term: an older view may lag behind the stored keys. */
  #view: SecretView | undefined;
  #isSynced = false;
  #warnings: readonly Fault[] = [];
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

  readonly faults = (): readonly Fault[] => {
    if (!this.#tools.leadership.leads) return [];
    if (this.#isSynced && this.#view !== undefined) return this.#view.faults();
    const words = 'the partner Secrets have not been reconciled completely yet; see the log';
    return [{ code: 'secrets_unreconciled', words }];
  };

  readonly warnings = (): readonly Fault[] => this.#warnings;

  async #round(term: AbortSignal): Promise<void> {
    const { source, leadership } = this.#tools;
    this.#view ??= source.follow(() => this.#loop.wake(), term);
    try {
      const list = await this.#view.list();
      const result = await reconcileKeys(list, this.#tools);
      const { problems } = result;
      if (list.complete) this.#isSynced = true;
      const told = inTurn(problems);
      this.#report(problems, told);
      if (list.complete) this.#tools.reconciled?.(result, this.#view);
      await this.#tools.store.problems.keep(told);
    } catch (error) {
      if (!(error instanceof SupersededError)) throw error;
      leadership.resign();
    }
    await pause(ROUND_GAP_MS, term);
  }

  #report(problems: readonly Problem[], told: readonly Problem[]): void {
    const { log, metrics } = this.#tools;
    metrics.secretProblems.reset();
    for (const { code } of problems) metrics.secretProblems.inc({ problem: code });
    this.#warnings = told
      .filter(({ code }) => code === 'keys_would_end')
      .map(({ code, message: words }) => ({ code, words }));
    const byText = new Map(told.map((problem) => [JSON.stringify(problem), problem]));
    for (const [text, { source, code: problem, message: hint }] of byText) {
      const { namespace, name, kind } = source;
      const [named, what] =
        kind === undefined ? [{ secret: name }, 'partner Secret'] : [{ kind, id: name }, kind];
      if (!this.#logged.has(text))
        log.warn({ namespace, ...named, problem, hint }, `a ${what} needs correction`);
    }
    this.#logged = new Set(byText.keys());
    this.#tools.report(told);
  }

  /** Clears counts, which say nothing once another process leads. */
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

/* Decides which keys a round leaves stored. */

const NAMED = 10;
/** Warns at this share of the room, in time to remove old keys. */
const NEARLY_FULL = 0.8;

interface KeyPlan {
  readonly keys: readonly StoredKey[];
  /** Put and removed ones. */
  readonly changed: readonly StoredKey[];
  /** Hashes of keys. */
  readonly removed: readonly string[];
  readonly problems: readonly Problem[];
  readonly memory: GuardMemory;
}

/** The maps' keys are hashes. */
function planRound(
  wanted: ReadonlyMap<string, WantedKey>,
  stored: ReadonlyMap<string, StoredKey>,
  {
    now,
    memory,
    revoked,
  }: {
    readonly now: Date;
    readonly memory: GuardMemory;
    /** Hashes that an operator revoked. */
    readonly revoked: { has(hash: string): boolean };
  },
): KeyPlan {
  const all = [...stored.values()];
  const next = new Map(stored);
  for (const key of wanted.values()) {
    const current = stored.get(key.hash);
    if (isDeepStrictEqual(current, { ...key, updatedAt: current?.updatedAt })) continue;
    next.set(key.hash, { ...key, updatedAt: now });
  }
  const gone = all.filter(({ hash }) => !wanted.has(hash));
  for (const { hash } of gone) next.delete(hash);

  const counts = ({ hash, terms: { notAfter } }: StoredKey): boolean =>
    !revoked.has(hash) && (notAfter === undefined || notAfter > now);
  const guarded = guardKeys({
    now,
    memory,
    stored: all.filter(counts),
    next: [...next.values()].filter(counts),
    gone: gone.filter(counts),
  });
  const { losses } = guarded;
  const held = losses.flatMap((loss) => loss.held);
  for (const key of held) next.set(key.hash, key);

  const { fitting, over, asked } = shareRoom([...next.values()]);
  const left = new Set(fitting.map(({ hash }) => hash));
  const removed = all.filter(({ hash }) => !left.has(hash));
  return {
    keys: fitting,
    changed: [...fitting.filter((key) => stored.get(key.hash) !== key), ...removed],
    removed: removed.map(({ hash }) => hash),
    problems: [
      ...losses.flatMap(wouldEnd),
      ...over.map(tooMany),
      ...(asked > NEARLY_FULL ? [nearlyFull(asked)] : []),
    ],
    memory: guarded.memory,
  };
}

function wouldEnd({ held: [first, ...others], before }: Loss): readonly Problem[] {
  if (first === undefined) return [];
  const partners = [...new Set([first, ...others].map(({ partnerId }) => partnerId))].toSorted();
  const more = partners.length > NAMED ? ` and ${partners.length - NAMED} more` : '';
  const message = `more than half of ${before} partners would have lost all keys within ten minutes, so ${others.length + 1} keys stay active, of ${partners.slice(0, NAMED).join(', ')}${more}: apply the Secrets again; if it is meant, confirm each key with "partner-ingest keys revoke"`;
  return [{ source: first.source, code: 'keys_would_end', message }];
}

function isRevoked({ source, partnerId }: WantedKey): Problem {
  const message =
    'a key of this Secret was revoked by an operator and does not count: remove it from the Secret';
  return { source, partnerId, code: 'key_revoked', message };
}

function isEnding({ source, partnerId, terms }: WantedKey): Problem {
  const message = `the last key of this partner ends at ${terms.notAfter?.toISOString()}: give the partner a new one, or change the annotation`;
  return { source, partnerId, code: 'keys_ending', message };
}

function tooMany({ source, partnerId }: StoredKey): Problem {
  const message = `there is room for ${KEYS_MAX} keys, and this partner has more than its share: a key of this Secret does not count; remove old keys`;
  return { source, partnerId, code: 'too_many_keys', message };
}

function nearlyFull(asked: number): Problem {
  const message = `the partner Secrets ask for ${Math.round(asked * 100)} % of the room for ${KEYS_MAX} keys; beyond 100 % the partners with the most keys lose their newest`;
  return { source: { namespace: '', name: '', uid: '' }, code: 'keys_nearly_full', message };
}
