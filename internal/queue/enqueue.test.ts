import { expect, test } from '@jest/globals';
import { HintOutbox } from './enqueue.ts';
import type { Hint } from './job.ts';

/** An outbox whose Redis can fail; `sent` and `otherwise` hold the ids of hints in order. */
function newOutbox() {
  const redis = { away: false };
  const [sent, otherwise]: [string[], string[]] = [[], []];
  const idsOf = (hints: readonly Hint[]): string[] => hints.map(({ requestId }) => requestId);
  const outbox = new HintOutbox({
    sender: {
      send: async (hints) => {
        if (redis.away) throw new Error('away');
        sent.push(...idsOf(hints));
      },
    },
    otherwise: async (hints) => void otherwise.push(...idsOf(hints)),
    results: { inc: () => {} },
  });
  const add = async (...ids: readonly string[]): Promise<void> => {
    for (const requestId of ids) outbox.add({ requestId, version: 0 });
    await outbox.whenEmpty();
  };
  return { redis, sent, otherwise, add };
}

test('hints that Redis does not take are marked in the database, and none is sent twice', async () => {
  const { redis, sent, otherwise, add } = newOutbox();
  await add('a', 'b');
  redis.away = true;
  await add('c');
  redis.away = false;
  await add('d');
  expect({ sent, otherwise }).toEqual({ sent: ['a', 'b', 'd'], otherwise: ['c'] });
});
