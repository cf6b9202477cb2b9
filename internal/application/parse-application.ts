/** Parses a request's body into an application, or into every reason for its rejection. */
import { z } from 'zod';
import { EMAIL_MAX, isEmailAddress, trimAddress } from './email-address.ts';
import type { Field, Reason, ReasonCode } from './reasons.ts';

/** Only the e-mail is trimmed. */
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

/** No registered business name is longer. */
const BUSINESS_NAME_MAX = 1_000;

/** Separators may stand between the digits. */
const EIN_CLAIM_MAX = 32;

/** A Hangul filler is an invisible letter. */
const visibleCharacter = /(?!\p{Default_Ignorable_Code_Point})[\p{L}\p{N}]/u;

/** zod has no field for a code. */
const because = (code: ReasonCode, message: string): string => `${code}|${message}`;

const text = (name: string) =>
  z.string({
    error: (issue) =>
      issue.input === undefined
        ? because('missing', `${name} is required.`)
        : because('wrong_type', `${name} must be a string.`),
  });

export const applicationSchema = z.object({
  email: text('email')
    .meta({
      format: 'email',
      maxLength: EMAIL_MAX,
      description: "The applicant's e-mail address; unique, compared trimmed and in lower case.",
      examples: ['ada@example.com'],
    })
    .transform(trimAddress)
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
  return {
    ...(isShort(email, EMAIL_MAX) ? { email: trimAddress(email) } : {}),
    ...(isShort(businessName, BUSINESS_NAME_MAX) ? { businessName } : {}),
    ...(isShort(ein, EIN_CLAIM_MAX) ? { ein } : {}),
  };
}

/** A number has lost its leading zero; no EIN has two. */
function einOfNumber(number: number): string | undefined {
  return Number.isInteger(number) && number >= 10_000_000 && number < 1_000_000_000
    ? String(number).padStart(9, '0')
    : undefined;
}

function isShort(value: unknown, max: number): value is string {
  return typeof value === 'string' && value.length <= max;
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
