/** Helm 4 makes of the chart what Helm 3 does. */
import { expect, test } from '@jest/globals';
import {
  CHART,
  evaluation,
  everything,
  helm,
  objectsOf,
  production,
  renderText,
} from '../support/chart.ts';
import { findHelm } from '../support/helm.ts';

const helm4 = await findHelm(4);
if (typeof helm4 === 'string') throw new Error(helm4);

test.each(Object.entries({ evaluation, production, everything }))(
  'renders %s as Helm 3 does',
  async (_, values) => {
    const byName = (text: string) =>
      objectsOf(text).toSorted((a, b) =>
        `${a.kind}${a.metadata.name}`.localeCompare(`${b.kind}${b.metadata.name}`),
      );
    expect(byName(await renderText(values, { by: helm4 }))).toEqual(
      byName(await renderText(values)),
    );
    const { out } = await helm(['lint', '--strict', CHART, '-f', '-'], values, helm4);
    expect(out).toContain('1 chart(s) linted, 0 chart(s) failed');
  },
);
