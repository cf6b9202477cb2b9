/** Follows the partner Secrets and `Partner`s of one namespace with lists and watches. */
import type { CoreV1Api, CustomObjectsApi } from '@kubernetes/client-node';
import { z } from 'zod';
import type { Clock } from '../platform/process/clock.ts';
import { backoffMs, pause } from '../platform/process/deadline.ts';
import { defined } from '../platform/process/defined.ts';
import type { Fault } from '../platform/process/fault.ts';
import {
  kubernetesStatus,
  type Kubernetes,
  type WatchEvent,
} from '../platform/process/kubernetes.ts';
import type { Logger } from '../platform/process/log.ts';
import { saidBy } from '../platform/process/server-words.ts';
import { PARTNER_LABEL, type PartnerSecret, type Problem } from '../partner/key-secret.ts';
import { PARTNER_API } from '../partner/key-terms.ts';
import { type PartnerResource, readPartner } from '../partner/partner-resource.ts';
import type { ControllerMetrics } from '../telemetry/metrics.ts';
import { readSecret, type SecretSource, type SecretView } from './secret-source.ts';

export const CALL_TIMEOUT_MS = 10_000;
const LIST_PAGE = 500;
/** More would fill the memory. */
const OBJECTS_MAX = 100_000;
const RELIST_MS = 300_000;
const BACKOFF = { firstMs: 100, capMs: 10_000 } as const;
/** After this time the leader is not ready, but the keys stay active. */
const STALE_MS = 60_000;
/** Without the definition the list of `Partner`s is empty; it is asked again after this time. */
const UNDEFINED_MS = 10_000;
const NOT_FOUND = 404;
const GONE = 410;
const versionSchema = z.object({ metadata: z.object({ resourceVersion: z.string() }) });
const pageSchema = z.object({
  items: z.array(z.unknown()),
  metadata: z
    .object({
      resourceVersion: z.string().optional(),
      _continue: z.string().optional(),
      continue: z.string().optional(),
    })
    .optional(),
});

interface FollowTools {
  readonly kubernetes: Kubernetes;
  readonly core: Pick<CoreV1Api, 'listNamespacedSecret'>;
  /** Absent if `Partner`s are not followed. */
  readonly custom?: Pick<CustomObjectsApi, 'listNamespacedCustomObject'> | undefined;
  readonly clock: Clock;
  readonly log: Logger;
  readonly metrics: ControllerMetrics;
}

export function kubernetesSource(namespace: string, tools: FollowTools): SecretSource {
  return { follow: (...given) => followNamespace(namespace, tools, ...given) };
}

function followNamespace(
  namespace: string,
  tools: FollowTools,
  onChange: () => void,
  signal: AbortSignal,
): SecretView {
  const { core, custom, metrics } = tools;
  const followed = { ...tools, namespace, onChange, signal };
  const secrets = new Followed<PartnerSecret>({
    ...followed,
    what: 'partner Secrets',
    path: 'api/v1',
    plural: 'secrets',
    labelSelector: PARTNER_LABEL,
    list: (page) => core.listNamespacedSecret(page),
    read: readSecret,
    isNew: () => true,
    counts: metrics,
  });
  const { group, version } = PARTNER_API;
  const partners =
    custom &&
    new Followed<PartnerResource>({
      ...followed,
      what: 'Partners',
      path: `apis/${group}/${version}`,
      plural: 'partners',
      list: (page) =>
        custom.listNamespacedCustomObject({ ...page, group, version, plural: 'partners' }),
      read: readPartner,
      mayLack: true,
      // The controller's own status is no change.
      isNew: (one, before) => one.uid !== before?.uid || one.generation !== before.generation,
    });
  const all = [secrets, ...(partners === undefined ? [] : [partners])];
  return {
    /** Incomplete before the first lists; keeps what was last seen while it cannot be read. */
    list: () =>
      Promise.resolve({
        secrets: secrets.objects,
        partners: partners?.objects ?? [],
        problems: all.flatMap((one) => one.problems()),
        // A deleted one may be applied again.
        lacksPartners: partners !== undefined,
        complete: all.every(({ isListed }) => isListed),
        asOf: new Date(Math.min(...all.map(({ seenAt }) => seenAt.getTime()))),
      }),
    faults: () => all.flatMap((one) => one.faults()),
  };
}

/** One kind of object in one namespace. */
interface FollowedTools<T> extends Omit<FollowTools, 'core' | 'custom' | 'metrics'> {
  readonly what: string;
  readonly namespace: string;
  readonly path: string;
  readonly plural: string;
  readonly labelSelector?: string;
  readonly onChange: () => void;
  readonly signal: AbortSignal;
  readonly list: (page: Page) => Promise<unknown>;
  readonly read: (object: unknown) => T;
  /** Whether the change of an object is one for the caller. */
  readonly isNew: (one: T, before: T | undefined) => boolean;
  /** Whether an API server that does not know the kind has no object of it. */
  readonly mayLack?: boolean;
  readonly counts?: ControllerMetrics;
}

interface Page {
  readonly namespace: string;
  readonly labelSelector?: string;
  readonly limit: number;
  readonly _continue?: string;
}

class Followed<T extends { readonly name: string }> {
  readonly #tools: FollowedTools<T>;
  #objects: Map<string, T> | undefined;
  #seenAt = new Date(0);
  #fault: Fault | undefined;
  /** Counts since the last good watch, so that a server without watches is not asked constantly. */
  #failures = 0;

  constructor(tools: FollowedTools<T>) {
    this.#tools = tools;
    void this.#follow();
  }

  get objects(): readonly T[] {
    return [...(this.#objects?.values() ?? [])];
  }

  get isListed(): boolean {
    return this.#objects !== undefined;
  }

  get seenAt(): Date {
    return this.#seenAt;
  }

  problems(): readonly Problem[] {
    if (this.#fault === undefined) return [];
    const { namespace, what } = this.#tools;
    const source = { namespace, name: '', uid: '' };
    const message = `${what} in ${namespace} cannot be read, and those last seen stay active: ${this.#fault.words}`;
    return [{ source, code: 'unreadable_namespace', message }];
  }

  faults(): readonly Fault[] {
    const { clock, namespace, what } = this.#tools;
    if (clock.now().getTime() - this.#seenAt.getTime() < STALE_MS) return [];
    const seconds = STALE_MS / 1_000;
    const { words: why, ...fault } = this.#fault ?? { code: 'secrets_unseen', words: 'no answer' };
    const words = `${what} in ${namespace} have not been seen for over ${seconds} s: ${why}`;
    return [{ ...fault, words }];
  }

  async #follow(): Promise<void> {
    const { clock, signal } = this.#tools;
    while (!signal.aborted) {
      try {
        let version = await this.#list();
        const relistAtMs = clock.monotonicMs() + RELIST_MS;
        while (version !== undefined && !signal.aborted && clock.monotonicMs() < relistAtMs) {
          version = await this.#watch(version);
          await pause(BACKOFF.firstMs, signal);
        }
        if (version === undefined) await pause(UNDEFINED_MS, signal);
      } catch (error) {
        if (signal.aborted) return;
        this.#failed(error);
        await pause(backoffMs(this.#failures, BACKOFF), signal);
      }
    }
  }

  /** Returns the version to watch from; undefined if the API server does not know the kind. */
  async #list(): Promise<string | undefined> {
    const { clock, counts, namespace, labelSelector, mayLack, read, signal, what } = this.#tools;
    const listedAt = clock.now();
    const objects = new Map<string, T>();
    let version: string | undefined = '';
    let next: string | undefined;
    try {
      do {
        signal.throwIfAborted();
        const page = {
          namespace,
          limit: LIST_PAGE,
          ...defined({ labelSelector, _continue: next }),
        };
        const { items, metadata } = pageSchema.parse(await this.#tools.list(page));
        for (const item of items) {
          const object = read(item);
          objects.set(object.name, object);
        }
        if (objects.size > OBJECTS_MAX) throw new Error(`more than ${OBJECTS_MAX} ${what}`);
        version = metadata?.resourceVersion ?? '';
        next = metadata?._continue ?? metadata?.continue;
      } while (next !== undefined && next !== '');
    } catch (error) {
      if (!mayLack || kubernetesStatus(error) !== NOT_FOUND) {
        counts?.secretLists.inc({ result: 'failed' });
        throw error;
      }
      version = undefined;
    }
    counts?.secretLists.inc({ result: 'complete' });
    this.#objects = objects;
    this.#seen(listedAt);
    this.#tools.onChange();
    return version;
  }

  /** Returns the version to go on from. */
  async #watch(from: string): Promise<string> {
    const { kubernetes, clock, counts, namespace, path, plural, labelSelector, signal } =
      this.#tools;
    let version = from;
    try {
      await kubernetes.watch(`/${path}/namespaces/${encodeURIComponent(namespace)}/${plural}`, {
        query: { ...defined({ labelSelector }), resourceVersion: version },
        signal,
        onEvent: (event) => {
          this.#apply(event);
          version = versionSchema.parse(event.object).metadata.resourceVersion;
          this.#failures = 0;
          this.#seen(clock.now());
        },
      });
    } catch (error) {
      const result = kubernetesStatus(error) === GONE ? 'expired' : 'failed';
      counts?.secretWatches.inc({ result });
      throw error;
    }
    if (!signal.aborted) {
      this.#failures = 0;
      this.#seen(clock.now());
      counts?.secretWatches.inc({ result: 'ended' });
    }
    return version;
  }

  #apply({ type, object }: WatchEvent): void {
    if (type === 'BOOKMARK') return;
    const { read, isNew, onChange } = this.#tools;
    const one = read(object);
    const isChange = type === 'DELETED' || isNew(one, this.#objects?.get(one.name));
    if (type === 'DELETED') this.#objects?.delete(one.name);
    else this.#objects?.set(one.name, one);
    if (isChange) onChange();
  }

  #seen(seenAt: Date): void {
    const { counts, log, namespace, onChange, what } = this.#tools;
    if (this.#fault !== undefined) {
      log.info({ namespace }, `${what} can be read again`);
      onChange();
    }
    this.#fault = undefined;
    this.#seenAt = seenAt;
    counts?.secretsSeenAt.set(seenAt.getTime() / 1_000);
  }

  /** Reports a failure only if the next try fails too: one may be a restart of the API server. */
  #failed(error: unknown): void {
    const { kubernetes, log, namespace, onChange, what } = this.#tools;
    this.#failures += 1;
    const fault = kubernetes.faultOf(error);
    const { words: reason } = fault;
    if (this.#fault?.words !== reason && (this.#failures > 1 || this.#objects === undefined)) {
      log.warn(
        { err: error, namespace, reason, said: saidBy(error) },
        `${what} cannot be read; those last seen stay active; trying again`,
      );
      this.#fault = fault;
      onChange();
    }
  }
}
