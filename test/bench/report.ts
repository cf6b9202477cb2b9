/** What the rounds of a bench come to: medians and ratios, and the tables for people. */
import { table } from '../../internal/platform/terminal.ts';
import { contenders, type Contender, type ContenderRound } from './contenders.ts';
import { workers, type DrainRound, type WorkerName } from './drain.ts';

const US_PER_SECOND = 1e6;

export interface ContenderSummary {
  readonly connections: number;
  readonly contender: Contender;
  readonly perSecond: number;
  readonly p50Ms: number;
  readonly p99Ms: number;
  readonly cpu: number;
  /** Processor time of a request in µs, by part. */
  readonly microseconds: Readonly<Record<string, number>>;
  /** The highest seen, in MiB. */
  readonly rssMib: number;
  readonly perWrite?: number;
  /**
   * How many times as fast ours is, by the median of the rounds' ratios, so that a drift of the
   * machine cancels out.
   */
  readonly oursRatio: number;
}

export interface DrainSummary {
  readonly worker: WorkerName;
  readonly perSecond: number;
  readonly cpu: number;
  readonly rssMib: number;
  /** Processor time of an application in µs, by part. */
  readonly microseconds: Readonly<Record<string, number>>;
  readonly oursRatio: number;
}

export interface Summary {
  readonly contenders: readonly ContenderSummary[];
  readonly drains: readonly DrainSummary[];
}

export function summarise(
  contenderRounds: readonly ContenderRound[],
  drainRounds: readonly DrainRound[],
): Summary {
  const connectionCounts = [...new Set(contenderRounds.map(({ connections }) => connections))];
  const rate = (round: ContenderRound): number => round.requests / round.seconds;
  return {
    contenders: connectionCounts.flatMap((connections) => {
      const of = (contender: Contender): ContenderRound[] =>
        contenderRounds.filter(
          (round) => round.contender === contender && round.connections === connections,
        );
      return contenders
        .filter((contender) => of(contender).length > 0)
        .map((contender) => ({
          connections,
          contender,
          perSecond: median(of(contender).map(rate)),
          p50Ms: median(of(contender).map(({ p50Ms }) => p50Ms)),
          p99Ms: median(of(contender).map(({ p99Ms }) => p99Ms)),
          cpu: median(of(contender).map(({ cpu }) => cpu)),
          microseconds: microsecondsOf(of(contender)),
          rssMib: Math.max(...of(contender).map(({ rssMib }) => rssMib)),
          ...(contender === 'ours'
            ? { perWrite: median(of(contender).map(({ perWrite = Number.NaN }) => perWrite)) }
            : {}),
          oursRatio: ratio(of('ours').map(rate), of(contender).map(rate)),
        }));
    }),
    drains: (drainRounds.length === 0 ? [] : workers).map((worker) => {
      const of = (name: WorkerName): DrainRound[] =>
        drainRounds.filter((round) => round.worker === name);
      const rates = (name: WorkerName): number[] => of(name).map(({ perSecond }) => perSecond);
      return {
        worker,
        perSecond: median(rates(worker)),
        cpu: median(of(worker).map(({ cpu }) => cpu)),
        rssMib: Math.max(...of(worker).map(({ rssMib }) => rssMib)),
        microseconds: microsecondsOf(
          of(worker).map((round) => ({ ...round, requests: round.mails })),
        ),
        oursRatio: ratio(rates('ours'), rates(worker)),
      };
    }),
  };
}

export function contenderTable(summary: Summary): string {
  const rows = summary.contenders.map((row) => [
    String(row.connections),
    row.contender,
    `${Math.round(row.perSecond)}/s`,
    `${row.p50Ms.toFixed(1)} ms`,
    `${row.p99Ms.toFixed(1)} ms`,
    `${Math.round(row.cpu * 100)} %`,
    `${Math.round(row.rssMib)} MiB`,
    row.perWrite === undefined ? '' : row.perWrite.toFixed(1),
    row.contender === 'ours' ? '' : `${row.oursRatio.toFixed(2)} x`,
  ]);
  const costs = summary.contenders.map(({ connections, contender, microseconds }) => ({
    name: `${contender} at ${connections}`,
    microseconds,
  }));
  return [
    table([
      ['connections', 'contender', 'accepts', 'p50', 'p99', 'CPU', 'RSS', 'per write', 'ours is'],
      ...rows,
    ]),
    processorTable('processor time of a request', costs),
  ].join('\n\n');
}

/** What each of `rows` costs each part; it drifts less than the rates. */
export function processorTable(
  title: string,
  rows: readonly {
    readonly name: string;
    readonly microseconds: Readonly<Record<string, number>>;
  }[],
): string {
  const parts = [...new Set(rows.flatMap(({ microseconds }) => Object.keys(microseconds)))];
  const cell = (microseconds: number | undefined): string =>
    microseconds === undefined ? '' : `${microseconds.toFixed(0)} µs`;
  return table([
    [title, ...parts],
    ...rows.map(({ name, microseconds }) => [
      name,
      ...parts.map((part) => cell(microseconds[part])),
    ]),
  ]);
}

export function microsecondsOf(
  rounds: readonly {
    readonly requests: number;
    readonly processorSeconds: Readonly<Record<string, number>>;
  }[],
): Readonly<Record<string, number>> {
  const requests = rounds.reduce((sum, round) => sum + round.requests, 0);
  const parts = new Set(rounds.flatMap(({ processorSeconds }) => Object.keys(processorSeconds)));
  return Object.fromEntries(
    [...parts].map((part) => {
      const seconds = rounds.reduce(
        (sum, { processorSeconds }) => sum + (processorSeconds[part] ?? 0),
        0,
      );
      return [part, (seconds / requests) * US_PER_SECOND];
    }),
  );
}

export function drainTable(summary: Summary): string {
  const rows = summary.drains.map((row) => [
    row.worker,
    `${Math.round(row.perSecond)}/s`,
    `${Math.round(row.cpu * 100)} %`,
    `${Math.round(row.rssMib)} MiB`,
    row.worker === 'ours' ? '' : `${row.oursRatio.toFixed(2)} x`,
  ]);
  const costs = summary.drains.map(({ worker, microseconds }) => ({ name: worker, microseconds }));
  return [
    table([['worker', 'drained', 'CPU', 'RSS', 'ours is'], ...rows]),
    processorTable('processor time of an application', costs),
  ].join('\n\n');
}

function ratio(ours: readonly number[], others: readonly number[]): number {
  return median(ours.map((rate, index) => rate / (others[index] ?? Number.NaN)));
}

export function median(values: readonly number[]): number {
  const sorted = values.toSorted((one, other) => one - other);
  return sorted[Math.floor(sorted.length / 2)] ?? Number.NaN;
}
