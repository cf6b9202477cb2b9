/** What one text names: requests, or partners. */
import type { Account } from '../../account/account.ts';
import { defined } from '../../platform/process/defined.ts';
import { timeOfId } from '../../platform/stores/ids.ts';
import type { Search } from '../../submission/support-queries.ts';
import { idsFrom, lookUp, type FoundSubmission } from './look-up.ts';
import type { PersonalReading, Reading } from './read-as.ts';
import type { Reads } from './reads.ts';

const FOUND_PAGE = 50;
const BEGIN_SO = 20;
const PARTNERS_SHOWN = 10;
/** Of each kind, while a text is typed. */
const SUGGESTED = 5;
/** Of a whole id, with its prefix. */
const ID_LENGTH = 30;
/** What a reference has of it. */
const REFERENCE_LENGTH = 20;
/** A search without an index reads the newest requests for so long. */
const WITHIN_MS = 3_000;

export interface FoundByText {
  readonly found: readonly FoundSubmission[];
  readonly partners?: readonly string[];
  /** What the trail notes. */
  readonly search?: Search;
  /** Why there is no request of a whole id; `found` then begin alike. */
  readonly missing?: string;
  /** The `before` to continue with. */
  readonly next?: string | undefined;
  /** Where the time of one search ended. */
  readonly searchedTo?: Date | undefined;
}

type Findable = Pick<Reads, 'submissions' | 'accounts'>;

/** The request with this id; if there is none, those whose ids begin alike. */
export async function findById(id: string, reads: Findable, now: Date): Promise<FoundByText> {
  const seen = await lookUp(id, reads, now);
  if (!('missing' in seen)) return { found: [seen] };
  const isWhole = id.length === ID_LENGTH;
  const start = isWhole ? id.slice(0, REFERENCE_LENGTH) : id;
  const alike = await idsFrom(start, reads, BEGIN_SO);
  const all = await Promise.all(alike.map((one) => lookUp(one, reads, now)));
  const found = all.flatMap((one) => ('missing' in one ? [] : [one]));
  return { found, ...(isWhole ? seen : {}) };
}

const partnersLike = (text: string, all: readonly string[]): string[] =>
  all.filter((name) => name.toLowerCase().includes(text.toLowerCase()));

/** The known partner of this name in any case. */
export const partnerNamed = (text: string, all: readonly string[]): string | undefined =>
  all.find((name) => name === text) ??
  all.find((name) => name.toLowerCase() === text.toLowerCase());

/** What a text may name that is no person's: a few partners and ids. */
export async function suggestionsFor(
  text: string,
  readings: readonly Reading[],
  { partners, ...reads }: Findable & { readonly partners: readonly string[] },
) {
  const { value: start } = readings.find(({ as }) => as === 'id') ?? {};
  return {
    partners: partnersLike(text, partners).slice(0, SUGGESTED),
    ids: start === undefined ? [] : await idsFrom(start, reads, SUGGESTED),
  };
}

export async function findByData(
  { as, value }: PersonalReading,
  { submissions, accounts }: Findable,
  {
    partners: all,
    now,
    ...asked
  }: {
    readonly partners: readonly string[];
    readonly wholeName: boolean;
    readonly before?: string;
    readonly now: Date;
  },
): Promise<FoundByText> {
  const like = as === 'name' ? partnersLike(value, all) : [];
  const same = partnerNamed(value, like);
  if (same !== undefined) return { found: [], partners: [same] };
  const partners = like.slice(0, PARTNERS_SHOWN);
  const search: Search = { [as]: value };
  const list = await submissions.list({ ...asked, ...search }, FOUND_PAGE + 1, WITHIN_MS);
  // The record may have expired.
  let account: Account | undefined;
  if (list.found.length === 0 && as === 'email')
    account = await accounts.find('emailNormalized', value);
  if (list.found.length === 0 && as === 'ein') account = await accounts.find('ein', value);
  const kept = account && (await lookUp(account._id, { submissions, accounts }, now));
  const found = kept && !('missing' in kept) ? [kept] : list.found.slice(0, FOUND_PAGE);
  const isAll = list.found.length <= FOUND_PAGE;
  const next = isAll ? list.next : found.at(-1)?._id;
  const searchedTo = isAll && next !== undefined ? timeOfId(next) : undefined;
  return { search, partners, found, ...defined({ next, searchedTo }) };
}
