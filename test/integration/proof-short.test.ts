/** A control run of `make proof`: both judges find what it breaks. */
import { afterAll, expect, test } from '@jest/globals';
import { playControl } from '../proof/controls.ts';
import { folderOfFile } from '../support/folder.ts';

const SEED = 5;
const folder = folderOfFile();
const stop = new AbortController();
afterAll(() => stop.abort());

test('both judges find requests that were answered 500 and are processed', async () => {
  const options = { seed: SEED, signal: stop.signal, log: () => undefined };
  const { audit, checker } = await playControl('withdrawals-dropped', folder, options);
  expect(audit).toBeGreaterThan(0);
  expect(checker).toBeGreaterThan(0);
});
