/** Starts the stores once for all test files, and an API server if tests need one, and leaves their addresses where the workers find them. */
/* oxlint-disable node/no-process-env -- Jest hands the environment to its workers, and nothing else */
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { startMongo, startRedis } from '../../deploy/local/stores.ts';
import { NO_API_SERVER, startApiServer } from './api-server.ts';

declare global {
  var partnerIngestTestServers: { stop(): Promise<void> }[] | undefined;
}

/** What we read of Jest's own type, which is not exported by a package we depend on. */
interface JestConfig {
  readonly rootDir: string;
  readonly testPathPatterns: {
    toExecutor(options: { readonly rootDir: string }): { isMatch(absolutePath: string): boolean };
  };
}

// oxlint-disable-next-line import/no-default-export -- Jest asks for it
export default async function globalSetup({ rootDir, testPathPatterns }: JestConfig): Promise<void> {
  if (process.env['PARTNER_INGEST_TEST_STORES'] === 'none') return;
  const log = (line: string): void => console.log(line);
  const wanted = testPathPatterns.toExecutor({ rootDir });
  const folder = join(rootDir, 'test/kubernetes');
  const needsApiServer = readdirSync(folder).some((file) => wanted.isMatch(join(folder, file)));
  const [mongo, redis, api] = await Promise.all([
    startMongo({ url: process.env['MONGODB_URI'], log }),
    startRedis({ url: process.env['REDIS_URL'], log }),
    needsApiServer ? startApiServer(log) : undefined,
  ]);
  globalThis.partnerIngestTestServers = [mongo, redis, ...(api === undefined ? [] : [api])];
  process.env['TEST_MONGODB_URI'] = mongo.url;
  process.env['TEST_REDIS_URL'] = redis.url;
  if (api !== undefined) {
    process.env['TEST_KUBECONFIG'] = api.kubeconfig;
    process.env['TEST_API_SERVER_COMMAND'] = JSON.stringify(api.command ?? []);
  }
  const servers = [mongo.description, redis.description, ...(api === undefined ? [] : [api.description])];
  console.log(`\nstores: ${servers.join(', ')}`);
  if (needsApiServer && api === undefined)
    console.warn(`tests against the Kubernetes API are skipped: ${NO_API_SERVER}`);
}
