/** docs/privacy.md lists exactly the stored fields of collections with personal data. */
import { expect, test } from '@jest/globals';
import { bodyFields } from '../internal/application/fields.ts';
import { read } from './support/pages.ts';

/** File and interface of each collection's documents. */
const shapes: Readonly<Record<string, readonly (readonly [file: string, name: string])[]>> = {
  requests: [['internal/submission/submission.ts', 'SubmissionRecord']],
  accounts: [['internal/account/account.ts', 'Account']],
  rate_limited: [['internal/submission/over-limit.ts', 'RateLimitedRecord']],
  partner_holds: [['internal/partner/flags.ts', 'Flagged']],
  partners_disabled: [['internal/partner/flags.ts', 'Flagged']],
  operator_audit: [
    ['internal/operators/trail/trail.ts', 'TrailEntry'],
    ['internal/operators/trail/trail.ts', 'OperatorAction'],
  ],
};

function fieldsOf(file: string, name: string): string[] {
  const [, parent = '', body = ''] =
    new RegExp(`interface ${name}([^{]*)\\{\\n([\\s\\S]*?)\\n\\}`).exec(read(file)) ?? [];
  return [
    ...(parent.includes('extends Application') ? Object.keys(bodyFields) : []),
    ...[...body.matchAll(/^ {2}readonly (\w+)\??:/gm)].map(([, field = '']) => field),
  ];
}

/** The names in each entry of the list: collections, then their fields. */
const entries = [...read('docs/privacy.md').matchAll(/^- (`[a-z][^]*?)(?=\n- |\n\n)/gm)].map(
  ([, entry = '']) => [...entry.matchAll(/`([a-z_]\w*)`/g)].map(([, name = '']) => name),
);

test.each(Object.keys(shapes))('the list has exactly the fields of %s, each once', (collection) => {
  const stored = shapes[collection]!.flatMap(([file, name]) => fieldsOf(file, name));
  expect(stored.length).toBeGreaterThan(4);
  const named = entries
    .filter((entry) => entry.includes(collection))
    .flatMap((entry) => entry.filter((name) => !(name in shapes)));
  expect(named.toSorted()).toEqual(stored.toSorted());
});
