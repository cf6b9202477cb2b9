/**
 * The limits of requests: what is counted together, up to which bound, and at which stage of a
 * request. A further limit is one more entry here; where the counts are kept is the store's
 * business (rate-limit.ts).
 */
import rateLimit from '@fastify/rate-limit';
import type { FastifyInstance, FastifyRequest } from 'fastify';
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
  /** Counts a request over its limit. */
  overLimit(address: string, requestId: string): void;
}

/** Who shares a count: a client's address. Before authentication nothing else is known. */
const keyOf = (request: FastifyRequest): string => request.client.limitKey;

/**
 * The limits of each operation, for a route's `config`; each is asked at the end of `onRequest`,
 * before the key.
 */
export function operationLimits(settings: LimitSettings, tools: LimitTools) {
  const { rateLimitMax: max, rateLimitWindowSeconds: windowSeconds } = settings;
  const limit = {
    max,
    timeWindow: windowSeconds * 1_000,
    keyGenerator: keyOf,
    errorResponseBuilder: (_request, { ttl }) =>
      new OverLimit({ amount: `${max}`, windowSeconds, whose: 'one address' }, ttl),
  } satisfies rateLimit.RateLimitOptions;
  return {
    submitApplication: {
      ...limit,
      onExceeded: (request: FastifyRequest) => tools.overLimit(keyOf(request), request.id),
    },
    // Counted apart: look-ups must not use up the submissions the contract allows.
    lookUpStatus: { ...limit, groupId: ' status' },
  };
}

/**
 * The bounds that a partner's Secrets may set on what it submits; each is asked once the partner is
 * known.
 */
export function partnerLimits(tools: LimitTools) {
  const admit = async (request: FastifyRequest, count: Count): Promise<void> => {
    const { key, by, max, amount, windowSeconds } = count;
    const { current, ttl } = await tools.limiter.count(key, by, windowSeconds * 1_000, max);
    if (current <= max) return;
    tools.overLimit(keyOf(request), request.id);
    throw new OverLimit({ amount, windowSeconds, whose: 'this partner' }, ttl);
  };
  return {
    /**
     * Counts a request before its body is read. Rejects with `OverLimit`; undefined without a
     * bound.
     */
    admitRequest: (request: FastifyRequest): Promise<void> | undefined => {
      const { maxPerMinute: max } = request.bounds;
      if (max === undefined) return undefined;
      const key = `partner:${request.partnerId}`;
      return admit(request, {
        key,
        by: 1,
        max,
        amount: `${max}`,
        windowSeconds: PARTNER_MINUTE_SECONDS,
      });
    },
    /**
     * Counts the bytes of a body that has come, as they would be stored. Rejects with `OverLimit`;
     * undefined without a bound.
     */
    admitBody: (request: FastifyRequest, bytes: number): Promise<void> | undefined => {
      const { maxMegabytesPerDay: megabytes } = request.bounds;
      if (megabytes === undefined || bytes === 0) return undefined;
      const max = megabytes * BYTES_PER_MEGABYTE;
      const key = `partner:${request.partnerId}:bytes`;
      return admit(request, {
        key,
        by: bytes,
        max,
        amount: `${megabytes} megabytes`,
        windowSeconds: PARTNER_DAY_SECONDS,
      });
    },
  };
}

interface Count {
  readonly key: string;
  readonly by: number;
  readonly max: number;
  readonly amount: string;
  readonly windowSeconds: number;
}

/** Lets routes have limits, all counted in `tools.limiter`. */
export async function registerLimiter(app: FastifyInstance, tools: LimitTools): Promise<void> {
  await app.register(rateLimit, {
    global: false,
    // The plugin makes the store itself, from a class.
    store: function store() {
      return tools.limiter;
    } as unknown as NonNullable<rateLimit.RateLimitPluginOptions['store']>,
  });
}

/** Thrown by a limit, answered by the error handler. */
export class OverLimit extends Error {
  override readonly name = 'OverLimit';
  readonly retrySeconds: number;
  constructor(limit: Limit, ttlMs: number) {
    // At least one second: a window that is just ending must not invite an immediate retry.
    const retrySeconds = Math.min(limit.windowSeconds, Math.max(1, Math.ceil(ttlMs / 1_000)));
    super(tooManyRequests(limit, retrySeconds));
    this.retrySeconds = retrySeconds;
  }
}
