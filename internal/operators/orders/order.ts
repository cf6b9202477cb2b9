/**
 * Operators' orders: a target is selected, planned, and changed only if it is still the same.
 * `view/order-words.ts` has what commands and the console print.
 */
import { createHash } from 'node:crypto';
import { z } from 'zod';
import { AccountCorrections } from '../../account/account-corrections.ts';
import { AccountQueries } from '../../account/account-store.ts';
import { isEmailAddress } from '../../application/fields.ts';
import type { Trail } from '../trail/trail.ts';
import { PartnerHolds } from '../../partner/flags.ts';
import { KeyStore } from '../../partner/key-store.ts';
import { InstallationStore } from '../../installation/installation.ts';
import type { Clock } from '../../platform/process/clock.ts';
import type { MoveTools } from '../../submission/move-of.ts';
import { PutAside } from '../../self-audit/walk.ts';
import { OperatorMoves } from '../../submission/operator-moves.ts';
import { SupportQueries } from '../../submission/support-queries.ts';
import type { About, Words } from '../view/order-words.ts';
import type { Plan } from '../view/plans.ts';
import { text, WHY_MAX } from '../view/search-fields.ts';
import type { Register } from './register.ts';

export { OrderRefused } from './order-refused.ts';

interface StoreTools extends MoveTools {
  /** Undefined where none is named. */
  readonly register?: Register | undefined;
}

/** The stores of orders, except the trail, which needs the operator's name. */
export function storesOf(tools: StoreTools) {
  const { db, register } = tools;
  return {
    register,
    submissions: new SupportQueries(db),
    accounts: new AccountQueries(db),
    installation: new InstallationStore(tools),
    keys: new KeyStore(tools),
    holds: new PartnerHolds(tools),
    moves: new OperatorMoves(tools),
    corrections: new AccountCorrections(tools),
    aside: new PutAside(db),
  };
}

export type OrderStores = ReturnType<typeof storesOf> & { readonly trail: Trail };

export interface OrderContext {
  readonly stores: OrderStores;
  readonly clock: Clock;
  /** Without it, personal data is masked. */
  readonly reveal?: boolean;
}

/** What an operator enters. */
export interface Given {
  /** A request's or account's id, or a reference; absent in an order of many. */
  readonly id?: string;
  /** An applicant's address: the right one, or that of a bounced e-mail. */
  readonly email?: string;
  /** A bounced e-mail's Message-ID; `status` is the bounce's code. */
  readonly messageId?: string;
  readonly status?: string;
  readonly partner?: string;
  readonly key?: string;
  /** Of partner keys: `namespace:NAME` or `directory:PATH`. */
  readonly source?: string;
  readonly why?: string;
}

/** Checks what operators type in a command or a form. */
export const givenFields = {
  email: z.string().trim().refine(isEmailAddress, 'It is not a valid e-mail address.'),
  status: z.string().regex(/^[245]\.\d{1,3}\.\d{1,3}$/, 'It must be like 5.1.1.'),
  why: text(WHY_MAX),
} as const;

/** `nothing` says that the order was carried out before. */
export interface OrderPlan extends Omit<Plan, 'to'> {
  readonly to?: string;
  readonly nothing?: string;
}

/** An order with its target, as a command and a page show it. */
export interface OpenOrder {
  readonly plan: OrderPlan;
  readonly words: Words;
  /** Differs once the target has changed. */
  readonly seen: string;
  /**
   * Acts, with an entry in the trail. False if the target has changed. `begin` may throw before
   * the change.
   */
  readonly act: (begin?: () => void) => Promise<boolean>;
}

/** Selects the target and plans; changes nothing. Throws `OrderRefused`. */
export type Order = (given: Given, context: OrderContext) => Promise<OpenOrder>;

/** `name` is the order's in the trail. */
export function openOrder(
  name: string,
  order: Pick<OpenOrder, 'plan' | 'words'> & {
    readonly seen: readonly unknown[];
    /** False if the target has changed since it was selected. */
    act(): Promise<boolean>;
  },
  { stores }: OrderContext,
): OpenOrder {
  const { plan, words } = order;
  return {
    plan,
    words,
    seen: createHash('sha256')
      .update(JSON.stringify([name, ...order.seen]))
      .digest('hex'),
    act: (begin) =>
      stores.trail.record({ action: name, ...words.about }, async () => {
        begin?.();
        const { keyId, partnerId, accountId, requestId } = words.about;
        const subject = keyId ?? partnerId ?? accountId ?? requestId;
        const act = () => order.act();
        return stores.register ? stores.register.ordering(name, subject, act) : act();
      }),
  };
}

/** By their names in the trail. */
const FINAL = ['close', 'account release', 'keys revoke', 'erase'];

/** Whether the order cannot be undone. */
export const isFinal = (name: string): boolean => FINAL.includes(name);

/** A write of several targets does not say which of them had changed: then each is `unsure`. */
export type Outcome = 'possible' | 'done' | 'unsure' | 'left';

export interface ManyOrder<T> {
  readonly action: string;
  /** Each page is read when the one before is done. */
  readonly pages: AsyncIterable<readonly T[]> | Iterable<readonly T[]>;
  /** How many targets one call of `act` takes. */
  readonly size: number;
  /** If false, only says what would happen. */
  readonly acts: boolean;
  /** Undefined if the order is not about the target. */
  plan(target: T): OrderPlan | undefined;
  /** Returns how many targets were done; one that changed since its plan is left alone. */
  act(targets: readonly T[]): Promise<number>;
  /** What the trail notes: a function gives an entry for each page, a value the only entry. */
  readonly about: About | ((targets: readonly T[]) => About);
  each(target: T, plan: OrderPlan, outcome: Outcome): void;
  /** Called after each page. */
  paged(size: number): void;
}

export interface Tally<T> {
  looked: number;
  possible: number;
  done: number;
  reached?: T | undefined;
  isStopped: boolean;
}

interface Planned<T> {
  readonly target: T;
  readonly plan: OrderPlan;
}

const possibleOf = <T>(some: readonly Planned<T>[]): T[] =>
  some.flatMap(({ target, plan }) => (plan.to === undefined ? [] : [target]));

/** `tally` is right also after a failure. A stop ends the order between two pages. */
export async function runMany<T>(
  order: ManyOrder<T>,
  tally: Tally<T>,
  trail: Pick<Trail, 'record'>,
  stop: AbortSignal,
): Promise<void> {
  const { action, about, acts, size } = order;
  const noted = (one: About | undefined, act: () => Promise<number>): Promise<number> =>
    one === undefined || !acts ? act() : trail.record({ action, ...one }, act);
  const runPage = async (page: readonly T[]): Promise<void> => {
    const plans = page.flatMap((target) => {
      const plan = order.plan(target);
      return plan === undefined ? [] : [{ target, plan }];
    });
    const possible = possibleOf(plans);
    const entry = typeof about === 'function' && possible.length > 0 ? about(possible) : undefined;
    await noted(entry, async () => {
      const before = tally.done;
      for (let from = 0; from < plans.length; from += size)
        await runSome(plans.slice(from, from + size), order, tally);
      return tally.done - before;
    });
  };
  await noted(typeof about === 'function' ? undefined : about, async () => {
    for await (const page of order.pages) {
      tally.reached = page[0];
      tally.isStopped = stop.aborted;
      if (tally.isStopped) break;
      await runPage(page);
      order.paged(page.length);
    }
    return tally.done;
  });
}

async function runSome<T>(
  some: readonly Planned<T>[],
  order: ManyOrder<T>,
  tally: Tally<T>,
): Promise<void> {
  const possible = possibleOf(some);
  tally.reached = some[0]?.target;
  tally.looked += some.length;
  tally.possible += possible.length;
  const done = order.acts && possible.length > 0 ? await order.act(possible) : 0;
  tally.done += done;
  const sure = done === possible.length ? 'done' : 'unsure';
  const outcome = order.acts ? sure : 'possible';
  for (const { target, plan } of some)
    order.each(target, plan, plan.to === undefined ? 'left' : outcome);
}
