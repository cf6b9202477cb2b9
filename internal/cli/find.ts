/** `find` and `export`: requests by applicant, partner, state and time. */
import { styleText } from 'node:util';
import { printable, table } from '../platform/terminal.ts';
import type { SubmissionRecord } from '../submission/submission.ts';
import { EXIT, type Call, type Command, type ExitCode } from './command.ts';
import { UsageError, type Values } from './options.ts';
import { FIND_DEFAULT } from './limits.ts';
import { maskApplicant } from './mask.ts';
import { utc } from './timeline.ts';
import { viewOf } from './record-json.ts';

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

const personalFilters = ['email', 'ein', 'name'] as const;

export const find: Command = {
  name: 'find',
  positionals: [],
  about: 'requests by applicant, partner, state or time, newest first',
  details: `Prints at most --limit requests (${FIND_DEFAULT} unless told otherwise). What a malformed body holds is not searched; "erase" without --yes lists that as well.`,
  options: [...filters, 'limit', 'reveal', 'as', 'why'],
  examples: [
    'find --email jane@example.com',
    'find --ein 12-3456789 --json',
    'find --name "ada ltd" --since 30d',
    'find --partner acme --state rejected --since 24h',
    'find --partner acme --idempotency-key 8e03978e-40d5-43dd-bc93-6894a57f9324',
    'find --state dead_lettered --limit 100',
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
  const { desk } = call;
  const limit = values.limit ?? FIND_DEFAULT;
  const found = await desk.submissions.newest(values, limit + 1);
  const shown = found.slice(0, limit);
  const reveal = values.reveal && shown.length > 0;
  const action = searchInWords('find', values, reveal);
  if (action !== undefined) await desk.trail.revealed({ action, ...concerning(shown) });
  if (values.json) out.json(shown.map((record) => viewOf(record, values.reveal)));
  else if (shown.length > 0)
    out.line(table([header, ...shown.map((record) => row(record, values.reveal))], ''));
  if (shown.length === 0) {
    out.note('nothing found');
    return EXIT.found;
  }
  if (found.length > limit)
    out.note(`there are more: raise --limit, or narrow with --since and --until`);
  return EXIT.ok;
}

const header = ['REQUEST', 'RECEIVED (UTC)', 'STATE', 'PARTNER', 'E-MAIL', 'EIN', 'WHY'].map(
  (name) => styleText('dim', name),
);

function row(record: SubmissionRecord, reveal: boolean): string[] {
  const { email = '', ein = '' } = maskApplicant(record.applicant ?? {}, reveal);
  const why = record.reasons?.map((reason) => reason.code).join(', ') ?? record.lastError ?? '';
  return [
    record._id,
    utc(record.receivedAt).slice(0, -4),
    record.state,
    record.partnerId ?? '',
    record.erasedAt === undefined ? email : 'erased',
    ein,
    why,
  ].map(printable);
}

async function exportMatching(call: Call): Promise<ExitCode> {
  const { desk, out, values } = call;
  const { reveal } = values;
  const action = searchInWords('export', values, reveal);
  if (action !== undefined) await desk.trail.revealed({ action });
  for await (const page of desk.submissions.pages(values, { bodies: reveal })) {
    for (const record of page) out.jsonLine(viewOf(record, reveal));
    await out.drained();
  }
  return EXIT.ok;
}

/** Names only the kind of a search for a person, because its value is personal. */
function searchInWords(command: string, values: Values, reveal: boolean): string | undefined {
  const asked = personalFilters
    .filter((name) => values[name] !== undefined)
    .map((name) => `--${name}`);
  const words = [...asked, ...(reveal ? ['--reveal'] : [])];
  return words.length === 0 ? undefined : [command, ...words].join(' ');
}

function concerning(records: readonly SubmissionRecord[]): { requestId?: string; count?: number } {
  const [only] = records;
  return records.length === 1 && only !== undefined
    ? { requestId: only._id }
    : { count: records.length };
}
