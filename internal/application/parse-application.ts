/** From the raw bytes of a request to an application, or to every reason why it is none. */
import { z } from 'zod';
import { EMAIL_MAX, isEmailAddress } from './email-address.ts';
import type { Field, Reason, ReasonCode } from './reasons.ts';

/** A valid application: the fields as the partner gave them, the e-mail trimmed. */
export interface Application {
  readonly email: string;
  readonly businessName: string;
  readonly ein: string;
}

export type ParsedApplication =
  | { readonly valid: true; readonly application: Application }
  | {
      readonly valid: false;
      readonly reasons: readonly Reason[];
      readonly claimed: Partial<Application>;
    };

/** Longer than any registered business name. */
const BUSINESS_NAME_MAX = 1_000;

/** An EIN with separators between its digits. */
const EIN_CLAIM_MAX = 32;

/** A letter or a digit that shows: a Hangul filler is a letter, but no screen shows it. */
const visibleCharacter = /(?!\p{Default_Ignorable_Code_Point})[\p{L}\p{N}]/u;

/** zod issues carry our code in front of the sentence, so that one list keeps both. */
const because = (code: ReasonCode, message: string): string => `${code}|${message}`;

/** `missing` for an absent field, `wrong_type` for anything but a string. */
const text = (name: string) =>
  z.string({
    error: (issue) =>
      issue.input === undefined
        ? because('missing', `${name} is required.`)
        : because('wrong_type', `${name} must be a string.`),
  });

/**
 * The fields and their rules; `meta` says in JSON Schema what zod cannot, for the OpenAPI document.
 */
export const applicationSchema = z.object({
  email: text('email')
    .meta({
      format: 'email',
      maxLength: EMAIL_MAX,
      description: "The applicant's e-mail address; unique, compared trimmed and in lower case.",
      examples: ['ada@example.com'],
    })
    .transform((value) => value.trim())
    .superRefine((value, context) => {
      if (value.length > EMAIL_MAX) {
        context.addIssue(because('too_long', `email must have at most ${EMAIL_MAX} characters.`));
      } else if (/[^\p{ASCII}]/u.test(value)) {
        const message =
          'email must be written in ASCII; an internationalised domain goes in its xn-- form.';
        context.addIssue(because('invalid_format', message));
      } else if (!isEmailAddress(value)) {
        context.addIssue(because('invalid_format', 'email must be a valid e-mail address.'));
      }
    }),
  business_name: text('business_name')
    .superRefine((value, context) => {
      if (value.length > BUSINESS_NAME_MAX) {
        context.addIssue(
          because('too_long', `business_name must have at most ${BUSINESS_NAME_MAX} characters.`),
        );
      } else if (!visibleCharacter.test(value)) {
        context.addIssue(because('blank', 'business_name must have a letter or a digit.'));
      }
    })
    .meta({
      minLength: 1,
      maxLength: BUSINESS_NAME_MAX,
      description: 'Name of the applying business; has at least one letter or digit.',
      examples: ['Ada Ltd'],
    }),
  ein: text('ein')
    .regex(/^[0-9]{9}$/, {
      error: because('invalid_format', 'ein must be exactly nine digits (0-9).'),
    })
    .meta({
      description: 'Employer Identification Number: exactly nine digits; unique.',
      examples: ['123456789'],
    }),
});

/**
 * Reads the body of a recorded request (JSON in UTF-8, a byte order mark allowed) and collects
 * every fault of its fields. Never throws. A body that is no JSON object reports all three fields
 * as missing; ingest never queues one.
 */
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

/** The applicant as the body gives it, valid or not, so that support finds a rejected request. */
export function claimedIn(body: Uint8Array): Partial<Application> {
  return claimsOf(parseJsonObject(body) ?? {});
}

/**
 * Parts that are too long are left out. An EIN counts as a number as well, though it is rejected as
 * such.
 */
function claimsOf(object: object): Partial<Application> {
  const { email, business_name: businessName, ein: given } = object as Record<string, unknown>;
  const ein = typeof given === 'number' ? einOfNumber(given) : given;
  return {
    ...(isShort(email, EMAIL_MAX) ? { email: email.trim() } : {}),
    ...(isShort(businessName, BUSINESS_NAME_MAX) ? { businessName } : {}),
    ...(isShort(ein, EIN_CLAIM_MAX) ? { ein } : {}),
  };
}

/** A number has lost a leading zero; no EIN begins with two. */
function einOfNumber(number: number): string | undefined {
  return Number.isInteger(number) && number >= 10_000_000 && number < 1_000_000_000
    ? String(number).padStart(9, '0')
    : undefined;
}

function isShort(value: unknown, max: number): value is string {
  return typeof value === 'string' && value.length <= max;
}

const utf8 = new TextDecoder('utf-8', { fatal: true });

/**
 * The JSON object in `body`, or undefined when it is anything else: another JSON value, no JSON,
 * two documents, not UTF-8. A leading byte order mark is skipped (RFC 8259 §8.1 lets a receiver do
 * so). Of repeated keys the last one counts.
 */
export function parseJsonObject(body: Uint8Array): object | undefined {
  try {
    const value: unknown = JSON.parse(utf8.decode(body));
    return typeof value === 'object' && value !== null && !Array.isArray(value) ? value : undefined;
  } catch {
    return undefined;
  }
}
