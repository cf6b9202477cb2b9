/**
 * Workers during and after an outage of Redis, under load. A killed Redis breaks connections; a
 * hung one leaves them open.
 */
/* oxlint-disable node/no-process-env -- LONG is a choice of the person who runs the tests */
import { afterAll, afterEach, expect, test } from '@jest/globals';
import { heal, hurryReconcile, openOwnWorld, submit } from '../support/processing.ts';
import { HANG_MS, HEAL_HANG_MS, eventually } from '../support/wait.ts';
import { newApplication } from '../support/world.ts';

type How = 'killed' | 'hung' | 'full' | 'answering errors';
const OUTAGES: readonly { readonly how: How; readonly seconds: number }[] = [
  { how: 'killed', seconds: 1 },
  { how: 'hung', seconds: 10 },
  { how: 'full', seconds: 10 },
  { how: 'answering errors', seconds: 10 },
];
const LONG_OUTAGES = [
  { how: 'hung', seconds: 1 },
  { how: 'killed', seconds: 10 },
  { how: 'killed', seconds: 300 },
  { how: 'hung', seconds: 300 },
] as const;
const long = (process.env['LONG'] ?? '') !== '';

/** One a second in a long outage, so that its backlog does not dominate the time. */
const betweenSubmissionsMs = (seconds: number): number => (seconds > 60 ? 1_000 : 100);
const BETWEEN_PROBES_MS = 250;

const own = await openOwnWorld();
const { world } = own;
afterAll(() => own.close());
// The test's own client loses Redis too; without a listener that would fail the test.
world.stores.redis.on('error', () => {});
const ingest = await world.start('ingest');
const processor = await world.spawn('processor');

afterEach(async () => {
  for (const one of repeating.splice(0)) one.abandon();
  await heal(own.redis);
});

/** Loops that a failed test left running. */
const repeating: { abandon(): void }[] = [];

/** Repeats `act` until stopped; `stop` rejects if one failed. */
function repeatedly(everyMs: number, act: () => Promise<void>): { stop(): Promise<void> } {
  const acts: Promise<void>[] = [];
  const failures: unknown[] = [];
  const timer = setInterval(
    () => acts.push(act().catch((error: unknown) => void failures.push(error))),
    everyMs,
  );
  repeating.push({ abandon: () => clearInterval(timer) });
  return {
    stop: async () => {
      clearInterval(timer);
      await Promise.all(acts);
      expect(failures).toEqual([]);
    },
  };
}

const requeued = (): Promise<number> =>
  world.metric(processor, 'partner_ingest_reconcile_requeued_total');

const asks = (...command: [string, ...string[]]) => world.stores.redis.call(...command);
const harms: Readonly<Record<How, () => Promise<unknown>>> = {
  killed: () => own.redis.signal('SIGKILL'),
  hung: () => own.redis.signal('SIGSTOP'),
  full: () => asks('CONFIG', 'SET', 'maxmemory', '1'),
  'answering errors': () => asks('ACL', 'SETUSER', 'default', '-@scripting'),
};
const heals: Readonly<Record<How, () => Promise<unknown>>> = {
  killed: () => own.redis.restart(),
  hung: () => own.redis.signal('SIGCONT'),
  full: () => asks('CONFIG', 'SET', 'maxmemory', '0'),
  'answering errors': () => asks('ACL', 'SETUSER', 'default', '+@all'),
};

async function workGoesOnAfter(how: How, seconds: number): Promise<void> {
  const sent: { readonly id: string; readonly email: string }[] = [];
  const complaints: string[] = [];
  const load = repeatedly(betweenSubmissionsMs(seconds), async () => {
    const fields = newApplication();
    sent.push({ id: await submit(world, ingest, fields), email: fields.email });
  });
  const probing = repeatedly(BETWEEN_PROBES_MS, async () => {
    const answer = await fetch(`${processor.adminUrl}/livez`);
    if (answer.status !== 200) complaints.push(await answer.text());
  });
  await eventually(
    'work to flow',
    async () => (await world.records({ state: 'completed' })).length >= 3,
  );

  await harms[how]();
  const [awayAt, awaySince] = [performance.now(), new Date()];
  await eventually(
    'the outage to end',
    () => performance.now() - awayAt >= seconds * 1_000,
    seconds * 1_000 + HANG_MS,
  );
  if (seconds >= 10) {
    await eventually(
      'an application sent meanwhile to be mailed without Redis',
      async () =>
        (await world.records({ state: 'completed', receivedAt: { $gt: awaySince } })).length > 0,
    );
  }
  await heals[how]();
  const backAt = new Date();

  const first = await eventually(
    'an application sent since to be completed',
    async () => (await world.records({ state: 'completed', receivedAt: { $gte: backAt } }))[0],
    HEAL_HANG_MS,
  );
  const workingAgainMs = first.stateAt.getTime() - backAt.getTime();
  await load.stop();
  const ids = sent.map(({ id }) => id);
  await hurryReconcile(world, ids);
  await eventually(
    'all to be completed',
    async () =>
      (await world.records({ _id: { $in: ids }, state: 'completed' })).length === ids.length,
    HEAL_HANG_MS,
  );
  // The count of an earlier round of reconcile is final after this request.
  await world.recordIn('completed', await submit(world, ingest, newApplication()), HEAL_HANG_MS);
  // From now on hints bring the work, except those that Redis was too slow for.
  const failed = (): Promise<number> =>
    world.metric(ingest, 'partner_ingest_hints_total', { result: 'failed' });
  const [requeuedByNow, failedByNow] = [await requeued(), await failed()];
  for (const fields of [newApplication(), newApplication(), newApplication()])
    await world.recordIn('completed', await submit(world, ingest, fields), HEAL_HANG_MS);
  expect((await requeued()) - requeuedByNow).toBeLessThanOrEqual((await failed()) - failedByNow);
  await probing.stop();
  console.log(
    `Redis ${how} for ${seconds} s: ${ids.length} applications, working again after ${workingAgainMs} ms`,
  );
  expect(complaints).toEqual([]);
  for (const { email } of sent) expect(world.mail.mailsTo(email)).toHaveLength(1);
}

test.each([...OUTAGES])('workers resume after Redis was $how for $seconds s', ({ how, seconds }) =>
  workGoesOnAfter(how, seconds),
);

(long ? test : test.skip).each(LONG_OUTAGES)(
  'workers resume after Redis was $how for $seconds s (LONG=1)',
  ({ how, seconds }) => workGoesOnAfter(how, seconds),
);
