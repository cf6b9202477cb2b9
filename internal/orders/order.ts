/**
 * Orders of operators: a target is selected, planned, and done as it was selected. A command and a
 * page of the console print what happens.
 */
import { createHash } from 'node:crypto';
import { z } from 'zod';
import type { AccountCorrections } from '../account/account-corrections.ts';
import { isEmailAddress } from '../application/email-address.ts';
import type { OperatorAction, Trail } from '../trail/trail.ts';
import type { PartnerHolds } from '../partner/flags.ts';
import type { KeyStore } from '../partner/key-store.ts';
import type { Clock } from '../platform/process/clock.ts';
import type { OperatorMoves } from '../submission/operator-moves.ts';
import type { Plan } from '../view/plans.ts';
import type { Reads } from '../view/reads.ts';
import { text, WHY_MAX } from '../view/search-fields.ts';

export interface OrderDesk extends Omit<Reads, 'accountRequestsKeptMs'> {
  readonly keys: KeyStore;
  readonly holds: PartnerHolds;
  readonly moves: OperatorMoves;
  readonly corrections: AccountCorrections;
  readonly trail: Trail;
}

export interface Office {
  readonly desk: OrderDesk;
  readonly clock: Clock;
}

/** What a person names. */
export interface Given {
  /** Of a request, its reference or its account; absent in an order of many. */
  readonly id?: string;
  /** The right address of an applicant. */
  readonly address?: string;
  /** Of an e-mail that came back: its Message-ID, its address, and the bounce's status. */
  readonly messageId?: string;
  readonly email?: string;
  readonly status?: string;
  readonly partner?: string;
  readonly key?: string;
  readonly why?: string;
}

/** As people type it in a command or a form. */
export const givenFields = {
  address: z.string().trim().refine(isEmailAddress, 'It is not a valid e-mail address.'),
  status: z.string().regex(/^[245]\.\d{1,3}\.\d{1,3}$/, 'It must be like 5.1.1.'),
  why: text(WHY_MAX),
} as const;

/** What is named is missing, or cannot be had. */
export class OrderRefused extends Error {
  override readonly name = 'OrderRefused';
}

/** `nothing` says that the order was carried out before. */
export interface OrderPlan extends Omit<Plan, 'to'> {
  readonly to?: string;
  readonly nothing?: string;
}

export type About = Omit<OperatorAction, 'action'>;

export interface Words {
  /** Begins the sentences that say why not. */
  readonly subject: string;
  readonly about: About;
  readonly notes?: readonly string[];
  /** `done` where it is absent. */
  readonly would?: string;
  readonly done: string;
  /** Why a target that has changed since it was selected was left. */
  readonly unchanged?: OrderPlan;
  /** The same for programs. */
  readonly json: { readonly dry?: object; readonly done: object };
}

/** An order about one target. */
export interface OneOrder<T> {
  /** In the trail. */
  readonly name: string;
  /** It cannot be undone. */
  readonly final?: true;
  /** Throws `OrderRefused`. */
  select(given: Given, office: Office): Promise<T>;
  /** Differs once the target has changed. */
  seen(target: T): readonly unknown[];
  plan(target: T, given: Given, office: Office): OrderPlan;
  /** False if the target has changed since it was selected. */
  act(target: T, given: Given, office: Office): Promise<boolean>;
  /** `to` is what its plan leads to; without `reveal`, personal data is masked. */
  words(target: T, given: Given, shown: { readonly to?: string; readonly reveal: boolean }): Words;
}

/** An order with its target, as a command and a page show it. */
export interface OpenOrder {
  readonly plan: OrderPlan;
  readonly words: Words;
  /** Differs once the target has changed. */
  readonly seen: string;
  /** Notes it in the trail. False if the target has changed. `begin` may throw before the change. */
  act(begin?: () => void): Promise<boolean>;
}

/** Throws `OrderRefused`. */
export async function openOrder<T>(
  order: OneOrder<T>,
  given: Given,
  office: Office,
  { reveal }: { readonly reveal: boolean },
): Promise<OpenOrder> {
  const target = await order.select(given, office);
  const plan = order.plan(target, given, office);
  const words = order.words(target, given, { ...plan, reveal });
  const seen = JSON.stringify([order.name, ...order.seen(target)]);
  return {
    plan,
    words,
    seen: createHash('sha256').update(seen).digest('hex'),
    act: (begin) =>
      office.desk.trail.record({ action: order.name, ...words.about }, () => {
        begin?.();
        return order.act(target, given, office);
      }),
  };
}

/** A write of several targets does not say which of them had changed: then each is `unsure`. */
export type Outcome = 'possible' | 'done' | 'unsure' | 'left';

/** An order about many targets. */
export interface ManyOrder<T> {
  readonly action: string;
  /** Each page is read when the one before is done. */
  readonly pages: AsyncIterable<readonly T[]> | Iterable<readonly T[]>;
  /** How many targets one call of `act` takes. */
  readonly size: number;
  /** If false, it says what would happen. */
  readonly acts: boolean;
  /** Undefined if the order is not about the target. */
  plan(target: T): OrderPlan | undefined;
  /** Returns how many targets were unchanged and done. */
  act(targets: readonly T[]): Promise<number>;
  /** For the trail: of a page, or of the whole order, which then is one entry. */
  readonly about: About | ((targets: readonly T[]) => About);
  each(target: T, plan: OrderPlan, outcome: Outcome): void;
  /** Of a page that is done. */
  paged(size: number): void;
}

export interface Tally<T> {
  looked: number;
  possible: number;
  done: number;
  reached?: T | undefined;
  isStopped: boolean;
}

/** `tally` is right also after a failure. A stop ends the order between two pages. */
export async function runMany<T>(
  order: ManyOrder<T>,
  tally: Tally<T>,
  trail: Pick<Trail, 'record'>,
  stop: AbortSignal,
): Promise<void> {
  const { about } = order;
  const noted = async (one: About | undefined, act: () => Promise<number>): Promise<void> => {
    if (one === undefined || !order.acts) await act();
    else await trail.record({ action: order.action, ...one }, act);
  };
  await noted(typeof about === 'function' ? undefined : about, async () => {
    for await (const page of order.pages) {
      tally.reached = page[0];
      tally.isStopped = stop.aborted;
      if (tally.isStopped) break;
      await runPage(page, order, tally, noted);
      order.paged(page.length);
    }
    return tally.done;
  });
}

async function runPage<T>(
  page: readonly T[],
  order: ManyOrder<T>,
  tally: Tally<T>,
  noted: (about: About | undefined, act: () => Promise<number>) => Promise<void>,
): Promise<void> {
  const { about, size } = order;
  const plans = page.flatMap((target) => {
    const plan = order.plan(target);
    return plan === undefined ? [] : [{ target, plan }];
  });
  const possible = plans.flatMap(({ target, plan }) => (plan.to === undefined ? [] : [target]));
  const entry = typeof about === 'function' && possible.length > 0 ? about(possible) : undefined;
  await noted(entry, async () => {
    const before = tally.done;
    for (let from = 0; from < plans.length; from += size)
      await runSome(plans.slice(from, from + size), order, tally);
    return tally.done - before;
  });
}

async function runSome<T>(
  some: readonly { readonly target: T; readonly plan: OrderPlan }[],
  order: ManyOrder<T>,
  tally: Tally<T>,
): Promise<void> {
  const possible = some.flatMap(({ target, plan }) => (plan.to === undefined ? [] : [target]));
  tally.reached = some[0]?.target;
  tally.looked += some.length;
  tally.possible += possible.length;
  const done = order.acts && possible.length > 0 ? await order.act(possible) : 0;
  tally.done += done;
  const sure = done === possible.length ? 'done' : 'unsure';
  for (const { target, plan } of some)
    order.each(target, plan, plan.to === undefined ? 'left' : order.acts ? sure : 'possible');
}
