/** The pages: each shows one model of `internal/view`. */
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import type { Trail } from '../audit/trail.ts';
import { later, type Clock } from '../platform/clock.ts';
import { states } from '../submission/states.ts';
import { isAddress, lookUp, type FoundSubmission } from '../view/look-up.ts';
import { WHY_MAX } from '../view/limits.ts';
import { keysView, partnersView, reactivation } from '../view/partners.ts';
import type { Reads } from '../view/reads.ts';
import { requestView } from '../view/request.ts';
import { foundPage, searchInWords, tallyOf } from '../view/search.ts';
import { text } from '../view/search-fields.ts';
import { trailView } from '../view/trail.ts';
import type { Activity } from './activity.ts';
import { FOUND_PAGE, PARTNER_SHOWN_MS, SEARCHES_A_MINUTE, TRAIL_PAGE } from './limits.ts';
import { nowView, type Stored } from './now.ts';
import type { Person } from './person.ts';
import type { Pod } from './readings.ts';
import type { Say, Show } from './render.ts';
import { readForm, shownAgain, type Asked } from './search-form.ts';
import { Seal } from './seal.ts';

export interface Desk {
  readonly reads: Omit<Reads, 'accountRequestsKeptMs'>;
  /** A trail that names this person. */
  readonly trailOf: (person: Person, why?: string) => Pick<Trail, 'revealed'>;
  readonly activity: Activity;
  readonly pods: () => readonly Pod[];
  readonly stored: () => Stored | undefined;
}

interface Parts {
  readonly desk: Desk;
  readonly clock: Clock;
  readonly show: Show;
  readonly say: Say;
  readonly who: (request: FastifyRequest) => Person;
}

type Form = Readonly<Record<string, string | undefined>>;

export function addRoutes(app: FastifyInstance, parts: Parts): void {
  addNow(app, parts);
  addFind(app, parts);
  addRequest(app, parts);
  addLists(app, parts);
}

function addNow(app: FastifyInstance, { desk, show }: Parts): void {
  app.get('/', (request, reply) =>
    show(request, reply, 'now', {
      title: 'Now',
      view: nowView(desk.pods(), desk.activity, desk.stored()),
    }),
  );
  app.get('/history.json', (_, reply) =>
    reply.header('cache-control', 'no-store').send(
      desk.activity.rounds.map(({ at, answers, finished, p99Seconds, waiting }) => ({
        at: at.getTime() / 1_000,
        answers,
        finished,
        p99Seconds,
        waiting,
      })),
    ),
  );
}

const LIMITED = { rateLimit: { max: SEARCHES_A_MINUTE, timeWindow: '1 minute' } } as const;

function addFind(app: FastifyInstance, parts: Parts): void {
  const { desk, clock, show } = parts;
  const seal = new Seal();
  const page = (request: FastifyRequest, reply: FastifyReply, more: object) =>
    show(request, reply, 'find', {
      title: 'Find',
      states,
      asked: {},
      faults: {},
      hidden: [],
      ...more,
    });
  app.get('/find', (request, reply) => page(request, reply, {}));
  app.post(
    '/find',
    { config: LIMITED, preHandler: app.csrfProtection.bind(app) },
    async (request, reply) => {
      const { more: sealed = '', ...form } = request.body as Form;
      const resumed = seal.open(sealed) as { asked: Asked; before: string } | undefined;
      const { asked, before } = resumed ?? { asked: form };
      const named = asked['id']?.trim() ?? '';
      if (named !== '' && !isAddress(named)) {
        const found = await lookUp(named, desk.reads, clock.now());
        if ('missing' in found) return page(request, reply, { missing: found.missing });
        return reply.redirect(`/requests/${found._id}`, 303);
      }
      const { search, faults } = readForm(
        named === '' ? asked : { ...asked, email: named },
        clock.now(),
      );
      const again = shownAgain(asked);
      if (search === undefined) return page(request, reply, { ...again, faults, status: 400 });
      const action = searchInWords('find', search, false);
      if (action !== undefined) await desk.trailOf(parts.who(request)).revealed({ action });
      const found = await foundPage(search, desk.reads, { limit: FOUND_PAGE, before });
      const { next } = found;
      const next64 = next === undefined ? undefined : seal.close({ asked, before: next });
      return page(request, reply, { ...again, found: found.rows, more: next64 });
    },
  );
}

function addRequest(app: FastifyInstance, parts: Parts): void {
  const { desk, clock, show, say } = parts;
  const find = (request: FastifyRequest) =>
    lookUp((request.params as { id: string }).id, desk.reads, clock.now());
  const page = async (
    request: FastifyRequest,
    reply: FastifyReply,
    found: FoundSubmission,
    { reveal, fault }: { readonly reveal: boolean; readonly fault?: string },
  ) =>
    show(request, reply, 'request', {
      title: `Request ${found._id}`,
      reveal,
      fault,
      whyMax: WHY_MAX,
      ...(fault === undefined ? {} : { status: 400 }),
      view: await requestView(found, desk.reads, { now: clock.now(), reveal }),
    });
  app.get('/requests/:id', async (request, reply) => {
    const found = await find(request);
    return 'missing' in found
      ? say(request, reply, 404, found.missing)
      : page(request, reply, found, { reveal: false });
  });
  app.post(
    '/requests/:id/reveal',
    { config: LIMITED, preHandler: app.csrfProtection.bind(app) },
    async (request, reply) => {
      const person = parts.who(request);
      if (person.role !== 'support') {
        const words = 'You may see requests masked only; the role "support" may reveal.';
        return say(request, reply, 403, words);
      }
      const found = await find(request);
      if ('missing' in found) return say(request, reply, 404, found.missing);
      const why = text(WHY_MAX).safeParse((request.body as Form)['why']?.trim());
      if (!why.success) {
        const fault = why.error.issues[0]?.message ?? 'It needs a value.';
        return page(request, reply, found, { reveal: false, fault });
      }
      const action = { action: 'show --reveal', requestId: found._id };
      await desk.trailOf(person, why.data).revealed(action);
      return page(request, reply, found, { reveal: true });
    },
  );
}

function addLists(app: FastifyInstance, { desk, clock, show }: Parts): void {
  const { reads } = desk;
  app.get('/dead-letters', async (request, reply) =>
    show(request, reply, 'dead-letters', {
      title: 'Dead letters',
      tallies: await tallyOf({ state: 'dead_lettered' }, reads),
    }),
  );
  app.get('/partners', async (request, reply) =>
    show(request, reply, 'partners', {
      title: 'Partners',
      partners: await partnersView(reads, clock.now()),
      problems: desk
        .pods()
        .flatMap(({ samples }) => samples)
        .filter(({ name, value }) => name === 'secret_problems' && value > 0),
    }),
  );
  app.get('/partners/:partner', async (request, reply) => {
    const { partner } = request.params as { partner: string };
    const now = clock.now();
    const [keys, partners, tallies] = await Promise.all([
      keysView(reads, partner),
      partnersView(reads, now),
      tallyOf({ partner, since: later(now, -PARTNER_SHOWN_MS) }, reads),
    ]);
    const about = partners.find((one) => one.partner === partner);
    return show(request, reply, 'partner', {
      title: `Partner ${partner}`,
      partner,
      about,
      keys,
      tallies,
      undo: about?.inactiveBy.map(reactivation) ?? [],
    });
  });
  app.get('/trail', async (request, reply) => {
    const { before } = request.query as { before?: string };
    const rows = await trailView(reads, TRAIL_PAGE + 1, before);
    const shown = rows.slice(0, TRAIL_PAGE);
    return show(request, reply, 'trail', {
      title: 'Trail',
      rows: shown,
      older: rows.length > TRAIL_PAGE ? shown.at(-1)?._id : undefined,
    });
  });
}
