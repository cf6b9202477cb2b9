/** The path of a POST through our functions is no longer than recorded (`make path`). */
import { expect, test } from '@jest/globals';
import { INSPECTED } from '../path/inspector.ts';
import { measurePath } from '../path/measure.ts';
import { longerThan, readRecorded, summaryOf } from '../path/recorded.ts';
import { newApplication, openWorld } from '../support/world.ts';

test('a POST calls no more of our functions than recorded', async () => {
  const world = await openWorld();
  try {
    const path = await measurePath({
      ingest: await world.spawn('ingest', INSPECTED),
      processor: await world.spawn('processor', INSPECTED),
      key: world.key,
      body: newApplication,
      isCompleted: async (requestId) => (await world.record(requestId))?.state === 'completed',
    });
    expect(longerThan(readRecorded(), path)).toEqual([]);
    // A check that finds nothing would pass, and a measurement that misses what it measures.
    const shorter = summaryOf({ ...path, processor: [] });
    expect(longerThan(shorter, path)[0]).toMatch(/^the path of a POST has \d+ files, at most /);
    const files = new Set([...path.ingest, ...path.processor].map(({ file }) => file));
    for (const file of ['internal/ingest/submit-application.ts', 'internal/mail/mailer.ts'])
      expect(files).toContain(file);
  } finally {
    await world.close();
  }
});
