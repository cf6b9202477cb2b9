/** Says whose request it is, by the key in its Authorization header. */
import type { FastifyRequest } from 'fastify';
import type { KeyCache } from '../partner/key-cache.ts';
import { type KeyTerms, ownerName } from '../partner/key-terms.ts';
import type { Clock } from '../platform/process/clock.ts';
import { Connection } from './connections.ts';
import { errors } from './errors.ts';

export interface KeyRefusal {
  readonly answer: (typeof errors)['keyMissing' | 'keyInvalid' | 'partnerInactive'];
  /** Why a known key is answered like an unknown one. */
  readonly because?: 'revoked' | 'ended' | 'address' | 'mode';
}

export interface KeyTools {
  readonly clock: Clock;
  readonly keys: Pick<KeyCache, 'loaded' | 'lookup'>;
}

const NO_TERMS: KeyTerms = {};

export const keyIn = (authorization: string | undefined): string =>
  /^bearer(?:[ \t]+(.*))?$/is.exec(authorization?.trim() ?? '')?.[1]?.trim() ?? '';

/**
 * Notes at the request whose it is. Undefined if its key counts: then what the request holds is its
 * partner's from now on.
 *
 * Answers a revoked or expired key, or one used from a foreign address, like an unknown key, so that
 * a thief learns nothing.
 */
export function authenticate(
  request: FastifyRequest,
  { keys, clock }: KeyTools,
): KeyRefusal | undefined {
  request.keyId = undefined;
  request.partnerId = '';
  request.terms = NO_TERMS;
  const { key } = request;
  if (key === '') return { answer: errors.keyMissing };
  const found = keys.lookup(key);
  if (!found.known) return { answer: errors.keyInvalid };
  const { keyId, partnerId, terms } = found;
  request.keyId = keyId;
  request.partnerId = partnerId;
  request.terms = terms;
  const answer = errors.keyInvalid;
  if (found.revoked) return { answer, because: 'revoked' };
  if (terms.notAfter !== undefined && clock.now() >= terms.notAfter)
    return { answer, because: 'ended' };
  if (!found.admits(request.client.ip)) return { answer, because: 'address' };
  if (found.otherMode) return { answer, because: 'mode' };
  if (!found.active) return { answer: errors.partnerInactive };
  const owner = ownerName(partnerId, terms);
  request.incomingBody.belongTo(owner);
  Connection.of(request.raw.socket).belongTo(owner);
  return undefined;
}
