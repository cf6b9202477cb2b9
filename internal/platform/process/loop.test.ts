/** A loop that fails is reported once, and no longer when it succeeds. */
import { isDeepStrictEqual } from 'node:util';
import { expect, test } from '@jest/globals';
import { eventually } from '../../../test/support/wait.ts';
import type { Logger } from './log.ts';
import { Loops } from './loop.ts';

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
    reason: (error) => (error as Error).message,
  });
  return { loops, lines, gauge };
}

const seen = (wanted: readonly string[], look: Loops['faults']) =>
  eventually(`probes say ${wanted.join()}`, async () => isDeepStrictEqual(await look(), wanted));

test('a loop that fails for its bound is reported once, and clears by itself', async () => {
  const { loops, lines, gauge } = world();
  const state = { fault: new Error('no right') as Error | undefined };
  const run = (): Promise<void> =>
    state.fault === undefined ? Promise.resolve() : Promise.reject(state.fault);
  const often = { everyMs: 1, failsAfterMs: 20, run };
  const needed = loops.start({ ...often, name: 'holds', needed: true });
  const others = ['keys', 'line'].map((name) => loops.start({ ...often, name }));
  expect([await loops.faults(), await loops.warnings(), gauge.get('holds')]).toEqual([[], [], 0]);

  await seen(['failing loops: holds: no right'], loops.faults);
  await seen(['failing loops: keys, line: no right'], loops.warnings);
  expect(gauge.get('holds')).toBe(1);
  expect(lines).toEqual(Array(3).fill('a loop fails: no right'));

  state.fault = undefined;
  await needed.succeeded;
  await seen([], loops.faults);
  await seen([], loops.warnings);
  expect([await loops.faults(), gauge.get('holds')]).toEqual([[], 0]);
  expect(lines.slice(3)).toEqual(Array(3).fill('a loop succeeds again'));
  await Promise.all([needed, ...others].map((loop) => loop.stop()));
});

test('a round that hangs counts as failed', async () => {
  const { loops } = world();
  const hung = Promise.withResolvers<void>();
  const loop = loops.start({
    name: 'line',
    everyMs: 1,
    failsAfterMs: 20,
    run: () => hung.promise,
  });
  await seen(['failing loops: line: took longer than 20 ms'], loops.warnings);
  hung.resolve();
  await seen([], loops.warnings);
  await loop.stop();
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
