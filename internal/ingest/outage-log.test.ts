/** An outage of the database is logged once, not for each request. */
import { expect, test } from '@jest/globals';
import { OUTAGE_LINES_EVERY_MS } from './limits.ts';
import { OutageLog } from './outage-log.ts';

test('an outage logs one line at its start and one at its end, at most every ten seconds', () => {
  let now = 0;
  const lines: string[] = [];
  const say = (level: string) => (fields: object, text?: string) =>
    void lines.push(`${level} ${text} ${JSON.stringify(fields)}`);
  const log = new OutageLog({
    clock: { now: () => new Date(now), monotonicMs: () => now },
    log: { warn: say('warn'), info: say('info') },
  });
  const see = (...kinds: ('stored' | 'not_stored' | 'in_doubt' | 'unknown')[]): void =>
    kinds.forEach((kind) => {
      log.note(kind === 'stored' ? { kind } : { kind, reason: 'no_answer' });
    });
  const away = (result: string): string =>
    `warn mongodb is away, slow or refuses: requests are not recorded {"result":"${result}","reason":"no_answer"}`;
  const back = (seconds: number): string =>
    `info mongodb is back: requests are recorded again {"seconds":${seconds}}`;

  see('stored', 'not_stored', 'in_doubt', 'unknown');
  now += OUTAGE_LINES_EVERY_MS;
  see('not_stored', 'stored', 'stored');
  expect(lines).toEqual([away('not_stored'), back(10)]);
  see('in_doubt', 'stored', 'in_doubt', 'stored', 'in_doubt');
  expect(lines.slice(2)).toEqual([away('in_doubt'), back(0)]);
  now += OUTAGE_LINES_EVERY_MS;
  see('not_stored');
  expect(lines.slice(4)).toEqual([away('not_stored')]);
});
