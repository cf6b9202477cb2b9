/** Prints a table of faults and alerts, and the verdict. */
import { styleText } from 'node:util';
import { table } from '../../internal/platform/process/terminal.ts';
import { counted } from './audit.ts';
import type { ChaosResult } from './play.ts';
import type { Alarm } from './watch.ts';

const PRINTED = 30;

export function isClean(result: ChaosResult): boolean {
  return result.audit.violations.length === 0 && result.troubles.length === 0;
}

export function report(result: ChaosResult): string {
  const { phases, total, violations, windows } = result.audit;
  const seconds = (milliseconds?: number): string =>
    milliseconds === undefined ? '-' : `${(milliseconds / 1_000).toFixed(1)} s`;
  const rows = [...phases, ['total', total] as const].map(([name, counts]) => {
    const times = result.phases.find(({ fault }) => fault === name);
    const numbers = counted.map((what) => String(counts[what]));
    const ends = times === undefined ? [] : [seconds(times.goesOnMs), seconds(times.settleMs)];
    return [name, String(times?.injections ?? ''), ...numbers, ...ends];
  });
  const allowed = Object.groupBy(windows, ({ words, phase }) => `${words} (${phase})`);
  const isGood = isClean(result);
  const verdict = isGood
    ? `clean: ${total.requests} requests, every promise kept`
    : `${violations.length} violations, ${result.troubles.length} troubles`;
  return [
    table([['fault', 'times', ...counted, 'goes on after', 'settled after'], ...rows]),
    `killed: ${JSON.stringify(result.kills)}; stores: ${result.stores}; ${result.ledgerFile}`,
    ...Object.entries(allowed).map(
      ([words, some = []]) => `allowed: ${some.length} × ${words}, e.g. ${some[0]?.id}`,
    ),
    ...result.troubles.map((words) => `TROUBLE: ${words}`),
    ...violations
      .slice(0, PRINTED)
      .map(({ kind, phase, id, words }) => `VIOLATION: ${kind} (${phase}) ${id}: ${words}`),
    `${styleText(isGood ? 'green' : 'red', verdict)} (seed ${result.seed})`,
  ].join('\n');
}

export const resultForPrograms = ({ audit, ...result }: ChaosResult): object => ({
  ...result,
  audit: { ...audit, phases: Object.fromEntries(audit.phases) },
});

const short = (alert: string): string => alert.replace('PartnerIngest', '');

export const isWell = ({ missing, unexpected, resolvedAfter }: Alarm): boolean =>
  missing.length + unexpected.length === 0 && resolvedAfter !== undefined;

export function cellsOf(alarm: Alarm): string[] {
  const { fault, fired, resolvedAfter, missing, unexpected } = alarm;
  const times = Object.entries(fired).map(([alert, at]) => `${short(alert)} ${at.toFixed(0)} s`);
  const wrong = [
    ...missing.map((alert) => `missing: ${short(alert)}`),
    ...unexpected.map((alert) => `not meant: ${short(alert)}`),
    ...(resolvedAfter === undefined ? ['not over'] : []),
  ];
  const over = resolvedAfter === undefined ? '' : `over after ${resolvedAfter.toFixed(0)} s`;
  return [fault, times.join(', '), over, wrong.join('; ') || 'ok'];
}
