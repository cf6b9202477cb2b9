import { expect, test } from '@jest/globals';
import { PARTNER_LABELS, PartnerLabels } from './metrics.ts';

test('the first partners keep their names, and all others share one', () => {
  const labels = new PartnerLabels();
  const names = Array.from({ length: PARTNER_LABELS + 2 }, (_none, index) => `p${index}`);
  expect(names.map((name) => labels.of(name))).toEqual([...names.slice(0, -2), 'other', 'other']);
  expect(labels.of('p0')).toBe('p0');
});
