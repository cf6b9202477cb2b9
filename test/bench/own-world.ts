/** Stores and processes of ours for a measurement, which end with it. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { styleText } from 'node:util';
import { MongoClient } from 'mongodb';
import { writePartnerSecret } from '../../deploy/local/demo-keys.ts';
import { startService, type ServiceProcess } from '../../deploy/local/processes.ts';
import { startMongo, startRedis } from '../../deploy/local/stores.ts';
import { messageOf } from '../../deploy/local/stores/wait.ts';
import { newApiKey } from '../../internal/partner/api-key.ts';
import { defined } from '../../internal/platform/process/defined.ts';
import { imageEnvironment } from '../support/image.ts';
import { checkLoadGenerator } from './load.ts';

export interface Bench {
  readonly client: MongoClient;
  readonly key: string;
  readonly mongoUrl: string;
  readonly redisUrl: string;
  /** Starts a process of ours or of the version in `project`, and waits until it is ready. */
  start(name: 'controller' | 'ingest', project?: string): Promise<ServiceProcess>;
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
    await checkLoadGenerator();
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
      MONGODB_DATABASE: 'bench',
      REDIS_URL: redis.url,
      PARTNER_KEYS_SOURCE: `directory:${keyFolder}`,
      TRUSTED_PROXIES: '127.0.0.0/8',
      ...imageEnvironment(),
    };
    await measure({
      client,
      key,
      mongoUrl: mongo.url,
      redisUrl: redis.url,
      closeLater: (close) => void opened.push(close),
      async start(name, project) {
        // Another version may have other indexes.
        const other = { MONGODB_DATABASE: 'bench_other', REDIS_URL: `${redis.url}/1` };
        const service = await startService(
          name,
          { ...environment, ...(project === undefined ? {} : other) },
          { compiled: true, ...defined({ project }) },
        );
        opened.push(() => service.stop());
        await service.ready();
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
