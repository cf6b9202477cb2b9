/** The summary of a run, for people. */
import { duration } from '../../internal/operators/view/terminal.ts';
import { controls as allControls, type ControlResult } from './controls.ts';
import type { Leg } from './leg.ts';

/** How a run is made again. */
export interface Run {
  readonly command: string;
  readonly commit: string;
  readonly acks: number;
  readonly kills: number;
  readonly cuts: number;
  readonly seed: number;
  /** Why this machine has no power cuts. */
  readonly withoutPowerCuts: string | undefined;
}

/** A line of begun.jsonl: a leg that was begun, or the reason why it ended without a verdict. */
export type Begun =
  | { readonly leg: number; readonly machine: string }
  | { readonly leg: number; readonly failed: string };

/** What docs/proof.md lists, too. */
const notPlayed = [
  'MongoDB itself, where the stores above are others',
  'any fault but these kills and power cuts',
  'several machines, and networks between them',
  'disks that return other bytes than were synced, or are full',
  'clocks that step',
  'several versions of the service at a time',
  'longer than a leg: each begins with empty stores',
];

/** Events in a million that 0 of `n` excludes with a confidence of 95 %: 1 - 0.05^(1/n). */
const atMostPer = (n: number): number => 1 - 0.05 ** (1 / n);

/** How often the legs played this fault. */
export const played = (legs: readonly Leg[], name: string): number =>
  legs.reduce((sum, { faults }) => sum + (faults[name] ?? 0), 0);

const SHOWN = 20;

export function pageOf({
  run,
  begun,
  legs,
  controls,
}: {
  readonly run: Run;
  readonly begun: readonly Begun[];
  readonly legs: readonly Leg[];
  readonly controls: readonly ControlResult[];
}): string {
  const sum = (of: (leg: Leg) => number): number => legs.reduce((all, leg) => all + of(leg), 0);
  const acks = sum((leg) => leg.acks);
  const faults = sum((leg) => Object.values(leg.faults).reduce((all, one) => all + one, 0));
  const broken = legs.flatMap(({ violations }) => violations);
  const found = sum((leg) => leg.found);
  const unexplained = legs.flatMap((leg) => leg.unexplained);
  const inWindows = legs.flatMap(({ windows }) => windows);
  const inWindow = sum((leg) => leg.checked.violations.length) - unexplained.length;
  const checkers = new Set(legs.map(({ checked }) => checked.checker));
  const stores = new Set(legs.map((leg) => leg.stores));
  const failed = begun.filter((line) => 'failed' in line);
  const started = begun.filter((line) => 'machine' in line);
  const machines = new Set(started.map(({ machine }) => machine));
  return [
    `# ${acks} acknowledged requests under ${played(legs, 'random-kills')} kills and ${played(legs, 'power-cut')} power cuts`,
    '',
    `\`${run.command}\` at ${run.commit}, on ${[...machines].join('; ')}.`,
    `Stores: ${[...stores].join('; ')}. ${legs.length} legs, which sum up to ${duration(sum((leg) => leg.seconds) * 1_000)}.`,
    ...(acks < run.acks ? [`Not finished: ${acks} of ${run.acks} acknowledged.`] : []),
    '',
    `- Legs begun: ${started.length}. ${started.length - legs.length} were interrupted or failed, and do not count.`,
    ...failed.slice(-SHOWN).map((line) => `  - leg ${line.leg} failed: ${line.failed}`),
    `- Sent: ${sum((leg) => leg.requests)} requests, with repeats, races, malformed and cut bodies.`,
    `- Violations by our audit of records, accounts and e-mails: ${found}.`,
    ...broken.slice(0, SHOWN).map((words) => `  - ${words}`),
    `- Violations by ${[...checkers].join(', ')}, over ${sum((leg) => leg.checked.operations)} operations: ${unexplained.length}; ${inWindow} more in the window of docs/decisions/0004-500-means-not-accepted.md.`,
    ...unexplained
      .slice(0, SHOWN)
      .map(({ model, partition, verdict }) => `  - ${model}, ${partition}: ${verdict}`),
    `- Happened in a documented window (\`windows\` of legs/*.json): ${inWindows.length}.`,
    ...Map.groupBy(inWindows, (words) => words.replace(/^\S+ /, ''))
      .entries()
      .map(([what, some]) => `  - ${some.length} × ${what}`),
    `- No answer within 75 s, which counts as none: ${sum((leg) => leg.late)}.`,
    ...(found + unexplained.length > 0
      ? ['', 'A promise was broken.']
      : acks === 0
        ? ['', 'Nothing was played.']
        : [
            '',
            `With a confidence of 95 %, 0 of ${acks} means that at most ${(atMostPer(acks) * 1e6).toFixed(1)} of a million 202s are of a lost request under these faults, and 0 of ${faults} that at most ${(atMostPer(faults) * 100).toFixed(2)} % of these faults lose one.`,
          ]),
    '',
    '## Control runs, which must lose',
    '',
    ...Object.entries(allControls).map(([name, { about }]) => {
      const one = controls.find((result) => result.name === name);
      if (one === undefined) return `- ${name} (${about}): not played`;
      const isSeen = one.audit > 0 && one.checker > 0;
      return `- ${name} (${about}): ${one.audit} violations by our audit, ${one.checker} by the checker, of ${one.acks} acknowledged${isSeen ? '' : '; it had to lose by both, so this run proves nothing'}`;
    }),
    ...(run.withoutPowerCuts === undefined
      ? []
      : [`- no power cuts and no fsync-off: ${run.withoutPowerCuts}`]),
    '',
    '## Not played',
    '',
    ...notPlayed.map((what) => `- ${what}`),
    '',
  ].join('\n');
}
