/** Requests that a search finds, and the kinds of faults in them by number. */
import { ownerName } from '../../partner/key-terms.ts';
import type { StoredReason } from '../../application/reasons.ts';
import { defined } from '../../platform/process/defined.ts';
import type { State } from '../../submission/states.ts';
import type { SubmissionRecord } from '../../submission/submission.ts';
import type { Search } from '../../submission/support-queries.ts';
import { maskApplicant } from './mask.ts';
import type { Reads } from './reads.ts';
import { errorIn, errorOf } from './words.ts';

/** More kinds of faults than a person reads. */
const TALLIES = 1_000;

export type FoundRow = ReturnType<typeof rowOf>;

/** `reveal` must have been noted in the trail. */
export function rowOf(record: SubmissionRecord, reveal: boolean) {
  const { email = '', ein = '' } = maskApplicant(record.applicant ?? {}, reveal);
  return {
    requestId: record._id,
    receivedAt: record.receivedAt,
    state: record.state,
    status: record.httpStatus,
    partner: ownerName(record.partnerId ?? '', record),
    email: record.erasedAt === undefined ? email : 'erased',
    ein,
    why: record.reasons?.map(reasonInWords).join(', ') ?? errorOf(record) ?? '',
  };
}

const reasonInWords = ({ field, code }: StoredReason): string =>
  field === undefined ? code : `${field}: ${code}`;

const personalFilters = ['email', 'domain', 'emailStart', 'ein', 'name'] as const;

/**
 * What the trail says of a search for a person or of a reveal; undefined if it has nothing to note.
 * Names only the kind of a search, because its value is personal.
 */
export function searchInWords(
  command: string,
  search: Search,
  reveal: boolean,
): string | undefined {
  const asked = personalFilters
    .filter((name) => search[name] !== undefined)
    .map((name) => `--${name}`);
  const words = [...asked, ...(reveal ? ['--reveal'] : [])];
  return words.length === 0 ? undefined : [command, ...words].join(' ');
}

export interface TallyLine {
  readonly partner: string;
  readonly test?: true;
  readonly state: State;
  /** Of the application, where a reason names one. */
  readonly field: string;
  /** A reason's code, or the last error in words. */
  readonly why: string;
  readonly count: number;
  /** An example. */
  readonly newest: string;
}

/** Most frequent first. A request with three reasons counts in three lines. */
export async function tallyOf(search: Search, { submissions }: Pick<Reads, 'submissions'>) {
  const found = await submissions.tally(search, TALLIES);
  return merged(
    found.map((group) => ({
      partner: ownerName(group.partnerId ?? '', group),
      ...defined({ test: group.test }),
      state: group.state,
      field: group.field ?? '',
      why: group.code ?? errorIn(group.state, group.error) ?? '',
      count: group.count,
      newest: group.newest,
    })),
  );
}

/** Of live requests, the newest that are counted in time: since `from`, or all of them. */
export async function deadLettersView(
  { submissions }: Pick<Reads, 'submissions'>,
  now: Date,
  withinMs: number,
) {
  const since = new Date(0);
  const { groups, from } = await submissions.kinds({
    states: ['dead_lettered'],
    since,
    until: now,
    withinMs,
  });
  const lines = groups.map(({ partner, state, error, count, newest }): TallyLine => {
    const why = errorIn(state, error) ?? '';
    return { partner: partner ?? '', state, field: '', why, count, newest };
  });
  return { lines: merged(lines).slice(0, TALLIES), from: from > since ? from : undefined };
}

/** Different last errors may have the same words. */
function merged(lines: readonly TallyLine[]): TallyLine[] {
  const tallies = new Map<string, TallyLine>();
  for (const one of lines) {
    const key = [one.partner, one.state, one.field, one.why].join('\n');
    const { count = 0, newest = '' } = tallies.get(key) ?? {};
    tallies.set(key, {
      ...one,
      count: count + one.count,
      newest: newest > one.newest ? newest : one.newest,
    });
  }
  return [...tallies.values()].toSorted((one, other) => other.count - one.count);
}
