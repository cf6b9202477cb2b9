/** Tasks that a process repeats, with back-off and health. */
import { NewerVersionError, type Probe, type Fault } from './fault.ts';
import type { Closers } from './closers.ts';
import { backoffMs, DeadlineError, jittered, pause, type BackOff } from './deadline.ts';
import type { Logger } from './log.ts';
import { isContactFailure, saidBy } from './server-words.ts';

export interface LoopOptions<Name extends string = string> {
  /** The name in the log, `/readyz` and the gauge. */
  readonly name: Name;
  /** Pause between two rounds, ±20 %. */
  readonly everyMs: number | (() => number);
  /** Pause after failures; `everyMs` by default. */
  readonly retry?: BackOff;
  /** The loop fails when no round has succeeded for this long, even if a round hangs. */
  readonly failsAfterMs: number;
  /**
   * If the loop fails, the process is not ready. Without `needed`, `/readyz` warns, unless a newer
   * version stored what the loop reads.
   */
  readonly needed?: true;
  /** The next round follows at once if it resolves to true. A rejection is a failure. */
  run(signal: AbortSignal): Promise<unknown>;
  /** Explains an error to operators; by default that of `Loops`. */
  readonly faultOf?: (error: unknown) => Fault;
}

export interface LoopTools<Name extends string = string> {
  readonly log: Logger;
  readonly closers: Pick<Closers, 'add'>;
  /** 1 while a loop fails. */
  readonly failing: { set(labels: { readonly loop: Name }, value: number): void };
  /** Explains an error to operators; contains no personal data. */
  readonly faultOf: (error: unknown) => Fault;
}

export class Loops<Name extends string = string> {
  readonly #tools: LoopTools<Name>;
  readonly #loops = new Set<Loop>();

  constructor(tools: LoopTools<Name>) {
    this.#tools = tools;
  }

  /** The first round begins at once, and the process' closing ends the last one. */
  start(options: LoopOptions<Name>): Loop {
    const loop = new Loop(options, this.#tools);
    this.#loops.add(loop);
    this.#tools.closers.add(options.name, () => void loop.stop());
    return loop;
  }

  readonly faults: Probe = () => this.#failing(true);
  readonly warnings: Probe = () => this.#failing(false);

  /** Errors of loops whose last round failed, even if not failing yet. */
  readonly lastErrors: Probe = () => [...this.#loops].flatMap(({ lastError }) => lastError ?? []);

  /** Loops that fail for one reason share a sentence, and have its code. */
  #failing(needed: boolean): readonly Fault[] {
    const failing = [...this.#loops].flatMap(({ name, fault, isNeeded }) =>
      fault !== undefined && isNeeded === needed ? [{ name, fault }] : [],
    );
    return [...Map.groupBy(failing, ({ fault }) => fault.words)].map(([words, loops]) => ({
      ...loops[0]!.fault,
      words: `failing loops: ${loops.map(({ name }) => name).join(', ')}: ${words}`,
    }));
  }
}

export class Loop {
  readonly name: string;
  /** Resolves after the first round that succeeds. */
  readonly succeeded: Promise<void>;
  readonly #options: LoopOptions;
  readonly #tools: LoopTools;
  readonly #first = Promise.withResolvers<void>();
  readonly #stop = new AbortController();
  readonly #running: Promise<void>;
  /** Restarted by each success. */
  readonly #alarm: NodeJS.Timeout;
  #woken = new AbortController();
  #error: unknown;
  #fails = false;

  constructor(options: LoopOptions, tools: LoopTools) {
    this.name = options.name;
    this.succeeded = this.#first.promise;
    this.#options = options;
    this.#tools = tools;
    this.#show(false);
    this.#alarm = setTimeout(() => this.#failed(), options.failsAfterMs).unref();
    this.#running = this.#forever();
  }

  /** Undefined while the loop succeeds. */
  get fault(): Fault | undefined {
    const late = `took longer than ${this.#options.failsAfterMs} ms`;
    return this.#fails ? this.#faultOf(this.#error ?? new DeadlineError(late)) : undefined;
  }

  /** Without this loop the process is not ready. */
  get isNeeded(): boolean {
    return this.#options.needed ?? this.#error instanceof NewerVersionError;
  }

  /** Undefined if the last round succeeded. */
  get lastError(): Fault | undefined {
    return this.#error === undefined ? undefined : this.#faultOf(this.#error);
  }

  #faultOf(error: unknown): Fault {
    return (this.#options.faultOf ?? this.#tools.faultOf)(error);
  }

  /** Ends the pause before the next round. */
  wake(): void {
    this.#woken.abort();
  }

  /** Resolves when the current round has ended. */
  stop(): Promise<void> {
    this.#stop.abort();
    clearTimeout(this.#alarm);
    return this.#running;
  }

  async #forever(): Promise<void> {
    const { everyMs, retry } = this.#options;
    const { signal } = this.#stop;
    let failures = 0;
    while (!signal.aborted) {
      this.#woken = new AbortController();
      let waitMs: number | undefined;
      try {
        if ((await this.#options.run(signal)) === true) waitMs = 0;
        failures = 0;
        if (!signal.aborted) this.#done();
      } catch (error) {
        failures += 1;
        if (retry !== undefined) waitMs = backoffMs(failures, retry);
        this.#error = error;
        this.#tools.log.debug({ err: error, loop: this.name }, 'a round failed');
        if (error instanceof NewerVersionError && !this.#fails) this.#failed();
      }
      waitMs ??= jittered(typeof everyMs === 'number' ? everyMs : everyMs());
      await pause(waitMs, AbortSignal.any([signal, this.#woken.signal]));
    }
  }

  #done(): void {
    this.#error = undefined;
    this.#alarm.refresh();
    this.#first.resolve();
    if (!this.#fails) return;
    this.#show(false);
    this.#tools.log.info({ loop: this.name }, 'a loop succeeds again');
  }

  #failed(): void {
    this.#show(true);
    const fields = { err: this.#error, loop: this.name, reason: this.fault?.words };
    // The words of any other error may quote data.
    const said = isContactFailure(this.#error) ? { said: saidBy(this.#error) } : {};
    this.#tools.log.warn({ ...fields, ...said }, 'a loop fails');
  }

  #show(fails: boolean): void {
    this.#fails = fails;
    this.#tools.failing.set({ loop: this.name }, fails ? 1 : 0);
  }
}
