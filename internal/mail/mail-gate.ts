/**
 * Decides when the next e-mail may begin, and of which partner: the relay takes mail
 * (`RelayBreaker`), a place is free, and the common pace allows it (mail-pace.ts).
 *
 * An e-mail holds its place for two seconds at most. Then it is slow: it gives the place back and
 * keeps its connection. A partner is slow while one of its e-mails is, and until one ends in time.
 * A slow partner has at most as many slow e-mails as there are places. Slow partners wait behind
 * the others once they hold half of the places. So silent recipients delay another partner's
 * e-mail by two seconds at most, however many they are.
 *
 * E-mails of tests come behind all live ones. One at a time holds a place, and it begins only where
 * no live e-mail could and the pace has a moment now. So it delays a live e-mail as one that is in
 * flight does. A slow one gives its place back; a partner has one slow test at most.
 */
import type { Clock } from '../platform/process/clock.ts';
import { backoffMs, pause } from '../platform/process/deadline.ts';
import type { Logger } from '../platform/process/log.ts';
import type { MailPace } from './mail-pace.ts';
import type { HandOver, Outage, PauseReason } from './relay-answers.ts';

/** An e-mail holds its place this long; most relays answer within a second. */
export const HELD_MS = 2_000;
/** A relay that answers no e-mail for so long is told of, before its sessions end by their time-outs. */
export const SILENT_MS = 30_000;
/** Each keeps a connection, 100 kB with TLS; beyond it only partners without a slow one begin. */
const SLOW_AT_MOST = 1_000;
/** Beyond it nobody begins. */
export const SLOW_IN_ALL = 2_000;
/** Slow tests, each with a connection. */
const SLOW_TESTS = 16;
/** Between two questions for a moment of the pace. */
const SEEK_LEAST_MS = 10;

/** Whose fault a hand-over's result is. */
export type Blame = 'relay' | 'mail';

export interface MailPlace {
  /** Waits for the mail's moment; call it once, just before the hand-over. Never rejects. */
  turn(signal: AbortSignal): Promise<void>;
  note(handOver: HandOver): Blame;
  /** Call it once, whatever happened. */
  release(): void;
}

export interface MailGateOptions extends BreakerOptions {
  readonly places: number;
  /** None without MAIL_PER_SECOND. */
  readonly pace?: Pick<MailPace, 'reserve' | 'reserveNow' | 'waitingAtMost'> | undefined;
}

interface Partner {
  held: number;
  slow: number;
  lastWasSlow: boolean;
}

export class MailGate {
  readonly #options: MailGateOptions;
  readonly #breaker: RelayBreaker;
  readonly #partners = new Map<string, Partner>();
  #held = 0;
  #slow = 0;
  /** Begun, and still without its moment. */
  #waiting = 0;
  /** A test's e-mail holds a place. */
  #testHolds = false;
  /** Partners of which a test's e-mail is slow. */
  readonly #slowTests = new Set<string>();
  #seeksMoment = false;
  /** A moment for a test, used at once or not at all. */
  #hasMoment = false;
  readonly #stop = new AbortController();
  #closed = false;
  /** Called when `choose` may answer otherwise. */
  onChange = (): void => {};

  constructor(options: MailGateOptions) {
    this.#options = options;
    this.#breaker = new RelayBreaker(options, () => this.onChange());
  }

  get paused(): PauseReason | undefined {
    return this.#breaker.outage?.reason;
  }

  /** The relay has e-mails, and has answered none of them for `SILENT_MS`. */
  get isSilent(): boolean {
    return this.#slow > 0 && this.#breaker.isSilent;
  }

  /** E-mails that are handed over without a place. */
  get slow(): number {
    return this.#slow;
  }

  greet(): Promise<void> {
    return this.#breaker.greet();
  }

  /** The partner whose e-mail may begin now. */
  choose(partnersInTurn: Iterable<string>): string | undefined {
    const { pace, places } = this.#options;
    if (this.#closed || this.paused !== undefined) return undefined;
    if (pace !== undefined && this.#waiting >= pace.waitingAtMost) return undefined;
    if (this.#held >= places || this.#slow >= SLOW_IN_ALL) return undefined;
    const half = this.#heldBySlow() >= places / 2;
    let behind: string | undefined;
    for (const partnerId of partnersInTurn) {
      const partner = this.#partners.get(partnerId);
      if (partner === undefined || !isSlow(partner)) return partnerId;
      if (partner.slow >= places || this.#slow >= SLOW_AT_MOST) continue;
      if (!half) return partnerId;
      behind ??= partnerId;
    }
    return behind;
  }

  /** The partner whose test's e-mail may begin now. Ask it only if `choose` has no live one. */
  chooseTest(partnersInTurn: Iterable<string>): string | undefined {
    const { pace, places } = this.#options;
    if (this.#closed || this.paused !== undefined) return undefined;
    if (this.#testHolds || this.#held >= places) return undefined;
    if (this.#slowTests.size >= SLOW_TESTS) return undefined;
    // The next moment is that of a live e-mail.
    if (pace !== undefined && this.#waiting > 0) return undefined;
    for (const partnerId of partnersInTurn) {
      if (this.#slowTests.has(partnerId)) continue;
      if (pace === undefined || this.#hasMoment) return partnerId;
      void this.#seekMoment(pace);
      return undefined;
    }
    return undefined;
  }

  /** The place of a test's e-mail, which has its moment already. */
  beginTest(partnerId: string): MailPlace {
    const beganAtMs = this.#options.clock.monotonicMs();
    let [slow, rests] = [false, false];
    this.#hasMoment = false;
    this.#testHolds = true;
    this.#held += 1;
    const giveBack = (): void => {
      this.#testHolds = false;
      this.#held -= 1;
      this.onChange();
    };
    const holding = setTimeout(() => {
      slow = true;
      this.#slowTests.add(partnerId);
      giveBack();
    }, HELD_MS);
    return {
      turn: () => Promise.resolve(),
      note: (handOver) => {
        const blame = this.#breaker.note(handOver, beganAtMs);
        rests = blame === 'rest';
        return blame === 'mail' ? 'mail' : 'relay';
      },
      release: () => {
        clearTimeout(holding);
        if (slow) {
          this.#slowTests.delete(partnerId);
          this.onChange();
        } else if (rests) setTimeout(giveBack, REST_MS);
        else giveBack();
      },
    };
  }

  /** Asks for a moment of the pace until it has one, as long as a test waits for it. */
  async #seekMoment(pace: Pick<MailPace, 'reserveNow'>): Promise<void> {
    if (this.#seeksMoment) return;
    this.#seeksMoment = true;
    const waitMs = await pace.reserveNow();
    if (waitMs > 0) await pause(Math.max(waitMs, SEEK_LEAST_MS), this.#stop.signal);
    this.#seeksMoment = false;
    this.#hasMoment = waitMs <= 0;
    this.onChange();
    this.#hasMoment = false;
  }

  begin(partnerId: string): MailPlace {
    const { pace, clock } = this.#options;
    const partner = this.#partners.get(partnerId) ?? { held: 0, slow: 0, lastWasSlow: false };
    this.#partners.set(partnerId, partner);
    const beganAtMs = clock.monotonicMs();
    let [waits, slow, restMs] = [true, false, 0];
    let [holding, patience]: (NodeJS.Timeout | undefined)[] = [];
    this.#waiting += 1;
    this.#hold(partner, 1);
    const endWait = (): void => {
      if (waits) this.#waiting -= 1;
      waits = false;
    };
    const becomeSlow = (): void => {
      slow = true;
      const sinceMs = clock.monotonicMs() - HELD_MS;
      patience = setTimeout(() => this.#breaker.hearsNothing(sinceMs), SILENT_MS - HELD_MS);
      this.#hold(partner, -1);
      this.#countSlow(partner, 1);
      this.onChange();
    };
    const giveBack = (): void => {
      if (slow) this.#countSlow(partner, -1);
      else this.#hold(partner, -1);
      if (partner.held === 0 && !isSlow(partner)) this.#partners.delete(partnerId);
      this.onChange();
    };
    return {
      turn: async (signal) => {
        if (pace !== undefined) await pause(await pace.reserve(), signal);
        endWait();
        holding = setTimeout(becomeSlow, HELD_MS);
        if (pace !== undefined) this.onChange();
      },
      note: (handOver) => {
        const blame = this.#breaker.note(handOver, beganAtMs);
        // The place rests, too, while the relay takes others.
        if (blame === 'rest') restMs = REST_MS;
        return blame === 'mail' ? 'mail' : 'relay';
      },
      release: () => {
        endWait();
        clearTimeout(holding);
        clearTimeout(patience);
        if (holding !== undefined) partner.lastWasSlow = slow;
        if (slow || restMs === 0) giveBack();
        else setTimeout(giveBack, restMs);
      },
    };
  }

  close(): void {
    this.#closed = true;
    this.#stop.abort();
    this.#breaker.close();
  }

  #hold(partner: Partner, by: number): void {
    partner.held += by;
    this.#held += by;
  }

  #countSlow(partner: Partner, by: number): void {
    partner.slow += by;
    this.#slow += by;
  }

  #heldBySlow(): number {
    let held = 0;
    for (const partner of this.#partners.values()) if (isSlow(partner)) held += partner.held;
    return held;
  }
}

function isSlow({ slow, lastWasSlow }: Partner): boolean {
  return slow > 0 || lastWasSlow;
}

/** The place of an e-mail that the relay has no capacity for, while it takes others. */
export const REST_MS = 1_000;
/** At most 15 s with its jitter. */
const PROBE_BACKOFF = { firstMs: 250, capMs: 12_500 } as const;

interface BreakerOptions {
  /** Never rejects. */
  probe(): Promise<Outage | undefined>;
  /** Called for each failed probe too. */
  readonly onOutage: (outage: Outage | undefined) => void;
  readonly clock: Pick<Clock, 'monotonicMs'>;
  readonly log: Logger;
}

/**
 * Stops all mail while the relay takes none: it is unreachable, refuses our login or sender, or has
 * no capacity before it knows the recipient.
 *
 * The mailer's probe asks just that, up to MAIL FROM. So a pause ends without an e-mail, and no
 * recipient's server has a say in it. Probes follow after 250 ms, doubling to 15 s; the wait starts
 * again at 250 ms once the relay has taken an e-mail.
 */
class RelayBreaker {
  readonly #options: BreakerOptions;
  readonly #onChange: () => void;
  readonly #stop = new AbortController();
  #outage: Outage | undefined;
  #failures = 0;
  #tookAtMs = -Infinity;
  #isSilent = false;
  #resumedAtMs = -Infinity;

  constructor(options: BreakerOptions, onChange: () => void) {
    this.#options = options;
    this.#onChange = onChange;
  }

  get outage(): Outage | undefined {
    return this.#outage;
  }

  get isSilent(): boolean {
    return this.#isSilent;
  }

  /** An e-mail that the relay has had since then is still without an answer. */
  hearsNothing(sinceMs: number): void {
    if (this.#isSilent || this.#tookAtMs > sinceMs) return;
    this.#isSilent = true;
    this.#options.log.warn('the relay answers no e-mail');
  }

  /** `rest`: the relay refuses this one and takes others, as with too many connections. */
  note(handOver: HandOver, beganAtMs: number): 'mail' | 'relay' | 'rest' {
    const nowMs = this.#options.clock.monotonicMs();
    const outage = 'outage' in handOver ? handOver.outage : undefined;
    if (outage === undefined) {
      // Whatever became of the mail, the relay took our sender.
      if (!['aborted', 'unreachable'].includes(handOver.result)) {
        this.#tookAtMs = nowMs;
        this.#isSilent = false;
        this.#failures = 0;
      }
      return 'mail';
    }
    // An earlier mail says nothing about the relay's present state.
    if (this.#outage !== undefined || beganAtMs < this.#resumedAtMs) return 'relay';
    if (outage.reason === 'no_capacity' && nowMs - this.#tookAtMs < REST_MS) return 'rest';
    this.#set(outage);
    void this.#probeUntilTaken();
    return 'relay';
  }

  /** A relay that takes none of our mail is told before the first e-mail. */
  async greet(): Promise<void> {
    const outage = await this.#options.probe();
    if (this.#outage !== undefined || this.#stop.signal.aborted) return;
    this.#set(outage);
    await this.#probeUntilTaken();
  }

  close(): void {
    this.#stop.abort();
  }

  async #probeUntilTaken(): Promise<void> {
    while (this.#outage !== undefined) {
      this.#failures += 1;
      await pause(backoffMs(this.#failures, PROBE_BACKOFF), this.#stop.signal);
      if (this.#stop.signal.aborted) return;
      this.#set(await this.#options.probe());
    }
  }

  #set(outage: Outage | undefined): void {
    const { log, clock, onOutage } = this.#options;
    const before = this.#outage;
    this.#outage = outage;
    if (outage !== undefined && outage.reason !== before?.reason)
      log.warn({ reason: outage.reason }, 'mails wait for the relay');
    onOutage(outage);
    if (outage !== undefined || before === undefined) return;
    this.#resumedAtMs = clock.monotonicMs();
    log.info('the relay takes mail again');
    this.#onChange();
  }
}
