/**
 * Prometheus with the chart's rules: each fault lasts until its alerts fire, and ends when none
 * fires.
 */
import { performance } from 'node:perf_hooks';
import { join } from 'node:path';
import {
  startPrometheus,
  type Prometheus,
  type ScrapeTarget,
} from '../../deploy/local/prometheus.ts';
import { NAMESPACE, renderRules, ruleFile } from '../chart/rules.ts';
import type { Fault } from './fault.ts';
import { firstCommand, firstCommands, nowOf } from './operator.ts';
import type { Course, Watch } from './play.ts';
import { RULE_VALUES, shorten } from './short-rules.ts';
import type { ChaosWorld, Slot } from './world.ts';

const EVERY_SECONDS = 1;
const POLL_MS = 250;
const NOW_EVERY_MS = 1_000;
/** Some values begin again at each scrape, which here is each second. */
const COMMAND_TRIES = 3;
/** Long enough for an expired claim and three attempts at a mail. */
const FIRE_TIMEOUT_MS = 150_000;
const RESOLVE_TIMEOUT_MS = 150_000;
/** The default duration of a fault without alerts. */
const QUIET_MS = 15_000;
/** The system counts as healthy after this time without an alert. */
const CALM_MS = 5_000;
/** The longest wait for pending alerts; on a busy machine some are always pending. */
const PENDING_TIMEOUT_MS = 20_000;

export interface Alarm {
  readonly fault: string;
  readonly expected: readonly string[];
  /** Seconds from the injection, by alert. */
  readonly fired: Readonly<Record<string, number>>;
  /** Seconds from the end of the fault until no alert fired; undefined if one still did. */
  readonly resolvedAfter: number | undefined;
  /** Seconds from the injection until the condition of an expected alert held. */
  readonly heldAfter: Readonly<Record<string, number>>;
  /** The first further line of Now while the fault lasted, and its seconds from the injection. */
  readonly now: { readonly after: number; readonly line: string } | undefined;
  /** Whether the first command of an expected alert's page shows what to look for. */
  readonly found: Readonly<Record<string, boolean>>;
  readonly missing: readonly string[];
  readonly unexpected: readonly string[];
}

interface WatchOptions {
  readonly signal: AbortSignal;
  readonly log: (line: string) => void;
  readonly onAlarm: (alarm: Alarm) => void;
}

export async function watchAlerts(
  world: ChaosWorld,
  folder: string,
  options: WatchOptions,
): Promise<Watch> {
  const prometheus = await startPrometheus({
    folder: join(folder, 'prometheus'),
    everySeconds: EVERY_SECONDS,
    rules: ruleFile(shorten(await renderRules(RULE_VALUES))),
    log: options.log,
  });
  const pods = world.slots.map(targetOf);
  let told = '';
  const timer = setInterval(() => {
    const targets = pods.flatMap((target) => target() ?? []);
    const text = JSON.stringify(targets);
    if (text !== told) void prometheus.scrape(targets);
    told = text;
  }, POLL_MS);
  return {
    async begin(fault) {
      if (!(await calm(world, prometheus, options.signal)))
        options.log('alerts still fire before the next fault');
      // A share of some minutes must not begin before the fault.
      const now = nowOf(world);
      const before = await seenBefore(fault, folder, world, now);
      return untilAlarm(fault, { world, prometheus, folder, now, before }, options);
    },
    async close() {
      clearInterval(timer);
      await prometheus.stop();
    },
  };
}

/**
 * Names the process as Kubernetes would: the pod of a slot changes only after a clean end. Must be
 * asked often, to see each process.
 */
function targetOf(slot: Slot): () => ScrapeTarget | undefined {
  let [seen, number] = [slot.process, 1];
  return () => {
    if (slot.process !== undefined && slot.process !== seen) {
      if (seen?.child.exitCode === 0) number += 1;
      seen = slot.process;
    }
    if (seen === undefined) return undefined;
    const pod = `${slot.label}-${number}`;
    const job = `${NAMESPACE}/${NAMESPACE}`;
    const labels = { namespace: NAMESPACE, job, container: slot.name, pod, instance: pod };
    return { adminUrl: seen.adminUrl, labels };
  };
}

/** Waits until no alert fires or is pending; false after a time-out. */
async function calm(
  world: ChaosWorld,
  prometheus: Prometheus,
  signal: AbortSignal,
): Promise<boolean> {
  const startedAt = performance.now();
  let since = startedAt;
  while (!signal.aborted && performance.now() - startedAt < RESOLVE_TIMEOUT_MS) {
    const active = await prometheus.alerts();
    const impatient = performance.now() - startedAt >= PENDING_TIMEOUT_MS;
    if (active.some(({ state }) => state === 'firing' || !impatient)) since = performance.now();
    if (performance.now() - since >= CALM_MS) return true;
    await world.pause(POLL_MS);
  }
  return false;
}

/** What an operator sees before the fault is not of the fault. */
async function seenBefore({ raises }: Fault, folder: string, world: ChaosWorld, now: Now) {
  const lines = new Map<string, ReadonlySet<string>>();
  for (const alert of raises) lines.set(alert, await firstCommands(alert, world, folder));
  return { now: new Set(await now()), lines };
}

type Now = ReturnType<typeof nowOf>;

interface Watched {
  readonly world: ChaosWorld;
  readonly prometheus: Prometheus;
  readonly folder: string;
  readonly now: Now;
  readonly before: Awaited<ReturnType<typeof seenBefore>>;
}

function untilAlarm(
  fault: Fault,
  { world, prometheus, folder, now, before }: Watched,
  { signal, log, onAlarm }: WatchOptions,
): Course {
  const { raises, may = [], repair } = fault;
  const [injectedAt, injectedDate] = [performance.now(), Date.now()];
  const fired = new Map<string, number>();
  const heldAfter: Record<string, number> = {};
  const found: Record<string, boolean> = {};
  const over = new AbortController();
  /** Beside the alerts and the injection, which take seconds. */
  const readNow = async (): Promise<Alarm['now']> => {
    while (!over.signal.aborted && !signal.aborted) {
      const line = (await now()).find((one) => !before.now.has(one));
      if (line !== undefined) return { after: seconds(injectedAt), line };
      await world.pause(NOW_EVERY_MS);
    }
    return undefined;
  };
  const nowRead = readNow();
  const commands = new Set<Promise<void>>();
  const ask = async (name: string, pod: string): Promise<void> => {
    let own: string | undefined;
    for (let tries = 0; own === undefined && tries < COMMAND_TRIES; tries += 1) {
      const told = await firstCommand(name, pod, world, folder);
      own = told.find((line) => before.lines.get(name)?.has(line) === false);
    }
    found[name] = own !== undefined;
    const when = over.signal.aborted ? 'after' : 'during';
    log(`  ${name}, ${when} the fault: ${own?.slice(0, 200) ?? 'no line'}`);
  };
  const look = async (): Promise<boolean> => {
    const active = await prometheus.alerts();
    const firing = active.filter(({ state }) => state === 'firing');
    for (const { name, since, labels } of firing) {
      // What held before is not of this fault.
      if (fired.has(name) || since.getTime() < injectedDate) continue;
      fired.set(name, seconds(injectedAt));
      if (!raises.includes(name)) continue;
      heldAfter[name] = (since.getTime() - injectedDate) / 1_000;
      // A process that the fault stops answers the command only once the fault lets it.
      const command = ask(name, labels['pod'] ?? '').finally(() => commands.delete(command));
      commands.add(command);
    }
    return firing.length > 0;
  };
  const allFired = (): boolean => raises.every((alert) => fired.has(alert));
  const leastMs = Math.max(fault.leastMs ?? 0, raises.length === 0 ? QUIET_MS : 0);
  const goesOn = (): boolean => {
    const elapsed = performance.now() - injectedAt;
    if (signal.aborted || elapsed > Math.max(FIRE_TIMEOUT_MS, leastMs)) return false;
    if (elapsed < leastMs || commands.size > 0) return true;
    return fault.leastMs === undefined && !allFired();
  };
  return {
    goesOn,
    async during(milliseconds) {
      const until = performance.now() + milliseconds;
      do {
        await look();
        await world.pause(Math.min(POLL_MS, Math.max(0, until - performance.now())));
      } while (
        performance.now() < until &&
        !signal.aborted &&
        (fault.rhythm !== undefined || goesOn())
      );
    },
    async ended() {
      const healedAt = performance.now();
      over.abort();
      let resolvedAfter: number | undefined;
      let quietSince: number | undefined;
      while (!signal.aborted && performance.now() - healedAt < RESOLVE_TIMEOUT_MS) {
        await repair?.(world);
        if ((await look()) || !allFired()) quietSince = undefined;
        else quietSince ??= performance.now();
        if (quietSince !== undefined && performance.now() - quietSince >= CALM_MS) {
          resolvedAfter = (quietSince - healedAt) / 1_000;
          break;
        }
        await world.pause(POLL_MS);
      }
      await Promise.all(commands);
      onAlarm({
        fault: fault.name,
        expected: raises,
        fired: Object.fromEntries(fired),
        resolvedAfter,
        heldAfter,
        now: await nowRead,
        found,
        missing: raises.filter((alert) => !fired.has(alert)),
        unexpected: [...fired.keys()].filter((one) => !raises.includes(one) && !may.includes(one)),
      });
    },
  };
}

function seconds(since: number): number {
  return (performance.now() - since) / 1_000;
}
