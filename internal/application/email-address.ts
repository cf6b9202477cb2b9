/** What an e-mail address is, for applicants, operators, settings and the chart alike. Pure. */

/** RFC 5321 §4.5.3.1: a path holds 256 octets with its angle brackets, a local part 64. */
export const EMAIL_MAX = 254;

const WORD = "[\\w!#$%&'*+/=?^`{|}~-]+";
/** Labels have at most 63 characters and no hyphen at their ends (RFC 1035). */
const LABEL = '[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?';
/**
 * The last label starts with a letter, so that `xn--` top-level domains pass and bare IP addresses
 * do not.
 */
export const HOST_NAME = `(?:${LABEL}\\.)+[A-Za-z](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])`;
const HOST_NAME_MAX = 253;

/**
 * The rule in JSON Schema, without lookaheads, which Helm does not know: an address as RFC 5321
 * §4.1.2 writes it without quotes. Quoted local parts are not accepted, nor internationalised
 * addresses (RFC 6531): many relays cannot forward those, and letters that look alike would allow
 * two accounts for what a person reads as one address (docs/decisions/0012).
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

/** Whether it is fully qualified, such as `mail.example.com`. */
export function isHostName(value: string): boolean {
  return value.length <= HOST_NAME_MAX && hostName.test(value);
}

export function domainOf(address: string): string {
  return address.slice(address.lastIndexOf('@') + 1);
}
