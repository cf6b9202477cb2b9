/** Lists of requests as a page or CSV, whose address names no person. */
import type { FastifyInstance, FastifyReply } from 'fastify';
import { z } from 'zod';
import type { Clock } from '../../platform/process/clock.ts';
import { defined } from '../../platform/process/defined.ts';
import { timeOfId } from '../../platform/stores/ids.ts';
import { printable } from '../../application/fields.ts';
import { states } from '../../submission/states.ts';
import type { SubmissionRecord } from '../../submission/submission.ts';
import type { Search } from '../../submission/support-queries.ts';
import type { Reads } from '../view/reads.ts';
import { rowOf, type FoundRow } from '../view/search.ts';
import { listFields, typed, when } from '../view/search-fields.ts';
import { LIMITED } from './sign-in.ts';
import type { InTurn } from './turns.ts';

export const LIST_PAGE = 50;
/** A search that takes longer shows how far it came. */
const LIST_WITHIN_MS = 3_000;
/** Some MB in memory; more is work for the database's own tools. */
export const CSV_ROWS = 5_000;

type QueryString = Readonly<Record<string, unknown>>;

export function addRequestLists(
  app: FastifyInstance,
  { submissions }: Pick<Reads, 'submissions'>,
  clock: Clock,
  inTurn: InTurn,
): void {
  app.get('/requests', async (request, reply) => {
    const asked = request.query as QueryString;
    // A form sends its empty fields, too.
    if (Object.values(asked).includes(''))
      return reply.redirect(addressOf('/requests', asked), 303);
    const { search, faults } = searchOf(asked, clock.now());
    const page = (more: object): FastifyReply =>
      reply.page('requests', {
        title: 'Requests',
        states,
        asked: search === undefined ? {} : asked,
        chips: search === undefined ? [] : chipsOf(asked),
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
      found: found.map((record) => rowOf(record, false)),
      list: addressOf('', { list: listOf(asked) }),
      older,
      // Nothing older than the last row of a whole page was searched.
      searchedTo: isWhole && list.next !== undefined ? timeOfId(list.next) : undefined,
      csv: addressOf('/requests.csv', asked),
    });
  });
  app.get('/requests.csv', LIMITED, async (request, reply) => {
    const { search, faults } = searchOf(request.query as QueryString, clock.now());
    if (search === undefined) return reply.say(400, Object.values(faults).join(' '));
    const { found, next } = await inTurn(request, () => submissions.list(search, CSV_ROWS));
    const name = next === undefined ? 'requests' : `requests-newest-${found.length}`;
    return reply
      .type('text/csv; charset=utf-8')
      .header('content-disposition', `attachment; filename="${name}.csv"`)
      .header('cache-control', 'no-store')
      .send(csvOf(found.map((record) => rowOf(record, false))));
  });
}

/** The query of a list, which is never empty. */
const listOf = (asked: QueryString): string => addressOf('', asked).slice(1) || 'all';

/** Each filter, with the address of the list without it. */
const chipsOf = ({ before: _before, ...asked }: QueryString) =>
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
  const asked = Object.fromEntries([...new URLSearchParams(list)].filter(([, value]) => value));
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

function searchOf(asked: QueryString, now: Date) {
  const before = z.string().regex(/^req_[0-9a-z]{26}$/, 'It must be the id of a request.');
  const names = { ...listFields, since: when(now), until: when(now), before };
  const form = z.strictObject(
    names,
    'The address of a list may hold nothing else: use the search.',
  );
  const { data, faults } = typed(form.partial(), asked);
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
  email: ({ email }) => email,
  ein: ({ ein }) => ein,
  why: ({ why }) => why,
} as const satisfies Readonly<Record<string, (row: FoundRow) => string>>;

function csvOf(rows: readonly FoundRow[]): string {
  const lines = [
    Object.keys(COLUMNS),
    ...rows.map((row) => Object.values(COLUMNS).map((column) => column(row))),
  ];
  return lines.map((cells) => `${cells.map(cellOf).join(',')}\r\n`).join('');
}

/** Spreadsheets run text that begins like a formula, also in full width or behind blanks. */
const FORMULA = /^[\s\u{fffd}]*[=+\-@\uff1d\uff0b\uff0d\uff20]/u;

export function cellOf(value: string): string {
  const text = printable(value);
  return `"${(FORMULA.test(text) ? `'${text}` : text).replaceAll('"', '""')}"`;
}
