/** Reports bad partner Secrets and `Partner`s as Warning Events, which never contain a key. */
import { hash } from 'node:crypto';
import type { CoreV1Api } from '@kubernetes/client-node';
import { Allowance, type Clock } from '../platform/process/clock.ts';
import { kubernetesStatus } from '../platform/process/kubernetes.ts';
import type { Logger } from '../platform/process/log.ts';
import type { Problem } from '../partner/key-secret.ts';
import { PARTNER_API } from '../partner/key-terms.ts';
import type { ControllerMetrics } from '../telemetry/metrics.ts';

const COMPONENT = 'partner-ingest-controller';
/** The API server has the Event already; it forgets Events after an hour. */
const CONFLICT = 409;
const REPEAT_MS = 600_000;
const BURST = 25;
const PER_MINUTE = 10;
/** The API server refuses messages above 1,024 bytes. */
const MESSAGE_MAX = 1_000;

interface EventTools {
  readonly core: CoreV1Api;
  readonly clock: Clock;
  readonly log: Logger;
  readonly metrics: ControllerMetrics;
}

export class SecretEvents {
  readonly #instance: string;
  readonly #tools: EventTools;
  readonly #allowance: Allowance;
  /** Kept after a problem ends, so that a recurring one is not reported each time. */
  readonly #toldAt = new Map<string, number>();
  #waiting: readonly Problem[] | undefined;
  #writing: Promise<void> | undefined;
  #closed = false;

  constructor(instance: string, tools: EventTools) {
    this.#instance = instance;
    this.#tools = tools;
    this.#allowance = new Allowance(BURST, PER_MINUTE / 60, tools.clock);
  }

  /** Takes one problem for each Secret and code. */
  tell(problems: readonly Problem[]): void {
    this.#waiting = problems;
    this.#writing ??= this.#writeWaiting().finally(() => {
      this.#writing = undefined;
    });
  }

  /** Resolves when all Events told so far are written or held back. */
  async settled(): Promise<void> {
    await this.#writing;
  }

  async close(): Promise<void> {
    this.#closed = true;
    await this.settled();
  }

  async #writeWaiting(): Promise<void> {
    while (this.#waiting !== undefined) {
      // An Event cannot be about an unreadable namespace.
      const about = this.#waiting.filter(({ source }) => source.uid !== '');
      this.#waiting = undefined;
      const named = new Map(about.map((problem) => [nameOf(problem), problem]));
      // What was never told, or longest ago, comes first.
      const due = [...named]
        .filter(([name]) => !this.#isRecent(this.#toldAt.get(name)))
        .toSorted(([one], [other]) => this.#toldMs(one) - this.#toldMs(other));
      for (const [name, problem] of due) {
        if (this.#closed) return;
        if (this.#allowance.spend()) await this.#create(name, problem);
        else this.#tools.metrics.secretEvents.inc({ result: 'held_back' });
      }
      for (const [name, atMs] of this.#toldAt)
        if (!named.has(name) && !this.#isRecent(atMs)) this.#toldAt.delete(name);
    }
  }

  #toldMs(name: string): number {
    return this.#toldAt.get(name) ?? -1;
  }

  #isRecent(atMs = -Infinity): boolean {
    return this.#tools.clock.monotonicMs() - atMs <= REPEAT_MS;
  }

  async #create(name: string, { source, about, code, message }: Problem): Promise<void> {
    const { core, clock, log, metrics } = this.#tools;
    const { namespace } = source;
    const { kind = 'Secret', ...object } = about ?? source;
    const apiVersion = kind === 'Secret' ? 'v1' : `${PARTNER_API.group}/${PARTNER_API.version}`;
    const of = kind !== 'Secret' && source.kind === undefined ? `Secret ${source.name}: ` : '';
    const now = clock.now();
    const body = {
      metadata: { name, namespace },
      involvedObject: { apiVersion, kind, ...object },
      type: 'Warning',
      reason: reasonOf(code),
      message: `${of}${message}`.slice(0, MESSAGE_MAX),
      source: { component: COMPONENT },
      reportingComponent: COMPONENT,
      reportingInstance: this.#instance,
      firstTimestamp: now,
      lastTimestamp: now,
      count: 1,
    };
    try {
      await core.createNamespacedEvent({ namespace, body });
      metrics.secretEvents.inc({ result: 'created' });
    } catch (error) {
      if (kubernetesStatus(error) !== CONFLICT) {
        log.debug({ err: error }, 'Event not written');
        metrics.secretEvents.inc({ result: 'failed' });
        return;
      }
    }
    this.#toldAt.set(name, clock.monotonicMs());
  }
}

/** A code as Kubernetes writes reasons. */
export const reasonOf = (code: string): string =>
  code.replace(/(^|_)([a-z])/g, (_match, _start, letter: string) => letter.toUpperCase());

/** One name for each Secret and code, so that alike problems share an Event. */
function nameOf({ source, about, code }: Problem): string {
  const prefix = source.name.slice(0, 200).replace(/[-.]+$/, '');
  return `${prefix}.${hash('sha256', `${about?.uid ?? ''}${source.uid} ${code}`, 'hex').slice(0, 16)}`;
}
