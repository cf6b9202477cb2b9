/** Logs in at providers with the habits of real ones, and is told why where it cannot. */
import { createHmac } from 'node:crypto';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import { readFileSync } from 'node:fs';
import { afterAll, expect, test } from '@jest/globals';
import { parse } from 'yaml';
import { freePort } from '../../deploy/local/stores/wait.ts';
import { cookieName } from '../../internal/operators/console/sign-in.ts';
import type { ConfigError } from '../../internal/platform/process/config.ts';
import { loadConfig } from '../../internal/settings/settings.ts';
import { makeCertificate } from '../support/certificate.ts';
import { environmentOf, production, render, type Json } from '../support/chart.ts';
import {
  startFakeProvider,
  type FakeProvider,
  type Habits,
  type Trouble,
} from '../support/fake-provider.ts';
import { folderOfFile } from '../support/folder.ts';
import { listen } from '../support/listen.ts';
import { SECRET } from '../support/oidc.ts';
import { read } from '../support/pages.ts';
import { eventually } from '../support/wait.ts';
import { worldOf } from '../support/world.ts';

const { world } = await worldOf();
const closing: (() => void)[] = [];
afterAll(() => closing.forEach((close) => close()));

// Encoded in `client_secret_basic`.
const CLIENT_SECRET = 'a client:secret+for/tests%41~.';
/** What an attacker or a provider may put into its free text. */
const FREE_TEXT = '<b>call 555-0100</b> eyJhbGciOiJSUzI1NiJ9.secret.token';

const filled: Readonly<Record<string, unknown>> = {
  NOTHING: undefined,
  LONG: 'j'.repeat(201),
  HUGE: 'x'.repeat(2_000_000),
};
/** Fills in what a table names. */
function fill(value: unknown): unknown {
  if (typeof value === 'string')
    return Object.hasOwn(filled, value) ? filled[value] : value.replace('FREE_TEXT', FREE_TEXT);
  if (Array.isArray(value)) return value.map(fill);
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([name, inner]) => [name, fill(inner)]));
}
const readTable = (path: string): unknown => fill(parse(read(path)));

type Environment = Readonly<Record<string, string>>;
interface Desk {
  readonly url: string;
  readonly provider: FakeProvider;
}

const consoleOf = (port: number, given: Environment): Environment => ({
  OIDC_CLIENT_ID: 'console',
  OIDC_CLIENT_SECRET: CLIENT_SECRET,
  CONSOLE_PORT: String(port),
  CONSOLE_URL: `http://127.0.0.1:${port}`,
  CONSOLE_SESSION_SECRET: SECRET,
  ...given,
});
const startConsole = (port: number, given: Environment) =>
  world.start('console', consoleOf(port, given));

/** A console with a provider of these habits. */
async function startDesk(habits: Habits, given: Environment = {}): Promise<Desk> {
  const port = await freePort();
  const url = `http://127.0.0.1:${port}`;
  const client = {
    id: given['OIDC_CLIENT_ID'] ?? 'console',
    secret: CLIENT_SECRET,
    redirectUri: `${url}/login/callback`,
  };
  const provider = await startFakeProvider(habits, client);
  closing.push(provider.close);
  const origin = new URL(provider.issuer).origin;
  await startConsole(port, {
    ...given,
    OIDC_CLIENT_ID: client.id,
    OIDC_ISSUER: given['OIDC_ISSUER']?.replace(/^https:\/\/[^/]+/, origin) ?? provider.issuer,
  });
  return { url, provider };
}

const cookiesOf = (answer: Response): string =>
  answer.headers
    .getSetCookie()
    .map((cookie) => cookie.split(';')[0])
    .join('; ');
const visit = (url: string, cookie = ''): Promise<Response> =>
  fetch(url, { headers: { cookie }, redirect: 'manual' });
const wordsOf = async (answer: Response): Promise<string> => {
  const html = await answer.text();
  const [, said = ''] = /<p role="alert">([^]*?)<\/p>/.exec(html) ?? [];
  return said
    .replaceAll('&quot;', '"')
    .replaceAll('&#39;', "'")
    .replaceAll('&lt;', '<')
    .replaceAll('&gt;', '>')
    .replaceAll('&amp;', '&');
};

/** Goes to the provider; the address with which it sends people back. */
async function beginAt({ url }: Desk) {
  const begun = await visit(`${url}/login`);
  if (begun.status !== 303) return { cookie: '', refused: begun };
  const back = await visit(begun.headers.get('location')!);
  return { cookie: cookiesOf(begun), back: back.headers.get('location') ?? '', at: back };
}

/** Who the console says one is, or why one is not logged in. */
async function signIn(desk: Desk) {
  const { cookie, back, refused } = await beginAt(desk);
  const answer = refused ?? (await visit(back, cookie));
  if (answer.status !== 303) return { status: answer.status, words: await wordsOf(answer) };
  const session = cookiesOf(answer);
  const page = await (await visit(`${desk.url}/partners`, session)).text();
  return {
    status: 200,
    words: /<div class="who">\s*<span>(.*?)<\/span>/.exec(page)?.[1] ?? '',
    session,
  };
}

interface Played {
  readonly habits: Habits;
  readonly shown: string;
  readonly logOut?: string;
}
const PROVIDERS = readTable('test/support/provider-habits.yaml') as Readonly<
  Record<string, Played>
>;

/** The block of values below each heading of the page. */
const blocks = new Map(
  [...read('docs/console.md').matchAll(/^### (.+)\n[^#]*?^```yaml\n([^]*?)^```$/gm)].map(
    ([, name = '', block = '']) => [name, parse(block) as Json],
  ),
);

test('the page has a block for each provider, and none that is not played', () => {
  expect([...blocks.keys()]).toEqual(Object.keys(PROVIDERS));
});

/** The page after a log-out, and where it leads. */
async function logOut({ url }: Desk, session: string) {
  const page = await visit(`${url}/partners`, session);
  const cookie = `${session}; ${cookiesOf(page)}`;
  const form = /name="_csrf" value="([^"]+)"/.exec(await page.text())?.[1] ?? '';
  const answer = await fetch(`${url}/logout`, {
    method: 'POST',
    headers: { cookie },
    body: new URLSearchParams({ _csrf: form }),
  });
  const [, link] = /<a href="([^"]+)">Log out at the provider/.exec(await answer.text()) ?? [];
  return { status: answer.status, link: link?.replaceAll('&amp;', '&') };
}

test.each(Object.entries(PROVIDERS))(
  '%s: people log in with the values of its block',
  async (name, { habits, shown, logOut: place }) => {
    const { console: values } = blocks.get(name)!;
    const environment = environmentOf(await render({ ...production, console: values }), 'console');
    const given = Object.fromEntries(
      Object.entries(environment).filter(([variable]) =>
        /^(OIDC_(?!.*_FILE)|CONSOLE_ACTIONS)/.test(variable),
      ),
    );
    const { issuer } = habits;
    expect(given['OIDC_ISSUER']).toBe(issuer);
    const slashless = issuer.replace(/\/$/, '');
    for (const OIDC_ISSUER of [
      slashless,
      `${slashless}/`,
      `${slashless}/.well-known/openid-configuration`,
    ]) {
      const desk = await startDesk(habits, { ...given, OIDC_ISSUER });
      const { session = '', ...said } = await signIn(desk);
      expect([OIDC_ISSUER, said]).toEqual([OIDC_ISSUER, { status: 200, words: shown }]);
      const parameters = new URLSearchParams({
        logout_uri: `${desk.url}/`,
        client_id: given['OIDC_CLIENT_ID']!,
      });
      const link = place && `${place}?${String(parameters)}`;
      expect(await logOut(desk, session)).toEqual({ status: 200, link });
    }
  },
);

const PLAIN: Habits = {
  issuer: 'https://login.example.com/realms/Staff',
  scopes: ['openid', 'profile', 'email'],
  idToken: { sub: 'u-1', email: 'jane@example.com', email_verified: true, roles: ['viewer'] },
  userInfo: {},
};
/** A row of a table: a provider like `PLAIN` but for these. */
interface Row {
  readonly what: string;
  readonly auth?: Habits['auth'];
  readonly claims?: object;
  readonly userInfo?: object;
  readonly document?: Record<string, unknown>;
  readonly trouble?: Trouble;
  readonly settings?: Environment;
}
const { people, refusals, servers } = readTable('test/integration/console-providers.yaml') as {
  readonly people: readonly (Row & { readonly shown: string })[];
  readonly refusals: readonly (Row & { readonly status: number; readonly words: string })[];
  readonly servers: readonly (Row & Record<'server' | 'issuer' | 'words', string>)[];
};

async function deskOf({
  auth,
  claims,
  document = {},
  trouble,
  settings,
  ...row
}: Row): Promise<Desk> {
  const idToken = claims === undefined ? PLAIN.idToken : { sub: 'u-1', ...claims };
  const userInfo = 'userInfo' in row ? row.userInfo : {};
  const own = { auth, idToken, userInfo, discovery: document };
  const habits = { ...PLAIN, ...own } as Habits;
  const desk = await startDesk(habits, settings);
  Object.assign(desk.provider.trouble, trouble);
  return desk;
}

test.each(people)('a person with $what is shown as she may be', async ({ shown, ...row }) => {
  expect(await signIn(await deskOf(row))).toMatchObject({ status: 200, words: shown });
});

test.each(refusals)('$what: the page says so', async ({ status, words, ...row }) => {
  const said = await signIn(await deskOf(row));
  expect(said).toEqual({ status, words: expect.stringMatching(new RegExp(words)) });
  expect(said.words).not.toMatch(/555-0100|eyJ|=secret|\.secret|a client:|secret-group/);
});

test.each([-45, 45])('a clock that differs by %i s is tolerated', async (aheadS) => {
  const desk = await startDesk(PLAIN);
  // The token is for 300 s, so at -345 s it has just expired.
  desk.provider.trouble.aheadS = aheadS < 0 ? aheadS - 300 : aheadS;
  expect(await signIn(desk)).toMatchObject({ status: 200 });
});

test('keys are rotated and endpoints move: only the log-in meanwhile fails', async () => {
  const desk = await startDesk(PLAIN);
  expect(await signIn(desk)).toMatchObject({ status: 200 });
  desk.provider.rotateKeys();
  expect(await signIn(desk)).toMatchObject({ status: 200 });
  const { cookie, back } = await beginAt(desk);
  desk.provider.trouble.moved = '/v3';
  const meanwhile = await visit(back!, cookie);
  expect([meanwhile.status, await wordsOf(meanwhile)]).toEqual([
    503,
    expect.stringMatching(/answers 404 at .*\/token:/),
  ]);
  // It asks for discovery once a second.
  await eventually('the new address', async () => {
    const begun = await visit(`${desk.url}/login`);
    return begun.headers.get('location')?.includes('/authorize/v3');
  });
  expect(await signIn(desk)).toMatchObject({ status: 200 });
});

/** A console whose provider is at this address. */
async function deskAt(issuer: string, given: Environment = {}): Promise<string> {
  const port = await freePort();
  const url = `http://127.0.0.1:${port}`;
  await startConsole(port, { OIDC_ISSUER: issuer, ...given });
  return url;
}

const folder = folderOfFile();
const handlers: Readonly<
  Record<string, (asking: IncomingMessage, answer: ServerResponse) => void>
> = {
  silent: () => undefined,
  'not TLS': (_, answer) => answer.end('hello'),
  'half an answer': (_, answer) => void answer.writeHead(200, { 'content-length': '9' }).write('{'),
  ending: (asking) => asking.socket.destroy(),
  'of 407': (_, answer) => void answer.writeHead(407).end(),
};
async function serverOf(kind: string): Promise<string> {
  if (kind === 'closed') return `127.0.0.1:${await freePort()}`;
  const handler = handlers[kind];
  if (handler === undefined) makeCertificate(folder);
  const server =
    handler === undefined
      ? createTlsServer({
          key: readFileSync(`${folder}/key.pem`),
          cert: readFileSync(`${folder}/ca.pem`),
        })
      : createServer(handler);
  server.on('connect', (_, socket) =>
    socket.end('HTTP/1.1 407 Proxy Authentication Required\r\n\r\n'),
  );
  closing.push(() => {
    server.close();
    server.closeAllConnections();
  });
  return `127.0.0.1:${await listen(server)}`;
}

test.each(servers)('$what: the page names the address and the cause', async (row) => {
  const { server, issuer, settings = {}, words } = row;
  const here = await serverOf(server);
  const [scheme] = issuer.split(':');
  const provider = `The OpenID provider at ${scheme}://HERE/\\.well-known/openid-configuration`;
  const at = (text: string): string => text.replace('PROVIDER', provider).replace('HERE', here);
  const proxies = Object.entries(settings).map(([name, value]) => [name, at(value)]);
  const url = await deskAt(at(issuer), Object.fromEntries(proxies) as Environment);
  const answer = await visit(`${url}/login`);
  const said = await wordsOf(answer);
  const pattern = at(words).replaceAll('127.0.0.1', '127\\.0\\.0\\.1');
  expect([answer.status, said]).toEqual([503, expect.stringMatching(pattern)]);
  expect(said).not.toContain('hush');
});

/** A state as the console signs it. */
function signed(login: object): string {
  const text = Buffer.from(JSON.stringify(login)).toString('base64url');
  const name = cookieName('login', SECRET);
  const hash = createHmac('sha256', SECRET).update(`${name} state ${text}`).digest('base64url');
  return `${text}.${hash}`;
}
const LATE = signed({ id: 'a', browser: 'b', to: '/', until: Date.now() - 1 });
const OPEN = signed({ id: 'a', browser: 'b', to: '/', until: Date.now() + 600_000 });

test.each([
  ['no state', 'code=x', 'without the state of a log-in'],
  ['an empty state', 'code=x&state=', 'not begun at this console'],
  ['two states', `code=x&state=${OPEN}&state=${OPEN}`, 'not begun at this console'],
  ['a state of another secret', `code=x&state=${OPEN.slice(0, -2)}AA`, 'CONSOLE_SESSION_SECRET'],
  ['a state of an hour ago', `code=x&state=${LATE}`, 'took more than 10 minutes'],
  ['a state without its cookie', `code=x&state=${OPEN}`, 'began in another browser'],
  ['a known error without a state', 'error=access_denied', 'answers access_denied: you or'],
  ['a forged error without a state', 'error=call.555-0100', 'without the state of a log-in'],
])('a return with %s is told apart', async (_, query, words) => {
  const url = await deskAt('https://127.0.0.1:1');
  const answer = await visit(`${url}/login/callback?${query}`);
  const said = await wordsOf(answer);
  expect([answer.status, said]).toEqual([400, expect.stringContaining(words)]);
  expect(said).not.toContain('555');
});

test('the log has each cause with its code, and no token; a used log-in is told apart', async () => {
  const port = await freePort();
  const url = `http://127.0.0.1:${port}`;
  const client = { id: 'console', secret: CLIENT_SECRET, redirectUri: `${url}/login/callback` };
  const idToken = { sub: 'u-1', roles: ['support'], email: 'x@y.example' };
  const withoutProof = { ...PLAIN, idToken };
  const provider = await startFakeProvider(withoutProof, client);
  closing.push(provider.close);
  const { lines } = await world.spawn('console', consoleOf(port, { OIDC_ISSUER: provider.issuer }));
  const desk = { url, provider };
  const { cookie, back } = await beginAt(desk);
  expect((await visit(back!, cookie)).status).toBe(303);
  const again = await visit(back!, cookie);
  expect(await wordsOf(again)).toMatch(/used already/);
  const error_description = FREE_TEXT;
  provider.trouble.token = { status: 400, body: { error: 'invalid_client', error_description } };
  await signIn(desk);
  delete provider.trouble.token;
  provider.trouble.authorize = { error: 'access_denied', error_description };
  await signIn(desk);
  await eventually('the log', () => lines.some((line) => line.includes('access_denied')));
  const logged = lines.map((line) => JSON.parse(line) as Json);
  const failed = logged.filter(({ msg }) => msg === 'a log-in failed');
  expect(failed.map(({ reason, told }) => [reason, told])).toEqual([
    ['used_already', expect.stringContaining('used already')],
    ['provider_said', expect.stringContaining('invalid_client')],
    ['provider_said', expect.stringContaining('access_denied')],
  ]);
  expect(logged.find(({ msg }) => msg === 'logged in')).toMatchObject({
    operator: 'u-1',
    nameless: expect.stringMatching(
      /email is missing or not verified; the claims that came are .*email/,
    ),
  });
  expect(lines.join('\n')).not.toMatch(/555-0100|eyJ|x@y\.example|a client/);
});

const proxied = (given: Environment): readonly string[] => {
  const base = {
    MONGODB_URI: world.stores.mongodbUri,
    ALLOW_INSECURE_STORES: 'true',
    OIDC_ISSUER: 'https://login.example',
    OIDC_CLIENT_ID: 'console',
    OIDC_CLIENT_SECRET: CLIENT_SECRET,
    CONSOLE_URL: 'https://console.example',
    CONSOLE_SESSION_SECRET: SECRET,
  };
  try {
    loadConfig('console', { ...base, ...given });
    return [];
  } catch (error) {
    return (error as ConfigError).faults;
  }
};

test.each([
  ['HTTPS_PROXY', 'proxy.example:3128', 'must begin with http://'],
  ['HTTPS_PROXY', '10.0.0.1:3128', 'must begin with http://'],
  ['https_proxy', '//proxy:3128', 'must begin with http://'],
  ['HTTPS_PROXY', 'socks5://user:hush@proxy:1080', 'must begin with http://'],
  ['HTTP_PROXY', 'http:/proxy:3128', 'must begin with http://'],
  ['HTTPS_PROXY', 'http://proxy:99999', 'has no usable host or port'],
  ['HTTPS_PROXY', 'http://proxy:port', 'has no usable host or port'],
  ['HTTPS_PROXY', 'http://proxy:0', 'has no usable host or port'],
  ['HTTPS_PROXY', 'http://', 'has no usable host or port'],
  [
    'HTTPS_PROXY',
    'http://user:hu/sh@proxy:3128',
    'has no usable host or port: write http://proxy:3128, and percent-encode',
  ],
  ['HTTPS_PROXY', 'http://user:hu%sh@proxy:3128', 'has a % in user or password'],
  ['HTTPS_PROXY', 'http://proxy:3128/path', 'must end after host and port'],
  ['NO_PROXY', 'a.example,10.0.0.0/33', '"10.0.0.0/33" is no host'],
  ['NO_PROXY', 'https://a.example', '"https://a.example" is no host'],
  ['NO_PROXY', '10.0.*', '"10.0.*" is no host'],
  ['NO_PROXY', '10.1', '"10.1" is no host'],
  ['NO_PROXY', 'a.example:99999', '"a.example:99999" is no host'],
  ['NO_PROXY', 'a.example;b.example', '"a.example;b.example" is no host'],
  ['no_proxy', 'a*.example', '"a*.example" is no host'],
])('%s=%s is refused at the start', (name, value, words) => {
  const faults = proxied({ [name]: value });
  expect(faults).toEqual([expect.stringContaining(`${name.toUpperCase()}: ${words}`)]);
  expect(faults.join()).not.toContain('hush');
  // Others than the console with OIDC may have them for other programs.
  expect(proxied({ [name]: value, OIDC_ISSUER: '' })).toEqual([]);
});
