/** A partner that follows its outcomes misses none, and comes to an end. */
import { afterEach, describe, expect, test } from '@jest/globals';
import { OUTCOMES_PATH } from '../../internal/ingest/contract.ts';
import { cursorAt, cursorText, REACH_MS } from '../../internal/ingest/outcome-cursor.ts';
import { Outcomes } from '../../internal/ingest/outcomes.ts';
import { newApiKey } from '../../internal/partner/api-key.ts';
import { MODE_ANNOTATION, ownerName } from '../../internal/partner/key-terms.ts';
import { DAY_MS, later, systemClock } from '../../internal/platform/process/clock.ts';
import { newId } from '../../internal/platform/stores/ids.ts';
import { OutcomeReader, OUTCOMES_PAGE } from '../../internal/submission/status-reader.ts';
import { cards, endStates } from '../../internal/submission/states.ts';
import { OperatorMoves } from '../../internal/submission/operator-moves.ts';
import type { SubmissionRecord } from '../../internal/submission/submission.ts';
import { expectAnswer, idOf } from '../support/ingest.ts';
import { lookedUp, send, type Answer, type RequestOptions } from '../support/http.ts';
import { newRandom } from '../support/random.ts';
import { newRecord, retention } from '../support/records.ts';
import { openOwnWorld } from '../support/processing.ts';
import { eventually } from '../support/wait.ts';
import { newApplication, worldOf } from '../support/world.ts';

const otherKey = newApiKey();
const testKey = newApiKey({ test: true });
const notAfter = later(new Date(), 13 * DAY_MS).toISOString();
const { world, ingest } = await worldOf(['ingest', 'processor'], {
  documentedRights: true,
  partners: [
    {
      partner: 'other',
      keys: [otherKey],
      annotations: { 'partner-ingest.io/not-after': notAfter },
    },
    { partner: 'demo', name: 'tests', keys: [testKey], annotations: { [MODE_ANNOTATION]: 'test' } },
  ],
});
const { requests, db } = world.stores;

interface Page {
  readonly outcomes: readonly {
    readonly request_id: string;
    readonly state: string;
    readonly updated_at: string;
  }[];
  readonly next_cursor: string;
}

const ask = (query: string, options: RequestOptions & { readonly url?: string } = {}) =>
  lookedUp(() =>
    send(options.url ?? ingest.url, {
      method: 'GET',
      key: world.key,
      path: `${OUTCOMES_PATH}?${query}`,
      ...options,
    }),
  );
const pageOf = ({ json }: Answer): Page => (json as { readonly data: Page }).data;
const applied = ({ headers }: Answer): string | undefined => headers['preference-applied'];

const insert = async (changes: Partial<SubmissionRecord>): Promise<SubmissionRecord> => {
  const record = newRecord({ state: 'completed', ...changes });
  await requests.insertOne(record);
  return record;
};

/** A program that follows the outcomes of a partner, as of all states that it was told last. */
function follower(options: RequestOptions = {}, since = '') {
  const known = new Map<string, string>();
  let cursor = '';
  return {
    known,
    /** Goes on until an answer is empty; returns how many outcomes came. */
    async catchUp(): Promise<number> {
      for (let came = 0; ;) {
        const { outcomes, next_cursor } = pageOf(
          await ask(`since=${since}&cursor=${cursor}`, options),
        );
        for (const { request_id, state } of outcomes) known.set(request_id, state);
        cursor = next_cursor;
        came += outcomes.length;
        if (outcomes.length === 0) return came;
        expect(came).toBeLessThan(5_000);
      }
    },
    cursor: () => cursor,
  };
}

afterEach(async () => void (await requests.deleteMany({})));

const at = (msAgo: number): Date => new Date(Date.now() - msAgo);
const HOUR_MS = 3_600_000;

describe('a follower', () => {
  test('gets what a look-up tells, oldest first, of all ends of its own', async () => {
    const partnerId = 'demo';
    const ended = endStates.map((state, index) =>
      newRecord({ partnerId, state, stateAt: at(HOUR_MS - index), reasons: [] }),
    );
    const others = (['recorded', 'account_created', 'dead_lettered', 'malformed'] as const).map(
      (state) => newRecord({ partnerId, state }),
    );
    const foreign = [newRecord({ partnerId: 'other', state: 'completed' })];
    const tests = [newRecord({ partnerId, state: 'rejected', test: true })];
    await requests.insertMany([...ended, ...others, ...foreign, ...tests].toReversed());
    const answer = await ask('');
    const { outcomes, next_cursor } = pageOf(answer);
    expect(outcomes.map(({ request_id }) => request_id)).toEqual(ended.map(({ _id }) => _id));
    for (const outcome of outcomes) {
      const path = `/api/v1/capital/ingest/${outcome.request_id}`;
      const { json } = await send(ingest.url, { method: 'GET', key: world.key, path });
      expect((json as { data: unknown }).data).toEqual(outcome);
    }
    expect(answer.headers['cache-control']).toBe('no-store');
    const empty = pageOf(await ask(`cursor=${next_cursor}`));
    expect(empty).toEqual({ outcomes: [], next_cursor: empty.next_cursor });
    expect(pageOf(await ask(`cursor=${empty.next_cursor}`))).toEqual(empty);
    const [ofTests] = pageOf(await ask('', { key: testKey })).outcomes;
    expect(ofTests).toMatchObject({ request_id: tests[0]!._id, test: true, state: 'rejected' });
    expect(answer.headers['key-not-after']).toBeUndefined();
    expect((await ask('', { key: otherKey })).headers['key-not-after']).toBe(notAfter);
    const head = await ask('', { method: 'HEAD' });
    expect([head.status, head.text]).toEqual([200, '']);
  });

  test.each<[string, Partial<SubmissionRecord>]>([
    ['written a minute behind', { stateAt: at(70_000) }],
    [
      'of the same time, with a smaller id',
      { stateAt: at(10_000), _id: newId('req', at(HOUR_MS)) },
    ],
    ['of the future', { stateAt: at(-60_000) }],
  ])('gets an outcome that is readable later: %s', async (_what, late) => {
    const mine = follower();
    const before = [70_001, 40_000, 10_000].map((msAgo) => newRecord({ stateAt: at(msAgo) }));
    if (late._id !== undefined) Object.assign(before[2]!, { stateAt: late.stateAt! });
    await requests.insertMany(before.map((record) => ({ ...record, state: 'completed' as const })));
    expect(await mine.catchUp()).toBe(3);
    const { _id: id } = await insert(late);
    expect(await mine.catchUp()).toBeLessThanOrEqual(4);
    expect(mine.known.get(id)).toBe('completed');
    expect(await mine.catchUp()).toBe(0);
  });

  test('gets an outcome that came late long ago, before many others', async () => {
    const insertAt = (...hours: number[]) =>
      requests.insertMany(
        hours.map((hour) => newRecord({ state: 'completed', stateAt: at(hour * HOUR_MS) })),
      );
    const mine = follower();
    await insertAt(5, 4);
    await mine.catchUp();
    const { _id: late } = await insert({ stateAt: at(4 * HOUR_MS + 60_000) });
    await insertAt(...Array.from({ length: 350 }, (_, n) => 3 - n / 200));
    expect(await mine.catchUp()).toBeLessThanOrEqual(353);
    expect([mine.known.size, mine.known.get(late)]).toEqual([353, 'completed']);
    expect(await mine.catchUp()).toBe(0);
  });

  test('gets each that comes late among hundreds a second', async () => {
    const insertUntil = (msAgo: number, count: number) =>
      requests.insertMany(
        Array.from({ length: count }, (_, n) =>
          newRecord({ state: 'completed', stateAt: at(msAgo + n * 10) }),
        ),
      );
    const mine = follower();
    await insertUntil(20_000, 4_400);
    await mine.catchUp();
    for (const msAgo of [15_000, 5_000]) {
      await insertUntil(msAgo, 500);
      await mine.catchUp();
      const { _id: late } = await insert({ stateAt: at(msAgo + 10_000) });
      await mine.catchUp();
      expect(mine.known.has(late)).toBe(true);
    }
    expect(mine.known.size).toBe(5_402);
    expect(await mine.catchUp()).toBe(0);
  });

  test('gets a bounce after days, a reopened record and an erased one', async () => {
    const mine = follower();
    const moves = new OperatorMoves({ db, retention, clock: systemClock });
    const stateAt = at(72 * HOUR_MS);
    const accountId = newId('acc', stateAt);
    const [bounced, reopened, open] = [
      await insert({ stateAt, accountId }),
      await insert({ stateAt, state: 'closed' }),
      await insert({ state: 'dead_lettered' }),
    ];
    await mine.catchUp();
    await moves.move('report_bounce', { seen: bounced, accountId }, 'returned');
    await moves.move('reopen', { seen: reopened }, 'after all');
    await moves.move('erase', { seen: open }, 'asked to');
    await mine.catchUp();
    const ended = { state: 'rejected', stateAt: new Date() } as const;
    await requests.updateOne({ _id: reopened._id }, { $set: ended });
    await mine.catchUp();
    expect([...mine.known]).toEqual([
      [bounced._id, 'undeliverable'],
      [reopened._id, 'rejected'],
      [open._id, 'rejected'],
    ]);
    expect(await mine.catchUp()).toBe(0);
  });

  test('reads thousands of one moment in pages', async () => {
    const stateAt = at(1_000);
    const many = Array.from({ length: 1_050 }, () => newRecord({ state: 'closed', stateAt }));
    await requests.insertMany(many);
    const mine = follower();
    expect(await mine.catchUp()).toBe(1_050);
    expect(mine.known.size).toBe(1_050);
    expect(await mine.catchUp()).toBe(0);
  });

  test('begins by time where its cursor is lost', async () => {
    for (let hours = 100; hours > 0; hours -= 1) await insert({ stateAt: at(hours * HOUR_MS) });
    const mine = follower({}, at(72.5 * HOUR_MS).toISOString());
    expect(await mine.catchUp()).toBe(72);
  });

  test('misses nothing after a time that is still to come, as by a wrong zone', async () => {
    const mine = follower({}, at(-2 * HOUR_MS).toISOString());
    expect(await mine.catchUp()).toBe(0);
    const { _id: id } = await insert({ stateAt: at(0) });
    await mine.catchUp();
    expect([...mine.known.keys()]).toEqual([id]);
  });

  // Two processors, clocks a minute apart, slow commits, and changes of what has ended.
  test.each([1, 2, 3, 4, 5, 6])('misses nothing, whatever comes late (seed %i)', async (seed) => {
    const random = newRandom(seed);
    const truth = new Map<string, string>();
    const skews = [0, random.between(-60_000, 60_000)];
    const mine = follower();
    const startMs = Date.now() - 2 * HOUR_MS;
    let writes: { readonly commitMs: number; write(): Promise<unknown> }[] = [];
    for (let nowMs = startMs; nowMs < startMs + 10 * 60_000; nowMs += random.between(0, 4_000)) {
      const stateAt = new Date(nowMs + random.pick(skews));
      const state = random.pick(endStates);
      const known = [...truth.keys()];
      const again = known.length > 0 && random.chance(0.2) ? random.pick(known) : undefined;
      const commitMs = nowMs + (random.chance(0.1) ? random.between(0, 10_000) : 0);
      const record = newRecord({ state, stateAt });
      const write = async (): Promise<void> => {
        const _id = again ?? record._id;
        if (again === undefined) await requests.insertOne(record);
        else await requests.updateOne({ _id }, { $set: { state, stateAt } });
        truth.set(_id, cards[state].status);
      };
      writes.push({ commitMs, write });
      const due = writes.filter((each) => each.commitMs <= nowMs);
      writes = writes.filter((each) => each.commitMs > nowMs);
      for (const each of due) await each.write();
      if (random.chance(seed % 2 === 0 ? 0.1 : 0.01)) await mine.catchUp();
    }
    for (const each of writes) await each.write();
    await mine.catchUp();
    expect(Object.fromEntries(mine.known)).toEqual(Object.fromEntries(truth));
    expect(await mine.catchUp()).toBe(0);
  });
});

describe('a wait', () => {
  const wait = (cursor: string, seconds: number, url = ingest.url): Promise<Answer> =>
    ask(`cursor=${cursor}`, { url, headers: { prefer: `wait=${seconds}` } });

  test('ends with the next outcome, and with what is there already', async () => {
    const mine = follower();
    await mine.catchUp();
    const waiting = Array.from({ length: 3 }, () => wait(mine.cursor(), 30));
    const other = ask('', { key: otherKey, headers: { prefer: 'wait=2' } });
    const accepted = await send(ingest.url, {
      key: world.key,
      body: JSON.stringify(newApplication()),
    });
    for (const answer of await Promise.all(waiting)) {
      expect(pageOf(answer).outcomes).toMatchObject([
        { request_id: idOf(accepted), state: 'completed' },
      ]);
      expect(applied(answer)).toBe('wait=30');
    }
    expect([pageOf(await other).outcomes, applied(await other)]).toEqual([[], 'wait=2']);
    expect(applied(await wait(mine.cursor(), 29))).toBe('wait=29');
  });

  test('tells at its end what came late meanwhile', async () => {
    await insert({ stateAt: at(1_000) });
    const mine = follower();
    await mine.catchUp();
    const waiting = wait(mine.cursor(), 2);
    const { _id: late } = await insert({ stateAt: at(30_000) });
    const ids = pageOf(await waiting).outcomes.map(({ request_id }) => request_id);
    expect(ids).toContain(late);
  });

  test('is answered at once in a drain', async () => {
    const own = await world.spawn('ingest');
    const answers = Array.from({ length: 20 }, () => wait('', 30, own.url));
    await eventually('one to wait', async () => {
      await ask('cursor=x', { url: own.url });
      const bad = { status: '400' };
      return (await world.metric(own, 'partner_ingest_requests_total', bad)) > 0;
    });
    own.child.kill('SIGTERM');
    for (const answer of await Promise.all(answers))
      expect([pageOf(answer).outcomes, applied(answer)]).toEqual([[], undefined]);
    expect((await own.exited).code).toBe(0);
  });

  test('ends with an answer, although the database no longer does', async () => {
    const own = await openOwnWorld();
    try {
      const { child, url } = await own.world.spawn('ingest');
      const once = (prefer: string): Promise<Answer> =>
        send(url, { method: 'GET', key: own.world.key, path: OUTCOMES_PATH, headers: { prefer } });
      const [short, ...rest] = [3, 30, 30, 30].map((seconds) => once(`wait=${seconds}`));
      // The reads of those that wait come before.
      for (let reads = 0; reads < 3; reads += 1) expect((await once('')).status).toBe(200);
      await own.mongo.signal('SIGSTOP');
      expect((await once('')).status).toBe(503);
      const answers = [await short!];
      child.kill('SIGTERM');
      answers.push(...(await Promise.all(rest)));
      expect(answers.map(({ status, headers }) => [status, headers['preference-applied']])).toEqual(
        Array.from({ length: 4 }, () => [200, undefined]),
      );
      for (const answer of answers) expect(pageOf(answer).outcomes).toEqual([]);
    } finally {
      await own.close();
    }
  });

  test('many partners that wait cost one query a second', async () => {
    const reader = new OutcomeReader({ db });
    let queries = 0;
    const counting = new Proxy(reader, {
      get:
        (target, name: keyof OutcomeReader) =>
        (...given: unknown[]) => {
          queries += 1;
          return (target[name] as (...all: unknown[]) => unknown).apply(target, given);
        },
    });
    let round = async (): Promise<unknown> => undefined;
    const loops = {
      start: ({ run }: { readonly run: (signal: AbortSignal) => Promise<unknown> }) => {
        round = () => run(new AbortController().signal);
        return undefined as never;
      },
    };
    const { signal } = new AbortController();
    const drain = new AbortController();
    const outcomes = new Outcomes({ reader: counting, loops, drain: drain.signal });
    const queryOf = (n: number) => ({
      whose: { partnerId: `partner${n % 400}` },
      cursor: cursorAt(Date.now() - HOUR_MS),
    });
    const ended: number[] = [];
    const waits = Array.from({ length: 1_000 }, async (_, n) => {
      const owner = [queryOf(n).whose.partnerId, ''] as const;
      await outcomes.wait(queryOf(n), owner, HOUR_MS, signal);
      ended.push(n);
    });
    await round();
    expect([queries, ended]).toEqual([1, []]);
    await insert({ partnerId: 'partner7' });
    await round();
    for (const n of [7, 407, 807]) await waits[n];
    expect([queries, ended.toSorted((one, two) => one - two)]).toEqual([2, [7, 407, 807]]);
    drain.abort();
    await Promise.all(waits);
  });
});

describe('a cursor', () => {
  const REFUSED = 'cursor must be a next_cursor that keys of this partner and mode were answered';

  test('of another partner, of tests, or changed in any way is refused', async () => {
    await insert({});
    const { next_cursor: mine } = pageOf(await ask(''));
    for (const options of [{ key: otherKey }, { key: testKey }])
      expect((await ask(`cursor=${mine}`, options)).status).toBe(400);
    const flipped = Array.from(mine, (letter, index) => {
      const other = letter === 'A' ? 'B' : 'A';
      return mine.slice(0, index) + other + mine.slice(index + 1);
    });
    const forged = [
      { ...cursorAt(NaN) },
      { ...cursorAt(0), place: { ms: 1e300, id: '' } },
      { ...cursorAt(0), place: { ms: 0, id: '{"$gt":""}' } },
      { ...cursorAt(0), count: 0.5 },
      { ...cursorAt(0), digest: -1n },
    ].map((cursor) => cursorText(ownerName('demo', {}), cursor));
    const wrong = [...flipped, ...forged, mine.slice(0, -1), `${mine}A`, 'req_01', 'out_', '%00'];
    for (const cursor of wrong) {
      const { status, text } = await ask(`cursor=${cursor}`);
      expect([cursor, status, text.includes(REFUSED)]).toEqual([cursor, 400, true]);
    }
  });

  test('of any content that passes leads only to outcomes of its partner', async () => {
    await insert({ partnerId: 'other' });
    const { _id: mine } = await insert({});
    for (const count of [0, 5, -1, Number.MAX_SAFE_INTEGER])
      for (const ms of [-8.64e15, 0, Date.now(), 8.64e15])
        for (const givenMs of [-8.64e15, 0, Date.now(), 8.64e15]) {
          const cursor = { place: { ms, id: '' }, givenMs, count, digest: 3n };
          const answer = await ask(`cursor=${cursorText('demo', cursor)}`);
          const isWide = ms - givenMs > 2 * REACH_MS;
          expect(answer.status).toBe(isWide ? 400 : 200);
          if (isWide) continue;
          for (const { request_id } of pageOf(answer).outcomes) expect(request_id).toBe(mine);
        }
  });

  test('and since are refused as in the list', async () => {
    const time = 'a time of RFC 3339, such as 2026-11-27T09:30:00Z';
    const told = (fault: string) => JSON.stringify({ error: `Query parameter ${fault}` });
    expectAnswer(await ask('since=today'), 400, told(`since must be ${time}, not 'today'`));
    expectAnswer(await ask('until=x'), 400, told("'until' is unknown: known are since and cursor"));
    expect((await ask('', { method: 'POST' })).status).toBe(405);
    expect((await ask('', { key: newApiKey() })).status).toBe(401);
  });

  test('stays short', async () => {
    const stateAt = at(REACH_MS / 2);
    await requests.insertMany(
      Array.from({ length: OUTCOMES_PAGE }, () => newRecord({ state: 'closed', stateAt })),
    );
    const { next_cursor } = pageOf(await ask('since=0000-01-01T00:00:00Z'));
    expect(next_cursor.length).toBeLessThan(150);
  });
});
