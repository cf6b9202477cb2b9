/** The rate limits: what is counted, up to which bound. */
import rateLimit from '@fastify/rate-limit';
import type { FastifyInstance, FastifyRequest } from 'fastify';
import { ownerName } from '../partner/key-terms.ts';
import { defined } from '../platform/process/defined.ts';
import type { OverLimitRecorder } from '../submission/over-limit.ts';
import type { IngestMetrics, PartnerLabels } from '../telemetry/metrics.ts';
import { authenticate, type KeyTools } from './authenticate.ts';
import { tooManyRequests, type Limit } from './errors.ts';
import type { SharedLimiterStore } from './rate-limit.ts';

const PARTNER_MINUTE_SECONDS = 60;
const PARTNER_MINUTE_MS = PARTNER_MINUTE_SECONDS * 1_000;

export interface LimitSettings {
  readonly rateLimitMax: number;
  readonly rateLimitWindowSeconds: number;
}

export interface LimitTools extends KeyTools {
  readonly limiter: SharedLimiterStore;
  readonly metrics: Pick<IngestMetrics, 'limitDryRun'>;
  readonly partnerLabels: PartnerLabels;
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
  /** Options that the routes pass to the plugin. */
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
    // The key is not checked, but the counts of its partner must show the 429.
    this.submissions = {
      ...limit,
      onExceeded: (request) => {
        authenticate(request, tools);
        this.#countOver(request, this.ofAddress);
      },
    };
    // Look-ups must not use up submissions.
    this.lookUps = {
      ...limit,
      groupId: ' status',
      onExceeded: (request) => authenticate(request, tools),
    };
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

  /** Rejects with `OverLimit`; undefined if the partner has no bound. */
  admitRequest(request: FastifyRequest): Promise<void> | undefined {
    const { maxPerMinute: max, dryRunPerMinute } = request.terms;
    if (dryRunPerMinute !== undefined) void this.#tryOut(request, dryRunPerMinute);
    if (max === undefined) return undefined;
    return this.#admit(request, max);
  }

  /** Counts a test's requests for all pods, until `windowMs` after the first. */
  countTest(key: string, windowMs: number): ReturnType<SharedLimiterStore['count']> {
    return this.#tools.limiter.count(`test:${key}`, windowMs, Infinity);
  }

  async #tryOut({ partnerId, terms }: FastifyRequest, max: number): Promise<void> {
    const key = `dry-run:${ownerName(partnerId, terms)}`;
    const { current } = await this.#tools.limiter.count(key, PARTNER_MINUTE_MS, Infinity);
    const { metrics, partnerLabels } = this.#tools;
    if (current > max) metrics.limitDryRun.inc({ partner: partnerLabels.of(partnerId) });
  }

  async #admit(request: FastifyRequest, max: number): Promise<void> {
    const key = `partner:${ownerName(request.partnerId, request.terms)}`;
    const { current, ttl } = await this.#tools.limiter.count(key, PARTNER_MINUTE_MS, max);
    if (current <= max) return;
    const limit: Limit = {
      amount: `${max}`,
      windowSeconds: PARTNER_MINUTE_SECONDS,
      whose: 'this partner',
    };
    this.#countOver(request, limit);
    throw new OverLimit(limit, ttl);
  }

  #countOver({ client, id, keyId, partnerId, terms }: FastifyRequest, limit: Limit): void {
    const { amount, windowSeconds, whose } = limit;
    const time = windowSeconds === PARTNER_MINUTE_SECONDS ? 'a minute' : `in ${windowSeconds} s`;
    const of = whose === 'one address' ? 'this address' : whose;
    this.#tools.overLimit.add({
      requestId: id,
      address: client.limitKey,
      ...(keyId === undefined ? {} : { keyId, partnerId, ...defined({ test: terms.test }) }),
      limit: `${amount} ${time} of ${of}`,
    });
  }
}
