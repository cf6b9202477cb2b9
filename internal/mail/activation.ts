/** The one-time activation link: its token is derived from LINK_SECRET and stored as a hash. */
import { createHmac, hash } from 'node:crypto';
import type { Account, Activation } from '../account/account.ts';
import { defined } from '../platform/process/defined.ts';

interface ActivationLink extends Pick<Activation, 'tokenHash' | 'keyId'> {
  readonly url: string;
}

interface LinkKey {
  readonly id?: string;
  readonly secret: string;
}

const SECRET_MIN = 32;
const KEY_ID = /^key-[a-z0-9-]{1,20}$/;
const isOneCharacter = (secret: string): boolean => new Set(secret).size === 1;
const NAMED = /^(key-[^:]*):(.*)$/s;

/** Parses `secret`, `key-…:secret` or two of the latter; the second only derives older links. */
function linkKeys(linkSecret: string): readonly [LinkKey, ...LinkKey[]] {
  // A secret without a key id may contain commas.
  const entries = /(?:^|,)key-[^,:]*:/.test(linkSecret) ? linkSecret.split(',') : [linkSecret];
  const [first = { secret: '' }, ...others] = entries.map((entry): LinkKey => {
    const [, id, secret = entry] = NAMED.exec(entry) ?? [];
    return id === undefined ? { secret } : { id, secret };
  });
  return [first, ...others];
}

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
  if (keys.some(({ secret }) => isOneCharacter(secret))) {
    return 'can be guessed: make one with "openssl rand -hex 32"';
  }
  return second !== undefined && second.id === first.id
    ? 'both secrets have the same key id'
    : undefined;
}

/** A repeated e-mail has the same link, so the first still works; a new `linkVersion` voids it. */
export function activationLink(
  { _id, activation, linkVersion = 0 }: Pick<Account, '_id' | 'activation' | 'linkVersion'>,
  { loginUrl, linkSecret }: { readonly loginUrl: string; readonly linkSecret: string },
): ActivationLink {
  const keys = linkKeys(linkSecret);
  const { id, secret } =
    keys.find((key) => activation !== undefined && key.id === activation.keyId) ?? keys[0];
  const subject = linkVersion === 0 ? `activation:${_id}` : `activation:${_id}:${linkVersion}`;
  const token = createHmac('sha256', secret).update(subject).digest('base64url');
  const url = new URL(loginUrl);
  url.searchParams.set('account', _id);
  url.searchParams.set('token', token);
  const tokenHash = hash('sha256', token, 'hex');
  return { url: url.href, tokenHash, ...defined({ keyId: id }) };
}
