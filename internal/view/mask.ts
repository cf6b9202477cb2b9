/** Masks personal data on a screen: enough to recognise, too little to use. */
import { printable } from '../platform/terminal.ts';
import type { Applicant } from '../submission/submission.ts';

const HIDDEN = '***';

/** `jane@example.com` → `j***@e***.com`. */
export function maskEmail(email: string): string {
  const at = email.lastIndexOf('@');
  if (at < 1) return firstLetter(email);
  const domain = email.slice(at + 1);
  const dot = domain.lastIndexOf('.');
  return `${firstLetter(email)}@${firstLetter(domain)}${dot < 1 ? '' : printable(domain.slice(dot).slice(0, 12))}`;
}

/** `123456789` → `*****6789`; anything else is hidden. */
export function maskEin(ein: string): string {
  return /^\d{9}$/.test(ein) ? `*****${ein.slice(-4)}` : HIDDEN;
}

/** `Ada Ltd` → `A***`, because a business is often named after its owner. */
export function maskName(name: string): string {
  return firstLetter(name.trim());
}

function firstLetter(text: string): string {
  const point = text.codePointAt(0);
  return point === undefined ? HIDDEN : printable(String.fromCodePoint(point)) + HIDDEN;
}

/** `reveal` must have been noted in the trail. */
export function maskApplicant(applicant: Applicant, reveal: boolean): Applicant {
  const masks = { email: maskEmail, ein: maskEin, businessName: maskName };
  const shown = Object.entries(masks).flatMap(([field, mask]) => {
    const value = applicant[field as keyof Applicant];
    return value === undefined ? [] : [[field, reveal ? value : mask(value)]];
  });
  return Object.fromEntries(shown) as Applicant;
}

/** The shape of any text: our own field names stay, other letters become "x" and digits "9". */
export function maskText(text: string): string {
  return printable(text).replaceAll(
    /(?<![\p{L}\p{N}])(?:email|business_name|ein)(?![\p{L}\p{N}])|[\p{L}\p{M}]|\p{N}/giu,
    (found) => (found.length > 2 ? found : /\p{N}/u.test(found) ? '9' : 'x'),
  );
}
