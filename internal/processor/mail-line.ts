/**
 * The line of accounts whose e-mail is still to be sent.
 *
 * A free place takes the oldest record of the partner whose turn it is; a new account's record
 * takes one at once if no other waits for it. Each process reads the head of the line every second,
 * and a claim decides which process gets a record.
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

export interface MailPlace {
  note(handOver: HandOver): Blame;
}

export interface MailLineOptions {
  readonly places: number;
  readonly relay: RelayState;
  readonly clock: Clock;
  readonly log: Logger;
  readonly holds: Holds;
  readHead(options: { readonly withoutPartners: readonly string[] }): Promise<LineHead>;
  probe(): Promise<boolean>;
  work(waiting: WaitingMail, place: MailPlace): Promise<void>;
}

export class MailLine {
  readonly #options: MailLineOptions;
  readonly #places: Places;
  /** In order of turns, each with its oldest record first. */
  readonly #waiting = new Map<string, WaitingMail[]>();
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

  add(waiting: WaitingMail): void {
    this.#put(waiting);
    this.#serve();
  }

  /** False if the record must wait in the line. */
  tryNow(waiting: WaitingMail, work: (place: MailPlace) => Promise<void>): boolean {
    const { relay, clock } = this.#options;
    const wait = relay.paused !== undefined || relay.waitMs(clock.monotonicMs()) > 0;
    const behind = this.#moreStored || this.#waiting.has(waiting.partnerId);
    if (this.#paused || this.#closed || wait || behind || !this.#mayTake(waiting)) return false;
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

  /** Waits for e-mails in progress. */
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
    // The rest is read later.
    else if (others.length >= LINE_KEPT) return;
    const index = others.findLastIndex(({ dueAt }) => dueAt <= waiting.dueAt) + 1;
    others.splice(index, 0, waiting);
    this.#waiting.set(waiting.partnerId, others);
  }

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

  #next(): WaitingMail | undefined {
    const { holds } = this.#options;
    const mayTake = this.#places.now();
    for (const rule of rules) {
      for (const [partnerId, waiting] of this.#waiting) {
        if (holds.has(partnerId)) continue;
        // If one e-mail must wait, so must the partner's others to that domain.
        const full = new Set<string>();
        for (const one of waiting) {
          if (full.has(one.domain)) continue;
          if (mayTake(one, rule)) return one;
          full.add(one.domain);
        }
      }
    }
    return undefined;
  }

  #mayTake(mail: Addressed): boolean {
    const mayTake = this.#places.now();
    return rules.some((rule) => mayTake(mail, rule));
  }

  /** Moves the partner behind all others. */
  #takeOut({ partnerId, requestId }: WaitingMail): void {
    const left = (this.#waiting.get(partnerId) ?? []).filter((one) => one.requestId !== requestId);
    this.#waiting.delete(partnerId);
    if (left.length > 0) this.#waiting.set(partnerId, left);
  }

  #start(waiting: WaitingMail, work: (place: MailPlace) => Promise<void>): void {
    const { relay, clock } = this.#options;
    const giveShareBack = relay.begin(clock.monotonicMs());
    const place = this.#places.take(waiting);
    this.#inWork.add(waiting.requestId);
    let handedOver = false;
    const noting = (): void => void (handedOver = true);
    void work(this.#placeOf(waiting, place, noting)).finally(() => {
      // Another process may have had its record.
      if (!handedOver) giveShareBack();
      place.release();
      this.#inWork.delete(waiting.requestId);
      for (const tell of this.#changed) tell();
      this.#changed.clear();
      this.#serve();
    });
  }

  #placeOf(
    { partnerId, domain }: Addressed,
    { startedAtMs }: Place,
    noting: () => void,
  ): MailPlace {
    const { relay, clock } = this.#options;
    return {
      note: (handOver) => {
        noting();
        return relay.note({ partnerId, domain, startedAtMs }, handOver, clock.monotonicMs());
      },
    };
  }

  /** While the relay is paused, tries one e-mail at a time. */
  #tryRelay(): void {
    const { relay, clock } = this.#options;
    if (relay.trying || this.#places.free === 0) return;
    const waitMs = relay.waitMs(clock.monotonicMs());
    if (waitMs > 0) return this.#serveLater(waitMs);
    relay.beginTrial();
    void this.#trial().finally(() => {
      if (relay.trying) relay.endTrial(clock.monotonicMs());
      this.#serve();
    });
  }

  async #trial(): Promise<void> {
    const { relay } = this.#options;
    if (relay.paused === 'unreachable') {
      if (await this.#options.probe()) relay.resume();
      return;
    }
    for (let next = this.#next(); next !== undefined; next = this.#next()) {
      if (this.#closed || this.#paused || (await this.#tried(next))) return;
    }
    // A record that was put back may not be in memory yet.
    const isRead = await this.#read();
    const next = this.#next();
    if (next !== undefined && (this.#closed || this.#paused || (await this.#tried(next)))) return;
    // With nothing to try, the next e-mail tests the relay.
    if (isRead && this.#places.free > 0) relay.resume();
  }

  /** False if it was not handed over, as when another process had taken its record. */
  #tried(waiting: WaitingMail): Promise<boolean> {
    this.#takeOut(waiting);
    return new Promise((resolve) => {
      let tried = false;
      this.#start(waiting, (place) =>
        this.#options
          .work(waiting, {
            note: (handOver) => {
              tried = true;
              return place.note(handOver);
            },
          })
          .finally(() => resolve(tried)),
      );
    });
  }
}
