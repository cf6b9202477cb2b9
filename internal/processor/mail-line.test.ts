/** The line of mails with a modelled relay and modelled time. */
import { afterEach, beforeEach, expect, jest, test } from '@jest/globals';
import type { HandOver } from '../mail/mailer.ts';
import { knownAnswers, refusalOf, type Refusal } from '../mail/relay-answers.ts';
import { RelayState } from '../mail/relay-state.ts';
import { createLogger } from '../platform/log.ts';
import type { WaitingMail } from '../submission/mail-queue.ts';
import { classOfHandOver, verdict } from './failures.ts';
import { BACKED_OFF_AT_MOST_MS } from './limits.ts';
import { MailLine, type MailPlace } from './mail-line.ts';

beforeEach(() => void jest.useFakeTimers());
afterEach(() => void jest.useRealTimers());

const PLACES = 16;
const accepted: HandOver = { result: 'accepted', answer: '250 ok' };
const refused = (phase: Refusal['phase'], answer: string): HandOver => ({
  result: 'refused',
  ...refusalOf(phase, Number(answer.slice(0, 3)), answer),
});
const unreachable: HandOver = { result: 'unreachable', connected: false, cause: 'ECONNREFUSED' };

interface Answer {
  readonly afterMs: number;
  readonly handOver: HandOver;
}
/** Returns the relay's answer to a mail handed over at `nowMs`. */
type Relay = (mail: WaitingMail, nowMs: number) => Answer;

interface Stored extends WaitingMail {
  readonly backedOffMs: number;
}

interface Records {
  readonly open: Map<string, Stored>;
  readonly doneAt: Map<string, number>;
}

/** A line over stored records; a record leaves it when its mail is accepted or given up. */
function scene(
  relayOf: Relay,
  options: {
    readonly stored?: number;
    readonly probe?: () => boolean;
    readonly perSecond?: number;
    /** Those of another process. */
    readonly records?: Records;
  } = {},
) {
  const { stored = Infinity, probe = () => true, perSecond = 0 } = options;
  const records: Records = options.records ?? { open: new Map(), doneAt: new Map() };
  const { open, doneAt } = records;
  let handOvers = 0;
  let inHand = 0;
  let mostInHand = 0;
  const relay = new RelayState(perSecond);
  const now = (): number => performance.now();
  const work = async (waiting: WaitingMail, place: MailPlace): Promise<void> => {
    const record = open.get(waiting.requestId);
    if (record === undefined || +record.dueAt > Date.now()) return;
    open.delete(waiting.requestId);
    handOvers += 1;
    inHand += 1;
    mostInHand = Math.max(mostInHand, inHand);
    const { afterMs, handOver } = relayOf(waiting, now());
    await new Promise((resolve) => setTimeout(resolve, afterMs));
    inHand -= 1;
    const blame = place.note(handOver);
    if (handOver.result === 'accepted') return void doneAt.set(record.requestId, now());
    if (handOver.result === 'aborted') throw new Error('no relay of this file aborts');
    const { backedOffMs } = record;
    const what = verdict(classOfHandOver(handOver, blame), { ambiguous: 1, backedOffMs });
    if (what.kind === 'finish') return void doneAt.set(record.requestId, now());
    const delayMs = what.kind === 'retry' ? what.delayMs : 0;
    open.set(record.requestId, {
      ...record,
      dueAt: new Date(Date.now() + delayMs),
      backedOffMs: backedOffMs + delayMs,
    });
  };
  const line = new MailLine({
    places: 2 * PLACES,
    relay,
    clock: { now: () => new Date(), monotonicMs: now },
    log: createLogger('test', 'silent'),
    holds: { has: () => false, partners: () => [] },
    readHead: async () => {
      const due = [...open.values()].filter(({ dueAt }) => +dueAt <= Date.now());
      const sorted = due.toSorted((one, other) => +one.dueAt - +other.dueAt);
      return { mails: sorted.slice(0, stored), more: sorted.length > stored };
    },
    probe: async () => probe(),
    work,
  });
  const stop = new AbortController();
  let made = 0;
  const put = (
    count: number,
    mail: { readonly partner?: string; readonly domainOf?: (n: number) => string },
  ): string[] =>
    Array.from({ length: count }, (_, n) => {
      made += 1;
      const requestId = `req_${made}`;
      const { partner = 'acme', domainOf = () => 'example.com' } = mail;
      const waiting = {
        requestId,
        version: 1,
        partnerId: partner,
        domain: domainOf(n),
        dueAt: new Date(),
        backedOffMs: 0,
      };
      open.set(requestId, waiting);
      return requestId;
    });
  const start = (): void => void line.run(stop.signal);
  /** Advances time until all of `ids` are done; returns the milliseconds. */
  const until = async (ids: readonly string[], atMostMs = 120_000): Promise<number> => {
    const from = now();
    while (!ids.every((id) => doneAt.has(id)) && now() - from < atMostMs)
      await jest.advanceTimersByTimeAsync(50);
    const missing = ids.filter((id) => !doneAt.has(id));
    if (missing.length > 0)
      throw new Error(`${missing.length} of ${ids.length} are not done after ${atMostMs} ms`);
    return Math.max(...ids.map((id) => doneAt.get(id)!)) - from;
  };
  return {
    line,
    relay,
    open,
    doneAt,
    put,
    start,
    until,
    handOvers: () => handOvers,
    mostInHand: () => mostInHand,
    end: () => stop.abort(),
  };
}

const takesAfter =
  (afterMs: number): Relay =>
  () => ({ afterMs, handOver: accepted });

test('after an outage a process goes on though others have taken the mails that it knew', async () => {
  let away = true;
  const relay: Relay = () => ({ afterMs: 50, handOver: away ? unreachable : accepted });
  const scened = scene(relay, { probe: () => !away });
  scened.put(100, {});
  scened.start();
  await jest.advanceTimersByTimeAsync(60_000);
  expect(scened.relay.paused).toBe('unreachable');
  // Another process is first at each of them, and at most of those that come.
  scened.open.clear();
  away = false;
  const more = scened.put(20, {});
  expect(await scened.until(more)).toBeLessThan(20_000);
  expect(scened.relay.paused).toBeUndefined();
  scened.end();
});

test('after an outage no mail waits for one whose recipient is silent', async () => {
  let away = true;
  const relay: Relay = (mail) =>
    away ? { afterMs: 50, handOver: unreachable } : isBad(mail) ? silence : badOnes(mail, 0);
  const { put, start, until, end } = scene(relay, { probe: () => !away });
  put(40, { domainOf: () => 'bad.example' });
  start();
  await jest.advanceTimersByTimeAsync(5_000);
  away = false;
  expect(await until(put(40, {}))).toBeLessThan(10_000);
  end();
});

test('a slow domain does not keep others waiting', async () => {
  const relay: Relay = ({ domain }) => ({
    afterMs: domain === 'slow.example' ? 20_000 : 50,
    handOver: accepted,
  });
  const { put, start, until, end, mostInHand } = scene(relay);
  put(60, { domainOf: () => 'slow.example' });
  const others = put(150, { domainOf: (n) => `d${n % 40}.example` });
  start();
  expect(await until(others)).toBeLessThan(10_000);
  // While it waits alone it takes most places, and leaves some to mails that come later.
  await jest.advanceTimersByTimeAsync(8_000);
  expect(mostInHand()).toBe(2 * PLACES - 3);
  expect(await until(put(150, { domainOf: (n) => `e${n}.example` }))).toBeLessThan(10_000);
  end();
});

test('partners take turns, however many of one wait', async () => {
  const { put, start, until, end } = scene(takesAfter(100), { stored: 3_500 });
  put(3_000, { partner: 'bulk' });
  start();
  await jest.advanceTimersByTimeAsync(500);
  expect(await until(put(1, { partner: 'other' }))).toBeLessThan(1_500);
  end();
});

/** A relay that accepts `quota` mails a second and declines others after their content. */
function withQuota(quota: number): Relay {
  const taken = new Map<number, number>();
  return (_, nowMs) => {
    const second = Math.floor(nowMs / 1_000);
    taken.set(second, (taken.get(second) ?? 0) + 1);
    const turnedAway = refused('content', '454 Throttling failure: Maximum sending rate exceeded');
    return { afterMs: 20, handOver: taken.get(second)! <= quota ? accepted : turnedAway };
  };
}

test('a quota of 14 a second is used without many vain transmissions', async () => {
  const { put, start, until, end, handOvers } = scene(withQuota(14));
  const ids = Array.from({ length: 20 }, (_, n) =>
    put(15, { partner: `p${n}`, domainOf: (m) => `d${(n + m) % 50}.example` }),
  ).flat();
  start();
  expect(await until(ids)).toBeLessThan(45_000);
  expect(handOvers()).toBeLessThanOrEqual(300 * 1.2);
  end();
});

/** How long e-mails wait once the relay is well; each may back off as long as it has waited. */
const outages: readonly [string, HandOver, number][] = [
  ['cannot be reached', unreachable, 8_000],
  ['refuses our sender', refused('mail', '550 5.7.1 Sender refused'), 8_000],
  ['takes nothing', refused('rcpt', '421 4.7.0 Try again later'), 60_000],
  ['takes no connection', { ...unreachable, busy: true }, 8_000],
];
test.each(outages)(
  'a relay that %s is tried seldom, and all goes on once it takes mail',
  async (_, outage, mostMs) => {
    let well = false;
    const relay: Relay = () => ({ afterMs: 20, handOver: well ? accepted : outage });
    const { put, start, until, end, handOvers } = scene(relay, { probe: () => well });
    const ids = put(24, {});
    start();
    await jest.advanceTimersByTimeAsync(60_000);
    expect(handOvers()).toBeLessThan(PLACES + 60);
    well = true;
    expect(await until(ids)).toBeLessThan(mostMs);
    end();
  },
);

const silence: Answer = {
  afterMs: 60_000,
  handOver: { result: 'ambiguous', cause: 'ETIMEDOUT' },
};
/**
 * One answer of each phase and fault, which are what the line knows of an answer; an answer to MAIL
 * FROM precedes the recipient, so it concerns all mail.
 */
const answersOfOne = new Map(
  knownAnswers
    .filter(({ phase }) => phase !== 'mail')
    .map(({ phase, fault, answer }): [string, Answer] => [
      `${fault} at ${phase}`,
      { afterMs: 20, handOver: refused(phase, answer) },
    ]),
).set('silence for a minute', silence);
for (const domainOf of [() => 'one.example', (n: number) => `a${n}.example`]) {
  const where = domainOf(0) === 'one.example' ? 'one domain' : 'a domain each';
  test.each([...answersOfOne])(
    `one partner's 120 mails to ${where} meet %s: another partner's go out`,
    async (_, answer) => {
      const relay: Relay = ({ partnerId }) =>
        partnerId === 'adversary' ? answer : { afterMs: 20, handOver: accepted };
      const { put, start, until, end } = scene(relay);
      put(120, { partner: 'adversary', domainOf });
      start();
      await jest.advanceTimersByTimeAsync(300);
      expect(
        await until(put(40, { partner: 'victim', domainOf: (n) => `v${n % 5}.example` })),
      ).toBeLessThan(6_000);
      end();
    },
  );
}

/** The usual answer of a relay that throttles, but only about these. */
const badly: Answer = { afterMs: 30, handOver: refused('content', '451 4.7.1 Try again later') };
const isBad = ({ domain }: WaitingMail): boolean => domain.startsWith('bad');
const badOnes: Relay = (mail) => (isBad(mail) ? badly : { afterMs: 30, handOver: accepted });
const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;

test.each([
  { bad: 1, partners: 1, everyMs: 20_000, forMs: HOUR_MS, isOneDomain: true },
  { bad: 20, partners: 1, everyMs: MINUTE_MS, forMs: HOUR_MS, isOneDomain: false },
  { bad: 2, partners: 2, everyMs: MINUTE_MS, forMs: HOUR_MS, isOneDomain: true },
  { bad: 3, partners: 3, everyMs: 5_000, forMs: HOUR_MS, isOneDomain: false },
  { bad: 5, partners: 1, everyMs: 50 * MINUTE_MS, forMs: 10 * HOUR_MS, isOneDomain: false },
])(
  'mails that the relay never takes, $bad of $partners partners, stop no other that comes each $everyMs ms, and come to an end',
  async ({ bad, partners, everyMs, forMs, isOneDomain }) => {
    const { put, start, until, end, open } = scene(badOnes);
    const bads = Array.from({ length: bad }, (_, n) =>
      put(1, {
        partner: `p${n % partners}`,
        domainOf: () => (isOneDomain ? 'bad.example' : `bad${n}.example`),
      }),
    ).flat();
    start();
    // Longer than the pauses of an outage take to reach their longest.
    await jest.advanceTimersByTimeAsync(5 * MINUTE_MS);
    for (let n = 0; n < forMs / everyMs; n += 1) {
      const good = put(1, { partner: `p${n % partners}`, domainOf: () => `good${n}.example` });
      expect(await until(good)).toBeLessThan(2_000 + 1_000 * bad);
      await jest.advanceTimersByTimeAsync(everyMs);
    }
    for (const id of bads) expect(open.get(id)!.backedOffMs).toBeGreaterThan(forMs * 0.6);
    // What is counted ends a record.
    for (const id of bads) open.set(id, { ...open.get(id)!, backedOffMs: BACKED_OFF_AT_MOST_MS });
    await until(put(1, { domainOf: () => 'good.example' }));
    await until(bads, HOUR_MS);
    end();
  },
);

test('a few mails that are not taken leave a backlog of one partner its speed', async () => {
  const { put, start, until, end } = scene(badOnes, { stored: 500 });
  put(1, { domainOf: () => 'bad.example' });
  const good = put(1_000, { domainOf: (n) => `good${n}.example` });
  start();
  expect(await until(good)).toBeLessThan(10_000);
  end();
});

test('a mail whose session ends the relay for half a minute lets all others go first', async () => {
  let awayUntilMs = 0;
  const isAway = (): boolean => performance.now() < awayUntilMs;
  const relay: Relay = (mail, nowMs) => {
    if (isAway()) return { afterMs: 30, handOver: unreachable };
    if (!isBad(mail)) return { afterMs: 30, handOver: accepted };
    awayUntilMs = nowMs + 30_000;
    return { afterMs: 30, handOver: { ...unreachable, connected: true } };
  };
  const { put, start, until, end } = scene(relay, { probe: () => !isAway() });
  put(1, { domainOf: () => 'bad.example' });
  start();
  await jest.advanceTimersByTimeAsync(5_000);
  await until(put(40, {}), 5 * MINUTE_MS);
  end();
});

test.each([2, 4])('%d processes with a bound of their own each send as much as one', async (n) => {
  const records: Records = { open: new Map(), doneAt: new Map() };
  const quick = takesAfter(30);
  const processes = Array.from({ length: n }, () =>
    scene(quick, { stored: 500, perSecond: 10, records }),
  );
  processes[0]!.put(3_000, { domainOf: (m) => `d${m % 50}.example` });
  for (const { start } of processes) {
    start();
    await jest.advanceTimersByTimeAsync(137);
  }
  await jest.advanceTimersByTimeAsync(MINUTE_MS);
  for (const { end } of processes) end();
  expect(records.doneAt.size).toBeGreaterThan(0.9 * n * 600);
  expect(records.doneAt.size).toBeLessThan(1.1 * n * 600);
});

test('a new account goes past nobody who waits, and takes a free place at once', async () => {
  const { line, put, start, until, end, open } = scene(takesAfter(1_000));
  start();
  await jest.advanceTimersByTimeAsync(100);
  const [id] = put(1, {});
  const begun: string[] = [];
  const take = (one: string): boolean =>
    line.tryNow(open.get(one)!, async () => {
      begun.push(one);
    });
  expect(take(id!)).toBe(true);
  expect(begun).toEqual([id]);
  const crowd = put(200, {});
  await line.readOnce();
  expect(take(put(1, {})[0]!)).toBe(false);
  await until(crowd);
  end();
});

test('closing waits for what is in work, and begins nothing more', async () => {
  const { line, put, start, end, handOvers } = scene(takesAfter(5_000));
  put(100, {});
  start();
  await jest.advanceTimersByTimeAsync(100);
  const begun = handOvers();
  let closed = false;
  const late = new AbortController();
  void line.close(late.signal).then(() => (closed = true));
  await jest.advanceTimersByTimeAsync(4_000);
  expect(closed).toBe(false);
  await jest.advanceTimersByTimeAsync(2_000);
  expect({ closed, handOvers: handOvers() }).toEqual({ closed: true, handOvers: begun });
  end();
});
