/** The options and arguments of all commands. */
import { z } from 'zod';
import { isEmailAddress } from '../application/email-address.ts';
import { KEY_ID_LENGTH } from '../partner/api-key.ts';
import { isPartnerId } from '../partner/key-secret.ts';
import { TEXT_MAX, WHY_MAX } from '../view/limits.ts';
import { fields, text, when } from '../view/search-fields.ts';
import { PAGE_MAX, RATE_DEFAULT, RATE_MAX, WHO_MAX } from './limits.ts';

export class UsageError extends Error {
  override readonly name = 'UsageError';
}

const count = (max: number) => {
  const rule = `It must be a whole number from 1 to ${max}.`;
  return z.coerce.number(rule).int(rule).min(1, rule).max(max, rule);
};

const status = z.string().regex(/^[245]\.\d{1,3}\.\d{1,3}$/, 'It must be like 5.1.1.');
const namespace = z
  .string()
  .regex(/^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/, 'It must be the name of a Kubernetes namespace.');

const fixedOptions = {
  json: { flags: '--json', about: 'JSON for programs instead of text for people' },
  reveal: { flags: '--reveal', about: 'personal data in clear; noted in operator_audit' },
  yes: {
    flags: '--yes',
    about: 'do it; without this nothing changes and what would happen is listed',
  },
  test: { flags: '--test', about: 'for tests: nothing it submits is real' },
  count: { flags: '--count', about: 'how many of each kind, instead of a list' },
  as: {
    flags: '--as <NAME>',
    about: 'who you are, for operator_audit (default: $USER, else the account of the system)',
    schema: text(WHO_MAX),
  },
  why: {
    flags: '--why <TEXT>',
    about: 'why, for operator_audit: a ticket, a sentence',
    schema: text(WHY_MAX),
  },
  email: {
    flags: '--email <ADDRESS>',
    about: 'of the applicant, in any case',
    schema: fields.email,
  },
  ein: { flags: '--ein <DIGITS>', about: 'nine digits; a hyphen is ignored', schema: fields.ein },
  name: {
    flags: '--name <TEXT>',
    about: 'part of the business name, in any case',
    schema: fields.name,
  },
  reason: {
    flags: '--reason <TEXT>',
    about: "part of the last error, or the code of a rejection's reason",
    schema: fields.reason,
  },
  rate: {
    flags: '--rate <N>',
    about: `at most this many a second (default: ${RATE_DEFAULT})`,
    schema: count(RATE_MAX),
  },
  partner: { flags: '--partner <ID>', about: 'only of this partner', schema: fields.partner },
  state: {
    flags: '--state <STATE>',
    about: 'only in this state',
    schema: fields.state,
  },
  idempotencyKey: {
    flags: '--idempotency-key <KEY>',
    about: 'of the request, without quotes; needs --partner',
    schema: text(TEXT_MAX),
  },
  limit: {
    flags: '--limit <N>',
    about: `at most this many, up to ${PAGE_MAX}`,
    schema: count(PAGE_MAX),
  },
  request: {
    flags: '--request <REQUEST_ID>',
    about: 'the request whose e-mail it is',
    schema: text(TEXT_MAX),
  },
  messageId: {
    flags: '--message-id <ID>',
    about: 'Message-ID of the e-mail',
    schema: text(TEXT_MAX),
  },
  status: {
    flags: '--status <CODE>',
    about: 'status of the bounce (RFC 3463), such as 5.1.1',
    schema: status,
  },
  namespace: {
    flags: '--namespace <NAME>',
    about: 'of the Secret (default: the one the controller watches)',
    schema: namespace,
  },
} as const;

/** Relative times count from `now`. */
export function optionsAt(now: Date) {
  return {
    ...fixedOptions,
    since: {
      flags: '--since <WHEN>',
      about: 'not older than 30m, 24h, 7d, or a date such as 2026-11-21T09:00Z; UTC',
      schema: when(now),
    },
    until: { flags: '--until <WHEN>', about: 'not newer than that', schema: when(now) },
  } as const;
}

type Options = ReturnType<typeof optionsAt>;
export type OptionName = keyof Options;
type Switch = 'json' | 'reveal' | 'yes';
type Flag = 'count' | 'test';

export type Values = Readonly<
  Record<Switch, boolean> & {
    readonly [Name in Flag]?: true;
  } & {
    [Name in Exclude<OptionName, Switch | Flag>]?: z.output<Options[Name]['schema']>;
  }
>;

/** Brackets in `syntax` make it optional. */
export interface Positional {
  readonly syntax: string;
  readonly about: string;
  readonly schema: z.ZodType<string>;
}

const ID = 'its id, the reference number of its e-mail, or the id of its account';
const id = z.string().trim().max(TEXT_MAX, 'It is too long.');
export const requestId: Positional = { syntax: '<REQUEST_ID>', about: ID, schema: id };
export const requestIdOrAddress: Positional = {
  syntax: '<REQUEST_ID>',
  about: `${ID}, or the e-mail address of its applicant`,
  schema: id,
};
export const maybeRequestId: Positional = { ...requestId, syntax: '[REQUEST_ID]' };
export const address: Positional = {
  syntax: '<ADDRESS>',
  about: 'the right e-mail address',
  schema: z.string().trim().refine(isEmailAddress, 'It is not a valid e-mail address.'),
};
export const partner: Positional = {
  syntax: '<PARTNER>',
  about: 'name of the partner',
  schema: z
    .string()
    .refine(
      isPartnerId,
      'It must be 1 to 63 letters, digits, ".", "_" or "-", as a Kubernetes label.',
    ),
};
export const keyId: Positional = {
  syntax: '<KEY>',
  about: 'id that "keys list" shows',
  schema: z
    .string()
    .toLowerCase()
    .regex(
      new RegExp(`^[0-9a-f]{${KEY_ID_LENGTH},64}$`),
      `It must be the ${KEY_ID_LENGTH} hexadecimal digits that "keys list" shows, or more of the SHA-256.`,
    ),
};
