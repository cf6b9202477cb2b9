import { describe, expect, test } from '@jest/globals';
import { MongoNetworkError, MongoServerError } from 'mongodb';
import { DeadlineError, JITTER } from '../platform/process/deadline.ts';
import { NotDurableError } from '../platform/stores/mongo.ts';
import {
  BACK_OFFS,
  BACKED_OFF_AT_MOST_MS,
  classOfError,
  verdictOfFailure,
  type FailureClass,
  MAX_AMBIGUOUS,
} from './verdict.ts';

const middle = (): number => 0.5;

function verdict(
  failure: FailureClass,
  { ambiguous, backedOffMs }: { readonly ambiguous: number; readonly backedOffMs: number },
  random = Math.random,
) {
  const fact = { code: 'step_failed', words: 'x' } as const;
  return verdictOfFailure({ attempts: 0, backedOffMs }, { failure, fact, ambiguous }, random);
}
const none = { ambiguous: 0, backedOffMs: 0 };

describe('verdict', () => {
  test.each(['infrastructure', 'relay'] as const)(
    '%s counts no attempt, however long it lasts',
    (failure) => {
      const long = { ambiguous: 2, backedOffMs: 10 * BACKED_OFF_AT_MOST_MS };
      expect(verdict(failure, none)).toMatchObject({ kind: 'later' });
      expect(verdict(failure, long)).toMatchObject({ kind: 'later' });
    },
  );

  test('an ambiguous mail is sent again at most twice, then dead-lettered', () => {
    for (let ambiguous = 1; ambiguous <= MAX_AMBIGUOUS + 1; ambiguous += 1) {
      const { kind } = verdict('ambiguous', { ambiguous, backedOffMs: 0 });
      expect(kind).toBe(ambiguous < MAX_AMBIGUOUS ? 'again' : 'end');
    }
  });

  /** Returns the delays until the record is given up. */
  function delaysOf(failure: keyof typeof BACK_OFFS, random = middle): number[] {
    const delays: number[] = [];
    for (let backedOffMs = 0; delays.length < 100_000;) {
      const what = verdict(failure, { ambiguous: 1, backedOffMs }, random);
      if (what.kind !== 'again') return delays;
      delays.push(what.delayMs);
      backedOffMs += what.delayMs;
    }
    throw new Error('it is never given up');
  }

  test('a relay that cuts connections for half an hour makes no dead letter', () => {
    // Time that it backed off for other reasons makes no difference.
    const delayOf = (ambiguous: number, backedOffMs: number) => {
      const what = verdict('ambiguous', { ambiguous, backedOffMs }, () => 0);
      return what.kind === 'again' ? what.delayMs : 0;
    };
    for (const backedOffMs of [0, 60_000, 86_400_000]) {
      expect(delayOf(1, backedOffMs)).toBeLessThanOrEqual(30_000);
      expect(delayOf(2, backedOffMs)).toBeGreaterThan(30 * 60_000);
    }
  });

  test.each(Object.keys(BACK_OFFS) as (keyof typeof BACK_OFFS)[])(
    '%s is tried again for three days and then given up',
    (failure) => {
      const { firstMs, capMs } = BACK_OFFS[failure];
      for (const random of [() => 0, middle, () => 1]) {
        const delays = delaysOf(failure, random);
        expect(Math.min(...delays)).toBeGreaterThanOrEqual(firstMs * (1 - JITTER));
        expect(Math.max(...delays)).toBeLessThanOrEqual(capMs * (1 + JITTER));
        const total = delays.reduce((sum, one) => sum + one, 0);
        expect(total).toBeGreaterThanOrEqual(BACKED_OFF_AT_MOST_MS);
        expect(total).toBeLessThanOrEqual(BACKED_OFF_AT_MOST_MS + capMs * (1 + JITTER));
      }
    },
  );
});

describe('class of an error', () => {
  const answered = (code: number): MongoServerError => new MongoServerError({ message: 'x', code });
  const retryable = new MongoServerError({ message: 'not primary' });
  retryable.addErrorLabel('RetryableWriteError');
  test.each([
    [new DeadlineError('x'), 'infrastructure'],
    [new MongoNetworkError('x'), 'infrastructure'],
    [retryable, 'infrastructure'],
    [new NotDurableError('x'), 'infrastructure'],
    ...[1, 91, 10_107].map((code) => [answered(code), 'infrastructure'] as const),
    // Codes of a missing role, a wrong password, a full disk and an unsatisfiable write concern.
    ...[13, 8_000, 14_031].map((code) => [answered(code), 'ours'] as const),
    // A document that is too large is the fault of its record.
    [answered(10_334), 'transient'],
    [new TypeError('x'), 'transient'],
  ])('%s: %s', (error, expected) => {
    expect(classOfError(error)).toBe(expected);
  });
});
