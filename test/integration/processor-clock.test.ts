/** Local clocks that leap: processes go by the database's time. */
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import type { ServiceProcess } from '../../deploy/local/processes.ts';
import { LEAPS, leapingClock } from '../support/leaping-clock.ts';
import { submit } from '../support/processing.ts';
import { HEAL_HANG_MS, eventually } from '../support/wait.ts';
import { newApplication, openWorld, type World } from '../support/world.ts';

const APPLICANTS = 12;

let world: World;
beforeAll(async () => {
  world = await openWorld();
});
afterAll(() => world.close());

test('no other processor sends the e-mails in hand, however a clock leaps', async () => {
  const ingest = await world.start('ingest');
  const settings = { MAIL_CONNECTIONS: String(2 * APPLICANTS), ...leapingClock() };
  /** The catcher asks at RCPT, at DATA and after the content. */
  const met = new Map<string, number>();
  world.mail.setFault(({ rcptTo: [to = ''] }) => {
    met.set(to, (met.get(to) ?? 0) + 1);
    return { at: 'data', hang: true };
  });
  const holder = await world.spawn('processor', settings);
  const applications = Array.from({ length: APPLICANTS }, () => newApplication());
  const ids = await Promise.all(
    applications.map((application) => submit(world, ingest, application)),
  );
  const claims = async () =>
    (await world.records({ _id: { $in: ids } })).map(({ claimedUntil }) => claimedUntil?.getTime());
  await eventually('all to be mailed', () =>
    applications.every(({ email }) => met.get(email) === 3),
  );
  world.mail.setFault(undefined);
  const other = await world.spawn('processor', settings);
  const mailed = (): number =>
    applications.flatMap(({ email }) => world.mail.mailsTo(email)).length;
  try {
    for (let leap = 0; leap < LEAPS; leap += 1) {
      const before = await claims();
      for (const process of leap === 0 ? [other] : [other, holder]) process.child.kill('SIGUSR2');
      await eventually(
        'the claims to be renewed, or the mails',
        async () =>
          mailed() > 0 || (await claims()).every((until, index) => until! > before[index]!),
        HEAL_HANG_MS,
      );
      expect(mailed()).toBe(0);
    }
    const next = await submit(world, ingest, newApplication());
    await world.recordIn('completed', next);
  } finally {
    holder.child.kill('SIGKILL');
  }
});

test('a record has the right time and is processed at once, although clocks are wrong', async () => {
  const processes: ServiceProcess[] = [];
  for (const seconds of [3_600, -30 * 86_400]) {
    const ingest = await world.spawn('ingest', leapingClock(seconds));
    const controller = await world.spawn('controller', leapingClock(-seconds));
    processes.push(ingest, controller);
    const before = Date.now();
    const id = await submit(world, ingest, newApplication());
    const { receivedAt } = await world.recordIn('completed', id);
    expect(Math.abs(receivedAt.getTime() - before)).toBeLessThan(60_000);
  }
  for (const process of processes) expect(await process.stop()).toBe(0);
});
