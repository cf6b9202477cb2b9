/**
 * The options of all commands: what they are called, what they take, and their values once checked.
 */
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
  yes: {
    type: 'boolean',
    about: 'do it; without this nothing changes and what would happen is listed',
  },
  as: { type: 'string', value: 'NAME', about: 'who you are, for operator_audit (default: $USER)' },
  why: { type: 'string', value: 'TEXT', about: 'why, for operator_audit: a ticket, a sentence' },
  email: { type: 'string', value: 'ADDRESS', about: 'of the applicant, in any case' },
  ein: { type: 'string', value: 'DIGITS', about: 'nine digits; a hyphen is ignored' },
  name: { type: 'string', value: 'TEXT', about: 'part of the business name, in any case' },
  reason: {
    type: 'string',
    value: 'TEXT',
    about: "part of the last error, or the code of a rejection's reason",
  },
  rate: { type: 'string', value: 'N', about: 'at most so many a second' },
  partner: { type: 'string', value: 'ID', about: 'only of this partner' },
  state: { type: 'string', value: 'STATE', about: 'only in this state' },
  since: {
    type: 'string',
    value: 'WHEN',
    about: 'not older than 30m, 24h, 7d, or a date such as 2026-11-21T09:00Z',
  },
  until: { type: 'string', value: 'WHEN', about: 'not newer than that' },
  'idempotency-key': {
    type: 'string',
    value: 'KEY',
    about: 'of the request, without quotes; needs --partner',
  },
  limit: { type: 'string', value: 'N', about: `at most so many, up to ${PAGE_MAX}` },
  request: { type: 'string', value: 'REQUEST_ID', about: 'the request whose e-mail it is' },
  'message-id': { type: 'string', value: 'ID', about: 'Message-ID of the e-mail' },
  status: {
    type: 'string',
    value: 'CODE',
    about: 'status of the bounce (RFC 3463), such as 5.1.1',
  },
  after: {
    type: 'string',
    value: 'REQUEST_ID',
    about: 'go on behind this one, where an interrupted command stopped',
  },
  namespace: {
    type: 'string',
    value: 'NAME',
    about: 'of the Secret (default: the one the controller watches)',
  },
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
  readonly name?: string;
  readonly reason?: string;
  readonly rate?: number;
  readonly partner?: string;
  readonly state?: State;
  readonly since?: Date;
  readonly until?: Date;
  readonly 'idempotency-key'?: string;
  readonly limit?: number;
  readonly request?: string;
  readonly 'message-id'?: string;
  readonly status?: string;
  readonly key?: string;
  readonly after?: string;
  readonly namespace?: string;
}
