/**
 * A bounce that comes after the mail server took the e-mail: reported by the real command, once.
 */
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { ACCOUNTS, type Account } from '../../internal/account/account.ts';
import { OPERATOR_AUDIT } from '../../internal/audit/trail.ts';
import { handOversOf } from '../../internal/mail/ledger.ts';
import { readBacklog } from '../../internal/submission/backlog.ts';
import { openOperatorWorld, runCli, spawnCli, type Ran } from '../support/cli.ts';
import {
  amazonSes,
  failures,
  noFailures,
  noNotifications,
  type Returned,
} from '../support/notifications.ts';
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

const { Postfix: failed } = failures;
const { delayed } = noFailures;
const mailOf = (messageId: string, recipient = 'jane@example.com'): Returned => ({
  messageId,
  recipient,
  relaysId: '',
});

test('a notification makes a completed request undeliverable, once; a retry mails again', async () => {
  const { id, application, messageId } = await completed();
  const report = (text: string): Promise<Ran> =>
    spawnCli(world.environment, text, 'bounce', '--as', 'bounces');
  expect(await report(delayed!(mailOf(messageId)))).toMatchObject({ code: 0 });
  expect((await world.record(id))?.state).toBe('completed');

  const { bounced } = await readBacklog(world.stores.db, new Date());
  expect(await report(failed!(mailOf(messageId)))).toMatchObject({ code: 0 });
  const record = await world.recordIn('undeliverable', id);
  const reason =
    'the e-mail bounced after the mail server had taken it (5.1.1), reported by bounces';
  expect(record).toMatchObject({
    lastError: reason,
    bouncedAt: expect.any(Date),
    expiresAt: expect.any(Date),
  });
  expect(record.history.at(-1)).toMatchObject({ state: 'undeliverable', reason });
  const trail = world.stores.db
    .collection(OPERATOR_AUDIT)
    .find({ requestId: id, action: 'bounce', result: { $ne: 'begun' } });
  expect(await trail.toArray()).toMatchObject([{ by: 'bounces', result: 'done' }]);
  expect((await readBacklog(world.stores.db, new Date())).bounced).toBe(bounced + 1);
  expect((await cli('audit')).stdout).not.toContain(id);

  const again = await report(failed!(mailOf(messageId)));
  expect(again).toMatchObject({ code: 0 });
  expect(again.stdout).toContain('nothing to do');
  expect((await world.record(id))?.history).toHaveLength(record.history.length);

  expect(await cli('retry', id)).toMatchObject({ code: 0 });
  await eventually('the second mail', () => world.mail.mailsTo(application.email).length === 2);
  await world.recordIn('completed', id);
  // A late copy of the first notification is about a mail that another one has followed.
  expect((await report(failed!(mailOf(messageId)))).stdout).toContain('nothing to do');
  expect((await world.record(id))?.state).toBe('completed');
});

test('a Message-ID or a request id does without a notification', async () => {
  const other = await completed();
  expect(await cli('bounce', '--request', other.id)).toMatchObject({ code: 0 });
  await world.recordIn('undeliverable', other.id);
  const { id, messageId } = await completed();
  const words = ['bounce', '--message-id', messageId, '--status', '5.2.1'];
  expect(await cli(...words)).toMatchObject({ code: 0 });
  expect((await world.recordIn('undeliverable', id)).lastError).toContain('(5.2.1)');
});

test('a relay that gave the mail its own id names it in its notification', async () => {
  const report = (text: string): Promise<Ran> =>
    runCli(world.environment, text, 'bounce', '--as', 'bounces');
  const relaysId = (id: string): string => `0102${id.slice(-26)}-000000`;
  /** The request of an applicant whose newest mail the relay took by `relaysId`. */
  async function taken() {
    const { id, application, messageId } = await completed();
    const accounts = world.stores.db.collection<Account>(ACCOUNTS);
    const account = await accounts.findOne({ requestId: id });
    const claim = handOversOf(account?.mail).at(-1)?.claim;
    await accounts.updateOne(
      { requestId: id },
      { $set: { [`mail.handOvers.${claim}.answer`]: `250 Ok ${relaysId(id)}` } },
    );
    const recipient = application.email.toUpperCase();
    return { id, mail: { messageId, recipient, relaysId: relaysId(id) } };
  }

  const { id, mail } = await taken();
  // The same id for another applicant, and another id for this one, are no evidence.
  const other = await taken();
  for (const wrong of [
    { ...mail, recipient: other.mail.recipient },
    { ...mail, relaysId: other.mail.relaysId },
  ]) {
    expect(await report(amazonSes(wrong))).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('no mail of ours'),
    });
  }
  expect((await world.record(id))?.state).toBe('completed');

  expect(await report(amazonSes(mail))).toMatchObject({ code: 0 });
  expect((await world.recordIn('undeliverable', id)).lastError).toContain('(5.1.1)');
  expect((await world.record(other.id))?.state).toBe('completed');
  expect((await report(amazonSes(mail))).stdout).toContain('nothing to do');

  expect(await cli('retry', id)).toMatchObject({ code: 0 });
  await world.recordIn('completed', id);
  expect((await report(amazonSes(mail))).stdout).toContain('an earlier e-mail');
  expect((await world.record(id))?.state).toBe('completed');
});

test('what is no bounce of ours changes nothing and says so', async () => {
  const { id, application, messageId } = await completed();
  const report = (text: string): Promise<Ran> => runCli(world.environment, text, 'bounce');
  const mail = mailOf(messageId, application.email);
  for (const [name, write] of Object.entries(noNotifications)) {
    expect([name, await report(write(mail))]).toEqual([
      name,
      expect.objectContaining({ code: 1, stderr: expect.stringContaining('nothing was changed') }),
    ]);
  }
  for (const write of Object.values(noFailures)) {
    expect(await report(write(mail))).toMatchObject({
      code: 0,
      stdout: expect.stringContaining('no failure'),
    });
  }
  expect(await report(failed!(mailOf('<other@x.example>', application.email)))).toMatchObject({
    code: 1,
  });
  expect((await report('x'.repeat(262_145))).stderr).toContain('more than 262144 bytes');
  expect(await cli('bounce', '--status', '5.1.1')).toMatchObject({ code: 2 });
  expect((await world.record(id))?.state).toBe('completed');
});
