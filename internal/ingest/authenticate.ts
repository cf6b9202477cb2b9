/** Says whose request it is, by the key in its Authorization header. */
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

export interface KeyTools {
  readonly clock: Clock;
  readonly keys: Pick<KeyCache, 'loaded' | 'lookup'>;
}

/** Notes at the request whose it is, also where it is refused. */
export function authenticate(request: FastifyRequest, tools: KeyTools): Authentication {
  const authentication = checkKey(request.headers.authorization, request.client.ip, tools);
  request.keyId = authentication.keyId;
  request.partnerId = authentication.partnerId ?? '';
  request.terms = authentication.terms ?? {};
  return authentication;
}

/** If its key counts, what the request holds is its partner's from now on. */
export function authenticateAndCharge(request: FastifyRequest, tools: KeyTools): Authentication {
  const authentication = authenticate(request, tools);
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
function checkKey(
  header: string | undefined,
  address: string,
  { keys, clock }: KeyTools,
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
