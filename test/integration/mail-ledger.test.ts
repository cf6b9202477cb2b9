/** The mail ledger on the real store: its counts are right after repeats and crashes. */
import { expect, test } from '@jest/globals';
import type { Account, Intent, MailOutcome } from '../../internal/account/account.ts';
import { AccountStore } from '../../internal/account/account-store.ts';
import { handOversOf, LedgerStore } from '../../internal/account/mail-ledger.ts';
import { systemClock as clock } from '../../internal/platform/process/clock.ts';
import { storesOfFile } from '../support/test-stores.ts';
import { newApplication } from '../support/world.ts';

const ACTIVATION = { tokenHash: 'a'.repeat(64), expiresAt: new Date(Date.now() + 86_400_000) };
const ACCEPTED: MailOutcome = { result: 'accepted', answer: '250 2.0.0 Ok: queued as 1' };
const REFUSED: MailOutcome = {
  result: 'refused',
  phase: 'rcpt',
  code: 450,
  enhancedCode: '4.2.1',
  answer: '450 4.2.1 mailbox busy',
};
const AMBIGUOUS: MailOutcome = { result: 'ambiguous', cause: 'ECONNECTION' };

const stores = await storesOfFile({ indexes: true });
const collection = stores.accounts;
const accounts = new AccountStore({ db: stores.db, clock });
const ledger = new LedgerStore({ db: stores.db, clock });

async function newAccount(): Promise<string> {
  const { email, business_name: businessName, ein } = newApplication();
  const owner = { requestId: `req_${ein}`, partnerId: 'demo' };
  const fact = await accounts.create(accounts.draft({ email, businessName, ein }, owner));
  if (fact.kind !== 'created') throw new Error('not created');
  return fact.accountId;
}

const intentOf = (claim: number): Intent => ({
  claim,
  startedAt: clock.now(),
  attempt: 1,
  host: 'processor-1',
});
const read = async (accountId: string): Promise<Account> => (await accounts.read(accountId))!;

/** Hands over once; without `handOver` the worker dies in between. */
async function handOver(accountId: string, claim: number, handedOver?: MailOutcome): Promise<void> {
  const intent = intentOf(claim);
  const account = await read(accountId);
  await ledger.beginHandOver(account, intent, ACTIVATION);
  if (handedOver !== undefined) await ledger.endHandOver(account, intent, handedOver);
}

test('an update repeated after a lost answer counts once', async () => {
  const id = await newAccount();
  for (const [claim, handedOver] of [
    [1, REFUSED],
    [2, AMBIGUOUS],
    [3, ACCEPTED],
  ] as const) {
    const intent = intentOf(claim);
    const account = await read(id);
    for (const _ of [1, 2]) await ledger.beginHandOver(account, intent, ACTIVATION);
    for (const _ of [1, 2]) await ledger.endHandOver(account, intent, handedOver);
  }
  const { mail } = await read(id);
  expect(mail).toMatchObject({ begun: 3, possible: 2 });
  expect(handOversOf(mail).map(({ result }) => result)).toEqual([
    'refused',
    'ambiguous',
    'accepted',
  ]);
});

test('a result without a stored intent does not lower the count', async () => {
  const id = await newAccount();
  await handOver(id, 1, AMBIGUOUS);
  await ledger.endHandOver(await read(id), intentOf(2), {
    result: 'aborted',
    cause: 'database away',
  });
  expect((await read(id)).mail).toMatchObject({
    begun: 1,
    possible: 1,
    handOvers: { 1: { result: 'ambiguous' } },
  });
});

test('an e-mail to an address corrected meanwhile does not count as sent to the new one', async () => {
  const id = await newAccount();
  const mailed = await read(id);
  await ledger.beginHandOver(mailed, intentOf(1), ACTIVATION);
  const email = `corrected-${mailed.ein}@example.com`;
  await collection.updateOne({ _id: id }, { $set: { email, emailNormalized: email } });
  for (const _ of [1, 2]) await ledger.endHandOver(mailed, intentOf(1), ACCEPTED);
  const { mail, notifiedAt } = await read(id);
  expect(mail).toMatchObject({ begun: 1, possible: 1, handOvers: { 1: { result: 'accepted' } } });
  expect(notifiedAt).toBeUndefined();
});
