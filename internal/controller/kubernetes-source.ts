/** Follows the partner Secrets of one namespace with lists and watches. */
import type { CoreV1Api } from '@kubernetes/client-node';
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
import { PARTNER_LABEL, type PartnerSecret } from '../partner/key-secret.ts';
import type { ControllerMetrics } from '../telemetry/metrics.ts';
import {
  readSecret,
  type SecretList,
  type SecretSource,
  type SecretView,
} from './secret-source.ts';

export const CALL_TIMEOUT_MS = 10_000;
const LIST_PAGE = 500;
/** More would fill the memory. */
const SECRETS_MAX = 100_000;
const RELIST_MS = 300_000;
const BACKOFF = { firstMs: 100, capMs: 10_000 } as const;
/** After this time the leader is not ready, but the keys stay active. */
const STALE_MS = 60_000;
const GONE = 410;
const versionSchema = z.object({ metadata: z.object({ resourceVersion: z.string() }) });

interface FollowTools {
  readonly kubernetes: Kubernetes;
  readonly core: CoreV1Api;
  readonly clock: Clock;
  readonly log: Logger;
  readonly metrics: ControllerMetrics;
}

export function kubernetesSource(namespace: string, tools: FollowTools): SecretSource {
  return {
    follow: (onChange, signal) => new FollowedNamespace(namespace, tools, onChange, signal),
  };
}

class FollowedNamespace implements SecretView {
  readonly #name: string;
  readonly #tools: FollowTools;
  readonly #onChange: () => void;
  #secrets: Map<string, PartnerSecret> | undefined;
  #seenAt = new Date(0);
  #fault: Fault | undefined;
  /** Counts since the last good watch, so that a server without watches is not asked constantly. */
  #failures = 0;

  constructor(name: string, tools: FollowTools, onChange: () => void, signal: AbortSignal) {
    this.#name = name;
    this.#tools = tools;
    this.#onChange = onChange;
    void this.#follow(signal);
  }

  /**
   * Incomplete before the first list; keeps the last Secrets while the namespace cannot be read.
   */
  list(): Promise<SecretList> {
    const complete = this.#secrets !== undefined;
    const source = { namespace: this.#name, name: '', uid: '' };
    const message = `partner Secrets in ${this.#name} cannot be read, and those last seen stay active: ${this.#fault?.words}`;
    return Promise.resolve({
      secrets: [...(this.#secrets?.values() ?? [])],
      problems:
        this.#fault === undefined ? [] : [{ source, code: 'unreadable_namespace', message }],
      complete,
      asOf: this.#seenAt,
    });
  }

  faults(): readonly Fault[] {
    if (this.#tools.clock.now().getTime() - this.#seenAt.getTime() < STALE_MS) return [];
    const seconds = STALE_MS / 1_000;
    const { words: why, ...fault } = this.#fault ?? { code: 'secrets_unseen', words: 'no answer' };
    const words = `partner Secrets in ${this.#name} have not been seen for over ${seconds} s: ${why}`;
    return [{ ...fault, words }];
  }

  async #follow(signal: AbortSignal): Promise<void> {
    const { clock } = this.#tools;
    while (!signal.aborted) {
      try {
        let version = await this.#list(signal);
        const relistAtMs = clock.monotonicMs() + RELIST_MS;
        while (!signal.aborted && clock.monotonicMs() < relistAtMs) {
          version = await this.#watch(version, signal);
          await pause(BACKOFF.firstMs, signal);
        }
      } catch (error) {
        if (signal.aborted) return;
        this.#failed(error);
        await pause(backoffMs(this.#failures, BACKOFF), signal);
      }
    }
  }

  /** Returns the version to watch from. */
  async #list(signal: AbortSignal): Promise<string> {
    const { core, clock, metrics } = this.#tools;
    const listedAt = clock.now();
    const secrets = new Map<string, PartnerSecret>();
    let version: string | undefined;
    let next: string | undefined;
    try {
      do {
        signal.throwIfAborted();
        const { items, metadata } = await core.listNamespacedSecret({
          namespace: this.#name,
          labelSelector: PARTNER_LABEL,
          limit: LIST_PAGE,
          ...defined({ _continue: next }),
        });
        for (const item of items) {
          const secret = readSecret(item);
          secrets.set(secret.name, secret);
        }
        if (secrets.size > SECRETS_MAX) throw new Error(`more than ${SECRETS_MAX} partner Secrets`);
        version = metadata?.resourceVersion;
        next = metadata?._continue;
      } while (next !== undefined && next !== '');
    } catch (error) {
      metrics.secretLists.inc({ result: 'failed' });
      throw error;
    }
    metrics.secretLists.inc({ result: 'complete' });
    this.#secrets = secrets;
    this.#seen(listedAt);
    this.#onChange();
    return version ?? '';
  }

  /** Returns the version to go on from. */
  async #watch(from: string, signal: AbortSignal): Promise<string> {
    const { kubernetes, clock, metrics } = this.#tools;
    let version = from;
    try {
      await kubernetes.watch(`/api/v1/namespaces/${encodeURIComponent(this.#name)}/secrets`, {
        query: { labelSelector: PARTNER_LABEL, resourceVersion: version },
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
      metrics.secretWatches.inc({ result });
      throw error;
    }
    if (!signal.aborted) {
      this.#failures = 0;
      this.#seen(clock.now());
      metrics.secretWatches.inc({ result: 'ended' });
    }
    return version;
  }

  #apply({ type, object }: WatchEvent): void {
    if (type === 'BOOKMARK') return;
    const secret = readSecret(object);
    if (type === 'DELETED') this.#secrets?.delete(secret.name);
    else this.#secrets?.set(secret.name, secret);
    this.#onChange();
  }

  #seen(seenAt: Date): void {
    if (this.#fault !== undefined) {
      this.#tools.log.info({ namespace: this.#name }, 'partner Secrets can be read again');
      this.#onChange();
    }
    this.#fault = undefined;
    this.#seenAt = seenAt;
    this.#tools.metrics.secretsSeenAt.set(seenAt.getTime() / 1_000);
  }

  /** Reports a failure only if the next try fails too: one may be a restart of the API server. */
  #failed(error: unknown): void {
    const { kubernetes, log } = this.#tools;
    this.#failures += 1;
    const fault = kubernetes.faultOf(error);
    const { words: reason } = fault;
    if (this.#fault?.words !== reason && (this.#failures > 1 || this.#secrets === undefined)) {
      log.warn(
        { err: error, namespace: this.#name, reason },
        'partner Secrets cannot be read; those last seen stay active; trying again',
      );
      this.#fault = fault;
      this.#onChange();
    }
  }
}
