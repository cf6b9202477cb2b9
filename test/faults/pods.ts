/**
 * What Kubernetes would call the slots of the world: pods with names, and containers that start
 * again.
 */
import type { ScrapeTarget } from '../../deploy/local/prometheus.ts';
import { NAMESPACE } from '../chart/rules.ts';
import type { ChaosWorld, Slot } from './world.ts';

/** A container that died starts again in its pod; one that ended well leaves it to a new one. */
export class Pod {
  readonly #slot: Slot;
  #process: Slot['process'];
  #number = 1;

  constructor(slot: Slot) {
    this.#slot = slot;
  }

  /** To be called often: a process that came and went in between is not seen. */
  look(): void {
    const current = this.#slot.process;
    if (current === undefined || current === this.#process) return;
    if (this.#process?.child.exitCode === 0) this.#number += 1;
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

  get #name(): string {
    return `${this.#slot.label}-${this.#number}`;
  }
}

export function podsOf(world: ChaosWorld): readonly Pod[] {
  return world.slots.map((slot) => new Pod(slot));
}
