/** The options of all commands: what they are called, what they take, and their values once checked. */
import type { State } from '../submission/states.ts';
import { PAGE_MAX } from './limits.ts';

/** A mistake of the caller, told in one line. */
export class UsageError extends Error {
  override readonly name = 'UsageError';
}

interface Option {
  readonly type: 'boolean' | 'string';
  /** What the value is, in the help. */
  readonly value?: string;
  readonly about: string;
}

/** Every option there is; a command names those it takes. */
export const options = {
  help: { type: 'boolean', about: 'this text' },
  json: { type: 'boolean', about: 'JSON for programs instead of text for people' },
  reveal: { type: 'boolean', about: 'personal data in clear; noted in operator_audit' },
  yes: { type: 'boolean', about: 'do it; without this nothing changes and what would happen is listed' },
  as: { type: 'string', value: 'NAME', about: 'who you are, for operator_audit (default: $USER)' },
  why: { type: 'string', value: 'TEXT', about: 'why, for operator_audit: a ticket, a sentence' },
  email: { type: 'string', value: 'ADDRESS', about: 'of the applicant, in any case' },
  ein: { type: 'string', value: 'DIGITS', about: 'nine digits; a hyphen is ignored' },
  partner: { type: 'string', value: 'ID', about: 'only of this partner' },
  state: { type: 'string', value: 'STATE', about: 'only in this state' },
  since: { type: 'string', value: 'WHEN', about: 'not older than 30m, 24h, 7d, or a date such as 2026-11-21T09:00Z' },
  until: { type: 'string', value: 'WHEN', about: 'not newer than that' },
  limit: { type: 'string', value: 'N', about: `at most so many, up to ${PAGE_MAX}` },
  namespace: { type: 'string', value: 'NAME', about: 'of the Secret (default: partner-keys)' },
} as const satisfies Record<string, Option>;
export type OptionName = keyof typeof options;

/** The checked values of a command line. */
export interface Values {
  readonly json: boolean;
  readonly reveal: boolean;
  readonly yes: boolean;
  readonly as?: string;
  readonly why?: string;
  /** Normalised. */
  readonly email?: string;
  /** Nine digits. */
  readonly ein?: string;
  readonly partner?: string;
  readonly state?: State;
  readonly since?: Date;
  readonly until?: Date;
  readonly limit?: number;
  readonly namespace?: string;
}
