/** What a person reads after a run: a table of faults, the totals, and the verdict. */
import { styleText } from 'node:util';
import { table } from '../../internal/platform/terminal.ts';
import type { OpenWindow, PhaseCounts } from './audit.ts';
import type { ChaosResult } from './play.ts';
import type { Alarm } from './watch.ts';

/** Violations printed; the JSON has all. */
const PRINTED = 30;

const HEAD = [
  'fault',
  'times',
  'requests',
  '202',
  '400',
  '401/403',
  '422',
  '500',
  'no answer',
  'lost',
  'untrue 500',
  'doubled accounts',
  'second mails',
  'withdrawn: landed',
  'absent',
  'goes on after',
  'settled after',
] as const;

export function isClean(result: ChaosResult): boolean {
  return result.audit.violations.length === 0 && result.troubles.length === 0;
}

export function report(result: ChaosResult): string {
  const rows = [...result.audit.phases].map(([name, counts]) => {
    const times = result.phases.find(({ fault }) => fault === name);
    const ends = [times?.goesOnMs, times?.settleMs];
    return row(name, String(times?.injections ?? '-'), counts, ends.map(seconds));
  });
  const { total, violations, windows } = result.audit;
  const kills = Object.entries(result.kills).map(([name, count]) => `${name} ${count}`);
  const lines = [
    table([[...HEAD], ...rows, row('total', '', total, ['', ''])]),
    '',
    table([
      ['killed', kills.length === 0 ? 'nothing' : kills.join(', ')],
      ['stored, but unanswered', String(total.storedWithoutAnswer)],
      ['idempotency keys', keysInWords(result)],
      [
        'second mails',
        `${total.secondMails} came, ${total.possibleSecondMails} were possible by the mail ledger`,
      ],
      ['undeliverable', `${total.undeliverable}, dead-lettered ${total.deadLettered}`],
      [
        'processed after a 500',
        `${total.windowProcessed} in the documented window (ingest killed before its withdrawal)`,
      ],
      [
        'withdrawals counted',
        Object.entries(result.withdrawals)
          .map(([label, count]) => `${label} ${count}`)
          .join(', '),
      ],
      ['stores', result.stores],
      ['ledger', result.ledgerFile],
    ]),
    '',
    ...grouped(windows),
    ...some('TROUBLE', result.troubles),
    ...some(
      'VIOLATION',
      violations.map(({ kind, phase, id, words }) => `${kind} (${phase}) ${id}: ${words}`),
    ),
  ];
  const verdict = isClean(result)
    ? styleText('green', `clean: ${total.requests} requests, every promise kept`)
    : styleText(
        'red',
        `${violations.length} violations, ${result.troubles.length} troubles in ${total.requests} requests`,
      );
  return [...lines, `${verdict} (seed ${result.seed}, ${Math.round(result.seconds)} s)`].join('\n');
}

function keysInWords({ audit: { total, violations } }: ChaosResult): string {
  const doubled = violations.filter(({ kind }) => kind === 'doubled_key').length;
  return `${total.keys}, with ${total.keyed} requests: ${total.replayed} replayed, ${total.mismatched} with another body, ${doubled} keys doubled`;
}

function seconds(milliseconds: number | undefined): string {
  return milliseconds === undefined ? '-' : `${(milliseconds / 1_000).toFixed(1)} s`;
}

function row(name: string, times: string, counts: PhaseCounts, ends: readonly string[]): string[] {
  const numbers = [
    counts.requests,
    counts.accepted,
    counts.malformed,
    counts.refused,
    counts.mismatched,
    counts.failed,
    counts.noAnswer,
    counts.lost,
    counts.untrueFailed,
    counts.doubledAccounts,
    counts.secondMails,
    counts.withdrawnLanded,
    counts.withdrawnAbsent,
  ];
  return [name, times, ...numbers.map(String), ...ends];
}

function some(title: string, lines: readonly string[]): string[] {
  const more =
    lines.length > PRINTED ? [`${title}: ${lines.length - PRINTED} more (--json has all)`] : [];
  return [...lines.slice(0, PRINTED).map((line) => `${title}: ${line}`), ...more];
}

/** What documented windows allowed: how often, and one example each. */
function grouped(windows: readonly OpenWindow[]): string[] {
  const groups = Object.groupBy(windows, ({ words, phase }) => `${words} (${phase})`);
  return Object.entries(groups).map(
    ([words, group = []]) =>
      `allowed by a documented window: ${group.length} × ${words}, e.g. ${group[0]?.id}`,
  );
}

const short = (alert: string): string => alert.replace('PartnerIngest', '');

export const isWell = ({ missing, unexpected, resolvedAfter }: Alarm): boolean =>
  missing.length + unexpected.length === 0 && resolvedAfter !== undefined;

export function cellsOf(alarm: Alarm): string[] {
  const { fault, expected, fired, resolvedAfter, missing, unexpected } = alarm;
  const times = Object.entries(fired).map(([alert, at]) => `${short(alert)} ${at.toFixed(0)} s`);
  const verdict = [
    ...missing.map((alert) => `missing: ${short(alert)}`),
    ...unexpected.map((alert) => `not meant: ${short(alert)}`),
    ...(resolvedAfter === undefined ? ['not over'] : []),
  ];
  return [
    fault,
    expected.map(short).join(', ') || 'none',
    times.join(', ') || '-',
    resolvedAfter === undefined ? '-' : `${resolvedAfter.toFixed(0)} s`,
    verdict.join('; ') || 'ok',
  ];
}

/** Which alerts the faults raised, and the verdict. */
export function alarmReport(alarms: readonly Alarm[]): string {
  const well = alarms.length > 0 && alarms.every(isWell);
  return [
    table([['fault', 'meant', 'fired after', 'over after', 'verdict'], ...alarms.map(cellsOf)]),
    styleText(
      well ? 'green' : 'red',
      well ? `${alarms.length} faults, each with its alert` : 'not as meant',
    ),
  ].join('\n');
}
