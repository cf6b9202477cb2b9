/** Reports bad partner Secrets as Warning Events, which never contain a key. */
import { randomBytes } from 'node:crypto';
import { PatchStrategy, setHeaderOptions, type CoreV1Api } from '@kubernetes/client-node';
import { Allowance } from '../platform/allowance.ts';
import type { Clock } from '../platform/clock.ts';
import { kubernetesStatus } from '../platform/kubernetes.ts';
import type { Logger } from '../platform/log.ts';
import type { Problem } from '../partner/key-secret.ts';
import type { ControllerMetrics } from '../telemetry/metrics.ts';

const COMPONENT = 'partner-ingest-controller';
const NOT_FOUND = 404;
/** The API server forgets Events after an hour. */
const REPEAT_MS = 600_000;
const BURST = 25;
const PER_MINUTE = 10;
/** The API server refuses messages above 1,024 bytes. */
const MESSAGE_MAX = 1_000;

/** The Event about the problems of one Secret with one code. */
interface Told {
  readonly name: string;
  readonly count: number;
  readonly atMs: number;
}

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
  readonly #told = new Map<string, Told>();
  #waiting: readonly Problem[] | undefined;
  #writing: Promise<void> | undefined;
  #closed = false;

  constructor(instance: string, tools: EventTools) {
    this.#instance = instance;
    this.#tools = tools;
    this.#allowance = new Allowance(BURST, PER_MINUTE / 60, tools.clock);
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
      // An Event cannot be about an unreadable namespace.
      const about = this.#waiting.filter(({ source }) => source.uid !== '');
      this.#waiting = undefined;
      const alike = Map.groupBy(about, ({ source, code }) => JSON.stringify([source, code]));
      for (const [key, [problem, ...more]] of alike) {
        if (this.#closed) return;
        if (problem === undefined || this.#isRecent(this.#told.get(key))) continue;
        if (this.#allowance.take()) await this.#write(key, problem, more.length);
        else this.#tools.metrics.secretEvents.inc({ result: 'held_back' });
      }
      for (const [key, told] of this.#told)
        if (!alike.has(key) && !this.#isRecent(told)) this.#told.delete(key);
    }
  }

  #isRecent(told: Told | undefined): boolean {
    if (told === undefined) return false;
    return this.#tools.clock.monotonicMs() - told.atMs <= REPEAT_MS;
  }

  async #write(key: string, problem: Problem, more: number): Promise<void> {
    const { clock, log, metrics } = this.#tools;
    const atMs = clock.monotonicMs();
    const told = this.#told.get(key);
    const message =
      problem.message.slice(0, MESSAGE_MAX) + (more > 0 ? `; ${more} more like it` : '');
    try {
      const count = (told?.count ?? 0) + 1;
      if (told !== undefined && (await this.#repeat(told.name, problem, { count, message }))) {
        this.#told.set(key, { name: told.name, count, atMs });
        metrics.secretEvents.inc({ result: 'repeated' });
      } else {
        this.#told.set(key, { name: await this.#create(problem, message), count: 1, atMs });
        metrics.secretEvents.inc({ result: 'created' });
      }
    } catch (error) {
      log.debug({ err: error }, 'Event not written');
      metrics.secretEvents.inc({ result: 'failed' });
    }
  }

  /** False if the API server has forgotten the Event. */
  async #repeat(
    name: string,
    { source: { namespace } }: Problem,
    change: { readonly count: number; readonly message: string },
  ): Promise<boolean> {
    const { core, clock } = this.#tools;
    const body = { ...change, lastTimestamp: clock.now().toISOString() };
    try {
      const options = setHeaderOptions('Content-Type', PatchStrategy.MergePatch);
      await core.patchNamespacedEvent({ name, namespace, body }, options);
      return true;
    } catch (error) {
      if (kubernetesStatus(error) === NOT_FOUND) return false;
      throw error;
    }
  }

  /** Resolves to the Event's name. */
  async #create({ source, code }: Problem, message: string): Promise<string> {
    const { core, clock } = this.#tools;
    const { namespace } = source;
    const prefix = source.name.slice(0, 200).replace(/[-.]+$/, '');
    const name = `${prefix}.${randomBytes(8).toString('hex')}`;
    const now = clock.now();
    const body = {
      metadata: { name, namespace },
      involvedObject: { apiVersion: 'v1', kind: 'Secret', ...source },
      type: 'Warning',
      reason: code.replace(/(^|_)([a-z])/g, (_match, _start, letter: string) =>
        letter.toUpperCase(),
      ),
      message,
      source: { component: COMPONENT },
      reportingComponent: COMPONENT,
      reportingInstance: this.#instance,
      firstTimestamp: now,
      lastTimestamp: now,
      count: 1,
    };
    await core.createNamespacedEvent({ namespace, body });
    return name;
  }
}
