/**
 * The limits of requests: what is counted together, up to which bound, and at which stage of a request. A further limit is
 * one more entry here; where the counts are kept is the store's business (rate-limit.ts).
 */
import rateLimit from '@fastify/rate-limit';
import type { FastifyInstance, FastifyRequest } from 'fastify';
import { tooManyRequests } from './errors.ts';
import type { SharedLimiterStore } from './rate-limit.ts';

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

/** The limits of each operation, for a route's `config`; each is asked at the end of `onRequest`, before the key. */
export function operationLimits(settings: LimitSettings, tools: LimitTools) {
  const limit = {
    max: settings.rateLimitMax,
    timeWindow: settings.rateLimitWindowSeconds * 1_000,
    keyGenerator: keyOf,
    errorResponseBuilder: (_request, context) => new OverLimit(settings, context.ttl),
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

/** Thrown by the limiter, answered by the error handler. */
export class OverLimit extends Error {
  override readonly name = 'OverLimit';
  readonly retrySeconds: number;
  constructor(settings: LimitSettings, ttlMs: number) {
    // At least one second: a window that is just ending must not invite an immediate retry.
    const retrySeconds = Math.min(settings.rateLimitWindowSeconds, Math.max(1, Math.ceil(ttlMs / 1_000)));
    super(tooManyRequests(settings.rateLimitMax, settings.rateLimitWindowSeconds, retrySeconds));
    this.retrySeconds = retrySeconds;
  }
}
