/**
 * Two operators' orders on one request, given at one moment: the second begins while an answer to
 * the first is under way.
 */
import { ACCOUNTS, TEST_ACCOUNTS } from '../../internal/account/account.ts';
import { PARTNER_HOLDS } from '../../internal/partner/flags.ts';
import { asLastError, SUBMISSIONS } from '../../internal/submission/submission.ts';
import { isOpen } from '../../internal/submission/states.ts';
import { databaseOf, driverOf, type Wire } from './driver.ts';
import { startIngestProcess } from './ingest.ts';
import { MemoryCollection } from './memory-collection.ts';
import { commandsOn, isChanged, type Given } from './operator.ts';
import type { OrderEvent } from './plan.ts';
import { startProcessor } from './processor.ts';
import type { Temper } from './relay.ts';
import { judge, Violation, watch } from './rules.ts';
import { World } from './world.ts';

const ID = 'req_0';
const TURN_MS = 10;
const WORKS_FOR_MS = 3_600_000;
const TRIES = 3;

const waiting = async (stage: Stage): Promise<void> => {
  await stage.submit();
  stage.world.smtp.away = true;
  await stage.work(({ state, claimedUntil }) => !claimedUntil && state === 'account_created');
  stage.world.smtp.away = false;
};
const completed = async (stage: Stage): Promise<void> => {
  await stage.submit();
  await stage.work();
};

/** The requests that two orders meet. */
export const starts = {
  recorded: (stage: Stage) => stage.submit(),
  'account created': waiting,
  completed,
  'link used': async (stage: Stage) => {
    await completed(stage);
    const $set = { 'activation.usedAt': stage.world.scheduler.date() };
    stage.world.accounts.update({}, { $set });
  },
  undeliverable: async (stage: Stage) => {
    stage.temper = 'no_such_mailbox';
    await completed(stage);
    stage.temper = 'takes';
  },
  bounced: async (stage: Stage) => {
    await completed(stage);
    await stage.give('bounce');
  },
  'dead letter': async (stage: Stage) => {
    await waiting(stage);
    await stage.giveUp();
  },
  'dead letter without an account': async (stage: Stage) => {
    await stage.submit();
    await stage.giveUp();
  },
  'closed without an account': async (stage: Stage) => {
    await stage.submit();
    await stage.give('close');
  },
  'closed before its e-mail': async (stage: Stage) => {
    await waiting(stage);
    await stage.give('close');
  },
  'closed after its e-mail': async (stage: Stage) => {
    await completed(stage);
    await stage.give('resend');
    await stage.give('close');
  },
} as const;

export interface Meeting {
  readonly start: keyof typeof starts;
  readonly orders: readonly [OrderEvent, OrderEvent];
  /** The number of calls that the first order has made when the second begins. */
  readonly firstMakes: number;
  /** The same of the second when the first goes on; by default, the second has ended. */
  readonly secondMakes?: number;
  /** Then the first goes on, goes on after a processor has worked, or never. */
  readonly fate: 'goes on' | 'goes on later' | 'dies';
}

/** Throws a `Violation` if a promise is broken or a command printed what is untrue. */
export function meet(meeting: Meeting) {
  const { start, orders: events, firstMakes, secondMakes, fate } = meeting;
  const stage = new Stage();
  return stage.world.scheduler.rule(async () => {
    await starts[start](stage);
    const first = stage.begin(events[0], 'First@example.com', firstMakes);
    await stage.turn();
    const second = stage.begin(events[1], 'Second@example.com', secondMakes);
    await stage.turn();
    const met = {
      /** The second order changed something before the first went on. */
      changed: second.writes.length > 0,
      /** A processor had work then. */
      isOpen: isOpen(stage.record.state),
    };
    if (fate === 'goes on later') await stage.work();
    if (fate !== 'dies') first.goOn();
    await stage.turn();
    second.goOn();
    await stage.turn();
    await stage.work();
    for (const order of [first, second]) if (isLeft(order)) await stage.repeat(order);
    stage.judgeTold(first, second);
    stage.judgeTold(second, first);
    stage.judge();
    return met;
  });
}

/** Returns the numbers of the calls that change something if the order is given alone. */
export function writesOf(start: Meeting['start'], event: OrderEvent): Promise<readonly number[]> {
  const stage = new Stage();
  return stage.world.scheduler.rule(async () => {
    await starts[start](stage);
    const order = stage.begin(event, 'First@example.com');
    await stage.turn();
    return order.writes;
  });
}

type Order = ReturnType<Stage['begin']>;

/** A command that failed, left something or asks for it is given again. */
function isLeft({ given }: Order): boolean {
  return given === undefined || (given.code ?? 0) !== 0 || /command again/.test(given.whyNot ?? '');
}

class Stage {
  temper: Temper = 'takes';
  readonly world = new World(1, () => this.temper, true);
  readonly #violations = watch(this.world).violations;

  async turn(): Promise<void> {
    const { scheduler } = this.world;
    await scheduler.run(scheduler.now + TURN_MS, () => false);
  }

  async submit(): Promise<void> {
    const ingest = startIngestProcess(this.world, this.world.newProcess('ingest', 0));
    const fields = { email: 'Person@example.com', ein: '100000000', valid: true, key: null };
    const sent = ingest.submit(fields);
    await this.world.scheduler.run(Infinity, () => sent.answer !== undefined);
    await this.turn();
  }

  /** A processor works until `done`. */
  async work(done = ({ state }: Stage['record']): boolean => !isOpen(state)): Promise<void> {
    const { scheduler } = this.world;
    const process = this.world.newProcess('processor', 0);
    startProcessor(this.world, process);
    await scheduler.run(scheduler.now + WORKS_FOR_MS, () => done(this.record));
    await this.turn();
    process.alive = false;
  }

  async giveUp(): Promise<void> {
    const { store } = this.world.connect(this.world.newProcess('processor', 0), 'processor');
    const given = store.claim(ID, this.record.version).then((record) => {
      const reason = { code: 'relay_unusable', words: 'the relay' } as const;
      const changes = { reason, ...asLastError(reason) };
      return store.move(record!, 'give_up', 1, changes);
    });
    await this.world.scheduler.run(Infinity, () => this.record.state === 'dead_lettered');
    await this.turn();
    await given;
  }

  get record() {
    return this.world.records()[0]!;
  }

  /** Begins the command; the answer to its call number `makes` waits for `goOn`. */
  begin(event: OrderEvent, address: string, makes = Infinity) {
    const { world } = this;
    const going = Promise.withResolvers<void>();
    const order = {
      event,
      address,
      /** Undefined while it runs, and if it failed. */
      given: undefined as Given | undefined,
      untrue: undefined as string | undefined,
      mailsBefore: world.relay.mails.length,
      /** The numbers of the calls that changed something. */
      writes: [] as number[],
      goOn: going.resolve,
    };
    let calls = 0;
    const stored = () => [...world.requests.all(), ...world.accounts.all()];
    const wire: Wire = async (execute) => {
      const call = (calls += 1);
      const before = stored();
      world.mongo.caller = 'operator';
      const result = execute();
      const after = stored();
      if (after.length !== before.length || after.some((one) => !before.includes(one)))
        order.writes.push(call);
      if (call === makes) await going.promise;
      return result;
    };
    const db = databaseOf({
      [SUBMISSIONS]: driverOf(world.requests, wire),
      [ACCOUNTS]: driverOf(world.accounts, wire),
      [TEST_ACCOUNTS]: driverOf(new MemoryCollection(), wire),
      [PARTNER_HOLDS]: driverOf(world.holds, wire),
    });
    const clock = world.scheduler.clockOf(world.newProcess('operator', 0));
    if (event === 'correct_address') world.corrected.add(ID);
    if (event === 'reopen') world.reopens.push({ requestId: ID, until: Infinity });
    void commandsOn(world, { db, clock })(ID, event, address).then(
      (given) => {
        order.given = given;
        if (
          given.whyNot?.includes('has the address') &&
          !stored().some((one) => one['email'] === address)
        )
          order.untrue = given.whyNot;
      },
      () => {},
    );
    return order;
  }

  /** Gives the whole command. */
  async give(event: OrderEvent, address = ''): Promise<Order> {
    const order = this.begin(event, address);
    await this.turn();
    return order;
  }

  async repeat({ event, address }: Order): Promise<void> {
    for (let tries = 0; tries < TRIES; tries += 1) {
      const order = await this.give(event, address);
      await this.work();
      if (!isLeft(order) && !isChanged(order.given!)) return;
    }
    throw new Violation(`${event} ends at no try`);
  }

  /** What was told to be mailed is mailed, unless the other order ended it. */
  judgeTold({ event, given, untrue, address, mailsBefore }: Order, other: Order): void {
    if (untrue !== undefined) throw new Violation(`it is untrue that ${untrue}`);
    const { told } = given ?? {};
    const isCorrected = told?.result === 'corrected';
    const isMailed = isCorrected || (told?.to === 'account_created' && told.result === undefined);
    const ends = ['close', 'erase', ...(isCorrected ? ['correct_address'] : [])];
    if (!isMailed || (other.given?.told !== undefined && ends.includes(other.event))) return;
    const mails = this.world.relay.mails.slice(mailsBefore);
    if (!mails.some(({ to }) => !isCorrected || to === address))
      throw new Violation(`${event} printed that it is mailed, and it is ${this.record.state}`);
  }

  judge(): void {
    if (isOpen(this.record.state)) throw new Violation(`it is still ${this.record.state}`);
    if (this.#violations[0] !== undefined) throw this.#violations[0];
    judge(this.world);
  }
}
