/** Checks with a fake clock when the gate lets e-mails begin. */
import { afterEach, beforeEach, expect, jest, test } from '@jest/globals';
import { createLogger } from '../platform/process/log.ts';
import { newRandom } from '../../test/support/random.ts';
import { HELD_MS, MailGate, type MailGateOptions, REST_MS, SILENT_MS } from './mail-gate.ts';
import { refusalOf, type HandOver, type Outage } from './relay-answers.ts';

beforeEach(() => void jest.useFakeTimers());
afterEach(() => void jest.useRealTimers());

const never = new AbortController().signal;
const accepted: HandOver = { result: 'accepted', answer: '250 ok' };
const outageOf = (reason: Outage['reason']): Outage => ({ reason, error: new Error(reason) });
const refused = (code: number, reason: Outage['reason']): HandOver => ({
  result: 'refused',
  ...refusalOf('mail', code),
  outage: outageOf(reason),
});
const noCapacity = refused(451, 'no_capacity');
const unreachable: HandOver = {
  result: 'unreachable',
  connected: false,
  cause: '',
  outage: outageOf('unreachable'),
};

/** Serves partners in turn, as the processor does. */
function scene(options: Partial<MailGateOptions> = {}) {
  const told: (string | undefined)[] = [];
  const gate = new MailGate({
    places: 16,
    probe: async () => undefined,
    onOutage: (outage) => told.push(outage?.reason),
    clock: { monotonicMs: () => performance.now() },
    log: createLogger('test', 'silent'),
    ...options,
  });
  const waiting = new Map<string, ((place: ReturnType<MailGate['begin']>) => Promise<void>)[]>();
  let inHand = 0;
  let begun = 0;
  const tests: typeof waiting = new Map();
  const begin = (queue: typeof waiting, next: string, place: ReturnType<MailGate['begin']>) => {
    const [work, ...left] = queue.get(next)!;
    queue.delete(next);
    if (left.length > 0) queue.set(next, left);
    inHand += 1;
    begun += 1;
    void work!(place).finally(() => {
      inHand -= 1;
      place.release();
    });
  };
  const serve = (): void => {
    for (;;) {
      const live = gate.choose(waiting.keys());
      const ofTest = live === undefined ? gate.chooseTest(tests.keys()) : undefined;
      if (live !== undefined) begin(waiting, live, gate.begin(live));
      else if (ofTest !== undefined) begin(tests, ofTest, gate.beginTest(ofTest));
      else return;
    }
  };
  gate.onChange = serve;
  /** Resolves to the milliseconds until the relay takes the e-mail. */
  const mail = (
    partnerId: string,
    ofMs: number,
    handOver = accepted,
    queue = waiting,
  ): Promise<number> => {
    const askedAt = performance.now();
    return new Promise((resolve) => {
      const work = async (place: ReturnType<MailGate['begin']>): Promise<void> => {
        await place.turn(never);
        await new Promise((done) => setTimeout(done, ofMs));
        place.note(handOver);
        resolve(performance.now() - askedAt);
      };
      queue.set(partnerId, [...(queue.get(partnerId) ?? []), work]);
      serve();
    });
  };
  const testMail = (partnerId: string, ofMs: number, handOver = accepted) =>
    mail(partnerId, ofMs, handOver, tests);
  const passes = (ms: number): Promise<void> => jest.advanceTimersByTimeAsync(ms);
  return { gate, mail, testMail, passes, told, inHand: () => inHand, begun: () => begun };
}

const NEVER_MS = 600_000;
const QUICK_MS = 50;
test.each([2, 3, 4, 32, 1_000].flatMap((places) => [1, 2, 5, 40].map((slow) => [places, slow])))(
  'with %d places, silent recipients of %d partners delay no other by more than a place is held',
  async (places, slow) => {
    const { mail, passes, inHand, gate } = scene({ places });
    const random = newRandom(places * 100 + slow);
    const adversaries = Array.from({ length: slow }, (_, n) => `slow${n}`);
    for (const partner of adversaries)
      for (let n = 0; n < Math.min(200, 3 * places); n += 1)
        void mail(partner, random.chance(0.1) ? random.between(QUICK_MS, 30_000) : NEVER_MS);
    // In the first round no partner is known as slow or quick.
    await passes(HELD_MS * (1 + Math.ceil(slow / places)));
    for (let round = 0; round < 10; round += 1) {
      let tookMs = Infinity;
      void mail(round < 5 ? 'victim' : `new${round}`, QUICK_MS).then((ms) => (tookMs = ms));
      await passes(HELD_MS + QUICK_MS);
      expect(tookMs).toBeLessThan(Infinity);
      await passes(random.between(0, 20_000));
    }
    // The backlog of one partner then goes out as fast as the relay takes it.
    let done = 0;
    for (let n = 0; n < 20; n += 1) void mail('victim', QUICK_MS).then(() => (done += 1));
    await passes(HELD_MS + 20 * QUICK_MS);
    expect(done).toBe(20);
    expect(inHand()).toBeLessThanOrEqual(2 * places * slow + places);
    gate.close();
  },
);

test('a relay that answers no e-mail is told of, until it answers one', async () => {
  const { mail, passes, gate } = scene();
  void mail('one', 2 * SILENT_MS);
  await passes(SILENT_MS - 1);
  expect(gate.isSilent).toBe(false);
  await passes(1);
  expect(gate.isSilent).toBe(true);
  void mail('other', QUICK_MS);
  await passes(QUICK_MS);
  expect(gate.isSilent).toBe(false);
  // While it answers others, one silent recipient is no fault of the relay.
  void mail('third', 2 * SILENT_MS);
  await passes(QUICK_MS);
  void mail('other', QUICK_MS);
  await passes(SILENT_MS);
  expect(gate.isSilent).toBe(false);
  gate.close();
});

test('a slow partner is served in turn beside the backlog of another', async () => {
  const { mail, passes, gate } = scene({ places: 2 });
  void mail('slow', NEVER_MS);
  await passes(HELD_MS);
  for (let n = 0; n < 500; n += 1) void mail('bulk', QUICK_MS);
  let tookMs = Infinity;
  void mail('slow', QUICK_MS).then((ms) => (tookMs = ms));
  await passes(1_000);
  expect(tookMs).toBeLessThan(1_000);
  gate.close();
});

test('a place is idle only while no e-mail may go', async () => {
  const { mail, passes, inHand, gate } = scene({ places: 4 });
  for (let n = 0; n < 10; n += 1) void mail('slow', 5_000);
  await passes(0);
  expect(inHand()).toBe(4);
  await passes(2 * HELD_MS);
  const ofSlow = inHand();
  for (let n = 0; n < 10; n += 1) void mail('other', QUICK_MS);
  await passes(0);
  expect(inHand()).toBe(ofSlow + 4);
  gate.close();
});

test.each<[Outage['reason'], HandOver]>([
  ['unreachable', unreachable],
  ['refused', refused(550, 'refused')],
  ['no_capacity', noCapacity],
])('%s: no e-mail begins until a probe succeeds', async (reason, failed) => {
  let well = false;
  let probes = 0;
  const probe = async (): Promise<Outage | undefined> => {
    probes += 1;
    return well ? undefined : outageOf(reason);
  };
  const { gate, mail, passes, told, begun } = scene({ probe });
  void mail('acme', QUICK_MS, failed);
  await passes(60_000);
  expect(gate.paused).toBe(reason);
  // After 250 ms, doubling to at most 15 s: eight to ten in a minute.
  expect(probes).toBeGreaterThan(7);
  expect(probes).toBeLessThan(13);
  const waiting = mail('acme', QUICK_MS);
  await passes(60_000);
  expect(begun()).toBe(1);
  well = true;
  await passes(15_000 + QUICK_MS);
  await waiting;
  expect(gate.paused).toBeUndefined();
  expect(told.filter((one) => one === undefined)).toHaveLength(1);
  gate.close();
});

test('an e-mail that began before the end of a pause starts no new pause', async () => {
  const { gate, mail, passes, told } = scene();
  for (const ofMs of [QUICK_MS, 10_000]) void mail('acme', ofMs, unreachable);
  await passes(20_000);
  expect(gate.paused).toBeUndefined();
  expect(told.filter((one) => one !== undefined)).toEqual(['unreachable']);
  gate.close();
});

test('while the relay takes other e-mails, a 4xx answer rests only one place', async () => {
  const { gate, mail, passes, begun } = scene({ places: 2 });
  for (let n = 0; n < 40; n += 1) void mail('acme', QUICK_MS);
  await passes(QUICK_MS);
  void mail('other', QUICK_MS, noCapacity);
  await passes(2 * QUICK_MS);
  expect(gate.paused).toBeUndefined();
  const before = begun();
  await passes(REST_MS / 2);
  expect(begun() - before).toBe(REST_MS / 2 / QUICK_MS);
  gate.close();
});

/** One moment each 100 ms. */
function paceOfTen() {
  let nextMs = 0;
  const wait = () => Math.max(0, nextMs - performance.now());
  const reserve = async () => {
    const waitMs = wait();
    nextMs = performance.now() + waitMs + 100;
    return waitMs;
  };
  return {
    waitingAtMost: 2,
    reserve,
    reserveNow: async () => (wait() > 0 ? wait() : reserve()),
  };
}

test('e-mails of tests go one at a time behind all live ones, and take every moment left', async () => {
  const pace = paceOfTen();
  const { mail, testMail, passes, inHand, gate } = scene({ pace });
  const order: string[] = [];
  const note = (name: string) => () => void order.push(name);
  for (let n = 0; n < 30; n += 1) void testMail('flood', QUICK_MS).then(note('flood'));
  void testMail('other', QUICK_MS).then(note('other'));
  await passes(10);
  expect(inHand()).toBe(1);
  for (let n = 0; n < 10; n += 1) void mail('acme', QUICK_MS).then(note('live'));
  await passes(10 * 100 + QUICK_MS);
  // One was in flight.
  expect(order).toEqual(['flood', ...Array.from({ length: 10 }, () => 'live')]);
  order.length = 0;
  await passes(1_000);
  expect(order).toHaveLength(10);
  expect(order).toContain('other');
  gate.close();
});

test.each([1, 4])(
  'a silent recipient of tests, with %d places, holds up no live e-mail and no test of another partner',
  async (places) => {
    const { mail, testMail, passes, inHand, gate } = scene({ places });
    for (let n = 0; n < 10; n += 1) void testMail('slow', NEVER_MS);
    await passes(0);
    const ends: string[] = [];
    void testMail('other', QUICK_MS).then(() => ends.push('test'));
    void mail('acme', QUICK_MS).then(() => ends.push('live'));
    await passes(HELD_MS + 2 * QUICK_MS);
    expect(ends).toEqual(['live', 'test']);
    expect(inHand()).toBe(1);
    expect(gate.isSilent).toBe(false);
    gate.close();
  },
);

test('while the relay takes no e-mail, none of a test begins; one learns of it as a live one does', async () => {
  let well = false;
  const probe = async () => (well ? undefined : outageOf('unreachable'));
  const { gate, testMail, passes, begun } = scene({ probe });
  for (let n = 0; n < 5; n += 1) void testMail('acme', QUICK_MS, n === 0 ? unreachable : accepted);
  await passes(60_000);
  expect(gate.paused).toBe('unreachable');
  expect(begun()).toBe(1);
  well = true;
  await passes(15_000 + 5 * QUICK_MS);
  expect(begun()).toBe(5);
  gate.close();
});

test('few e-mails wait for the common pace, and each reserves one moment', async () => {
  const pace = paceOfTen();
  const { mail, passes, inHand, gate } = scene({ pace });
  const took = Array.from({ length: 10 }, () => mail('acme', QUICK_MS));
  await passes(10);
  expect(inHand()).toBeLessThanOrEqual(1 + pace.waitingAtMost);
  await passes(2_000);
  const times = await Promise.all(took);
  for (const [n, ms] of times.slice(1).entries()) expect(ms - times[n]!).toBeGreaterThan(99);
  gate.close();
});
