/** The keys by which accounts are unique. */
import { trimAddress } from './email-address.ts';

/** Keeps dots and +tags, because only the applicant's server knows whether they matter. */
export function normalizeEmail(email: string): string {
  return trimAddress(email).toLowerCase();
}

/** Accepts hyphens and blanks; returns other text unchanged. */
export function normalizeEin(ein: string): string {
  const digits = ein.replace(/[\s-]/g, '');
  return /^[0-9]{9}$/.test(digits) ? digits : ein;
}
