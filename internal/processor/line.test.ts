import { expect, test } from '@jest/globals';
import type { MailPlace } from '../mail/mail-gate.ts';
import { Line, TEST_MAILS_WAITING, type LineOptions, type Work } from './line.ts';

const settled = (): Promise<void> => new Promise((resolve) => void setImmediate(resolve));

/** Work lasts until the test ends it; the gate has one place. */
function scene(slots = 1, options: Pick<LineOptions, 'testsMail'> = {}) {
  const begun: string[] = [];
  const places: (MailPlace | undefined)[] = [];
  const ends = new Map<string, () => void>();
  const goOn = new Map<string, () => void>();
  let free = true;
  const gate: LineOptions['gate'] = {
    choose: ([partnerId]) => (free ? partnerId : undefined),
    begin: () => {
      free = false;
      return {
        turn: () => Promise.resolve(),
        note: () => 'mail',
        release: () => void (free = true),
      };
    },
    chooseTest: () => undefined,
    beginTest: () => {
      throw new Error('no e-mail of a test may begin');
    },
    onChange: () => {},
    slow: 0,
  };
  const line = new Line({
    ...options,
    slots,
    gate,
    holds: { has: () => false },
    work: ({ requestId }, place, freeSlot) => {
      begun.push(requestId);
      goOn.set(requestId, () => freeSlot(requestId));
      places.push(place);
      return new Promise((resolve) => ends.set(requestId, () => resolve(undefined)));
    },
  });
  const end = async (requestId: string): Promise<void> => {
    ends.get(requestId)?.();
    await settled();
  };
  return { line, begun, places, goOn, end };
}

const work = (requestId: string, given: Partial<Work> = {}): Work => ({
  requestId,
  version: 0,
  partnerId: requestId.slice(0, 1),
  step: 'account',
  dueAt: new Date(0),
  ...given,
});

test('accounts and e-mails take places in turn, and one account may begin although e-mails hold all places', async () => {
  const { line, begun, places, end } = scene(2);
  line.put([1, 2, 3].map((n) => work(`m${n}`, { step: 'mail' })));
  line.put([1, 2, 3].map((n) => work(`a${n}`)));
  expect(begun).toEqual(['m1', 'a1']);
  await end('m1');
  await end(begun.at(-1)!);
  expect(new Set(begun.slice(2).map((id) => id[0]))).toEqual(new Set(['a', 'm']));
  expect(places.filter((place) => place === undefined)).toHaveLength(1);
});

test('an account whose e-mail goes on in its place leaves its slot, and stays in hand', async () => {
  const { line, begun, goOn, end } = scene();
  line.put(['a1', 'a2', 'a3'].map((id) => work(id)));
  expect(begun).toEqual(['a1']);
  goOn.get('a1')!();
  expect(begun).toEqual(['a1', 'a2']);
  expect(line.hasten('a1')).toBe(true);
  await end('a1');
  expect(line.hasten('a1')).toBe(false);
  expect(begun).toEqual(['a1', 'a2']);
  await end('a2');
  expect(begun).toEqual(['a1', 'a2', 'a3']);
});

test('what is hastened comes before all other work of its partner', async () => {
  const { line, begun, end } = scene();
  line.pause();
  line.put(['a1', 'a2', 'a3', 'a4'].map((id) => work(id, { dueAt: new Date(1) })));
  expect([line.hasten('a4'), line.hasten('a4'), line.hasten('b1')]).toEqual([true, true, false]);
  line.resume();
  expect(begun[0]).toBe('a4');
  expect(line.hasten('a4')).toBe(true);
  await end('a4');
  expect(line.hasten('a4')).toBe(false);
  expect(begun).not.toContain('a3');
});

test('of a hundred tests of a partner the e-mail waits, and of more it is not sent; others have their own', () => {
  const { line, begun, places } = scene(1, { testsMail: true });
  const mails = (partner: string, count: number) =>
    Array.from({ length: count }, (_, n) =>
      work(`${partner}${n}`, { step: 'mail', test: true, dueAt: new Date(n) }),
    );
  line.put(mails('a', TEST_MAILS_WAITING + 2));
  line.put(mails('b', 1));
  line.put([work('c0', { step: 'mail', test: true, probe: 'outcome' })]);
  expect(begun).toEqual([`a${TEST_MAILS_WAITING}`, `a${TEST_MAILS_WAITING + 1}`, 'c0']);
  expect(places).toEqual([undefined, undefined, undefined]);
  line.put([work('d0', { step: 'mail', test: true, probe: 'mail' })]);
  expect(begun).toContain('d0');
  expect(places.at(-1)).toBeDefined();
});

test('a pause starts no work, and closing waits for the work that has started', async () => {
  const { line, begun, end } = scene();
  line.put([work('a1'), work('a2'), work('a3')]);
  line.pause();
  await end('a1');
  expect(begun).toEqual(['a1']);
  line.resume();
  expect(begun).toEqual(['a1', 'a2']);
  let left: readonly Work[] | undefined;
  void line.close(new AbortController().signal).then((works) => (left = works));
  await settled();
  expect(left).toBeUndefined();
  await end('a2');
  expect(left).toEqual([work('a3')]);
  expect(begun).toEqual(['a1', 'a2']);
});

test('a line that has closed stays closed, and none can pause twice', async () => {
  const { line, begun } = scene();
  line.pause();
  expect(() => line.pause()).toThrow('the line is paused');
  await line.close(AbortSignal.abort());
  line.resume();
  line.put([work('a1')]);
  expect(begun).toEqual([]);
  await expect(line.close(AbortSignal.abort())).rejects.toThrow('the line is closed');
});
