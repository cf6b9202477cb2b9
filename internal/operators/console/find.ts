/** The search box of every page. */
import { randomUUID } from 'node:crypto';
import type { FastifyInstance, FastifyReply } from 'fastify';
import type { Clock } from '../../platform/process/clock.ts';
import { defined } from '../../platform/process/defined.ts';
import { findByData, findById, suggestionsFor, type FoundByText } from '../view/find.ts';
import { readAs, type Reading } from '../view/read-as.ts';
import { markIn, rowOf, searchInWords } from '../view/search.ts';
import { TEXT_MAX } from '../view/search-fields.ts';
import type { Reads } from '../view/reads.ts';
import type { Trail } from '../trail/trail.ts';
import type { Activity } from '../view/activity.ts';
import { LIMITED, type ConsolePerson } from './sign-in.ts';
import { htmlOf } from './render.ts';
import { inTurns, type InTurn } from './turns.ts';

/** Searches that can be continued, for an hour; a further one replaces the oldest. */
const CONTINUED = 1_000;
const CONTINUED_MS = 3_600_000;

/** A person types more than that in bursts only. */
const SUGGESTED = { config: { rateLimit: { max: 240 } } } as const;
/** Apart from large reads, which take seconds. */
const SUGGESTS_AT_ONCE = 4;
const SUGGESTS_WAITING = 20;

export function addFind(
  app: FastifyInstance,
  {
    reads,
    trailOf,
    activity,
  }: {
    readonly reads: Pick<Reads, 'submissions' | 'accounts'>;
    readonly trailOf: (person: ConsolePerson) => Pick<Trail, 'revealed'>;
    readonly activity: Pick<Activity, 'stored'>;
  },
  clock: Clock,
  inTurn: InTurn,
): void {
  const { continued, keep } = continuedSearches();
  const page = (reply: FastifyReply, more: object = {}) => {
    const isViewer = reply.request.person?.role === 'viewer';
    return reply.page('find', { title: 'Search', isViewer, ...more });
  };
  const partnerNames = () => activity.stored.partners.map(({ partner }) => partner);
  app.get('/find', (_, reply) => page(reply));
  addSuggestions(app, reads, partnerNames, clock);
  app.post('/find', LIMITED, async (request, reply) => {
    const { q = '', more = '' } = request.body as Readonly<Record<string, unknown>>;
    const text = String(q).trim();
    const further = continued.get(String(more));
    if (further === undefined && (text === '' || text.length > TEXT_MAX))
      return page(reply, { isLong: text !== '', status: 400 });
    const person = request.person!;
    const now = clock.now();
    const wholeName = person.role === 'viewer';
    const readings = further === undefined ? readAs(text, now) : [further.reading];
    const allowed = allowedOf(readings, person);
    const partners = partnerNames();
    const asked = { partners, wholeName, now, ...defined({ before: further?.before }) };
    let [reading] = readings;
    let answer: FoundByText = { found: [] };
    for (const one of allowed) {
      reading = one;
      answer = await (one.as === 'id'
        ? findById(one.value, reads, now)
        : inTurn(request, () => findByData(one, reads, asked)));
      if (!isNothing(answer)) break;
    }
    const { found, search = {}, missing, next } = answer;
    const requestIds = found.map(({ _id }) => _id);
    const action = searchInWords('find', search, false);
    if (action !== undefined) await trailOf(person).revealed({ action, requestIds });
    const [only, ...others] = [
      ...requestIds.map((id) => `/requests/${id}`),
      ...(answer.partners ?? []).map((name) => `/partners/${encodeURIComponent(name)}`),
    ];
    const isAll = missing === undefined && next === undefined && further === undefined;
    if (isAll && only !== undefined && others.length === 0) return reply.redirect(only, 303);
    return page(reply, {
      ...answer,
      reading,
      refused: allowed.length < readings.length,
      sought: reading?.as === 'id' ? reading.value : '',
      rows: found.map((record) => {
        const row = rowOf(record, false, !wholeName);
        return { ...row, mark: reading && markIn(reading, row, record.applicant) };
      }),
      more: reading && next && keep({ reading, before: next }),
    });
  });
}

function addSuggestions(
  app: FastifyInstance,
  reads: Pick<Reads, 'submissions' | 'accounts'>,
  partnerNames: () => string[],
  clock: Clock,
): void {
  const inOwnTurn = inTurns(SUGGESTS_AT_ONCE, SUGGESTS_WAITING);
  // Nobody's data is read, so the trail has nothing to note.
  app.post('/find/suggest', SUGGESTED, async (request, reply) => {
    const { q = '' } = request.body as Readonly<Record<string, unknown>>;
    const text = String(q).trim().slice(0, TEXT_MAX);
    const person = request.person!;
    const readings = allowedOf(readAs(text, clock.now()), person);
    const found = await inOwnTurn(person.sub ?? '', () =>
      suggestionsFor(text, readings, { ...reads, partners: partnerNames() }),
    );
    const kinds = readings.flatMap(({ as }) => (as === 'id' ? [] : [as]));
    return reply
      .type('text/html; charset=utf-8')
      .header('cache-control', 'no-store')
      .send(htmlOf('suggestions', { ...found, kinds, isViewer: person.role === 'viewer' }));
  });
}

/** By parts, a viewer could guess what is masked, letter by letter. */
const allowedOf = (readings: readonly Reading[], { role }: ConsolePerson): Reading[] =>
  readings.filter(({ as }) => role !== 'viewer' || !/^(domain|emailStart)$/.test(as));

const isNothing = ({ found, partners = [], missing, next }: FoundByText): boolean =>
  found.length === 0 && partners.length === 0 && missing === undefined && next === undefined;

interface ContinuedSearch {
  readonly reading: Reading;
  readonly before: string;
}

/** By the token in the form of the next page, so that no page holds personal data. */
function continuedSearches() {
  const continued = new Map<string, ContinuedSearch>();
  const keep = (search: ContinuedSearch): string => {
    const token = randomUUID();
    continued.set(token, search);
    setTimeout(() => continued.delete(token), CONTINUED_MS).unref();
    const [oldest = token] = continued.keys();
    if (continued.size > CONTINUED) continued.delete(oldest);
    return token;
  };
  return { continued, keep };
}
