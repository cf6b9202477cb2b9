/** Clients that wait for an answer, each on a connection. */
import { FairShares, type Owner } from '../fair/shares.ts';
import { SHARED } from './bounds.ts';

export class WaitingClients<Wait extends object> {
  readonly #shares = new FairShares<Wait>(SHARED.waits, (wait) => this.end(wait, false));
  readonly #ends = new Map<Wait, (waited: boolean) => void>();
  readonly #drain: AbortSignal;

  /** `drain` aborts when the process drains, which ends all waits. */
  constructor(drain: AbortSignal) {
    this.#drain = drain;
    drain.addEventListener('abort', () => {
      for (const wait of this.all) this.end(wait, false);
    });
  }

  get all(): readonly Wait[] {
    return [...this.#ends.keys()];
  }

  end(wait: Wait, waited: boolean): void {
    this.#ends.get(wait)?.(waited);
  }

  /**
   * Resolves once the wait is ended or `ms` have passed. False if it ended early: `gone` aborts, the
   * process drains, or other partners need the place.
   */
  async hold(wait: Wait, owner: Owner, ms: number, gone: AbortSignal): Promise<boolean> {
    if (this.#drain.aborted || gone.aborted) return false;
    const { promise, resolve } = Promise.withResolvers<boolean>();
    const timer = setTimeout(resolve, ms, true);
    gone.addEventListener('abort', () => resolve(false));
    this.#ends.set(wait, resolve);
    this.#shares.hold(wait, owner);
    const waited = await promise;
    clearTimeout(timer);
    this.#ends.delete(wait);
    this.#shares.remove(wait);
    return waited;
  }
}
