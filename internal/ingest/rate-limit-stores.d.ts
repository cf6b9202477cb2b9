/** Types of the two stores of @fastify/rate-limit, which ships them without. */
declare module '@fastify/rate-limit/store/LocalStore.js' {
  export default class LocalStore {
    constructor(continueExceeding: boolean, exponentialBackoff: boolean, cache: number);
    incr(
      key: string,
      answer: (error: null, result: { current: number; ttl: number }) => void,
      windowMs: number,
      max: number,
    ): void;
  }
}

declare module '@fastify/rate-limit/store/RedisStore.js' {
  import type { Cluster, Redis } from 'ioredis';
  export default class RedisStore {
    constructor(continueExceeding: boolean, exponentialBackoff: boolean, redis: Redis | Cluster, prefix: string);
    incr(
      key: string,
      answer: (error: Error | null, result: { current: number; ttl: number } | null) => void,
      windowMs: number,
      max: number,
    ): void;
  }
}
