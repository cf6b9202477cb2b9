/**
 * Random histories of the whole service, new ones in each run; and proof that the simulation sees
 * what is broken.
 */
import { describe, expect, test } from '@jest/globals';
import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { LedgerStore } from '../../internal/mail/ledger-store.ts';
import { MAX_AMBIGUOUS } from '../../internal/processor/limits.ts';
import { CLAIM_MS } from '../../internal/submission/limits.ts';
import { FIRST_DUE_MS, type SubmissionRecord } from '../../internal/submission/submission.ts';
import { SupportQueries } from '../../internal/submission/support-queries.ts';
import { WorkerMoves, type Position } from '../../internal/submission/worker-moves.ts';
import type { Tamper } from './driver.ts';
import type { Document } from './memory-collection.ts';
import { play } from './history.ts';
import type { Fault, Plan } from './plan.ts';
import { simulate, type Simulated } from './simulate.ts';
import { ourParts, type Parts } from './world.ts';

const HISTORIES = 1_000;
/** Of these, some come as badly as can be. */
const FROZEN_HISTORIES = 300;
/** In these an applicant is erased. */
const ERASED_HISTORIES = 150;
/** And these are asked again. */
const ASKED_HISTORIES = 60;
/** A broken part must be found within this many. */
const FOUND_WITHIN = 4_000;
const MINUTES = 60_000;

/**
 * As `make simulate` does it, in a process of its own: the simulation owns all timers, and Jest
 * needs its own. A failure is told at once: `make simulate` with its SEED and AT looks for a
 * smaller one, which takes minutes.
 */
async function simulateApart(histories: number): Promise<Simulated> {
  const script = fileURLToPath(new URL('simulate.ts', import.meta.url));
  const { stdout } = await promisify(execFile)(
    process.execPath,
    [script, `--histories=${histories}`, '--hasty=1'],
    {
      timeout: 4 * MINUTES,
    },
  ).catch((error: { stdout: string; stderr: string }) => {
    throw new Error(`${error.stderr}\n${error.stdout}`);
  });
  return JSON.parse(stdout) as Simulated;
}

test(
  `${HISTORIES} random histories of crashes, repeats, reorderings, lost hints, outages, frozen workers and retries`,
  async () => {
    const told = await simulateApart(HISTORIES);
    expect(told.histories).toBe(HISTORIES);
    // The histories went where it hurts.
    expect(Object.keys(told.states)).toEqual(
      expect.arrayContaining(['completed', 'rejected', 'withdrawn']),
    );
    expect(told.windows.killed + told.windows.frozen).toBeGreaterThan(0);
    expect(told.windows.ambiguous).toBeGreaterThan(0);
  },
  5 * MINUTES,
);

test('the same plan tells the same story', async () => {
  const plan = {
    seed: 7,
    submissions: [0, 100, 200].map((atMs) => ({ atMs, email: 0, ein: 0, valid: true, key: null })),
    tempers: ['busy', 'takes', 'takes'] as const,
    faults: [{ kind: 'mongo_shaky', atMs: 50, near: null, forMs: 60_000, target: 0 }] as const,
    orders: [{ atMs: 200_000, submission: 0, event: 'resend' }] as const,
    skewsMs: [5, -5, 700, 0],
  };
  const first = await play(plan);
  expect(first.events).toBeGreaterThan(100);
  expect(await play(plan)).toEqual(first);
});

test('an address that is corrected while its e-mail is handed over is mailed again', async () => {
  const orders = [236_885, 178_738].map(
    (atMs) => ({ atMs, submission: 0, event: 'correct_address' }) as const,
  );
  const plan: Plan = {
    seed: 563_109_866,
    submissions: [
      { atMs: 6_910, email: 0, ein: 0, valid: false, key: 0 },
      { atMs: 6_909, email: 0, ein: 0, valid: true, key: 0 },
    ],
    tempers: ['takes', 'no_such_mailbox', 'takes'],
    faults: [
      { kind: 'kill_ingest', atMs: 45_304, near: 3, forMs: 16_894, target: 0 },
      { kind: 'freeze_processor', atMs: 46_664, near: null, forMs: 35_751, target: 1 },
      { kind: 'relay_away', atMs: 1_616, near: 3, forMs: 1_617, target: 1 },
    ],
    orders: [...orders, { atMs: 154_184, submission: 3, event: 'correct_address' }],
    skewsMs: [53_418, -52_247, -1_634, 54_301],
  };
  expect(await play(plan)).toMatchObject({ mails: 3, states: { completed: 1 } });
});

/** Every processor is killed again and again while the relay takes minutes to answer. */
const killedWhileMailing = (seed: number): Plan => ({
  seed,
  submissions: [{ atMs: 0, email: 0, ein: 0, valid: true, key: null }],
  tempers: ['slow', 'takes', 'takes'],
  faults: Array.from({ length: 40 }, (_, index) => ({
    kind: 'kill_processor',
    atMs: (1 + Math.floor(index / 2)) * 70_000,
    near: null,
    forMs: 1_000,
    target: index % 2,
  })),
  orders: [],
  skewsMs: [0, (seed * 37) % 1_000, 0, 0],
});

test(
  'processors that are killed at every hand-over mail an applicant three times at most',
  async () => {
    for (let seed = 0; seed < 20; seed += 1) {
      const { mails } = await play(killedWhileMailing(seed));
      // The last part of a history retries what was given up, once.
      expect(mails).toBeLessThanOrEqual(MAX_AMBIGUOUS + 1);
    }
  },
  5 * MINUTES,
);

/**
 * A worker frozen for as long as its claim holds, give or take: what happens then is a matter of
 * milliseconds.
 */
const frozenForAClaim = (seed: number): Plan => ({
  seed,
  submissions: [{ atMs: 0, email: 0, ein: 0, valid: true, key: null }],
  tempers: ['takes', 'takes', 'takes'],
  faults: [0, 1].map((target) => ({
    kind: 'freeze_processor',
    atMs: 10 + (seed % 60),
    near: 0,
    forMs: CLAIM_MS - 500 + target * 300 + (seed % 900),
    target,
  })),
  orders: [],
  skewsMs: [0, (seed * 37) % 1_000, 0, 0],
});

/**
 * Keyed requests that are sent again while MongoDB loses, delays and repeats: one may meet its own
 * pending withdrawal.
 */
const askedAgain = (seed: number): Plan => ({
  seed,
  submissions: [0, 1, 2].map((key) => ({ atMs: key, email: key, ein: key, valid: true, key })),
  tempers: ['takes', 'takes', 'takes'],
  faults: [{ kind: 'mongo_shaky', atMs: 0, near: null, forMs: 60_000, target: 0 }],
  orders: [],
  skewsMs: [],
});

/** Plays these histories, one for each seed, and rejects with the first `Violation`. */
async function playAll(
  planOf: (seed: number) => Plan,
  histories: number,
  parts: Partial<Parts> = {},
): Promise<void> {
  for (let seed = 0; seed < histories; seed += 1) await play(planOf(seed), parts);
}

test(
  'a partner asks again until it hears, and no withdrawal takes what another answer promised',
  () => playAll(askedAgain, ASKED_HISTORIES),
  2 * MINUTES,
);

test(
  'a worker frozen for as long as its claim holds wakes up and mails nothing twice',
  () => playAll(frozenForAClaim, FROZEN_HISTORIES),
  5 * MINUTES,
);

/**
 * An applicant is erased while workers have two requests of theirs in hand, and the partner sends
 * one of them again. In two of three histories answers get lost or the workers freeze.
 */
const erasedOnTheWay = (seed: number): Plan => {
  const [first, second, others] = [0, 0, 1].map((email, index) => ({
    email,
    ein: index,
    valid: true,
    key: index,
  }));
  const sent = [first!, second!, others!, first!];
  const faults: readonly (readonly Fault[])[] = [
    [],
    [{ kind: 'mongo_shaky', atMs: 100, near: null, forMs: 10_000, target: 0 }],
    [0, 1].map((target) => ({
      kind: 'freeze_processor',
      atMs: seed % 200,
      near: null,
      forMs: 50_000,
      target,
    })),
  ];
  return {
    seed,
    submissions: [...sent.map((one, atMs) => ({ ...one, atMs })), { ...first!, atMs: 20_000 }],
    tempers: ['takes', 'takes', 'takes'],
    faults: faults[seed % faults.length]!,
    // While the workers are frozen, where they are.
    orders: [
      { atMs: seed % 3 === 2 ? 10_000 : (seed * 7) % 400, submission: seed % 4, event: 'erase' },
    ],
    skewsMs: [],
  };
};

test(
  'an applicant who is erased at any moment is mailed by no later hand-over, and nothing of them is left',
  () => playAll(erasedOnTheWay, ERASED_HISTORIES),
  5 * MINUTES,
);

/**
 * Answers are lost for some seconds, and are back long before reconcile looks at what was answered
 * 500; in every second history ingest is frozen until it has been processed.
 */
const inDoubt = (seed: number): Plan => ({
  seed,
  submissions: [0, 1, 2].map((person) => ({
    atMs: person,
    email: person,
    ein: person,
    valid: true,
    key: null,
  })),
  tempers: ['takes', 'takes', 'takes'],
  faults: [
    { kind: 'mongo_shaky', atMs: 0, near: null, forMs: 5_000, target: 0 },
    ...(seed % 2 === 0
      ? []
      : [
          {
            kind: 'freeze_ingest' as const,
            atMs: seed % 50,
            near: null,
            forMs: 3 * FIRST_DUE_MS,
            target: 0,
          },
        ]),
  ],
  orders: [],
  skewsMs: [],
});

test(
  'what was answered 500 is not processed, and never after reconcile may have come',
  () => playAll(inDoubt, ASKED_HISTORIES),
  5 * MINUTES,
);

/**
 * Both processors are replaced, one after the other, while the relay has taken mails and answers
 * none for ten minutes.
 */
const restartsInAHang = (seed: number): Plan => ({
  seed,
  submissions: [0, 1, 2].map((person) => ({
    atMs: 0,
    email: person,
    ein: person,
    valid: true,
    key: null,
  })),
  tempers: ['takes', 'takes', 'takes'],
  faults: [
    { kind: 'relay_hangs', atMs: 0, near: null, forMs: 599_000, target: 0 },
    { kind: 'restart_processor', atMs: 60_000 + seed * 1_000, near: null, forMs: 0, target: 0 },
    { kind: 'restart_processor', atMs: 120_000 + seed * 7_000, near: null, forMs: 0, target: 1 },
  ],
  orders: [{ atMs: 90_000, submission: 0, event: 'retry' }],
  skewsMs: [0, seed * 100, -seed * 100, 0],
});

test('a relay that hangs for ten minutes and a rolling restart meanwhile: no second mail', async () => {
  for (let seed = 0; seed < 30; seed += 1) {
    const { mails, states, windows } = await play(restartsInAHang(seed));
    expect({ mails, states }).toEqual({ mails: 3, states: { completed: 3 } });
    expect(windows).toMatchObject({ killed: 0, ambiguous: 0 });
  }
});

/**
 * A worker is killed when its mail is out, answers of MongoDB are lost, and its server dies once
 * the record is completed.
 */
const failsOverAfterMail = (seed: number): Plan => ({
  seed,
  submissions: [{ atMs: 0, email: 0, ein: 0, valid: true, key: null }],
  tempers: ['takes', 'takes', 'takes'],
  faults: [
    { kind: 'mongo_shaky', atMs: 0, near: null, forMs: 30_000, target: 0 },
    ...[0, 1].map(
      (target) =>
        ({
          kind: 'kill_processor',
          atMs: 80 + (seed % 60),
          near: null,
          forMs: 100,
          target,
        }) as const,
    ),
    { kind: 'mongo_away', atMs: 120_000, near: null, forMs: 1_000, target: 0 },
  ],
  orders: [],
  skewsMs: [],
});

test(
  'a mail that a failover would take back from the account is not taken for out',
  () => playAll(failsOverAfterMail, HISTORIES),
  5 * MINUTES,
);

const without = (document: Document, ...keys: readonly string[]): Document =>
  Object.fromEntries(Object.entries(document).filter(([key]) => !keys.includes(key)));

/** Sends updates of records without these conditions. */
const unconditional =
  (...keys: readonly string[]): Tamper =>
  ({ filter, update }) => ({ filter: without(filter, ...keys), update });

/** Leaves `key` out of an operator of each move, which is what appends to the history. */
const forgetting =
  (operator: '$set' | '$unset', key: string): Tamper =>
  ({ filter, update }) =>
    update['$push'] !== undefined
      ? {
          filter,
          update: { ...update, [operator]: without((update[operator] ?? {}) as Document, key) },
        }
      : { filter, update };

class NeverLost extends WorkerMoves {
  override async renew(position: Position): Promise<boolean> {
    await super.renew(position);
    return true;
  }
}

class GivenToEverybody extends WorkerMoves {
  readonly #submissions: SupportQueries;

  constructor(options: ConstructorParameters<typeof WorkerMoves>[0]) {
    super(options);
    this.#submissions = new SupportQueries(options.db);
  }

  override async claim(requestId: string, version: number): Promise<SubmissionRecord | undefined> {
    return (await super.claim(requestId, version)) ?? this.#submissions.byId(requestId);
  }
}

class Trusting extends LedgerStore {
  override confirmOut(): Promise<boolean> {
    return Promise.resolve(true);
  }
}

class Forgetful extends LedgerStore {
  override endHandOver(): ReturnType<LedgerStore['endHandOver']> {
    return Promise.resolve(undefined);
  }
}

describe('the simulation sees, in histories made for it,', () => {
  test.each<[string, Partial<Parts>, (seed: number) => Plan, RegExp]>([
    [
      'a withdrawal of what is adopted',
      { tamper: unconditional('adopted') },
      askedAgain,
      /answered 202 and then withdrawn/,
    ],
    [
      'a claim that is never lost',
      { Store: NeverLost },
      frozenForAClaim,
      /mailed (twice|\d times)/,
    ],
    [
      'a mail taken for out unconfirmed',
      { Ledger: Trusting },
      failsOverAfterMail,
      /does not know that the mail is out/,
    ],
    ['no withdrawal', { withdraws: false }, inDoubt, /answered 500 and processed/],
    [
      '202 for a write in doubt',
      { takesDoubtForStored: true },
      inDoubt,
      /answered 202 and (is lost|then withdrawn)/,
    ],
  ])(
    '%s',
    async (_name, parts, planOf, words) => {
      await expect(playAll(planOf, FOUND_WITHIN, parts)).rejects.toThrow(words);
    },
    5 * MINUTES,
  );
});

describe('the simulation sees', () => {
  test.each<[string, Partial<Parts>, RegExp]>([
    ['a claim without a version', { tamper: unconditional('version') }, /./],
    [
      'moves from any state',
      { tamper: unconditional('state', 'version') },
      /moved|written|mailed|history/,
    ],
    ['a claim that is given to everybody', { Store: GivenToEverybody }, /./],
    [
      'accounts without a unique e-mail',
      { uniqueAccountKeys: ['ein', 'requestId'] },
      /share the emailNormalized/,
    ],
    [
      'accounts without a unique EIN',
      { uniqueAccountKeys: ['emailNormalized', 'requestId'] },
      /share the ein/,
    ],
    ['mails that nobody notes', { Ledger: Forgetful }, /does not know that the mail is out/],
    ['no reconcile', { reconciles: false }, /is still recorded|is still account_created/],
    [
      'writes that one server alone has',
      { concern: { w: 1, j: true } },
      /is lost|without an account/,
    ],
    [
      'writes that are in memory only',
      { concern: { w: 'majority', j: false } },
      /is lost|without an account/,
    ],
    [
      'a retry under the old version',
      { tamper: forgetting('$set', 'version') },
      /reopened under its old version/,
    ],
    [
      'a retry that keeps the expiry',
      { tamper: forgetting('$unset', 'expiresAt') },
      /with expiresAt/,
    ],
  ])(
    '%s',
    async (_name, parts, words) => {
      const { failure } = await simulate({
        seed: 1,
        histories: FOUND_WITHIN,
        parts: { ...ourParts, ...parts },
        hasty: true,
      });
      expect(failure).toMatch(/^Violation: /);
      expect(failure).toMatch(words);
      expect(failure).toContain('to see it again: make simulate SEED=1 AT=');
    },
    5 * MINUTES,
  );
});
