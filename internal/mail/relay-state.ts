/**
 * What the relay takes at present: everything, a number of mails a second, or nothing. Pure.
 *
 * Each hand-over is noted. A relay that cannot be reached, refuses our sender or takes nothing
 * pauses all mail: one trial at a time, after a tenth of the pause so far, at most every 15 s. The
 * first mail it takes ends the pause. A relay that takes some mail and turns some away gives the
 * pace: 95 % of what it took in the last second. With a quota of 14 a second, that is 13.
 *
 * A recipient's server may turn one partner's mails away in the relay's words. So an answer counts
 * for all mail only if it is not plainly about one partner or domain: another one's mails are taken
 * at the same time, and at most one other is turned away.
 */
import {
  CLEAN_DOMAIN_MAILS,
  EVIDENCE_ANSWERS,
  EVIDENCE_MS,
  PACE_GROWTH,
  PACE_GROWTH_MOST,
  PACE_LEAST,
  PACE_OF_TAKEN,
  PACE_START,
  PACE_UNBOUNDED,
  TRIAL,
  TURNED_AWAY_MANY,
} from './limits.ts';
import type { HandOver } from './mailer.ts';
import type { Addressed } from './places.ts';

export type PauseReason = 'unreachable' | 'refused' | 'no_capacity';

/** Whose failure a hand-over was: the relay's, for all mail, or this mail's alone. */
export type Blame = 'relay' | 'mail';

interface Pause {
  reason: PauseReason;
  readonly sinceMs: number;
  trialAtMs: number;
  trying: boolean;
}

interface Answer extends Addressed {
  readonly atMs: number;
  readonly taken: boolean;
}

const SECOND_MS = 1_000;

export class RelayState {
  /** The operator's bound, in mails a second. */
  readonly #most: number;
  readonly #onPause: (reason: PauseReason | undefined) => void;
  #pause: Pause | undefined;
  /** Mails a second. */
  #pace: number;
  /** The pace at which the relay last turned mails away: growth is slow from there. */
  #known = Infinity;
  #nextAtMs = 0;
  #slowedAtMs = -Infinity;
  #grownAtMs = 0;
  #answers: Answer[] = [];

  /**
   * `perSecond` 0: no bound but the relay's. `onPause` is told when a pause begins, changes or
   * ends.
   */
  constructor(perSecond: number, onPause: (reason: PauseReason | undefined) => void = () => {}) {
    this.#most = perSecond === 0 ? Infinity : perSecond;
    this.#pace = this.#most;
    this.#onPause = onPause;
  }

  get paused(): PauseReason | undefined {
    return this.#pause?.reason;
  }

  /** Whether a trial is under way: nothing else begins meanwhile. */
  get trying(): boolean {
    return this.#pause?.trying ?? false;
  }

  /** Milliseconds until the next mail, or trial, may begin. */
  waitMs(nowMs: number): number {
    return Math.max(0, (this.#pause?.trialAtMs ?? this.#nextAtMs) - nowMs);
  }

  /** A mail begins. */
  begin(nowMs: number): void {
    this.#nextAtMs = Math.max(nowMs, this.#nextAtMs) + SECOND_MS / this.#pace;
  }

  beginTrial(): void {
    if (this.#pause !== undefined) this.#pause.trying = true;
  }

  /** The trial could not tell: the next one comes as after a failure. */
  endTrial(nowMs: number): void {
    if (this.#pause === undefined) return;
    this.#pause.trying = false;
    this.#pause.trialAtMs = nowMs + trialAfterMs(nowMs - this.#pause.sinceMs);
  }

  /** Nothing says any more that the relay is unwell. */
  resume(): void {
    if (this.#pause === undefined) return;
    if (this.#pause.reason === 'no_capacity') this.#pace = Math.min(this.#most, PACE_START);
    this.#pause = undefined;
    this.#onPause(undefined);
  }

  /**
   * Notes how a mail ended that began at `startedAtMs`; `dropped`: the relay cut it off and greets
   * us again.
   */
  note(
    mail: Addressed & { readonly startedAtMs: number },
    handOver: HandOver,
    { nowMs, dropped }: { readonly nowMs: number; readonly dropped: boolean },
  ): Blame {
    switch (handOver.result) {
      case 'aborted':
        this.endTrial(nowMs);
        return 'mail';
      case 'accepted':
        this.#noteTaken(mail, nowMs);
        return 'mail';
      case 'ambiguous':
        this.endTrial(nowMs);
        return 'mail';
      case 'unreachable':
        if (handOver.busy === true) return this.#noteTurnedAway(mail, nowMs, true);
        if (handOver.connected && dropped) {
          this.endTrial(nowMs);
          return 'mail';
        }
        this.#begin(handOver.refusesUs === true ? 'refused' : 'unreachable', nowMs);
        return 'relay';
      case 'refused':
        if (handOver.fault === 'capacity')
          return this.#noteTurnedAway(mail, nowMs, handOver.phase === 'mail');
        if (handOver.fault === 'sender') {
          this.#begin('refused', nowMs);
          return 'relay';
        }
        this.#noteTaken(mail, nowMs);
        return 'mail';
    }
  }

  #begin(reason: PauseReason, nowMs: number): void {
    if (this.#pause === undefined) {
      this.#pause = { reason, sinceMs: nowMs, trialAtMs: nowMs + TRIAL.firstMs, trying: false };
      this.#onPause(reason);
      return;
    }
    if (this.#pause.reason !== reason) this.#onPause(reason);
    this.#pause.reason = reason;
    this.endTrial(nowMs);
  }

  #noteTaken(
    { partnerId, domain, startedAtMs }: Addressed & { readonly startedAtMs: number },
    nowMs: number,
  ): void {
    this.#keep({ partnerId, domain, atMs: nowMs, taken: true });
    // A mail that began before the pause says nothing of the relay as it is now.
    if (this.#pause !== undefined && startedAtMs >= this.#pause.sinceMs) this.resume();
    this.#grow(nowMs);
  }

  #noteTurnedAway(
    { partnerId, domain, startedAtMs }: Addressed & { readonly startedAtMs: number },
    nowMs: number,
    beforeRecipient: boolean,
  ): Blame {
    const blame =
      beforeRecipient || this.#isForAll({ partnerId, domain }, nowMs) ? 'relay' : 'mail';
    this.#keep({ partnerId, domain, atMs: nowMs, taken: false });
    if (blame === 'mail') this.endTrial(nowMs);
    else if (this.#pause !== undefined) this.#begin('no_capacity', nowMs);
    // What was under way when the pace was set says nothing of that pace.
    else if (startedAtMs >= this.#slowedAtMs) this.#slowDown(nowMs);
    return blame;
  }

  /** Whether an answer that turns this mail away concerns all mail. */
  #isForAll(mail: Addressed, nowMs: number): boolean {
    const recent = this.#answers.filter(({ atMs }) => atMs > nowMs - EVIDENCE_MS);
    const isOwn = (key: keyof Addressed, least: number): boolean => {
      const others = [...Map.groupBy(recent, (answer) => answer[key])].filter(
        ([name]) => name !== mail[key],
      );
      const turnedAway = others.filter(([, answers]) => answers.some(({ taken }) => !taken)).length;
      const clean = others.some(
        ([, answers]) => answers.length >= least && answers.every(({ taken }) => taken),
      );
      return clean && turnedAway < TURNED_AWAY_MANY;
    };
    return !isOwn('partnerId', 1) && !isOwn('domain', CLEAN_DOMAIN_MAILS);
  }

  #slowDown(nowMs: number): void {
    const windowMs = Math.max(SECOND_MS, (2 * SECOND_MS) / this.#pace);
    const taken = this.#answers.filter(
      (answer) => answer.taken && answer.atMs > nowMs - windowMs,
    ).length;
    if (taken === 0) return this.#begin('no_capacity', nowMs);
    // The relay's second may be used up: it begins again within one second.
    if (this.#pace === Infinity) this.#nextAtMs = nowMs + SECOND_MS;
    const rate = PACE_OF_TAKEN * Math.min(this.#pace, (taken * SECOND_MS) / windowMs);
    this.#pace = Math.max(PACE_LEAST, rate);
    this.#known = this.#pace;
    this.#slowedAtMs = nowMs;
    this.#grownAtMs = nowMs;
  }

  #grow(nowMs: number): void {
    const elapsedMs = nowMs - this.#grownAtMs;
    if (this.#pace >= this.#most || elapsedMs < SECOND_MS) return;
    this.#grownAtMs = nowMs;
    const share = Math.min(
      PACE_GROWTH_MOST,
      (PACE_GROWTH * (nowMs - this.#slowedAtMs)) / SECOND_MS,
    );
    this.#pace =
      this.#pace < this.#known ? Math.min(this.#known, this.#pace * 2) : this.#pace * (1 + share);
    if (this.#pace < PACE_UNBOUNDED && this.#pace < this.#most) return;
    this.#pace = this.#most;
    this.#known = Infinity;
  }

  #keep(answer: Answer): void {
    this.#answers.push(answer);
    if (this.#answers.length > 2 * EVIDENCE_ANSWERS)
      this.#answers = this.#answers.slice(-EVIDENCE_ANSWERS);
  }
}

function trialAfterMs(pausedMs: number): number {
  return Math.min(TRIAL.capMs, Math.max(TRIAL.firstMs, pausedMs * TRIAL.share));
}
