/**
 * The line of mails in the real service before a real mail server: what one partner's recipients
 * or the relay answer, and what another partner notices of it.
 */
import { afterAll, afterEach, beforeAll, expect, test } from '@jest/globals';
import type { FaultRow } from '../support/smtp-faults.ts';
import { knownAnswers } from '../../internal/mail/relay-answers.ts';
import { newApiKey } from '../../internal/partner/api-key.ts';
import { pastLockConflicts } from '../../internal/platform/mongo.ts';
import { SUBMISSIONS } from '../../internal/submission/submission.ts';
import { cliOf } from '../support/cli.ts';
import { send } from '../support/http.ts';
import type { SmtpFault } from '../support/mail-catcher.ts';
import { submit } from '../support/processing.ts';
import { startRawRelay } from '../support/raw-relay.ts';
import { eventually } from '../support/wait.ts';
import {
  newApplication,
  openWorld,
  requestIdOf,
  type InProcess,
  type World,
} from '../support/world.ts';

/** Mails of the partner whose recipients meet the fault, and of the one beside it. */
const ADVERSARY = 120;
const VICTIM = 40;
/** The other partner's mails are out by then, or in five times of what they take alone. */
const BESIDE_MS = 6_000;

let world: World;
let ingest: InProcess;
let processor: InProcess;
const victimKey = newApiKey();

beforeAll(async () => {
  world = await openWorld();
  await world.writePartner({ partner: 'victim', keys: [victimKey] });
  ingest = await world.start('ingest');
  processor = await world.start('processor');
  await eventually('the key of the other partner', async () => {
    return (await send(ingest.url, { key: victimKey, body: '[]' })).status === 400;
  });
});
afterEach(async () => {
  world.mail.setFault(undefined);
  await pastLockConflicts(() => world.stores.db.collection(SUBMISSIONS).deleteMany({}));
});
afterAll(() => world.close());

/** Sends all at once and gives the milliseconds until each is completed. */
async function victimTakes(): Promise<number> {
  const startedAt = performance.now();
  const ids = await Promise.all(
    Array.from({ length: VICTIM }, async (_, n) => {
      const { email, ...others } = newApplication();
      const body = JSON.stringify({ ...others, email: email.replace(/@.*/, `@v${n % 5}.example`) });
      return requestIdOf(await send(ingest.url, { key: victimKey, body }));
    }),
  );
  await eventually('the other partner’s mails', async () => {
    const done = await world.records({ _id: { $in: ids }, state: 'completed' });
    return done.length === VICTIM;
  });
  return performance.now() - startedAt;
}

/** Puts the adversary's applications in, with their mails at one domain or at one each. */
async function crowd(domainOf: (n: number) => string): Promise<readonly string[]> {
  return Promise.all(
    Array.from({ length: ADVERSARY }, (_, n) => {
      const { email, ...others } = newApplication();
      return submit(world, ingest, {
        ...others,
        email: email.replace(/@.*/, `-adversary@${domainOf(n)}`),
      });
    }),
  );
}

const moments = { rcpt: 'rcpt', data: 'data-command', content: 'data' } as const;
/** Of all known answers about one mail, one of each kind at each moment. */
const kinds = new Map<string, SmtpFault>();
for (const { phase, answer, fault } of knownAnswers) {
  if (phase === 'mail') continue;
  const message = answer.slice(4).replaceAll('\n', ' ');
  const code = Number(answer.slice(0, 3));
  const name = `${fault} at ${phase}`;
  if (!kinds.has(name)) kinds.set(name, { at: moments[phase], answer: { code, message } });
}
kinds.set('silence at rcpt', { at: 'rcpt', hang: true } satisfies FaultRow['fault']);
kinds.set('a cut after the content', { at: 'data', cut: 'after-store' });

test.each([...kinds])(
  'one partner’s recipients meet %s: another partner’s mails go out as if alone',
  async (name, fault) => {
    const alone = await victimTakes();
    world.mail.setFault(({ rcptTo }) =>
      rcptTo.some((address) => address.includes('-adversary@')) ? fault : undefined,
    );
    const oneDomain = name.length % 2 === 0;
    const theirs = await crowd((n) => (oneDomain ? 'one.example' : `a${n}.example`));
    const beside = await victimTakes();
    expect(beside).toBeLessThan(Math.max(BESIDE_MS, 5 * alone));
    // The fault has been met, and no record is lost by it.
    expect(await world.records({ _id: { $in: [...theirs] } })).toHaveLength(ADVERSARY);
    await world.mail.stopListening();
    await world.mail.listenAgain();
  },
);

test('a refused sender stops all mails; once it is corrected, `retry` sends them at once', async () => {
  world.mail.setFault({ at: 'mail', answer: { code: 550, message: '5.7.1 Sender refused' } });
  const ids = await Promise.all(
    Array.from({ length: 24 }, () => submit(world, ingest, newApplication())),
  );
  await eventually('the pause', async () => {
    const records = await world.records({ _id: { $in: ids }, state: 'account_created' });
    const refused = await world.metric(processor, 'partner_ingest_sender_refused');
    return records.length === ids.length && refused === 1;
  });
  world.mail.setFault(undefined);
  const correctedAt = Date.now();
  await Promise.all(
    ids.map((id) =>
      eventually('no worker to have the request in hand', async () => {
        const { code } = await cliOf(world)('retry', id);
        return code === 0 || (await world.record(id))?.state === 'completed';
      }),
    ),
  );
  const done = await Promise.all(ids.map((id) => world.recordIn('completed', id)));
  expect(done.map(({ attempts }) => attempts)).toEqual(ids.map(() => 0));
  const lastAt = Math.max(...done.map(({ stateAt }) => stateAt.getTime()));
  expect(lastAt - correctedAt).toBeLessThan(15_000);
});

test('a relay that says 421 at RCPT and hangs up costs no attempt', async () => {
  const relay = await startRawRelay();
  const other = await openWorld();
  try {
    relay.odd = { at: 'RCPT', says: '421 4.7.0 Try again later, closing connection', closes: true };
    const otherIngest = await other.start('ingest');
    await other.start('processor', { SMTP_URL: `smtp://127.0.0.1:${relay.port}` });
    const id = await submit(other, otherIngest, newApplication());
    await eventually('several sessions', () => relay.connections >= 2);
    expect(await other.record(id)).toMatchObject({ state: 'account_created', attempts: 0 });
    relay.odd = undefined;
    expect(await other.recordIn('completed', id)).toMatchObject({ attempts: 0 });
    expect(relay.contents).toHaveLength(1);
  } finally {
    await other.close();
    await relay.close();
  }
});
