/** Lists of requests as a page or CSV, whose address names no person. */
import type { FastifyInstance, FastifyReply } from 'fastify';
import { z } from 'zod';
import type { Clock } from '../../platform/process/clock.ts';
import { defined } from '../../platform/process/defined.ts';
import { timeOfId } from '../../platform/stores/ids.ts';
import { printable } from '../../application/fields.ts';
import { bulkOrders, type BulkName } from '../orders/many.ts';
import { isOpen, states, type State } from '../../submission/states.ts';
import type { SubmissionRecord } from '../../submission/submission.ts';
import type { Search } from '../../submission/support-queries.ts';
import { ownerName } from '../../partner/key-terms.ts';
import { EVERYBODY } from '../../traffic/traffic.ts';
import { partnerNamed } from '../view/find.ts';
import type { Reads } from '../view/reads.ts';
import { reasonInWords } from '../view/reason-words.ts';
import { rowOf, type FoundRow } from '../view/search.ts';
import { pickedRange, rangeOf, total, trafficView } from '../view/traffic.ts';
import type { Activity } from '../view/activity.ts';
import { listFields, typed, when, WHY_MAX } from '../view/search-fields.ts';
import { LIMITED, mayReveal } from './sign-in.ts';
import type { InTurn } from './turns.ts';

export const LIST_PAGE = 50;
/** A search that takes longer shows how far it came. */
const LIST_WITHIN_MS = 3_000;
/** Some MB in memory; more is work for the database's own tools. */
export const CSV_ROWS = 5_000;

type QueryString = Readonly<Record<string, unknown>>;

/** A page with more options is slow; the others are typed. */
const PICKED_FROM = 200;

export function addRequestLists(
  app: FastifyInstance,
  {
    reads: { submissions, traffic },
    activity,
  }: {
    readonly reads: Pick<Reads, 'submissions' | 'traffic'>;
    readonly activity: Pick<Activity, 'stored'>;
  },
  clock: Clock,
  inTurn: InTurn,
): void {
  app.get('/requests', async (request, reply) => {
    const query = request.query as QueryString;
    const { since, ...others } = query;
    // Without a time, a list with another filter is of any.
    if (since === ANY_TIME && Object.keys(others).length > 0)
      return reply.redirect(addressOf('/requests', others), 303);
    // A form sends its empty fields, too.
    if (Object.values(query).includes(''))
      return reply.redirect(addressOf('/requests', query), 303);
    const asked = Object.keys(query).length === 0 ? NOTHING_ASKED : query;
    const now = clock.now();
    const { search, faults } = searchOf(asked, now);
    const names = activity.stored.partners.map(({ partner }) => partner);
    const named = search?.partner && partnerNamed(search.partner, names);
    if (named !== search?.partner && named)
      return reply.redirect(addressOf('/requests', { ...asked, partner: named }), 303);
    const { owner, range, isApart } = countedFor(search, now);
    const week = rangeOf('7d', now);
    const view = await inTurn(request, () => trafficView(owner, range ?? week, now, traffic));
    const counts = range === undefined || isApart ? withoutNumbers(view) : view;
    const page = (more: object): FastifyReply =>
      reply.page('requests', {
        title: 'Requests',
        states,
        names: names.slice(0, PICKED_FROM),
        isWhole: names.length <= PICKED_FROM,
        counts: new Map(counts.outcomes.map(({ state, count }) => [state, count])),
        reasons: counts.reasons,
        countedSince: counts === view ? view.since : undefined,
        views: viewsOf(request.savedViews(), asked),
        ...(search === undefined ? UNNARROWED : narrowed(asked, counts)),
        chips: search === undefined ? [] : chipsOf(query),
        query: listOf({ ...asked, before: undefined }),
        bulks: request.person?.role === 'operator' ? bulksOf(search?.state) : [],
        whyMax: WHY_MAX,
        faults,
        ...more,
      });
    if (search === undefined) return page({ status: 400 });
    const list = await inTurn(request, () =>
      submissions.list(search, LIST_PAGE + 1, LIST_WITHIN_MS),
    );
    const found = list.found.slice(0, LIST_PAGE);
    const isWhole = list.found.length <= LIST_PAGE;
    const older = isWhole ? list.next : found.at(-1)?._id;
    return page({
      found: found.map((record) => rowOf(record, false, mayReveal(request))),
      isNewest: search.before === undefined,
      total: range && countOf(search, view),
      list: addressOf('', { list: listOf(asked) }),
      older,
      // Nothing older than the last row of a whole page was searched.
      searchedTo: isWhole && list.next !== undefined ? timeOfId(list.next) : undefined,
      csv: addressOf('/requests.csv', asked),
    });
  });
  addListFile(app, submissions, clock, inTurn);
}

function addListFile(
  app: FastifyInstance,
  submissions: Reads['submissions'],
  clock: Clock,
  inTurn: InTurn,
): void {
  app.get('/requests.csv', LIMITED, async (request, reply) => {
    const { search, faults } = searchOf(request.query as QueryString, clock.now());
    if (search === undefined) return reply.say(400, Object.values(faults).join(' '));
    const { found, next } = await inTurn(request, () => submissions.list(search, CSV_ROWS));
    const name = next === undefined ? 'requests' : `requests-newest-${found.length}`;
    const rows = found.map((record) => rowOf(record, false, mayReveal(request)));
    const lines = rows.map((row) => Object.values(COLUMNS).map((column) => column(row)));
    return sendCsv(reply, name, [Object.keys(COLUMNS), ...lines]);
  });
}

/** What is shown if nothing is asked for: of any time, it could not be counted. */
const NOTHING_ASKED: QueryString = { since: '7d' };
/** In an address without another filter. */
const ANY_TIME = 'any';

/**
 * Whose traffic is counted, and of which time; without a range, what the list has is not counted.
 * `isApart`: what a further filter would leave of it is not.
 */
function countedFor(
  { partner, mode, since, until, keyId, httpStatus, reason, field }: Search = {},
  now: Date,
) {
  const test = mode === 'test';
  const owner = partner === undefined ? EVERYBODY : ownerName(partner, test ? { test } : {});
  const isCounted = keyId === undefined && !(test && partner === undefined);
  const range = isCounted && since ? pickedRange(since, until ?? now, now) : undefined;
  return { owner, range, isApart: (httpStatus ?? reason ?? field) !== undefined };
}

type CountedView = Awaited<ReturnType<typeof trafficView>>;
/** What there is of late, without saying how much. */
const withoutNumbers = ({ outcomes, reasons }: CountedView) => ({
  outcomes: outcomes.map((one) => ({ ...one, count: undefined })),
  reasons: reasons.map((one) => ({ ...one, count: undefined })),
});

/** About how many requests the list has; undefined if they are not counted. */
function countOf(
  { state, httpStatus, reason, field = '' }: Search,
  { counts: { answers, ends = {} }, reasons }: CountedView,
): number | undefined {
  if (state !== undefined && httpStatus !== undefined) return undefined;
  if (reason !== undefined || field !== '')
    return reasons.find((one) => one.state === state && one.code === reason && one.field === field)
      ?.count;
  if (state !== undefined) return ends[state];
  // What was over a limit has no record.
  return total(answers, (status) =>
    httpStatus === undefined ? /^(?:202|4(?!29)\d\d)$/.test(status) : status === String(httpStatus),
  );
}

/** Lists that the person keeps by name. */
const viewsOf = (saved: readonly (readonly [string, string])[], asked: QueryString) =>
  saved.map(([name, query]) => {
    const href = addressOf('/requests', queryOf(query));
    return { name, query, href, isOpen: href === addressOf('/requests', asked) };
  });

/** Reasons that are offered beside the list. */
const REASONS_OFFERED = 4;

/** Lists one filter narrower, with what was counted. */
function stepsOf(asked: QueryString, counts: ReturnType<typeof withoutNumbers> | CountedView) {
  const { before: _before, ...filters } = asked;
  const step = (more: Readonly<Record<string, string>>, words: string, count?: number) => ({
    href: addressOf('/requests', { ...filters, ...more }),
    words,
    count,
    state: more['state'],
  });
  const ended = new Map(counts.outcomes.map(({ state, count }) => [state, count]));
  const isOffered = (state: State): boolean =>
    isOpen(state) || state === 'dead_lettered' || ended.has(state);
  const wanted = states.filter(isOffered);
  const reasons = counts.reasons.filter(({ state }) => state === asked['state']);
  return [
    ...('state' in asked ? [] : wanted.map((state) => step({ state }, state, ended.get(state)))),
    ...('reason' in asked
      ? []
      : reasons.slice(0, REASONS_OFFERED).map(({ field, code, count }) => {
          return step(
            { reason: code, ...defined({ field: field || undefined }) },
            reasonInWords({ field, code }),
            count,
          );
        })),
    ...('code' in asked || !ended.has('our fault')
      ? []
      : [step({ code: '500' }, 'Our faults (500)', ended.get('our fault'))]),
  ];
}

const UNNARROWED = { asked: {}, steps: [], times: [] };
const narrowed = (asked: QueryString, counts: Parameters<typeof stepsOf>[1]) => ({
  asked,
  steps: stepsOf(asked, counts),
  times: timesOf(asked),
});

/** Of what time the list may be. */
const timesOf = ({ before: _before, until, ...filters }: QueryString) =>
  [ANY_TIME, '24h', '7d'].map((since) => ({
    since,
    words: since === ANY_TIME ? 'any time' : since,
    href: addressOf('/requests', { ...filters, since }),
    isOn: until === undefined && (filters['since'] ?? ANY_TIME) === since,
  }));

export const queryOf = (query: string): Readonly<Record<string, string>> =>
  Object.fromEntries([...new URLSearchParams(query)].filter(([, value]) => value !== ''));

/** The query of a list, which is never empty. */
export const listOf = (asked: QueryString): string => addressOf('', asked).slice(1) || 'all';

const BULKS = { retry: 'Retry', resend: 'Mail again', close: 'End for good' } as const;

/** The orders that are offered for all requests of a list of this state. */
export const bulksOf = (state: State | undefined) =>
  Object.entries(BULKS).flatMap(([name, title]) => {
    const { states: fit }: { readonly states: readonly State[] } = bulkOrders[name as BulkName];
    return state !== undefined && fit.includes(state) ? [{ name, title }] : [];
  });

const SUCH: Partial<Record<State, string>> = {
  recorded: 'unchecked',
  account_created: 'unmailed',
  dead_lettered: 'given-up',
  undeliverable: 'undelivered',
};

/** As in "Retry 6 given-up requests"; without the number if it is not known. */
export function bulkTitle(title: string, state: State, count?: number): string {
  const some = count === undefined ? '' : `${count.toLocaleString('en')} `;
  const such = `${SUCH[state] ?? state} ${count === 1 ? 'request' : 'requests'}`;
  return title.replace(/^\w+/, `$& ${some}${such}`);
}

/** Each filter, with the address of the list without it. */
export const chipsOf = ({ before: _before, ...asked }: QueryString) =>
  Object.entries(asked).map(([name, value]) => {
    return { name, value, without: addressOf('/requests', { ...asked, [name]: undefined }) };
  });

/** Where the request stands on the page of the list from which it was opened. */
export async function placeIn(
  list: string,
  id: string,
  { submissions }: Pick<Reads, 'submissions'>,
  now: Date,
) {
  const asked = queryOf(list);
  const href = addressOf('/requests', asked);
  const { search } = searchOf(asked, now);
  if (search === undefined) return undefined;
  const { found } = await submissions.list(search, LIST_PAGE + 1, LIST_WITHIN_MS);
  const index = found.findIndex(({ _id }) => _id === id);
  if (index < 0) return { href };
  const linkTo = (to: SubmissionRecord | undefined, of = list): string | undefined =>
    to && addressOf(`/requests/${to._id}`, { list: of });
  return {
    href,
    at: index + 1,
    of: Math.min(found.length, LIST_PAGE),
    previous: linkTo(found[index - 1]),
    // The first of the next page is opened from that page.
    next: linkTo(
      found[index + 1],
      index + 1 === LIST_PAGE ? listOf({ ...asked, before: id }) : list,
    ),
  };
}

export function addressOf(path: string, asked: QueryString): string {
  const filled = Object.entries(asked).filter(([, value]) => value !== undefined && value !== '');
  const query = new URLSearchParams(
    filled.map(([name, value]): [string, string] => [name, String(value)]),
  );
  return query.size === 0 ? path : `${path}?${String(query)}`;
}

export function searchOf(asked: QueryString, now: Date) {
  const before = z.string().regex(/^req_[0-9a-z]{26}$/, 'It must be the id of a request.');
  const names = { ...listFields, since: when(now), until: when(now), before };
  const form = z.strictObject(
    names,
    'The address of a list may hold nothing else: use the search.',
  );
  const { since } = asked;
  const { data, faults } = typed(form.partial(), {
    ...asked,
    ...(since === ANY_TIME ? { since: '' } : {}),
  });
  const { code, key, ...rest } = data ?? {};
  const search = { ...rest, ...defined({ httpStatus: code, keyId: key }) } as Search;
  return { search: data && search, faults };
}

const COLUMNS = {
  request_id: ({ requestId }) => requestId,
  received_at: ({ receivedAt }) => receivedAt.toISOString(),
  state: ({ state }) => state,
  http_status: ({ status }) => String(status),
  partner: ({ partner }) => partner,
  business_name: ({ business }) => business,
  email: ({ email }) => email,
  ein: ({ ein }) => ein,
  why: ({ whyInWords }) => whyInWords,
} as const satisfies Readonly<Record<string, (row: FoundRow) => string>>;

/** Spreadsheets run text that begins like a formula, also in full width or behind blanks. */
const FORMULA = /^[\s\u{fffd}]*[=+\-@\uff1d\uff0b\uff0d\uff20]/u;

function cellOf(value: string): string {
  const text = printable(value);
  return `"${(FORMULA.test(text) ? `'${text}` : text).replaceAll('"', '""')}"`;
}

/** With `name.csv` as the name of the file. */
export const sendCsv = (
  reply: FastifyReply,
  name: string,
  lines: readonly (readonly string[])[],
): FastifyReply =>
  reply
    .type('text/csv; charset=utf-8')
    .header('content-disposition', `attachment; filename="${name}.csv"`)
    .header('cache-control', 'no-store')
    .send(lines.map((cells) => `${cells.map(cellOf).join(',')}\r\n`).join(''));
