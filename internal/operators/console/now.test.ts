/** What the first page calls wrong, in which order, and when it calls nothing wrong. */
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { createServer, type AddressInfo } from 'node:net';
import { expect, test } from '@jest/globals';
import type { Finding } from '../../partner/kept-findings.ts';
import { createLogger } from '../../platform/process/log.ts';
import { startOf, type Counts, type PartnerSums } from '../../traffic/traffic.ts';
import { units, type SeriesAsked, type Part, type Unit } from '../../traffic/traffic-reader.ts';
import type { DeadCause } from '../view/search.ts';
import { nowTraffic, worstFirst } from '../view/traffic.ts';
import { Activity } from '../view/activity.ts';
import { nowView } from '../view/now.ts';
import { readPods, type Pod } from '../view/readings.ts';
import runbooks from '../view/runbooks.json' with { type: 'json' };
import type { ConsoleTools } from './routes.ts';
import { startConsole } from './server.ts';

const START = new Date('2026-11-27T12:00:00Z');
const at = (seconds: number): Date => new Date(START.getTime() + seconds * 1_000);

type Values = readonly (readonly [name: string, value: number, labels?: Record<string, string>])[];

const pod = (component: string, values: Values = []): Pod => ({
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
});
const WELL: Values = [
  ['records', 0, { state: 'recorded' }],
  ['audit_findings', 0, { kind: 'overdue' }],
  ['leader', 1],
  ['probe_success', 1],
  ['backlog_read_timestamp_seconds', START.getTime() / 1_000],
];

function viewOf(values: Values, { now = at(10), findings = [] as Finding[], putAside = 0 } = {}) {
  const activity = new Activity(START);
  activity.stored = { ...activity.stored, findings, putAside, at: START };
  activity.add([pod('ingest'), pod('processor'), pod('controller', values)], START);
  return nowView(activity, now);
}

test('each runbook that Now names is a section of its page', () => {
  for (const [page, alert] of Object.values(runbooks).map((one) => one.split(' '))) {
    const url = new URL(`../../../docs/runbooks/${page}.md`, import.meta.url);
    expect(readFileSync(url, 'utf8')).toContain(`## PartnerIngest${alert}\n`);
  }
});

test('nothing is wrong once the pods, the database, the counts and the audit were read', () => {
  const none = nowView(new Activity(START), START);
  expect(none).toMatchObject({ problems: [], unread: expect.arrayContaining(['the database']) });
  expect(viewOf([])).toMatchObject({ problems: [], unread: ['what waits', 'the self-audit'] });
  expect(viewOf(WELL)).toMatchObject({ problems: [], unread: [] });
});

test('Now names a pod, also once it is silent, but not what several processes share', () => {
  const activity = new Activity(START);
  const told = { faults: [{ words: 'it fails' }], name: 'ingest-7d9f-x2kq' };
  const named = (more: Partial<Pod>) => ({ ...pod('ingest'), ...told, ...more });
  const said = (pods: Pod[]): string[] => {
    activity.add(pods, START);
    return nowView(activity, START).problems.map(({ who }) => who);
  };
  expect(said([named({})])).toContain('ingest ingest-7d9f-x2kq');
  const { name: _name, ...silent } = named({ answers: false });
  expect(said([silent])).toContain('ingest ingest-7d9f-x2kq');
  expect(said([named({}), named({ at: 'other:9090' })])).toContain(
    'ingest ingest:9090, ingest other:9090',
  );
});

test.each([
  ['EAI_AGAIN', 'the name cannot be looked up (EAI_AGAIN)', ['the pods'], 0],
  ['ENOTFOUND', 'no pod is found by this name', [], 3],
])('where DNS answers %s, Now says so', async (code, words, unread, absent) => {
  const fail = () => Promise.reject(Object.assign(new Error(code), { code }));
  const activity = new Activity(START);
  activity.add(await readPods(['http://ingest:9090', 'http://processor:9090'], fail), START);
  const view = nowView(activity, START);
  const said = view.problems.map(({ what }) => what);
  expect(said.filter((what) => what.startsWith(words))).toHaveLength(1);
  expect(said.filter((what) => what.endsWith(' answers'))).toHaveLength(absent);
  expect(view.unread).toEqual(expect.arrayContaining(unread));
  expect(activity.line()?.processors).toBe(absent === 0 ? undefined : 0);
});

test('where no pod and no machine answers, what runs there was not read', async () => {
  // Takes connections and says nothing, as a network policy does.
  const silent = createServer(() => {});
  silent.listen(0, '127.0.0.1');
  await once(silent, 'listening');
  const { port } = silent.address() as AddressInfo;
  const found: Readonly<Record<string, string[]>> = {
    cut: ['127.0.0.1'],
    // Nothing listens at the second.
    hung: ['127.0.0.1', '127.0.0.2'],
  };
  const lookUp = (name: string) => Promise.resolve(found[name]!.map((address) => ({ address })));
  try {
    const pods = await readPods(
      ['cut', 'hung'].map((name) => `http://${name}:${port}`),
      lookUp,
    );
    expect(pods.map(({ isUnread }) => isUnread)).toEqual([true, undefined, undefined]);
    const whys = ['TimeoutError', 'TimeoutError', 'ECONNREFUSED'];
    expect(pods.map(({ faults }) => faults[0]?.words)).toEqual(
      whys.map((why) => `does not answer at its admin port (${why})`),
    );
    const absentOf = (some: readonly Pod[]): number => {
      const activity = new Activity(START);
      activity.add(some, START);
      const { problems } = nowView(activity, START);
      return problems.filter(({ what }) => what.startsWith('no ')).length;
    };
    expect([absentOf(pods), absentOf(pods.slice(1))]).toEqual([0, 3]);
  } finally {
    silent.close();
  }
});

test.each<[Values[number], string, string]>([
  [['leader', 0], 'bad', 'none leads'],
  [['probe_success', 0], 'bad', 'its last test submission was not completed'],
  [['probe_mail_success', 0], 'warn', 'the relay did not take its last e-mail'],
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
  [
    ['partners_keys_ending', 1],
    'warn',
    'the last key of a partner ends within a week, or has ended',
  ],
])('%j is wrong', (value, weight, what) => {
  const others = WELL.filter(([name]) => name !== value[0]);
  expect(viewOf([...others, value]).problems).toMatchObject([{ weight, what }]);
});

test('a finding of the self-audit has an example, beside those that are put aside', () => {
  const finding = { kind: 'account_missing', id: 'req_1', at: START } as const;
  const values = ['audit_findings', 1, { kind: 'account_missing' }] as const;
  expect(viewOf([...WELL, values], { findings: [finding], putAside: 2 })).toMatchObject({
    problems: [{ weight: 'bad', who: 'self-audit', request: 'req_1' }],
    putAside: 2,
  });
});

test('dead letters that cannot be counted in time are not called none', () => {
  const activity = new Activity(START);
  const cause = {
    why: 'why',
    reason: 'why',
    oldest: START,
    last: START,
    newest: 'req_1',
    partners: ['demo', 'acme'],
  };
  const problemsWith = (...causes: DeadCause[]) => {
    activity.stored = { ...activity.stored, dead: { causes, from: at(-60) } };
    return nowView(activity, START).problems;
  };
  expect(problemsWith({ ...cause, count: 5 })).toMatchObject([
    {
      what: '5 given up (dead letters) since 2026-11-27 11:59:00 UTC, or more: why',
      request: 'req_1',
      partners: ['demo', 'acme'],
    },
  ]);
  expect(problemsWith()).toMatchObject([{ what: 'dead letters cannot be counted in time' }]);
});

/** Two rounds, ten seconds apart, of which the second has these counts. */
function grown(counts: Values) {
  const activity = new Activity(START);
  const zeros = counts.map(([name, , labels]) => [name, 0, labels] as Values[number]);
  for (const [index, values] of [zeros, counts].entries())
    activity.add(
      [pod('ingest', values), pod('processor'), pod('controller', WELL)],
      at(index * 10),
    );
  return nowView(activity, at(10)).problems;
}

test('what partners and applicants get is told, whichever part is at fault', async () => {
  const got = (accepted: number, failed: number) =>
    grown([
      ['partner_requests_total', accepted, { partner: 'demo', status: '202' }],
      ['partner_requests_total', failed, { partner: 'demo', status: '500' }],
    ]);
  expect(got(1_000, 0)).toEqual([]);
  expect(got(999, 1)).toMatchObject([
    { weight: 'warn', what: '1 of 1000 requests of the last 5 minutes were answered 500' },
  ]);
  expect(got(90, 10)).toMatchObject([{ weight: 'bad', who: 'partners' }]);
  const ended = async (completed: number, undeliverable: number) => {
    const activity = new Activity(START);
    const traffic = await trafficOf((when) =>
      when >= START ? { finished: { completed, undeliverable } } : {},
    );
    activity.stored = { ...activity.stored, traffic, at: START };
    activity.add([pod('ingest'), pod('processor'), pod('controller', WELL)], START);
    return nowView(activity, START).problems;
  };
  expect(await ended(4, 4)).toEqual([]);
  expect(await ended(95, 10)).toEqual([]);
  expect(await ended(30, 10)).toMatchObject([
    { weight: 'warn', what: '10 of 40 e-mails of the last hour were refused for good' },
  ]);
});

test('what follows from an outage stands under its cause, with since when', () => {
  const activity = new Activity(START);
  activity.stored = { ...activity.stored, at: START };
  const refused = { of: 'Relay', words: 'Relay at mail:25: the connection is refused' };
  const processor = {
    ...pod('processor', [['worker_paused', 1, { waits_for: 'relay' }]]),
    faults: [refused],
  };
  const controller = pod('controller', [
    ...WELL,
    ['probe_mail_success', 0],
    ['oldest_waiting_seconds', 7_200, { state: 'account_created' }],
    ['records', 60, { state: 'account_created' }],
    ['secret_problems', 1],
  ]);
  for (const seconds of [0, 10]) activity.add([pod('ingest'), processor, controller], at(seconds));
  const { causes } = nowView(activity, at(10));
  expect(causes).toMatchObject([
    {
      weight: 'bad',
      what: refused.words,
      since: START,
      paused: { what: 'e-mails wait for the relay' },
      effects: [
        { what: 'the relay did not take its last e-mail' },
        { what: 'many wait for the e-mail, one for 2 h' },
      ],
    },
    { weight: 'warn', who: 'partner Secrets', effects: [] },
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

test('a relay that takes none of few e-mails is told of, whichever processors have tried', () => {
  const toldOf = (waiting: number, ...notTaken: readonly number[]): string[] => {
    const activity = new Activity(START);
    activity.stored = { ...activity.stored, at: START };
    const waits: Values = [['records', waiting, { state: 'account_created' }]];
    const processors = notTaken.map((count) => pod('processor', [['mails_not_taken', count]]));
    const pods = [pod('ingest'), ...processors, pod('controller', [...WELL, ...waits])];
    activity.add(pods, START);
    return nowView(activity, at(10)).problems.map(({ what }) => what);
  };
  expect(toldOf(9, 1, 1, 2)).toEqual(['the relay took none of 4 e-mails']);
  expect(toldOf(3, 2, 2)).toEqual(['the relay took none of 3 e-mails']);
  // One applicant's, tried by each; and a processor that warns by itself.
  expect([toldOf(1, 1, 1, 1), toldOf(9, 1, 1), toldOf(9, 3, 1)]).toEqual([[], [], []]);
});

test('data is as old as what was read longest ago', () => {
  const { fresh } = viewOf(WELL, { now: at(29) });
  expect(fresh).toMatchObject({ since: START, leftMs: { pods: 1_000, stored: 1_000 } });
  expect(viewOf(WELL, { now: at(31) }).fresh.leftMs.stored).toBe(-1_000);
});

/** What the tiles say: the figure, its unit, and what stands beside it. */
async function tilesOf(activity: Activity): Promise<Readonly<Record<string, string>>> {
  const now = activity.rounds.at(-1)!.at;
  const server = await startConsole({
    host: '127.0.0.1',
    port: 0,
    secret: 'a secret of 32 characters or more',
    command: 'partner-ingest',
    place: 'here',
    tools: { activity, reads: {} } as unknown as ConsoleTools,
    ended: new Set(),
    clock: { now: () => now, monotonicMs: () => 0 },
    log: createLogger('console', 'silent'),
    databaseFault: () => undefined,
  });
  try {
    const text = await (await fetch(server.url)).text();
    const tiles = [...text.matchAll(/<div class="card stat[^>]*><dt>(.*?)<\/dt>([^]*?)<\/div>/g)];
    const words = (html = ''): string =>
      html
        .replaceAll(/<dd class="before unknown">[^]*?<\/dd>|<[^>]*>/g, ' ')
        .replaceAll(/\s+/g, ' ');
    return Object.fromEntries(
      tiles.map(([, name = '', html = '']) => [
        html.includes('class="known bad"') ? `${name}, red` : name,
        words(html).trim(),
      ]),
    );
  } finally {
    await server.close();
  }
}

/** What is read if everybody's counts in each minute or hour are those. */
function trafficOf(countsAt: (at: Date, unit: Unit) => Counts, counted = at(-600)) {
  const series = (_owner: string, { unit, since, until }: SeriesAsked): Promise<Part[]> => {
    const parts: Part[] = [];
    for (let ms = startOf(since.getTime(), units[unit]); ms < until.getTime(); ms += units[unit])
      parts.push({ at: new Date(ms), counts: countsAt(new Date(ms), unit) });
    return Promise.resolve(parts);
  };
  const seriesOf = () => Promise.resolve(new Map<string, Part[]>());
  const partners = () => Promise.resolve(new Map<string, PartnerSums>());
  const countedSince = () => Promise.resolve(counted);
  return nowTraffic({ series, seriesOf, partners, countedSince }, at(30));
}

const tilesWith = async (...counted: Parameters<typeof trafficOf>) => {
  const activity = new Activity(START);
  activity.stored = { ...activity.stored, traffic: await trafficOf(...counted), at: at(30) };
  activity.add([pod('controller', [['records', 3, { state: 'recorded' }]])], at(30));
  return tilesOf(activity);
};

test('tiles tell the same span, and the hour before beside it', async () => {
  const hourAgo = at(-3_600);
  expect(
    await tilesWith((minute) => {
      if (minute > hourAgo)
        return { answers: { '202': 60 }, accept: { '5': 99, '10': 1, more: 1 } };
      return { answers: { '202': 120, '500': 1 }, accept: { more: 1 } };
    }),
  ).toEqual({
    'Accepted (202)': '60 a minute, last 5 min the hour before: 120 a minute',
    'Our faults (5xx)': '0 a minute, last 5 min the hour before: 1 a minute',
    'Time to accept, p99': '&lt; 10 ms last 5 min the hour before: &gt; 5 s',
    Finished: '0 a minute, last 5 min the hour before: 0 a minute',
  });
});

test('what is unusual at this time of the day is red, and faults that ended are told', async () => {
  const countsWith = (lately: Counts, faultAgo: number) => (minute: Date) => {
    const ago = (START.getTime() - minute.getTime()) / 60_000;
    // The current minute has just begun; each earlier day has one minute that is not usual.
    if (ago < 24 * 60) return ago < 1 ? {} : ago === faultAgo ? { answers: { '500': 3 } } : lately;
    const many = Math.floor(ago / 60 / 24) + (minute.getUTCMinutes() === 59 ? 1_000 : 50);
    return { answers: { '202': many }, finished: { completed: many }, accept: { '10': many } };
  };
  const well = { answers: { '202': 55 }, finished: { completed: 9 }, accept: { '10': 9 } };
  const now = await tilesWith(countsWith(well, 20), at(-8 * 86_400));
  expect(now).toEqual({
    'Accepted (202)': '55 a minute, last 5 min usual: 51 to 57 a minute',
    'Our faults (5xx)': '0 a minute, last 5 min 3 in the last hour, the last at 11:40',
    'Time to accept, p99': '&lt; 10 ms last 5 min usual: &lt; 10 ms',
    'Finished, red': '9 a minute, last 5 min usual: 51 to 57 a minute',
  });
  const ill = { answers: { '202': 1, '500': 2 }, accept: { more: 1 } };
  expect(Object.keys(await tilesWith(countsWith(ill, 20), at(-8 * 86_400)))).toEqual(
    Object.keys(now).map((name) => name.replace(/(, red)?$/, ', red')),
  );
});

test('before anything was read or counted a tile has no figure', async () => {
  const activity = new Activity(START);
  activity.add([], START);
  expect((await tilesOf(activity))['Accepted (202)']).toBe('– a minute, last 5 min');
  expect((await tilesWith(() => ({})))['Time to accept, p99']).toBe(
    '– last 5 min the hour before: –',
  );
});

test('partners stand worst first: those of whom most fails, then the busiest', () => {
  const of = (name: string, failed: number, requests: number) => ({ name, failed, requests });
  const all = [of('large', 100, 10_000), of('small', 5, 5), of('busy', 0, 900), of('quiet', 0, 0)];
  expect(all.toReversed().toSorted(worstFirst)).toEqual([all[1], all[0], all[2], all[3]]);
});
