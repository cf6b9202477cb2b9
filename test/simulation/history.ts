/** Plays one plan until every record is final, and checks the rules. */
import { isOpen, type State } from '../../internal/submission/states.ts';
import { type Ingest, startIngestProcess, type Submission } from './ingest.ts';
import { type Operator, startOperator } from './operator.ts';
import {
  CLOCK_LEAPS_MS,
  type Fault,
  type FaultKind,
  leapt,
  orderEvents,
  type Plan,
  PROCESSORS,
  startOf,
} from './plan.ts';
import { startProcessor } from './processor.ts';
import type { Temper } from './relay.ts';
import { judge, Violation, watch } from './rules.ts';
import type { SimProcess } from './scheduler.ts';
import { VERY_LATE_MS } from './wire.ts';
import { type Sent, World } from './world.ts';

/** An answer to a mail may take 10 minutes, and two ambiguous ends back off for 72 minutes each. */
const QUIET_WITHIN_MS = 3 * 3_600_000;
/** A busy server uses up the attempts in 72 h 15 min and jitter. */
const USED_UP_WITHIN_MS = 1.2 * 73 * 3_600_000;
const WEEKS_MS = 3 * 7 * 24 * 3_600_000;

export type Told = Awaited<ReturnType<typeof play>>;

/**
 * Rejects with a `Violation` that tells what went wrong. `look` sees the world when all that was
 * planned has begun, and at the end; the world stands still meanwhile.
 */
export async function play(
  planned: Plan,
  {
    hasQueue = true,
    look = () => Promise.resolve(),
  }: { readonly hasQueue?: boolean; readonly look?: (world: World) => Promise<void> } = {},
) {
  const plan = leapt(planned);
  let healed = false;
  let forgiving = false;
  const temperOf = (email: string): Temper => {
    const temper = plan.tempers[Number(/^person(\d)/i.exec(email)?.[1])] ?? 'takes';
    return forgiving || (healed && temper === 'blocks_us') ? 'takes' : temper;
  };
  const world = new World(plan.seed, temperOf, hasQueue);
  const { violations } = watch(world);
  const { scheduler } = world;

  const restUntil = async (withinMs: number, others: Pick<Operator, 'atRest'>): Promise<void> => {
    const atRest = (): boolean =>
      others.atRest() && world.records().every((record) => !isOpen(record.state));
    if (!(await scheduler.run(scheduler.now + withinMs, () => violations.length > 0 || atRest()))) {
      const open = world.records().filter((record) => isOpen(record.state));
      throw new Violation(
        open.map(({ _id, state }) => `${_id} is still ${state}`).join(', ') ||
          'a partner still asks',
      );
    }
    if (violations[0] !== undefined) throw violations[0];
  };

  return scheduler.rule(async () => {
    const started = start(world, plan);
    const faultsEnd = Math.max(
      0,
      ...plan.faults.map((fault) => startOf(fault, plan) + fault.forMs),
    );
    const planEnds = Math.max(
      faultsEnd,
      ...plan.submissions.map(({ atMs }) => atMs),
      ...plan.orders.map(({ atMs }) => atMs),
    );
    await scheduler.run(planEnds + 1, () => violations.length > 0);
    await look(world);
    healed = true;
    await scheduler.run(planEnds + VERY_LATE_MS, () => violations.length > 0);
    await restUntil(
      plan.tempers.includes('always_busy') ? USED_UP_WITHIN_MS : QUIET_WITHIN_MS,
      started,
    );
    const operator = startOperator(world, 0);
    for (const { _id, state } of world.records()) {
      const left = world.allAccounts().some((one) => one.requestId === _id && !one.closedAt);
      if (state === 'closed' && left) operator.order(_id, 'close');
      // Its insert hung until the account in its way was erased; `audit` reports it.
      if (state === 'rejected' && left && world.erasures.size > 0) operator.order(_id, 'erase');
    }
    await restUntil(QUIET_WITHIN_MS, operator);
    judge(world);

    // Everything that failed can be repeated.
    forgiving = true;
    const failed = world.records().filter(({ state }) => isFailed(state));
    for (const { _id } of failed) operator.order(_id, 'retry');
    await restUntil(QUIET_WITHIN_MS, operator);
    // Only reopen brings back a request that was ended.
    await scheduler.run(scheduler.now + WEEKS_MS, () => violations.length > 0);
    for (const { requestId } of world.ended)
      for (const event of world.random.shuffled(orderEvents)) {
        if (event === 'reopen' || event === 'erase') continue;
        operator.order(requestId, event);
      }
    await restUntil(QUIET_WITHIN_MS, operator);
    const windows = judge(world);
    const released = new Set(
      world.allAccounts().flatMap((one) => (one.releasedAt === undefined ? [] : [one.requestId])),
    );
    const left = world
      .records()
      .find(
        ({ _id, state, erasedAt }) =>
          isFailed(state) && erasedAt === undefined && !released.has(_id),
      );
    if (left !== undefined)
      throw new Violation(`${left._id} is ${left.state} although it was retried`);
    await look(world);
    return {
      windows,
      events: scheduler.events,
      mails: world.relay.mails.length,
      states: countsOf(world.records().map(({ state }) => state)),
      simulatedMs: scheduler.now,
    };
  });
}

function isFailed(state: State): boolean {
  return state === 'dead_lettered' || state === 'undeliverable';
}

/** Opens the processes and schedules the plan. */
function start(world: World, plan: Plan): Pick<Operator, 'atRest'> {
  const { scheduler } = world;
  const skew = (index: number): number => plan.skewsMs[index] ?? 0;
  const ingests: Ingest[] = [startIngestProcess(world, world.newProcess('ingest 0', skew(0)))];
  const processors: Processor[] = [];
  const newProcessor = (index: number): void => {
    const process = world.newProcess(`processor ${index}`, skew(index + 1));
    processors[index] = { process, close: startProcessor(world, process) };
  };
  for (let index = 0; index < PROCESSORS; index += 1) newProcessor(index);
  const operator = startOperator(world, skew(PROCESSORS + 1));

  const partner = startPartner(world, () => ingests[0]!);
  for (const { atMs, email, ein, valid, key } of plan.submissions) {
    scheduler.after(atMs, () => {
      partner.submit({
        email: `Person${email}@Example.com`,
        ein: `10000000${ein}`,
        valid,
        key: key === null ? null : `key ${key}`,
      });
    });
  }
  for (const { atMs, submission, event } of plan.orders) {
    scheduler.after(atMs, () => {
      const requestId = world.sent[submission]?.requestId;
      if (requestId !== undefined) operator.order(requestId, event);
    });
  }
  for (const fault of plan.faults) {
    scheduler.after(startOf(fault, plan), () =>
      strike(fault, world, { ingests, processors, operator, newProcessor, skew }),
    );
  }
  return { atRest: () => operator.atRest() && partner.atRest() };
}

interface Processor {
  readonly process: SimProcess;
  readonly close: () => void;
}

function strike(
  { kind, forMs, target }: Fault,
  world: World,
  service: {
    readonly ingests: Ingest[];
    readonly processors: Processor[];
    readonly operator: Operator;
    newProcessor(index: number): void;
    skew(index: number): number;
  },
): void {
  const { scheduler, mongo, redis, smtp, queue } = world;
  const kill = (process: SimProcess, startAgain: () => void): void => {
    if (!process.alive) return;
    process.alive = false;
    world.disturb('killed', process, Infinity);
    scheduler.after(forMs, startAgain);
  };
  const freeze = (process: SimProcess): void => {
    process.frozenUntil = Math.max(process.frozenUntil, scheduler.now + forMs);
    world.disturb('frozen', process, forMs);
  };
  /** Faults of one kind may overlap; the last to end repairs. */
  const forAWhile = <T extends object>(weather: T, bad: Partial<T>, good: Partial<T>): void => {
    Object.assign(weather, bad);
    scheduler.after(forMs, () => Object.assign(weather, good));
  };
  const faults: Readonly<Record<FaultKind, () => void>> = {
    kill_processor: () =>
      kill(service.processors[target]!.process, () => service.newProcessor(target)),
    freeze_processor: () => freeze(service.processors[target]!.process),
    restart_processor: () => {
      // A killed pod starts again by itself.
      if (!service.processors[target]!.process.alive) return;
      service.processors[target]!.close();
      service.newProcessor(target);
    },
    kill_ingest: () =>
      kill(service.ingests[0]!.process, () => {
        const process = world.newProcess('ingest 0', service.skew(0));
        service.ingests[0] = startIngestProcess(world, process);
      }),
    freeze_ingest: () => freeze(service.ingests[0]!.process),
    mongo_away: () => {
      world.disturb('cutOff', undefined, forMs);
      forAWhile(mongo, { away: true }, { away: false });
      world.crashMongo();
    },
    mongo_shaky: () => {
      world.disturb('cutOff', undefined, forMs);
      forAWhile(mongo, { shaky: 0.2 }, { shaky: 0 });
    },
    mongo_stalled: () => {
      world.disturb('cutOff', undefined, forMs);
      forAWhile(mongo, { stalled: true }, { stalled: false });
    },
    redis_away: () => {
      forAWhile(redis, { away: true }, { away: false });
      scheduler.after(forMs, () => queue.handOut());
    },
    redis_lossy: () =>
      forAWhile(redis, { lossy: 0.5, repeating: 0.5 }, { lossy: 0, repeating: 0.05 }),
    redis_emptied: () => queue.flush(),
    relay_away: () => forAWhile(smtp, { away: true }, { away: false }),
    relay_hangs: () => {
      smtp.hangsUntil = Math.max(smtp.hangsUntil, scheduler.now + forMs);
    },
    relay_refuses: () => forAWhile(smtp, { refuses: true }, { refuses: false }),
    relay_turns_away: () => forAWhile(smtp, { turnsAway: true }, { turnsAway: false }),
    relay_shaky: () => forAWhile(smtp, { shaky: 0.8 }, { shaky: 0 }),
    clock_leaps: () => {
      const processes = [service.ingests[0]!, ...service.processors].map(({ process }) => process);
      const process = processes[target % processes.length]!;
      process.skewMs += CLOCK_LEAPS_MS[forMs % CLOCK_LEAPS_MS.length]!;
    },
    partner_on_hold: () => {
      service.operator.hold(true);
      scheduler.after(forMs, () => service.operator.hold(false));
    },
  };
  faults[kind]();
}

function countsOf(names: readonly string[]): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const name of names) counts[name] = (counts[name] ?? 0) + 1;
  return counts;
}

// A simulated partner. With an idempotency key it repeats until it is answered.

/** The earlier try or its withdrawal may still be under way. */
const AGAIN_MS = { from: 50, to: 4_000 } as const;

function startPartner(world: World, ingestNow: () => Ingest) {
  const { scheduler } = world;
  let waiting = 0;
  const heard = ({ answer }: Sent): boolean => answer !== undefined && answer !== 500;
  const trySending = (submission: Submission, tries: readonly Sent[]): void => {
    if (tries.some(heard)) {
      waiting -= 1;
      return;
    }
    const ingest = ingestNow();
    const up = ingest.process.alive && ingest.process.frozenUntil <= scheduler.now;
    const sent = up ? [ingest.submit(submission)] : [];
    if (submission.key === null) return;
    scheduler.after(scheduler.random.between(AGAIN_MS.from, AGAIN_MS.to), () =>
      trySending(submission, [...tries, ...sent]),
    );
  };
  return {
    submit: (submission: Submission) => {
      if (submission.key !== null) waiting += 1;
      trySending(submission, []);
    },
    atRest: () => waiting === 0,
  };
}
