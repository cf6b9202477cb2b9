/** Consoles that people log in at by a real OpenID provider, in a real browser. */
import { afterAll } from '@jest/globals';
import { createServer, type Server } from 'node:http';
import { Provider, type Configuration } from 'oidc-provider';
import type { Browser, BrowserContext, Page } from 'puppeteer-core';
import { freePort } from '../../deploy/local/stores/wait.ts';
import { listen } from './listen.ts';
import type { InProcess, World } from './world.ts';

// Encoded in `client_secret_basic`.
const CLIENT_SECRET = 'a client:secret+for/tests%41';
export const SECRET = 'a-secret-for-tests-of-32-characters-or-more';

export function desksOf(world: World, browser: Browser) {
  /** Closed after the tests. */
  const closing: Server[] = [];
  afterAll(() => {
    for (const server of closing) {
      server.close();
      server.closeAllConnections();
    }
  });
  return {
    closing,
    /** A console with a provider of its own, whose calls `calls` gets. */
    startDesk: async (
      {
        settings = {},
        calls = [],
      }: { readonly settings?: Configuration; readonly calls?: string[] } = {},
      environment: Readonly<Record<string, string>> = {},
    ): Promise<InProcess> => {
      const [port, consolePort] = [await freePort(), await freePort()];
      const url = `http://127.0.0.1:${consolePort}`;
      const issuer = `http://127.0.0.1:${port}`;
      const oidc = new Provider(issuer, configurationOf(`${url}/login/callback`, settings));
      const provider = createServer((request, response) => {
        calls.push(request.url!);
        void oidc.callback()(request, response);
      });
      await listen(provider, port);
      closing.push(provider);
      return world.start('console', {
        CONSOLE_PORT: String(consolePort),
        CONSOLE_URL: url,
        CONSOLE_SESSION_SECRET: SECRET,
        OIDC_ISSUER: issuer,
        OIDC_CLIENT_ID: 'console',
        OIDC_CLIENT_SECRET: CLIENT_SECRET,
        ...environment,
      });
    },
    /** Each person has a browser profile of their own. */
    logIn: async (
      name: string,
      path: string,
      at: InProcess,
    ): Promise<{ page: Page; context: BrowserContext }> => {
      const context = await browser.createBrowserContext();
      const page = await context.newPage();
      await page.goto(at.url + path);
      await submitLogIn(page, name);
      return { page, context };
    },
  };
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

export async function submitLogIn(page: Page, name: string): Promise<void> {
  await page.type('[name=login]', name);
  await page.type('[name=password]', 'any');
  await Promise.all([page.waitForNavigation(), page.click('[type=submit]')]);
  // The provider asks for consent in its first session, then leads back.
  if (new URL(page.url()).pathname.startsWith('/interaction'))
    await Promise.all([page.waitForNavigation(), page.click('[type=submit]')]);
}
