/** The pages: each shows one model of `internal/operators/view`. */
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { z } from 'zod';
import { reasonsForPartner } from '../../application/reasons.ts';
import { kindNamed } from '../../self-audit/rules.ts';
import type { Trail } from '../trail/trail.ts';
import type { Clock } from '../../platform/process/clock.ts';
import { defined } from '../../platform/process/defined.ts';
import { ownerName } from '../../partner/key-terms.ts';
import type { PartnerSums } from '../../traffic/traffic.ts';
import { lookUp, type FoundSubmission } from '../view/look-up.ts';
import {
  keysView,
  partnersView,
  reactivation,
  secretsOf,
  type PartnerView,
} from '../view/partners.ts';
import type { Reads } from '../view/reads.ts';
import { requestView } from '../view/request.ts';
import { deadLettersView, rowOf } from '../view/search.ts';
import { text, typed, when, WHY_MAX } from '../view/search-fields.ts';
import {
  certificationOf,
  chartOf,
  lastErrors,
  NOW_LINES,
  pickedRange,
  rangeNames,
  rangeOf,
  sumsForList,
  trafficForList,
  trafficView,
  worstFirst,
} from '../view/traffic.ts';
import { COUNTED_WITHIN_MS, turnedAwayView } from '../view/turned-away.ts';
import type { Activity } from '../view/activity.ts';
import { addFind } from './find.ts';
import { addRequestLists, addressOf, CSV_ROWS, listOf, placeIn, sendCsv } from './lists.ts';
import { nowView } from '../view/now.ts';
import { LIMITED, mayReveal, type ConsolePerson } from './sign-in.ts';
import { readsInTurns, type InTurn } from './turns.ts';

const TRAIL_PAGE = 50;
const PARTNERS_PAGE = 100;
/** The newest; each cause has a list of all. */
const DEAD_SHOWN = 20;
/** Also of a partner's Secrets. */
const KEYS_PAGE = 100;

export interface ConsoleTools {
  readonly reads: Omit<Reads, 'accountRequestsKeptMs'>;
  /** A trail that names this person. */
  readonly trailOf: (person: ConsolePerson, why?: string) => Pick<Trail, 'revealed' | 'loggedOut'>;
  readonly activity: Activity;
}

type Form = Readonly<Record<string, string>>;

export function addRoutes(app: FastifyInstance, tools: ConsoleTools, clock: Clock): void {
  addNow(app, tools, clock);
  const inTurn = readsInTurns();
  addFind(app, tools, clock, inTurn);
  addRequest(app, tools, clock, inTurn);
  addLists(app, tools, clock, inTurn);
  addPartners(app, tools, clock, inTurn);
  addPartner(app, tools, clock, inTurn);
  addReasonsFile(app, tools, clock, inTurn);
  addRequestLists(app, tools, clock, inTurn);
}

function addNow(app: FastifyInstance, { activity }: ConsoleTools, clock: Clock): void {
  app.get('/', (_, reply) => {
    const { traffic, at = clock.now() } = activity.stored;
    const view = nowView(activity, clock.now());
    return reply.page('now', {
      title: 'Now',
      view,
      // As of the reading: a minute that had just begun then has not ended in it.
      chart: chartOf(traffic?.minutes ?? [], NOW_LINES, at),
      listOf: listsOf({ since: view.turnedAway.from, until: view.turnedAway.until }),
      listOfAll: listsOf({}),
    });
  });
}

/** Trims values and drops empty ones; a repeated field becomes one text. */
export function filledIn(form: object): Form {
  const all = Object.entries(form).map(([name, value]) => [name, String(value).trim()] as const);
  return Object.fromEntries(all.filter(([, value]) => value !== ''));
}

function addRequest(app: FastifyInstance, tools: ConsoleTools, clock: Clock, inTurn: InTurn): void {
  const find = (request: FastifyRequest) =>
    lookUp((request.params as { id: string }).id, tools.reads, clock.now());
  const page = async (
    reply: FastifyReply,
    found: FoundSubmission,
    {
      reveal,
      fault,
      list,
    }: { readonly reveal: boolean; readonly fault?: string; readonly list?: unknown },
  ) =>
    reply.page('request', {
      title: `Request ${found._id}`,
      reveal,
      fault,
      list,
      whyMax: WHY_MAX,
      status: fault === undefined ? 200 : 400,
      view: await requestView(found, tools.reads, {
        now: clock.now(),
        reveal,
        mayReveal: mayReveal(reply.request),
        ...defined({ line: tools.activity.line() }),
      }),
    });
  app.get('/requests/:id', async (request, reply) => {
    const found = await find(request);
    if ('missing' in found) return reply.say(404, found.missing);
    const name = nameIn(request, 'list');
    const list =
      name && (await inTurn(request, () => placeIn(name, found._id, tools.reads, clock.now())));
    return page(reply, found, { reveal: false, list });
  });
  app.post('/requests/:id/reveal', LIMITED, async (request, reply) => {
    const person = request.person!;
    if (person.role === 'viewer')
      return reply.say(403, 'You may see requests masked only; the role "support" may reveal.');
    const found = await find(request);
    if ('missing' in found) return reply.say(404, found.missing);
    const why = text(WHY_MAX).safeParse(filledIn(request.body as object)['why'] ?? '');
    if (!why.success) {
      const fault = why.error.issues[0]?.message ?? 'It needs a value.';
      return page(reply, found, { reveal: false, fault });
    }
    const action = { action: 'show --reveal', requestId: found._id };
    await tools.trailOf(person, why.data).revealed(action);
    return page(reply, found, { reveal: true });
  });
}

function addLists(
  app: FastifyInstance,
  { reads }: ConsoleTools,
  clock: Clock,
  inTurn: InTurn,
): void {
  app.get('/dead-letters', async (request, reply) => {
    const newest = { state: 'dead_lettered', mode: 'live' } as const;
    const [dead, { found }] = await inTurn(request, () =>
      Promise.all([
        deadLettersView(reads, clock.now(), COUNTED_WITHIN_MS),
        reads.submissions.list(newest, DEAD_SHOWN, COUNTED_WITHIN_MS),
      ]),
    );
    return reply.page('dead-letters', {
      title: 'Dead letters',
      listOf: listsOf({}),
      list: addressOf('', { list: listOf(newest) }),
      rows: found.map((record) => rowOf(record, false, mayReveal(request))),
      ...dead,
    });
  });
  app.get('/trail', async (request, reply) => {
    const { before, about: asked } = request.query as { before?: string; about?: string };
    const about = asked === 'aside' ? asked : undefined;
    const found = await reads.trail.newest(TRAIL_PAGE + 1, defined({ before, about }));
    const { shown, next } = firstOf(found, TRAIL_PAGE);
    const older = next && addressOf('/trail', { about, before: next });
    return reply.page('trail', { title: 'Trail', rows: shown, kindNamed, about, older });
  });
}

/** The address of the list that a figure counts. */
function listsOf(
  { since, until }: { readonly since?: Date | undefined; readonly until?: Date | undefined },
  partner?: string,
  test = false,
) {
  const times = { since: since?.toISOString(), until: until?.toISOString() };
  return (more: Form = {}): string =>
    addressOf('/requests', { partner, mode: test ? 'test' : 'live', ...more, ...times });
}

async function trafficOfPartner(
  partner: string,
  { range, test }: ReturnType<typeof askedRange>,
  now: Date,
  reads: ConsoleTools['reads'],
) {
  const owner = ownerName(partner, test ? { test } : {});
  const { since, until } = range;
  const view = await trafficView(owner, range, now, reads.traffic);
  const of = { partner, test, since, until };
  const [turnedAway, said] = await Promise.all([
    view.figures.turnedAway === 0
      ? { rows: [], further: 0, from: since }
      : turnedAwayView(of, reads),
    lastErrors(of, view.counts, reads),
  ]);
  return { view, turnedAway, said };
}

interface QueryOfRange {
  readonly range?: string;
  readonly since?: string;
  readonly until?: string;
  readonly mode?: string;
}

/** What the address asks for, or the last hour, with what was wrong in it. */
function askedRange({ range: name, since, until, mode }: QueryOfRange, now: Date) {
  const test = mode === 'test';
  const { data, faults } = typed(
    z.object({ since: when(now), until: when(now) }).partial(),
    defined({ since, until }),
  );
  const picked = data?.since && pickedRange(data.since, data.until ?? now, now);
  const isPicked = since !== undefined && since !== '';
  const fault =
    faults['since'] ?? faults['until'] ?? (isPicked && !picked ? NOTHING_COUNTED : undefined);
  const named = rangeNames.find((one) => one === name) ?? '1h';
  const times = picked ? defined({ since, until }) : { range: named };
  return {
    test,
    range: picked ?? rangeOf(named, now),
    name: picked ? undefined : named,
    query: { ...times, ...(test ? { mode } : {}) },
    /** As typed. */
    since: since ?? '',
    until: until ?? '',
    fault,
  };
}

const NOTHING_COUNTED = 'It must end after it begins, and begin within the last 400 days.';

function addPartners(
  app: FastifyInstance,
  { reads }: ConsoleTools,
  clock: Clock,
  inTurn: InTurn,
): void {
  app.get('/partners', async (request, reply) => {
    const now = clock.now();
    const from = nameIn(request, 'from');
    const byName = from !== undefined || nameIn(request, 'by') === 'name';
    const page = Math.trunc(Number(nameIn(request, 'page'))) || 1;
    const view = await inTurn(request, async () => {
      const read = reads.keys.problems.list();
      const [all, problems, sums] = await Promise.all([
        partnersView(reads, now, read),
        read,
        sumsForList(reads.traffic, now),
      ]);
      const { shown, next } = byName
        ? pageFrom(all, from, ({ partner }) => partner, PARTNERS_PAGE)
        : pageOf(worstOf(all, sums), page, PARTNERS_PAGE);
      const names = shown.map(({ partner }) => partner);
      const traffic = await trafficForList(names, now, reads.traffic);
      return { count: all.length, partners: shown, next, problems, traffic };
    });
    return reply.page('partners', {
      title: 'Partners',
      from,
      byName,
      isFirst: from === undefined && page === 1,
      paged: view.count > PARTNERS_PAGE,
      ...view,
      next: view.next && addressOf('/partners', { [byName ? 'from' : 'page']: view.next }),
    });
  });
}

function addPartner(app: FastifyInstance, { reads }: ConsoleTools, clock: Clock, inTurn: InTurn) {
  app.get('/partners/:partner', async (request, reply) => {
    const { partner } = request.params as { partner: string };
    const now = clock.now();
    const asked = askedRange(request.query as QueryOfRange, now);
    const fromKey = nameIn(request, 'keys');
    const [keys, partners, certification, traffic] = await inTurn(request, () =>
      Promise.all([
        keysView(reads, partner, now),
        partnersView(reads, now),
        certificationOf(partner, now, reads.traffic),
        trafficOfPartner(partner, asked, now, reads),
      ]),
    );
    const about = partners.find((one) => one.partner === partner);
    const keysPage = pageFrom(keys, fromKey, ({ key }) => key, KEYS_PAGE);
    const secrets = secretsOf(keys, about?.problems ?? []);
    const brokenFirst = secrets.toSorted(
      (one, other) => Number(other.problems.length > 0) - Number(one.problems.length > 0),
    );
    const undo = about?.inactiveBy.map(reactivation) ?? [];
    return reply.page('partner', {
      title: `Partner ${partner}`,
      partner,
      about,
      secrets: brokenFirst.slice(0, KEYS_PAGE),
      furtherSecrets: Math.max(0, secrets.length - KEYS_PAGE),
      keys: keysPage.shown,
      nextKeys:
        keysPage.next &&
        addressOf(request.url.split('?')[0]!, { ...asked.query, keys: keysPage.next }),
      asked,
      rangeNames,
      certification,
      limit: about?.maxPerMinute,
      file: addressOf(`/partners/${encodeURIComponent(partner)}/reasons.csv`, asked.query),
      ...traffic,
      listOf: listsOf(asked.range, partner, asked.test),
      undo,
    });
  });
}

/** For the partner itself: its ids and why, as it is told it, and nothing of an applicant. */
function addReasonsFile(
  app: FastifyInstance,
  { reads: { submissions } }: ConsoleTools,
  clock: Clock,
  inTurn: InTurn,
): void {
  app.get('/partners/:partner/reasons.csv', LIMITED, async (request, reply) => {
    const { partner } = request.params as { partner: string };
    const asked = askedRange(request.query as QueryOfRange, clock.now());
    if (asked.fault !== undefined) return reply.say(400, asked.fault);
    const { since, until } = asked.range;
    const of = { partner, mode: asked.test ? 'test' : 'live', since, until } as const;
    const lists = await inTurn(request, async () => [
      await submissions.list({ ...of, state: 'rejected' }, CSV_ROWS),
      await submissions.list({ ...of, state: 'undeliverable' }, CSV_ROWS),
    ]);
    const lines = lists.flatMap(({ found }) =>
      found.flatMap(({ _id, receivedAt, state, reasons = [] }) =>
        reasonsForPartner(reasons).map(({ field = '', code, message }) => {
          return [_id, receivedAt.toISOString(), state, field, code, message];
        }),
      ),
    );
    const head = ['request_id', 'received_at', 'state', 'field', 'code', 'message'];
    const isWhole = lists.every(({ next }) => next === undefined);
    return sendCsv(reply, isWhole ? 'reasons' : 'reasons-newest', [head, ...lines]);
  });
}

/** Those without a failed request by their number of requests, then by name. */
function worstOf(all: readonly PartnerView[], sums: ReadonlyMap<string, PartnerSums>) {
  const sumsOf = ({ partner }: PartnerView) => sums.get(partner) ?? { requests: 0, failed: 0 };
  return all.toSorted((one, other) => worstFirst(sumsOf(one), sumsOf(other)));
}

/** `page` counts from 1. */
function pageOf<T>(all: readonly T[], page: number, size: number) {
  const [from, to] = [(page - 1) * size, page * size];
  return { shown: all.slice(from, to), next: all.length > to ? page + 1 : undefined };
}

/** A field of the address; undefined if it is empty or given twice. */
function nameIn({ query }: FastifyRequest, field: string): string | undefined {
  const value = (query as Readonly<Record<string, unknown>>)[field];
  return typeof value === 'string' && value !== '' ? value : undefined;
}

/** The rows at or after `from`, which are in order; `next` is the `from` of the next page. */
function pageFrom<T>(
  all: readonly T[],
  from: string | undefined,
  nameOf: (row: T) => string,
  size: number,
) {
  const rest = from === undefined ? all : all.filter((row) => nameOf(row) >= from);
  const next = rest[size];
  return { shown: rest.slice(0, size), next: next && nameOf(next) };
}

/** `found` has one row more than `size` if there is a next page; `next` is then its `before`. */
function firstOf<T extends { readonly _id: string }>(found: readonly T[], size: number) {
  const shown = found.slice(0, size);
  return { shown, next: found.length > size ? shown.at(-1)?._id : undefined };
}
