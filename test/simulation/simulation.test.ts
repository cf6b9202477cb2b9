/** Random histories of the whole service, new ones in each run; and proof that the simulation sees what is broken. */
import { describe, expect, test } from '@jest/globals';
import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { AccountStore } from '../../internal/account/account-store.ts';
import { CLAIM_MS, SubmissionStore, type Position } from '../../internal/submission/submission-store.ts';
import type { SubmissionRecord } from '../../internal/submission/submission.ts';
import type { Tamper } from './driver.ts';
import type { Document } from './memory-collection.ts';
import { play } from './history.ts';
import type { Plan } from './plan.ts';
import { simulate, type Simulated } from './simulate.ts';
import { ourParts, type Parts } from './world.ts';

const HISTORIES = 4_000;
/** Of these, some come as badly as can be. */
const FROZEN_HISTORIES = 600;
/** A broken part must be found within this many. */
const FOUND_WITHIN = 1_500;
const MINUTES = 60_000;

/** As `make simulate` does it, in a process of its own: the simulation owns all timers, and Jest needs its own. */
async function simulateApart(histories: number): Promise<Simulated> {
  const script = fileURLToPath(new URL('simulate.ts', import.meta.url));
  const { stdout } = await promisify(execFile)(process.execPath, [script, `--histories=${histories}`]).catch(
    (error: { stdout: string; stderr: string }) => {
      throw new Error(`${error.stderr}\n${error.stdout}`);
    },
  );
  return JSON.parse(stdout) as Simulated;
}

test(
  `${HISTORIES} random histories of crashes, repeats, reorderings, lost hints, outages, frozen workers and retries`,
  async () => {
    const told = await simulateApart(HISTORIES);
    expect(told.histories).toBe(HISTORIES);
    // The histories went where it hurts.
    expect(Object.keys(told.states)).toEqual(expect.arrayContaining(['completed', 'rejected', 'withdrawn']));
    expect(told.windows.killed + told.windows.frozen).toBeGreaterThan(0);
    expect(told.windows.ambiguous).toBeGreaterThan(0);
  },
  5 * MINUTES,
);

test('the same plan tells the same story', async () => {
  const plan = {
    seed: 7,
    submissions: [0, 100, 200].map((atMs) => ({ atMs, email: 0, ein: 0, valid: true })),
    tempers: ['busy', 'takes', 'takes'] as const,
    faults: [{ kind: 'mongo_shaky', atMs: 50, near: null, forMs: 60_000, target: 0 }] as const,
    orders: [{ atMs: 200_000, submission: 0, event: 'resend' }] as const,
    skewsMs: [5, -5, 700, 0],
  };
  const first = await play(plan);
  expect(first.events).toBeGreaterThan(100);
  expect(await play(plan)).toEqual(first);
});

/** A worker frozen for as long as its claim holds, give or take: what happens then is a matter of milliseconds. */
const frozenForAClaim = (seed: number): Plan => ({
  seed,
  submissions: [{ atMs: 0, email: 0, ein: 0, valid: true }],
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

async function playAll(parts: Partial<Parts>): Promise<void> {
  for (let seed = 0; seed < FROZEN_HISTORIES; seed += 1) await play(frozenForAClaim(seed), parts);
}

test('a worker frozen for as long as its claim holds wakes up and mails nothing twice', () => playAll({}), MINUTES);

test.each<[string, Partial<Parts>]>([
  ['a claim takes what another one holds', { tamper: (sent) => unconditional('$or')(sent) }],
  ['the mailer does not look at the claim in the last instant', { looksOnceMore: false }],
])(
  'unless %s',
  async (_name, parts) => {
    await expect(playAll(parts)).rejects.toThrow(/mailed twice/);
  },
  MINUTES,
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
      ? { filter, update: { ...update, [operator]: without((update[operator] ?? {}) as Document, key) } }
      : { filter, update };

class NeverLost extends SubmissionStore {
  override async renew(position: Position): Promise<boolean> {
    await super.renew(position);
    return true;
  }
}

class GivenToEverybody extends SubmissionStore {
  override async claim(requestId: string, version: number): Promise<SubmissionRecord | undefined> {
    return (await super.claim(requestId, version)) ?? this.read(requestId);
  }
}

class Forgetful extends AccountStore {
  override endHandOver(): ReturnType<AccountStore['endHandOver']> {
    return Promise.resolve(undefined);
  }
}

describe('the simulation sees', () => {
  test.each<[string, Partial<Parts>, RegExp]>([
    ['a claim without a version', { tamper: unconditional('version') }, /./],
    ['moves from any state', { tamper: unconditional('state', 'version') }, /moved|written|mailed|history/],
    ['a claim that is given to everybody', { Store: GivenToEverybody }, /./],
    ['a claim that is never lost', { Store: NeverLost }, /mailed twice/],
    ['accounts without a unique e-mail', { uniqueAccountKeys: ['ein', 'requestId'] }, /share the emailNormalized/],
    ['accounts without a unique EIN', { uniqueAccountKeys: ['emailNormalized', 'requestId'] }, /share the ein/],
    ['mails that nobody notes', { Accounts: Forgetful }, /does not know that the mail is out/],
    ['no reconcile', { reconciles: false }, /is still recorded|is still account_created/],
    ['no withdrawal', { withdraws: false }, /answered 500 and processed/],
    ['202 for a write in doubt', { answersDoubtWith: 202 }, /answered 202 and (is lost|then withdrawn)/],
    ['a retry under the old version', { tamper: forgetting('$set', 'version') }, /reopened under its old version/],
    ['a retry that keeps the expiry', { tamper: forgetting('$unset', 'expiresAt') }, /with expiresAt/],
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
    2 * MINUTES,
  );
});
