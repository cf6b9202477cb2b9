/**
 * What is used of ioredis beyond its documentation. If a version changes it,
 * `test/integration/redis-access.test.ts` and `test/integration/contact.test.ts` fail.
 */
import { SentinelConnector, type Redis, type RedisOptions } from 'ioredis';
import { authorityOf } from '../http/networks.ts';
import type { HostAndPort } from './redis-url.ts';
import { foundError } from '../process/server-words.ts';

/**
 * Hears how each command ends, except one. On reconnect the client sends its own commands and leaves
 * their rejections unhandled, which would end the process.
 */
export function onReplies(
  redis: Redis,
  taken: (command: string, reply: unknown) => void,
  failed: (error: Error) => void,
): void {
  const sendCommand = redis.sendCommand.bind(redis);
  redis.sendCommand = (command, stream) => {
    const { name, args } = command;
    // The library ignores that a Redis before 7.2 refuses this command.
    const isSetInfo = name === 'client' && /^setinfo$/i.test(String(args[0]));
    if (!isSetInfo) command.promise.then((reply) => taken(name, reply), failed);
    return sendCommand(command, stream);
  };
}

/** Hears of each Sentinel that was asked; addresses are `host:port`. */
export interface SentinelWatch {
  /** It names the primary. */
  named(sentinel: string, primary: string): void;
  failed(sentinel: string, error: unknown): void;
}

/** The parts of the library's connector that are replaced. */
type Connector = NonNullable<RedisOptions['Connector']>;
type Replaceable = new (options: unknown) => {
  connectToSentinel(endpoint: HostAndPort, options?: object): Redis;
  resolveMaster(client: Redis): Promise<HostAndPort | null>;
  resolve(endpoint: HostAndPort): Promise<HostAndPort | null>;
};

/** The library drops the error of a Sentinel's connection, and which Sentinel it was. */
export function watchedSentinels(watch: SentinelWatch): Connector {
  class WatchedSentinels extends (SentinelConnector as unknown as Replaceable) {
    readonly #errors = new Map<string, unknown>();

    override connectToSentinel(endpoint: HostAndPort, options?: object): Redis {
      const client = super.connectToSentinel(endpoint, options);
      client.on('error', (error) => this.#errors.set(authorityOf(endpoint), error));
      return client;
    }

    override async resolveMaster(client: Redis): Promise<HostAndPort | null> {
      const primary = await super.resolveMaster(client);
      if (primary === null) throw foundError('UnknownPrimary', await knownNames(client));
      return primary;
    }

    override async resolve(endpoint: HostAndPort): Promise<HostAndPort | null> {
      const sentinel = authorityOf(endpoint);
      this.#errors.delete(sentinel);
      try {
        const primary = await super.resolve(endpoint);
        if (primary !== null) watch.named(sentinel, authorityOf(primary));
        return primary;
      } catch (error) {
        // The command's own error, if any, is of the connection that has ended.
        watch.failed(sentinel, this.#errors.get(sentinel) ?? error);
        throw error;
      }
    }
  }
  return WatchedSentinels as unknown as Connector;
}

const NAMES_SHOWN = 5;

/** Those of the primaries that a Sentinel watches; empty if it does not say. */
async function knownNames(client: Redis): Promise<string> {
  const primaries: unknown = await client.call('SENTINEL', 'MASTERS').catch(() => undefined);
  if (!Array.isArray(primaries)) return '';
  const names = (primaries as unknown[]).flatMap((fields) => {
    const all = Array.isArray(fields) ? fields.map(String) : [];
    return all[all.indexOf('name') + 1] ?? [];
  });
  if (names.length === 0) return ', nor any other';
  return `, but ${names.slice(0, NAMES_SHOWN).join(', ')}`;
}
