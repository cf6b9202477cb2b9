/** What a text may name that somebody has heard, pasted or cut off. */
import { isEmailAddress, isHostName, normalizeEmail } from '../../application/fields.ts';
import { later } from '../../platform/process/clock.ts';
import { timeOfId } from '../../platform/stores/ids.ts';
import { namePattern, plainText } from '../../submission/name-pattern.ts';

/** Of an id's letters: the ids of one second begin so. */
const ID_LEAST = 8;
const ID_LENGTH = 26;
/** No id is older. */
const FIRST_ID_AT = new Date('2020-01-01');
/** Clocks may differ. */
const AHEAD_MS = 3_600_000;

export interface PersonalReading {
  readonly as: 'email' | 'domain' | 'emailStart' | 'ein' | 'name';
  /** As `Search` has it. */
  readonly value: string;
}

/** An id as it is stored, or its beginning. */
export type Reading = PersonalReading | { readonly as: 'id'; readonly value: string };

/** The likeliest first; empty for a text that can name nothing. */
export function readAs(typed: string, now: Date): readonly Reading[] {
  const text = plainText(typed);
  const address = addressIn(text);
  if (address !== undefined) return [address];
  const digits = text.replace(/[\s\p{Pd}\u2212]/gu, '');
  if (/^\d{9}$/.test(digits)) return [{ as: 'ein', value: digits }];
  const { id, isSure } = idIn(text, now);
  const reading = id === undefined ? [] : [{ as: 'id', value: id } as const];
  if (isSure) return reading;
  const domain = text.toLowerCase();
  return [
    ...reading,
    ...(isHostName(domain) ? [{ as: 'domain', value: domain } as const] : []),
    ...(namePattern(typed, { whole: true }) === undefined
      ? []
      : [{ as: 'name', value: typed } as const]),
  ];
}

/** Also within a text, as in "Ada <ada@example.com>". */
function addressIn(text: string): Reading | undefined {
  const [found] = /[^\s<>()[\]"',;:]*@[^\s<>()[\]"',;:]*/.exec(text) ?? [];
  if (found === undefined) return undefined;
  const email = normalizeEmail(found.replace(/\.+$/, ''));
  if (isEmailAddress(email)) return { as: 'email', value: email };
  const [local, domain = ''] = email.split('@');
  if (local !== '') return { as: 'emailStart', value: email };
  return isHostName(domain) ? { as: 'domain', value: domain } : undefined;
}

/** Ids have no i, l, o and u: these are read as what they look like. */
const asStored = (letters: string): string =>
  letters
    .toLowerCase()
    .replace(/[\s\p{P}\p{S}]/gu, '')
    .replace(/o/g, '0')
    .replace(/[il]/g, '1')
    .replace(/u/g, 'v');

/** `isSure`: it can be nothing else, so without `id` too little of it is there. */
export function idIn(text: string, now: Date): { readonly id?: string; readonly isSure?: boolean } {
  // In a sentence, an address or JSON, what follows is not of the id.
  const pasted = /(?<![a-z0-9])(req|acc)_([0-9a-z]{8,26})(?![0-9a-z])/i.exec(text);
  const [, named, rest = ''] = pasted ?? /^\W*(req|acc)?(.*)$/is.exec(text) ?? [];
  const letters = asStored(rest);
  // "Acc Holdings" is a name.
  const isSure = named !== undefined && /^0\d/.test(letters);
  const id = `${named?.toLowerCase() ?? 'req'}_${letters}`;
  const { length } = letters;
  if (!/^[0-7][0-9a-z]*$/.test(letters) || length < ID_LEAST || length > ID_LENGTH)
    return { isSure };
  const madeAt = timeOfId(id.padEnd(ID_LENGTH + id.length - length, '0')) ?? new Date(0);
  return isSure || (madeAt > FIRST_ID_AT && madeAt < later(now, AHEAD_MS)) ? { id, isSure } : {};
}
