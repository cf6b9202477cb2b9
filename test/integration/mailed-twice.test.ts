/** Which second e-mails the audit finds: those that nobody ordered. */
import { expect, test } from '@jest/globals';
import { operatorWorld } from '../support/cli.ts';
import { eventually } from '../support/wait.ts';

const { world, completed, done, accountOf } = await operatorWorld();

async function isFound(id: string): Promise<boolean> {
  const { _id } = await accountOf(id);
  const audit = (await done('audit', '--json')).json<{
    readonly findings: readonly { readonly kind: string; readonly ids: readonly string[] }[];
  }>();
  return audit.findings.some(({ kind, ids }) => kind === 'mailed_twice' && ids.includes(_id));
}

async function resend(id: string, mails: number): Promise<void> {
  await done('resend', id, '--yes', '--why', 'ticket 4711');
  await eventually('the e-mail', async () => (await accountOf(id)).mail?.begun === mails);
  await world.recordIn('completed', id);
}

/** As after a crash between the relay's answer and its note. */
async function mailUnordered(id: string): Promise<void> {
  const { _id } = await accountOf(id);
  await world.stores.accounts.updateOne({ _id }, { $inc: { 'mail.possible': 1 } });
}

test('what an operator ordered is no finding, and a second e-mail that came by itself stays one', async () => {
  const { id } = await completed();
  await resend(id, 2);
  await resend(id, 3);
  expect(await isFound(id)).toBe(false);
  await mailUnordered(id);
  expect(await isFound(id)).toBe(true);
  await resend(id, 4);
  expect(await isFound(id)).toBe(true);

  const { id: other } = await completed();
  await mailUnordered(other);
  expect(await isFound(other)).toBe(true);
});
