/**
 * Which alert each fault must raise: the chaos faults, and more for the alerts that those do not
 * raise.
 */
import { rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { Queue } from 'bullmq';
import { Redis } from 'ioredis';
import { writePartnerSecret } from '../../deploy/local/demo-keys.ts';
import { ACCOUNTS } from '../../internal/account/account.ts';
import { newApiKey } from '../../internal/partner/api-key.ts';
import { DAY_MS, systemClock } from '../../internal/platform/clock.ts';
import { pause } from '../../internal/platform/deadline.ts';
import { QUEUE_PREFIX, QUEUE } from '../../internal/queue/job.ts';
import { OperatorMoves } from '../../internal/submission/operator-moves.ts';
import { SUBMISSIONS, type SubmissionRecord } from '../../internal/submission/submission.ts';
import { faults as chaosFaults, type Fault } from '../chaos/faults.ts';
import { INGEST_PATH } from '../support/http.ts';
import { wrongClock } from '../support/wrong-clock.ts';
import type { ChaosWorld } from '../chaos/world.ts';

export interface Exercise {
  readonly fault: Fault;
  /** All of these must fire, and no other; none for what the system heals by itself. */
  readonly raises: readonly string[];
  /** May fire as well, because the same fault sometimes causes it. */
  readonly may?: readonly string[];
  /** What an operator does afterwards, as the runbook says. */
  readonly mend?: (world: ChaosWorld) => Promise<void>;
}

/** Everything but the name of the alert stays; windows and waits become seconds. */
export const SHORT: Readonly<Record<string, string>> = {
  '10s': '2s',
  '1m': '2s',
  '2m': '5s',
  '5m': '10s',
  '10m': '8s',
  '15m': '15s',
  '20m': '17s',
  '30m': '10s',
  '1h': '20s',
  '2h': '6s',
  '6h': '10s',
  '1d': '20s',
  '3d': '20s',
  '7d': '40s',
};

/** A promise of the chart for the drill: the noise of 40 requests a second does not break it. */
export const DRILL_VALUES: Readonly<Record<string, number>> = {
  'metrics.prometheusRule.sloPercent': 95,
};

/** Comparisons of the rules for the drill, so that a fault crosses one in seconds. */
export const OTHER_BOUNDS: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  PartnerIngestApplicationsWaiting: { '> 600': '> 75' },
  PartnerIngestMailsWaiting: { '> 3600': '> 40', '>= 50': '>= 600' },
  PartnerIngestKeysStale: { '> 300': '> 75' },
  PartnerIngestMailsUndeliverable: { '>= 5': '>= 10' },
  PartnerIngestBacklogStale: { '> 300': '> 75' },
  PartnerIngestRefusalsJump: { '>= 100': '>= 400' },
  PartnerIngestRefusalsDropped: { '> 20': '> 5' },
};

const name = (short: string): string => `PartnerIngest${short}`;
/**
 * A frozen process is not scraped: only a window that began before shows what it counts as it
 * thaws.
 */
export const SHORT_OF_RULE: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  [name('WithdrawalsFailed')]: { '1h': '60s' },
};
const [FAST, SLOWLY] = [name('PromiseBurnsFast'), name('PromiseBurnsSlowly')];
const PENDING = name('WithdrawalsPending');
const DROPPED = name('RefusalsDropped');
const WAITING = name('ApplicationsWaiting');
const [PAUSED, LIMITER, RESCUES, LOOP] = [
  'WorkerPaused',
  'LimiterFallback',
  'ReconcileRescues',
  'CrashLoop',
].map(name) as [string, string, string, string];

function chaos(of: string): Fault {
  const fault = chaosFaults.find((one) => one.name === of);
  if (fault === undefined) throw new Error(`there is no fault ${of}`);
  return fault;
}

const movesOf = ({ db }: ChaosWorld): OperatorMoves =>
  new OperatorMoves({ db, retention: { undeliverable: 400 }, clock: systemClock });

/** What `partner-ingest retry --state dead_lettered --yes` does. */
async function retryDeadLetters(world: ChaosWorld): Promise<void> {
  const letters = await world.db
    .collection<SubmissionRecord>(SUBMISSIONS)
    .find({ state: 'dead_lettered' })
    .toArray();
  await movesOf(world).moveAll(
    letters.map((seen) => ({ seen, to: 'account_created', accountId: seen.accountId })),
    'operator retry',
  );
}

async function withQueue(
  world: ChaosWorld,
  use: (queue: Queue) => Promise<unknown>,
): Promise<void> {
  const { hostname, port } = new URL(world.redis.url);
  const queue = new Queue('applications', {
    connection: { host: hostname, port: Number(port) },
    prefix: QUEUE_PREFIX,
  });
  try {
    await use(queue);
  } finally {
    await queue.close();
  }
}

/** Jobs in between get through, so that reconcile can rescue the lost ones. */
const LOSE_EVERY_MS = 8;
const LOSE_WAIT_SECONDS = 1;

function losingQueue(): Fault {
  let stop = new AbortController();
  let working: Promise<unknown> = Promise.resolve();
  return {
    name: 'redis-loses-queue',
    about: 'Redis forgets waiting jobs all the time, as if it evicted them, and is well otherwise',
    inject: async (world) => {
      stop = new AbortController();
      // A command that blocks gets what is added before the workers, which look only after a
      // notification.
      working = Promise.all([
        lose(world, stop.signal, (redis) => redis.blpop(...keysOf('wait'), LOSE_WAIT_SECONDS)),
        lose(world, stop.signal, (redis) =>
          redis.bzpopmin(...keysOf('prioritized'), LOSE_WAIT_SECONDS),
        ),
      ]);
    },
    heal: async () => {
      stop.abort();
      await working;
    },
  };
}

const keysOf = (state: 'wait' | 'prioritized'): string[] => [`${QUEUE_PREFIX}:${QUEUE}:${state}`];

async function lose(
  world: ChaosWorld,
  signal: AbortSignal,
  take: (redis: Redis) => Promise<unknown>,
): Promise<void> {
  const redis = new Redis(world.redis.url);
  while (!signal.aborted) {
    await take(redis);
    await pause(LOSE_EVERY_MS, signal);
  }
  redis.disconnect();
}

/** Requests with the header, as an unknown proxy sends them. */
const FORWARDED_AT_ONCE = 10;
const FORWARDED_EVERY_MS = 50;

function untrustedProxy(): Fault {
  let timer: NodeJS.Timeout | undefined;
  return {
    name: 'untrusted-proxy',
    about: 'most requests come with X-Forwarded-For from a proxy that is not in TRUSTED_PROXIES',
    inject: async (world) => {
      timer = setInterval(() => {
        for (const { url } of world.targets()) {
          for (let one = 0; one < FORWARDED_AT_ONCE; one += 1) {
            void fetch(url, { headers: { 'x-forwarded-for': '192.0.2.1' } })
              .then((answer) => answer.arrayBuffer())
              .catch(() => undefined);
          }
        }
      }, FORWARDED_EVERY_MS);
    },
    heal: async () => clearInterval(timer),
  };
}

/**
 * As a balancer does whose certificate or route is gone: nobody reaches the ingest pods, which are
 * well.
 */
function trafficStopped(): Fault {
  const setReady = async (world: ChaosWorld, ready: boolean): Promise<void> => {
    for (const slot of world.slotsOf('ingest')) slot.ready = ready;
  };
  return {
    name: 'traffic-stopped',
    about: 'no request of a partner arrives any more',
    inject: (world) => setReady(world, false),
    heal: (world) => setReady(world, true),
  };
}

/**
 * Wrong keys at once, as of somebody who guesses: far over the alert's threshold, and little load.
 */
const GUESSES_AT_ONCE = 3;
const GUESS_EVERY_MS = 50;

/** Sends with a key from `keyOf` all the time. */
function keyTried(
  about: Pick<Fault, 'name' | 'about'>,
  keyOf: (world: ChaosWorld) => Promise<string>,
): Fault {
  let timer: NodeJS.Timeout | undefined;
  return {
    ...about,
    inject: async (world) => {
      const key = await keyOf(world);
      timer = setInterval(() => {
        for (const { url } of world.targets()) {
          for (let one = 0; one < GUESSES_AT_ONCE; one += 1) {
            const headers = { authorization: `Bearer ${key}` };
            void fetch(`${url}${INGEST_PATH}`, { method: 'POST', headers, body: '{}' })
              .then((answer) => answer.arrayBuffer())
              .catch(() => undefined);
          }
        }
      }, GUESS_EVERY_MS);
    },
    heal: async () => clearInterval(timer),
  };
}

function removedKey(keyFolder: string): Fault {
  const about = {
    name: 'removed-key-used',
    about: 'a partner goes on with a key that was removed',
  };
  return keyTried(about, async () => {
    const key = newApiKey();
    const file = await writePartnerSecret(keyFolder, { partner: 'forgetful', keys: [key] });
    await pause(STORED_WITHIN_MS);
    await rm(file);
    await pause(STORED_WITHIN_MS);
    return key;
  });
}

/** More than the alert's threshold. */
const BOUNCED = 50;
/** More partners than all others, so that their removal is that of most keys. */
const EMPTIED_PARTNERS = Array.from({ length: 12 }, (_none, index) => ({
  partner: `emptied-${index}`,
  keys: [newApiKey()],
}));
/** The controller has stored a new key long before this. */
const STORED_WITHIN_MS = 5_000;

function emptiedKeys(keyFolder: string): Fault {
  const write = async (): Promise<void> => {
    await Promise.all(EMPTIED_PARTNERS.map((partner) => writePartnerSecret(keyFolder, partner)));
  };
  return {
    name: 'keys-emptied',
    about: 'the Secrets of most partners are deleted at once',
    inject: async () => {
      await write();
      await pause(STORED_WITHIN_MS);
      await Promise.all(
        EMPTIED_PARTNERS.map(({ partner }) => rm(join(keyFolder, `${partner}.yaml`))),
      );
    },
    heal: write,
  };
}

async function replaceProcessor(
  world: ChaosWorld,
  environment: Readonly<Record<string, string>>,
): Promise<void> {
  const [slot] = world.slotsOf('processor');
  await world.drain(slot!);
  await world.start(slot!, environment);
}

/** Faults of the drill alone: they lose nothing and double nothing. */
function ownFaults(keyFolder: string): Readonly<Record<string, Fault>> {
  const refillSlots = async (world: ChaosWorld): Promise<void> => {
    await Promise.all(
      world.slots.filter((slot) => slot.process === undefined).map((slot) => world.start(slot)),
    );
  };
  const gone = (service: 'processor' | 'controller'): Fault => ({
    name: `${service}s-gone`,
    about: `every ${service} is killed, and none follows`,
    inject: async (world) =>
      void (await Promise.all(world.slotsOf(service).map((slot) => world.kill(slot)))),
    heal: refillSlots,
  });
  return {
    hiccups: {
      name: 'mongodb-hiccups',
      about: 'MongoDB hangs for 1.4 s every 6 s: some requests of each ten seconds fail',
      rhythm: { onMs: 1_400, offMs: 4_600 },
      inject: (world) => world.mongo.signal('SIGSTOP'),
      heal: (world) => world.mongo.signal('SIGCONT'),
    },
    processorsGone: gone('processor'),
    controllersGone: gone('controller'),
    queuePaused: {
      name: 'queue-paused',
      about: 'somebody pauses the queue in Redis: workers are well and take nothing',
      inject: (world) => withQueue(world, (queue) => queue.pause()),
      heal: (world) => withQueue(world, (queue) => queue.resume()),
    },
    keysUnreadable: {
      name: 'keys-unreadable',
      about: 'the partner Secrets cannot be listed',
      inject: async () => rename(keyFolder, `${keyFolder}.away`),
      heal: async () => rename(`${keyFolder}.away`, keyFolder),
    },
    emptyKey: {
      name: 'empty-key',
      about: 'a partner Secret with an empty key',
      inject: async () =>
        void (await writePartnerSecret(keyFolder, { partner: 'careless', keys: [''] })),
      heal: () => rm(join(keyFolder, 'careless.yaml')),
    },
    clockOff: {
      name: 'clock-off',
      about: 'the clock of one processor is 3 s behind',
      inject: (world) => replaceProcessor(world, wrongClock(-3)),
      heal: (world) => replaceProcessor(world, {}),
    },
    keysEmptied: emptiedKeys(keyFolder),
    keysEnding: {
      name: 'keys-ending',
      about: 'the only key of a partner ends tomorrow',
      inject: async () => {
        const annotations = {
          'partner-ingest.io/not-after': new Date(Date.now() + DAY_MS).toISOString(),
        };
        await writePartnerSecret(keyFolder, {
          partner: 'ending',
          keys: [newApiKey()],
          annotations,
        });
      },
      heal: () => rm(join(keyFolder, 'ending.yaml')),
    },
    choked: {
      name: 'ingest-choked',
      about: 'one ingest gets the CPU for 300 of every 700 ms',
      rhythm: { onMs: 400, offMs: 300 },
      inject: async (world) => world.signal(world.slotsOf('ingest')[0]!, 'SIGSTOP'),
      heal: async (world) => world.signal(world.slotsOf('ingest')[0]!, 'SIGCONT'),
    },
    roleLost: {
      name: 'mongodb-role-lost',
      about: 'the user of MONGODB_URI may not write accounts',
      inject: async (world) =>
        world.replicaSet.refuse('insert', { code: 13, codeName: 'Unauthorized' }, ACCOUNTS),
      heal: async (world) => world.replicaSet.refuse('insert'),
    },
    backlogRefused: {
      name: 'backlog-refused',
      about: 'the database does not count the records for the controller',
      inject: async (world) =>
        world.replicaSet.refuse(
          'aggregate',
          { code: 50, codeName: 'MaxTimeMSExpired' },
          SUBMISSIONS,
        ),
      heal: async (world) => world.replicaSet.refuse('aggregate'),
    },
    mailsBounced: {
      name: 'mails-bounced',
      about: 'bounces of fifty e-mails are reported; healed when they are older than a day',
      inject: async (world) => {
        const requests = world.db.collection<SubmissionRecord>(SUBMISSIONS);
        const mailed = await requests.find({ state: 'completed' }).limit(BOUNCED).toArray();
        await Promise.all(
          mailed.map((record) =>
            movesOf(world).reportBounce(
              record,
              'the e-mail bounced after the mail server had taken it',
            ),
          ),
        );
      },
      heal: async (world) =>
        void (await world.db
          .collection<SubmissionRecord>(SUBMISSIONS)
          .updateMany({ bouncedAt: { $exists: true } }, { $unset: { bouncedAt: true } })),
    },
    mailsBlamed: {
      name: 'smtp-policy',
      about: 'the relay refuses each e-mail by its policy',
      inject: async (world) =>
        world.mail.setFault(() => ({
          at: 'data',
          answer: { code: 554, message: '5.7.1 refused by policy' },
        })),
      heal: async (world) => world.mail.setFault(undefined),
    },
    senderRefused: {
      name: 'smtp-sender-refused',
      about: 'the relay refuses our sender address',
      inject: async (world) =>
        world.mail.setFault(() => ({
          at: 'mail',
          answer: { code: 553, message: '5.7.1 sender not allowed' },
        })),
      heal: async (world) => world.mail.setFault(undefined),
    },
  };
}

/** All exercises in their order: each leaves the next a healthy system. */
export function plan(keyFolder: string): readonly Exercise[] {
  const own = ownFaults(keyFolder);
  return [
    { fault: chaos('redis-killed'), raises: [LIMITER] },
    { fault: chaos('redis-hung'), raises: [LIMITER] },
    { fault: chaos('redis-slow'), raises: [LIMITER] },
    { fault: chaos('redis-emptied'), raises: [], may: [RESCUES] },
    { fault: losingQueue(), raises: [RESCUES], may: [WAITING] },
    { fault: own['queuePaused']!, raises: [WAITING], may: [RESCUES, name('MailsWaiting')] },
    // What the paused queue kept waiting is still being worked off.
    {
      fault: chaos('mongodb-killed'),
      raises: [FAST, PAUSED, DROPPED],
      may: [PENDING, SLOWLY, WAITING],
    },
    { fault: chaos('mongodb-hung'), raises: [FAST], may: [PENDING, SLOWLY, PAUSED, DROPPED] },
    { fault: chaos('mongodb-slow'), raises: [FAST], may: [PENDING, SLOWLY, PAUSED, DROPPED] },
    // What was under way is answered 500, and the next request has a new connection: too few for an
    // alert.
    { fault: chaos('mongodb-cut'), raises: [], may: [SLOWLY, FAST, PAUSED, DROPPED] },
    { fault: chaos('mongodb-election'), raises: [FAST], may: [SLOWLY, PAUSED, PENDING, DROPPED] },
    // A claim that the election interrupted runs out in the stall, and its record waits for the end
    // of that, too.
    {
      fault: chaos('mongodb-majority-stalled'),
      raises: [FAST, PENDING, PAUSED],
      may: [SLOWLY, RESCUES, DROPPED, WAITING],
    },
    {
      fault: chaos('mongodb-rolled-back'),
      raises: [FAST],
      may: [SLOWLY, PAUSED, PENDING, DROPPED],
    },
    { fault: chaos('mongodb-partitioned'), raises: [FAST, PENDING], may: [SLOWLY, DROPPED] },
    { fault: own['hiccups']!, raises: [SLOWLY], may: [DROPPED] },
    {
      fault: chaos('mongodb-hung-ingest-killed'),
      raises: [SLOWLY],
      may: [FAST, LOOP, PENDING, PAUSED, DROPPED],
    },
    { fault: chaos('ingest-killed'), raises: [LOOP], may: [SLOWLY] },
    { fault: chaos('processor-killed'), raises: [LOOP] },
    { fault: chaos('controller-killed'), raises: [LOOP] },
    { fault: chaos('ingest-drained'), raises: [] },
    { fault: chaos('processor-drained'), raises: [] },
    { fault: own['processorsGone']!, raises: [name('ProcessAbsent')] },
    { fault: own['controllersGone']!, raises: [name('LeaderAbsent')] },
    { fault: own['choked']!, raises: [name('EventLoopLag')] },
    {
      fault: chaos('ingest-frozen'),
      raises: [name('WithdrawalsFailed')],
      may: [PENDING, SLOWLY, FAST],
    },
    { fault: chaos('processor-frozen'), raises: [] },
    { fault: own['keysUnreadable']!, raises: [name('KeysStale')] },
    { fault: own['emptyKey']!, raises: [name('SecretProblems')] },
    { fault: own['keysEnding']!, raises: [name('KeysEnding')] },
    { fault: own['keysEmptied']!, raises: [name('RemovalsDeferred')] },
    {
      fault: keyTried({ name: 'keys-guessed', about: 'somebody tries unknown keys' }, async () =>
        newApiKey(),
      ),
      raises: [name('RefusalsJump')],
    },
    { fault: removedKey(keyFolder), raises: [name('RemovedKeyUsed'), name('RefusalsJump')] },
    { fault: own['clockOff']!, raises: [name('ClockOff')] },
    // The age of what waited at the last count grows until the next.
    { fault: own['backlogRefused']!, raises: [name('BacklogStale')], may: [WAITING] },
    { fault: trafficStopped(), raises: [name('TrafficStopped')] },
    { fault: untrustedProxy(), raises: [name('UntrustedProxy')] },
    { fault: chaos('smtp-stopped'), raises: [PAUSED] },
    { fault: chaos('smtp-550'), raises: [name('MailsUndeliverable')] },
    { fault: own['mailsBounced']!, raises: [name('MailsBounced')] },
    { fault: chaos('smtp-451'), raises: [name('MailsWaiting')] },
    { fault: chaos('smtp-hanging'), raises: [name('MailsWaiting')], may: [PAUSED] },
    {
      fault: chaos('smtp-cut-after-store'),
      raises: [name('SecondMails')],
      may: [name('MailsWaiting')],
    },
    {
      fault: chaos('smtp-cut-before-store'),
      raises: [name('SecondMails'), name('DeadLetters')],
      may: [name('MailsWaiting')],
      mend: retryDeadLetters,
    },
    { fault: own['roleLost']!, raises: [name('DatabaseRefuses')], may: [WAITING] },
    // What the lost role stopped waits for its next attempt.
    {
      fault: own['senderRefused']!,
      raises: [name('SenderRefused')],
      may: [name('MailsWaiting'), WAITING, PAUSED],
    },
    { fault: own['mailsBlamed']!, raises: [name('MailsBlamed')], may: [name('MailsWaiting')] },
  ];
}
