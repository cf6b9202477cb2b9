/** Stores and processes of ours for a measurement, which end with it. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { styleText } from 'node:util';
import { MongoClient } from 'mongodb';
import { writePartnerSecret } from '../../deploy/local/demo-keys.ts';
import {
  startService,
  type ServiceName,
  type ServiceProcess,
} from '../../deploy/local/processes.ts';
import { startMongo, startRedis } from '../../deploy/local/stores.ts';
import { messageOf } from '../../deploy/local/stores/wait.ts';
import { newApiKey } from '../../internal/partner/api-key.ts';
import { defined } from '../../internal/platform/process/defined.ts';
import { imageEnvironment } from '../support/image.ts';

/** Who works on stores of its own: the working tree, or a kept build in the folder `project`. */
export interface Owner {
  readonly name: string;
  readonly project?: string;
  readonly stores: Readonly<Record<'MONGODB_DATABASE' | 'REDIS_URL', string>>;
}

export interface Bench {
  readonly client: MongoClient;
  readonly key: string;
  readonly mongoUrl: string;
  /** With a database and a Redis number that no other owner has. */
  newOwner(name: string, project?: string): Owner;
  /** Starts a process of this owner's build; resolves when it serves, which may be before ready. */
  start(
    name: ServiceName,
    owner: Owner,
    settings?: Readonly<Record<string, string>>,
    /** By default it runs as compiled. */
    options?: { readonly compiled: boolean },
  ): Promise<ServiceProcess>;
  closeLater(close: () => Promise<unknown>): void;
}

const log = (line: string): void => console.error(styleText('dim', line));

/**
 * Starts the stores, runs `measure` with what it may start on them, and ends all of it. A failure
 * ends the command with 1.
 */
export async function withBench(measure: (bench: Bench) => Promise<void>): Promise<void> {
  const opened: (() => Promise<unknown>)[] = [];
  try {
    const [mongo, redis] = await Promise.all([startMongo({ log }), startRedis({ log })]);
    const client = new MongoClient(mongo.url);
    const keyFolder = await mkdtemp(join(tmpdir(), 'bench-keys-'));
    opened.push(
      () => mongo.stop(),
      () => redis.stop(),
      () => client.close(),
      () => rm(keyFolder, { recursive: true }),
    );
    const key = newApiKey();
    await writePartnerSecret(keyFolder, { partner: 'bench', keys: [key] });
    const environment = {
      MONGODB_URI: mongo.url,
      PARTNER_KEYS_SOURCE: `directory:${keyFolder}`,
      TRUSTED_PROXIES: '127.0.0.0/8',
      SHUTDOWN_DELAY_MS: '0',
      ...imageEnvironment(),
    };
    let owners = 0;
    await measure({
      client,
      key,
      mongoUrl: mongo.url,
      closeLater: (close) => void opened.push(close),
      newOwner(name, project) {
        owners += 1;
        // Other versions may have other indexes.
        const stores = { MONGODB_DATABASE: `bench_${owners}`, REDIS_URL: `${redis.url}/${owners}` };
        return { name, stores, ...defined({ project }) };
      },
      async start(name, { stores, project }, settings, { compiled } = { compiled: true }) {
        const service = await startService(
          name,
          { ...environment, ...stores, ...settings },
          { compiled, ...defined({ project }) },
        );
        opened.push(() => service.stop());
        return service;
      },
    });
  } catch (error) {
    console.error(styleText('red', messageOf(error)));
    process.exitCode = 1;
  } finally {
    for (const close of opened.toReversed())
      await close().catch((error: unknown) => console.error(error));
  }
}
