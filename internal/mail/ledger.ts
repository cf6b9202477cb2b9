/** Counts second mails in the ledger of an account. */
import type { Intent, MailEnding, MailHandOver, MailLedger } from '../account/mail-ledger.ts';
import { defined } from '../platform/process/defined.ts';
import { CODES, withoutAddresses, type HandOver } from './relay-answers.ts';

/** The earlier mail was cut off, has no result, or was accepted. */
type SecondMailCause = 'ambiguous_data' | 'crash' | 'resent';

export interface SecondMail {
  readonly handOver: MailHandOver;
  readonly before: MailHandOver;
  readonly cause: SecondMailCause;
}

/** Beyond it, the oldest that reached nobody go first. */
const HAND_OVERS_KEPT = 40;

/** Of an account that is created with its first hand-over. */
export function ledgerWith(intent: Intent): MailLedger {
  return { begun: 1, possible: 1, handOvers: { [intent.claim]: intent } };
}

export function handOversOf(ledger: MailLedger | undefined): MailHandOver[] {
  return Object.values(ledger?.handOvers ?? {}).toSorted((one, other) => one.claim - other.claim);
}

export function mayHaveArrived({ result }: Pick<MailHandOver, 'result'>): boolean {
  return result === undefined || result === 'accepted' || result === 'ambiguous';
}

export function possibleMails(ledger: MailLedger | undefined, since: number): number {
  return handOversOf(ledger).filter(
    (handOver) => handOver.claim > since && mayHaveArrived(handOver),
  ).length;
}

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

/** Includes earlier ones whose process died before counting them. */
export function newSecondMails(ledger: MailLedger, claim: number): SecondMail[] {
  const handOvers = handOversOf(ledger);
  const counted =
    handOvers.findLast((other) => other.claim !== claim && other.result !== undefined)?.claim ??
    -Infinity;
  return secondMails(handOvers).filter(
    ({ handOver }) => handOver.claim > counted && handOver.claim <= claim,
  );
}

/** Hand-overs that cannot have arrived come first. */
export function toForget(ledger: MailLedger | undefined): number[] {
  const handOvers = handOversOf(ledger);
  const tooMany = Math.max(0, handOvers.length - HAND_OVERS_KEPT + 1);
  const harmlessFirst = [
    ...handOvers.filter((handOver) => !mayHaveArrived(handOver)),
    ...handOvers.filter(mayHaveArrived),
  ];
  return harmlessFirst.slice(0, tooMany).map(({ claim }) => claim);
}

export function ended(
  intent: Intent,
  handOver: HandOver,
  { endedAt, email }: { readonly endedAt: Date; readonly email: string },
): MailHandOver & MailEnding {
  const answer = 'answer' in handOver ? said(handOver.answer, email) : undefined;
  return {
    ...intent,
    endedAt,
    result: handOver.result,
    ...details(handOver),
    ...defined({ answer }),
  };
}

function details(handOver: HandOver): Partial<MailEnding> {
  switch (handOver.result) {
    case 'accepted': {
      const [, code, enhancedCode] = CODES.exec(handOver.answer) ?? [];
      return {
        phase: 'answered',
        ...(code === undefined ? {} : { code: Number(code) }),
        ...defined({ enhancedCode }),
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

const ANSWER_MAX = 300;

/** A relay may name the mailbox without its domain, and without what follows a plus. */
function said(answer: string, email: string): string {
  const mailbox = email.slice(0, email.lastIndexOf('@'));
  const names = [mailbox, mailbox.split('+', 1)[0] ?? ''].filter((name) => name !== '');
  const alone = names.map((name) => RegExp.escape(name)).join('|');
  return withoutAddresses(answer)
    .replace(new RegExp(`(?<![\\p{L}\\p{N}])(?:${alone})(?![\\p{L}\\p{N}])`, 'giu'), '…')
    .slice(0, ANSWER_MAX)
    .toWellFormed();
}
