/** A simulated operator with the commands of internal/operators/cli. */
import { AccountCorrections } from '../../internal/account/account-corrections.ts';
import { AccountQueries } from '../../internal/account/account-store.ts';
import { PartnerHolds } from '../../internal/partner/flags.ts';
import type { OperatorAction } from '../../internal/operators/trail/trail.ts';
import {
  CommandError,
  EXIT,
  type Call,
  type Command,
  type Report,
} from '../../internal/operators/cli/command.ts';
import { erase } from '../../internal/operators/cli/erase.ts';
import {
  bounce,
  close,
  correctEmail,
  release,
  reopen,
  resend,
  retry,
} from '../../internal/operators/cli/orders.ts';
import { applicantOf } from '../../internal/operators/orders/erase.ts';
import { OrderRefused } from '../../internal/operators/orders/order.ts';
import { OperatorMoves } from '../../internal/submission/operator-moves.ts';
import { SupportQueries } from '../../internal/submission/support-queries.ts';
import { bulkOrders, type BulkOrder, type OrderEvent } from './plan.ts';
import { watchTold, type Told } from './told.ts';
import { retention, type World } from './world.ts';

const commands = {
  retry,
  resend,
  correct_address: correctEmail,
  release,
  erase,
  close,
  reopen,
  bounce,
} as const;
const AGAIN_MS = 3_000;
const never = new AbortController().signal;

type SingleOrder = Exclude<OrderEvent, BulkOrder>;

export type Operator = ReturnType<typeof startOperator>;

/** How a command ended: what it printed as done, else why it did nothing. */
export interface Given {
  readonly told?: Told;
  readonly code: Report['code'];
  readonly whyNot?: string;
}

export const isChanged = ({ whyNot = '' }: Given): boolean => whyNot.includes('changed meanwhile');

/** Gives one command by its own code. Rejects if the database fails. */
export function commandsOn(
  world: World,
  { db, clock }: Pick<ReturnType<World['connect']>, 'db' | 'clock'>,
) {
  const moves = new OperatorMoves({ db, retention, clock });
  const corrections = new AccountCorrections({ db, clock });
  const [submissions, accounts] = [new SupportQueries(db), new AccountQueries(db)];
  const holds = new PartnerHolds({ db, clock });

  const noteErasure = (requestId: string | undefined): void => {
    const record = world.records().find(({ _id }) => _id === requestId);
    const person = record === undefined ? undefined : applicantOf(record).email;
    if (person === undefined) return;
    world.erasedPeople.add(person);
    for (const one of world.records())
      if (applicantOf(one).email === person) world.toErase.set(one._id, requestId);
  };
  const trail = {
    by: 'somebody',
    record: async <T>({ action, requestId }: OperatorAction, act: () => Promise<T>) => {
      if (action === 'erase') noteErasure(requestId);
      return act();
    },
  };
  const stores = { submissions, accounts, moves, corrections, holds, trail };
  return async (requestId: string, event: OrderEvent, address: string): Promise<Given> => {
    const isBulk = event in bulkOrders;
    const [name, state] = isBulk ? bulkOrders[event as BulkOrder] : [event as SingleOrder];
    const command: Command = commands[name];
    const positionals = isBulk ? [] : [requestId, address];
    // Some bounces say nothing of the applicant's mailbox.
    const status = /[13579]$/.test(requestId) ? '5.7.1' : '5.1.1';
    const values = { yes: true, json: true, why: 'an order', request: requestId, state, status };
    const since = world.scheduler.now;
    const call = { positionals, values, stores, clock, note: () => {}, stop: never };
    try {
      const report = (await command.run(call as unknown as Call)) as Report;
      const told = report.json as Told;
      watchTold(world, told, since);
      if (report.fault !== undefined) throw report.fault;
      return { told, code: report.code };
    } catch (error) {
      if (!(error instanceof CommandError || error instanceof OrderRefused)) throw error;
      return { code: EXIT.ok, whyNot: error.message };
    }
  };
}

export function startOperator(world: World, skewMs: number) {
  const process = world.newProcess('operator', skewMs);
  const connection = world.connect(process, 'operator');
  const { holds } = connection;
  const give = commandsOn(world, connection);
  /** Gives the command; returns true if nothing is left to do. */
  const order = async (requestId: string, event: OrderEvent, address: string): Promise<boolean> => {
    const given = await give(requestId, event, address);
    if (isChanged(given)) return false;
    // A bulk order may match nothing or meet a claim.
    return (
      (given.code ?? EXIT.ok) === EXIT.ok || (event in bulkOrders && given.code === EXIT.found)
    );
  };
  let open = 0;
  let orders = 0;
  let holding = Promise.resolve();
  const untilDone = async (act: () => Promise<boolean>): Promise<void> => {
    while (!(await act().catch(() => false))) await world.scheduler.pause(AGAIN_MS);
    open -= 1;
  };
  const start = (run: () => void): void => {
    open += 1;
    world.scheduler.after(0, run, process);
  };
  return {
    /** Gives the order, and repeats it after a failure or a change. */
    order: (requestId: string, event: OrderEvent): void => {
      orders += 1;
      const address = `Corrected.${orders}.${requestId}@example.com`;
      if (event === 'correct_address') world.corrected.add(requestId);
      const reopening = { requestId, until: Infinity };
      if (event === 'reopen') world.reopens.push(reopening);
      start(() => {
        void untilDone(() => order(requestId, event, address)).then(() => {
          reopening.until = world.scheduler.now;
        });
      });
    },
    hold: (onHold: boolean): void => {
      world.placesMayChange = true;
      const setHold = async (): Promise<boolean> => {
        await holds.change('demo', onHold, 'somebody');
        return true;
      };
      start(() => {
        holding = holding.then(() => untilDone(setHold));
      });
    },
    atRest: () => open === 0,
  };
}
