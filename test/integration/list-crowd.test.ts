/** A partner with many requests, whose clients ask for its list again and again and leave early. */
import { expect, test } from '@jest/globals';
import { LIST_PATH } from '../../internal/ingest/contract.ts';
import { newApiKey } from '../../internal/partner/api-key.ts';
import { DAY_MS } from '../../internal/platform/process/clock.ts';
import { firstIdAt } from '../../internal/platform/stores/ids.ts';
import type { SubmissionRecord } from '../../internal/submission/submission.ts';
import { send, type Answer } from '../support/http.ts';
import { worldOf } from '../support/world.ts';

const RECORDS = 100_000;
const BATCH = 10_000;
const CLIENTS = 4;
const CLIENT_LEAVES_MS = 50;
const POSTS = 100;

const key = newApiKey();
const { world, ingest } = await worldOf(['ingest'], {
  partners: [{ partner: 'big', keys: [key] }],
});

interface Page {
  readonly data?: {
    readonly submissions: readonly { readonly request_id: string }[];
    readonly next_cursor?: string;
  };
}
const list = (query = ''): Promise<Answer> =>
  send(ingest.url, { method: 'GET', key, path: `${LIST_PATH}?${query}` });

test('costs no request of another partner, and has its list at any depth', async () => {
  const now = Date.now();
  const ids: string[] = [];
  for (let begin = 0; begin < RECORDS; begin += BATCH) {
    const batch = Array.from({ length: BATCH }, (_, index) => {
      const receivedAt = new Date(now - ((begin + index) * DAY_MS) / RECORDS);
      const _id = firstIdAt('req', receivedAt);
      ids.push(_id);
      const state = (begin + index) % (RECORDS / 2) === 7 ? 'undeliverable' : 'completed';
      return { _id, partnerId: 'big', receivedAt, stateAt: receivedAt, state } as SubmissionRecord;
    });
    await world.stores.requests.insertMany(batch);
  }

  const over = new AbortController();
  const clients = Array.from({ length: CLIENTS }, async () => {
    while (!over.signal.aborted)
      await fetch(`${ingest.url}${LIST_PATH}`, {
        headers: { authorization: `Bearer ${key}` },
        signal: AbortSignal.timeout(CLIENT_LEAVES_MS),
      }).catch(() => {});
  });
  const answers: number[] = [];
  for (let posts = 0; posts < POSTS; posts += 1)
    answers.push((await send(ingest.url, { key: world.key, body: '{}' })).status);
  over.abort();
  await Promise.all(clients);
  expect(answers).toEqual(Array.from({ length: POSTS }, () => 202));

  const pageOf = async (query: string) => {
    const { status, json } = await list(query);
    const { data } = json as Page;
    return {
      status,
      found: data?.submissions.map(({ request_id: id }) => id),
      next: data?.next_cursor,
    };
  };
  for (const begin of [0, RECORDS - 150]) {
    const page = await pageOf(begin === 0 ? '' : `cursor=${ids[begin - 1]}`);
    expect(page).toMatchObject({ status: 200, found: ids.slice(begin, begin + 100) });
  }
  const rare: string[] = [];
  for (let cursor: string | undefined = ''; cursor !== undefined;) {
    const page = await pageOf(`state=undeliverable&cursor=${cursor}`);
    rare.push(...(page.found ?? []));
    cursor = page.next;
  }
  expect(rare).toEqual([ids[7], ids[RECORDS / 2 + 7]]);
});
