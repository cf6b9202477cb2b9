/**
 * The mail ledger of an account: every hand-over to the mail server, so that second mails are
 * counted. Pure.
 */
import type { Intent, MailEnding, MailHandOver, MailLedger } from '../account/mail-ledger.ts';
import { defined } from '../platform/defined.ts';
import type { HandOver } from './mailer.ts';
import { CODES } from './relay-answers.ts';

/**
 * Why a mail may be a second one, by the hand-over before it: cut off after the content, without a
 * result when this one began, or accepted, so that an operator asked for another mail
 * (`partner-ingest resend`).
 */
export type SecondMailCause = 'ambiguous_data' | 'crash' | 'resent';

export interface SecondMail {
  readonly handOver: MailHandOver;
  /** The last one before it that may have arrived. */
  readonly before: MailHandOver;
  readonly cause: SecondMailCause;
}

/** All 27 attempts of one mail, its ambiguous ones and some more; about 200 bytes each. */
const HAND_OVERS_KEPT = 40;

/** The ledger of an account whose first hand-over is about to begin. */
export function firstLedger(intent: Intent): MailLedger {
  return { begun: 1, possible: 1, handOvers: { [intent.claim]: intent } };
}

/** Oldest first. */
export function handOversOf(ledger: MailLedger | undefined): MailHandOver[] {
  return Object.values(ledger?.handOvers ?? {}).toSorted((one, other) => one.claim - other.claim);
}

/** Whether the applicant may have got this mail. */
export function mayHaveArrived({ result }: Pick<MailHandOver, 'result'>): boolean {
  return result === undefined || result === 'accepted' || result === 'ambiguous';
}

/** Mails that the applicant may have got from claims after `since`. */
export function possibleMails(ledger: MailLedger | undefined, since: number): number {
  return handOversOf(ledger).filter(
    (handOver) => handOver.claim > since && mayHaveArrived(handOver),
  ).length;
}

/** Every hand-over that may have been a second mail, oldest first. */
export function secondMails(handOvers: readonly MailHandOver[]): SecondMail[] {
  const possible = handOvers.filter(mayHaveArrived);
  return possible.slice(1).map((handOver, index) => {
    const before = possible[index]!;
    return { handOver, before, cause: causeOf(before, handOver) };
  });
}

function causeOf(before: MailHandOver, second: MailHandOver): SecondMailCause {
  if (before.endedAt === undefined || before.endedAt > second.startedAt) return 'crash';
  return before.result === 'ambiguous' ? 'ambiguous_data' : 'resent';
}

/**
 * The second mails to count now that hand-over `claim` has ended, so that each is counted once: its
 * own, and those before it whose process died before it could count them. `ledger` is as of just
 * after its end.
 */
export function newSecondMails(ledger: MailLedger, claim: number): SecondMail[] {
  const handOvers = handOversOf(ledger);
  const counted =
    handOvers.findLast((other) => other.claim !== claim && other.result !== undefined)?.claim ??
    -Infinity;
  return secondMails(handOvers).filter(
    ({ handOver }) => handOver.claim > counted && handOver.claim <= claim,
  );
}

/**
 * Claims to forget before one more hand-over is noted: the oldest that reached nobody, then the
 * oldest.
 */
export function toForget(ledger: MailLedger | undefined): number[] {
  const handOvers = handOversOf(ledger);
  const tooMany = Math.max(0, handOvers.length - HAND_OVERS_KEPT + 1);
  const harmlessFirst = [
    ...handOvers.filter((handOver) => !mayHaveArrived(handOver)),
    ...handOvers.filter(mayHaveArrived),
  ];
  return harmlessFirst.slice(0, tooMany).map(({ claim }) => claim);
}

/** The ledger's entry of a hand-over that has ended. */
export function ended(
  intent: Intent,
  handOver: HandOver,
  endedAt: Date,
): MailHandOver & MailEnding {
  return { ...intent, endedAt, result: handOver.result, ...details(handOver) };
}

function details(handOver: HandOver): Partial<MailEnding> {
  switch (handOver.result) {
    case 'accepted': {
      const [, code, enhancedCode] = CODES.exec(handOver.answer) ?? [];
      return {
        phase: 'answered',
        ...(code === undefined ? {} : { code: Number(code) }),
        ...defined({ enhancedCode }),
        answer: withoutAddresses(handOver.answer),
      };
    }
    case 'refused':
      return {
        phase: handOver.phase,
        code: handOver.code,
        ...defined({ enhancedCode: handOver.enhancedCode }),
      };
    case 'unreachable':
      return { phase: handOver.connected ? 'session' : 'connect', cause: handOver.cause };
    case 'ambiguous':
      return { phase: 'content', cause: handOver.cause };
    case 'aborted':
      return { cause: handOver.cause };
  }
}

const ANSWER_MAX = 200;

function withoutAddresses(answer: string): string {
  return answer
    .replace(/\S+@\S+/g, '…')
    .slice(0, ANSWER_MAX)
    .toWellFormed();
}
