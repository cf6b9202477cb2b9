/** `make bench OF=heap`: what the image's bounds of V8's heap cost and save: a small young generation, the image's, none. */
import { compareVariants, type Bench, type Variant } from './alternating.ts';

await compareVariants('heap', async (bench: Bench) => {
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
