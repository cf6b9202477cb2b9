/** One application of a partner beside the backlog of another. */
import { expect, test } from '@jest/globals';
import { newApiKey } from '../../internal/partner/api-key.ts';
import { systemClock as clock } from '../../internal/platform/process/clock.ts';
import { createLogger } from '../../internal/platform/process/log.ts';
import { HintSender } from '../../internal/queue/enqueue.ts';
import { hintFor } from '../../internal/queue/job.ts';
import { send } from '../support/http.ts';
import { recordOf } from '../support/records.ts';
import { installationOf } from '../support/installation-id.ts';
import { eventually } from '../support/wait.ts';
import { newApplication, requestIdOf, worldOf } from '../support/world.ts';

/** Enough that a queue by arrival would process them all first. */
const BACKLOG = Number(process.env['BACKLOG'] ?? 3_000);
const PAGE = 1_000;

const smallKey = newApiKey();
const partners = [{ partner: 'small', keys: [smallKey] }];
const { world, ingest } = await worldOf(['ingest'], { partners });

/** Sends an application; returns the milliseconds until it is completed. */
async function completeOne(mailbox: string): Promise<number> {
  const application = { ...newApplication(), email: `${mailbox}@small.example` };
  const id = requestIdOf(
    await send(ingest.url, { key: smallKey, body: JSON.stringify(application) }),
  );
  const { receivedAt, stateAt } = await world.recordIn('completed', id);
  return stateAt.getTime() - receivedAt.getTime();
}

async function queueBacklog(): Promise<void> {
  const sender = new HintSender({
    redisUrl: world.stores.redisUrl,
    log: createLogger('test', 'silent'),
  });
  sender.follow((await installationOf(world.stores.db)).id);
  try {
    await eventually('Redis to answer', () => sender.ready);
    for (let made = 0; made < BACKLOG; made += PAGE) {
      const page = Array.from({ length: PAGE }, () => recordOf(newApplication(), clock.now()));
      await requests.insertMany(page);
      // A busy Redis may drop the hints, which are then sent again.
      await eventually('the hints to be sent', async () => {
        await sender.send(page.map(hintFor));
        return true;
      });
    }
  } finally {
    await sender.close();
  }
}

const { requests } = world.stores;

test('an application is completed while another partner’s backlog waits', async () => {
  const first = await world.start('processor');
  const alone = await completeOne('alone');
  await first.close();
  await queueBacklog();
  await world.start('processor');
  await eventually(
    'the backlog to be worked on',
    async () => (await world.accounts({ partnerId: 'demo' })).length > 0,
  );
  const beside = await completeOne('beside');
  const waiting = await requests.countDocuments({
    partnerId: 'demo',
    state: { $in: ['recorded', 'account_created'] },
  });
  console.log(
    `share: completed in ${alone} ms alone, in ${beside} ms beside ${BACKLOG} others, of which ${waiting} still wait`,
  );
  expect(waiting).toBeGreaterThan(BACKLOG / 2);
});
