/**
 * `make bench OF=idempotency`: what the header Idempotency-Key costs: without it where its index is missing, as before there was
 * one; without it; and with a key of its own in each request. Each has a database of its own.
 */
import { submissionIndexes } from '../../internal/submission/indexes.ts';
import { SUBMISSIONS } from '../../internal/submission/submission.ts';
import { compareVariants, type Variant } from './alternating.ts';

const index = submissionIndexes.find(({ key }) => 'idempotencyDigest' in key)!;

await compareVariants('idempotency', async (bench) => {
  const start = async (database: string): Promise<Variant> => {
    await bench.start('controller', { MONGODB_DATABASE: database });
    return bench.start('ingest', { MONGODB_DATABASE: database });
  };
  const noIndex = await start('bench_no_index');
  await bench.client.db('bench_no_index').collection(SUBMISSIONS).dropIndex(index.name);
  return {
    'no index': noIndex,
    'no header': await start('bench_no_header'),
    'a key each': { ...(await start('bench_keyed')), keyed: true },
  };
});
