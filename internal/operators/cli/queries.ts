/** The commands that change nothing: `show`, `find`, `export`, `audit`, and the lists. */
import { createReadStream } from 'node:fs';
import { createInterface } from 'node:readline';
import { styleText } from 'node:util';
import { sourceWords } from '../../installation/installation.ts';
import { printable } from '../../application/fields.ts';
import { duration, table } from '../view/terminal.ts';
import type { Clock } from '../../platform/process/clock.ts';
import { states, type State } from '../../submission/states.ts';
import { auditView, type AuditView } from '../view/audit.ts';
import { HistoryError, historyView, type HistoryView } from '../view/history.ts';
import { isEmail, lookUp, lookUpEmail } from '../view/look-up.ts';
import {
  causesOf,
  holdsView,
  keysView,
  keyStatusInWords,
  partnersView,
  OPEN_COUNTED,
} from '../view/partners.ts';
import { recordJson } from '../view/record.ts';
import { requestView, type RequestView, type Tone } from '../view/request.ts';
import { rowOf, searchInWords, tallyOf, type FoundRow, type TallyLine } from '../view/search.ts';
import type { Happening } from '../view/timeline.ts';
import { fromNow, utc, utcSeconds } from '../view/words.ts';
import {
  CommandError,
  EXIT,
  requestIdOrAddress,
  UsageError,
  type Call,
  type Command,
  type OptionName,
  type Report,
} from './command.ts';

/** One screen of rows. */
export const FIND_DEFAULT = 20;

/** A header, and the cell below it. */
type Column<T> = readonly [string, (row: T, now: Date) => string];

/** Leaves out columns without any value. */
function headed<T>(columns: readonly Column<T>[], rows: readonly T[], now: Date): string {
  const filled = columns
    .map(([header, cell]) => [header, rows.map((row) => printable(cell(row, now)))] as const)
    .filter(([, cells]) => cells.some((cell) => cell !== ''));
  const headers = filled.map(([header]) => styleText('dim', header));
  return table([headers, ...rows.map((_, index) => filled.map(([, cells]) => cells[index]!))], '');
}

/** Names as in partners' JSON; null for absent values. */
function forPrograms(model: object): Record<string, unknown> {
  return Object.fromEntries(
    Object.entries(model).map(([name, value]) => [
      name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`),
      value ?? null,
    ]),
  );
}

const FOUND: readonly Column<FoundRow>[] = [
  ['REQUEST', ({ requestId }) => requestId],
  ['RECEIVED (UTC)', ({ receivedAt }) => utcSeconds(receivedAt)],
  ['STATE', ({ state }) => state],
  ['PARTNER', ({ partner }) => partner],
  ['E-MAIL', ({ email }) => email],
  ['EIN', ({ ein }) => ein],
  ['WHY', ({ why }) => why],
];

/** A search that finds nothing has another exit code. */
function listed<T>(
  columns: readonly Column<T>[],
  rows: readonly T[],
  {
    json,
    now,
    none = 'nothing found',
  }: { readonly json: unknown; readonly now: Date; readonly none?: string },
): Report {
  return rows.length > 0
    ? { json, text: headed(columns, rows, now) }
    : { json, text: '', notes: [printable(none)], code: EXIT.found };
}

export const show: Command = {
  name: 'show',
  positionals: [requestIdOrAddress],
  options: ['reveal', 'as', 'why'],
  run: async ({ stores, values, clock, positionals: [name = ''] }) => {
    const { reveal = false } = values;
    const now = clock.now();
    const byEmail = isEmail(name);
    const found = byEmail ? await lookUpEmail(name, stores) : await lookUp(name, stores, now);
    const action = ['show', ...(byEmail ? ['by address'] : []), ...(reveal ? ['--reveal'] : [])];
    const requestId = 'missing' in found ? {} : { requestId: found._id };
    if (byEmail || reveal) await stores.trail.revealed({ action: action.join(' '), ...requestId });
    if ('missing' in found) throw new CommandError(found.missing);
    const view = await requestView(found, stores, { now, reveal });
    return { json: view.json, text: pageOf(view, now) };
  },
};

const COLOURS = {
  good: 'green',
  open: 'cyan',
  bad: 'red',
  lost: 'red',
  other: 'yellow',
} as const satisfies Record<Tone, string>;

function pageOf(view: RequestView, now: Date): string {
  const { reasons, others, offers } = view;
  const heading = (words: string, more = ''): string => `\n${styleText('bold', words)}${more}`;
  const test = view.test ? `${styleText(['bold', 'yellow'], 'TEST')}  ` : '';
  const id = styleText('bold', printable(view.requestId));
  const lines = [
    `${test}${id}  ${styleText(COLOURS[view.tone], printable(view.state))}`,
    table(view.facts.map(({ name, words }) => [styleText('dim', name), printable(words)])),
  ];
  if (reasons.length > 0)
    lines.push(
      heading(reasons.length === 1 ? 'One reason' : `${reasons.length} reasons`),
      table(
        reasons.map(({ field, code, message }) => [
          printable(field),
          styleText('yellow', printable(code)),
          printable(message),
        ]),
      ),
    );
  lines.push(
    heading('Timeline', ' (UTC)'),
    table(view.timeline.map(happeningRow)),
    heading('Next', `  ${printable(view.json.next)}`),
  );
  if (offers.length > 0)
    lines.push(
      heading('Possible'),
      table(offers.map(({ what, command }) => [what, printable(command)])),
    );
  if (others.length > 0) lines.push(heading('Of the same applicant'), headed(FOUND, others, now));
  return lines.join('\n');
}

function happeningRow(
  { at, what, said = '', times, until = at }: Happening,
  index: number,
  all: readonly Happening[],
): string[] {
  const before = all[index - 1];
  const sinceMs = before === undefined ? 0 : at.getTime() - (before.until ?? before.at).getTime();
  const often =
    times === undefined ? '' : `, ${times} times in ${duration(until.getTime() - at.getTime())}`;
  return [
    utc(at),
    styleText('dim', before === undefined ? '' : `+${duration(sinceMs)}`),
    what + said + often,
  ];
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
    const { values } = call;
    if (filters.every((name) => values[name] === undefined))
      throw new UsageError(
        'find: give at least one of --email, --ein, --name, --partner, --idempotency-key, --state, --reason, --since, --until',
      );
    if (values.count) return countRequests(call);
    const { limit = FIND_DEFAULT, reveal = false } = values;
    const found = await call.stores.submissions.newest(values, limit + 1);
    const shown = found.slice(0, limit);
    const [only] = shown;
    const about = shown.length === 1 ? { requestId: only!._id } : { count: shown.length };
    await noteSearch('find', call, reveal && shown.length > 0, about);
    const rows = shown.map((record) => rowOf(record, reveal));
    const json = shown.map((record) => recordJson(record, reveal));
    const report = listed(FOUND, rows, { json, now: call.clock.now() });
    if (found.length <= limit) return report;
    const more = 'there are more: raise --limit, or narrow with --since and --until';
    return { ...report, notes: [more] };
  },
};

const COUNTED = (['count', 'partner', 'state', 'field', 'why', 'newest'] as const).map(
  (name): Column<TallyLine> => [name.toUpperCase(), (tally) => String(tally[name])],
);

async function countRequests(call: Call): Promise<Report> {
  await noteSearch('find --count', call, false);
  const rows = await tallyOf(call.values, call.stores);
  return listed(COUNTED, rows, { json: rows, now: call.clock.now() });
}

export const exportRequests: Command = {
  name: 'export',
  positionals: [],
  options: [...filters, 'reveal', 'as', 'why'],
  run: async (call) => {
    await noteSearch('export', call, call.values.reveal === true);
    return { lines: exported(call) };
  },
};

async function* exported({ stores, values }: Call): AsyncGenerator<object> {
  const { reveal = false } = values;
  for await (const page of stores.submissions.pages(values, { bodies: reveal }))
    for (const record of page) yield recordJson(record, reveal);
}

/** A search for a person and a reveal leave an entry in the trail. */
async function noteSearch(
  command: string,
  { stores, values }: Call,
  reveal: boolean,
  about: { readonly requestId?: string; readonly count?: number } = {},
): Promise<void> {
  const action = searchInWords(command, values, reveal);
  if (action !== undefined) await stores.trail.revealed({ action, ...about });
}

export const audit: Command = {
  name: 'audit',
  positionals: [],
  options: ['since', 'history'],
  run: async ({ stores, values, clock }) => {
    if (values.history !== undefined) return historyReport(values.history, stores, clock);
    const view = await auditView(stores, clock, values.since);
    return {
      json: forPrograms(view),
      text: auditPageOf(view, clock.now()),
      code: view.problems === 0 ? EXIT.ok : EXIT.found,
    };
  },
};

function auditPageOf(view: AuditView, now: Date): string {
  const { requestsByState: byState, problems } = view;
  const known = states.filter((state) => byState[state] !== undefined);
  const others = Object.keys(byState).filter((state) => !states.includes(state as State));
  const total = Object.values(byState).reduce((sum, count) => sum + count, 0);
  const rows = [...known, ...others].map((state) => [printable(state), String(byState[state])]);
  const some = (count: number, words: string): string => (count === 0 ? '' : `, ${count} ${words}`);
  const lines = [
    `${styleText('bold', 'Requests')} at ${now.toISOString().slice(0, 19)}Z`,
    table([...rows, ['all', String(total)], ['of these accepted (202)', String(view.accepted)]]),
    `${styleText('bold', 'Accounts')}  ${view.accounts}${some(view.accountsReleased, 'of them released')}${some(view.accountsWhoseRequestIsPastRetention, 'whose request is past its retention')}`,
  ];
  if (view.putAside > 0) lines.push(`${view.putAside} findings are put aside by operators`);
  for (const { kind, weight, meaning, count, ids } of view.findings) {
    const colour = weight === 'problem' ? 'red' : 'yellow';
    lines.push(`\n${styleText(colour, weight)}  ${count} ${kind}: each ${meaning}`);
    lines.push(...ids.map((id) => `  ${printable(id)}`));
    if (count > ids.length) lines.push(`  … and ${count - ids.length} more`);
  }
  lines.push(
    problems === 0
      ? `\n${styleText('green', 'All is where it should be:')} every accepted request is in exactly one state, and accounts and requests agree.`
      : `\n${styleText('red', `${problems} problem(s).`)} "partner-ingest show ID" tells more of each; docs/operations.md says what to do.`,
  );
  return lines.join('\n');
}

async function historyReport(
  file: string,
  { submissions }: Call['stores'],
  clock: Clock,
): Promise<Report> {
  const input = file === '-' ? process.stdin : createReadStream(file);
  const lines = createInterface({ input, crlfDelay: Infinity });
  // readline does not hand over errors of its input.
  const failed = new Promise<never>((_, reject) => input.once('error', reject));
  const view = await Promise.race([failed, historyView(lines, submissions, clock)]).catch(
    (error: unknown) => {
      if (!isUnreadable(error)) throw error;
      throw new CommandError(`${printable(file)} cannot be read: ${error.message}`, EXIT.usage);
    },
  );
  return {
    json: forPrograms(view),
    text: historyPageOf(view),
    code: view.problems === 0 && view.accepted > 0 ? EXIT.ok : EXIT.found,
  };
}

/** A system error of reading the file, or what the file holds. */
const isUnreadable = (error: unknown): error is Error =>
  error instanceof HistoryError || typeof (error as NodeJS.ErrnoException).syscall === 'string';

function historyPageOf(view: HistoryView): string {
  const rows = [
    ['operations', view.operations],
    ['answered 202', view.accepted],
    ['answered 4xx or 500', view.notAccepted],
    ['without an answer', view.unknown],
    ['too old to compare', view.pastRetention],
  ] as const;
  const lines = [table(rows.map(([what, number]) => [what, String(number)]))];
  for (const { kind, meaning, count, ids } of view.findings) {
    lines.push(`\n${styleText('red', 'problem')}  ${count} ${kind}: each ${meaning}`);
    lines.push(...ids.map((id) => `  ${printable(id)}`));
    if (count > ids.length) lines.push(`  … and ${count - ids.length} more`);
  }
  if (view.accepted === 0)
    lines.push(`\n${styleText('yellow', 'It proves nothing:')} nothing was answered 202.`);
  else if (view.problems === 0)
    lines.push(
      `\n${styleText('green', 'The history is true:')} nothing it was told is contradicted.`,
    );
  return lines.join('\n');
}

interface ListCommand<T> {
  readonly name: string;
  readonly options?: readonly OptionName[];
  readonly read: (call: Call) => Promise<readonly T[]>;
  readonly columns: readonly Column<T>[];
  readonly none: string;
}

/** An empty list is an error only with `--partner`. */
function listOf<T extends object>({ read, columns, none, ...command }: ListCommand<T>): Command {
  return {
    positionals: [],
    options: [],
    ...command,
    run: async (call) => {
      const { partner } = call.values;
      const rows = await read(call);
      if (rows.length === 0 && partner === undefined) return { json: [], text: none };
      const json = rows.map(forPrograms);
      const now = call.clock.now();
      return listed(columns, rows, { json, now, none: `${none} of ${partner}` });
    },
  };
}

const lastUse = [
  ['LAST USED (UTC)', ({ lastUsedAt }) => (lastUsedAt ? utcSeconds(lastUsedAt) : 'never')],
  ['', ({ lastUsedAt }, now) => (lastUsedAt ? fromNow(lastUsedAt, now) : '')],
] as const satisfies readonly Column<{ readonly lastUsedAt: Date | undefined }>[];

export const partnerList = listOf({
  name: 'partner list',
  read: ({ stores, clock }) => partnersView(stores, clock.now()),
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
  read: ({ stores }) => holdsView(stores),
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
  read: ({ stores, values, clock }) => keysView(stores, values.partner, clock.now()),
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

export const installation: Command = {
  name: 'installation show',
  positionals: [],
  options: [],
  run: async ({ stores }) => {
    const found = await stores.installation.read();
    if (found === undefined)
      throw new CommandError('no process of this version has used this database yet');
    const { id, keysOf } = found;
    const source = keysOf === undefined ? 'no source yet' : sourceWords(keysOf);
    return {
      json: { id, keys_of: keysOf ?? null },
      text: printable(`${id}  partner keys from ${source}`),
    };
  },
};
