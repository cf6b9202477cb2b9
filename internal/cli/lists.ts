/** `partner list`, `partner holds` and `keys list`: tables for people, rows for programs. */
import { styleText } from 'node:util';
import { printable, table } from '../platform/terminal.ts';
import { OPEN_COUNTED } from '../view/limits.ts';
import {
  holdsView,
  keysView,
  keyStatusInWords,
  partnersView,
  switchedOffBy,
} from '../view/partners.ts';
import type { FoundRow } from '../view/search.ts';
import { fromNow, utcSeconds } from '../view/times.ts';
import { EXIT, type Call, type Command } from './command.ts';

/** A header, and the cell below it. */
export type Column<T> = readonly [string, (row: T, now: Date) => string];

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

interface List<T> extends Pick<Command, 'name' | 'about' | 'details' | 'examples'> {
  readonly options?: Command['options'];
  readonly read: (call: Call) => Promise<readonly T[]>;
  readonly columns: readonly Column<T>[];
  readonly none: string;
}

function listOf<T extends object>({ read, columns, none, ...command }: List<T>): Command {
  return {
    positionals: [],
    options: [],
    ...command,
    run: async (call) => {
      const { out, values, clock } = call;
      const rows = await read(call);
      if (values.json) out.json(rows.map(forPrograms));
      else if (rows.length > 0) out.line(headed(columns, rows, clock.now()));
      // A list of all may be empty; a search that finds nothing has another exit code.
      else if (values.partner === undefined) out.line(none);
      if (rows.length > 0 || values.partner === undefined) return EXIT.ok;
      out.note(printable(`${none} of ${values.partner}`));
      return EXIT.found;
    },
  };
}

const lastUse = [
  ['LAST USED (UTC)', ({ lastUsedAt }) => (lastUsedAt ? utcSeconds(lastUsedAt) : 'never')],
  ['', ({ lastUsedAt }, now) => (lastUsedAt ? fromNow(lastUsedAt, now) : '')],
] as const satisfies readonly Column<{ readonly lastUsedAt: Date | undefined }>[];

export const partnerList = listOf({
  name: 'partner list',
  about: 'all partners: whether their keys are accepted, and what switched one off',
  details:
    'A partner is "active", "inactive" by the status of a Secret, "disabled" by "partner disable", or has "no keys". The last use is at most 30 s behind.',
  examples: ['partner list', 'partner list --json'],
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
    ['WHY', switchedOffBy],
  ],
  none: 'there are no partners',
});

export const partnerHolds = listOf({
  name: 'partner holds',
  about: 'which partners are on hold',
  details: `Waiting requests are counted up to ${OPEN_COUNTED}.`,
  examples: ['partner holds', 'partner holds --json'],
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
  about: 'active keys, with their Secret and their last use',
  details:
    'Keys are named by the beginning of their SHA-256. "inactive by SECRET" names the Secret whose status says so; "disabled" is "partner disable". The last use is at most 30 s behind.',
  options: ['partner'],
  examples: ['keys list', 'keys list --partner acme --json'],
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
