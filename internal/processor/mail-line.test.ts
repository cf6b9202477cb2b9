/** The line of mails with a modelled relay and modelled time. */
import { afterEach, beforeEach, expect, jest, test } from '@jest/globals';
import { MailGate, type MailPlace } from '../mail/mail-gate.ts';
import type { HandOver, Outage } from '../mail/mailer.ts';
import { knownAnswers, refusalOf, type Refusal } from '../mail/relay-answers.ts';
import { createLogger } from '../platform/log.ts';
import type { WaitingMail } from '../submission/mail-queue.ts';
import { classOfHandOver, verdict } from './failures.ts';
import { MailLine } from './mail-line.ts';

beforeEach(() => void jest.useFakeTimers());
afterEach(() => void jest.useRealTimers());

const PLACES = 16;
const accepted: HandOver = { result: 'accepted', answer: '250 ok' };
const refused = (phase: Refusal['phase'], answer: string): HandOver => ({
  result: 'refused',
  ...refusalOf(phase, Number(answer.slice(0, 3)), answer),
});
const outage: Outage = { reason: 'unreachable', error: new Error('ECONNREFUSED') };
const unreachable: HandOver = { result: 'unreachable', connected: false, cause: '', outage };

interface Answer {
  readonly afterMs: number;
  readonly handOver: HandOver;
}
/** Returns the relay's answer to a mail handed over at `nowMs`. */
type Relay = (mail: WaitingMail, nowMs: number) => Answer;

interface Stored extends WaitingMail {
  readonly backedOffMs: number;
}

/** A line over stored records; a record leaves it when its mail is accepted or given up. */
function scene(
  relayOf: Relay,
  options: {
    readonly stored?: number;
    readonly probe?: () => boolean;
  } = {},
) {
  const { stored = Infinity, probe = () => true } = options;
  const open = new Map<string, Stored>();
  const doneAt = new Map<string, number>();
  let handOvers = 0;
  const now = (): number => performance.now();
  const work = async (waiting: WaitingMail, place: MailPlace): Promise<void> => {
    const record = open.get(waiting.requestId);
    if (record === undefined || +record.dueAt > Date.now()) return;
    open.delete(waiting.requestId);
    handOvers += 1;
    await place.turn(new AbortController().signal);
    const { afterMs, handOver } = relayOf(waiting, now());
    await new Promise((resolve) => setTimeout(resolve, afterMs));
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
  const log = createLogger('test', 'silent');
  const gate = new MailGate({
    places: PLACES,
    probe: async () => (probe() ? undefined : outage),
    onOutage: () => {},
    clock: { monotonicMs: now },
    log,
  });
  const line = new MailLine({
    gate,
    log,
    holds: { has: () => false, partners: () => [] },
    readHead: async () => {
      const due = [...open.values()].filter(({ dueAt }) => +dueAt <= Date.now());
      const sorted = due.toSorted((one, other) => +one.dueAt - +other.dueAt);
      return { mails: sorted.slice(0, stored), more: sorted.length > stored };
    },
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
    gate,
    open,
    doneAt,
    put,
    start,
    until,
    handOvers: () => handOvers,
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
  expect(scened.gate.paused).toBe('unreachable');
  // Another process is first at each of them, and at most of those that come.
  scened.open.clear();
  away = false;
  const more = scened.put(20, {});
  expect(await scened.until(more)).toBeLessThan(20_000);
  expect(scened.gate.paused).toBeUndefined();
  scened.end();
});

test('after an outage no other partner waits for one whose recipients are silent', async () => {
  let away = true;
  const relay: Relay = (mail) =>
    away ? { afterMs: 50, handOver: unreachable } : isBad(mail) ? silence : badOnes(mail, 0);
  const { put, start, until, end } = scene(relay, { probe: () => !away });
  put(40, { domainOf: () => 'bad.example' });
  start();
  await jest.advanceTimersByTimeAsync(5_000);
  away = false;
  expect(await until(put(40, { partner: 'other' }))).toBeLessThan(10_000);
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

test('a quota of 14 a second and no pace of ours: all is delivered by the back-off of each', async () => {
  const { put, start, until, end } = scene(withQuota(14));
  const ids = Array.from({ length: 20 }, (_, n) =>
    put(15, { partner: `p${n}`, domainOf: (m) => `d${(n + m) % 50}.example` }),
  ).flat();
  start();
  expect(await until(ids)).toBeLessThan(90_000);
  end();
});

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
