/** The pages: each shows one model of `internal/view`. */
import { randomUUID } from 'node:crypto';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { z } from 'zod';
import type { Trail } from '../trail/trail.ts';
import type { Clock } from '../platform/process/clock.ts';
import { defined } from '../platform/process/defined.ts';
import { states } from '../submission/states.ts';
import { plainText, type Search } from '../submission/support-queries.ts';
import { isAddress, lookUp, type FoundSubmission } from '../view/look-up.ts';
import { keysView, partnersView, reactivation, secretsOf } from '../view/partners.ts';
import { COUNTED_WITHIN_MS, periods, periodView } from '../view/period.ts';
import type { Reads } from '../view/reads.ts';
import { requestView } from '../view/request.ts';
import { deadLettersView, rowOf, searchInWords } from '../view/search.ts';
import { fields, text, typed, when, WHY_MAX } from '../view/search-fields.ts';
import { answersOf, type Activity } from './activity.ts';
import { addRequestLists, addressOf, listOf } from './lists.ts';
import { nowView } from './now.ts';
import { LIMITED, type ConsolePerson } from './sign-in.ts';
import { readsInTurns, type InTurn } from './turns.ts';

/** Fields that name a person, so a page does not repeat them. */
const PERSONAL = ['id', 'email', 'ein', 'name'];
const FOUND_PAGE = 50;
const TRAIL_PAGE = 50;
const PARTNERS_PAGE = 100;
/** Also of a partner's Secrets. */
const KEYS_PAGE = 100;
/** Fields kept of a search; others could fill the memory. */
const KEPT = ['id', 'since', 'until', ...Object.keys(fields)];
/** Searches that can be continued, for an hour; a further one replaces the oldest. */
const CONTINUED = 1_000;
const CONTINUED_MS = 3_600_000;

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
  addRequest(app, tools, clock);
  addLists(app, tools, clock, inTurn);
  addPartners(app, tools, clock, inTurn);
  addRequestLists(app, tools.reads, clock, inTurn);
}

function addNow(app: FastifyInstance, { activity }: ConsoleTools, clock: Clock): void {
  app.get('/', (_, reply) => {
    const view = nowView(activity, clock.now());
    return reply.page('now', { title: 'Now', view, listOf: listsOf(view.turnedAway) });
  });
  app.get('/history.json', (_, reply) =>
    reply.header('cache-control', 'no-store').send(
      activity.shown().map(({ at, answers, finished, p99Seconds, waits }) => ({
        at: at.getTime() / 1_000,
        answers,
        finished,
        p99Seconds,
        waiting: waits.account === undefined ? undefined : waits.account + (waits.mail ?? 0),
      })),
    ),
  );
}

function addFind(app: FastifyInstance, tools: ConsoleTools, clock: Clock, inTurn: InTurn): void {
  /** Searches by the form's token for the next page, so that no page holds personal data. */
  const continued = new Map<string, { readonly asked: Form; readonly before: string }>();
  const page = (reply: FastifyReply, more: object) =>
    reply.page('find', { title: 'Find', states, asked: {}, faults: {}, hidden: [], ...more });
  app.get('/find', (_, reply) => page(reply, {}));
  app.post('/find', LIMITED, async (request, reply) => {
    const { _csrf, ...form } = filledIn(request.body as object);
    const { asked, before } = continued.get(form['more'] ?? '') ?? { asked: form };
    const named = asked['id'] && plainText(asked['id']);
    if (named !== undefined && !isAddress(named)) {
      const found = await lookUp(named, tools.reads, clock.now());
      if ('missing' in found) return page(reply, { missing: found.missing });
      return reply.redirect(`/requests/${found._id}`, 303);
    }
    const again = {
      asked: Object.fromEntries(Object.entries(asked).filter(([name]) => !PERSONAL.includes(name))),
      hidden: PERSONAL.filter((name) => name in asked),
    };
    const now = clock.now();
    const names = { ...fields, since: when(now), until: when(now) };
    const { data, faults } = typed(z.object(names).partial(), {
      ...asked,
      ...defined({ email: named }),
    });
    if (data === undefined) return page(reply, { ...again, faults, status: 400 });
    if (Object.keys(data).length === 0)
      return page(reply, { ...again, faults: { id: 'Fill in at least one field.' }, status: 400 });
    const search = data as Search;
    const list = listOf(asked, now);
    if (list !== undefined) return reply.redirect(list, 303);
    const person = request.person!;
    // By searching for parts, a viewer could guess a masked name letter by letter.
    const wholeName = person.role === 'viewer';
    const { submissions } = tools.reads;
    const found = await inTurn(request, () =>
      submissions.newest({ ...search, wholeName, ...defined({ before }) }, FOUND_PAGE + 1),
    );
    const { shown, next } = firstOf(found, FOUND_PAGE);
    const action = searchInWords('find', search, false);
    const requestIds = shown.map(({ _id }) => _id);
    if (action !== undefined) await tools.trailOf(person).revealed({ action, requestIds });
    const rows = shown.map((record) => rowOf(record, false));
    if (next === undefined) return page(reply, { ...again, found: rows });
    const token = randomUUID();
    const kept = Object.entries(asked).filter(([name]) => KEPT.includes(name));
    continued.set(token, { asked: Object.fromEntries(kept), before: next });
    setTimeout(() => continued.delete(token), CONTINUED_MS).unref();
    const [oldest = token] = continued.keys();
    if (continued.size > CONTINUED) continued.delete(oldest);
    return page(reply, { ...again, found: rows, more: token });
  });
}

/** Trims values and drops empty ones; a repeated field becomes one text. */
export function filledIn(form: object): Form {
  const all = Object.entries(form).map(([name, value]) => [name, String(value).trim()] as const);
  return Object.fromEntries(all.filter(([, value]) => value !== ''));
}

function addRequest(app: FastifyInstance, tools: ConsoleTools, clock: Clock): void {
  const find = (request: FastifyRequest) =>
    lookUp((request.params as { id: string }).id, tools.reads, clock.now());
  const page = async (
    reply: FastifyReply,
    found: FoundSubmission,
    { reveal, fault }: { readonly reveal: boolean; readonly fault?: string },
  ) =>
    reply.page('request', {
      title: `Request ${found._id}`,
      reveal,
      fault,
      whyMax: WHY_MAX,
      status: fault === undefined ? 200 : 400,
      view: await requestView(found, tools.reads, {
        now: clock.now(),
        reveal,
        ...defined({ line: tools.activity.line() }),
      }),
    });
  app.get('/requests/:id', async (request, reply) => {
    const found = await find(request);
    return 'missing' in found
      ? reply.say(404, found.missing)
      : page(reply, found, { reveal: false });
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
    const dead = await inTurn(request, () =>
      deadLettersView(reads, clock.now(), COUNTED_WITHIN_MS),
    );
    return reply.page('dead-letters', { title: 'Dead letters', ...dead });
  });
  app.get('/trail', async (request, reply) => {
    const { before, about: asked } = request.query as { before?: string; about?: string };
    const about = asked === 'aside' ? asked : undefined;
    const found = await reads.trail.newest(TRAIL_PAGE + 1, defined({ before, about }));
    const { shown, next } = firstOf(found, TRAIL_PAGE);
    const older = next && addressOf('/trail', { about, before: next });
    return reply.page('trail', { title: 'Trail', rows: shown, about, older });
  });
}

/** The address of the list that a figure counts. */
function listsOf(
  { from, until }: { readonly from?: Date | undefined; readonly until?: Date | undefined },
  partner?: string,
) {
  const times = { since: from?.toISOString(), until: until?.toISOString() };
  return (more: Form = {}): string =>
    addressOf('/requests', { partner, mode: 'live', ...more, ...times });
}

function addPartners(
  app: FastifyInstance,
  { reads, activity }: ConsoleTools,
  clock: Clock,
  inTurn: InTurn,
): void {
  app.get('/partners', async (request, reply) => {
    const from = nameIn(request, 'from');
    const [partners, problems] = await inTurn(request, () => {
      const read = reads.keys.problems.list();
      return Promise.all([partnersView(reads, clock.now(), read), read]);
    });
    const { shown, next } = pageFrom(partners, from, ({ partner }) => partner, PARTNERS_PAGE);
    return reply.page('partners', {
      title: 'Partners',
      from,
      paged: partners.length > PARTNERS_PAGE,
      partners: shown,
      problems,
      next: next && addressOf('/partners', { from: next }),
    });
  });
  app.get('/partners/:partner', async (request, reply) => {
    const { partner } = request.params as { partner: string };
    const { period: asked } = request.query as { period?: string };
    const period = periods.find((one) => one === asked) ?? '1h';
    const now = clock.now();
    const fromKey = nameIn(request, 'keys');
    const [keys, partners, view] = await inTurn(request, () =>
      Promise.all([
        keysView(reads, partner),
        partnersView(reads, now),
        periodView({ partner, period, now }, reads),
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
      answered: answersOf(activity.partners().get(partner)),
      keys: keysPage.shown,
      nextKeys:
        keysPage.next && addressOf(request.url.split('?')[0]!, { period, keys: keysPage.next }),
      periods,
      period,
      view,
      listOf: listsOf(view, partner),
      undo,
    });
  });
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

/** `next` is the `before` of the next page, if there is one. */
function firstOf<T extends { readonly _id: string }>(found: readonly T[], size: number) {
  const shown = found.slice(0, size);
  return { shown, next: found.length > size ? shown.at(-1)?._id : undefined };
}
