/** One partner's backlog and another's single application: the one that sent little is not made to wait. */
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { newApiKey } from '../../internal/partner/api-key.ts';
import { systemClock as clock } from '../../internal/platform/clock.ts';
import { createLogger } from '../../internal/platform/log.ts';
import { HintSender } from '../../internal/queue/enqueue.ts';
import { hintFor } from '../../internal/queue/job.ts';
import { SUBMISSIONS, type SubmissionRecord } from '../../internal/submission/submission.ts';
import { INGEST_PATH, send } from '../support/http.ts';
import { recordOf } from '../support/processor-records.ts';
import { eventually } from '../support/wait.ts';
import { newApplication, openWorld, requestIdOf, type World } from '../support/world.ts';

/** Enough that a queue in order of arrival would take them all before the one that comes last. */
const BACKLOG = 3_000;

let world: World;
const smallKey = newApiKey();

beforeAll(async () => {
  world = await openWorld();
  await world.writePartner({ partner: 'small', keys: [smallKey] });
});
afterAll(() => world.close());

test('an application is completed while most of another partner’s backlog still waits', async () => {
  const ingest = await world.start('ingest');
  await eventually('the key of the small partner', async () => {
    const answer = await send(ingest.url, { key: smallKey, path: INGEST_PATH, body: '[]' });
    return answer.status === 400;
  });
  const backlog = Array.from({ length: BACKLOG }, () => recordOf(newApplication(), clock.now()));
  const requests = world.stores.db.collection<SubmissionRecord>(SUBMISSIONS);
  await requests.insertMany(backlog);
  const sender = new HintSender({ redisUrl: world.stores.redisUrl, clock, log: createLogger('test', 'silent') });
  try {
    await eventually('Redis to answer', () => sender.ready);
    await sender.send('applications', backlog.map(hintFor));
  } finally {
    await sender.close();
  }
  // At a domain of its own: one domain has a quarter of the slots, whoever sent the applications.
  const application = { ...newApplication(), email: 'owner@small.example' };
  const id = requestIdOf(await send(ingest.url, { key: smallKey, body: JSON.stringify(application) }));
  await world.start('processor');
  await world.recordIn('completed', id);
  const waiting = await requests.countDocuments({ partnerId: 'demo', state: { $in: ['recorded', 'account_created'] } });
  expect(waiting).toBeGreaterThan(BACKLOG / 2);
});
