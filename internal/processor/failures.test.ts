import { describe, expect, test } from '@jest/globals';
import { MongoError, MongoNetworkError, MongoServerError, MongoServerSelectionError } from 'mongodb';
import type { HandOver } from '../mail/mailer.ts';
import { DeadlineError } from '../platform/deadline.ts';
import { NotDurableError } from '../platform/mongo.ts';
import { classOfError, classOfHandOver, verdict } from './failures.ts';
import {
  ATTEMPT_BACKOFF,
  BUSY_RETRY,
  MAX_AMBIGUOUS,
  MAX_ATTEMPTS,
  OURS_RETRY,
  PARKED_AT_MOST_MS,
  PARKED_RETRY_MS,
} from './limits.ts';

const HOUR_MS = 3_600_000;
/** `backoffMs` without jitter: its middle. */
const middle = (): number => 0.5;

describe('verdict', () => {
  const everyCount = Array.from({ length: MAX_ATTEMPTS + 3 }, (_, attempts) => attempts).flatMap((attempts) =>
    Array.from({ length: MAX_AMBIGUOUS + 2 }, (_, ambiguous) => ({ attempts, ambiguous, waitedMs: 0 })),
  );

  test('a permanent failure is undeliverable, whatever went before', () => {
    for (const counts of everyCount) {
      expect(verdict('permanent', counts)).toEqual({ do: 'finish', event: 'bounce' });
    }
  });

  test('an outage parks the record and pauses the worker', () => {
    for (const counts of everyCount) {
      expect(verdict('infrastructure', counts)).toEqual({ do: 'park', delayMs: PARKED_RETRY_MS, pauseWorker: true });
    }
  });

  test.each([
    ['ours', OURS_RETRY, HOUR_MS / 12],
    ['busy', BUSY_RETRY, HOUR_MS / 60],
  ] as const)(
    '%s parks the record alone, the longer the longer it has waited, within bounds',
    (failure, bounds, aThird) => {
      for (const { attempts, ambiguous } of everyCount) {
        const delayAfter = (waitedMs: number) => verdict(failure, { attempts, ambiguous, waitedMs }, middle);
        const park = (delayMs: number) => ({ do: 'park', delayMs, pauseWorker: false });
        expect(delayAfter(0)).toEqual(park(bounds.firstMs));
        expect(delayAfter(HOUR_MS / 3)).toEqual(park(aThird));
        expect(delayAfter(60 * HOUR_MS)).toEqual(park(bounds.capMs));
      }
    },
  );

  test.each(['infrastructure', 'ours', 'busy'] as const)('nothing is parked for ever: %s', (failure) => {
    const after = (waitedMs: number) => verdict(failure, { attempts: 0, ambiguous: 0, waitedMs });
    expect(after(PARKED_AT_MOST_MS - 1).do).toBe('park');
    expect(after(PARKED_AT_MOST_MS)).toEqual({ do: 'finish', event: 'give_up' });
  });

  test(`a transient failure is tried again until attempt ${MAX_ATTEMPTS}, then dead-lettered`, () => {
    for (const counts of everyCount) {
      expect(verdict('transient', counts).do).toBe(counts.attempts < MAX_ATTEMPTS ? 'retry' : 'finish');
    }
    const last = verdict('transient', { attempts: MAX_ATTEMPTS, ambiguous: 0, waitedMs: 0 });
    expect(last).toEqual({ do: 'finish', event: 'give_up' });
  });

  test('an ambiguous mail is sent again at most twice, then dead-lettered', () => {
    for (const counts of everyCount) {
      expect(verdict('ambiguous', counts).do).toBe(counts.ambiguous < 3 ? 'retry' : 'finish');
    }
    expect(verdict('ambiguous', { attempts: 0, ambiguous: 3, waitedMs: 0 })).toEqual({
      do: 'finish',
      event: 'give_up',
    });
  });

  const delay = (attempts: number, random = middle): number => {
    const what = verdict('transient', { attempts, ambiguous: 0, waitedMs: 0 }, random);
    if (what.do !== 'retry') throw new Error('no retry');
    return what.delayMs;
  };

  test('the delays double from 30 s to 4 h and add up to three days', () => {
    const delays = Array.from({ length: MAX_ATTEMPTS - 1 }, (_, index) => delay(index + 1));
    expect(delays.slice(0, 5)).toEqual([30_000, 60_000, 120_000, 240_000, 480_000]);
    expect(Math.max(...delays)).toBe(4 * HOUR_MS);
    expect(delays.filter((one) => one === 4 * HOUR_MS)).toHaveLength(17);
    const total = delays.reduce((sum, one) => sum + one, 0);
    expect(total / HOUR_MS).toBeGreaterThanOrEqual(72);
    expect(total / HOUR_MS).toBeLessThan(72.5);
  });

  test('jitter stays within its share', () => {
    for (const attempts of [1, 9, MAX_ATTEMPTS - 1]) {
      expect(delay(attempts, () => 0)).toBe(delay(attempts) * (1 - ATTEMPT_BACKOFF.jitter));
      expect(delay(attempts, () => 1)).toBe(delay(attempts) * (1 + ATTEMPT_BACKOFF.jitter));
    }
  });

  test('an ambiguous mail waits as a first or second attempt does', () => {
    const waits = [1, 2].map((ambiguous) => verdict('ambiguous', { attempts: 20, ambiguous, waitedMs: 0 }, middle));
    expect(waits).toEqual([
      { do: 'retry', delayMs: 30_000 },
      { do: 'retry', delayMs: 60_000 },
    ]);
  });
});

type Failed = Exclude<HandOver, { result: 'accepted' | 'aborted' }>;
const refused = (phase: 'mail' | 'rcpt' | 'data', code: number, enhancedCode?: string): Failed => ({
  result: 'refused',
  phase,
  code,
  enhancedCode,
});
const unreachable = (connected: boolean): Failed => ({ result: 'unreachable', connected, cause: 'ETIMEDOUT' });
const ambiguous: Failed = { result: 'ambiguous', cause: 'ECONNECTION' };

describe('class of a hand-over', () => {
  test.each([
    [unreachable(false), false, 'infrastructure'],
    [unreachable(false), true, 'infrastructure'],
    [unreachable(true), false, 'infrastructure'],
    [unreachable(true), true, 'transient'],
    [ambiguous, false, 'ambiguous'],
    [ambiguous, true, 'ambiguous'],
    [refused('mail', 451), true, 'busy'],
    [refused('mail', 550), true, 'ours'],
    [refused('mail', 550, '5.1.8'), true, 'ours'],
    [refused('mail', 451), false, 'infrastructure'],
    [refused('mail', 550), false, 'infrastructure'],
    [refused('rcpt', 450), true, 'busy'],
    [refused('rcpt', 550), true, 'ours'],
    [refused('rcpt', 550, '5.1.1'), true, 'permanent'],
    [refused('data', 550, '5.1.1'), true, 'permanent'],
    [refused('data', 554), true, 'ours'],
  ])('%j, relay answers %s: %s', (handOver, relayAnswers, expected) => {
    expect(classOfHandOver(handOver, relayAnswers)).toBe(expected);
  });
});

describe('class of an error', () => {
  const answered = (code: number): MongoServerError => new MongoServerError({ message: 'x', code });
  const retryable = new MongoServerError({ message: 'not primary' });
  retryable.addErrorLabel('RetryableWriteError');
  class PoolClearedError extends MongoError {
    override get name(): string {
      return 'MongoPoolClearedError';
    }
  }
  test.each([
    [new DeadlineError('x'), 'infrastructure'],
    [new MongoNetworkError('x'), 'infrastructure'],
    [Object.create(MongoServerSelectionError.prototype) as Error, 'infrastructure'],
    [retryable, 'infrastructure'],
    [new PoolClearedError('x'), 'infrastructure'],
    [new NotDurableError('x'), 'infrastructure'],
    ...[1, 64, 89, 91, 189, 10_107, 11_602, 13_435].map((code) => [answered(code), 'infrastructure'] as const),
    // A lost role, a wrong password, a full disk, a quota, a write concern the set cannot meet.
    ...[11, 13, 18, 79, 100, 8_000, 14_031].map((code) => [answered(code), 'ours'] as const),
    [{ code: 13 }, 'ours'],
    // A document that is too large is this record's own fault.
    [answered(10_334), 'transient'],
    [new MongoServerError({ message: 'x' }), 'transient'],
    [new TypeError('x'), 'transient'],
    ['x', 'transient'],
  ])('%s: %s', (error, expected) => {
    expect(classOfError(error)).toBe(expected);
  });
});
