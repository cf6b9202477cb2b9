/**
 * Tells every ingest which submissions have ended, by Redis' publish and subscribe. Messages hold
 * ids only and may be lost: the record says what became of a submission.
 */
import { redisName, type KnownInstallation } from '../installation/installation.ts';
import type { RedisClient } from '../platform/stores/redis.ts';

const ENDS = 'ends';
/** Ends within this time share a message. */
const LINGER_MS = 10;
/** Further ends are not published; ingest reads the record. */
const WAITING_MOST = 1_000;
/** A repeated SUBSCRIBE reveals a silent connection. */
const SUBSCRIBE_EVERY_MS = 1_000;

/** Publishes in the background: adding neither fails nor waits. */
export class EndSender {
  readonly #redis: Pick<RedisClient, 'status' | 'publish'>;
  readonly #installation: KnownInstallation;
  #waiting: string[] = [];

  constructor(redis: Pick<RedisClient, 'status' | 'publish'>, installation: KnownInstallation) {
    this.#redis = redis;
    this.#installation = installation;
  }

  add(requestId: string): void {
    if (this.#waiting.length >= WAITING_MOST) return;
    if (this.#waiting.push(requestId) === 1) setTimeout(() => this.#send(), LINGER_MS);
  }

  #send(): void {
    const ids = this.#waiting.splice(0).join(' ');
    const { id } = this.#installation;
    if (id !== undefined && this.#redis.status === 'ready')
      this.#redis.publish(redisName(id, ENDS), ids).catch(() => {});
  }
}

/** Needs its own client. The returned function ends subscription and client. */
export function hearEnds(
  redis: RedisClient,
  installation: KnownInstallation,
  heard: (requestIds: readonly string[]) => void,
): () => void {
  let asking = false;
  let channel: string | undefined;
  const subscribe = (): void => {
    const { id } = installation;
    if (asking || id === undefined || redis.status !== 'ready') return;
    asking = true;
    const answered = (): void => void (asking = false);
    const before = channel;
    channel = redisName(id, ENDS);
    if (before !== undefined && before !== channel) redis.unsubscribe(before).catch(() => {});
    redis.subscribe(channel).then(answered, answered);
  };
  redis.on('message', (_channel, ids) => heard(ids.split(' ')));
  redis.on('ready', subscribe);
  const timer = setInterval(subscribe, SUBSCRIBE_EVERY_MS);
  return () => {
    clearInterval(timer);
    redis.disconnect();
  };
}
