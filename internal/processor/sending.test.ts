import { expect, test } from '@jest/globals';
import type { HandOver } from '../mail/mailer.ts';
import { PACE_LONGEST_MS } from '../mail/limits.ts';
import { Sending } from './sending.ts';

/** Whether the relay's answers have slowed the sending down: the second of two mails at once has to wait. */
async function slowsDown(handOver: HandOver): Promise<boolean> {
  let nowMs = 0;
  const clock = { now: () => new Date(nowMs), monotonicMs: () => nowMs };
  const sending = new Sending({ slots: 8, perSecond: 0, clock, refused: { set: () => {} } });
  const mail = { accountId: 'acc_1', email: 'a@example.com', signal: new AbortController().signal };
  for (const atMs of [0, PACE_LONGEST_MS]) {
    nowMs = atMs;
    await sending.inTurn(mail, () => Promise.resolve(handOver));
  }
  nowMs += PACE_LONGEST_MS;
  const [first, second] = [sending.turnNow('b@example.com'), sending.turnNow('c@example.com')];
  expect(first).toBeDefined();
  return second === undefined;
}

const unreachable = { result: 'unreachable', connected: false } as const;

test.each<[string, HandOver, boolean]>([
  ['421 at the greeting', { ...unreachable, cause: 'EPROTOCOL CONN 421', busy: true }, true],
  ['451 after the content', { result: 'refused', phase: 'content', code: 451, enhancedCode: '4.3.0' }, true],
  ['no connection', { ...unreachable, cause: 'ESOCKET CONN' }, false],
  ['accepted', { result: 'accepted', answer: '250 ok' }, false],
])('%s', async (_name, handOver, expected) => {
  expect(await slowsDown(handOver)).toBe(expected);
});
