/** Reports bad partner Secrets as Warning Events, which never contain a key. */
import { randomBytes } from 'node:crypto';
import {
  PatchStrategy,
  setHeaderOptions,
  type CoreV1Api,
  type CoreV1Event,
} from '@kubernetes/client-node';
import { Allowance } from '../platform/allowance.ts';
import type { Clock } from '../platform/clock.ts';
import { kubernetesStatus } from '../platform/kubernetes.ts';
import type { Logger } from '../platform/log.ts';
import type { Problem } from '../partner/key-secret.ts';
import type { ControllerMetrics } from '../telemetry/metrics.ts';
import {
  EVENTS_PER_MINUTE,
  EVENT_BURST,
  EVENT_MESSAGE_MAX,
  EVENT_MIN_GAP_MS,
  EVENT_REPEAT_MS,
} from './limits.ts';

const COMPONENT = 'partner-ingest-controller';
const NOT_FOUND = 404;

interface Trouble {
  readonly problem: Problem;
  readonly entries: number;
}

/** Kept after a problem ends, so that a recurring one is not reported each time. */
interface Told {
  readonly eventName: string;
  count: number;
  toldAtMs: number;
  present: boolean;
}

export class SecretEvents {
  readonly #core: CoreV1Api;
  readonly #instance: string;
  readonly #clock: Clock;
  readonly #log: Logger;
  readonly #results: ControllerMetrics['secretEvents'];
  readonly #allowance: Allowance;
  readonly #told = new Map<string, Told>();
  #waiting: readonly Problem[] | undefined;
  #writing: Promise<void> | undefined;
  #closed = false;

  constructor(options: {
    readonly core: CoreV1Api;
    readonly instance: string;
    readonly clock: Clock;
    readonly log: Logger;
    readonly results: ControllerMetrics['secretEvents'];
  }) {
    this.#core = options.core;
    this.#instance = options.instance;
    this.#clock = options.clock;
    this.#log = options.log;
    this.#results = options.results;
    this.#allowance = new Allowance(EVENT_BURST, EVENTS_PER_MINUTE / 60, options.clock);
  }

  tell(problems: readonly Problem[]): void {
    this.#waiting = problems;
    this.#writing ??= this.#writeWaiting().finally(() => {
      this.#writing = undefined;
    });
  }

  async close(): Promise<void> {
    this.#closed = true;
    await this.#writing;
  }

  async #writeWaiting(): Promise<void> {
    while (this.#waiting !== undefined) {
      const troubles = troublesOf(this.#waiting);
      this.#waiting = undefined;
      this.#forgetGone(troubles);
      for (const [key, trouble] of troubles) {
        if (this.#closed) return;
        if (this.#isDue(this.#told.get(key))) {
          if (this.#allowance.take()) await this.#write(key, trouble);
          else this.#results.inc({ result: 'held_back' });
        }
        const told = this.#told.get(key);
        if (told !== undefined) told.present = true;
      }
    }
  }

  #forgetGone(troubles: ReadonlyMap<string, Trouble>): void {
    const nowMs = this.#clock.monotonicMs();
    for (const [key, told] of this.#told) {
      if (troubles.has(key)) continue;
      told.present = false;
      if (nowMs - told.toldAtMs > EVENT_REPEAT_MS) this.#told.delete(key);
    }
  }

  #isDue(told: Told | undefined): boolean {
    if (told === undefined) return true;
    return (
      this.#clock.monotonicMs() - told.toldAtMs >
      (told.present ? EVENT_REPEAT_MS : EVENT_MIN_GAP_MS)
    );
  }

  async #write(key: string, trouble: Trouble): Promise<void> {
    const now = this.#clock.now();
    const toldAtMs = this.#clock.monotonicMs();
    const told = this.#told.get(key);
    try {
      if (told !== undefined && (await this.#repeat(told, trouble, now))) {
        told.count += 1;
        told.toldAtMs = toldAtMs;
        this.#results.inc({ result: 'repeated' });
        return;
      }
      const event = this.#event(trouble, now);
      await this.#core.createNamespacedEvent({
        namespace: trouble.problem.source.namespace,
        body: event,
      });
      this.#told.set(key, {
        eventName: event.metadata.name ?? '',
        count: 1,
        toldAtMs,
        present: true,
      });
      this.#results.inc({ result: 'created' });
    } catch (error) {
      this.#log.debug({ err: error }, 'Event not written');
      this.#results.inc({ result: 'failed' });
    }
  }

  /** False if the API server has forgotten the Event. */
  async #repeat(told: Told, trouble: Trouble, now: Date): Promise<boolean> {
    try {
      await this.#core.patchNamespacedEvent(
        {
          name: told.eventName,
          namespace: trouble.problem.source.namespace,
          body: {
            count: told.count + 1,
            lastTimestamp: now.toISOString(),
            message: messageOf(trouble),
          },
        },
        setHeaderOptions('Content-Type', PatchStrategy.MergePatch),
      );
      return true;
    } catch (error) {
      if (kubernetesStatus(error) === NOT_FOUND) return false;
      throw error;
    }
  }

  #event(trouble: Trouble, now: Date): CoreV1Event & { metadata: { name: string } } {
    const { source, code } = trouble.problem;
    return {
      metadata: {
        name: `${source.name.slice(0, 200).replace(/[-.]+$/, '')}.${randomBytes(8).toString('hex')}`,
        namespace: source.namespace,
      },
      involvedObject: { apiVersion: 'v1', kind: 'Secret', ...source },
      type: 'Warning',
      reason: code.replace(/(^|_)([a-z])/g, (_match, _start, letter: string) =>
        letter.toUpperCase(),
      ),
      message: messageOf(trouble),
      source: { component: COMPONENT },
      reportingComponent: COMPONENT,
      reportingInstance: this.#instance,
      firstTimestamp: now,
      lastTimestamp: now,
      count: 1,
    };
  }
}

function troublesOf(problems: readonly Problem[]): ReadonlyMap<string, Trouble> {
  const troubles = new Map<string, Trouble>();
  for (const problem of problems) {
    const { source, code } = problem;
    // An Event cannot be about an unreadable namespace.
    if (source.uid === '') continue;
    const key = JSON.stringify([source, code]);
    const known = troubles.get(key);
    troubles.set(key, { problem: known?.problem ?? problem, entries: (known?.entries ?? 0) + 1 });
  }
  return troubles;
}

function messageOf({ problem, entries }: Trouble): string {
  const more = entries > 1 ? `; ${entries - 1} more like it` : '';
  return problem.message.slice(0, EVENT_MESSAGE_MAX) + more;
}
