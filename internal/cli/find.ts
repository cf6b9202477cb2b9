/** `find` and `export`: requests by applicant, partner, state and time. */
import type { SubmissionRecord } from '../submission/submission.ts';
import { recordJson } from '../view/record.ts';
import { rowOf, searchInWords, tallyOf, type Tally } from '../view/search.ts';
import { EXIT, type Call, type Command, type ExitCode } from './command.ts';
import { UsageError } from './options.ts';
import { FIND_DEFAULT } from './limits.ts';
import { FOUND, headed, type Column } from './lists.ts';

const filters = [
  'email',
  'ein',
  'name',
  'partner',
  'idempotencyKey',
  'state',
  'reason',
  'since',
  'until',
] as const;

export const find: Command = {
  name: 'find',
  positionals: [],
  about: 'requests by applicant, partner, state or time, newest first',
  details: `Prints at most --limit requests (${FIND_DEFAULT} unless told otherwise). With --count it counts all that match instead, by partner, state, field and reason, with the newest of each; a request with three reasons counts three times. What a malformed body holds is not searched; "erase" without --yes lists that as well.`,
  options: [...filters, 'limit', 'count', 'reveal', 'as', 'why'],
  examples: [
    'find --email jane@example.com',
    'find --ein 12-3456789 --json',
    'find --name "ada ltd" --since 30d',
    'find --partner acme --state rejected --since 24h',
    'find --partner acme --idempotency-key 8e03978e-40d5-43dd-bc93-6894a57f9324',
    'find --state dead_lettered --limit 100',
    'find --state rejected --since 24h --count',
  ],
  run: findRequests,
};

export const exportRequests: Command = {
  name: 'export',
  positionals: [],
  about: 'all requests that match, oldest first, one JSON object a line',
  details:
    'Masked unless --reveal, which also adds the bodies. That, and a search for a person, is noted in operator_audit. Memory stays small.',
  options: [...filters, 'reveal', 'as', 'why'],
  examples: [
    'export --partner acme --since 30d > acme.ndjson',
    'export --state rejected --since 2026-11-01 --until 2026-12-01 | wc -l',
  ],
  run: exportMatching,
};

async function findRequests(call: Call): Promise<ExitCode> {
  const { out, values } = call;
  if (filters.every((name) => values[name] === undefined)) {
    throw new UsageError(
      'find: give at least one of --email, --ein, --name, --partner, --idempotency-key, --state, --reason, --since, --until',
    );
  }
  if (values.count === true) return countRequests(call);
  const { desk } = call;
  const limit = values.limit ?? FIND_DEFAULT;
  const found = await desk.submissions.newest(values, limit + 1);
  const shown = found.slice(0, limit);
  const reveal = values.reveal && shown.length > 0;
  const action = searchInWords('find', values, reveal);
  if (action !== undefined) await desk.trail.revealed({ action, ...concerning(shown) });
  if (values.json) out.json(shown.map((record) => recordJson(record, values.reveal)));
  else if (shown.length > 0)
    out.line(
      headed(
        FOUND,
        shown.map((record) => rowOf(record, values.reveal)),
        call.clock.now(),
      ),
    );
  if (shown.length === 0) {
    out.note('nothing found');
    return EXIT.found;
  }
  if (found.length > limit)
    out.note(`there are more: raise --limit, or narrow with --since and --until`);
  return EXIT.ok;
}

const COUNTED: readonly Column<Tally>[] = [
  ['COUNT', ({ count }) => String(count)],
  ['PARTNER', ({ partner }) => partner],
  ['STATE', ({ state }) => state],
  ['FIELD', ({ field }) => field],
  ['WHY', ({ why }) => why],
  ['NEWEST', ({ newest }) => newest],
];

async function countRequests({ desk, out, values, clock }: Call): Promise<ExitCode> {
  const action = searchInWords('find --count', values, false);
  if (action !== undefined) await desk.trail.revealed({ action });
  const tallies = await tallyOf(values, desk);
  if (values.json) out.json(tallies);
  else if (tallies.length > 0) out.line(headed(COUNTED, tallies, clock.now()));
  if (tallies.length > 0) return EXIT.ok;
  out.note('nothing found');
  return EXIT.found;
}

async function exportMatching(call: Call): Promise<ExitCode> {
  const { desk, out, values } = call;
  const { reveal } = values;
  const action = searchInWords('export', values, reveal);
  if (action !== undefined) await desk.trail.revealed({ action });
  for await (const page of desk.submissions.pages(values, { bodies: reveal })) {
    for (const record of page) out.jsonLine(recordJson(record, reveal));
    await out.drained();
  }
  return EXIT.ok;
}

function concerning(records: readonly SubmissionRecord[]): { requestId?: string; count?: number } {
  const [only] = records;
  return records.length === 1 && only !== undefined
    ? { requestId: only._id }
    : { count: records.length };
}
