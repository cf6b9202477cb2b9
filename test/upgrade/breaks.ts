/**
 * Deliberate breaks of the promise in docs/upgrade.md, one of each kind: ours stores something in a
 * form that the version before does not know, and says nothing of it. `make test-upgrade BREAK=name`
 * must find it.
 */
import type { Change } from '../mutants/list.ts';

export type BreakName = keyof typeof breaks;

interface Break {
  readonly edits: readonly Change[];
  /** Matches what the run must report. */
  readonly found: RegExp;
}

const KEY_DOCUMENT = 'internal/partner/key-document.ts';
const JOB = 'internal/queue/job.ts';

export const breaks = {
  /** An index of the same name has another key. */
  index: {
    edits: [
      {
        file: 'internal/submission/indexes.ts',
        find: 'state: 1, dueAt: 1, partnerId: 1',
        replace: 'dueAt: 1, state: 1, partnerId: 1',
      },
    ],
    found: /index requests_due is not as this version defines it/,
  },
  /** A field of the record has another name. */
  field: {
    edits: [
      {
        file: 'internal/processor/create-account.ts',
        find: 'changes: { applicant, accountId }',
        replace: 'changes: { applicant, account: accountId }',
      },
      {
        file: 'internal/processor/mail-applicant.ts',
        find: 'const { accountId } = record;',
        replace: 'const { account: accountId } = record;',
      },
    ],
    found: /missing_account|the account of this request was not found/,
  },
  /** The hash of a stored key has another name. */
  keys: {
    edits: [
      {
        file: KEY_DOCUMENT,
        find: 'version: next, keys,',
        replace: 'version: next, keys: keys.map(({ hash, ...key }) => ({ ...key, sha256: hash })),',
      },
      {
        file: KEY_DOCUMENT,
        find: 'return document ?? undefined;',
        replace: `const renamed = ({ sha256, hash = sha256, ...key }) => ({ ...key, hash });
         return document === null ? undefined : { ...document, keys: document.keys.map(renamed) };`,
      },
    ],
    found: /answered (the \w+ key )?401/,
  },
  /** A job lists its records under another name. */
  job: {
    edits: [
      { file: JOB, find: 'records: z.array', replace: 'submissions: z.array' },
      { file: JOB, find: '.data?.records', replace: '.data?.submissions' },
      { file: JOB, find: 'data: { records: [hint]', replace: 'data: { submissions: [hint]' },
      { file: JOB, find: 'data: { records }', replace: 'data: { submissions: records }' },
    ],
    found: /a job without records was dropped/,
  },
} as const satisfies Readonly<Record<string, Break>>;
