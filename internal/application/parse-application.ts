/**
 * Parses a request's body into an application, or into every reason for its rejection; hints at
 * mistakes.
 */
import { z } from 'zod';
import {
  bodyFields,
  claimsOf,
  eachField,
  faultOf,
  domainOf,
  type Applicant,
  type Application,
  type Field,
} from './fields.ts';
import type { Reason } from './reasons.ts';

type ParsedApplication =
  | { readonly valid: true; readonly application: Application }
  | {
      readonly valid: false;
      readonly reasons: readonly Reason[];
      readonly claimed: Applicant;
    };

const applicationSchema = z.object(
  Object.fromEntries(Object.values(bodyFields).map(({ name, rule }) => [name, rule])),
);

/** Never throws. */
export function parseApplication(body: Uint8Array): ParsedApplication {
  const object = parseJsonObject(body) ?? {};
  const parsed = applicationSchema.safeParse(object);
  if (parsed.success) {
    const application = eachField(({ name }) => parsed.data[name] as string) as Application;
    return { valid: true, application };
  }
  const reasons = parsed.error.issues.map((issue): Reason => {
    const field = issue.path[0] as Field;
    return { field, code: faultOf(issue, object[field]), message: issue.message };
  });
  return { valid: false, reasons, claimed: claimsOf(object) };
}

export function claimedIn(body: Uint8Array): Applicant {
  return claimsOf(parseJsonObject(body) ?? {});
}

const utf8 = new TextDecoder('utf-8', { fatal: true });

/** Skips a byte order mark (RFC 8259 §8.1); the last of repeated keys counts. */
export function parseJsonObject(body: Uint8Array): Readonly<Record<string, unknown>> | undefined {
  try {
    const value: unknown = JSON.parse(utf8.decode(body));
    return typeof value === 'object' && value !== null && !Array.isArray(value)
      ? (value as Record<string, unknown>)
      : undefined;
  } catch {
    return undefined;
  }
}

/* What is probably a mistake in an application. A hint is advice: it never rejects. */

/** Prefixes that the IRS' "How EINs are assigned and valid EIN prefixes" does not list. */
const UNASSIGNED = new Set('00 07 08 09 17 18 19 28 29 49 69 70 78 79 89 96 97'.split(' '));

/** What people type instead of domains of large providers. None is a provider itself. */
const MISTYPED = new Set(
  `gamil.com gmai.com gmail.cm gmail.co gmail.com.com gmail.comm gmail.con gmail.cmo gmaill.com
   gmal.com gmali.com gmial.com gmil.com gnail.com
   yaho.com yahoo.cm yahoo.co yahoo.comm yahoo.con yahoo.cmo yahooo.com yahho.com yaoo.com
   yhaoo.com yhoo.com
   hotmai.com hotmail.cm hotmail.co hotmail.comm hotmail.con hotmail.cmo hotmaill.com hotmal.com
   hotmial.com hotmil.com hotnail.com
   otlook.com outlok.com outlook.cm outlook.co outlook.comm outlook.con outlook.cmo outloook.com
   icloud.cm icloud.co icloud.comm icloud.con icloud.cmo iclod.com icoud.com
   aol.cm aol.comm aol.con aol.cmo`.split(/\s+/),
);

export const hintCodes = ['unassigned_prefix', 'mistyped_domain'] as const;

export interface FieldHint {
  readonly field: 'ein' | 'email';
  readonly code: (typeof hintCodes)[number];
  /** For people; never quotes the value. */
  readonly message: string;
}

export function hintsOn({ ein = '', email = '' }: Applicant): readonly FieldHint[] {
  const hints: FieldHint[] = [];
  if (/^\d{9}$/.test(ein) && UNASSIGNED.has(ein.slice(0, 2))) {
    const message = 'The IRS assigns no EIN with these first two digits.';
    hints.push({ field: 'ein', code: 'unassigned_prefix', message });
  }
  if (MISTYPED.has(domainOf(email).toLowerCase())) {
    const message = 'The domain of the e-mail address looks like a mistyped one.';
    hints.push({ field: 'email', code: 'mistyped_domain', message });
  }
  return hints;
}
