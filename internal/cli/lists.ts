/** `find`, `export` and the lists of partners and keys: tables for people, rows for programs. */
import { styleText } from 'node:util';
import { printable, table } from '../platform/process/terminal.ts';
import {
  causesOf,
  holdsView,
  keysView,
  keyStatusInWords,
  partnersView,
  OPEN_COUNTED,
} from '../view/partners.ts';
import { recordJson } from '../view/record.ts';
import { rowOf, searchInWords, tallyOf, type FoundRow, type TallyLine } from '../view/search.ts';
import { fromNow, utcSeconds } from '../view/times.ts';
import { EXIT, UsageError, type Call, type Command, type ExitCode } from './command.ts';
import { FIND_DEFAULT } from './bounds.ts';
import type { OptionName } from './options.ts';

/** A header, and the cell below it. */
type Column<T> = readonly [string, (row: T, now: Date) => string];

/** A table with headers; a column without any value is left out. */
export function headed<T>(columns: readonly Column<T>[], rows: readonly T[], now: Date): string {
  const filled = columns
    .map(([header, cell]) => [header, rows.map((row) => printable(cell(row, now)))] as const)
    .filter(([, cells]) => cells.some((cell) => cell !== ''));
  const headers = filled.map(([header]) => styleText('dim', header));
  return table([headers, ...rows.map((_, index) => filled.map(([, cells]) => cells[index]!))], '');
}

/** Names as partners' JSON has them, and null for what is absent. */
export function forPrograms(model: object): Record<string, unknown> {
  return Object.fromEntries(
    Object.entries(model).map(([name, value]) => [
      name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`),
      value ?? null,
    ]),
  );
}

export const FOUND: readonly Column<FoundRow>[] = [
  ['REQUEST', ({ requestId }) => requestId],
  ['RECEIVED (UTC)', ({ receivedAt }) => utcSeconds(receivedAt)],
  ['STATE', ({ state }) => state],
  ['PARTNER', ({ partner }) => partner],
  ['E-MAIL', ({ email }) => email],
  ['EIN', ({ ein }) => ein],
  ['WHY', ({ why }) => why],
];

interface List<T> {
  readonly rows: readonly T[];
  readonly columns: readonly Column<T>[];
  readonly json: unknown;
  readonly none?: string;
  /** A list of all may be empty; a search that finds nothing has another exit code. */
  readonly isSearch?: boolean;
}

function print<T>(
  { rows, columns, json, none = 'nothing found', isSearch = true }: List<T>,
  { out, values, clock }: Call,
): ExitCode {
  if (values.json) out.json(json);
  else if (rows.length > 0) out.line(headed(columns, rows, clock.now()));
  else if (!isSearch) out.line(none);
  if (rows.length > 0 || !isSearch) return EXIT.ok;
  out.note(printable(none));
  return EXIT.found;
}

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
] as const satisfies OptionName[];

export const find: Command = {
  name: 'find',
  positionals: [],
  options: [...filters, 'limit', 'count', 'reveal', 'as', 'why'],
  run: async (call) => {
    const { out, values } = call;
    if (filters.every((name) => values[name] === undefined))
      throw new UsageError(
        'find: give at least one of --email, --ein, --name, --partner, --idempotency-key, --state, --reason, --since, --until',
      );
    if (values.count) return countRequests(call);
    const { limit = FIND_DEFAULT, reveal = false } = values;
    const found = await call.desk.submissions.newest(values, limit + 1);
    const shown = found.slice(0, limit);
    const [only] = shown;
    const about = shown.length === 1 ? { requestId: only!._id } : { count: shown.length };
    await noteSearch('find', call, reveal && shown.length > 0, about);
    const code = print(
      {
        rows: shown.map((record) => rowOf(record, reveal)),
        columns: FOUND,
        json: shown.map((record) => recordJson(record, reveal)),
      },
      call,
    );
    if (found.length > limit)
      out.note(`there are more: raise --limit, or narrow with --since and --until`);
    return code;
  },
};

const COUNTED = (['count', 'partner', 'state', 'field', 'why', 'newest'] as const).map(
  (name): Column<TallyLine> => [name.toUpperCase(), (tally) => String(tally[name])],
);

async function countRequests(call: Call): Promise<ExitCode> {
  await noteSearch('find --count', call, false);
  const rows = await tallyOf(call.values, call.desk);
  return print({ rows, columns: COUNTED, json: rows }, call);
}

export const exportRequests: Command = {
  name: 'export',
  positionals: [],
  options: [...filters, 'reveal', 'as', 'why'],
  run: async (call) => {
    const { desk, out, values } = call;
    const { reveal = false } = values;
    await noteSearch('export', call, reveal);
    for await (const page of desk.submissions.pages(values, { bodies: reveal })) {
      for (const record of page) out.jsonLine(recordJson(record, reveal));
      await out.drained();
    }
    return EXIT.ok;
  },
};

/** A search for a person and a reveal leave an entry in the trail. */
async function noteSearch(
  command: string,
  { desk, values }: Call,
  reveal: boolean,
  about: { readonly requestId?: string; readonly count?: number } = {},
): Promise<void> {
  const action = searchInWords(command, values, reveal);
  if (action !== undefined) await desk.trail.revealed({ action, ...about });
}

interface ListCommand<T> extends Pick<List<T>, 'columns'> {
  readonly name: string;
  readonly none: string;
  readonly options?: readonly OptionName[];
  readonly read: (call: Call) => Promise<readonly T[]>;
}

function listOf<T extends object>({ read, columns, none, ...command }: ListCommand<T>): Command {
  return {
    positionals: [],
    options: [],
    ...command,
    run: async (call) => {
      const { partner } = call.values;
      const rows = await read(call);
      return print(
        {
          rows,
          columns,
          json: rows.map(forPrograms),
          none: partner === undefined ? none : `${none} of ${partner}`,
          isSearch: partner !== undefined,
        },
        call,
      );
    },
  };
}

const lastUse = [
  ['LAST USED (UTC)', ({ lastUsedAt }) => (lastUsedAt ? utcSeconds(lastUsedAt) : 'never')],
  ['', ({ lastUsedAt }, now) => (lastUsedAt ? fromNow(lastUsedAt, now) : '')],
] as const satisfies readonly Column<{ readonly lastUsedAt: Date | undefined }>[];

export const partnerList = listOf({
  name: 'partner list',
  read: ({ desk, clock }) => partnersView(desk, clock.now()),
  columns: [
    ['PARTNER', ({ partner }) => partner],
    ['STATUS', ({ status }) => status],
    [
      'ACTIVE KEYS',
      ({ keys: { active, inactive } }) =>
        inactive === 0 ? `${active}` : `${active} of ${active + inactive}`,
    ],
    ...lastUse,
    ['WHY', causesOf],
  ],
  none: 'there are no partners',
});

export const partnerHolds = listOf({
  name: 'partner holds',
  read: ({ desk }) => holdsView(desk),
  columns: [
    ['PARTNER', ({ partner }) => partner],
    ['ON HOLD', ({ at, by }, now) => `${fromNow(at, now)} by ${by}`],
    ['WAITING', ({ waiting }) => `${waiting >= OPEN_COUNTED ? 'at least ' : ''}${waiting}`],
  ],
  none: 'no partner is on hold',
});

export const keysList = listOf({
  name: 'keys list',
  options: ['partner'],
  read: ({ desk, values }) => keysView(desk, values.partner),
  columns: [
    ['PARTNER', ({ partner }) => partner],
    ['STATUS', keyStatusInWords],
    ['KEY', ({ key }) => key],
    ['SECRET', ({ secret }) => secret],
    ...lastUse,
    ['ENDS (UTC)', ({ notAfter }) => (notAfter ? utcSeconds(notAfter) : '')],
  ],
  none: 'there are no keys',
});
