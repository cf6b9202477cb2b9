/** The main job from outside: a partner's POST becomes an account and an e-mail. */
import { expect, test } from '@jest/globals';
import { createHash } from 'node:crypto';
import { send } from '../support/http.ts';
import { HANG_MS } from '../support/wait.ts';
import { newApplication, requestIdOf, worldOf } from '../support/world.ts';

const { world, ingest } = await worldOf(['ingest', 'processor']);

test('a valid application is completed, with one account and one e-mail with a working link', async () => {
  const application = newApplication();
  const answer = await send(ingest.url, { key: world.key, body: JSON.stringify(application) });
  expect(answer.status).toBe(202);
  const requestId = requestIdOf(answer);

  const mail = await world.mail.waitForMail(
    (caught) => caught.to.includes(application.email),
    HANG_MS,
  );
  const record = await world.recordIn('completed', requestId);
  const [account, ...others] = await world.accounts({ requestId });
  expect(others).toEqual([]);
  expect(account).toMatchObject({
    email: application.email,
    emailNormalized: application.email,
    ein: application.ein,
    businessName: application.business_name,
    partnerId: 'demo',
    notifiedAt: expect.any(Date),
  });
  expect(record).toMatchObject({
    accountId: account?._id,
    partnerId: 'demo',
    httpStatus: 202,
    attempts: 0,
  });
  expect(record.history.map((entry) => entry.state)).toEqual([
    'recorded',
    'account_created',
    'completed',
  ]);

  const link = new URL(mail.links.find((url) => url.includes('token=')) ?? '');
  expect(link.searchParams.get('account')).toBe(account?._id);
  const tokenHash = createHash('sha256')
    .update(link.searchParams.get('token') ?? '')
    .digest('hex');
  expect(account?.activation?.tokenHash).toBe(tokenHash);
  expect(world.mail.mailsTo(application.email)).toHaveLength(1);
});
