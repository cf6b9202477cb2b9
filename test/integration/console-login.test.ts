/** Logs in at the console by a real OpenID provider, in a real browser. */
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { createServer, type Server } from 'node:http';
import { sign } from '@fastify/cookie';
import { Provider, type Configuration } from 'oidc-provider';
import type { Browser, BrowserContext, Page } from 'puppeteer-core';
import { freePort } from '../../deploy/local/stores/wait.ts';
import { OPERATOR_AUDIT } from '../../internal/audit/trail.ts';
import { ConfigError } from '../../internal/platform/config.ts';
import { loadConfig } from '../../internal/settings/settings.ts';
import { accessFaults, openBrowser, textOf } from '../support/browser.ts';
import { listen } from '../support/listen.ts';
import { submit } from '../support/processing.ts';
import { newApplication, worldOf, type InProcess } from '../support/world.ts';

const { world, ingest } = await worldOf(['ingest', 'processor']);
let browser: Browser;
const providers: Server[] = [];
let desk: InProcess;
let requestId: string;
const application = newApplication();
// Encoded in `client_secret_basic`.
const CLIENT_SECRET = 'a client:secret+for/tests%41';
const SECRET = 'a-secret-for-tests-of-32-characters-or-more';

beforeAll(async () => {
  requestId = await submit(world, ingest, application);
  await world.recordIn('completed', requestId);
  desk = await startDesk();
  browser = await openBrowser();
});
afterAll(async () => {
  await browser.close();
  for (const provider of providers) {
    provider.close();
    provider.closeAllConnections();
  }
});

/** A console with a provider of its own, whose calls `calls` gets. */
async function startDesk(
  {
    settings = {},
    calls = [],
  }: { readonly settings?: Configuration; readonly calls?: string[] } = {},
  environment: Readonly<Record<string, string>> = {},
): Promise<InProcess> {
  const [port, consolePort] = [await freePort(), await freePort()];
  const url = `http://127.0.0.1:${consolePort}`;
  const issuer = `http://127.0.0.1:${port}`;
  const oidc = new Provider(issuer, configurationOf(`${url}/login/callback`, settings));
  const provider = createServer((request, response) => {
    calls.push(request.url!);
    void oidc.callback()(request, response);
  });
  await listen(provider, port);
  providers.push(provider);
  return world.start('console', {
    CONSOLE_PORT: String(consolePort),
    CONSOLE_URL: url,
    CONSOLE_SESSION_SECRET: SECRET,
    OIDC_ISSUER: issuer,
    OIDC_CLIENT_ID: 'console',
    OIDC_CLIENT_SECRET: CLIENT_SECRET,
    ...environment,
  });
}

/** The user names are the roles; `nobody` has none. */
function configurationOf(redirectUri: string, more: Configuration): Configuration {
  return {
    clients: [
      {
        client_id: 'console',
        client_secret: CLIENT_SECRET,
        redirect_uris: [redirectUri],
        response_types: ['code'],
        grant_types: ['authorization_code'],
        token_endpoint_auth_method: [
          ...(more.clientAuthMethods ?? ['client_secret_basic' as const]),
        ][0],
      },
    ],
    claims: { openid: ['sub', 'roles'], email: ['email', 'email_verified'], profile: [] },
    conformIdTokenClaims: false,
    pkce: { required: () => true },
    findAccount: (_: unknown, id: string) => ({
      accountId: id,
      claims: () => ({
        sub: id,
        email: `${id}@example.com`,
        email_verified: true,
        roles: [id],
        groups: [id],
      }),
    }),
    ...more,
  };
}

/** Each person has a browser profile of their own. */
async function logIn(
  name: string,
  path = '/',
  at = desk,
): Promise<{ page: Page; context: BrowserContext }> {
  const context = await browser.createBrowserContext();
  const page = await context.newPage();
  await page.goto(at.url + path);
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

test.each<[string, Configuration, Readonly<Record<string, string>>]>([
  ['client_secret_basic alone', { clientAuthMethods: ['client_secret_basic'] }, {}],
  ['client_secret_post alone', { clientAuthMethods: ['client_secret_post'] }, {}],
  [
    'groups that need a scope, and claims that come at UserInfo',
    {
      conformIdTokenClaims: true,
      claims: { openid: ['sub'], email: ['email', 'email_verified'], groups: ['groups'] },
    },
    { OIDC_SCOPES: 'openid email groups', OIDC_ROLES_CLAIM: 'groups' },
  ],
])('a person logs in at a provider with %s', async (_, settings, environment) => {
  const at = await startDesk({ settings }, environment);
  const { page } = await logIn('viewer', '/partners', at);
  expect(page.url()).toBe(`${at.url}/partners`);
  expect(await textOf(page)).toContain('viewer@example.com (viewer)');
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
