/**
 * A processor or the database dies in the middle of the work: it is finished by others, with one
 * mail each. The tests mostly wait for claims to run out (45 s), so they do it at the same time,
 * each in a world of its own.
 */
import { expect, test } from '@jest/globals';
import { handOversOf } from '../../internal/mail/ledger.ts';
import { openOwnWorld, stateCounts, submit } from '../support/processing.ts';
import { HEAL_HANG_MS, eventually } from '../support/wait.ts';
import { newApplication, openWorld, type World } from '../support/world.ts';

async function killAndFreeze(world: World): Promise<void> {
  const ingest = await world.start('ingest');
  const people = [newApplication(), newApplication()] as const;
  // The first session of each recipient hangs at RCPT, all later ones are served.
  const hanging = new Set<string>();
  world.mail.setFault(({ rcptTo }) => {
    const [recipient] = rcptTo;
    if (recipient === undefined || hanging.has(recipient)) return undefined;
    hanging.add(recipient);
    return { at: 'rcpt', hang: true };
  });

  const doomed = await world.spawn('processor');
  const killedId = await submit(world, ingest, people[0]);
  await eventually('the mail of the first to hang', () => hanging.has(people[0].email));
  doomed.child.kill('SIGKILL');
  await doomed.exited;

  const frozen = await world.spawn('processor');
  const frozenId = await submit(world, ingest, people[1]);
  await eventually('the mail of the second to hang', () => hanging.has(people[1].email));
  frozen.child.kill('SIGSTOP');

  const started = performance.now();
  await world.spawn('processor');
  try {
    // While the other one is frozen still.
    for (const id of [killedId, frozenId]) await world.recordIn('completed', id, HEAL_HANG_MS);
  } finally {
    frozen.child.kill('SIGCONT');
  }
  console.log(`both taken over after ${Math.round((performance.now() - started) / 1_000)} s`);
  const before = await world.record(frozenId);

  // Awake again, it notices that its claim is lost and mails nothing.
  await eventually('the thawed one to give up', async () => {
    // After more than a minute it finds the time of its hand-over over first.
    const ends = ['claim_lost', 'failed'].map((result) =>
      world.metric(frozen, 'partner_ingest_attempts_total', { result }),
    );
    return (await Promise.all(ends)).includes(1);
  });
  for (const { email } of people) expect(world.mail.mailsTo(email)).toHaveLength(1);
  // Nobody can know what the killed one had mailed, so that counts as possible; the thawed one
  // could say that it had not.
  const ledgerOf = async (requestId: string) => {
    const [account] = await world.accounts({ requestId });
    return {
      possible: account?.mail?.possible,
      results: handOversOf(account?.mail).map(({ result }) => result),
    };
  };
  await eventually(
    'the ledger of the killed one',
    async () => (await ledgerOf(killedId)).results.length === 2,
  );
  expect(await ledgerOf(killedId)).toEqual({ possible: 2, results: [undefined, 'accepted'] });
  await eventually(
    'the thawed one to note its end',
    async () => (await ledgerOf(frozenId)).possible === 1,
  );
  expect(await ledgerOf(frozenId)).toEqual({
    possible: 1,
    results: [expect.stringMatching(/^(aborted|unreachable)$/), 'accepted'],
  });
  expect(await world.record(frozenId)).toEqual(before);
  expect(await world.accounts()).toHaveLength(2);
}

async function killMongo({
  world,
  mongo,
}: Awaited<ReturnType<typeof openOwnWorld>>): Promise<void> {
  const ingest = await world.start('ingest');
  const people = Array.from({ length: 20 }, newApplication);
  await Promise.all(people.map((fields) => submit(world, ingest, fields)));
  // Some mails are under way when the database dies, so that their outcome cannot be written down
  // at once.
  let asked = 0;
  let killed: Promise<void> | undefined;
  world.mail.setFault(() => {
    asked += 1;
    if (asked === 5) killed = mongo.signal('SIGKILL');
    return undefined;
  });
  const processor = await world.spawn('processor');
  const paused = (): Promise<number> => world.metric(processor, 'partner_ingest_worker_paused');
  await eventually('the kill', () => killed !== undefined);
  await killed;
  world.mail.setFault(undefined);
  await eventually('a worker to pause', async () => (await paused()) > 0);
  expect((await fetch(`${processor.adminUrl}/livez`)).status).toBe(200);

  await mongo.restart();
  await eventually('the workers to resume', async () => (await paused()) === 0);
  await eventually(
    'all to be completed',
    async () => (await stateCounts(world))['completed'] === 20,
    HEAL_HANG_MS,
  );
  expect(await stateCounts(world)).toEqual({ completed: 20 });
  for (const { email } of people) expect(world.mail.mailsTo(email)).toHaveLength(1);
  for (const { attempts } of await world.records()) expect(attempts).toBe(0);
}

test.concurrent(
  'a killed and a frozen processor are both taken over, and the thawed one changes nothing more',
  async () => {
    const world = await openWorld();
    try {
      await killAndFreeze(world);
    } finally {
      await world.close();
    }
  },
);

test.concurrent(
  'MongoDB killed and restarted under work: the worker pauses and resumes, and each applicant gets one mail',
  async () => {
    const own = await openOwnWorld();
    try {
      await killMongo(own);
    } finally {
      await own.close();
    }
  },
);
