/**
 * The fields of an application's body. From this table follow how a body is parsed, what records
 * and accounts hold, how people see it masked, and what the OpenAPI document says.
 */
import { isIPv4, isIPv6 } from 'node:net';
import { z } from 'zod';

/* What a valid e-mail address is, of applicants, operators, settings and the chart. */

/** RFC 5321 §4.5.3.1 allows 256 octets with angle brackets, and 64 before the @. */
export const EMAIL_MAX = 254;

const WORD = "[\\w!#$%&'*+/=?^`{|}~-]+";
const LABEL = '[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?';
/** `xn--` labels pass, IP addresses do not. */
const HOST_NAME = `(?:${LABEL}\\.)+[A-Za-z](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])`;
const HOST_NAME_MAX = 253;

/**
 * Helm's JSON Schema has no lookaheads, hence two patterns. Internationalised addresses are refused
 * (docs/decisions/0012).
 */
export const emailRule = {
  maxLength: EMAIL_MAX,
  allOf: [{ pattern: `^${WORD}(?:\\.${WORD})*@${HOST_NAME}$` }, { pattern: '^[^@]{1,64}@' }],
};

const patterns = emailRule.allOf.map(({ pattern }) => new RegExp(pattern));
const hostName = new RegExp(`^${HOST_NAME}$`);

export function isEmailAddress(value: string): boolean {
  return value.length <= EMAIL_MAX && patterns.every((pattern) => pattern.test(value));
}

export function isHostName(value: string): boolean {
  return value.length <= HOST_NAME_MAX && hostName.test(value);
}

/** How we greet a relay. JSON Schema cannot check the address in brackets. */
export const clientNameRule = { pattern: `^(?:${HOST_NAME}|\\[(?:IPv6:)?[0-9A-Fa-f.:]+\\])$` };

/** Also accepts an address literal such as `[IPv6:2001:db8::1]` (RFC 5321 §4.1.3). */
export function isClientName(value: string): boolean {
  const [, v6, address] = /^\[(IPv6:)?(.+)\]$/i.exec(value) ?? [];
  if (address === undefined) return isHostName(value);
  return v6 === undefined ? isIPv4(address) : isIPv6(address);
}

/** Blanks and invisible characters such as U+200B, which copying from pages and chats adds. */
const unseen = /[\s\p{Default_Ignorable_Code_Point}]/u;

/** Removes invisible characters at both ends, in linear time. */
export function trimEmail(value: string): string {
  let [from, to] = [0, value.length];
  while (from < to && unseen.test(value[from]!)) from += 1;
  while (from < to && unseen.test(value[to - 1]!)) to -= 1;
  return value.slice(from, to);
}

export function domainOf(address: string): string {
  return address.slice(address.lastIndexOf('@') + 1);
}

/* The fields. */

export const fieldFaults = [
  'missing',
  'wrong_type',
  'invalid_format',
  'blank',
  'too_long',
] as const;
type FieldFault = (typeof fieldFaults)[number];

export interface BodyField {
  readonly name: string;
  /** Reports only the first fault. */
  readonly rule: z.ZodType<string>;
  /** The value that a rejected application's record keeps for searches. */
  readonly claim: (value: unknown) => string | undefined;
  /** Makes values comparable. */
  readonly normalize?: (value: string) => string;
  /** Leaves enough to recognise, too little to use. */
  readonly mask: (value: string) => string;
  /** Shown before a value that does not explain itself. */
  readonly label?: string;
  /** Shown before the other fields. */
  readonly leads?: true;
  readonly sample: string;
  /** More of its schema in the OpenAPI document. */
  readonly schema: Readonly<Record<string, unknown>>;
}

/** No registered business name is longer. */
const BUSINESS_NAME_MAX = 1_000;
/** Leaves room for separators between the digits. */
const EIN_CLAIM_MAX = 32;
const EIN = /^[0-9]{9}$/;
/** Excludes invisible letters, such as the Hangul filler. */
const visibleCharacter = /(?!\p{Default_Ignorable_Code_Point})[\p{L}\p{N}]/u;
const HIDDEN = '***';

/** Of a check that is the last if it fails. */
export const only = (fault: FieldFault, error: string) => ({
  error,
  params: { fault },
  abort: true,
});

/** Begins the rule of every field. */
export const text = (name: string) =>
  z.string({
    error: ({ input }) =>
      input === undefined ? `${name} is required.` : `${name} must be a string.`,
  });

/** `value` is what the body has there. */
export function faultOf(issue: z.core.$ZodIssue, value: unknown): FieldFault {
  if (issue.code === 'custom') return issue.params!['fault'] as FieldFault;
  return value === undefined ? 'missing' : 'wrong_type';
}

export const bodyFields = {
  email: {
    name: 'email',
    rule: text('email')
      .transform(trimEmail)
      .refine(
        (value) => value.length <= EMAIL_MAX,
        only('too_long', `email must have at most ${EMAIL_MAX} characters.`),
      )
      .refine(
        (value) => /^\p{ASCII}*$/u.test(value),
        only(
          'invalid_format',
          'email must be written in ASCII; an internationalised domain goes in its xn-- form.',
        ),
      )
      .refine(isEmailAddress, only('invalid_format', 'email must be a valid e-mail address.')),
    claim: (value) => {
      const address = shortText(value, EMAIL_MAX);
      return address && trimEmail(address);
    },
    normalize: normalizeEmail,
    mask: maskEmail,
    sample: 'ada@example.com',
    schema: {
      format: 'email',
      maxLength: EMAIL_MAX,
      description: "The applicant's e-mail address; unique, compared trimmed and in lower case.",
    },
  },
  businessName: {
    name: 'business_name',
    rule: text('business_name')
      .refine(
        (value) => value.length <= BUSINESS_NAME_MAX,
        only('too_long', `business_name must have at most ${BUSINESS_NAME_MAX} characters.`),
      )
      .refine(
        (value) => visibleCharacter.test(value),
        only('blank', 'business_name must have a letter or a digit.'),
      ),
    claim: (value) => shortText(value, BUSINESS_NAME_MAX),
    mask: maskName,
    leads: true,
    sample: 'Ada Ltd',
    schema: {
      minLength: 1,
      maxLength: BUSINESS_NAME_MAX,
      description: 'Name of the applying business; has at least one letter or digit.',
    },
  },
  ein: {
    name: 'ein',
    rule: text('ein').refine(
      (value) => EIN.test(value),
      only('invalid_format', 'ein must be exactly nine digits (0-9).'),
    ),
    claim: (value) =>
      shortText(typeof value === 'number' ? einOfNumber(value) : value, EIN_CLAIM_MAX),
    normalize: normalizeEin,
    mask: maskEin,
    label: 'EIN',
    sample: '123456789',
    schema: {
      pattern: EIN.source,
      description: 'Employer Identification Number: exactly nine digits; unique.',
    },
  },
} as const satisfies Readonly<Record<string, BodyField>>;

export type FieldKey = keyof typeof bodyFields;
/** A field's name in the body. */
export type Field = (typeof bodyFields)[FieldKey]['name'];
/** Values as the partner sent them, except that the e-mail address is trimmed. */
export type Application = Readonly<Record<FieldKey, string>>;
/** What searches know of an applicant. Personal data; a rejected record may lack fields. */
export type Applicant = Partial<Application>;

/** Maps each field by `value`; leaves out what becomes undefined. */
export function eachField<Value>(
  value: (field: BodyField, key: FieldKey) => Value | undefined,
): Partial<Record<FieldKey, Value>> {
  const made: Partial<Record<FieldKey, Value>> = {};
  // Ingest does this for each request, so no list is made.
  for (const key in bodyFields) {
    const one = value(bodyFields[key as FieldKey], key as FieldKey);
    if (one !== undefined) made[key as FieldKey] = one;
  }
  return made;
}

export const sampleApplication = (): Application =>
  eachField(({ sample }) => sample) as Application;

/** The values to store for search, from a body that may be invalid. */
export function claimsOf(body: object): Applicant {
  return eachField(({ name, claim }) => claim((body as Record<string, unknown>)[name]));
}

export function normalizedApplicant(given: Applicant): Applicant {
  return eachField(({ normalize }, key) => {
    const value = given[key];
    return value === undefined || normalize === undefined ? value : normalize(value);
  });
}

/** Names the values as a body does. */
export function namedAsSent(given: Applicant): Record<string, string> {
  const named = eachField(({ name }, key) => {
    const value = given[key];
    return value === undefined ? undefined : ([name, value] as const);
  });
  return Object.fromEntries(Object.values(named));
}

/** Keeps dots and +tags, because only the applicant's server knows whether they matter. */
export function normalizeEmail(email: string): string {
  return trimEmail(email).toLowerCase();
}

/** Accepts hyphens and blanks; returns other text unchanged. */
export function normalizeEin(ein: string): string {
  if (EIN.test(ein)) return ein;
  const digits = ein.replace(/[\s-]/g, '');
  return EIN.test(digits) ? digits : ein;
}

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
  return EIN.test(ein) ? `*****${ein.slice(-4)}` : HIDDEN;
}

/** `Ada Ltd` → `A***`, because a business is often named after its owner. */
export function maskName(name: string): string {
  return firstLetter(name.trim());
}

function firstLetter(given: string): string {
  const point = given.codePointAt(0);
  return point === undefined ? HIDDEN : printable(String.fromCodePoint(point)) + HIDDEN;
}

/** Replaces controls that could steer a terminal by "�". */
export function printable(value: string): string {
  return value.toWellFormed().replace(/[\p{Cc}\p{Zl}\p{Zp}\p{Bidi_Control}]/gu, '\u{fffd}');
}

/** A numeric EIN is rejected, but searchable. It may lack a leading zero; no EIN has two. */
function einOfNumber(number: number): string | undefined {
  return Number.isInteger(number) && number >= 10_000_000 && number < 1_000_000_000
    ? String(number).padStart(9, '0')
    : undefined;
}

function shortText(value: unknown, max: number): string | undefined {
  return typeof value === 'string' && value.length <= max ? value : undefined;
}
