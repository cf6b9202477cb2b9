/** Masks personal data on a screen. */
import { type Applicant, bodyFields, eachField, printable } from '../../application/fields.ts';

/**
 * `reveal` must have been noted in the trail. Who may reveal sees the business `byWords`: how each
 * word of its name begins.
 */
export function maskApplicant(applicant: Applicant, reveal: boolean, byWords = false): Applicant {
  return eachField(({ mask }, key) => {
    const value = applicant[key];
    if (value === undefined || reveal) return value;
    return key === 'businessName' && byWords ? maskWords(value) : mask(value);
  });
}

/** `Harbor Bakery` → `H*** B***`. */
const maskWords = (name: string): string =>
  name.trim().split(/\s+/u).slice(0, WORDS_SHOWN).map(bodyFields.businessName.mask).join(' ');

const WORDS_SHOWN = 4;

const names = Object.values(bodyFields).map(({ name }) => name);
const shaped = new RegExp(
  `(?<![\\p{L}\\p{N}])(?:${names.join('|')})(?![\\p{L}\\p{N}])|[\\p{L}\\p{M}]|\\p{N}`,
  'giu',
);

/** The shape of any text: our own field names stay, other letters become "x" and digits "9". */
export function maskText(text: string): string {
  return printable(text).replaceAll(shaped, (found) =>
    found.length > 2 ? found : /\p{N}/u.test(found) ? '9' : 'x',
  );
}
