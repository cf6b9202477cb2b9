/** A loop that fails is reported once, and no longer when it succeeds. */
import { isDeepStrictEqual } from 'node:util';
import { expect, test } from '@jest/globals';
import { eventually } from '../../../test/support/wait.ts';
import type { Logger } from './log.ts';
import { Loops } from './loop.ts';
import { wordsOf } from './fault.ts';

/** What the loops write into the log, and which of them the gauge shows. */
function world() {
  const lines: unknown[] = [];
  const gauge = new Map<string, number>();
  const log = {
    debug: () => {},
    info: (_fields: object, text: string) => lines.push(text),
    warn: (fields: { readonly reason: string }, text: string) =>
      lines.push(`${text}: ${fields.reason}`),
  } as unknown as Logger;
  const loops = new Loops({
    log,
    closers: { add: () => {} },
    failing: { set: ({ loop }, value) => void gauge.set(loop, value) },
    faultOf: (error) => ({ code: 'x', words: (error as Error).message }),
  });
  return { loops, lines, gauge };
}

const seen = (wanted: readonly string[], look: Loops['faults']) =>
  eventually(`probes say ${wanted.join()}`, async () =>
    isDeepStrictEqual(wordsOf(await look()), wanted),
  );

test('a loop that fails for its bound or hangs is reported once, and clears by itself', async () => {
  const { loops, lines, gauge } = world();
  let fault: Error | undefined = new Error('no right');
  const hung = Promise.withResolvers<void>();
  const often = { everyMs: 1, failsAfterMs: 20 };
  const run = async (): Promise<void> => {
    if (fault !== undefined) throw fault;
  };
  const started = [
    loops.start({ ...often, name: 'holds', needed: true, run }),
    loops.start({ ...often, name: 'keys', run }),
    loops.start({ ...often, name: 'line', run: () => hung.promise }),
  ];
  expect([await loops.faults(), await loops.warnings(), gauge.get('holds')]).toEqual([[], [], 0]);
  await seen(['failing loops: holds: no right'], loops.faults);
  await seen(
    ['failing loops: keys: no right', 'failing loops: line: took longer than 20 ms'],
    loops.warnings,
  );
  expect(gauge.get('holds')).toBe(1);
  expect(lines).toHaveLength(3);
  expect(new Set(lines)).toEqual(
    new Set(['a loop fails: no right', 'a loop fails: took longer than 20 ms']),
  );

  fault = undefined;
  hung.resolve();
  await started[0]!.succeeded;
  await seen([], loops.faults);
  await seen([], loops.warnings);
  expect(gauge.get('holds')).toBe(0);
  expect(lines.slice(3)).toEqual(Array(3).fill('a loop succeeds again'));
  for (const loop of started) await loop.stop();
});

test('a pause ends when the loop is woken or stopped, and is skipped while more is due', async () => {
  const { loops } = world();
  let rounds = 0;
  const run = (): Promise<boolean> => Promise.resolve((rounds += 1) < 3);
  const loop = loops.start({ name: 'line', everyMs: 3_600_000, failsAfterMs: 3_600_000, run });
  await eventually('rounds', () => rounds === 3);
  loop.wake();
  await eventually('rounds', () => rounds === 4);
  await loop.stop();
  expect(rounds).toBe(4);
});
