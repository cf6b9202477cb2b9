/** Closes what a process opened, in reverse order, even if a step fails or hangs. */
import type { Logger } from './log.ts';
import { withDeadline } from './deadline.ts';

const STEP_DEADLINE_MS = 10_000;

interface CloseStep {
  readonly name: string;
  readonly deadlineMs: number;
  close(): Promise<unknown> | void;
}

export class Closers {
  readonly #steps: CloseStep[] = [];
  readonly #log: Logger;
  #closing: Promise<void> | undefined;

  constructor(log: Logger) {
    this.#log = log;
  }

  add(name: string, close: () => Promise<unknown> | void, deadlineMs = STEP_DEADLINE_MS): void {
    this.#steps.push({ name, close, deadlineMs });
  }

  /** Never rejects, because failures are logged. */
  closeAll(): Promise<void> {
    this.#closing ??= this.#closeInReverse();
    return this.#closing;
  }

  async #closeInReverse(): Promise<void> {
    for (const step of this.#steps.toReversed()) {
      try {
        await withDeadline(Promise.resolve(step.close()), step.deadlineMs, `closing ${step.name}`);
      } catch (error) {
        this.#log.warn({ err: error, step: step.name }, 'closing step failed; going on');
      }
    }
  }
}
