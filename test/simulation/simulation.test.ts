/** Random histories, and histories of rare cases. test/mutants breaks what they must find. */
import { expect, test } from '@jest/globals';
import { CLAIM_MS, FIRST_DUE_MS } from '../../internal/submission/submission.ts';
import { run } from '../../tools/program.ts';
import { ROOT } from '../../tools/root.ts';
import { play, type Told } from './history.ts';
import type { Fault, FaultKind, Plan } from './plan.ts';

const HISTORIES = 600;
const MINUTES = 60_000;

/**
 * Runs `make simulate` in a process of its own, because the simulation replaces all timers. A
 * failure is not reduced here, which would take minutes.
 */
async function simulateApart(
  histories: number,
  queue = '',
): Promise<Omit<Told, 'events'> & { readonly histories: number }> {
  const options = [
    'test/simulation/simulate.ts',
    `--histories=${histories}`,
    `--queue=${queue}`,
    '--hasty',
  ];
  const { out } = await run(process.execPath, options, { cwd: ROOT });
  return JSON.parse(out) as Told & { readonly histories: number };
}

test(
  `${HISTORIES} random histories of faults and orders keep every promise`,
  async () => {
    const told = await simulateApart(HISTORIES);
    expect(told.histories).toBe(HISTORIES);
    // All states and outcomes occurred.
    expect(Object.keys(told.states)).toEqual(
      expect.arrayContaining(['completed', 'rejected', 'withdrawn']),
    );
    expect(Object.values(told.windows).some((times) => times > 0)).toBe(true);
  },
  5 * MINUTES,
);

test(
  'random histories without a queue keep every promise',
  async () => expect((await simulateApart(HISTORIES / 2, 'off')).histories).toBe(HISTORIES / 2),
  5 * MINUTES,
);

const application = (n: number, given: Partial<Plan['submissions'][number]> = {}) => ({
  atMs: n,
  email: n,
  ein: n,
  valid: true,
  key: null,
  ...given,
});
const three = [0, 1, 2].map((n) => application(n));

const fault = (kind: FaultKind, atMs: number, forMs: number, target = 0): Fault => ({
  kind,
  atMs,
  forMs,
  target,
  near: null,
});
const toBoth = (make: (target: number) => Fault): Fault[] => [0, 1].map(make);

/** A plan of one application with these changes. */
const planOf = (seed: number, given: Partial<Plan>): Plan => ({
  seed,
  submissions: [application(0)],
  tempers: ['takes', 'takes', 'takes'],
  faults: [],
  orders: [],
  skewsMs: [],
  leap: undefined,
  ...given,
});

test('the same plan gives the same history', async () => {
  const plan = planOf(7, {
    submissions: [0, 100, 200].map((atMs) => application(0, { atMs })),
    tempers: ['busy', 'takes', 'takes'],
    faults: [fault('mongo_shaky', 50, 60_000)],
    orders: [{ atMs: 200_000, submission: 0, event: 'resend' }],
    skewsMs: [5, -5, 700, 0],
  });
  const first = await play(plan);
  expect(first.events).toBeGreaterThan(100);
  expect(await play(plan)).toEqual(first);
});

interface Made {
  readonly planOf: (seed: number) => Plan;
  readonly histories: number;
  readonly told?: Partial<Told>;
}

const made: Readonly<Record<string, Made>> = {
  /** Keyed requests are repeated while MongoDB loses, delays and repeats calls. */
  'no withdrawal removes what a repeat of a keyed request was promised': {
    histories: 200,
    planOf: (seed) =>
      planOf(seed, {
        submissions: three.map((one) => ({ ...one, key: one.atMs })),
        faults: [fault('mongo_shaky', 0, 60_000)],
      }),
  },
  /** The freeze ends within milliseconds of the claim. */
  'a worker that was frozen as long as its claim mails nothing twice': {
    histories: 150,
    planOf: (seed) =>
      planOf(seed, {
        faults: toBoth((target) => ({
          ...fault(
            'freeze_processor',
            10 + (seed % 60),
            CLAIM_MS - 500 + target * 300 + (seed % 900),
            target,
          ),
          near: 0,
        })),
        skewsMs: [0, (seed * 37) % 1_000, 0, 0],
      }),
  },
  /**
   * Answers are lost for seconds. In every second history ingest freezes until the request has been
   * processed.
   */
  'a request answered 500 is not processed, except in its documented window': {
    histories: 60,
    planOf: (seed) =>
      planOf(seed, {
        submissions: three,
        faults: [
          fault('mongo_shaky', 0, 5_000),
          ...(seed % 2 === 0 ? [] : [fault('freeze_ingest', seed % 50, 3 * FIRST_DUE_MS)]),
        ],
      }),
  },
  /** A worker dies after its mail, and MongoDB loses the note of it. */
  'a note of a mail counts only once a majority has it': {
    histories: 60,
    planOf: (seed) =>
      planOf(seed, {
        faults: [
          fault('mongo_stalled', 10 + (seed % 90), 30_000),
          ...toBoth((target) => fault('kill_processor', 80 + (seed % 60), 100, target)),
          fault('mongo_away', 120_000, 1_000),
        ],
      }),
  },
  /** The relay takes minutes to answer. */
  'processors that are killed at every hand-over mail an applicant three times at most': {
    histories: 10,
    planOf: (seed) =>
      planOf(seed, {
        tempers: ['slow', 'takes', 'takes'],
        faults: Array.from({ length: 20 }, (_, index) => (1 + index) * 70_000).flatMap((atMs) =>
          toBoth((target) => fault('kill_processor', atMs, 1_000, target)),
        ),
        skewsMs: [0, (seed * 37) % 1_000, 0, 0],
      }),
  },
  /**
   * Workers have two requests of the applicant, and the partner repeats one. In two of three
   * histories answers get lost or workers freeze.
   */
  'an applicant who is erased at any moment is mailed by no later hand-over, and nothing of them is left':
    {
      histories: 60,
      planOf: (seed) => {
        const [first, second, other] = [0, 0, 1].map((email, index) =>
          application(index, { email, key: index }),
        );
        const sent = [first!, second!, other!, first!, first!];
        const faults = [
          [],
          [fault('mongo_shaky', 100, 10_000)],
          toBoth((target) => fault('freeze_processor', seed % 200, 50_000, target)),
        ];
        const atMs = seed % 3 === 2 ? 10_000 : (seed * 7) % 400;
        return planOf(seed, {
          submissions: sent.map((one, index) => ({ ...one, atMs: index === 4 ? 20_000 : index })),
          faults: faults[seed % 3]!,
          orders: [{ atMs, submission: seed % 4, event: 'erase' }],
        });
      },
    },
  /** Both processors are replaced while the relay is silent. */
  'a rolling restart while the relay hangs causes no second mail': {
    histories: 10,
    planOf: (seed) =>
      planOf(seed, {
        submissions: three,
        faults: [
          fault('relay_hangs', 0, 599_000),
          fault('restart_processor', 60_000 + seed * 1_000, 0, 0),
          fault('restart_processor', 120_000 + seed * 7_000, 0, 1),
        ],
        orders: [{ atMs: 90_000, submission: 0, event: 'retry' }],
        skewsMs: [0, seed * 100, -seed * 100, 0],
      }),
    told: { mails: 3, states: { completed: 3 } },
  },
  /** Answers are lost while the operator reports the bounce and retries. */
  'a bounce and a retry mail once more, wherever they were cut off': {
    histories: 100,
    planOf: (seed) =>
      planOf(seed, {
        submissions: [application(0)],
        faults: [fault('mongo_shaky', 9_000, 20_000)],
        orders: [
          { atMs: 10_000, submission: 0, event: 'bounce' },
          { atMs: 10_000 + ((seed * 331) % 15_000), submission: 0, event: 'retry' },
        ],
      }),
  },
  /** The relay is slow, and a clock leaps. */
  'local clocks that leap by a minute, an hour and a month mail nothing twice': {
    histories: 60,
    planOf: (seed) =>
      planOf(seed, {
        submissions: three,
        tempers: ['slow', 'slow', 'slow'],
        faults: Array.from({ length: 12 }, (_, index) => ({
          ...fault('clock_leaps', 1_000 + index * 5_000 + (seed % 5_000), seed + index, index),
        })),
      }),
    told: { mails: 3, states: { completed: 3 } },
  },
  /** The second order may have read the request before the first changed it. */
  'two orders at the same moment lose no e-mail': {
    histories: 300,
    planOf: (seed) => {
      const closes = seed % 2 === 0;
      const order = closes ? 'reopen' : 'retry';
      return planOf(seed, {
        faults: closes ? [fault('relay_away', 0, 5_000)] : [],
        orders: [
          { atMs: closes ? 50 : 5_000, submission: 0, event: closes ? 'close' : 'bounce' },
          { atMs: 10_000, submission: 0, event: order },
          { atMs: 10_000 + ((seed * 7) % 200), submission: 0, event: order },
        ],
      });
    },
  },
  'an address that is corrected while its e-mail is handed over is mailed again': {
    histories: 1,
    planOf: () =>
      planOf(563_109_866, {
        submissions: [
          application(0, { atMs: 6_910, valid: false, key: 0 }),
          application(0, { atMs: 6_909, key: 0 }),
        ],
        tempers: ['takes', 'no_such_mailbox', 'takes'],
        faults: [
          { ...fault('kill_ingest', 45_304, 16_894), near: 3 },
          fault('freeze_processor', 46_664, 35_751, 1),
          { ...fault('relay_away', 1_616, 1_617, 1), near: 3 },
        ],
        orders: [
          { atMs: 236_885, submission: 0, event: 'correct_address' },
          { atMs: 178_738, submission: 0, event: 'correct_address' },
          { atMs: 154_184, submission: 3, event: 'correct_address' },
        ],
        skewsMs: [53_418, -52_247, -1_634, 0],
      }),
    told: { mails: 3, states: { completed: 1 } },
  },
  /** two-orders.test.ts plays each cut of each pair. */
  'an account that is released while its corrected address waits for an e-mail is owed none': {
    histories: 1,
    planOf: () =>
      planOf(0, {
        tempers: ['takes', 'no_such_mailbox', 'no_such_mailbox'],
        faults: [{ ...fault('mongo_stalled', 69_290, 33), near: 0 }],
        orders: [
          { atMs: 321, submission: 0, event: 'release' },
          { atMs: 299, submission: 0, event: 'correct_address' },
        ],
        skewsMs: [0, 0, 0, 0],
      }),
    told: { states: { completed: 1 } },
  },
};

test.each(Object.entries(made))(
  '%s',
  async (_name, history) => {
    for (let seed = 0; seed < history.histories; seed += 1) {
      const told = await play(history.planOf(seed));
      if (history.told !== undefined) expect(told).toMatchObject(history.told);
    }
  },
  5 * MINUTES,
);
