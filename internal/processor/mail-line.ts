/**
 * The line of accounts whose e-mail is still to be sent.
 *
 * A free place takes the oldest record of the partner whose turn it is; a new account's record
 * takes one at once if no other waits for it. Each process reads the head of the line every second,
 * and a claim decides which process gets a record.
 */
import { pause } from '../platform/deadline.ts';
import type { Logger } from '../platform/log.ts';
import type { MailGate, MailPlace } from '../mail/mail-gate.ts';
import type { LineHead, WaitingMail } from '../submission/mail-queue.ts';
import { LINE_EVERY_MS, LINE_KEPT, LINE_LOW } from './limits.ts';
import type { Holds } from './follow-holds.ts';

export interface MailLineOptions {
  readonly gate: MailGate;
  readonly log: Logger;
  readonly holds: Holds;
  readHead(options: { readonly withoutPartners: readonly string[] }): Promise<LineHead>;
  work(waiting: WaitingMail, place: MailPlace): Promise<void>;
}

export class MailLine {
  readonly #options: MailLineOptions;
  /** In order of turns, each with its oldest record first. */
  readonly #waiting = new Map<string, WaitingMail[]>();
  readonly #inWork = new Set<string>();
  readonly #changed = new Set<() => void>();
  #moreStored = false;
  #paused = false;
  #closed = false;
  #wakeReader: (() => void) | undefined;

  constructor(options: MailLineOptions) {
    this.#options = options;
    options.gate.onChange = () => this.#serve();
  }

  add(waiting: WaitingMail): void {
    this.#put(waiting);
    this.#serve();
  }

  /** False if the record must wait in the line. */
  tryNow(waiting: WaitingMail, work: (place: MailPlace) => Promise<void>): boolean {
    const { partnerId } = waiting;
    const behind = this.#moreStored || this.#waiting.has(partnerId);
    if (this.#paused || this.#closed || behind) return false;
    if (this.#options.gate.choose([partnerId]) === undefined) return false;
    this.#start(waiting, work);
    return true;
  }

  pause(): void {
    this.#paused = true;
  }

  resume(): void {
    this.#paused = false;
    this.#serve();
  }

  async run(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      await this.readOnce();
      const woken = new AbortController();
      this.#wakeReader = () => woken.abort();
      const low = this.#moreStored && this.#count() < LINE_LOW;
      const every = low ? 0 : LINE_EVERY_MS * (0.8 + 0.4 * Math.random());
      await pause(every, AbortSignal.any([signal, woken.signal]));
    }
  }

  async readOnce(): Promise<void> {
    await this.#read();
    this.#serve();
  }

  async #read(): Promise<void> {
    const { holds, log } = this.#options;
    try {
      const head = await this.#options.readHead({ withoutPartners: holds.partners() });
      this.#moreStored = head.more;
      for (const waiting of head.mails) this.#put(waiting);
    } catch (error) {
      log.debug({ err: error }, 'the line of mails could not be read');
    }
  }

  /** Waits for e-mails in progress. */
  async close(signal: AbortSignal): Promise<void> {
    this.#closed = true;
    this.#wakeReader?.();
    while (this.#inWork.size > 0 && !signal.aborted) {
      const ended = new AbortController();
      this.#changed.add(() => ended.abort());
      await pause(LINE_EVERY_MS, AbortSignal.any([signal, ended.signal]));
    }
  }

  #count(): number {
    return [...this.#waiting.values()].reduce((sum, { length }) => sum + length, 0);
  }

  #put(waiting: WaitingMail): void {
    if (this.#inWork.has(waiting.requestId)) return;
    const others = this.#waiting.get(waiting.partnerId) ?? [];
    const known = others.findIndex(({ requestId }) => requestId === waiting.requestId);
    if (known >= 0) others.splice(known, 1);
    // The rest is read later.
    else if (others.length >= LINE_KEPT) return;
    const index = others.findLastIndex(({ dueAt }) => dueAt <= waiting.dueAt) + 1;
    others.splice(index, 0, waiting);
    this.#waiting.set(waiting.partnerId, others);
  }

  #serve(): void {
    if (this.#paused || this.#closed) return;
    for (let next = this.#next(); next !== undefined; next = this.#next()) {
      const waiting = next;
      this.#takeOut(waiting);
      this.#start(waiting, (place) => this.#options.work(waiting, place));
    }
    if (this.#moreStored && this.#count() < LINE_LOW) this.#wakeReader?.();
  }

  #next(): WaitingMail | undefined {
    const { gate, holds } = this.#options;
    const partners = [...this.#waiting.keys()].filter((partnerId) => !holds.has(partnerId));
    const partnerId = gate.choose(partners);
    return partnerId === undefined ? undefined : this.#waiting.get(partnerId)?.[0];
  }

  /** Moves the partner behind all others. */
  #takeOut({ partnerId, requestId }: WaitingMail): void {
    const left = (this.#waiting.get(partnerId) ?? []).filter((one) => one.requestId !== requestId);
    this.#waiting.delete(partnerId);
    if (left.length > 0) this.#waiting.set(partnerId, left);
  }

  #start(waiting: WaitingMail, work: (place: MailPlace) => Promise<void>): void {
    const place = this.#options.gate.begin(waiting.partnerId);
    this.#inWork.add(waiting.requestId);
    void work(place).finally(() => {
      this.#inWork.delete(waiting.requestId);
      for (const tell of this.#changed) tell();
      this.#changed.clear();
      place.release();
    });
  }
}
