/**
 * How much mail the relay accepts now: everything, a number a second, or nothing.
 *
 * All mail pauses if it is unreachable, refuses our sender or accepts nothing before it knows the
 * recipient. Trials follow after a tenth of the pause so far, at most every 15 s.
 *
 * A later refusal may be about one recipient, so it never pauses the line, and its mail waits by
 * itself. It slows the line unless others' mails are accepted and at most one other, or few, are
 * refused. The pace becomes 95 % of what the relay accepted in the last second: 13 with a quota of
 * 14. With none accepted it becomes one mail a second.
 */
import {
  CLEAN_MAILS,
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
  TURNED_AWAY_SHARE,
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
    this.#pause = undefined;
    this.#onPause(undefined);
  }

  note(
    mail: Addressed & { readonly startedAtMs: number },
    handOver: HandOver,
    nowMs: number,
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
        if (handOver.busy === true) return this.#noteTurnedAway(mail, nowMs);
        // If the relay is away, the next connection shows it.
        if (handOver.connected) {
          this.endTrial(nowMs);
          return 'mail';
        }
        this.#begin(handOver.refusesUs === true ? 'refused' : 'unreachable', nowMs);
        return 'relay';
      case 'refused':
        if (handOver.fault === 'capacity')
          return handOver.phase === 'mail'
            ? this.#noteTurnedAway(mail, nowMs)
            : this.#noteDeclined(mail, nowMs);
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
    this.#noteLetIn(startedAtMs);
    this.#grow(nowMs);
  }

  #noteLetIn(startedAtMs: number): void {
    // An earlier mail does not show the relay's present state.
    if (this.#pause !== undefined && startedAtMs >= this.#pause.sinceMs) this.resume();
  }

  /** Before the recipient is known. */
  #noteTurnedAway(
    { partnerId, domain, startedAtMs }: Addressed & { readonly startedAtMs: number },
    nowMs: number,
  ): Blame {
    this.#keep({ partnerId, domain, atMs: nowMs, taken: false });
    const accepts = this.#slowDown(startedAtMs, nowMs);
    if (!accepts || this.#pause !== undefined) this.#begin('no_capacity', nowMs);
    return 'relay';
  }

  #noteDeclined(
    { partnerId, domain, startedAtMs }: Addressed & { readonly startedAtMs: number },
    nowMs: number,
  ): Blame {
    const isForAll = this.#isForAll({ partnerId, domain }, nowMs);
    this.#keep({ partnerId, domain, atMs: nowMs, taken: false });
    this.#noteLetIn(startedAtMs);
    if (isForAll) this.#slowDown(startedAtMs, nowMs);
    return 'mail';
  }

  #isForAll(mail: Addressed, nowMs: number): boolean {
    const recent = this.#answers.filter(({ atMs }) => atMs > nowMs - EVIDENCE_MS);
    const isOwn = (key: keyof Addressed, least: number): boolean => {
      const others = recent.filter((answer) => answer[key] !== mail[key]);
      const turnedAway = new Set(others.filter(({ taken }) => !taken).map((one) => one[key]));
      const clean = others.filter((answer) => !turnedAway.has(answer[key]));
      const many = Math.max(TURNED_AWAY_MANY, clean.length * TURNED_AWAY_SHARE);
      return clean.length >= least && turnedAway.size < many;
    };
    return !isOwn('partnerId', 1) && !isOwn('domain', CLEAN_MAILS);
  }

  /** False if the relay accepts nothing. */
  #slowDown(startedAtMs: number, nowMs: number): boolean {
    // An earlier mail says nothing about the new pace.
    if (startedAtMs < this.#slowedAtMs) return true;
    const windowMs = Math.max(SECOND_MS, (2 * SECOND_MS) / this.#pace);
    const taken = this.#answers.filter(
      (answer) => answer.taken && answer.atMs > nowMs - windowMs,
    ).length;
    // The relay's quota of this second may be used up.
    if (this.#pace === Infinity || taken === 0)
      this.#nextAtMs = Math.max(this.#nextAtMs, nowMs + SECOND_MS);
    const rate = PACE_OF_TAKEN * Math.min(this.#pace, (taken * SECOND_MS) / windowMs);
    this.#pace = Math.max(PACE_LEAST, rate);
    this.#slowedAtMs = nowMs;
    // With nothing accepted, the relay's rate is not known, and the next accepted mail raises it.
    if (taken > 0) this.#known = this.#pace;
    this.#grownAtMs = taken > 0 ? nowMs : -Infinity;
    return taken > 0;
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
      this.#pace < this.#known
        ? Math.min(this.#known, Math.max(PACE_START, this.#pace * 2))
        : this.#pace * (1 + share);
    this.#nextAtMs = Math.min(this.#nextAtMs, nowMs + SECOND_MS / this.#pace);
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
