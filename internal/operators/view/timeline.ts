/** What happened to a request, in order and in plain words. */
import type { Account, MailHandOver, MailLedger } from '../../account/account.ts';
import type { TrailEntry } from '../trail/trail.ts';
import { handOversOf } from '../../account/mail-ledger.ts';
import { defined } from '../../platform/process/defined.ts';
import { printable } from '../../application/fields.ts';
import { duration } from './terminal.ts';
import type { HistoryEntry, SubmissionRecord } from '../../submission/submission.ts';
import { actionWords, causeInWords, factInWords } from './words.ts';

/** With `times`, it happened that often in a row, the last time at `until`. */
export interface Happening {
  readonly at: Date;
  readonly what: string;
  /** A name in the console's `looks.json`: a state, or what else happened. */
  readonly look: string;
  /** The relay's own words, which follow `what`; of folded events, those of the last. */
  readonly said?: string;
  readonly times?: number;
  readonly until?: Date;
}

interface TimelineEvent {
  readonly at: Date;
  readonly what: string;
  readonly look: string;
  readonly said?: string;
  /** Follows `what`, except for folded events. */
  readonly took?: string;
  /** Used for sorting in place of `at`. */
  readonly notBefore?: Date;
}

export function timeline(
  record: SubmissionRecord,
  account: Account | undefined,
  entries: readonly TrailEntry[],
): Happening[] {
  const states = statesInWords(record);
  const made = record.history.findIndex(({ state }) => state === 'account_created');
  const events: TimelineEvent[] = [
    ...states.slice(0, made + 1),
    ...handOversOf(account?.mail).map((mail) => mailInWords(mail, states[made]?.notBefore)),
    ...states.slice(made + 1),
    ...entries.map((entry) => ({
      at: entry.at,
      what: actionInWords(entry),
      look: 'operator',
    })),
    ...(record.erasedAt === undefined
      ? []
      : [{ at: record.erasedAt, what: 'personal data erased', look: 'erased' }]),
  ];
  // The stable sort keeps an e-mail between the states it follows and leads to.
  const ms = ({ at, notBefore = at }: TimelineEvent): number => notBefore.getTime();
  return folded(events.toSorted((one, other) => ms(one) - ms(other)));
}

/** Keeps the history's order: two processes' clocks differ by milliseconds. */
function statesInWords(record: SubmissionRecord): TimelineEvent[] {
  let notBefore = new Date(0);
  return record.history.map((entry, index) => {
    if (entry.at > notBefore) notBefore = entry.at;
    return {
      at: entry.at,
      what: stateInWords(entry, record, index),
      look: lookOf(entry, index),
      notBefore,
    };
  });
}

/** A state that a request waits in once more has the look of the state. */
function lookOf({ state, reason }: HistoryEntry, index: number): string {
  if (state === 'recorded' && index === 0) return 'received';
  return state === 'account_created' && reason === undefined ? 'account' : state;
}

/** Folds equal events in a row, such as attempts during an outage. */
function folded(events: readonly TimelineEvent[]): Happening[] {
  const runs: [TimelineEvent, ...TimelineEvent[]][] = [];
  for (const event of events) {
    const run = runs.at(-1);
    if (run?.[0].what === event.what) run.push(event);
    else runs.push([event]);
  }
  return runs.map(([first, ...more]) => {
    const { at, what, look, took = '' } = first;
    const last = more.at(-1);
    const { said } = last ?? first;
    const run = last && { times: more.length + 1, until: last.at };
    return {
      at,
      what: last === undefined ? what + took : what,
      look,
      ...defined({ said }),
      ...run,
    };
  });
}

/** "25 tried, none handed over": only what the relay took was handed over. */
export function mailsInWords(ledger: MailLedger): string {
  const taken = handOversOf(ledger).filter(({ result }) => result === 'accepted').length;
  const tried = ledger.begun === taken ? '' : `${ledger.begun} tried, `;
  const reached =
    ledger.possible > 1 ? `, ${ledger.possible} of which may have reached the applicant` : '';
  return `${tried}${taken === 0 ? 'none' : taken} handed over${reached}`;
}

function stateInWords(entry: HistoryEntry, record: SubmissionRecord, index: number): string {
  const { state, reason: words } = entry;
  const reason = words === undefined ? '' : `: ${printable(factInWords({ ...entry, words }))}`;
  const attempt = entry.attempt > 1 ? ` at attempt ${entry.attempt}` : '';
  switch (state) {
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
      return state + attempt + reason;
    case 'undeliverable':
      return `not delivered${attempt}${reason}`;
    case 'dead_lettered':
      return `given up${attempt}${reason}`;
    case 'malformed':
      return `recorded, answered ${record.httpStatus}: not a request that can be worked on`;
    case 'refused':
      return `answered ${record.httpStatus}: the API key was missing, unknown or inactive`;
    case 'closed':
    case 'withdrawn':
    default:
      return printable(state) + reason;
  }
}

/** Unless aborted, a hand-over sorts after its account was `made`. */
function mailInWords(mail: MailHandOver, made: Date | undefined): TimelineEvent {
  const { startedAt, endedAt, result } = mail;
  const at = endedAt ?? startedAt;
  const notBefore = made !== undefined && result !== 'aborted' && at < made ? made : at;
  if (endedAt === undefined)
    return { at, what: `${HANDED}: no result noted, it may be out`, look: 'mail', notBefore };
  // It begins before its account is noted; the time since then stands beside it.
  const began = made === undefined || startedAt >= made;
  const took = began ? ` after ${duration(endedAt.getTime() - startedAt.getTime())}` : '';
  const look = result === 'accepted' || result === 'ambiguous' ? 'mail' : 'mail not taken';
  const said = relaySaid(mail) || undefined;
  return { at, what: endingInWords(mail), look, ...defined({ said }), took, notBefore };
}

/** The relay's answer, which only people may see. */
export function relaySaid({ answer }: Partial<MailHandOver> = {}): string {
  return answer === undefined ? '' : `, "${printable(answer.replaceAll(/\s+/g, ' '))}"`;
}

const HANDED = 'e-mail handed to the mail server';

function endingInWords({ result, phase, cause, code, enhancedCode }: MailHandOver): string {
  const answer = Object.values(defined({ code, enhancedCode })).join(' ');
  switch (result) {
    case 'accepted':
      return `${HANDED}: accepted (${answer})`;
    case 'refused':
      return `e-mail tried: the mail server answered ${answer} at ${phase}`;
    case 'ambiguous':
      return `${HANDED}: no answer after the content; it may be out`;
    case 'unreachable':
      return `e-mail tried: ${printable(causeInWords(cause))}`;
    case 'aborted':
    case undefined:
    default:
      return 'e-mail tried: broken off by us';
  }
}

function actionInWords(entry: TrailEntry): string {
  const why = entry.why === undefined ? '' : ` (${printable(entry.why)})`;
  const ended = {
    begun: ', cut off before its end',
    done: '',
    not_done: ', which changed nothing',
  }[entry.result];
  return `operator ${printable(entry.by)}: ${actionWords(entry.action)}${why}${ended}`;
}
