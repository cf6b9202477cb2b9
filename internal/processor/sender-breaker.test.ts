import { expect, test } from '@jest/globals';
import { BREAKER_LEAST, BREAKER_TRIAL_MS } from './limits.ts';
import { SenderBreaker } from './sender-breaker.ts';

function scene() {
  const told = { refused: -1, nowMs: 0 };
  const clock = { now: () => new Date(told.nowMs), monotonicMs: () => told.nowMs };
  const refused = { set: (value: number) => void (told.refused = value) };
  return { told, breaker: new SenderBreaker({ clock, refused }) };
}

test('one mail that is refused again and again stops nobody', () => {
  const { told, breaker } = scene();
  for (let index = 0; index < 50; index += 1) breaker.note('acc_1', true);
  expect([breaker.mayBegin(), told.refused]).toEqual([true, 0]);
});

test('a few refusals among many mails stop nobody', () => {
  const { told, breaker } = scene();
  for (let index = 0; index < 60; index += 1) breaker.note(`acc_${index}`, index % 3 === 0 && index > 3);
  expect([breaker.mayBegin(), told.refused]).toEqual([true, 0]);
});

test('refused to most: one mail a minute is tried, until one is taken', () => {
  const { told, breaker } = scene();
  for (let index = 0; index < BREAKER_LEAST; index += 1) breaker.note(`acc_${index}`, true);
  expect([breaker.mayBegin(), told.refused]).toEqual([false, 1]);
  told.nowMs += BREAKER_TRIAL_MS;
  expect([breaker.mayBegin(), breaker.mayBegin()]).toEqual([true, false]);
  breaker.note('acc_9', true);
  expect([breaker.mayBegin(), told.refused]).toEqual([false, 1]);
  told.nowMs += BREAKER_TRIAL_MS;
  expect(breaker.mayBegin()).toBe(true);
  breaker.note('acc_9', false);
  expect([breaker.mayBegin(), breaker.mayBegin(), told.refused]).toEqual([true, true, 0]);
});
