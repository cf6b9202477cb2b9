/** What the first page calls wrong, in which order, and when it calls nothing wrong. */
import { expect, test } from '@jest/globals';
import type { Finding } from '../partner/kept-findings.ts';
import { Activity } from './activity.ts';
import { nowView } from './now.ts';
import type { Pod } from './readings.ts';

const START = new Date('2026-11-27T12:00:00Z');
const at = (seconds: number): Date => new Date(START.getTime() + seconds * 1_000);

type Values = readonly (readonly [name: string, value: number, labels?: Record<string, string>])[];

const pod = (component: string, values: Values = [], more: Partial<Pod> = {}): Pod => ({
  at: `${component}:9090`,
  component,
  answers: true,
  ready: true,
  faults: [],
  warnings: [],
  samples: values.map(([name, value, labels = {}]) => ({
    name,
    labels,
    value,
    series: `${name}${JSON.stringify(labels)}`,
  })),
  ...more,
});
const WELL: Values = [
  ['records', 0, { state: 'recorded' }],
  ['audit_findings', 0, { kind: 'overdue' }],
  ['leader', 1],
  ['probe_success', 1],
  ['backlog_read_timestamp_seconds', START.getTime() / 1_000],
];

function viewOf(
  values: Values,
  { processor = pod('processor'), now = at(10), findings = [] as Finding[] } = {},
) {
  const activity = new Activity(START);
  activity.stored = { partners: [], dead: [], secrets: [], findings, turnedAway: [], at: START };
  activity.add([pod('ingest'), processor, pod('controller', values)], START);
  return nowView(activity, now);
}

test('nothing is wrong once the pods, the database, the counts and the audit were read', () => {
  const none = nowView(new Activity(START), START);
  expect(none).toMatchObject({ problems: [], unread: expect.arrayContaining(['the database']) });
  expect(viewOf([])).toMatchObject({ problems: [], unread: ['what waits', 'the self-audit'] });
  expect(viewOf(WELL)).toMatchObject({ problems: [], unread: [] });
});

test.each<[Values[number], string, string]>([
  [['leader', 0], 'bad', 'none leads'],
  [['probe_success', 0], 'bad', 'its last test submission was not completed'],
  [
    ['oldest_waiting_seconds', 660, { state: 'recorded' }],
    'bad',
    'one has waited 11 min for its account',
  ],
  [
    ['backlog_read_timestamp_seconds', at(-60).getTime() / 1_000],
    'warn',
    'what waits was counted 1 min 10 s ago',
  ],
  [['secret_problems', 2, { problem: 'short' }], 'warn', 'some cannot be used: see Partners'],
  [['partners_keys_ending', 1], 'warn', 'the last key of 1 partners ends, or has ended'],
])('%j is wrong', (value, weight, what) => {
  const others = WELL.filter(([name]) => name !== value[0]);
  expect(viewOf([...others, value]).problems).toMatchObject([{ weight, what }]);
});

test('a finding of the self-audit has an example', () => {
  const finding = { kind: 'account_missing', id: 'req_1', at: START } as const;
  const values = ['audit_findings', 1, { kind: 'account_missing' }] as const;
  expect(viewOf([...WELL, values], { findings: [finding] }).problems).toMatchObject([
    { weight: 'bad', who: 'self-audit', request: 'req_1' },
  ]);
});

test('one e-mail that waits is the fault of its recipient, and many are ours', () => {
  const problemsWith = (count: number) =>
    viewOf([
      ...WELL,
      ['oldest_waiting_seconds', 7_200, { state: 'account_created' }],
      ['records', count, { state: 'account_created' }],
    ]).problems;
  expect(problemsWith(49)).toEqual([]);
  expect(problemsWith(50)).toMatchObject([
    { weight: 'warn', what: 'many wait for the e-mail, one for 2 h' },
  ]);
});

test('what stops something stands above what does not yet', () => {
  const processor = pod('processor', [], { warnings: ['Redis is slow'], faults: ['no disk'] });
  const { problems } = viewOf([...WELL, ['partners_keys_ending', 1]], { processor });
  expect(problems.map(({ weight }) => weight)).toEqual(['bad', 'warn', 'warn']);
});

test('data is as old as what was read longest ago', () => {
  const { fresh } = viewOf(WELL, { now: at(29) });
  expect(fresh).toMatchObject({ since: START, leftMs: 1_000 });
  expect(viewOf(WELL, { now: at(31) }).fresh.leftMs).toBe(-1_000);
});
