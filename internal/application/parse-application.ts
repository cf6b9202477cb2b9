/** Parses a request's body into an application, or into every reason for its rejection. */
import { z } from 'zod';
import {
  bodyFields,
  claimsOf,
  eachField,
  faultOf,
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
