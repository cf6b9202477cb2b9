/** Refuses any server but a replica set of MongoDB; Redis comes as for the other tests. */
import { startRedis } from '../../deploy/local/stores.ts';
import { openTemporaryFolder } from '../support/temporary-folder.ts';
import { askServer } from './server.ts';

// oxlint-disable-next-line import/no-default-export -- Jest asks for it
export default async function globalSetup(): Promise<void> {
  const uri = process.env['MONGODB_URI'];
  const server = await askServer(uri);
  if (uri === undefined || server.kind === 'unfit')
    throw new Error('run these tests with `make test-mongodb`');
  await openTemporaryFolder();
  const redis = await startRedis({
    url: process.env['REDIS_URL'],
    log: (line) => console.log(line),
  });
  globalThis.partnerIngestTestServers = [redis];
  process.env['TEST_MONGODB_URI'] = uri;
  process.env['TEST_REDIS_URL'] = redis.url;
  if (server.takesFailPoints) process.env['TEST_FAIL_POINTS'] = '1';
}
