/** A pattern for business names that finds what a person would call the same text. */

/** MongoDB refuses a longer one. */
const PATTERN_MAX_BYTES = 30_000;
/** Zero-width characters, marks of direction and soft hyphens. */
const UNSEEN = '\u200B-\u200F\u2060\uFEFF\u00AD';
const BLANK = '\\s\u00A0\u2000-\u200A\u202F\u3000';
/** What keyboards and word processors write for each other. */
const ALIKE = ["'’‘ʼ′`´", '"“”„″', '-‐‑‒–—−'];
const FULL_WIDTH_FROM = 0xfee0;

/** Text without characters that nobody sees, in its usual width. */
export const plainText = (text: string): string => seen(text).normalize('NFKC').trim();

const seen = (text: string): string => text.replace(new RegExp(`[${UNSEEN}]`, 'gu'), '');

/**
 * Matches composed and decomposed letters, half and full width, any blank, dash and apostrophe, and
 * ignores characters without width. `whole` matches only the whole name. Undefined if the name is
 * too long for a pattern.
 */
export function namePattern(name: string, { whole = false } = {}): string | undefined {
  const between = `[${UNSEEN}]*`;
  const words = seen(name)
    .trim()
    .split(/\s+/)
    .map((word) => [...new Intl.Segmenter().segment(word)].map(({ segment }) => formsOf(segment)));
  const text = words.map((word) => word.join(between)).join(`${between}[${BLANK}]+${between}`);
  const around = `[${BLANK}${UNSEEN}]*`;
  const pattern = whole ? `^${around}${text}${around}$` : text;
  return Buffer.byteLength(pattern) > PATTERN_MAX_BYTES ? undefined : pattern;
}

function formsOf(grapheme: string): string {
  const usual = grapheme.normalize('NFKC');
  const alike = ALIKE.find((all) => all.includes(grapheme) || all.includes(usual))?.split('');
  const forms = [grapheme, usual, ...(alike ?? [])].flatMap((form) => [
    form,
    form.normalize('NFD'),
    widened(form),
  ]);
  return `(?:${[...new Set(forms)].map(literally).join('|')})`;
}

function widened(form: string): string {
  const isNarrow = /^[!-~]$/.test(form);
  return isNarrow ? String.fromCharCode(form.charCodeAt(0) + FULL_WIDTH_FROM) : form;
}

export function literally(text: string): string {
  return text.replace(/[\\^$.*+?()[\]{}|]/g, '\\$&');
}
