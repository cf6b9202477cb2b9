/** Requests that a search finds, and the kinds of faults in them by number. */
import { ownerName } from '../../partner/key-terms.ts';
import type { Applicant } from '../../application/fields.ts';
import { defined } from '../../platform/process/defined.ts';
import { timeOfId } from '../../platform/stores/ids.ts';
import { namePattern } from '../../submission/name-pattern.ts';
import type { State } from '../../submission/states.ts';
import type { SubmissionRecord } from '../../submission/submission.ts';
import type { Search } from '../../submission/support-queries.ts';
import { maskApplicant } from './mask.ts';
import type { Reading } from './read-as.ts';
import { reasonInWords, reasonName } from './reason-words.ts';
import type { Reads } from './reads.ts';
import { errorIn, errorOf, storedErrorOf } from './words.ts';

/** More kinds of faults than a person reads. */
const TALLIES = 1_000;

export type FoundRow = ReturnType<typeof rowOf>;

/** `reveal` must have been noted in the trail. */
export function rowOf(record: SubmissionRecord, reveal: boolean, byWords = false) {
  const { applicant = {} } = record;
  const { businessName = '', email = '', ein = '' } = maskApplicant(applicant, reveal, byWords);
  return {
    requestId: record._id,
    receivedAt: record.receivedAt,
    state: record.state,
    status: record.httpStatus,
    partner: ownerName(record.partnerId ?? '', record),
    business: businessName,
    email: record.erasedAt === undefined ? email : 'erased',
    ein,
    why: record.reasons?.map(reasonName).join(', ') ?? storedErrorOf(record) ?? '',
    whyInWords: record.reasons?.map(reasonInWords).join(', ') ?? errorOf(record) ?? '',
  };
}

/** The column, and from where to where in it, of what stands masked for what was searched by. */
export type Mark = readonly [column: 'business' | 'email' | 'ein', from: number, to: number];

/** Of the words of a name, or of the sides of an @, those that matched. */
export function markIn(
  { as, value }: Reading,
  { business, email, ein }: FoundRow,
  { businessName = '' }: Applicant = {},
): Mark | undefined {
  const at = email.lastIndexOf('@');
  switch (as) {
    case 'id':
      return undefined;
    case 'ein':
      return ['ein', 0, ein.length];
    case 'domain':
      return ['email', at + 1, email.length];
    case 'email':
    case 'emailStart':
      return ['email', 0, value.includes('@') || at < 0 ? email.length : at];
    case 'name': {
      const name = businessName.trim();
      const found = new RegExp(namePattern(value) ?? '', 'iu').exec(name);
      if (found === null) return undefined;
      const wordsBefore = (end: number): number => name.slice(0, end).split(/\s+/u).length - 1;
      const words = business.split(' ');
      const lengthOf = (count: number): number => words.slice(0, count).join(' ').length;
      const first = wordsBefore(found.index);
      const from = lengthOf(first) + (first > 0 ? 1 : 0);
      return ['business', from, lengthOf(wordsBefore(found.index + found[0].length) + 1)];
    }
  }
}

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

/** Requests that were given up for the same reason. */
export interface DeadCause {
  /** Their last error in words. */
  readonly why: string;
  /** The same as stored, by which a list finds them; undefined if versions have different words. */
  readonly reason?: string;
  readonly count: number;
  /** When the oldest and the newest were received. */
  readonly oldest: Date | undefined;
  readonly last: Date | undefined;
  /** An example. */
  readonly newest: string;
  /** Most frequent first. */
  readonly partners: readonly string[];
}

/**
 * Of live requests, most frequent cause first: the newest that are counted in time, since `from`,
 * or all of them.
 */
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
  const causes = [...Map.groupBy(groups, ({ state, error }) => errorIn(state, error) ?? '')].map(
    ([why, some]): DeadCause => {
      const [reason, ...others] = new Set(some.map(({ error }) => error?.words));
      const byPartner = [...Map.groupBy(some, ({ partner }) => partner ?? '')]
        .map(([partner, theirs]) => ({ partner, count: totalOf(theirs) }))
        .toSorted((one, other) => other.count - one.count);
      const newest =
        some
          .map((one) => one.newest)
          .toSorted()
          .at(-1) ?? '';
      return {
        why,
        ...defined({ reason: others.length === 0 ? reason : undefined }),
        count: totalOf(some),
        oldest: timeOfId(some.map(({ oldest }) => oldest).toSorted()[0] ?? ''),
        last: timeOfId(newest),
        newest,
        partners: byPartner.map(({ partner }) => partner),
      };
    },
  );
  return {
    causes: causes.toSorted((one, other) => other.count - one.count).slice(0, TALLIES),
    from: from > since ? from : undefined,
  };
}

export const totalOf = (all: readonly { readonly count: number }[]): number =>
  all.reduce((sum, { count }) => sum + count, 0);

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
