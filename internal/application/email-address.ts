/** Defines valid e-mail addresses for applicants, operators, settings and the chart. */

/** RFC 5321 §4.5.3.1 allows 256 octets with angle brackets, and 64 before the @. */
export const EMAIL_MAX = 254;

const WORD = "[\\w!#$%&'*+/=?^`{|}~-]+";
const LABEL = '[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?';
/** `xn--` labels pass, IP addresses do not. */
export const HOST_NAME = `(?:${LABEL}\\.)+[A-Za-z](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])`;
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
