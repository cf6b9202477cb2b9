/**
 * Writes the status of each `Partner` while this process leads: only what differs, on condition of
 * the resource version read, so that a former leader's late write changes nothing.
 */
import { isDeepStrictEqual } from 'node:util';
import type { CustomObjectsApi } from '@kubernetes/client-node';
import { keyIdOf } from '../partner/api-key.ts';
import type { Flagged } from '../partner/flags.ts';
import type { StoredKey } from '../partner/key-document.ts';
import type { Problem } from '../partner/key-secret.ts';
import type { KeyStore } from '../partner/key-store.ts';
import { PARTNER_API, partnersEnding } from '../partner/key-terms.ts';
import { type PartnerResource } from '../partner/partner-resource.ts';
import { Allowance, type Clock } from '../platform/process/clock.ts';
import { defined } from '../platform/process/defined.ts';
import { kubernetesStatus, type Kubernetes } from '../platform/process/kubernetes.ts';
import type { Loop } from '../platform/process/loop.ts';
import type { Leadership } from './leadership.ts';
import type { RoundResult } from './reconcile-partner-keys.ts';
import { reasonOf } from './secret-events.ts';
import type { SecretView } from './secret-source.ts';

/** An operator's order shows after this time. */
const EVERY_MS = 10_000;
const USES_EVERY_MS = 60_000;
/** While a partner waits for ingest, or for its turn. */
const SOON_MS = 1_000;
const FAILS_AFTER_MS = 600_000;
/** 10,000 partners take 200 s or more. */
const WRITES_PER_SECOND = 50;
/** Longer than this no change waits for others' statuses, however slow their writes are. */
const PASS_MS = 2_000;
const SHOWN_KEYS = 100;
/** Another process wrote it, or it is gone; or the watch does not show our own write yet. */
const PASSED_OVER = [404, 409];
const REFUSED = [400, 403, 422];
/** They leave the partner's keys as they are. */
const ADVICE: readonly Problem['code'][] = ['secret_unlisted', 'key_of_older_form', 'keys_ending'];

interface PartnerStatusTools {
  readonly custom: Pick<CustomObjectsApi, 'patchNamespacedCustomObjectStatus'>;
  readonly kubernetes: Pick<Kubernetes, 'faultOf'>;
  readonly leadership: Pick<Leadership, 'start'>;
  readonly store: Pick<KeyStore, 'disabled' | 'lastUses' | 'revoked'>;
  /** The lowest version of the keys that a live ingest knows; undefined if none lives. */
  readonly keysKnown: () => Promise<number | undefined>;
  readonly clock: Clock;
}

export class PartnerStatus {
  readonly #tools: PartnerStatusTools;
  readonly #loop: Loop;
  readonly #allowance: Allowance;
  #last: { readonly result: RoundResult; readonly view: SecretView } | undefined;
  /** Versions of the keys since when they are as they are, by partner, and the term's first. */
  readonly #changedAt = new Map<string, number>();
  #firstVersion = 0;
  #uses: { readonly atMs: number; readonly byHash: ReadonlyMap<string, Date> } | undefined;
  #isWaiting = false;
  /** A webhook may refuse one object, or not answer for it: the others come first. */
  #failed = new Set<string>();

  constructor(tools: PartnerStatusTools) {
    this.#tools = tools;
    this.#allowance = new Allowance(WRITES_PER_SECOND, WRITES_PER_SECOND, tools.clock);
    this.#loop = tools.leadership.start({
      name: 'partner_status',
      everyMs: () => (this.#isWaiting ? SOON_MS : EVERY_MS),
      failsAfterMs: FAILS_AFTER_MS,
      faultOf: (error) => tools.kubernetes.faultOf(error),
      run: (term) => this.#pass(term),
      forget: () => this.#forget(),
    });
  }

  /** Takes a complete round. */
  readonly reconciled = (result: RoundResult, view: SecretView): void => {
    // After a round that failed behind its write nobody told what it had changed.
    if (this.#last?.result.version !== result.readAt) {
      this.#firstVersion = result.version;
      this.#changedAt.clear();
    }
    for (const partnerId of result.changed) this.#changedAt.set(partnerId, result.version);
    this.#last = { result, view };
    if (result.all.length > 0) this.#loop.wake();
  };

  #forget(): void {
    this.#last = undefined;
    this.#uses = undefined;
    this.#isWaiting = false;
    this.#failed.clear();
    this.#changedAt.clear();
  }

  async #pass(term: AbortSignal): Promise<void> {
    this.#isWaiting = false;
    if (this.#last === undefined || this.#last.result.all.length === 0) return;
    const { result, view } = this.#last;
    const { store, clock, keysKnown } = this.#tools;
    const [{ partners }, flagged, revoked, known = -1, uses] = await Promise.all([
      view.list(),
      store.disabled.list(),
      store.revoked(),
      keysKnown(),
      this.#lastUses(),
    ]);
    const live = new Map(partners.map((partner) => [partner.uid, partner]));
    const facts = {
      result,
      uses,
      revoked,
      now: clock.now(),
      keysOf: Map.groupBy(result.keys, ({ partnerId }) => partnerId),
      problemsOf: Map.groupBy(result.problems, aboutOf),
      disabled: new Map(flagged.map((one) => [one._id, one])),
      isKnown: (partnerId: string) =>
        known >= (this.#changedAt.get(partnerId) ?? this.#firstVersion),
    };
    const due = result.all.flatMap((judged) => {
      const partner = live.get(judged.uid);
      // Another round judges a newer spec.
      if (partner === undefined || partner.generation !== judged.generation) return [];
      const before = partner.status as Partial<StatusShown> | undefined;
      const status = statusOf(partner, before, facts);
      this.#isWaiting ||= status.conditions[0]?.reason === UNKNOWN;
      if (isDeepStrictEqual(status, before)) return [];
      return [
        { partner, status, isNew: !isDeepStrictEqual(status.conditions, before?.conditions) },
      ];
    });
    const failed = this.#failed;
    this.#failed = new Set(due.flatMap(({ partner: { uid } }) => (failed.has(uid) ? [uid] : [])));
    const rank = ({ partner, isNew }: (typeof due)[number]): number =>
      failed.has(partner.uid) ? 2 : Number(!isNew);
    let refused: unknown;
    const untilMs = clock.monotonicMs() + PASS_MS;
    for (const { partner, status } of due.toSorted((one, other) => rank(one) - rank(other))) {
      term.throwIfAborted();
      if (clock.monotonicMs() > untilMs || !this.#allowance.spend()) {
        this.#isWaiting = true;
        break;
      }
      try {
        await this.#write(partner, status);
        this.#failed.delete(partner.uid);
      } catch (error) {
        this.#failed.add(partner.uid);
        if (!REFUSED.includes(kubernetesStatus(error) ?? 0)) throw error;
        refused ??= error;
      }
    }
    if (refused !== undefined) throw refused;
  }

  async #lastUses(): Promise<ReadonlyMap<string, Date>> {
    const { store, clock } = this.#tools;
    const atMs = clock.monotonicMs();
    if (this.#uses === undefined || atMs - this.#uses.atMs >= USES_EVERY_MS)
      this.#uses = { atMs, byHash: await store.lastUses() };
    return this.#uses.byHash;
  }

  async #write(
    { namespace, name, resourceVersion }: PartnerResource,
    status: StatusShown,
  ): Promise<void> {
    try {
      await this.#tools.custom.patchNamespacedCustomObjectStatus({
        ...PARTNER_API,
        plural: 'partners',
        namespace,
        name,
        // The client sends it as a JSON patch: "replace" would fail where there is no status.
        body: [
          // Another version there is a conflict.
          { op: 'replace', path: '/metadata/resourceVersion', value: resourceVersion },
          { op: 'add', path: '/status', value: status },
        ],
      });
    } catch (error) {
      if (!PASSED_OVER.includes(kubernetesStatus(error) ?? 0)) throw error;
      this.#isWaiting = true;
    }
  }
}

interface PartnerCondition {
  readonly type: string;
  readonly status: 'True' | 'False';
  readonly reason: string;
  readonly message: string;
  readonly lastTransitionTime: string;
}
interface KeyShown {
  readonly id: string;
  readonly secretName: string;
  readonly mode: string;
  readonly state: string;
  readonly lastUsed?: string;
}
interface StatusShown {
  readonly observedGeneration: number;
  readonly activeKeys: number;
  readonly lastUsed?: string;
  /** `Ready` is the first. */
  readonly conditions: readonly PartnerCondition[];
  readonly keys: readonly KeyShown[];
}
type ConditionValue = readonly [isTrue: boolean, reason: string, message: string];

interface PassFacts {
  readonly result: RoundResult;
  readonly revoked: { has(hash: string): boolean };
  readonly uses: ReadonlyMap<string, Date>;
  readonly now: Date;
  readonly keysOf: ReadonlyMap<string, readonly StoredKey[]>;
  readonly problemsOf: ReadonlyMap<string, readonly Problem[]>;
  readonly disabled: ReadonlyMap<string, Flagged>;
  readonly isKnown: (partnerId: string) => boolean;
}

const UNKNOWN = 'NotYetKnown';

/** The uid of a problem's `Partner`, else the partner. */
const aboutOf = ({ source, partnerId = '' }: Problem): string =>
  source.kind === 'Partner' ? source.uid : `partner ${partnerId}`;

function statusOf(
  partner: PartnerResource,
  before: Partial<StatusShown> | undefined,
  facts: PassFacts,
): StatusShown {
  const { uid, partnerId, generation } = partner;
  const { result, revoked, uses, now, keysOf, problemsOf, disabled, isKnown } = facts;
  const counts = result.partners.get(partnerId)?.uid === uid;
  const keys = counts ? (keysOf.get(partnerId) ?? []) : [];
  const flag = disabled.get(partnerId);
  const stateOf = ({ hash, status, terms: { notAfter } }: StoredKey): string => {
    if (revoked.has(hash)) return 'revoked';
    if (notAfter !== undefined && notAfter <= now) return 'ended';
    if (flag !== undefined) return 'disabled';
    return status;
  };
  const rows = keys.map((key) => ({
    id: keyIdOf(key.hash),
    secretName: key.source.name,
    mode: key.terms.test ? 'test' : 'live',
    state: stateOf(key),
    ...defined({ lastUsed: dayOf(uses.get(key.hash)) }),
  }));
  const shownKeys = rows.toSorted((a, b) => (a.id < b.id ? -1 : 1)).slice(0, SHOWN_KEYS);
  const activeKeys = rows.filter(({ state }) => state === 'active').length;
  const lastUsed = rows
    .flatMap((row) => row.lastUsed ?? [])
    .toSorted()
    .at(-1);

  const problems = [
    ...(problemsOf.get(uid) ?? []),
    ...(counts ? (problemsOf.get(`partner ${partnerId}`) ?? []) : []),
  ];
  const isSettled =
    before?.conditions?.[0]?.status === 'True' &&
    before.observedGeneration === generation &&
    before.activeKeys === activeKeys &&
    isDeepStrictEqual(before.keys?.map(asKnown), shownKeys.map(asKnown));
  const verdicts: readonly [type: string, verdict: ConditionValue][] = [
    [
      'Ready',
      readiness(partner, { problems, flag, activeKeys, isKnown: isSettled || isKnown(partnerId) }),
    ],
    [
      'KeysExpiring',
      expiring(
        partnerId,
        keys.filter(({ hash }) => !revoked.has(hash)),
        now,
      ),
    ],
    ['Disabled', disabling(partner, flag)],
    ['AnnotationsVoid', voiding(counts && result.voided.has(partnerId))],
  ];
  const conditions = verdicts.map(([type, [isTrue, reason, message]]): PartnerCondition => {
    const status = isTrue ? 'True' : 'False';
    const last = before?.conditions?.find((one) => one.type === type);
    const since = last?.status === status ? last.lastTransitionTime : secondOf(now);
    return { type, status, reason, message, lastTransitionTime: since };
  });
  return {
    observedGeneration: generation,
    activeKeys,
    ...defined({ lastUsed }),
    conditions,
    keys: shownKeys,
  };
}

const asKnown = ({ id, state }: KeyShown): readonly string[] => [id, state];
const dayOf = (time: Date | undefined): string | undefined => time?.toISOString().slice(0, 10);
const secondOf = (time: Date): string => time.toISOString().replace(/\.\d+Z$/, 'Z');

function readiness(
  { suspend }: PartnerResource,
  {
    problems,
    flag,
    activeKeys,
    isKnown,
  }: {
    readonly problems: readonly Problem[];
    readonly flag: Flagged | undefined;
    readonly activeKeys: number;
    readonly isKnown: boolean;
  },
): ConditionValue {
  const { advice = [], faults = [] } = Object.groupBy(problems, ({ code }) =>
    ADVICE.includes(code) ? 'advice' : 'faults',
  );
  const [fault] = faults;
  if (fault !== undefined) return [false, reasonOf(fault.code), wordsOf(faults)];
  if (flag !== undefined) return [false, 'Disabled', 'an operator disabled the partner'];
  if (suspend) return [false, 'Suspended', 'spec.suspend is true'];
  if (activeKeys === 0) return [false, 'NoKeys', 'no Secret of the partner has a key that counts'];
  if (!isKnown) return [false, UNKNOWN, 'not every ingest pod knows its keys yet, or none runs'];
  const words = 'every live ingest pod knows its keys';
  return [true, 'KeysKnown', advice.length === 0 ? words : `${words}; ${wordsOf(advice)}`];
}

const WORDS_MAX = 2_000;

function wordsOf(problems: readonly Problem[]): string {
  const words = problems.map(({ source, message }) =>
    source.kind === undefined ? `Secret ${source.name}: ${message}` : message,
  );
  return words.toSorted().join('; ').slice(0, WORDS_MAX);
}

function expiring(partnerId: string, keys: readonly StoredKey[], now: Date): ConditionValue {
  return partnersEnding(keys, now).includes(partnerId)
    ? [true, 'LastKeyEnds', 'the last live key ends within two weeks, or ended within a day']
    : [false, 'NoneEnds', ''];
}

function disabling({ suspend }: PartnerResource, flag: Flagged | undefined): ConditionValue {
  if (flag !== undefined)
    return [true, 'ByOperator', `"partner disable" by ${flag.by} at ${secondOf(flag.at)}`];
  return suspend ? [true, 'BySuspend', 'spec.suspend is true'] : [false, 'NotDisabled', ''];
}

const voiding = (isVoid: boolean): ConditionValue =>
  isVoid
    ? [
        true,
        'PartnerCounts',
        'annotations partner-ingest.io/… of its Secrets are void: remove them',
      ]
    : [false, 'NoAnnotations', ''];
