/** Reports a later bounce by the real command. */
import { expect, test } from '@jest/globals';
import { OPERATOR_AUDIT } from '../../internal/trail/trail.ts';
import { newId } from '../../internal/platform/stores/ids.ts';
import { readBacklog } from '../../internal/submission/due-work.ts';
import { operatorWorld } from '../support/cli.ts';
import { eventually } from '../support/wait.ts';

const { world, cli, completed, done } = await operatorWorld();

test('a report makes a completed request undeliverable, and a retry mails again', async () => {
  const { id, application, messageId } = await completed();
  const report = ['bounce', '--message-id', messageId, '--status', '5.1.1', '--as', 'bounces'];
  const { bounced } = await readBacklog(world.stores.db, new Date());
  await done(...report);
  const record = await world.recordIn('undeliverable', id);
  const reason =
    'the e-mail bounced after the mail server had taken it (5.1.1), reported by bounces';
  expect(record).toMatchObject({
    lastError: reason,
    reasons: [{ field: 'email', code: 'unknown_mailbox' }],
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

  const again = await cli(...report);
  expect(again).toMatchObject({ code: 0, stdout: expect.stringContaining('nothing to do') });
  expect((await world.record(id))?.history).toHaveLength(record.history.length);

  await done('retry', id);
  await eventually('the second mail', () => world.mail.mailsTo(application.email).length === 2);
  expect(await world.recordIn('completed', id)).not.toHaveProperty('reasons');
  // This late report is about the first of two mails.
  expect((await cli(...report)).stdout).toContain('an earlier e-mail');
  expect((await world.record(id))?.state).toBe('completed');
});

test.each(['--request', '--email'])('%s says which e-mail came back', async (option) => {
  const { id, application } = await completed();
  const value = option === '--request' ? id : application.email.toUpperCase();
  await done('bounce', option, value);
  await world.recordIn('undeliverable', id);
});

test('a report about an unknown mail is refused', async () => {
  const unknown = [
    ['--message-id', '<other@x.example>'],
    ['--message-id', `<${newId('acc', new Date())}.login-instructions@x.example>`],
    ['--request', newId('req', new Date())],
    ['--email', 'nobody@example.com'],
  ];
  for (const words of unknown)
    expect(await cli('bounce', ...words)).toMatchObject({ code: 1, stdout: '' });
  for (const words of [[], ['--status', '5.1.1'], ['--request', 'a', '--email', 'b@x.example']])
    expect(await cli('bounce', ...words)).toMatchObject({ code: 2, stdout: '' });
});
