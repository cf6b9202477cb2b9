/** What "the same applicant" means: the keys by which accounts are unique. */

/** Dots and +tags stay: only the applicant's server knows whether they matter. */
export function normalizeEmail(email: string): string {
  return email.trim().toLowerCase();
}

/** Takes 12-3456789 and blanks; any other text stays as it is. */
export function normalizeEin(ein: string): string {
  const digits = ein.replace(/[\s-]/g, '');
  return /^[0-9]{9}$/.test(digits) ? digits : ein;
}
