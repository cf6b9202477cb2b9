/** Two processors with a relay that takes no mail, or with silent recipients. */
import { afterAll, afterEach, beforeAll, expect, test } from '@jest/globals';
import type { ServiceProcess } from '../../deploy/local/processes.ts';
import { handOversOf } from '../../internal/mail/ledger.ts';
import { newApiKey } from '../../internal/partner/api-key.ts';
import { send } from '../support/http.ts';
import { HANG_MS, eventually } from '../support/wait.ts';
import {
  newApplication,
  openWorld,
  requestIdOf,
  type InProcess,
  type World,
} from '../support/world.ts';

const PLACES = 4;
let world: World;
let ingest: InProcess;
const processors: ServiceProcess[] = [];
let spawn: () => Promise<ServiceProcess>;
const partners = ['silent', 'slow', 'victim'] as const;
const keys = { silent: newApiKey(), slow: newApiKey(), victim: newApiKey() };

beforeAll(async () => {
  world = await openWorld();
  for (const partner of partners) await world.writePartner({ partner, keys: [keys[partner]] });
  ingest = await world.start('ingest');
  const url = new URL(world.mail.smtpUrl);
  const login = { username: 'relay-user', password: 'relay-password' };
  const settings = {
    SMTP_URL: Object.assign(url, login).href,
    MAIL_CONNECTIONS: String(PLACES),
  };
  spawn = () => world.spawn('processor', settings);
  processors.push(await spawn());
  await eventually('the keys', async () => {
    const answers = partners.map((partner) => send(ingest.url, { key: keys[partner], body: '[]' }));
    return (await Promise.all(answers)).every(({ status }) => status === 400);
  });
});
afterEach(async () => {
  world.mail.setFault(undefined);
  await reconnect();
});
afterAll(() => world.close());

/** Reopens all sessions, so that they meet the present fault. */
async function reconnect(): Promise<void> {
  await world.mail.stopListening();
  await world.mail.listenAgain();
}

function submit(partner: keyof typeof keys, count: number): Promise<string[]> {
  const one = async (): Promise<string> => {
    const { email, ...others } = newApplication();
    const body = JSON.stringify({ ...others, email: email.replace('@', `-${partner}@`) });
    return requestIdOf(await send(ingest.url, { key: keys[partner], body }));
  };
  return Promise.all(Array.from({ length: count }, one));
}

const completed = (ids: readonly string[]): Promise<unknown> =>
  Promise.all(ids.map((id) => world.recordIn('completed', id, HANG_MS)));

const paused = async (one: ServiceProcess): Promise<boolean> =>
  (await world.metric(one, 'partner_ingest_worker_paused', { waits_for: 'relay' })) === 1;

const allPaused = async (): Promise<boolean> =>
  (await Promise.all(processors.map(paused))).every(Boolean);

test('after a 421 at the greeting, silent recipients do not delay other partners', async () => {
  world.mail.setFault({ at: 'connect', answer: { code: 421, message: '4.3.2 busy' } });
  await reconnect();
  await submit('silent', 3);
  await eventually('the pause', () => allPaused());
  let asked = 0;
  world.mail.setFault(({ rcptTo }) => {
    if (!rcptTo.some((address) => address.includes('-silent@'))) return undefined;
    asked += 1;
    return { at: 'data', hang: true };
  });
  // The relay has been silent at RCPT, at DATA and after the content.
  await eventually('silence after the content', () => asked >= 3);
  await completed(await submit('victim', 5));
});

test('a relay that refuses our login is tried with one e-mail of each processor only', async () => {
  processors.push(await spawn());
  const from = processors.map(({ lines }) => lines.length);
  const said = (index: number, words: string): number =>
    processors[index]!.lines.slice(from[index]).filter((line) => line.includes(words)).length;
  world.mail.setFault({ at: 'auth', answer: { code: 535, message: '5.7.8 no' } });
  await reconnect();
  const ids = await submit('victim', 1);
  await eventually('both pauses', () => allPaused());
  const { connections } = world.mail.counts;
  await eventually('more trials', () => world.mail.counts.connections > connections + 6);
  for (const [index, one] of processors.entries()) {
    expect(await paused(one)).toBe(true);
    expect(await world.metric(one, 'partner_ingest_sender_refused')).toBe(1);
    expect(said(index, 'mails wait for the relay')).toBe(1);
    expect(said(index, 'the relay takes mail again')).toBe(0);
    const { warnings } = (await (await fetch(`${one.adminUrl}/readyz`)).json()) as {
      readonly warnings: readonly string[];
    };
    expect(warnings.join()).toContain('it refuses the login');
  }
  const [account] = await world.accounts({ requestId: ids[0] });
  expect(handOversOf(account?.mail).length).toBeLessThanOrEqual(processors.length);
  world.mail.setFault(undefined);
  await completed(ids);
  for (const [index, one] of processors.entries()) {
    await eventually('the end of the pause', async () => !(await paused(one)));
    expect(said(index, 'the relay takes mail again')).toBe(1);
  }
});

test('partners with silent recipients do not take the places of others', async () => {
  world.mail.setFault(({ rcptTo }) =>
    rcptTo.some((address) => /-(?:silent|slow)@/.test(address))
      ? { at: 'data', hang: true }
      : undefined,
  );
  await Promise.all([submit('silent', 6 * PLACES), submit('slow', 6 * PLACES)]);
  await completed(await submit('victim', 3 * PLACES));
  const hung = await world.records({ partnerId: { $in: ['silent', 'slow'] }, state: 'completed' });
  expect(hung).toEqual([]);
});
