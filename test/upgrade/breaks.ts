/**
 * Deliberate breaks of the promise in docs/upgrade.md, one of each kind: ours stores something in a
 * form that the version before does not know, and says nothing of it. `make test-upgrade BREAK=name`
 * must find it.
 */
export type BreakName = keyof typeof breaks;

interface Break {
  readonly edits: readonly (readonly [file: string, find: string, replace: string])[];
  /** Among the words of what is found. */
  readonly found: RegExp;
}

const INDEXES = 'internal/submission/indexes.ts';
const KEY_DOCUMENT = 'internal/partner/key-document.ts';
const JOB = 'internal/queue/job.ts';

export const breaks = {
  /** Another key under the same name. */
  index: {
    edits: [[INDEXES, 'state: 1, dueAt: 1, partnerId: 1', 'dueAt: 1, state: 1, partnerId: 1']],
    found: /index requests_due is not as this version defines it/,
  },
  /** A field of the record has another name. */
  field: {
    edits: [
      [
        'internal/processor/create-account.ts',
        'changes: { applicant, accountId }',
        'changes: { applicant, account: accountId }',
      ],
      [
        'internal/processor/mail-applicant.ts',
        'const { accountId } = record;',
        'const { account: accountId } = record;',
      ],
    ],
    found: /the account of this request was not found/,
  },
  /** The hash of a stored key has another name. */
  keys: {
    edits: [
      [
        KEY_DOCUMENT,
        'version: next, keys,',
        'version: next, keys: keys.map(({ hash, ...key }) => ({ ...key, sha256: hash })),',
      ],
      [
        KEY_DOCUMENT,
        'return (await this.#documents.findOne({ _id: KEYS }, bounded)) ?? undefined;',
        `const found = await this.#documents.findOne({ _id: KEYS }, bounded);
         const renamed = ({ sha256, hash = sha256, ...key }) => ({ ...key, hash });
         return found === null ? undefined : { ...found, keys: found.keys.map(renamed) };`,
      ],
    ],
    found: /was answered 401/,
  },
  /** A job lists its records under another name. */
  job: {
    edits: [
      [JOB, 'records: z.array', 'submissions: z.array'],
      [JOB, '.data?.records', '.data?.submissions'],
      [JOB, 'data: { records: [hint]', 'data: { submissions: [hint]'],
      [JOB, 'data: { records }', 'data: { submissions: records }'],
    ],
    found: /a job without records was dropped/,
  },
} as const satisfies Readonly<Record<string, Break>>;
