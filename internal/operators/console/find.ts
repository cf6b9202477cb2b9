/** The search box of every page. */
import { randomUUID } from 'node:crypto';
import type { FastifyInstance, FastifyReply } from 'fastify';
import type { Clock } from '../../platform/process/clock.ts';
import { defined } from '../../platform/process/defined.ts';
import { findByData, findById, type FoundByText } from '../view/find.ts';
import { readAs, type Reading } from '../view/read-as.ts';
import { rowOf, searchInWords } from '../view/search.ts';
import { TEXT_MAX } from '../view/search-fields.ts';
import type { Reads } from '../view/reads.ts';
import type { Trail } from '../trail/trail.ts';
import type { Activity } from './activity.ts';
import { LIMITED, type ConsolePerson } from './sign-in.ts';
import type { InTurn } from './turns.ts';

/** Searches that can be continued, for an hour; a further one replaces the oldest. */
const CONTINUED = 1_000;
const CONTINUED_MS = 3_600_000;

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
  app.get('/find', (_, reply) => page(reply));
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
    // By parts, a viewer could guess what is masked, letter by letter.
    const allowed = readings.filter(({ as }) => !wholeName || !/^(domain|emailStart)$/.test(as));
    const partners = activity.stored.partners.map(({ partner }) => partner);
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
      rows: found.map((record) => rowOf(record, false)),
      more: reading && next && keep({ reading, before: next }),
    });
  });
}

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
