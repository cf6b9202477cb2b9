/** Logs in at the console by a real OpenID provider, in a real browser. */
import { beforeAll, expect, test } from '@jest/globals';
import { createServer, request as askBy } from 'node:http';
import { sign } from '@fastify/cookie';
import type { Configuration } from 'oidc-provider';
import { cookieName } from '../../internal/operators/console/sign-in.ts';
import { ConfigError } from '../../internal/platform/process/config.ts';
import { loadConfig } from '../../internal/settings/settings.ts';
import { accessFaults, textOf } from '../support/browser.ts';
import { browserOfFile } from '../support/browser-of-file.ts';
import { send } from '../support/http.ts';
import { listen } from '../support/listen.ts';
import { desksOf, SECRET, submitLogIn } from '../support/oidc.ts';
import { submit } from '../support/processing.ts';
import { eventually } from '../support/wait.ts';
import { newApplication, worldOf, type InProcess } from '../support/world.ts';

const { world, ingest } = await worldOf(['ingest', 'processor'], { documentedRights: true });
const browser = await browserOfFile();
const { startDesk, closing: providers, ...desks } = desksOf(world, browser);
const desk = await startDesk();
const logIn = (name: string, path = '/', at = desk) => desks.logIn(name, path, at);
let requestId: string;
const application = newApplication();
const PROVEN = 'viewer@example.com';

beforeAll(async () => {
  requestId = await submit(world, ingest, application);
  await world.recordIn('completed', requestId);
});

test('support logs in, gets the requested page, and reveals under a proven name', async () => {
  const { page } = await logIn('support', `/requests/${requestId}`);
  expect(page.url()).toBe(`${desk.url}/requests/${requestId}`);
  expect(await textOf(page)).toContain('support@example.com (support)');
  await page.click('details:has(.ask) summary');
  await page.type('#why', 'ticket 4711');
  await Promise.all([page.waitForNavigation(), page.click('main form button')]);
  expect(await textOf(page)).toContain(application.email);
  expect(await accessFaults(page)).toEqual([]);
  const [entry] = await world.trail();
  expect(entry).toMatchObject({
    by: 'support@example.com',
    sub: 'support',
    nameFrom: 'oidc',
    why: 'ticket 4711',
  });
  const cookies = await page.browserContext().cookies();
  const session = cookies.find(({ name }) => name.startsWith('session-'));
  expect(session).toMatchObject({ httpOnly: true, secure: true, sameSite: 'Lax' });

  await Promise.all([page.waitForNavigation(), page.click('.who button')]);
  expect(await textOf(page)).toContain('You are logged out');
});

test('groups that need a scope come at UserInfo, and the trail has the proven name', async () => {
  const settings: Configuration = {
    conformIdTokenClaims: true,
    claims: { openid: ['sub'], email: ['email', 'email_verified'], groups: ['groups'] },
  };
  const environment = { OIDC_SCOPES: 'openid email groups', OIDC_ROLES_CLAIM: 'groups' };
  const at = await startDesk({ settings }, environment);
  const { page } = await logIn('viewer', '/find', at);
  expect(page.url()).toBe(`${at.url}/find`);
  expect(await textOf(page)).toContain(`${PROVEN} (viewer)`);
  await page.type('#q', application.email);
  await Promise.all([page.waitForNavigation(), page.keyboard.press('Enter')]);
  const [entry] = await world.trail();
  expect(entry).toMatchObject({ action: 'find --email', by: PROVEN, sub: 'viewer' });
});

test('a viewer sees everything masked, and a forged reveal is refused and shows nothing', async () => {
  const { page } = await logIn('viewer', `/requests/${requestId}`);
  expect(await textOf(page)).toContain('Personal data is masked');
  expect(await page.$('#why')).toBeNull();
  // The token of one form is valid in every form of the session.
  await page.evaluate(`(() => {
    const form = document.querySelector('.who form');
    form.action = '/requests/${requestId}/reveal';
    const why = document.createElement('input');
    Object.assign(why, { name: 'why', value: 'curious' });
    form.append(why);
  })()`);
  await Promise.all([page.waitForNavigation(), page.click('.who button')]);
  expect(await textOf(page)).toContain('the role "support" may reveal');
  expect(await page.content()).not.toContain(application.email);
});

test('a viewer finds by whole values only, 20 times a minute, and the trail has what was shown', async () => {
  const { page } = await logIn('viewer', '/find');
  const said = async (text: string): Promise<string> => {
    await page.goto(`${desk.url}/find`);
    await page.type('#q', text);
    await Promise.all([page.waitForNavigation(), page.keyboard.press('Enter')]);
    return textOf(page);
  };
  const finds = async (text: string): Promise<boolean> => (await said(text)).includes(requestId);
  const { business_name: name, ein, email } = application;
  expect(await textOf(page)).toContain('by the whole e-mail address');
  expect(await finds(name.slice(0, -1))).toBe(false);
  expect(await finds(name.slice(1))).toBe(false);
  for (const part of [email.split('@')[1]!, email.slice(0, -4), `@${email.split('@')[1]!}`]) {
    const answer = await said(part);
    expect([part, answer]).toEqual([part, expect.stringContaining('parts would reveal')]);
    expect(answer).not.toContain(requestId);
  }
  expect(await finds(`\u200B ${name.toUpperCase()}`)).toBe(true);
  expect(await finds(`${ein.slice(0, 2)}\u2011${ein.slice(2)}`)).toBe(true);
  const [shown] = await world.trail({ by: PROVEN });
  expect(shown).toMatchObject({ action: 'find --ein', requestIds: [requestId] });
  for (let asked = 7; asked < 20; asked += 1) await finds('a');
  await finds(name);
  expect(await textOf(page)).toContain('Wait a minute');
});

test('the provider is asked through the proxy of the environment, and the pods are not', async () => {
  const asked: string[] = [];
  const proxy = createServer((asking, answer) => {
    const { host } = new URL(asking.url!);
    asked.push(host);
    const { method, headers } = asking;
    const onward = askBy(asking.url!, { method, headers }, (reply) => {
      answer.writeHead(reply.statusCode!, reply.headers);
      reply.pipe(answer);
    });
    asking.pipe(onward);
  });
  providers.push(proxy);
  const behind = await startDesk(
    {},
    {
      CONSOLE_PROCESSES: ingest.adminUrl,
      HTTP_PROXY: `http://127.0.0.1:${await listen(proxy)}`,
    },
  );
  const begun = await fetch(`${behind.url}/login`, { redirect: 'manual' });
  const issuer = new URL(begun.headers.get('location')!).host;
  expect(new Set(asked)).toEqual(new Set([issuer]));
});

test('a person without a role is shown no page and no figures', async () => {
  const { page } = await logIn('nobody');
  expect(await textOf(page)).toContain('nobody@example.com has neither the role');
  await page.goto(`${desk.url}/trail`);
  expect(await textOf(page)).not.toContain('What operators changed');
});

/** Begins a log-in without a browser. */
async function begin(at = desk, to = '/', sent = '') {
  const address = `${at.url}/login?to=${encodeURIComponent(to)}`;
  const begun = await fetch(address, { redirect: 'manual', headers: { cookie: sent } });
  const [cookie = ''] = begun.headers.getSetCookie()[0]?.split(';') ?? [];
  const target = new URL(begun.headers.get('location')!);
  expect(target.searchParams.get('code_challenge_method')).toBe('S256');
  expect(target.searchParams.get('nonce')).toBeTruthy();
  const state = target.searchParams.get('state')!;
  const said = Buffer.from(state.split('.')[0]!, 'base64url').toString();
  const { to: kept } = JSON.parse(said) as { readonly to: string };
  return { cookie, issuer: target.origin, state, to: kept };
}
const navigate = (path: string, cookie = '', at = desk) =>
  send(at.url, { method: 'GET', path, headers: { cookie } });

test('forged states and sessions are refused, and no such callback reaches the provider', async () => {
  const calls: string[] = [];
  const at = await startDesk({ calls });
  const [one, other] = [await begin(at), await begin(at)];
  const before = calls.length;
  const callBack = (state: string, cookie: string) =>
    fetch(
      `${at.url}/login/callback?${String(new URLSearchParams({ code: 'any', state, iss: one.issuer }))}`,
      { headers: { cookie }, redirect: 'manual' },
    );
  const foreign = `${other.cookie.split('=')[0]}=${one.cookie.split('=')[1]}`;
  const [text, signature] = one.state.split('.') as [string, string];
  const changed = Buffer.from(text, 'base64url').toString().replace('"/"', '"/x"');
  const { browser: inState } = JSON.parse(changed) as { readonly browser: string };
  const forged = [
    ['any', ''],
    ['', one.cookie],
    ['__proto__', one.cookie],
    [other.state, one.cookie],
    [other.state, foreign],
    [one.state, ''],
    [one.state, one.cookie.replace(/..$/, 'AA')],
    [`${Buffer.from(changed).toString('base64url')}.${signature}`, one.cookie],
    [`browser ${one.cookie.split('=')[1]}.${inState}`, one.cookie],
  ] as const;
  for (const [state, cookie] of forged) {
    const answer = await callBack(state, cookie);
    expect([answer.status, await answer.text()]).toEqual([
      400,
      expect.stringMatching(/log in again[^]*href="\/login"|href="\/login"[^]*log in again/),
    ]);
  }
  expect(calls.length).toBe(before);

  for (let round = 0; round < 3; round += 1)
    expect((await callBack(one.state, one.cookie)).status).toBe(400);
  expect(calls.slice(before)).toEqual(['/token']);

  const session = cookieName('session', SECRET);
  for (const cookie of [
    `${session}=forged`,
    one.cookie.replace(/^[^=]*/, session),
    `${session}=${one.state}`,
  ]) {
    const page = await navigate('/', cookie);
    expect([page.status, page.headers['location']]).toEqual([303, '/login?to=%2F']);
  }
});

/** Returns the port. */
function otherSite(html: string): Promise<number> {
  const server = createServer((_, response) => {
    response.setHeader('content-type', 'text/html');
    response.end(html);
  });
  providers.push(server);
  return listen(server);
}

test('a callback of another browser and a form of another site change nothing', async () => {
  const attacker = await (await browser.createBrowserContext()).newPage();
  await attacker.goto(`${desk.url}/trail`);
  await attacker.setRequestInterception(true);
  const stolen = new Promise<string>((resolve) => {
    attacker.on('request', (request) => {
      if (!request.url().includes('/login/callback')) return void request.continue();
      resolve(request.url());
      return void request.abort();
    });
  });
  await submitLogIn(attacker, 'viewer').catch(() => undefined);
  const callback = await stolen;
  const fresh = await navigate(callback.slice(desk.url.length));
  expect([fresh.status, fresh.headers['set-cookie']]).toEqual([
    400,
    expect.not.stringContaining('session'),
  ]);
  const { page } = await logIn('support', '/trail');
  await page.goto(callback);
  expect(page.url()).toBe(`${desk.url}/`);
  expect(await textOf(page)).toContain('support@example.com (support)');

  const port = await otherSite(
    `<form method="post" action="${desk.url}/logout"><button>Go</button></form>`,
  );
  for (const [host, status] of [
    // Another site sends no session; another origin of this site sends one, but has no token.
    ['localhost', 401],
    ['127.0.0.1', 403],
  ] as const) {
    await page.goto(`http://${host}:${port}`);
    const [answer] = await Promise.all([page.waitForNavigation(), page.click('button')]);
    expect([host, answer?.status()]).toEqual([host, status]);
  }
  await page.goto(`${desk.url}/trail`);
  expect(await textOf(page)).toContain('support@example.com (support)');
});

test('strangers who begin log-ins and forge callbacks neither reach the provider nor keep people out', async () => {
  const calls: string[] = [];
  const at = await startDesk({ calls });
  await begin(at);
  const before = calls.length;
  for (const path of ['/login', '/login/callback?code=any&state=any']) {
    const answers = await Promise.all(
      Array.from({ length: 100 }, () => fetch(at.url + path, { redirect: 'manual' })),
    );
    expect(answers.filter(({ status }) => status === 429)).toEqual([]);
  }
  expect(calls.length).toBe(before);

  const begun = await Promise.all(Array.from({ length: 70 }, () => begin(at)));
  const answers = begun.map(({ cookie, state, issuer }) => {
    const query = String(new URLSearchParams({ code: 'any', state, iss: issuer }));
    return navigate(`/login/callback?${query}`, cookie, at);
  });
  const statuses = (await Promise.all(answers)).map(({ status }) => status);
  expect(statuses.filter((status) => ![400, 429].includes(status))).toEqual([]);
  const { page } = await logIn('viewer', '/trail', at);
  expect(page.url()).toBe(`${at.url}/trail`);
});

test('a provider that is away is asked once a second, however many log in', async () => {
  let asked = 0;
  const away = createServer((_, answer) => {
    asked += 1;
    answer.writeHead(503).end();
  });
  providers.push(away);
  const issuer = `http://127.0.0.1:${await listen(away)}`;
  const at = await startDesk({}, { OIDC_ISSUER: issuer });
  for (let one = 0; one < 20; one += 1)
    expect((await fetch(`${at.url}/login`, { redirect: 'manual' })).status).toBe(503);
  expect(asked).toBeLessThan(20);
});

test('a link is kept with its query, and no other site can be reached through it', async () => {
  const at = await startDesk();
  const own = [
    '/partners/a.b',
    '/trail?before=opr_1&x=%2F%2F',
    '/find?a=b?c',
    '/%2F%2Fother.example',
  ];
  for (const to of own) expect((await begin(at, to)).to).toBe(to);
  const foreign = [
    '',
    'https://other.example',
    '//other.example',
    '/\\other.example',
    '/\t/other.example',
    ' //other.example',
    '/\r\nset-cookie: a=b',
    '/ü',
    `/${'a'.repeat(5_000)}`,
    `/${'"'.repeat(400)}`,
  ];
  for (const to of foreign) expect([to, (await begin(at, to)).to]).toEqual([to, '/']);
  const twice = await fetch(`${at.url}/login?to=//other.example&to=/`, { redirect: 'manual' });
  expect([twice.status, twice.headers.getSetCookie()[0]]).toEqual([
    303,
    expect.not.stringContaining('other.example'),
  ]);
  const { page } = await logIn('viewer', '/partners/a.b?from=a%20ticket&n=1');
  expect(page.url()).toBe(`${desk.url}/partners/a.b?from=a%20ticket&n=1`);
});

test('a script without a session is answered 401 and begins no log-in', async () => {
  for (const path of ['/', '/find', '/trail']) {
    const answer = await fetch(desk.url + path, { redirect: 'manual' });
    expect([answer.status, answer.headers.getSetCookie().join()]).toEqual([
      401,
      expect.not.stringContaining('login'),
    ]);
  }
});

test('two tabs that log in both get their page, and back and reload at the callback lead there', async () => {
  const context = await browser.createBrowserContext();
  const tabs = [await context.newPage(), await context.newPage()];
  const paths = ['/partners', '/trail'];
  for (const [index, tab] of tabs.entries()) await tab.goto(desk.url + paths[index]);
  const callbacks: string[] = [];
  for (const [index, tab] of tabs.entries()) {
    await tab.bringToFront();
    tab.on('request', (request) => {
      if (request.url().includes('/login/callback')) callbacks.push(request.url());
    });
    await submitLogIn(tab, 'viewer');
    // The callback leads on.
    await eventually('its page', () => tab.url() === desk.url + paths[index]);
  }
  const [tab] = tabs;
  await tab!.bringToFront();
  for (const [index, callback] of callbacks.slice(0, 2).entries()) {
    await tab!.goto(callback);
    expect(tab!.url()).toBe(desk.url + paths[index]);
  }
  await tab!.goto(`${desk.url}/login/callback?code=any&state=any`);
  expect(tab!.url()).toBe(`${desk.url}/`);
  // Without a session it says what to do.
  await Promise.all([tab!.waitForNavigation(), tab!.click('.who button')]);
  await tab!.goto(callbacks[0]!);
  expect(await textOf(tab!)).toContain('log in again');
  await Promise.all([tab!.waitForNavigation(), tab!.click('header a[href="/login"]')]);
  expect(tab!.url()).toBe(`${desk.url}/`);
});

test('a tab that begins later keeps the secret of an earlier one', async () => {
  const earlier = await begin();
  for (let tab = 0; tab < 40; tab += 1)
    expect((await begin(desk, '/', earlier.cookie)).cookie).toBe(earlier.cookie);
});

test('tabs whose log-in is never finished, long addresses and large cookies of others do no harm', async () => {
  const at = await startDesk();
  const context = await browser.createBrowserContext();
  const page = await context.newPage();
  await page.goto(`${at.url}/login/callback`);
  const tabs = ['=', '"', '%3D', '\u00fc'].flatMap((one) => Array<string>(25).fill(one));
  await page.evaluate(`Promise.all(${JSON.stringify(tabs)}.map((one) =>
    fetch('/login?to=/' + one.repeat(900), { redirect: 'manual' })).map((one) => one.catch(() => {})))`);
  const logins = (await context.cookies()).filter(({ name }) => name.startsWith('login-'));
  expect(logins.length).toBeGreaterThan(0);
  const sent = logins.map(({ name, value }) => `${name}=${value}; `).join('');
  expect(sent.length).toBeLessThan(2_048);
  const others = Array.from({ length: 12 }, (_, index) => `app-${index}=${'x'.repeat(3_900)}`);
  for (const path of ['/', '/login/callback'])
    expect((await navigate(path, sent + others.join('; '), at)).status).toBeLessThan(431);
  await page.goto(`${at.url}/trail`);
  await submitLogIn(page, 'viewer');
  expect(page.url()).toBe(`${at.url}/trail`);
});

test('an open form survives a link from another site and a second console', async () => {
  const { page, context } = await logIn('support', `/requests/${requestId}`);
  const port = await otherSite(`<a href="${desk.url}/partners">the console</a>`);
  const other = await startDesk({}, { CONSOLE_SESSION_SECRET: `${SECRET}-2` });
  const tab = await context.newPage();
  await tab.goto(`http://localhost:${port}`);
  await Promise.all([tab.waitForNavigation(), tab.click('a')]);
  expect(await textOf(tab)).toContain('support@example.com (support)');
  await tab.goto(other.url);
  await submitLogIn(tab, 'viewer');
  expect(await textOf(tab)).toContain('viewer@example.com (viewer)');

  await page.bringToFront();
  await page.click('details:has(.ask) summary');
  await page.type('#why', 'still open');
  await Promise.all([page.waitForNavigation(), page.click('main form button')]);
  expect(await textOf(page)).toContain(application.email);
});

test('behind https no other host can set the cookies', async () => {
  const at = await startDesk({}, { CONSOLE_URL: 'https://console.example' });
  const { headers } = await fetch(`${at.url}/login`, { redirect: 'manual' });
  const [login] = headers.getSetCookie();
  const page = await fetch(`${at.url}/login/callback`);
  const [form] = page.headers.getSetCookie();
  for (const cookie of [login, form]) {
    expect(cookie).toMatch(/^__Host-(login|form)-.*; Path=\/; HttpOnly; Secure; SameSite=Lax/);
    expect(cookie).not.toContain('Domain');
  }
});

test('a session is valid until the time that stands in it', async () => {
  const statusAt = async (until: number) => {
    const name = cookieName('session', SECRET);
    const text = `${name} ${JSON.stringify({ name: 'jane', role: 'support', until })}`;
    const cookie = `${name}=${encodeURIComponent(sign(text, SECRET))}`;
    return (await navigate('/trail', cookie)).status;
  };
  expect(await statusAt(Date.now() + 60_000)).toBe(200);
  expect(await statusAt(Date.now() - 60_000)).toBe(303);
});

test('after a log-out a copied cookie is void at each pod and after a restart', async () => {
  const other = await startDesk();
  const { page, context } = await logIn('support', '/partners');
  const session = (await context.cookies()).find(({ name }) => name.startsWith('session-'))!;
  const cookie = `${session.name}=${session.value}`;
  const statusAt = async (at: InProcess) => (await navigate('/partners', cookie, at)).status;
  expect([await statusAt(desk), await statusAt(other)]).toEqual([200, 200]);
  await Promise.all([page.waitForNavigation(), page.click('.who button')]);
  expect(await textOf(page)).toContain('You are logged out');
  expect((await context.cookies()).filter(({ name }) => name.startsWith('session-'))).toEqual([]);
  expect(await statusAt(desk)).toBe(303);
  await eventually('another pod to refuse', async () => (await statusAt(other)) === 303);
  const restarted = await startDesk();
  await eventually('a new pod to refuse', async () => (await statusAt(restarted)) === 303);
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
