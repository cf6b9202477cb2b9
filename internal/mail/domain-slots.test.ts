import { expect, test } from '@jest/globals';
import { systemClock as clock } from '../platform/clock.ts';
import { DomainSlots } from './domain-slots.ts';

test('a domain that answers none of its mails holds a quarter of the slots, and the others go on', async () => {
  const slots = new DomainSlots(16, clock);
  const takes = await Promise.all(Array.from({ length: 100 }, () => slots.take('slow.example')));
  expect(takes.filter(Boolean)).toHaveLength(4);
  expect(await slots.take('fast.example')).toBe(true);
  // It is known to be slow now, so its next mail does not wait.
  expect(await slots.take('slow.example')).toBe(false);
  slots.release('slow.example');
  expect(await slots.take('slow.example')).toBe(true);
});

test('a slot that becomes free goes to the mail that waits for it', async () => {
  const slots = new DomainSlots(4, clock);
  expect(await slots.take('one.example')).toBe(true);
  const second = slots.take('one.example');
  slots.release('one.example');
  expect(await second).toBe(true);
  const third = slots.take('one.example');
  expect(await third).toBe(false);
});

test('a domain that goes on is not slow, however many mails wait for it', async () => {
  const slots = new DomainSlots(4, clock);
  expect(await slots.take('one.example')).toBe(true);
  const [second, third] = [slots.take('one.example'), slots.take('one.example')];
  slots.release('one.example');
  expect([await second, await third]).toEqual([true, false]);
  // Not slow, so a mail waits for the slot.
  const fourth = slots.take('one.example');
  slots.release('one.example');
  expect(await fourth).toBe(true);
});
