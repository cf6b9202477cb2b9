/** Starts the stores once for all test files. */
/* oxlint-disable node/no-process-env -- Jest hands the environment to its workers, and nothing else */
import { startMongo, startRedis } from '../../deploy/local/stores.ts';
import { foundObstacles } from './needs.ts';
import { openTemporaryFolder } from './temporary-folder.ts';

declare global {
  var partnerIngestTestServers: { stop(): Promise<void> }[] | undefined;
}

// oxlint-disable-next-line import/no-default-export -- Jest asks for it
export default async function globalSetup(): Promise<void> {
  await openTemporaryFolder();
  if (process.env['PARTNER_INGEST_TEST_STORES'] === 'none') return;
  if (foundObstacles()['MongoDB and Redis'] !== undefined) return;
  const log = (line: string): void => console.log(line);
  const [mongo, redis] = await Promise.all([
    startMongo({ url: process.env['MONGODB_URI'], log }),
    startRedis({ url: process.env['REDIS_URL'], log }),
  ]);
  globalThis.partnerIngestTestServers = [mongo, redis];
  process.env['TEST_MONGODB_URI'] = mongo.url;
  process.env['TEST_REDIS_URL'] = redis.url;
  console.log(`\nstores: ${mongo.description}, ${redis.description}`);
}
