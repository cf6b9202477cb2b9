/** Names in Redis: each carries the installation's id, so that several may share a server. */

/** What users of Redis need to know of the installation. */
export interface KnownInstallation {
  /** Undefined until the database was read once: then no name in Redis is known. */
  readonly id?: string | undefined;
}

export const redisName = (id: string, name: string): string => `partner-ingest:${id}:${name}`;

/** BullMQ's prefix; the braces keep all keys of a queue in one slot of a Redis Cluster. */
export const queuePrefix = (id: string): string => `partner-ingest:{${id}}`;
