/**
 * The line of accounts whose e-mail is still to go out, and the places it is served at.
 *
 * A record in `account_created` that is due stands in the line. The line takes partner by partner
 * in turn, and of each partner the oldest record first, whenever a place is free. A record whose
 * account was just made takes a free place at once. Each process keeps the head of the line in
 * memory and reads it again every second; a claim decides which process gets a record.
 */
import type { Clock } from '../platform/clock.ts';
import { pause } from '../platform/deadline.ts';
import type { Logger } from '../platform/log.ts';
import type { HandOver } from '../mail/mailer.ts';
import { Places, rules, type Addressed, type Place } from '../mail/places.ts';
import type { Blame, RelayState } from '../mail/relay-state.ts';
import type { LineHead, WaitingMail } from '../submission/mail-queue.ts';
import { LINE_EVERY_MS, LINE_KEPT, LINE_LOW } from './limits.ts';
import type { Holds } from './follow-holds.ts';

/** A place in use: `note` tells the line what the relay answered. */
export interface MailPlace {
  note(handOver: HandOver, dropped: boolean): Blame;
}

export interface MailLineOptions {
  readonly places: number;
  readonly relay: RelayState;
  readonly clock: Clock;
  readonly log: Logger;
  readonly holds: Holds;
  /** The head of the line as stored; rejects while the database is away. */
  readHead(options: { readonly withoutPartners: readonly string[] }): Promise<LineHead>;
  /** Whether the relay greets us and takes our login. */
  probe(): Promise<boolean>;
  /** Works on the record; never rejects. */
  work(waiting: WaitingMail, place: MailPlace): Promise<void>;
}

export class MailLine {
  readonly #options: MailLineOptions;
  readonly #places: Places;
  /** By partner, the one whose turn is next first; of each the oldest first. */
  readonly #waiting = new Map<string, WaitingMail[]>();
  /** Requests at a place. */
  readonly #inWork = new Set<string>();
  readonly #changed = new Set<() => void>();
  #moreStored = false;
  #paused = false;
  #closed = false;
  #timer: NodeJS.Timeout | undefined;
  #wakeReader: (() => void) | undefined;

  constructor(options: MailLineOptions) {
    this.#options = options;
    this.#places = new Places(options.places, options.clock);
  }

  /** A record whose account was just made: it stands in the line from now on. */
  add(waiting: WaitingMail): void {
    this.#put(waiting);
    this.#serve();
  }

  /**
   * Works on a record at a place that is free now, past the line only while nobody in it could take
   * the place. False if there is none.
   */
  tryNow(waiting: WaitingMail, work: (place: MailPlace) => Promise<void>): boolean {
    const { relay, clock } = this.#options;
    const wait = relay.paused !== undefined || relay.waitMs(clock.monotonicMs()) > 0;
    const behind = this.#moreStored || this.#waiting.has(waiting.partnerId);
    if (this.#paused || this.#closed || wait || behind || !this.#mayTake(waiting)) return false;
    this.#start(waiting, work);
    return true;
  }

  /** Takes nothing more until `resume`: the database is away. */
  pause(): void {
    this.#paused = true;
  }

  resume(): void {
    this.#paused = false;
    this.#serve();
  }

  /** Reads the head of the line until `signal` aborts. */
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

  /**
   * Reads the head of the line and serves it. Never rejects: while the database is away, memory
   * serves.
   */
  async readOnce(): Promise<void> {
    await this.#read();
    this.#serve();
  }

  /** False while the database is away. */
  async #read(): Promise<boolean> {
    const { holds, log } = this.#options;
    try {
      const head = await this.#options.readHead({ withoutPartners: holds.partners() });
      this.#moreStored = head.more;
      for (const waiting of head.mails) this.#put(waiting);
      return true;
    } catch (error) {
      log.debug({ err: error }, 'the line of mails could not be read');
      return false;
    }
  }

  /**
   * Begins nothing more and resolves when all mails at places have ended, or when `signal` aborts.
   */
  async close(signal: AbortSignal): Promise<void> {
    this.#closed = true;
    clearTimeout(this.#timer);
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
    // What memory has no room for is read again later.
    else if (others.length >= LINE_KEPT) return;
    const index = others.findLastIndex(({ dueAt }) => dueAt <= waiting.dueAt) + 1;
    others.splice(index, 0, waiting);
    this.#waiting.set(waiting.partnerId, others);
  }

  /** Fills the free places. */
  #serve(): void {
    const { relay, clock } = this.#options;
    if (this.#paused || this.#closed) return;
    if (relay.paused !== undefined) return this.#tryRelay();
    while (this.#places.free > 0 && relay.paused === undefined) {
      const waitMs = relay.waitMs(clock.monotonicMs());
      const next = this.#next();
      if (next === undefined) break;
      if (waitMs > 0) return this.#serveLater(waitMs);
      this.#takeOut(next);
      this.#start(next, (place) => this.#options.work(next, place));
    }
    if (this.#moreStored && this.#count() < LINE_LOW) this.#wakeReader?.();
  }

  #serveLater(waitMs: number): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#serve(), waitMs);
  }

  /** The next mail by turn that may take a place. */
  #next(only: (waiting: WaitingMail) => boolean = () => true): WaitingMail | undefined {
    const { holds } = this.#options;
    for (const rule of rules) {
      for (const [partnerId, waiting] of this.#waiting) {
        if (holds.has(partnerId)) continue;
        // The answer is the same for all mails of one partner to one domain.
        const full = new Set<string>();
        for (const one of waiting) {
          if (full.has(one.domain) || !only(one)) continue;
          if (this.#places.mayTake(one, rule)) return one;
          full.add(one.domain);
        }
      }
    }
    return undefined;
  }

  #mayTake(mail: Addressed): boolean {
    return rules.some((rule) => this.#places.mayTake(mail, rule));
  }

  /** Removes it from the line; its partner's next turn comes after those of all others. */
  #takeOut({ partnerId, requestId }: WaitingMail): void {
    const left = (this.#waiting.get(partnerId) ?? []).filter((one) => one.requestId !== requestId);
    this.#waiting.delete(partnerId);
    if (left.length > 0) this.#waiting.set(partnerId, left);
  }

  #start(waiting: WaitingMail, work: (place: MailPlace) => Promise<void>): void {
    const { relay, clock } = this.#options;
    relay.begin(clock.monotonicMs());
    const place = this.#places.take(waiting);
    this.#inWork.add(waiting.requestId);
    void work(this.#placeOf(waiting, place)).finally(() => {
      place.release();
      this.#inWork.delete(waiting.requestId);
      for (const tell of this.#changed) tell();
      this.#changed.clear();
      this.#serve();
    });
  }

  #placeOf({ partnerId, domain }: Addressed, { startedAtMs }: Place): MailPlace {
    const { relay, clock } = this.#options;
    return {
      note: (handOver, dropped) =>
        relay.note({ partnerId, domain, startedAtMs }, handOver, {
          nowMs: clock.monotonicMs(),
          dropped,
        }),
    };
  }

  /**
   * While the relay takes nothing, one mail at a time is tried; at once where an operator asked for
   * it.
   */
  #tryRelay(): void {
    const { relay, clock } = this.#options;
    if (relay.trying || this.#places.free === 0) return;
    const urgent = this.#next(({ urgent: isUrgent }) => isUrgent);
    const waitMs = relay.waitMs(clock.monotonicMs());
    if (urgent === undefined && waitMs > 0) return this.#serveLater(waitMs);
    relay.beginTrial();
    void this.#trial(urgent).finally(() => {
      if (relay.trying) relay.endTrial(clock.monotonicMs());
      this.#serve();
    });
  }

  async #trial(urgent: WaitingMail | undefined): Promise<void> {
    const { relay } = this.#options;
    if (relay.paused === 'unreachable' && !(await this.#options.probe())) return;
    let next = urgent ?? this.#next();
    if (next === undefined) {
      // What was put back may not be in memory yet.
      const isRead = await this.#read();
      next = this.#next();
      // Nothing waits, so nothing tells how the relay is; the next mail will.
      if (next === undefined && isRead && this.#places.free > 0) relay.resume();
    }
    if (next === undefined || this.#closed || this.#paused) return;
    this.#takeOut(next);
    await new Promise<void>((resolve) => {
      this.#start(next, (place) => this.#options.work(next, place).finally(resolve));
    });
  }
}
