/**
 * How much mail the relay accepts now: everything, a number a second, or nothing.
 *
 * All mail pauses if it is unreachable, refuses our sender or accepts nothing. Trials follow after
 * a tenth of the pause so far, at most every 15 s. If it refuses some mail, the pace becomes 95 %
 * of what it accepted in the last second: 13 with a quota of 14.
 *
 * A refusal may come from a recipient's server. So it concerns all mail unless others' mails are
 * accepted and at most one other is refused.
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
  readonly #most: number;
  readonly #onPause: (reason: PauseReason | undefined) => void;
  #pause: Pause | undefined;
  #pace: number;
  /** The pace at the last refusal; growth is slow above it. */
  #known = Infinity;
  #nextAtMs = 0;
  #slowedAtMs = -Infinity;
  #grownAtMs = 0;
  #answers: Answer[] = [];

  /** 0 means no bound of our own. */
  constructor(perSecond: number, onPause: (reason: PauseReason | undefined) => void = () => {}) {
    this.#most = perSecond === 0 ? Infinity : perSecond;
    this.#pace = this.#most;
    this.#onPause = onPause;
  }

  get paused(): PauseReason | undefined {
    return this.#pause?.reason;
  }

  get trying(): boolean {
    return this.#pause?.trying ?? false;
  }

  waitMs(nowMs: number): number {
    return Math.max(0, (this.#pause?.trialAtMs ?? this.#nextAtMs) - nowMs);
  }

  /** Returns what gives the mail's share of the pace back, if it is not handed over. */
  begin(nowMs: number): () => void {
    const shareMs = SECOND_MS / this.#pace;
    this.#nextAtMs = Math.max(nowMs, this.#nextAtMs) + shareMs;
    return () => {
      this.#nextAtMs -= shareMs;
    };
  }

  beginTrial(): void {
    if (this.#pause !== undefined) this.#pause.trying = true;
  }

  /** An undecided trial delays the next one. */
  endTrial(nowMs: number): void {
    if (this.#pause === undefined) return;
    this.#pause.trying = false;
    this.#pause.trialAtMs = nowMs + trialAfterMs(nowMs - this.#pause.sinceMs);
  }

  resume(): void {
    if (this.#pause === undefined) return;
    if (this.#pause.reason === 'no_capacity') this.#pace = Math.min(this.#most, PACE_START);
    this.#pause = undefined;
    this.#onPause(undefined);
  }

  /** `dropped`: the relay cut the mail off but greets us again. */
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
    // An earlier mail does not show the relay's present state.
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
    // An earlier mail says nothing about the new pace.
    else if (startedAtMs >= this.#slowedAtMs) this.#slowDown(nowMs);
    return blame;
  }

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
    // The relay's quota of this second may be used up.
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
