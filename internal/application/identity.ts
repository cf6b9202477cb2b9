/** What "the same applicant" means: the keys that accounts are unique by. */

/**
 * The key an e-mail address is compared by: trimmed and lower-cased whole. Dots and +tags stay, because only the
 * applicant's mail server knows whether they matter.
 */
export function normalizeEmail(email: string): string {
  return email.trim().toLowerCase();
}
