/**
 * The same applicant at the same moment, through several processes: the unique indexes decide, once
 * and for all.
 */
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import type { ServiceProcess } from '../../deploy/local/processes.ts';
import type { SubmissionRecord } from '../../internal/submission/submission.ts';
import { submit } from '../support/processing.ts';
import { HEAL_HANG_MS, eventually } from '../support/wait.ts';
import { newApplication, openWorld, type World } from '../support/world.ts';

const SUBMISSIONS = 50;
let world: World;
let ingests: ServiceProcess[];
let processors: ServiceProcess[];

beforeAll(async () => {
  world = await openWorld();
  const started = await Promise.all(
    (['ingest', 'ingest', 'processor', 'processor'] as const).map((name) => world.spawn(name)),
  );
  [ingests, processors] = [started.slice(0, 2), started.slice(2)];
});
afterAll(() => world.close());

/** Submits all at once over both ingests, and gives the records once none of them is open. */
async function race(applications: readonly object[]): Promise<SubmissionRecord[]> {
  const ids = await Promise.all(
    applications.map((fields, index) => submit(world, ingests[index % ingests.length]!, fields)),
  );
  expect(new Set(ids).size).toBe(applications.length);
  return eventually(
    'all to be finished',
    async () => {
      const records = await world.records({ _id: { $in: ids } });
      return records.every(({ state }) => state === 'completed' || state === 'rejected')
        ? records
        : undefined;
    },
    HEAL_HANG_MS,
  );
}

const duplicates = (record: SubmissionRecord): Record<string, string | undefined> =>
  Object.fromEntries((record.reasons ?? []).map(({ code, duplicateOf }) => [code, duplicateOf]));

test(`${SUBMISSIONS} identical applications at once: one account, one e-mail, the rest duplicates of it`, async () => {
  const application = newApplication();
  const records = await race(Array.from({ length: SUBMISSIONS }, () => application));

  const [winner, ...others] = records.filter(({ state }) => state === 'completed');
  expect(others).toEqual([]);
  expect(await world.accounts({ ein: application.ein })).toMatchObject([
    { requestId: winner?._id, email: application.email },
  ]);
  expect(world.mail.mailsTo(application.email)).toHaveLength(1);
  const losers = records.filter(({ state }) => state === 'rejected');
  expect(losers).toHaveLength(SUBMISSIONS - 1);
  for (const loser of losers) {
    expect(duplicates(loser)).toEqual({ duplicate_email: winner?._id, duplicate_ein: winner?._id });
    expect(loser.history.map(({ state }) => state)).toEqual(['recorded', 'rejected']);
  }
  expect((await duplicateKeysMet()).reduce((sum, count) => sum + count, 0)).toBeGreaterThanOrEqual(
    SUBMISSIONS - 1,
  );
  // Both take part, or it is no race between processes; on a busy machine one may be too late for a
  // single race.
  const bothMet = async (): Promise<boolean> => Math.min(...(await duplicateKeysMet())) > 0;
  await eventually('both processors to meet duplicates', async () => {
    if (await bothMet()) return true;
    await race(Array.from({ length: SUBMISSIONS }, () => application));
    return bothMet();
  });
});

test(`${SUBMISSIONS} applications of mixed e-mails and EINs: each loser names the accounts it lost to`, async () => {
  const people = Array.from({ length: 5 }, newApplication);
  const mixed = people.flatMap(({ email, business_name }) =>
    people.map(({ ein }) => ({ email, business_name, ein })),
  );
  // The second half differs in case only, which is the same applicant.
  const records = await race([
    ...mixed,
    ...mixed.map((one) => ({ ...one, email: one.email.toUpperCase() })),
  ]);
  expect(records).toHaveLength(SUBMISSIONS);

  const accounts = await world.accounts({ ein: { $in: people.map(({ ein }) => ein) } });
  expect(new Set(accounts.map(({ emailNormalized }) => emailNormalized)).size).toBe(
    accounts.length,
  );
  expect(new Set(accounts.map(({ ein }) => ein)).size).toBe(accounts.length);
  const completed = records.filter(({ state }) => state === 'completed');
  expect(completed.map(({ _id }) => _id).toSorted()).toEqual(
    accounts.map(({ requestId }) => requestId).toSorted(),
  );
  const mailed = people.map(({ email }) => world.mail.mailsTo(email).length);
  expect(mailed.reduce((sum, count) => sum + count, 0)).toBe(accounts.length);
  expect(Math.max(...mailed)).toBe(1);
  // No e-mail and EIN are both left free: that pair was sent, and should have become an account.
  expect(accounts).toHaveLength(people.length);

  const byEmail = new Map(accounts.map((account) => [account.emailNormalized, account.requestId]));
  const byEin = new Map(accounts.map((account) => [account.ein, account.requestId]));
  const losers = records.filter(({ state }) => state === 'rejected');
  for (const loser of losers) {
    const { duplicate_email: emailBy, duplicate_ein: einBy } = duplicates(loser);
    // Who lost early names one account only: the other did not exist yet.
    expect(emailBy ?? einBy).toBeDefined();
    if (emailBy !== undefined) expect(emailBy).toBe(byEmail.get(loser.applicant?.email ?? ''));
    if (einBy !== undefined) expect(einBy).toBe(byEin.get(loser.applicant?.ein ?? ''));
  }

  const [one, two] = accounts;
  const [late] = await race([
    { email: ` ${one?.email.toUpperCase()} `, business_name: 'Late', ein: two?.ein },
  ]);
  expect(late?.state).toBe('rejected');
  expect(duplicates(late!)).toEqual({
    duplicate_email: one?.requestId,
    duplicate_ein: two?.requestId,
  });
});

/** How many each processor met. */
const duplicateKeysMet = (): Promise<number[]> =>
  Promise.all(
    processors.map((processor) => world.metric(processor, 'partner_ingest_duplicate_keys_total')),
  );
