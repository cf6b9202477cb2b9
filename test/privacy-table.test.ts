/** docs/privacy.md lists exactly the stored fields of collections with personal data. */
import { expect, test } from '@jest/globals';
import { read } from './support/pages.ts';

/** File and interface of each collection's documents. */
const shapes: Readonly<Record<string, readonly (readonly [file: string, name: string])[]>> = {
  requests: [['internal/submission/submission.ts', 'SubmissionRecord']],
  accounts: [['internal/account/account.ts', 'Account']],
  rate_limited: [['internal/submission/over-limit.ts', 'RateLimitedRecord']],
  partner_holds: [['internal/partner/flags.ts', 'Flagged']],
  partners_disabled: [['internal/partner/flags.ts', 'Flagged']],
  operator_audit: [
    ['internal/audit/entry.ts', 'TrailEntry'],
    ['internal/audit/entry.ts', 'OperatorAction'],
  ],
};

function fieldsOf(file: string, name: string): string[] {
  const [, body = ''] =
    new RegExp(`interface ${name}[^{]*\\{\\n([\\s\\S]*?)\\n\\}`).exec(read(file)) ?? [];
  return [...body.matchAll(/^ {2}readonly (\w+)\??:/gm)].map(([, field = '']) => field);
}

/** Rows of the table with their collection and fields. */
const rows = [...read('docs/privacy.md').matchAll(/^\| `(\w+)`: (.*)$/gm)].map(
  ([, collection = '', row = '']) => {
    const [fields = '', ...cells] = row.split('|').map((cell) => cell.trim());
    return {
      collection,
      fields: [...fields.matchAll(/`(\w+)`/g)].map(([, field = '']) => field),
      cells,
    };
  },
);

test.each(Object.keys(shapes))(
  'the table has exactly the fields of %s, each once',
  (collection) => {
    const stored = shapes[collection]!.flatMap(([file, name]) => fieldsOf(file, name));
    expect(stored.length).toBeGreaterThan(4);
    const named = rows
      .filter((row) => row.collection === collection)
      .flatMap(({ fields }) => fields);
    expect(named.toSorted()).toEqual(stored.toSorted());
  },
);

test('every row has a purpose, a class, a time and who erases it', () => {
  expect(rows.length).toBeGreaterThan(10);
  for (const { cells } of rows) expect(cells.filter((cell) => cell !== '')).toHaveLength(4);
});
