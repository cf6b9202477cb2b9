/** Random histories of the whole service, new ones in each run; and proof that the simulation sees what is broken. */
import { describe, expect, test } from '@jest/globals';
import { AccountStore } from '../../internal/account/account-store.ts';
import { SubmissionStore, type Position } from '../../internal/submission/submission-store.ts';
import type { SubmissionRecord } from '../../internal/submission/submission.ts';
import type { Document } from './memory-collection.ts';
import { play } from './history.ts';
import { simulate } from './simulate.ts';
import { ourParts, type Parts } from './world.ts';

const HISTORIES = 3_000;
/** A broken part must be found within this many. */
const FOUND_WITHIN = 1_500;
const MINUTES = 60_000;

test(
  `${HISTORIES} random histories of crashes, repeats, reorderings, lost hints, outages, frozen workers and retries`,
  async () => {
    const { failure, ...told } = await simulate({ seed: Date.now() % 2 ** 31, histories: HISTORIES });
    expect(failure).toBeUndefined();
    expect(told.histories).toBe(HISTORIES);
    // The histories went where it hurts.
    expect(told.states).toMatchObject({
      completed: expect.any(Number),
      rejected: expect.any(Number),
      withdrawn: expect.any(Number),
    });
    expect(told.windows.unnoted).toBeGreaterThan(0);
    expect(told.windows.ambiguous).toBeGreaterThan(0);
  },
  5 * MINUTES,
);

test('the same plan tells the same story', async () => {
  const plan = {
    seed: 7,
    submissions: [0, 100, 200].map((atMs) => ({ atMs, email: 0, ein: 0, valid: true })),
    tempers: ['busy', 'takes', 'takes'] as const,
    faults: [{ kind: 'mongo_shaky', atMs: 50, forMs: 60_000, target: 0 }] as const,
    orders: [{ atMs: 200_000, submission: 0, event: 'resend' }] as const,
    skewsMs: [5, -5, 700, 0],
  };
  const first = await play(plan);
  expect(first.events).toBeGreaterThan(100);
  expect(await play(plan)).toEqual(first);
});

type StoreOptions = ConstructorParameters<typeof SubmissionStore>[0];

/** A store whose conditions on its updates are changed by `loosen` on their way to the database. */
function storeWithFilters(loosen: (filter: Document) => Document): typeof SubmissionStore {
  return class extends SubmissionStore {
    constructor(options: StoreOptions) {
      const { collection } = options;
      const loose = {
        ...collection,
        db: collection.db,
        findOneAndUpdate: (filter: Document, ...rest: [Document, Document]) =>
          collection.findOneAndUpdate(loosen(filter), ...rest),
        updateOne: (filter: Document, update: Document) => collection.updateOne(loosen(filter), update),
      };
      super({ ...options, collection: loose as unknown as StoreOptions['collection'] });
    }
  };
}

const without =
  (...keys: readonly string[]) =>
  (filter: Document): Document =>
    Object.fromEntries(Object.entries(filter).filter(([key]) => !keys.includes(key)));

class NeverLost extends SubmissionStore {
  override async renew(position: Position): Promise<boolean> {
    await super.renew(position);
    return true;
  }
}

class Forgetful extends AccountStore {
  override endHandOver(): ReturnType<AccountStore['endHandOver']> {
    return Promise.resolve(undefined);
  }
}

/** Reopens as our store does, but in the version the record has. */
class SameVersion extends SubmissionStore {
  constructor(options: StoreOptions) {
    const { collection } = options;
    const stay = {
      ...collection,
      db: collection.db,
      updateOne: (filter: Document, update: { $set?: Document }) => {
        const { version: _, ...set } = update.$set ?? {};
        return collection.updateOne(filter, { ...update, $set: set } as never);
      },
    };
    super({ ...options, collection: stay as unknown as StoreOptions['collection'] });
  }
}

/** Opens records again, and forgets what a final state left behind. */
class KeepsExpiry extends SubmissionStore {
  constructor(options: StoreOptions) {
    const { collection } = options;
    const keeping = {
      ...collection,
      db: collection.db,
      updateOne: (filter: Document, update: { $unset?: Document }) => {
        const { expiresAt: _, ...unset } = update.$unset ?? {};
        return collection.updateOne(filter, { ...update, $unset: unset } as never);
      },
    };
    super({ ...options, collection: keeping as unknown as StoreOptions['collection'] });
  }
}

/** Moves without asking whether the record is where the worker believes it to be. */
class Careless extends SubmissionStore {
  override async claim(requestId: string, version: number): Promise<SubmissionRecord | undefined> {
    return (await super.claim(requestId, version)) ?? this.read(requestId);
  }
}

describe('the simulation sees', () => {
  test.each<[string, Partial<Parts>, RegExp]>([
    ['a claim without a version', { Store: storeWithFilters(without('version')) }, /./],
    ['moves from any state', { Store: storeWithFilters(without('state', 'version')) }, /moved|written|mailed|history/],
    ['a claim that is given to everybody', { Store: Careless }, /./],
    ['a claim that is never lost', { Store: NeverLost }, /mailed twice/],
    ['accounts without a unique e-mail', { uniqueAccountKeys: ['ein', 'requestId'] }, /share the emailNormalized/],
    ['accounts without a unique EIN', { uniqueAccountKeys: ['emailNormalized', 'requestId'] }, /share the ein/],
    ['mails that nobody notes', { Accounts: Forgetful }, /mailed twice/],
    ['no reconcile', { reconciles: false }, /is still recorded|is still account_created/],
    ['no withdrawal', { withdraws: false }, /answered 500 and processed/],
    ['202 for a write in doubt', { answersDoubtWith: 202 }, /answered 202 and (is lost|then withdrawn)/],
    ['a retry under the old version', { Store: SameVersion }, /reopened under its old version/],
    ['a retry that keeps the expiry', { Store: KeepsExpiry }, /with expiresAt/],
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
