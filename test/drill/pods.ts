/** What Kubernetes would call the slots of the world: pods with names, containers that start again, what they printed. */
import { constants } from 'node:os';
import type { ScrapeTarget } from '../../deploy/local/prometheus.ts';
import { NAMESPACE } from '../chart/rules.ts';
import type { ChaosWorld, Slot } from '../chaos/world.ts';

/** What the drill's `kubectl` (kubectl.ts) knows of a pod. */
export interface PodState {
  readonly name: string;
  readonly component: string;
  readonly adminPort: number;
  /** Whether a process is in it. */
  readonly running: boolean;
  readonly environment: Readonly<Record<string, string>>;
  readonly log: readonly string[];
  /** Of the container that ended last, if one has ended by itself or was killed. */
  readonly previous?: { readonly log: readonly string[]; readonly lastState: object };
}

/** A container that died starts again in its pod; one that ended well leaves it to a new one. */
export class Pod {
  readonly #slot: Slot;
  #process: Slot['process'];
  #previous: PodState['previous'];
  #number = 1;

  constructor(slot: Slot) {
    this.#slot = slot;
  }

  /** To be called often: a process that came and went in between is not seen. */
  look(): void {
    const current = this.#slot.process;
    if (current === undefined || current === this.#process) return;
    const { exitCode, signalCode } = this.#process?.child ?? { exitCode: null, signalCode: null };
    if (exitCode === 0) {
      this.#number += 1;
      this.#previous = undefined;
    } else if (this.#process !== undefined) {
      const code = exitCode ?? 128 + constants.signals[signalCode ?? 'SIGKILL'];
      this.#previous = { log: this.#process.lines, lastState: { terminated: { exitCode: code, reason: 'Error' } } };
    }
    this.#process = current;
  }

  target(): ScrapeTarget[] {
    if (this.#process === undefined) return [];
    const pod = this.#name;
    const labels = {
      namespace: NAMESPACE,
      job: `${NAMESPACE}/${NAMESPACE}`,
      container: this.#slot.name,
      pod,
      instance: pod,
    };
    return [{ adminUrl: this.#process.adminUrl, labels }];
  }

  /** With the log since `since`: what earlier faults left in it is not there for a runbook to find. */
  state(since: Date): PodState {
    const { name: component, adminPort, environment } = this.#slot;
    const recent = (lines: readonly string[]): string[] => lines.filter((line) => timeOf(line) >= since.getTime());
    const previous = this.#previous && { ...this.#previous, log: recent(this.#previous.log) };
    return {
      name: this.#name,
      component,
      adminPort,
      running: this.#slot.process !== undefined,
      environment,
      log: recent(this.#process?.lines ?? []),
      ...(previous === undefined ? {} : { previous }),
    };
  }

  get #name(): string {
    return `${this.#slot.label}-${this.#number}`;
  }
}

/** Milliseconds; a line that is none of ours counts as new. */
function timeOf(line: string): number {
  const [, time] = /"time":"([^"]+)"/.exec(line) ?? [];
  return time === undefined ? Infinity : Date.parse(time);
}

export function podsOf(world: ChaosWorld): readonly Pod[] {
  return world.slots.map((slot) => new Pod(slot));
}
