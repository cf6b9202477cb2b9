/** The one-time activation link: a token anyone with LINK_SECRET can derive again, stored only as a hash. */
import { createHash, createHmac } from 'node:crypto';

export interface ActivationLink {
  readonly url: string;
  /** SHA-256 of the token in hex: what `accounts.activation.tokenHash` holds. */
  readonly tokenHash: string;
}

/**
 * The same link for the same account every time, so that a repeated mail does not void the first; another one for each
 * `version`, so that a corrected address voids what went to the wrong one.
 * `loginUrl` keeps its own query; `account` and `token` are added to it.
 */
export function activationLink(
  accountId: string,
  options: { readonly loginUrl: string; readonly linkSecret: string; readonly version?: number },
): ActivationLink {
  const { version = 0 } = options;
  const subject = version === 0 ? `activation:${accountId}` : `activation:${accountId}:${version}`;
  const token = createHmac('sha256', options.linkSecret).update(subject).digest('base64url');
  const url = new URL(options.loginUrl);
  url.searchParams.set('account', accountId);
  url.searchParams.set('token', token);
  return { url: url.href, tokenHash: createHash('sha256').update(token).digest('hex') };
}
