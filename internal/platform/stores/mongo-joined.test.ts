/** Each of several writes that leave in one command gets its own outcome. */
import { expect, test } from '@jest/globals';
import { type Collection, MongoWriteConcernError } from 'mongodb';
import { NotDurableError, updateEach, type UpdateItem } from './mongo.ts';
import { joinInserts, joinUpdates, type OneUpdate } from './mongo-joined.ts';

interface Item {
  readonly _id: string;
  readonly version: number;
}

interface Command {
  readonly updates?: readonly UpdateItem[];
  readonly documents?: readonly Item[];
}

/**
 * A server that raises versions, and refuses each named id with a code, as often as given. What
 * stands before it in a statement is made.
 */
function serverOf(
  ids: readonly string[],
  refuses: Readonly<Record<string, { readonly code: number; times: number }>> = {},
) {
  const items = new Map(ids.map((_id) => [_id, { _id, version: 0 }]));
  const commands: Command[] = [];
  let isDurable = true;
  const idsOf = ({ q }: UpdateItem): readonly string[] =>
    typeof q['_id'] === 'string' ? [q['_id']] : (q['_id'] as { $in: string[] }).$in;
  const refusalOf = (id: string): number | undefined => {
    const refusal = refuses[id];
    if (refusal === undefined || refusal.times === 0) return undefined;
    refusal.times -= 1;
    return refusal.code;
  };
  const command = (sent: Command): Promise<object> => {
    commands.push(sent);
    let n = 0;
    const writeErrors: object[] = [];
    for (const [index, one] of (sent.updates ?? sent.documents ?? []).entries()) {
      const named = 'q' in one ? idsOf(one) : [one._id];
      for (const _id of named) {
        const code = refusalOf(_id);
        if (code !== undefined) {
          writeErrors.push({ index, code, errmsg: 'refused' });
          break;
        }
        const before = items.get(_id);
        const { version = before?.version } = 'q' in one ? one.q : {};
        if ('q' in one && (before === undefined || before.version !== version)) continue;
        items.set(_id, { _id, version: before === undefined ? 0 : before.version + 1 });
        n += 1;
      }
    }
    const reply = { ok: 1, n, writeErrors };
    const writeConcernError = { code: 64, errmsg: 'waiting for replication timed out' };
    return isDurable
      ? Promise.resolve(reply)
      : Promise.reject(new MongoWriteConcernError({ ...reply, writeConcernError }));
  };
  const find = ({ _id }: { readonly _id: { readonly $in: readonly string[] } }) => ({
    toArray: () => Promise.resolve(_id.$in.flatMap((id) => items.get(id) ?? [])),
  });
  const collection = { collectionName: 'items', db: { command }, find };
  return {
    collection: collection as unknown as Collection<Item>,
    commands,
    items,
    stall: () => void (isDurable = false),
  };
}

const raise = (version: number): OneUpdate<Item> => ({
  q: { version },
  u: { $inc: { version: 1 } },
  shows: (after) => after.version === version + 1,
});

/** What each update of one moment, as `a0`, comes to; those with the same version are alike. */
function outcomes(collection: Collection<Item>, ...wanted: readonly string[]): Promise<string[]> {
  const update = joinUpdates(collection, { version: 1 });
  const all = wanted.map(([id = '', alike = '']) =>
    update({ id, alike, build: () => raise(Number(alike)) }).then(
      (made) => (made === undefined ? 'no match' : 'made'),
      (error: Error) => error.message,
    ),
  );
  return Promise.all(all);
}

const LOCK_CONFLICT = 112;
const INVALID = 121;

test('updates of one moment leave in one command, and those alike in one statement', async () => {
  const { collection, commands } = serverOf(['a', 'b', 'c']);
  expect(await outcomes(collection, 'c0', 'a0', 'b1')).toEqual(['made', 'made', 'no match']);
  expect(commands).toHaveLength(1);
  expect(commands[0]?.updates?.map(({ q }) => q['_id'])).toEqual([{ $in: ['a', 'c'] }, 'b']);
});

test('a document that is named twice is updated once', async () => {
  const { collection, items } = serverOf(['a', 'b']);
  expect(await outcomes(collection, 'a0', 'a0', 'b0')).toEqual(Array(3).fill('made'));
  expect(items.get('a')?.version).toBe(1);
});

test('a document that is refused fails alone, also within a statement', async () => {
  const { collection, items } = serverOf(['a', 'b', 'c'], { b: { code: INVALID, times: 9 } });
  const ended = await outcomes(collection, 'a0', 'b0', 'c0', 'd0');
  expect(ended).toEqual(['made', 'refused', 'made', 'no match']);
  expect([...items.values()].map(({ version }) => version)).toEqual([1, 0, 1]);
});

test('one that loses its lock is sent again, and the others are made once', async () => {
  const { collection, items } = serverOf(['a', 'b'], { b: { code: LOCK_CONFLICT, times: 2 } });
  expect(await outcomes(collection, 'a0', 'b0')).toEqual(['made', 'made']);
  expect([...items.values()].map(({ version }) => version)).toEqual([1, 1]);
});

test('one that is counted twice does not stand for another that is gone', async () => {
  const { collection } = serverOf(['a', 'b'], { b: { code: LOCK_CONFLICT, times: 1 } });
  const update = joinUpdates(collection, { version: 1 });
  const build = (): OneUpdate<Item> => ({ q: {}, u: {}, shows: ({ version }) => version > 0 });
  const made = await Promise.all(
    [{ id: 'a', alike: 'yes' }, { id: 'b', alike: 'yes' }, { id: 'gone' }].map((one) =>
      update({ ...one, build }),
    ),
  );
  expect(made.map((one) => one !== undefined)).toEqual([true, true, false]);
});

test('without a majority nothing is made, although all may stand', async () => {
  const { collection, stall } = serverOf(['a', 'b']);
  stall();
  const update = joinUpdates(collection, {});
  const both = ['a', 'b'].map((id) => update({ id, build: () => raise(0) }));
  for (const { status, reason } of (await Promise.allSettled(both)) as PromiseRejectedResult[])
    expect({ status, reason }).toEqual({ status: 'rejected', reason: expect.any(NotDurableError) });
});

test('an update that cannot be built fails alone', async () => {
  const { collection } = serverOf(['a', 'b']);
  const update = joinUpdates(collection, {});
  const none = update({
    id: 'a',
    build: () => {
      throw new Error('no such move');
    },
  });
  const other = update({ id: 'b', build: () => raise(0) });
  await expect(none).rejects.toThrow('no such move');
  expect(await other).toBeDefined();
});

test('of joined inserts, a duplicate is told apart from one that is refused', async () => {
  const { collection, commands } = serverOf([], {
    b: { code: 11_000, times: 1 },
    c: { code: INVALID, times: 1 },
  });
  const insert = joinInserts(collection, ({ _id }) => _id);
  const all = ['c', 'b', 'a'].map((_id) => insert({ _id, version: 0 }));
  const [c, b, a] = await Promise.allSettled(all);
  expect([c?.status, b, a]).toEqual([
    'rejected',
    { status: 'fulfilled', value: false },
    { status: 'fulfilled', value: true },
  ]);
  expect(commands).toHaveLength(1);
});

test('the errors of a statement name their documents', async () => {
  const { collection } = serverOf(['a', 'b'], { a: { code: INVALID, times: 9 } });
  const statement = { ids: ['b', 'a'], ...raise(0) };
  const { n, failed } = await updateEach(collection, [statement]);
  expect([n, failed.map(({ of, id }) => [of, id])]).toEqual([1, [[statement, 'a']]]);
});
