/** The rate limits: what is counted, up to which bound. */
import rateLimit from '@fastify/rate-limit';
import type { FastifyInstance, FastifyRequest } from 'fastify';
import { ownerName } from '../partner/mode.ts';
import type { OverLimitRecorder } from '../submission/over-limit.ts';
import { tooManyRequests, type Limit } from './errors.ts';
import { PARTNER_DAY_SECONDS } from './limits.ts';
import type { SharedLimiterStore } from './rate-limit.ts';

const PARTNER_MINUTE_SECONDS = 60;

const BYTES_PER_MEGABYTE = 1_000_000;

export interface LimitSettings {
  readonly rateLimitMax: number;
  readonly rateLimitWindowSeconds: number;
}

export interface LimitTools {
  readonly limiter: SharedLimiterStore;
  readonly overLimit: Pick<OverLimitRecorder, 'add'>;
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

export class Limits {
  readonly ofAddress: Limit;
  /** What the routes pass to the plugin. */
  readonly submissions: rateLimit.RateLimitOptions;
  readonly lookUps: rateLimit.RateLimitOptions;
  readonly #tools: LimitTools;

  constructor({ rateLimitMax: max, rateLimitWindowSeconds }: LimitSettings, tools: LimitTools) {
    this.#tools = tools;
    this.ofAddress = {
      amount: `${max}`,
      windowSeconds: rateLimitWindowSeconds,
      whose: 'one address',
    };
    const limit: rateLimit.RateLimitOptions = {
      max,
      timeWindow: rateLimitWindowSeconds * 1_000,
      keyGenerator: (request) => request.client.limitKey,
      errorResponseBuilder: (_request, { ttl }) => new OverLimit(this.ofAddress, ttl),
    };
    this.submissions = { ...limit, onExceeded: (request) => this.#countOver(request) };
    // Look-ups must not use up submissions.
    this.lookUps = { ...limit, groupId: ' status' };
  }

  async register(app: FastifyInstance): Promise<void> {
    const { limiter } = this.#tools;
    await app.register(rateLimit, {
      global: false,
      store: function store() {
        return limiter;
      } as unknown as NonNullable<rateLimit.RateLimitPluginOptions['store']>,
    });
  }

  /** Rejects with `OverLimit`; undefined where the partner has no such bound. */
  admitRequest(request: FastifyRequest): Promise<void> | undefined {
    const { maxPerMinute: max } = request.terms;
    if (max === undefined) return undefined;
    const limit = partnerLimit(`${max}`, PARTNER_MINUTE_SECONDS);
    return this.#admit(request, partnerKeyOf(request), 1, max, limit);
  }

  /** As `admitRequest`. */
  admitBody(request: FastifyRequest, bytes: number): Promise<void> | undefined {
    const { maxMegabytesPerDay: megabytes } = request.terms;
    if (megabytes === undefined || bytes === 0) return undefined;
    const limit = partnerLimit(`${megabytes} megabytes`, PARTNER_DAY_SECONDS);
    const max = megabytes * BYTES_PER_MEGABYTE;
    return this.#admit(request, bytesKeyOf(request), bytes, max, limit).catch((error: unknown) => {
      this.giveBackBody(request, bytes);
      throw error;
    });
  }

  /** Only what is stored counts: an outage must not use up a partner's day. */
  giveBackBody(request: FastifyRequest, bytes: number): void {
    if (request.terms.maxMegabytesPerDay === undefined || bytes === 0) return;
    const windowMs = PARTNER_DAY_SECONDS * 1_000;
    void this.#tools.limiter.count(bytesKeyOf(request), -bytes, windowMs, Infinity);
  }

  async #admit(
    request: FastifyRequest,
    key: string,
    by: number,
    max: number,
    limit: Limit,
  ): Promise<void> {
    const { limiter } = this.#tools;
    const { current, ttl } = await limiter.count(key, by, limit.windowSeconds * 1_000, max);
    if (current <= max) return;
    this.#countOver(request);
    throw new OverLimit(limit, ttl);
  }

  #countOver({ client, id }: FastifyRequest): void {
    this.#tools.overLimit.add(client.limitKey, id);
  }
}

const partnerLimit = (amount: string, windowSeconds: number): Limit => ({
  amount,
  windowSeconds,
  whose: 'this partner',
});

const partnerKeyOf = ({ partnerId, terms }: FastifyRequest): string =>
  `partner:${ownerName(partnerId, terms)}`;
const bytesKeyOf = (request: FastifyRequest): string => `${partnerKeyOf(request)}:bytes`;
