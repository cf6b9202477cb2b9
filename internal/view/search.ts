/** Requests that a search finds, and the kinds of faults in them by number. */
import { ownerName } from '../partner/mode.ts';
import { defined } from '../platform/defined.ts';
import type { SubmissionRecord } from '../submission/submission.ts';
import type { Search } from '../submission/support-queries.ts';
import { TALLIES } from './limits.ts';
import { maskApplicant } from './mask.ts';
import { errorOf } from './reasons.ts';
import type { Reads } from './reads.ts';

export type FoundRow = ReturnType<typeof rowOf>;

/** `reveal` must have been noted in the trail. */
export function rowOf(record: SubmissionRecord, reveal: boolean) {
  const { email = '', ein = '' } = maskApplicant(record.applicant ?? {}, reveal);
  return {
    requestId: record._id,
    receivedAt: record.receivedAt,
    state: record.state,
    partner: ownerName(record.partnerId ?? '', record),
    email: record.erasedAt === undefined ? email : 'erased',
    ein,
    why: record.reasons?.map(({ code }) => code).join(', ') ?? errorOf(record) ?? '',
  };
}

const personalFilters = ['email', 'ein', 'name'] as const;

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

/**
 * At most `limit` masked requests, newest first, older than the request `before`. `next` is where
 * the next page begins, undefined on the last one.
 */
export async function foundPage(
  search: Search,
  { submissions }: Pick<Reads, 'submissions'>,
  { limit, before }: { readonly limit: number; readonly before?: string | undefined },
) {
  const found = await submissions.newest({ ...search, ...defined({ before }) }, limit + 1);
  const shown = found.slice(0, limit);
  const next = found.length > limit ? shown.at(-1)?._id : undefined;
  return { rows: shown.map((record) => rowOf(record, false)), next };
}

export interface Tally {
  readonly partner: string;
  readonly state: string;
  /** Of the application, where a reason names one. */
  readonly field: string;
  /** A reason's code, or the last error in words. */
  readonly why: string;
  readonly count: number;
  /** An example. */
  readonly newest: string;
}

/** Most frequent first. A request with three reasons counts in three lines. */
export async function tallyOf(
  search: Search,
  { submissions }: Pick<Reads, 'submissions'>,
): Promise<Tally[]> {
  const tallies = new Map<string, Tally>();
  for (const group of await submissions.tally(search, TALLIES)) {
    const { state, partnerId = '', field = '', code, lastError, newest } = group;
    const partner = ownerName(partnerId, group);
    const why = code ?? errorOf({ state, ...(lastError === undefined ? {} : { lastError }) }) ?? '';
    const key = [partner, state, field, why].join('\n');
    const { count = 0, newest: other = '' } = tallies.get(key) ?? {};
    tallies.set(key, {
      partner,
      state,
      field,
      why,
      count: count + group.count,
      newest: newest > other ? newest : other,
    });
  }
  return [...tallies.values()].toSorted((one, other) => other.count - one.count);
}
