/** What happened to a request, in order and in plain words. */
import type { Account } from '../account/account.ts';
import type { TrailEntry } from '../audit/entry.ts';
import type { MailHandOver } from '../account/mail-ledger.ts';
import { handOversOf } from '../mail/ledger.ts';
import { duration, printable } from '../platform/terminal.ts';
import type { HistoryEntry, SubmissionRecord } from '../submission/submission.ts';

export interface Happening {
  readonly at: Date;
  readonly what: string;
}

export function timeline(
  record: SubmissionRecord,
  account: Account | undefined,
  entries: readonly TrailEntry[],
): Happening[] {
  const happenings = [
    // The first hand-over begins before the record names its account.
    ...handOversOf(account?.mail).map((mail) => ({
      at: mail.endedAt ?? mail.startedAt,
      what: mailInWords(mail),
    })),
    ...record.history.map((entry, index) => ({
      at: entry.at,
      what: inWords(entry, record, index),
    })),
    ...entries.map((entry) => ({ at: entry.at, what: actionInWords(entry) })),
    ...(record.erasedAt === undefined
      ? []
      : [{ at: record.erasedAt, what: 'personal data erased' }]),
  ];
  // The stable sort keeps an e-mail before the state it led to.
  return happenings.toSorted((one, other) => one.at.getTime() - other.at.getTime());
}

export function timelineRows(happenings: readonly Happening[]): string[][] {
  return happenings.map(({ at, what }, index) => {
    const before = happenings[index - 1];
    return [
      utc(at),
      before === undefined ? '' : `+${duration(at.getTime() - before.at.getTime())}`,
      what,
    ];
  });
}

/** As in "2026-11-21 09:03:11.120". */
export function utc(date: Date): string {
  return date.toISOString().replace('T', ' ').slice(0, -1);
}

/** As in "3 min 5 s ago" or "in 2 h". */
export function fromNow(date: Date, now: Date): string {
  const distance = date.getTime() - now.getTime();
  return distance > 0 ? `in ${duration(distance)}` : `${duration(-distance)} ago`;
}

/** Two cells of a table: when, and how long ago. */
export function lastUseCells(usedAt: Date | undefined, now: Date): readonly [string, string] {
  return usedAt === undefined ? ['never', ''] : [utc(usedAt).slice(0, -4), fromNow(usedAt, now)];
}

function inWords(entry: HistoryEntry, record: SubmissionRecord, index: number): string {
  const reason = entry.reason === undefined ? '' : `: ${printable(entry.reason)}`;
  const attempt = entry.attempt > 1 ? ` at attempt ${entry.attempt}` : '';
  switch (entry.state) {
    case 'recorded':
      return index === 0
        ? `recorded, answered ${record.httpStatus}`
        : `waits to be processed again${reason}`;
    case 'account_created':
      return entry.reason === undefined
        ? `account created${attempt}`
        : `waits to be mailed again${reason}`;
    case 'completed':
      return `completed${attempt}: login instructions handed to the mail server`;
    case 'rejected':
      return `rejected${attempt}${reason}`;
    case 'undeliverable':
      return `undeliverable${attempt}${reason}`;
    case 'dead_lettered':
      return `given up${attempt}${reason}`;
    case 'malformed':
      return `recorded, answered ${record.httpStatus}: not a request that can be worked on`;
    case 'refused':
      return `answered ${record.httpStatus}: the API key was missing, unknown or inactive`;
    case 'withdrawn':
      return `withdrawn${reason}`;
    default:
      return printable(String(entry.state)) + reason;
  }
}

function mailInWords(mail: MailHandOver): string {
  const what = 'e-mail handed to the mail server';
  if (mail.endedAt === undefined) return `${what}: no result noted, it may be out`;
  const code = [mail.code, mail.enhancedCode].filter((part) => part !== undefined).join(' ');
  const took = ` after ${duration(mail.endedAt.getTime() - mail.startedAt.getTime())}`;
  switch (mail.result) {
    case 'accepted':
      return `${what}: accepted (${code})${took}`;
    case 'refused':
      return `${what}: answered ${code} at ${mail.phase}${took}`;
    case 'ambiguous':
      return `${what}: no answer after the content${took}; it may be out`;
    case 'unreachable':
      return `${what}: not reached${took}${mail.cause === undefined ? '' : ` (${printable(mail.cause)})`}`;
    case 'aborted':
    case undefined:
    default:
      return `${what}: broken off by us${took}`;
  }
}

function actionInWords(entry: TrailEntry): string {
  const why = entry.why === undefined ? '' : ` (${printable(entry.why)})`;
  const ended = {
    begun: ', cut off before its end',
    done: '',
    not_done: ', which changed nothing',
  }[entry.result];
  return `operator ${printable(entry.by)}: ${entry.action}${why}${ended}`;
}

/** For the person who gave the command. */
export function notedInWords({ _id, by, nameFrom, why, ...action }: TrailEntry): string {
  const about = action.requestId ?? action.partnerId ?? action.keyId ?? '';
  const reason = why === undefined ? '' : `, because: ${why}`;
  const hint = nameFrom === 'host' ? '; say who you are with --as NAME' : '';
  const words = [action.action, about].filter((word) => word !== '').join(' ');
  return printable(`noted in operator_audit: ${words}, by ${by} (${nameFrom})${reason}${hint}`);
}
