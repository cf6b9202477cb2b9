/** Logs in at the console by a real OpenID provider, in a real browser. */
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { createServer, type Server } from 'node:http';
import { sign } from '@fastify/cookie';
import { Provider } from 'oidc-provider';
import type { Browser, BrowserContext, Page } from 'puppeteer-core';
import { freePort } from '../../deploy/local/stores/wait.ts';
import { OPERATOR_AUDIT } from '../../internal/audit/trail.ts';
import { ConfigError } from '../../internal/platform/config.ts';
import { loadConfig } from '../../internal/settings/settings.ts';
import { accessFaults, openBrowser, textOf } from '../support/browser.ts';
import { listen } from '../support/listen.ts';
import { submit } from '../support/processing.ts';
import { newApplication, worldOf, type InProcess } from '../support/world.ts';

const { world, ingest } = await worldOf(['ingest', 'processor'], { documentedRights: true });
let browser: Browser;
let provider: Server;
let environment: Readonly<Record<string, string>>;
let desk: InProcess;
let requestId: string;
const application = newApplication();
const SECRET = 'a-secret-for-tests-of-32-characters-or-more';

beforeAll(async () => {
  requestId = await submit(world, ingest, application);
  await world.recordIn('completed', requestId);
  const [port, consolePort] = [await freePort(), await freePort()];
  const url = `http://127.0.0.1:${consolePort}`;
  provider = await startProvider(port, `${url}/login/callback`);
  environment = {
    CONSOLE_PORT: String(consolePort),
    CONSOLE_URL: url,
    CONSOLE_SESSION_SECRET: SECRET,
    OIDC_ISSUER: `http://127.0.0.1:${port}`,
    OIDC_CLIENT_ID: 'console',
    OIDC_CLIENT_SECRET: 'a-client-secret-for-tests',
  };
  desk = await world.start('console', environment);
  browser = await openBrowser();
});
afterAll(async () => {
  await browser.close();
  provider.close();
  provider.closeAllConnections();
});

/** The user names are the roles; `nobody` has none. */
async function startProvider(port: number, redirectUri: string): Promise<Server> {
  const oidc = new Provider(`http://127.0.0.1:${port}`, {
    clients: [
      {
        client_id: 'console',
        client_secret: 'a-client-secret-for-tests',
        redirect_uris: [redirectUri],
        response_types: ['code'],
        grant_types: ['authorization_code'],
      },
    ],
    claims: { openid: ['sub', 'roles'], email: ['email'], profile: [] },
    conformIdTokenClaims: false,
    pkce: { required: () => true },
    findAccount: (_: unknown, id: string) => ({
      accountId: id,
      claims: () => ({ sub: id, email: `${id}@example.com`, roles: [id] }),
    }),
  });
  const server = createServer((request, response) => void oidc.callback()(request, response));
  await listen(server, port);
  return server;
}

/** Each person has a browser profile of their own. */
async function logIn(name: string, path = '/'): Promise<{ page: Page; context: BrowserContext }> {
  const context = await browser.createBrowserContext();
  const page = await context.newPage();
  await page.goto(desk.url + path);
  await page.type('[name=login]', name);
  await page.type('[name=password]', 'any');
  await Promise.all([page.waitForNavigation(), page.click('[type=submit]')]);
  // The provider asks for consent, then leads back.
  await Promise.all([page.waitForNavigation(), page.click('[type=submit]')]);
  return { page, context };
}

test('support logs in, gets the requested page, and reveals under a proven name', async () => {
  const { page } = await logIn('support', `/requests/${requestId}`);
  expect(page.url()).toBe(`${desk.url}/requests/${requestId}`);
  expect(await textOf(page)).toContain('support@example.com (support)');
  await page.type('#why', 'ticket 4711');
  await Promise.all([page.waitForNavigation(), page.click('main button')]);
  expect(await textOf(page)).toContain(application.email);
  expect(await accessFaults(page)).toEqual([]);
  const [entry] = await world.stores.db.collection(OPERATOR_AUDIT).find().toArray();
  expect(entry).toMatchObject({ by: 'support@example.com', nameFrom: 'oidc', why: 'ticket 4711' });
  const cookies = await page.browserContext().cookies();
  const session = cookies.find(({ name }) => name === 'session');
  expect(session).toMatchObject({ httpOnly: true, secure: true, sameSite: 'Lax' });

  await Promise.all([page.waitForNavigation(), page.click('header button')]);
  expect(await textOf(page)).toContain('You are logged out');
});

test('a viewer sees everything masked, and a forged reveal is refused and shows nothing', async () => {
  const { page } = await logIn('viewer', `/requests/${requestId}`);
  expect(await textOf(page)).toContain('Personal data is masked');
  expect(await page.$('#why')).toBeNull();
  // The token of one form is valid in every form of the session.
  await page.evaluate(`(() => {
    const form = document.querySelector('form');
    form.action = '/requests/${requestId}/reveal';
    const why = document.createElement('input');
    Object.assign(why, { name: 'why', value: 'curious' });
    form.append(why);
  })()`);
  await Promise.all([page.waitForNavigation(), page.click('header button')]);
  expect(await textOf(page)).toContain('the role "support" may reveal');
  expect(await page.content()).not.toContain(application.email);
});

test('a viewer finds by whole values only, 20 times a minute, and the trail has what was shown', async () => {
  const { page } = await logIn('viewer', '/find');
  const finds = async (fields: Readonly<Record<string, string>>): Promise<boolean> => {
    await page.goto(`${desk.url}/find`);
    for (const [name, value] of Object.entries(fields)) await page.type(`#${name}`, value);
    await Promise.all([page.waitForNavigation(), page.click('main button')]);
    return (await textOf(page)).includes(requestId);
  };
  const { business_name: name, ein } = application;
  expect(await textOf(page)).toContain('all of it');
  expect(await finds({ name: name.slice(0, -1) })).toBe(false);
  expect(await finds({ name: name.slice(1) })).toBe(false);
  expect(await finds({ name: `\u200B ${name.toUpperCase()}` })).toBe(true);
  expect(await finds({ ein: `${ein.slice(0, 2)}\u2011${ein.slice(2)}` })).toBe(true);
  const [shown] = await world.stores.db
    .collection(OPERATOR_AUDIT)
    .find({ by: 'viewer@example.com' })
    .sort({ _id: -1 })
    .toArray();
  expect(shown).toMatchObject({ action: 'find --ein', requestIds: [requestId] });
  for (let asked = 4; asked < 20; asked += 1) await finds({ name: 'a' });
  await finds({ name });
  expect(await textOf(page)).toContain('Wait a minute');
});

test('a person without a role is shown no page and no figures', async () => {
  const { page } = await logIn('nobody');
  expect(await textOf(page)).toContain('nobody@example.com has neither the role');
  await page.goto(`${desk.url}/history.json`);
  expect(page.url()).not.toContain('history.json');
});

test('a wrong state, a return without a log-in, and a forged session are refused', async () => {
  const begun = await fetch(`${desk.url}/login`, { redirect: 'manual' });
  const cookie = begun.headers.getSetCookie()[0]!.split(';')[0]!;
  const target = new URL(begun.headers.get('location')!);
  expect(target.searchParams.get('code_challenge_method')).toBe('S256');
  expect(target.searchParams.get('nonce')).toBeTruthy();
  const back = (path: string, headers: Record<string, string>) =>
    fetch(`${desk.url}/login/callback${path}`, { headers, redirect: 'manual' });
  const wrong = await back('?code=any&state=wrong', { cookie });
  expect([wrong.status, await wrong.text()]).toEqual([400, expect.stringContaining('not succeed')]);
  const alone = await back('?code=any&state=any', {});
  expect(alone.status).toBe(400);
  for (const session of ['session=forged', cookie.replace('login=', 'session=')]) {
    const page = await fetch(desk.url, { headers: { cookie: session }, redirect: 'manual' });
    expect([page.status, page.headers.get('location')]).toEqual([303, '/login?to=%2F']);
  }
});

test('a session is valid until the time that stands in it', async () => {
  const statusAt = async (until: number) => {
    const text = `session ${JSON.stringify({ name: 'jane', role: 'support', until })}`;
    const cookie = `session=${encodeURIComponent(sign(text, SECRET))}`;
    const page = await fetch(`${desk.url}/trail`, { headers: { cookie }, redirect: 'manual' });
    return page.status;
  };
  expect(await statusAt(Date.now() + 60_000)).toBe(200);
  expect(await statusAt(Date.now() - 60_000)).toBe(303);
});

test('the console does not start on a public address without OIDC', () => {
  const base = { MONGODB_URI: world.stores.mongodbUri, ALLOW_INSECURE_STORES: 'true' };
  const faultsOf = (more: Readonly<Record<string, string>>): readonly string[] => {
    try {
      loadConfig('console', { ...base, ...more });
      return [];
    } catch (error) {
      return (error as ConfigError).faults;
    }
  };
  expect(faultsOf({})).toEqual([]);
  expect(faultsOf({ CONSOLE_HOST: '::' })).toEqual([expect.stringContaining('OIDC_ISSUER')]);
  expect(faultsOf({ OIDC_ISSUER: 'https://login.example' })).toHaveLength(4);
});
