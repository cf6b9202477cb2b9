/** From the raw bytes of a request to an application, or to every reason why it is none. */
import { z } from 'zod';
import type { Field, Reason } from './reasons.ts';

/** A valid application: the fields as the partner gave them, the e-mail trimmed. */
export interface Application {
  readonly email: string;
  readonly businessName: string;
  readonly ein: string;
}

export type ParsedApplication =
  | { readonly valid: true; readonly application: Application }
  | { readonly valid: false; readonly reasons: readonly Reason[] };

/** RFC 5321 §4.5.3.1: a path holds 256 octets with its angle brackets, a local part 64; RFC 1035: a label 63. */
const EMAIL_MAX = 254;
const LOCAL_PART_MAX = 64;
const DOMAIN_LABEL_MAX = 63;
/** No registered business name comes near; beyond it the text would not be a name. */
const BUSINESS_NAME_MAX = 1_000;

type Code = Reason['code'];

/** zod issues carry our code in front of the sentence, so that one list keeps both. */
const because = (code: Code, message: string): string => `${code}|${message}`;

/** `missing` for an absent field, `wrong_type` for anything but a string. */
const text = (name: string) =>
  z.string({
    error: (issue) =>
      issue.input === undefined
        ? because('missing', `${name} is required.`)
        : because('wrong_type', `${name} must be a string.`),
  });

const applicationSchema = z.object({
  email: text('email')
    .transform((value) => value.trim())
    .superRefine((value, context) => {
      if (value.length > EMAIL_MAX) {
        context.addIssue(because('too_long', `email must have at most ${EMAIL_MAX} characters.`));
      } else if (!isEmail(value)) {
        context.addIssue(because('invalid_format', 'email must be a valid e-mail address.'));
      }
    }),
  business_name: text('business_name').superRefine((value, context) => {
    if (value.trim() === '') context.addIssue(because('blank', 'business_name must not be blank.'));
    else if (value.length > BUSINESS_NAME_MAX) {
      context.addIssue(because('too_long', `business_name must have at most ${BUSINESS_NAME_MAX} characters.`));
    }
  }),
  ein: text('ein').refine((value) => /^[0-9]{9}$/.test(value) && !value.endsWith('\n'), {
    error: because('invalid_format', 'ein must be exactly nine digits (0-9).'),
  }),
});

/**
 * Reads the body of a recorded request (JSON in UTF-8, a byte order mark allowed) and collects every fault of its fields.
 * Never throws: what is no JSON object at all reports all three fields as missing, though the door never queues such a body.
 */
export function parseApplication(body: Uint8Array): ParsedApplication {
  const parsed = applicationSchema.safeParse(parseJsonObject(body) ?? {});
  if (parsed.success) {
    const { email, business_name: businessName, ein } = parsed.data;
    return { valid: true, application: { email, businessName, ein } };
  }
  const reasons = parsed.error.issues.map((issue): Reason => {
    const [code, message] = issue.message.split('|', 2) as [Code, string];
    return { field: issue.path[0] as Field, code, message };
  });
  return { valid: false, reasons };
}

const emailPattern = z.email();
const utf8 = new TextDecoder('utf-8', { fatal: true });

/**
 * The JSON object in `body`, or undefined when it is anything else: another JSON value, no JSON, two documents, not UTF-8.
 * A leading byte order mark is skipped (RFC 8259 §8.1 lets a receiver do so). Of repeated keys the last one counts.
 */
export function parseJsonObject(body: Uint8Array): object | undefined {
  try {
    const value: unknown = JSON.parse(utf8.decode(body));
    return typeof value === 'object' && value !== null && !Array.isArray(value) ? value : undefined;
  } catch {
    return undefined;
  }
}

/** zod's pattern, plus the length limits it leaves out. Internationalised addresses (RFC 6531) are not accepted. */
function isEmail(value: string): boolean {
  if (!emailPattern.safeParse(value).success) return false;
  const [local, domain] = [value.slice(0, value.lastIndexOf('@')), value.slice(value.lastIndexOf('@') + 1)];
  return (
    local.length <= LOCAL_PART_MAX &&
    domain
      .split('.')
      .every((label) => label.length <= DOMAIN_LABEL_MAX && !label.endsWith('-') && !label.startsWith('-'))
  );
}
