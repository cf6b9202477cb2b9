/** The one-time activation link: a token anyone with LINK_SECRET can derive again, stored only as a hash. */
import { createHash, createHmac } from 'node:crypto';

export interface ActivationLink {
  readonly url: string;
  /** SHA-256 of the token in hex: what `accounts.activation.tokenHash` holds. */
  readonly tokenHash: string;
}

/**
 * The same link for the same account every time, so that a repeated mail does not void the first.
 * `loginUrl` keeps its own query; `account` and `token` are added to it.
 */
export function activationLink(
  accountId: string,
  options: { readonly loginUrl: string; readonly linkSecret: string },
): ActivationLink {
  const token = createHmac('sha256', options.linkSecret).update(`activation:${accountId}`).digest('base64url');
  const url = new URL(options.loginUrl);
  url.searchParams.set('account', accountId);
  url.searchParams.set('token', token);
  return { url: url.href, tokenHash: createHash('sha256').update(token).digest('hex') };
}
