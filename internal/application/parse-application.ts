/** Parses a request's body into an application, or into every reason for its rejection. */
import { z } from 'zod';
import { defined } from '../platform/defined.ts';
import { EMAIL_MAX, isEmailAddress, trimAddress } from './email-address.ts';
import type { Field, Reason, ReasonCode } from './reasons.ts';

/** Only the e-mail is trimmed. */
export interface Application {
  readonly email: string;
  readonly businessName: string;
  readonly ein: string;
}

type ParsedApplication =
  | { readonly valid: true; readonly application: Application }
  | {
      readonly valid: false;
      readonly reasons: readonly Reason[];
      readonly claimed: Partial<Application>;
    };

/** No registered business name is longer. */
const BUSINESS_NAME_MAX = 1_000;

/** Separators may stand between the digits. */
const EIN_CLAIM_MAX = 32;

/** A Hangul filler is an invisible letter. */
const visibleCharacter = /(?!\p{Default_Ignorable_Code_Point})[\p{L}\p{N}]/u;

/** zod has no field for a code. */
const because = (code: ReasonCode, message: string): string => `${code}|${message}`;

/** The field's first fault is its only one. */
const only = (code: ReasonCode, message: string) => ({
  error: because(code, message),
  abort: true,
});

const text = (name: string) =>
  z.string({
    error: (issue) =>
      issue.input === undefined
        ? because('missing', `${name} is required.`)
        : because('wrong_type', `${name} must be a string.`),
  });

const applicationSchema = z.object({
  email: text('email')
    .transform(trimAddress)
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
  business_name: text('business_name')
    .refine(
      (value) => value.length <= BUSINESS_NAME_MAX,
      only('too_long', `business_name must have at most ${BUSINESS_NAME_MAX} characters.`),
    )
    .refine(
      (value) => visibleCharacter.test(value),
      only('blank', 'business_name must have a letter or a digit.'),
    ),
  ein: text('ein').regex(
    /^[0-9]{9}$/,
    only('invalid_format', 'ein must be exactly nine digits (0-9).'),
  ),
});

/** Never throws. */
export function parseApplication(body: Uint8Array): ParsedApplication {
  const object = parseJsonObject(body) ?? {};
  const parsed = applicationSchema.safeParse(object);
  if (parsed.success) {
    const { email, business_name: businessName, ein } = parsed.data;
    return { valid: true, application: { email, businessName, ein } };
  }
  const reasons = parsed.error.issues.map((issue): Reason => {
    const [code, message] = issue.message.split('|', 2) as [ReasonCode, string];
    return { field: issue.path[0] as Field, code, message };
  });
  return { valid: false, reasons, claimed: claimsOf(object) };
}

export function claimedIn(body: Uint8Array): Partial<Application> {
  return claimsOf(parseJsonObject(body) ?? {});
}

/** A numeric EIN is rejected, but searchable. */
function claimsOf(object: object): Partial<Application> {
  const { email, business_name: businessName, ein: given } = object as Record<string, unknown>;
  const ein = typeof given === 'number' ? einOfNumber(given) : given;
  const address = shortText(email, EMAIL_MAX);
  return defined({
    email: address && trimAddress(address),
    businessName: shortText(businessName, BUSINESS_NAME_MAX),
    ein: shortText(ein, EIN_CLAIM_MAX),
  });
}

/** A number has lost its leading zero; no EIN has two. */
function einOfNumber(number: number): string | undefined {
  return Number.isInteger(number) && number >= 10_000_000 && number < 1_000_000_000
    ? String(number).padStart(9, '0')
    : undefined;
}

function shortText(value: unknown, max: number): string | undefined {
  return typeof value === 'string' && value.length <= max ? value : undefined;
}

const utf8 = new TextDecoder('utf-8', { fatal: true });

/** Skips a byte order mark (RFC 8259 §8.1); the last of repeated keys counts. */
export function parseJsonObject(body: Uint8Array): object | undefined {
  try {
    const value: unknown = JSON.parse(utf8.decode(body));
    return typeof value === 'object' && value !== null && !Array.isArray(value) ? value : undefined;
  } catch {
    return undefined;
  }
}
