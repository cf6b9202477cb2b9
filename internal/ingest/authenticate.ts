/** Identifies the partner from the Authorization header. */
import type { FastifyRequest } from 'fastify';
import type { KeyCache } from '../partner/key-cache.ts';
import { type KeyTerms, ownerName } from '../partner/key-terms.ts';
import type { Clock } from '../platform/process/clock.ts';
import { Connection } from './connections.ts';
import { errors } from './errors.ts';

type KeyRefusal = (typeof errors)['keyMissing' | 'keyInvalid' | 'partnerInactive'];

type Because = 'revoked' | 'ended' | 'address' | 'mode';

export type Authentication =
  | {
      readonly ok: true;
      readonly keyId: string;
      readonly partnerId: string;
      readonly terms: KeyTerms;
    }
  | {
      readonly ok: false;
      readonly answer: KeyRefusal;
      /** Absent, like the next two, where the key is unknown. */
      readonly keyId?: string;
      readonly partnerId?: string;
      readonly terms?: KeyTerms;
      readonly because?: Because;
    };

export interface IdentifyTools {
  readonly clock: Clock;
  readonly keys: Pick<KeyCache, 'loaded' | 'lookup'>;
}

/** Whose request it is, whether or not it is served. */
export function recognize(request: FastifyRequest, tools: IdentifyTools): Authentication {
  const authentication = authenticate(request.headers.authorization, request.client.ip, tools);
  request.keyId = authentication.keyId;
  request.partnerId = authentication.partnerId ?? '';
  request.terms = authentication.terms ?? {};
  return authentication;
}

/** What the request holds counts for its partner from now on. */
export function identify(request: FastifyRequest, tools: IdentifyTools): Authentication {
  const authentication = recognize(request, tools);
  if (authentication.ok) {
    const owner = ownerName(request.partnerId, request.terms);
    request.incomingBody.belongTo(owner);
    Connection.of(request.raw.socket).belongTo(owner);
  }
  return authentication;
}

export const keyIn = (authorization: string | undefined): string =>
  /^bearer(?:[ \t]+(.*))?$/is.exec(authorization?.trim() ?? '')?.[1]?.trim() ?? '';

/**
 * Answers a revoked or expired key, or one used from a foreign address, like an unknown key, so that
 * a thief learns nothing.
 */
export function authenticate(
  header: string | undefined,
  address: string,
  { keys, clock }: IdentifyTools,
): Authentication {
  const key = keyIn(header);
  if (key === '') return { ok: false, answer: errors.keyMissing };
  const found = keys.lookup(key);
  if (!found.known) return { ok: false, answer: errors.keyInvalid };
  const { keyId, partnerId, terms } = found;
  const owner = { keyId, partnerId, terms };
  const invalid = (because: Because): Authentication => {
    return { ok: false, answer: errors.keyInvalid, ...owner, because };
  };
  if (found.revoked) return invalid('revoked');
  if (terms.notAfter !== undefined && clock.now() >= terms.notAfter) return invalid('ended');
  if (!found.admits(address)) return invalid('address');
  if (found.otherMode) return invalid('mode');
  if (!found.active) return { ok: false, answer: errors.partnerInactive, ...owner };
  return { ok: true, ...owner };
}
