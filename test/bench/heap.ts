/** `make bench OF=heap`: what bounds of V8's heap cost and save: a small young generation, the image's, a larger one, none. */
import { compareVariants, type Variant } from './alternating.ts';

await compareVariants('heap', async (bench) => {
  await bench.start('controller');
  const start = (NODE_OPTIONS: string, arenas = '2'): Promise<Variant> =>
    bench.start('ingest', { NODE_OPTIONS, MALLOC_ARENA_MAX: arenas });
  return {
    '8/256': await start('--max-semi-space-size=8 --max-old-space-size=256'),
    '32/256': await start('--max-semi-space-size=32 --max-old-space-size=256'),
    '64/256': await start('--max-semi-space-size=64 --max-old-space-size=256'),
    'none/400': await start('--max-old-space-size=400', '8'),
  };
});
