/** A bounce that comes after the mail server took the e-mail: reported by the real command, once. */
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { ACCOUNTS, type Account } from '../../internal/account/account.ts';
import { OPERATOR_AUDIT } from '../../internal/audit/trail.ts';
import { readBacklog } from '../../internal/submission/backlog.ts';
import { openOperatorWorld, runCli, spawnCli, type Ran } from '../support/cli.ts';
import { submit } from '../support/processing.ts';
import { eventually } from '../support/wait.ts';
import { newApplication, type InProcess, type World } from '../support/world.ts';

let world: World;
let ingest: InProcess;
let cli: (...words: string[]) => Promise<Ran>;

beforeAll(async () => {
  ({ world, ingest, cli } = await openOperatorWorld());
});
afterAll(() => world.close());

async function completed() {
  const application = newApplication();
  const id = await submit(world, ingest, application);
  await world.recordIn('completed', id);
  return { id, application, messageId: world.mail.mailsTo(application.email)[0]?.messageId ?? '' };
}

const notification = (messageId: string, action = 'failed'): string =>
  [
    'Content-Type: multipart/report; report-type=delivery-status; boundary="b"',
    '',
    '--b',
    'Content-Type: message/delivery-status',
    '',
    'Reporting-MTA: dns; relay.example',
    '',
    'Final-Recipient: rfc822; jane@example.com',
    `Action: ${action}`,
    'Status: 5.1.1',
    '',
    '--b',
    'Content-Type: message/rfc822',
    '',
    `Message-ID: ${messageId}`,
    '',
    '--b--',
  ].join('\r\n');

test('a notification makes a completed request undeliverable, once; a retry mails again', async () => {
  const { id, application, messageId } = await completed();
  const report = (text: string): Promise<Ran> => spawnCli(world.environment, text, 'bounce', '--as', 'bounces');
  expect(await report(notification(messageId, 'delayed'))).toMatchObject({ code: 0 });
  expect((await world.record(id))?.state).toBe('completed');

  const { bounced } = await readBacklog(world.stores.db);
  expect(await report(notification(messageId))).toMatchObject({ code: 0 });
  const record = await world.recordIn('undeliverable', id);
  const reason = 'the e-mail bounced after the mail server had taken it (5.1.1), reported by bounces';
  expect(record).toMatchObject({ lastError: reason, bouncedAt: expect.any(Date), expiresAt: expect.any(Date) });
  expect(record.history.at(-1)).toMatchObject({ state: 'undeliverable', reason });
  const trail = world.stores.db
    .collection(OPERATOR_AUDIT)
    .find({ requestId: id, action: 'bounce', result: { $ne: 'begun' } });
  expect(await trail.toArray()).toMatchObject([{ by: 'bounces', result: 'done' }]);
  expect((await readBacklog(world.stores.db)).bounced).toBe(bounced + 1);
  expect((await cli('audit')).stdout).not.toContain(id);

  const again = await report(notification(messageId));
  expect(again).toMatchObject({ code: 0 });
  expect(again.stdout).toContain('nothing to do');
  expect((await world.record(id))?.history).toHaveLength(record.history.length);

  expect(await cli('retry', id)).toMatchObject({ code: 0 });
  await eventually('the second mail', () => world.mail.mailsTo(application.email).length === 2);
  await world.recordIn('completed', id);
  // A late copy of the first notification is about a mail that another one has followed.
  expect((await report(notification(messageId))).stdout).toContain('nothing to do');
  expect((await world.record(id))?.state).toBe('completed');
});

test('a Message-ID or a request id does without a notification', async () => {
  const [one, other] = [await completed(), await completed()];
  expect(await cli('bounce', '--message-id', one.messageId, '--status', '5.2.1')).toMatchObject({ code: 0 });
  expect((await world.recordIn('undeliverable', one.id)).lastError).toContain('(5.2.1)');
  expect(await cli('bounce', '--request', other.id)).toMatchObject({ code: 0 });
  await world.recordIn('undeliverable', other.id);
  expect((await cli('bounce', '--request', other.id)).stdout).toContain('nothing to do');
});

test('a report that was cut off is finished by the same command', async () => {
  const { id, messageId } = await completed();
  const accounts = world.stores.db.collection<Account>(ACCOUNTS);
  const before = await accounts.findOne({ requestId: id });
  expect(await cli('bounce', '--message-id', messageId)).toMatchObject({ code: 0 });
  await accounts.updateOne(
    { requestId: id },
    { $set: { notifiedAt: before?.notifiedAt ?? new Date() }, $unset: { mailVersion: true } },
  );
  expect(await cli('bounce', '--message-id', messageId)).toMatchObject({ code: 0 });
  expect(await accounts.findOne({ requestId: id })).toMatchObject({ mailVersion: 1 });
  expect(await accounts.findOne({ requestId: id })).not.toHaveProperty('notifiedAt');
});

test('what is no bounce of ours changes nothing and says so', async () => {
  const report = (text: string): Promise<Ran> => runCli(world.environment, text, 'bounce');
  expect(await report('Subject: out of office\n\nI am away.')).toMatchObject({ code: 1 });
  expect(await report(notification('<other@x.example>'))).toMatchObject({ code: 1 });
  expect((await report('x'.repeat(1_048_577))).stderr).toContain('more than 1048576 bytes');
  expect(await cli('bounce', '--status', '5.1.1')).toMatchObject({ code: 2 });
});
