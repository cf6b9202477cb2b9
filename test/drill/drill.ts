/** Injects one fault after the other and watches which alerts fire and when they are over. */
import { performance } from 'node:perf_hooks';
import type { ActiveAlert } from '../../deploy/local/prometheus.ts';
import { renderRules, ruleFile, type Rules } from '../chart/rules.ts';
import { seededRandom, type Random } from '../chaos/random.ts';
import { DRILL_VALUES, OTHER_BOUNDS, plan, SHORT, SHORT_OF_RULE, type Exercise } from './plan.ts';
import { openWatchedWorld, type WatchedWorld } from './watched-world.ts';

const PER_SECOND = 40;
const EVERY_SECONDS = 1;
const POLL_MS = 250;
/** Long enough for a claim that runs out and three attempts at a mail. */
const FIRE_TIMEOUT_MS = 150_000;
const RESOLVE_TIMEOUT_MS = 150_000;
/** A fault without a planned alert lasts this long, unless it sets its own time. */
const QUIET_MS = 15_000;
/** Without any alert for this long the system counts as healthy. */
const CALM_MS = 5_000;
/** Longest wait for pending alerts that do not fire; on a busy machine some are always pending. */
const PENDING_TIMEOUT_MS = 20_000;

export interface Row {
  readonly fault: string;
  readonly about: string;
  readonly expected: readonly string[];
  /** Seconds from the injection until it fired, by alert. */
  readonly fired: Readonly<Record<string, number>>;
  /**
   * Seconds from the end of the fault until no alert fired any more; undefined when one still did.
   */
  readonly resolvedAfter: number | undefined;
  readonly missing: readonly string[];
  readonly unexpected: readonly string[];
}

export interface DrillOptions {
  readonly folder: string;
  readonly seed: number;
  /** Names of faults; all when left out. */
  readonly only?: readonly string[];
  readonly signal: AbortSignal;
  readonly log: (line: string) => void;
  readonly onRow: (row: Row) => void;
}

/**
 * Runs the exercises in turn. Rejects when the world cannot be opened, or does not become healthy.
 */
export async function drill(options: DrillOptions): Promise<Row[]> {
  const { signal, log } = options;
  const rules = shorten(await renderRules(DRILL_VALUES));
  const watched = await openWatchedWorld({
    ...options,
    rules: ruleFile(rules),
    everySeconds: EVERY_SECONDS,
    perSecond: PER_SECOND,
  });
  const random = seededRandom(options.seed + 2);
  const rows: Row[] = [];
  try {
    for (const exercise of plan(watched.keyFolder)) {
      if (signal.aborted) break;
      if (options.only !== undefined && !options.only.includes(exercise.fault.name)) continue;
      if (!(await calm(watched, signal))) log('alerts still fire before the next fault');
      log(`${exercise.fault.name}: ${exercise.fault.about}`);
      const row = await run(exercise, watched, random, options);
      rows.push(row);
      options.onRow(row);
    }
    return rows;
  } finally {
    await watched.close();
  }
}

/** The rules with seconds for minutes; an unknown duration or bound is a bug here. */
export function shorten(rules: Rules): Rules {
  const short = (rule: string, duration: string): string => {
    const found = SHORT_OF_RULE[rule]?.[duration] ?? SHORT[duration];
    if (found === undefined) throw new Error(`plan.ts has no short form of ${duration}`);
    return found;
  };
  const bounded = (rule: string, expr: string): string =>
    Object.entries(OTHER_BOUNDS[rule] ?? {}).reduce((text, [bound, other]) => {
      if (!text.includes(bound)) throw new Error(`${rule} has no bound ${bound}`);
      return text.replaceAll(bound, other);
    }, expr);
  return {
    groups: rules.groups.map(({ name, rules: list }) => ({
      name,
      rules: list.map((rule) => {
        const own = (duration: string): string =>
          short('alert' in rule ? rule.alert : '', duration);
        return {
          ...rule,
          expr: bounded('alert' in rule ? rule.alert : '', rule.expr)
            .replaceAll(/\[(\w+)\]/g, (_, duration: string) => `[${own(duration)}]`)
            .replaceAll(/\boffset (\w+)/g, (_, duration: string) => `offset ${own(duration)}`),
          ...('for' in rule && rule.for !== undefined ? { for: own(rule.for) } : {}),
        };
      }),
    })),
  };
}

async function firing({ prometheus }: WatchedWorld): Promise<ActiveAlert[]> {
  return (await prometheus.alerts()).filter(({ state }) => state === 'firing');
}

/** Waits until no alert fires, or is about to, for a while; false when that takes too long. */
async function calm(watched: WatchedWorld, signal: AbortSignal): Promise<boolean> {
  const deadline = performance.now() + RESOLVE_TIMEOUT_MS;
  const patience = performance.now() + PENDING_TIMEOUT_MS;
  let since = performance.now();
  while (!signal.aborted && performance.now() < deadline) {
    const active = await watched.prometheus.alerts();
    const counts =
      performance.now() < patience ? active : active.filter(({ state }) => state === 'firing');
    if (counts.length > 0) since = performance.now();
    if (performance.now() - since >= CALM_MS) return true;
    await watched.world.pause(POLL_MS);
  }
  return false;
}

async function run(
  { fault, raises, may = [], mend }: Exercise,
  watched: WatchedWorld,
  random: Random,
  { signal }: DrillOptions,
): Promise<Row> {
  const { world } = watched;
  const injectedAt = performance.now();
  const fired = new Map<string, number>();
  const look = async (): Promise<readonly ActiveAlert[]> => {
    const now = await firing(watched);
    for (const alert of now) {
      if (!fired.has(alert.name)) fired.set(alert.name, seconds(injectedAt));
    }
    return now;
  };
  const lastsAtLeast = Math.max(fault.leastMs ?? 0, raises.length === 0 ? QUIET_MS : 0);
  const over = (): boolean => {
    const elapsed = performance.now() - injectedAt;
    if (signal.aborted || elapsed > Math.max(FIRE_TIMEOUT_MS, lastsAtLeast)) return true;
    return (
      elapsed >= lastsAtLeast &&
      (fault.leastMs !== undefined || raises.every((alert) => fired.has(alert)))
    );
  };
  const during = async (milliseconds: number): Promise<void> => {
    const until = performance.now() + milliseconds;
    do {
      await look();
      await world.pause(Math.min(POLL_MS, Math.max(0, until - performance.now())));
    } while (
      performance.now() < until &&
      !signal.aborted &&
      (fault.rhythm !== undefined || !over())
    );
  };
  do {
    try {
      await fault.inject(world, random);
      await during(fault.rhythm?.onMs ?? Infinity);
    } finally {
      await fault.heal(world);
    }
    await during(fault.rhythm?.offMs ?? 0);
  } while (!over());

  const healedAt = performance.now();
  await mend?.(world);
  let resolvedAfter: number | undefined;
  let quietSince: number | undefined;
  while (!signal.aborted && performance.now() - healedAt < RESOLVE_TIMEOUT_MS) {
    if ((await look()).length > 0 || !raises.every((alert) => fired.has(alert)))
      quietSince = undefined;
    else quietSince ??= performance.now();
    if (quietSince !== undefined && performance.now() - quietSince >= CALM_MS) {
      resolvedAfter = (quietSince - healedAt) / 1_000;
      break;
    }
    await world.pause(POLL_MS);
  }
  return {
    fault: fault.name,
    about: fault.about,
    expected: raises,
    fired: Object.fromEntries(fired),
    resolvedAfter,
    missing: raises.filter((alert) => !fired.has(alert)),
    unexpected: [...fired.keys()].filter(
      (alert) => !raises.includes(alert) && !may.includes(alert),
    ),
  };
}

function seconds(since: number): number {
  return (performance.now() - since) / 1_000;
}
