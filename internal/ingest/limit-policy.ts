/** The rate limits: what is counted, up to which bound. */
import rateLimit from '@fastify/rate-limit';
import type { FastifyInstance, FastifyRequest } from 'fastify';
import { ownerName } from '../partner/mode.ts';
import { tooManyRequests, type Limit } from './errors.ts';
import { PARTNER_DAY_SECONDS, PARTNER_MINUTE_SECONDS } from './limits.ts';
import type { SharedLimiterStore } from './rate-limit.ts';

const BYTES_PER_MEGABYTE = 1_000_000;

export interface LimitSettings {
  readonly rateLimitMax: number;
  readonly rateLimitWindowSeconds: number;
}

export interface LimitTools {
  readonly limiter: SharedLimiterStore;
  overLimit(address: string, requestId: string): void;
}

const keyOf = (request: FastifyRequest): string => request.client.limitKey;

export function operationLimits(settings: LimitSettings, tools: LimitTools) {
  const { rateLimitMax: max, rateLimitWindowSeconds: windowSeconds } = settings;
  const addressLimit: Limit = { amount: `${max}`, windowSeconds, whose: 'one address' };
  const limit = {
    max,
    timeWindow: windowSeconds * 1_000,
    keyGenerator: keyOf,
    errorResponseBuilder: (_request, { ttl }) => new OverLimit(addressLimit, ttl),
  } satisfies rateLimit.RateLimitOptions;
  return {
    addressLimit,
    submitApplication: {
      ...limit,
      onExceeded: (request: FastifyRequest) => tools.overLimit(keyOf(request), request.id),
    },
    // Look-ups must not use up submissions.
    lookUpStatus: { ...limit, groupId: ' status' },
  };
}

const partnerKeyOf = ({ partnerId, terms }: FastifyRequest): string =>
  `partner:${ownerName(partnerId, terms)}`;
const bytesKeyOf = (request: FastifyRequest): string => `${partnerKeyOf(request)}:bytes`;

export function partnerLimits(tools: LimitTools) {
  /** Only what is stored counts: an outage must not use up a partner's day. */
  const giveBackBody = (request: FastifyRequest, bytes: number): void => {
    if (request.terms.maxMegabytesPerDay === undefined || bytes === 0) return;
    tools.limiter.giveBack(bytesKeyOf(request), bytes, PARTNER_DAY_SECONDS * 1_000);
  };
  const admit = async (request: FastifyRequest, count: Count): Promise<void> => {
    const { key, by, max, amount, windowSeconds } = count;
    const { current, ttl } = await tools.limiter.count(key, by, windowSeconds * 1_000, max);
    if (current <= max) return;
    tools.overLimit(keyOf(request), request.id);
    throw new OverLimit({ amount, windowSeconds, whose: 'this partner' }, ttl);
  };
  return {
    /** Rejects with `OverLimit`; undefined without a bound. */
    admitRequest: (request: FastifyRequest): Promise<void> | undefined => {
      const { maxPerMinute: max } = request.terms;
      if (max === undefined) return undefined;
      return admit(request, {
        key: partnerKeyOf(request),
        by: 1,
        max,
        amount: `${max}`,
        windowSeconds: PARTNER_MINUTE_SECONDS,
      });
    },
    admitBody: (request: FastifyRequest, bytes: number): Promise<void> | undefined => {
      const { maxMegabytesPerDay: megabytes } = request.terms;
      if (megabytes === undefined || bytes === 0) return undefined;
      return admit(request, {
        key: bytesKeyOf(request),
        by: bytes,
        max: megabytes * BYTES_PER_MEGABYTE,
        amount: `${megabytes} megabytes`,
        windowSeconds: PARTNER_DAY_SECONDS,
      }).catch((error: unknown) => {
        giveBackBody(request, bytes);
        throw error;
      });
    },
    giveBackBody,
  };
}

interface Count {
  readonly key: string;
  readonly by: number;
  readonly max: number;
  readonly amount: string;
  readonly windowSeconds: number;
}

export async function registerLimiter(app: FastifyInstance, tools: LimitTools): Promise<void> {
  await app.register(rateLimit, {
    global: false,
    store: function store() {
      return tools.limiter;
    } as unknown as NonNullable<rateLimit.RateLimitPluginOptions['store']>,
  });
}

export class OverLimit extends Error {
  override readonly name = 'OverLimit';
  readonly retrySeconds: number;
  constructor(limit: Limit, ttlMs: number) {
    // A window about to end must not invite an immediate retry.
    const retrySeconds = Math.min(limit.windowSeconds, Math.max(1, Math.ceil(ttlMs / 1_000)));
    super(tooManyRequests(limit, retrySeconds));
    this.retrySeconds = retrySeconds;
  }
}
