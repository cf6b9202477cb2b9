/** Simulated clock: 100,000 mails that wait for a relay with a quota. */
import { expect, test } from '@jest/globals';
import { PACE_LONGEST_MS, PACE_SHRINKING } from './limits.ts';
import { SendingPace } from './sending-pace.ts';

const MAILS = 100_000;
const PER_SECOND = 14;
const SLOTS = 16;
const LATENCY_MS = 40;
const AGAIN_MS = 30_000;

/** How long processes with a pace each need at a relay that takes `PER_SECOND` and a second's burst, and how often they ask. */
function drain(processes: number, newPace = (): SendingPace => new SendingPace(0)) {
  const paces = Array.from({ length: processes }, newPace);
  let [tokens, refilledMs] = [PER_SECOND, 0];
  const parked: number[] = [];
  let [waiting, asked, done, lastMs] = [MAILS, 0, 0, 0];
  // The slot whose turn or answer comes first goes on.
  const slots = paces.flatMap((pace) => Array.from({ length: SLOTS }, () => ({ pace, atMs: 0, asking: false })));
  while (done < MAILS) {
    const slot = slots.reduce((first, other) => (other.atMs < first.atMs ? other : first));
    const { pace, atMs: now } = slot;
    if (slot.asking) {
      slot.asking = false;
      asked += 1;
      tokens = Math.min(PER_SECOND, tokens + ((now - refilledMs) * PER_SECOND) / 1_000);
      refilledMs = now;
      const throttled = tokens < 1;
      pace.note(throttled ? 'throttled' : 'taken', now);
      if (throttled) parked.push(now + AGAIN_MS);
      else {
        tokens -= 1;
        done += 1;
        lastMs = now;
      }
    } else if ((parked[0] ?? Infinity) <= now || waiting > 0) {
      if ((parked[0] ?? Infinity) <= now) parked.shift();
      else waiting -= 1;
      slot.asking = true;
      slot.atMs = now + pace.takeTurn(now) + LATENCY_MS;
    } else slot.atMs = Math.max(now + 1, parked[0] ?? now + 1_000);
  }
  return { asked, seconds: lastMs / 1_000 };
}

test.each([1, 3])(
  '%i processes use the whole quota of a relay, and ask hardly more often than it takes',
  (processes) => {
    const { asked, seconds } = drain(processes);
    console.log(
      `${processes}: ${Math.round(seconds)} s of ${Math.round(MAILS / PER_SECOND)}, asked ${asked / MAILS} times`,
    );
    expect(seconds).toBeLessThan((MAILS / PER_SECOND) * 1.05);
    expect(asked).toBeLessThan(MAILS * 1.05);
  },
);

test('an operator bounds the pace', () => {
  const { seconds, asked } = drain(1, () => new SendingPace(7));
  expect(asked).toBe(MAILS);
  expect(seconds).toBeGreaterThan((MAILS / 7) * 0.99);
});

test('a single answer to slow down takes half of the pace at most', () => {
  const pace = new SendingPace(0);
  pace.note('throttled', 0);
  pace.note('taken', PACE_LONGEST_MS);
  pace.takeTurn(PACE_LONGEST_MS);
  expect(pace.takeTurn(PACE_LONGEST_MS)).toBeCloseTo(1_000 / (50 * PACE_SHRINKING));
});

test.each([
  ['took nothing at all', () => false, true],
  // It has a quota, so it is asked carefully for more.
  ['took one mail in twenty', (asked: number) => asked % 20 === 0, false],
])(
  'a relay that %s for a minute, and then takes all: asked as often as before within a minute?',
  (_what, takes, soon) => {
    const pace = new SendingPace(0);
    let now = 0;
    const ask = (untilMs: number, answers: (asked: number) => boolean): number => {
      let asked = 0;
      for (; now < untilMs; asked += 1) {
        now += Math.max(1, pace.takeTurn(now));
        pace.note(answers(asked) ? 'taken' : 'throttled', now);
      }
      return asked;
    };
    ask(60_000, takes);
    expect(ask(120_000, () => true) > 1_000).toBe(soon);
  },
);
