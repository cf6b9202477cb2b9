/** Follows the partner Secrets of one namespace with lists and watches. */
import type { CoreV1Api } from '@kubernetes/client-node';
import { z } from 'zod';
import type { Clock } from '../platform/clock.ts';
import { backoffMs, pause } from '../platform/deadline.ts';
import { defined } from '../platform/defined.ts';
import { kubernetesStatus, type Kubernetes, type WatchEvent } from '../platform/kubernetes.ts';
import type { Logger } from '../platform/log.ts';
import { PARTNER_LABEL, type PartnerSecret, type Problem } from '../partner/key-secret.ts';
import type { ControllerMetrics } from '../telemetry/metrics.ts';
import {
  FOLLOW_BACKOFF,
  LIST_MAX_PAGES,
  LIST_PAGE,
  RELIST_MS,
  STALE_MS,
  WATCH_GRACE_MS,
  WATCH_MAX_FAILURES,
  WATCH_SECONDS,
} from './limits.ts';
import { readSecret } from './read-secret.ts';
import type { SecretList, SecretSource, SecretView } from './secret-source.ts';

const GONE = 410;

export interface FollowTools {
  readonly kubernetes: Kubernetes;
  readonly core: CoreV1Api;
  readonly clock: Clock;
  readonly log: Logger;
  readonly metrics: Pick<ControllerMetrics, 'secretLists' | 'secretWatches' | 'secretsSeenAt'>;
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
  readonly #tried = Promise.withResolvers<void>();
  #secrets: Map<string, PartnerSecret> | undefined;
  #seenAt = new Date(0);
  #fault: string | undefined;
  /** Counts since the last good watch, so that a server without watches is not asked constantly. */
  #failures = 0;

  constructor(name: string, tools: FollowTools, onChange: () => void, signal: AbortSignal) {
    this.#name = name;
    this.#tools = tools;
    this.#onChange = onChange;
    signal.addEventListener('abort', () => this.#tried.resolve(), { once: true });
    void this.#follow(signal);
  }

  /** Keeps the last Secrets while the namespace cannot be read. */
  async list(): Promise<SecretList> {
    await this.#tried.promise;
    const complete = this.#secrets !== undefined;
    return {
      secrets: [...(this.#secrets?.values() ?? [])],
      problems: this.#fault === undefined ? [] : [this.#unreadable(this.#fault)],
      complete,
      provesGone: () => complete,
      asOf: this.#seenAt,
    };
  }

  faults(): readonly string[] {
    if (this.#tools.clock.now().getTime() - this.#seenAt.getTime() < STALE_MS) return [];
    const seconds = STALE_MS / 1_000;
    return [
      `partner Secrets in ${this.#name} have not been seen for over ${seconds} s: ${this.#fault ?? 'no answer'}`,
    ];
  }

  #unreadable(fault: string): Problem {
    return {
      source: { namespace: this.#name, name: '', uid: '' },
      code: 'unreadable_namespace',
      message: `partner Secrets in ${this.#name} cannot be read, and those last seen stay active: ${fault}`,
    };
  }

  async #follow(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      try {
        const version = await this.#list(signal);
        this.#tried.resolve();
        await this.#watchFrom(version, signal);
      } catch (error) {
        if (signal.aborted) return;
        this.#failed(error);
        this.#tried.resolve();
      }
      await pause(backoffMs(this.#failures, FOLLOW_BACKOFF), signal);
    }
  }

  /** Returns the version to watch from. */
  async #list(signal: AbortSignal): Promise<string> {
    const { core, clock, metrics } = this.#tools;
    const listedAt = clock.now();
    const secrets = new Map<string, PartnerSecret>();
    let version = '';
    let next: string | undefined;
    try {
      for (let page = 1; page === 1 || next !== undefined; page += 1) {
        if (page > LIST_MAX_PAGES)
          throw new Error(`more than ${LIST_MAX_PAGES * LIST_PAGE} partner Secrets`);
        signal.throwIfAborted();
        const list = await core.listNamespacedSecret({
          namespace: this.#name,
          labelSelector: PARTNER_LABEL,
          limit: LIST_PAGE,
          ...defined({ _continue: next }),
        });
        for (const item of list.items) {
          const { secret } = readSecret(item);
          secrets.set(secret.name, secret);
        }
        version = list.metadata?.resourceVersion ?? '';
        next = list.metadata?._continue === '' ? undefined : list.metadata?._continue;
      }
    } catch (error) {
      metrics.secretLists.inc({ result: 'failed' });
      throw error;
    }
    metrics.secretLists.inc({ result: 'complete' });
    this.#secrets = secrets;
    this.#seen(listedAt);
    this.#onChange();
    return version;
  }

  async #watchFrom(version: string, signal: AbortSignal): Promise<void> {
    const { kubernetes, clock, metrics } = this.#tools;
    const relistAtMs = clock.monotonicMs() + RELIST_MS;
    let from = version;
    let failures = 0;
    while (!signal.aborted && clock.monotonicMs() < relistAtMs) {
      const onEvent = (event: WatchEvent): void => {
        from = this.#apply(event);
        failures = this.#failures = 0;
        this.#seen(clock.now());
      };
      const query = { labelSelector: PARTNER_LABEL, resourceVersion: from };
      try {
        await kubernetes.watch(`/api/v1/namespaces/${encodeURIComponent(this.#name)}/secrets`, {
          query,
          seconds: WATCH_SECONDS,
          graceMs: WATCH_GRACE_MS,
          signal,
          onEvent,
        });
        if (signal.aborted) return;
        failures = this.#failures = 0;
        this.#seen(clock.now());
        metrics.secretWatches.inc({ result: 'ended' });
      } catch (error) {
        const expired = kubernetesStatus(error) === GONE;
        metrics.secretWatches.inc({ result: expired ? 'expired' : 'failed' });
        if (expired) {
          // If no version lasts, the lists must not follow each other without pause.
          this.#failures += 1;
          return;
        }
        failures += 1;
        if (failures >= WATCH_MAX_FAILURES) throw error;
      }
      await pause(backoffMs(failures, FOLLOW_BACKOFF), signal);
    }
  }

  #apply(event: WatchEvent): string {
    if (event.type === 'BOOKMARK')
      return bookmarkSchema.parse(event.object).metadata.resourceVersion;
    const { secret, version } = readSecret(event.object);
    if (event.type === 'DELETED') this.#secrets?.delete(secret.name);
    else this.#secrets?.set(secret.name, secret);
    this.#onChange();
    return version;
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

  #failed(error: unknown): void {
    const reason = this.#tools.kubernetes.reason(error);
    if (this.#fault !== reason) {
      this.#tools.log.warn(
        { err: error, namespace: this.#name, reason },
        'partner Secrets cannot be read; those last seen stay active; trying again',
      );
      this.#onChange();
    }
    this.#fault = reason;
    this.#failures += 1;
  }
}

const bookmarkSchema = z.object({ metadata: z.object({ resourceVersion: z.string() }) });
