import { expect, test } from '@jest/globals';
import { BusyPartners } from './busy-partners.ts';

function newShares() {
  const time = { ms: 5_000 };
  const shares = new BusyPartners(() => time.ms);
  const many = (partner: string, count: number): number =>
    Array.from({ length: count }, () => shares.isOneOfMany(partner)).filter(Boolean).length;
  return { time, many };
}

test('the hints of a partner beyond the first hundred are many, those of another are not', () => {
  const { many } = newShares();
  expect(many('big', 150)).toBe(50);
  expect(many('small', 100)).toBe(0);
});

test('a partner that goes on sending much stays one of many; after a pause it goes first again', () => {
  const { time, many } = newShares();
  many('big', 150);
  time.ms += 10_000;
  expect(many('big', 10)).toBe(10);
  time.ms += 20_000;
  expect(many('big', 10)).toBe(0);
});
