/** Reads notifications as mail systems write them. */
import { expect, test } from '@jest/globals';
import {
  amazonSes,
  failures,
  noFailures,
  noNotifications,
  queueIdOnly,
  type Returned,
} from '../../test/support/notifications.ts';
import { readNotification } from './delivery-status.ts';

const mail: Returned = {
  messageId: '<acc_01m7yppxy4e01v3gzvkymsa33d.login-instructions.2@partner.example>',
  recipient: 'jane@example.org',
  relaysId: '0102019a2b3c4d5e-1f2e3d4c-5b6a-7988-9a0b-1c2d3e4f5a6b-000000',
};
const OURS = mail.messageId.slice(1, -1);

test.each(Object.entries(failures))('a failure: %s', async (_name, write) => {
  expect(await readNotification(write(mail))).toMatchObject({
    kind: 'failed',
    status: '5.1.1',
    messageId: OURS,
    recipients: expect.arrayContaining([mail.recipient]),
  });
});

test.each([
  ['Amazon SES', amazonSes, `250 Ok ${mail.relaysId}`],
  ['Postfix', queueIdOnly, `250 2.0.0 Ok: queued as ${mail.relaysId}`],
])("the relay's own id: %s", async (_name, write, answer) => {
  const notification = await readNotification(write(mail));
  expect(notification).toMatchObject({
    kind: 'failed',
    status: '5.1.1',
    recipients: [mail.recipient],
  });
  expect(notification).not.toHaveProperty('messageId');
  const holds = (words: string): boolean =>
    notification.kind === 'failed' && notification.holdsIdOf(words);
  expect(holds(answer)).toBe(true);
  // These are another id, a part of the id, and words of many notifications.
  expect(holds(answer.replace('0102', '0103'))).toBe(false);
  expect(holds(answer.replace('-000000', ''))).toBe(answer.includes('-000000'));
  expect(holds(answer.replace('000000', ''))).toBe(false);
  for (const words of [
    '250 2.0.0 Ok',
    '250 mx.example accepted for delivery',
    '250 a1-2.smtp-out.eu-west-1.amazonses.com',
  ])
    expect(holds(words)).toBe(false);
});

test('a mail of someone else that answers ours, or is not known, is not ours', async () => {
  const foreign = (write: (of: Returned) => string): string =>
    write(mail).replaceAll(
      /Message-ID: .*login.*/gi,
      `Message-ID: <other@partner.example>\r\nReferences: ${mail.messageId}`,
    );
  for (const name of ['Postfix', 'Exim, text alone']) {
    const notification = await readNotification(foreign(failures[name]!));
    expect(notification).toMatchObject({ kind: 'failed' });
    expect(notification).not.toHaveProperty('messageId');
  }
});

test.each(Object.entries(noFailures))('no failure: %s', async (_name, write) => {
  expect(await readNotification(write(mail))).toMatchObject({ kind: 'no_failure' });
});

test.each(Object.entries(noNotifications))('no notification: %s', async (_name, write) => {
  expect(await readNotification(write(mail))).toEqual({
    kind: 'none',
    why: 'is no notification of a mail that could not be delivered',
  });
});

test.each<[string, string]>([
  ['a: b\n'.repeat(10_001), 'more than 10000 lines'],
  [
    `Content-Type: multipart/mixed; boundary=b\n${'\n--b\nContent-Type: a/b\n\nx'.repeat(101)}`,
    'more than 100 parts',
  ],
  [`${'Content-Type: message/rfc822\n\n'.repeat(6)}x: y`, 'more than 5 mails'],
])('what is made to cost much is not read: %#', async (source, why) => {
  expect(await readNotification(source)).toEqual({
    kind: 'none',
    why: expect.stringContaining(why),
  });
});
