/** `make check` fails if the compiler accepts a line marked as an error below. */
import { expect, test } from '@jest/globals';
import { Registry } from 'prom-client';
import { counter, gauge, histogram, make } from './definition.ts';

const table = {
  plain: counter('plain', 'Without labels.'),
  labelled: counter('labelled', 'With two labels.', {
    store: ['redis', 'local'],
    decision: ['served', 'refused'],
  }),
  level: gauge('level', 'With a label.', { state: ['open', 'closed'] }),
  seconds: histogram('seconds', 'A histogram.', [1, 2]),
  answers: histogram('answers', 'A histogram with a label.', [1, 2], { result: ['good', 'bad'] }),
};

test('a label or a value that is not in the table does not compile', async () => {
  const registry = new Registry();
  const made = make(table, registry);
  made.plain.inc();
  made.labelled.inc({ store: 'redis', decision: 'served' }, 2);
  made.level.set({ state: 'open' }, 3);
  made.seconds.observe(1);
  made.answers.observe({ result: 'bad' }, 2);

  // This function is never called, because prom-client does not check values.
  const wrong = (text: string): void => {
    // @ts-expect-error a value that is not in the table
    made.labelled.inc({ store: 'memory', decision: 'served' });
    // @ts-expect-error a label that is missing
    made.labelled.inc({ store: 'redis' });
    // @ts-expect-error a label that is not in the table
    made.labelled.inc({ store: 'redis', decision: 'served', partner: 'acme' });
    // @ts-expect-error any text
    made.labelled.inc({ store: 'redis', decision: text });
    // @ts-expect-error no labels at all
    made.labelled.inc();
    // @ts-expect-error a metric that is not in the table
    made.unknown.inc();
    // @ts-expect-error a value of a gauge's label
    made.level.set({ state: text }, 1);
    // @ts-expect-error a value of a histogram's label
    made.answers.observe({ result: text }, 1);
    // @ts-expect-error a gauge is set, not observed
    made.level.observe(1);
  };
  expect(wrong).toBeInstanceOf(Function);

  const text = await registry.metrics();
  expect(text).toContain('partner_ingest_labelled_total{store="redis",decision="served"} 2');
  expect(text).toContain('partner_ingest_labelled_total{store="local",decision="refused"} 0');
  expect(text).toContain('partner_ingest_level{state="open"} 3');
});
