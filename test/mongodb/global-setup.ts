/** Refuses any server but a replica set of MongoDB; Redis comes as for the other tests. */
import { startRedis } from '../../deploy/local/stores.ts';
import { openTemporaryFolder } from '../support/temporary-folder.ts';
import { takesFailPoints } from './server.ts';

// oxlint-disable-next-line import/no-default-export -- Jest asks for it
export default async function globalSetup(): Promise<void> {
  const uri = process.env['MONGODB_URI'] ?? '';
  if (uri === '') throw new Error('these tests need a replica set of MongoDB in MONGODB_URI');
  const failPoints = await takesFailPoints(uri);
  console.log(failPoints ? 'with fail points' : 'without fail points: they are skipped');
  await openTemporaryFolder();
  const redis = await startRedis({
    url: process.env['REDIS_URL'],
    log: (line) => console.log(line),
  });
  globalThis.partnerIngestTestServers = [redis];
  process.env['TEST_MONGODB_URI'] = uri;
  process.env['TEST_REDIS_URL'] = redis.url;
  if (failPoints) process.env['TEST_FAIL_POINTS'] = '1';
}
