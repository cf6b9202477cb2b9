/**
 * The one-time activation link: a token that anyone with LINK_SECRET can derive again, stored only
 * as a hash.
 */
import { createHash, createHmac } from 'node:crypto';
import { defined } from '../platform/defined.ts';
import { isGuessable } from '../platform/guessable.ts';

export interface ActivationLink {
  readonly url: string;
  /** SHA-256 of the token in hex: what `accounts.activation.tokenHash` holds. */
  readonly tokenHash: string;
  /** Key of `LINK_SECRET` that made it; absent for a secret without a key id. */
  readonly keyId?: string;
}

/** A secret of `LINK_SECRET`. */
interface LinkKey {
  readonly id?: string;
  readonly secret: string;
}

const SECRET_MIN = 32;
const KEY_ID = /^key-[a-z0-9-]{1,20}$/;
const NAMED = /^(key-[^:]*):(.*)$/s;

/**
 * The secrets of `LINK_SECRET`: one as it is, or with a key id as `key-…:secret`, or two with a
 * comma between them. The first makes new links; the second makes those again that were made with
 * it.
 */
function linkKeys(linkSecret: string): readonly [LinkKey, ...LinkKey[]] {
  // A secret without a key id may hold commas and colons, so only a key id makes the value a list.
  const entries = /(?:^|,)key-[^,:]*:/.test(linkSecret) ? linkSecret.split(',') : [linkSecret];
  const [first = { secret: '' }, ...others] = entries.map((entry): LinkKey => {
    const [, id, secret = entry] = NAMED.exec(entry) ?? [];
    return id === undefined ? { secret } : { id, secret };
  });
  return [first, ...others];
}

/** Why `LINK_SECRET` is refused, in a sentence without any secret; undefined where it is good. */
export function linkSecretFault(linkSecret: string): string | undefined {
  const keys = linkKeys(linkSecret);
  const [first, second] = keys;
  if (keys.length > 2) return 'has more than two secrets';
  if (keys.some(({ id }) => id !== undefined && !KEY_ID.test(id))) {
    return 'a key id is "key-" and 1 to 20 small letters, digits or hyphens';
  }
  if (keys.some(({ secret }) => secret.length < SECRET_MIN)) {
    return `must have at least ${SECRET_MIN} characters, each secret for itself`;
  }
  if (keys.some(({ secret }) => isGuessable(secret))) {
    return 'can be guessed: make one with "openssl rand -hex 32"';
  }
  return second !== undefined && second.id === first.id
    ? 'both secrets have the same key id'
    : undefined;
}

/**
 * The same link for the same account every time, so that a repeated mail does not void the first;
 * another one for each `version`, so that a corrected address voids what went to the wrong one.
 * `madeWith` is what the account holds of the link before: its key is used again while `linkSecret`
 * has it. `loginUrl` keeps its own query; `account` and `token` are added to it.
 */
export function activationLink(
  accountId: string,
  options: {
    readonly loginUrl: string;
    readonly linkSecret: string;
    readonly version?: number;
    readonly madeWith?: { readonly keyId?: string } | undefined;
  },
): ActivationLink {
  const { version = 0, madeWith } = options;
  const keys = linkKeys(options.linkSecret);
  const { id, secret } =
    keys.find((key) => madeWith !== undefined && key.id === madeWith.keyId) ?? keys[0];
  const subject = version === 0 ? `activation:${accountId}` : `activation:${accountId}:${version}`;
  const token = createHmac('sha256', secret).update(subject).digest('base64url');
  const url = new URL(options.loginUrl);
  url.searchParams.set('account', accountId);
  url.searchParams.set('token', token);
  const tokenHash = createHash('sha256').update(token).digest('hex');
  return { url: url.href, tokenHash, ...defined({ keyId: id }) };
}
