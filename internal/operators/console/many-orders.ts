/** Orders of many: planned in the background, confirmed by typing, and stopped at will. */
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { openErasure } from '../orders/erase.ts';
import { bulkOf, bulkOrders, listing, type BulkName, type Many, type Row } from '../orders/many.ts';
import {
  givenFields,
  OrderRefused,
  runMany,
  type OrderContext,
  type OrderPlan,
  type Tally,
} from '../orders/order.ts';
import type { Clock } from '../../platform/process/clock.ts';
import { withDeadline } from '../../platform/process/deadline.ts';
import { defined } from '../../platform/process/defined.ts';
import { newId, timeOfId } from '../../platform/stores/ids.ts';
import type { Search } from '../../submission/support-queries.ts';
import { ORDER_ENDS_WITHIN_MS, type TrailEntry } from '../trail/trail.ts';
import { BACKUPS_HOLD, erasureNotes, type About, type RequestTarget } from '../view/order-words.ts';
import { rowOf } from '../view/search.ts';
import { WHY_MAX } from '../view/search-fields.ts';
import { bulksOf, bulkTitle, chipsOf, listOf, queryOf, searchOf } from './lists.ts';
import { backTo, faultOf, NOT_ALLOWED, ofRequest, refuse, type OrderParts } from './orders.ts';
import { filledIn } from './routes.ts';
import { LIMITED, type ConsolePerson } from './sign-in.ts';

/** Each reads whole pages of records; further ones are refused. */
const AT_ONCE = 2;
/** Some MB: each may remember `TARGETS_MAX` ids. */
const KEPT = 20;
/** Of a plan and of what ended. */
const KEPT_MS = 3_600_000;
/** Of a plan or a run; an erasure of ten million requests takes less. */
const PHASE_MS = (ORDER_ENDS_WITHIN_MS - KEPT_MS) / 2;
/** Requests of a plan: as many as the CSV of a list has. */
const TARGETS_MAX = 5_000;
/** Requests a second, so that a stop comes in time. */
const RATE = 100;
const LISTED = 50;
/** Causes of a plan that are told apart. */
const CAUSES_NAMED = 20;
/** While the console closes. */
const STOPS_WITHIN_MS = 3_000;
/** Each is of one target at least. */
const ENTRIES_READ = TARGETS_MAX;

const CHANGED: OrderPlan = { whyNot: 'changed since the plan' };

/** An order of many and how far it came. */
interface ManyWork {
  readonly id: string;
  readonly name: BulkName | 'erase';
  /** `count` is absent as long as it is not known. */
  readonly title: (count?: number) => string;
  /** What it is about, in words. */
  readonly scope: string;
  readonly by: ConsolePerson;
  readonly why: string;
  readonly back: ReturnType<typeof backTo>;
  /** What confirms it; the number of the plan if absent. */
  readonly typed?: string;
  readonly run: (acts: boolean, work: ManyWork, context: OrderContext) => Promise<void>;
  phase: 'planning' | 'planned' | 'acting' | 'ended';
  stop: AbortController;
  stoppedBy: string | undefined;
  readyAt?: Date;
  tally: Tally<unknown>;
  /** Of the plan. */
  planned?: number;
  rows: Row[];
  causes: Map<string, { count: number; readonly partners: Set<string> }>;
  /** How many go from one state to another. */
  moves: Map<string, number>;
  read: number;
  total?: number | undefined;
  /** Given to the database, which has not answered. */
  inHand: number;
  notes: readonly string[];
  fault?: string;
  ending?: Promise<void>;
}

type AskedMany = Pick<ManyWork, 'name' | 'title' | 'scope' | 'back' | 'run' | 'typed'>;

/** Runs the order; `paged` says how far it came. */
async function follow<T>(
  order: Many<T>,
  work: ManyWork,
  { stores }: OrderContext,
  paged: (size: number) => void,
): Promise<void> {
  const { about } = order;
  const named = (one: About): About => ({ ...one, order: work.id });
  await runMany<T>(
    {
      ...order,
      about: typeof about === 'function' ? (targets) => named(about(targets)) : named(about),
      act: async (targets) => {
        work.inHand = targets.length;
        const done = await order.act(targets);
        work.inHand = 0;
        return done;
      },
      each: listing(order, work.rows, LISTED),
      paged,
    },
    work.tally as Tally<T>,
    stores.trail,
    work.stop.signal,
  );
}

/** Does only what was planned: what came or changed since then is left. */
function bulkRun(name: BulkName, search: Search, why: string): ManyWork['run'] {
  const planned = new Map<string, string>();
  return async (acts, work, context) => {
    const { tally } = work;
    if (acts) work.total = planned.size;
    else
      void context.stores.submissions.count(search).then((count) => {
        if (work.planned === undefined) work.total = count;
      });
    const [first = '', last = ''] = [[...planned.keys()][0], [...planned.keys()].at(-1)];
    const bulk = bulkOf(
      name,
      {
        search: acts ? { ...search, ...defined({ since: timeOfId(first) }) } : search,
        given: { why },
        acts,
        limit: Infinity,
        rate: acts ? RATE : Infinity,
        stop: work.stop.signal,
        total: undefined,
      },
      context,
    );
    let reached = '';
    const isFull = (): boolean => planned.size >= TARGETS_MAX;
    const plan = (target: RequestTarget): OrderPlan | undefined => {
      const { _id, state, version } = target.record;
      reached = _id;
      const [seen, now] = [planned.get(_id), `${state} ${version}`];
      if (acts ? seen === undefined : isFull()) return undefined;
      const one = acts && seen !== now ? CHANGED : bulk.plan(target)!;
      if (!acts && one.to !== undefined) planned.set(_id, now);
      return one;
    };
    // Oldest first.
    const pages = untilDone(bulk.pages, () => (acts ? reached >= last : isFull()));
    const row = rowIn(work, bulk);
    await follow({ ...bulk, plan, pages, row }, work, context, () => {
      work.read = tally.looked;
    });
    const gone = acts && !tally.isStopped ? planned.size - tally.looked : 0;
    const { waiting } = bulk.counts;
    work.notes = [
      ...(waiting > 0 ? [`${waiting} wait until their partners are released from hold`] : []),
      ...(gone > 0
        ? [`${gone} ${gone === 1 ? 'is' : 'are'} no longer on the list: changed since the plan`]
        : []),
      ...(!acts && isFull()
        ? [
            `at most ${TARGETS_MAX} at a time, the oldest first: plan again with the same reason for those after them`,
          ]
        : []),
    ];
  };
}

/** Also counts what a plan can do, by cause and by states. */
function rowIn({ causes, moves }: ManyWork, bulk: Many<RequestTarget>): typeof bulk.row {
  return (target, plan, outcome) => {
    const { json, cells } = bulk.row(target, plan, outcome);
    const [id = '', move = '', result = ''] = cells;
    const { partnerId = '' } = target.record;
    const { partner, whyInWords: why } = rowOf(target.record, false);
    if (outcome === 'possible') {
      const cause = causes.has(why) || causes.size < CAUSES_NAMED ? why : 'other causes';
      const { count, partners } = causes.get(cause) ?? { count: 0, partners: new Set() };
      causes.set(cause, { count: count + 1, partners: partners.add(partnerId) });
      moves.set(move, (moves.get(move) ?? 0) + 1);
    }
    return { json, cells: [id, partner, why, result] };
  };
}

async function* untilDone<T>(
  pages: AsyncIterable<T> | Iterable<T>,
  isDone: () => boolean,
): AsyncGenerator<T> {
  for await (const page of pages) {
    yield page;
    if (isDone()) return;
  }
}

/** Erases only the applicant of the plan, also what came since. */
function erasureRun(id: string): ManyWork['run'] {
  let whose: string | undefined;
  return async (acts, work, context) => {
    const erasure = await openErasure({ id }, acts, context);
    const { order, isLeft, alike, unregistered, person } = erasure;
    if (acts && whose !== person.email)
      throw new OrderRefused(`${id} has another e-mail address since the plan: make it again`);
    whose = person.email;
    work.total = order.total;
    await follow(order, work, context, (size) => {
      work.read += size;
    });
    const found = work.tally.isStopped ? undefined : await alike();
    const how = 'from their own pages';
    work.notes = [
      ...erasureNotes({ isLeft: isLeft(), alike: found, how, unregistered }),
      ...(acts ? [BACKUPS_HOLD] : []),
    ];
  };
}

const isRunning = ({ phase }: ManyWork): boolean => phase === 'planning' || phase === 'acting';

const unbegun = () => ({
  stop: new AbortController(),
  stoppedBy: undefined,
  tally: { looked: 0, possible: 0, done: 0, isStopped: false },
  rows: [],
  causes: new Map(),
  moves: new Map(),
  read: 0,
  inHand: 0,
  notes: [],
});

/** The orders of many that this console plans and runs. */
class Works {
  readonly #all = new Map<string, ManyWork>();
  readonly #parts: OrderParts;
  readonly #clock: Clock;

  constructor(parts: OrderParts, clock: Clock) {
    this.#parts = parts;
    this.#clock = clock;
  }

  /** Undefined if too many run. */
  start(asked: AskedMany, by: ConsolePerson, why: string): ManyWork | undefined {
    if (this.#isBusy()) return undefined;
    const id = newId('ord', this.#clock.now());
    const work: ManyWork = { ...asked, id, by, why, phase: 'planning', ...unbegun() };
    this.#all.set(id, work);
    for (const one of this.#all.values())
      if (this.#all.size > KEPT && !isRunning(one)) this.#all.delete(one.id);
    setTimeout(() => this.#all.delete(id), ORDER_ENDS_WITHIN_MS).unref();
    this.#run(work, false);
    return work;
  }

  /** Carries out what was planned; false if too many run. */
  confirm(work: ManyWork): boolean {
    if (this.#isBusy()) return false;
    Object.assign(work, { planned: work.tally.possible, phase: 'acting', ...unbegun() });
    this.#run(work, true);
    return true;
  }

  /** A plan that is too old is gone. */
  of(id: string): ManyWork | undefined {
    const work = this.#all.get(id);
    const ageMs = this.#clock.now().getTime() - (work?.readyAt?.getTime() ?? 0);
    return work?.phase === 'planned' && ageMs > KEPT_MS ? undefined : work;
  }

  /** What is in hand is finished, the rest is left. */
  async close(): Promise<void> {
    for (const one of this.#all.values()) stop(one, 'the console, which was closed');
    const endings = Promise.all([...this.#all.values()].map(async ({ ending }) => ending));
    await withDeadline(endings, STOPS_WITHIN_MS, 'orders of many').catch(() => undefined);
  }

  #isBusy(): boolean {
    return [...this.#all.values()].filter(isRunning).length >= AT_ONCE;
  }

  #run(work: ManyWork, acts: boolean): void {
    const context = this.#parts.orderContextOf(work.by, work.why);
    const late = setTimeout(() => stop(work, 'its time, which was over'), PHASE_MS);
    work.ending = work
      .run(acts, work, context)
      .catch((error: unknown) => {
        work.fault = error instanceof OrderRefused ? error.message : faultOf(error, this.#parts);
      })
      .finally(() => {
        clearTimeout(late);
        const isPlanned = !acts && work.fault === undefined && !work.tally.isStopped;
        work.phase = isPlanned ? 'planned' : 'ended';
        work.readyAt = this.#clock.now();
      });
  }
}

function stop(work: ManyWork, who: string): void {
  if (!isRunning(work)) return;
  work.stoppedBy ??= who;
  work.stop.abort();
}

export function addManyOrders(
  app: FastifyInstance,
  parts: OrderParts & { readonly clock: Clock },
): void {
  const works = new Works(parts, parts.clock);
  app.addHook('onClose', () => works.close());
  const isOperator = ({ person }: FastifyRequest): boolean => person!.role === 'operator';
  const to = (reply: FastifyReply, { id }: ManyWork) => reply.redirect(`/orders/many/${id}`, 303);

  app.get('/orders/erase/:id', (request, reply) => {
    if (!isOperator(request)) return reply.say(403, NOT_ALLOWED);
    const about = ofRequest((request.params as { readonly id: string }).id);
    if (about === undefined) return reply.callNotFound();
    const { title, scope, back } = erasureAsked(about.id);
    return reply.page('many', { title: title(), scope, back, whyMax: WHY_MAX, start: about.id });
  });

  app.post('/orders/many', LIMITED, (request, reply) => {
    const form = filledIn(request.body as object);
    const asked = askedIn(form, parts.clock.now());
    const { name = '', request: id = '' } = form;
    if (!isOperator(request)) {
      const called = isBulk(name) || name === 'erase' ? name : 'an order of many';
      return refuse(request, reply, parts, { called, about: ofRequest(id) ?? {} });
    }
    if ('fault' in asked) return reply.say(400, asked.fault, REQUESTS);
    const why = givenFields.why.safeParse(form['why'] ?? '');
    if (!why.success)
      return reply.say(400, `The reason: ${why.error.issues[0]!.message}`, asked.back);
    const work = works.start(asked.of(why.data), request.person!, why.data);
    return work === undefined ? reply.say(409, BUSY, asked.back) : to(reply, work);
  });

  app.get('/orders/many/:id', async (request, reply) => {
    if (!isOperator(request)) return reply.say(403, NOT_ALLOWED);
    const { id } = request.params as { readonly id: string };
    const work = works.of(id);
    if (work !== undefined) return page(reply, work);
    const { trail } = parts.orderContextOf(request.person!).stores;
    const entries = await trail.ofOrder(id, ENTRIES_READ);
    const model = { title: 'Order of many', id, known: countsOf(entries) };
    return reply.page('many', { ...model, status: entries.length === 0 ? 404 : 200 });
  });

  app.post('/orders/many/:id', LIMITED, (request, reply) => {
    const work = works.of((request.params as { readonly id: string }).id);
    const about = { called: work?.name ?? 'an order of many', about: {} };
    if (!isOperator(request)) return refuse(request, reply, parts, about);
    if (work === undefined) return reply.say(409, GONE);
    const { typed = '', stop: stops } = filledIn(request.body as object);
    if (stops !== undefined) stop(work, request.person!.name);
    // A second tab has confirmed it.
    if (stops !== undefined || work.phase !== 'planned') return to(reply, work);
    if (work.by.sub !== request.person!.sub)
      return page(reply, work, { fault: `Only ${work.by.name} may confirm this plan.` }, 403);
    const wanted = work.typed ?? String(work.tally.possible);
    if (typed.replaceAll(/[\s,.']/g, '') !== wanted)
      return page(reply, work, { fault: `It must be ${wanted}.`, sent: typed }, 400);
    return works.confirm(work) ? to(reply, work) : page(reply, work, { fault: BUSY }, 409);
  });
}

const page = (
  reply: FastifyReply,
  work: ManyWork,
  more: object = {},
  status = 200,
): FastifyReply => {
  const { title, phase, planned, tally } = work;
  const count = planned ?? (phase === 'planned' ? tally.possible : undefined);
  return reply.page('many', {
    title: title(count || undefined),
    scope: work.scope,
    back: work.back,
    status,
    work,
    running: isRunning(work),
    wanted: work.typed ?? String(work.tally.possible),
    ...more,
  });
};

const REQUESTS = { href: '/requests', name: 'the requests' };
const BUSY = 'Nothing was begun: two orders of many run. Stop one, or wait until it has ended.';
const GONE =
  'Nothing was changed: this console does not know the plan any more. Make it again from the list or the request.';

const erasureAsked = (id: string): AskedMany => ({
  name: 'erase',
  title: () => 'Erase the applicant',
  scope: `All that is stored of the applicant of ${id}, found by the e-mail address`,
  back: backTo({ requestId: id }),
  typed: id,
  run: erasureRun(id),
});

const isBulk = (name: string): name is BulkName => Object.hasOwn(bulkOrders, name);

function askedIn({ name = '', list = '', request = '' }: ReturnType<typeof filledIn>, now: Date) {
  if (name === 'erase' && ofRequest(request) !== undefined) {
    const asked = erasureAsked(request);
    return { back: asked.back, of: () => asked };
  }
  const { before: _before, ...query } = queryOf(list);
  const { search } = searchOf(query, now);
  const offered = bulksOf(search?.state).find((one) => one.name === name);
  if (search === undefined || offered === undefined || !isBulk(name))
    return { fault: 'Nothing was planned: the list has no such order.' };
  const chips = chipsOf(query).map((one) => `${one.name} ${String(one.value)}`);
  // What comes later is not of the plan.
  const until = search.until ?? now;
  const back = { href: `/requests?${listOf(query)}`, name: 'the list' };
  return {
    back,
    of: (why: string): AskedMany => ({
      name,
      title: (count) => bulkTitle(offered.title, search.state!, count),
      scope: `Requests with ${chips.join(', ')}`,
      back,
      run: bulkRun(name, { ...search, until }, why),
    }),
  };
}

/** What the trail knows of an order that this console does not run. */
function countsOf(entries: readonly TrailEntry[]) {
  const sum = (results: readonly TrailEntry['result'][]): number =>
    entries
      .filter(({ result }) => results.includes(result))
      .reduce((all, { count = 1 }) => all + count, 0);
  const [first] = entries;
  return (
    first && { action: first.action, by: first.by, done: sum(['done']), unsure: sum(['begun']) }
  );
}
