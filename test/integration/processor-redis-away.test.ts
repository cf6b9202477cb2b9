/**
 * Workers after an outage of Redis under load: they take hints again by themselves, soon, and the liveness probe never
 * has to ask for a restart. A killed Redis breaks connections; a hung one leaves them open and says nothing.
 */
/* oxlint-disable node/no-process-env -- LONG is for whoever runs the tests */
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import type { ServiceProcess } from '../../deploy/local/processes.ts';
import { openOwnWorld, submit, type OwnWorld } from '../support/processing.ts';
import { eventually } from '../support/wait.ts';
import { newApplication, type InProcess, type World } from '../support/world.ts';

const OUTAGES = [
  { how: 'killed', seconds: 1 },
  { how: 'hung', seconds: 1 },
  { how: 'killed', seconds: 10 },
  { how: 'hung', seconds: 10 },
] as const;
/** With LONG=1 only: each takes its five minutes. */
const LONG_OUTAGES = [
  { how: 'killed', seconds: 300 },
  { how: 'hung', seconds: 300 },
] as const;
const long = (process.env['LONG'] ?? '') !== '';

/** Reconcile looks at a record 15 s after it came: what is finished earlier came by its hint. */
const BY_HINT_MS = 14_000;
/** What lost its hint: first look after 15 s, grace of 15 s, two rounds of reconcile; twice that for a busy machine. */
const HEALED_WITHIN_MS = 75_000;
/** Ten a second; one a second in a long outage, whose backlog would else be what is timed. */
const betweenSubmissionsMs = (seconds: number): number => (seconds > 60 ? 1_000 : 100);
const BETWEEN_PROBES_MS = 250;

let own: OwnWorld;
let world: World;
let ingest: InProcess;
let processor: ServiceProcess;

beforeAll(async () => {
  own = await openOwnWorld();
  world = own.world;
  // The test's own connection loses its server, too, which is nothing to report.
  world.stores.redis.on('error', () => {});
  ingest = await world.start('ingest');
  processor = await world.spawn('processor');
}, 120_000);
afterAll(() => own.close(), 120_000);

/** Does `act` again and again, `everyMs` apart, until stopped; `stop` rejects when one failed. */
function repeatedly(everyMs: number, act: () => Promise<void>): { stop(): Promise<void> } {
  const acts: Promise<void>[] = [];
  const failures: unknown[] = [];
  const timer = setInterval(() => acts.push(act().catch((error: unknown) => void failures.push(error))), everyMs);
  return {
    stop: async () => {
      clearInterval(timer);
      await Promise.all(acts);
      expect(failures).toEqual([]);
    },
  };
}

async function workGoesOnAfter(how: 'killed' | 'hung', seconds: number): Promise<void> {
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
  await eventually('work to flow', async () => (await world.records({ state: 'completed' })).length >= 3, 30_000);

  await own.redis.signal(how === 'killed' ? 'SIGKILL' : 'SIGSTOP');
  const awayAt = performance.now();
  await eventually('the outage to end', () => performance.now() - awayAt >= seconds * 1_000, seconds * 1_000 + 5_000);
  if (how === 'killed') await own.redis.restart();
  else await own.redis.signal('SIGCONT');
  const backAt = new Date();

  const first = await eventually(
    'an application sent since to be completed',
    async () => (await world.records({ state: 'completed', receivedAt: { $gte: backAt } }))[0],
    HEALED_WITHIN_MS,
  );
  const workingAgainMs = first.stateAt.getTime() - backAt.getTime();
  await load.stop();
  // From then on each is: none of these waits for reconcile.
  const byHint = [newApplication(), newApplication(), newApplication()];
  for (const fields of byHint) {
    const { receivedAt, stateAt } = await world.recordIn('completed', await submit(world, ingest, fields), 30_000);
    expect(stateAt.getTime() - receivedAt.getTime()).toBeLessThan(BY_HINT_MS);
  }
  const ids = sent.map(({ id }) => id);
  await eventually(
    'all to be completed',
    async () => (await world.records({ _id: { $in: ids }, state: 'completed' })).length === ids.length,
    HEALED_WITHIN_MS,
  );
  await probing.stop();
  console.log(`Redis ${how} for ${seconds} s: ${ids.length} applications, working again after ${workingAgainMs} ms`);
  expect(workingAgainMs).toBeLessThan(BY_HINT_MS);
  expect(complaints).toEqual([]);
  for (const { email } of sent) expect(world.mail.mailsTo(email)).toHaveLength(1);
}

test.each(OUTAGES)(
  'Redis $how for $seconds s: workers work again by themselves',
  ({ how, seconds }) => workGoesOnAfter(how, seconds),
  240_000,
);

(long ? test : test.skip).each(LONG_OUTAGES)(
  'Redis $how for $seconds s: workers work again by themselves (takes its time: LONG=1)',
  ({ how, seconds }) => workGoesOnAfter(how, seconds),
  900_000,
);
