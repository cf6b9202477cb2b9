/** What "the same applicant" means: the keys by which accounts are unique. */

/**
 * The key an e-mail address is compared by: trimmed and lower-cased whole. Dots and +tags stay,
 * because only the applicant's mail server knows whether they matter.
 */
export function normalizeEmail(email: string): string {
  return email.trim().toLowerCase();
}

/**
 * The nine digits of an EIN written 12-3456789 or with blanks; anything else as it is, because it
 * is none.
 */
export function normalizeEin(ein: string): string {
  const digits = ein.replace(/[\s-]/g, '');
  return /^[0-9]{9}$/.test(digits) ? digits : ein;
}
