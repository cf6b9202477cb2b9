/** How operators find a business name that they have heard, typed or pasted. */

/** MongoDB refuses longer patterns. */
const PATTERN_MAX_BYTES = 30_000;
/** Zero-width characters, marks of direction and soft hyphens. */
const UNSEEN = '\u200B-\u200F\u2060\uFEFF\u00AD';
const BLANK = '\\s\u00A0\u2000-\u200A\u202F\u3000';
/** Characters that are typed for one another: each string is one group. */
const ALIKE = ["'’‘ʼ′`´", '"“”„″', '-‐‑‒–—−'];
const FULL_WIDTH_FROM = 0xfee0;

/** Removes invisible characters, and gives letters their usual width. */
export const plainText = (text: string): string => seen(text).normalize('NFKC').trim();

const seen = (text: string): string => text.replace(new RegExp(`[${UNSEEN}]`, 'gu'), '');

/**
 * Matches letters with and without accents, composed and decomposed, half and full width, any
 * blank, dash and apostrophe, and ignores characters without width. `whole` matches only the whole
 * name. Undefined if the name is too long for a pattern.
 */
export function namePattern(name: string, { whole = false } = {}): string | undefined {
  const between = `[${UNSEEN}]*`;
  const words = seen(name)
    .trim()
    .split(/\s+/)
    .map((word) => [...new Intl.Segmenter().segment(word)].map(({ segment }) => segment));
  const around = `[${BLANK}${UNSEEN}]*`;
  // The accents of a very long name must be right.
  const patterns = [accentedFormsOf, formsOf].map((forms) => {
    const text = words
      .map((word) => word.map(forms).join(between))
      .join(`${between}[${BLANK}]+${between}`);
    return whole ? `^${around}${text}${around}$` : text;
  });
  return patterns.find((pattern) => Buffer.byteLength(pattern) <= PATTERN_MAX_BYTES);
}

function formsOf(grapheme: string): string {
  return `(?:${allForms(grapheme).map(literally).join('|')})`;
}

function accentedFormsOf(grapheme: string): string {
  const accented = ACCENTED.get(withoutAccents(grapheme));
  if (accented === undefined) return formsOf(grapheme);
  const forms = allForms(grapheme).map(literally).join('|');
  return `(?:[${accented.join('')}]|${forms})[${MARKS}]*`;
}

function allForms(grapheme: string): string[] {
  const usual = grapheme.normalize('NFKC');
  const alike = ALIKE.find((all) => all.includes(grapheme) || all.includes(usual))?.split('');
  const forms = [grapheme, usual, ...(alike ?? [])].flatMap((form) => [
    form,
    form.normalize('NFD'),
    widened(form),
  ]);
  return [...new Set(forms)];
}

const MARKS = '\u0300-\u036F';
/** What Unicode does not take apart. */
const STROKED: Readonly<Record<string, string>> = { ø: 'o', ł: 'l', đ: 'd', ħ: 'h', ı: 'i' };

/** The letter that one is typed for, in lower case. */
function withoutAccents(letter: string): string {
  const plain = letter
    .normalize('NFKD')
    .replace(new RegExp(`[${MARKS}]+`, 'gu'), '')
    .toLowerCase();
  return STROKED[plain] ?? plain;
}

/** Each Latin letter with those that have accents, in both cases, and in full width. */
const ACCENTED: ReadonlyMap<string, readonly string[]> = new Map(
  [...Map.groupBy(latinLetters(), withoutAccents)].filter(([letter]) => /^[a-z]$/.test(letter)),
);

function latinLetters(): string[] {
  const blocks = [0x41, 0xc0, 0x1_00, 0x1e_00, 0xff_21].flatMap((from) =>
    Array.from({ length: 0x100 }, (_, index) => String.fromCharCode(from + index)),
  );
  return [...new Set(blocks)].filter((letter) => /^\p{L}$/u.test(letter));
}

function widened(form: string): string {
  const isNarrow = /^[!-~]$/.test(form);
  return isNarrow ? String.fromCharCode(form.charCodeAt(0) + FULL_WIDTH_FROM) : form;
}

export function literally(text: string): string {
  return text.replace(/[\\^$.*+?()[\]{}|]/g, '\\$&');
}
