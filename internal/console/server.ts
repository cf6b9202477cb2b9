/** The HTTP server of the console: what holds for every page. */
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import type { AddressInfo } from 'node:net';
import cookie from '@fastify/cookie';
import csrf from '@fastify/csrf-protection';
import formbody from '@fastify/formbody';
import helmet from '@fastify/helmet';
import rateLimit from '@fastify/rate-limit';
import fastify, {
  type FastifyError,
  type FastifyInstance,
  type FastifyReply,
  type FastifyRequest,
} from 'fastify';
import { displayAddress, listenHost } from '../platform/admin-server.ts';
import type { Clock } from '../platform/clock.ts';
import type { Logger } from '../platform/log.ts';
import { isLoopback } from '../platform/networks.ts';
import { FORM_BYTES, SEARCHES_A_MINUTE } from './limits.ts';
import type { Person } from './person.ts';
import { pages, type Context, type Say } from './render.ts';
import { oidcSignIn, ProviderError, type OidcOptions, type SignIn } from './sign-in.ts';
import { addRoutes, type Desk } from './routes.ts';

export interface ConsoleOptions {
  readonly host: string;
  readonly port: number;
  /** Signs cookies. */
  readonly secret: string;
  /** Absent: everybody who reaches the loopback may see everything. */
  readonly oidc?: OidcOptions;
  readonly desk: Desk;
  readonly clock: Clock;
  readonly log: Logger;
  /** A sentence for a fault of the database; undefined for any other fault. */
  readonly databaseFault: (error: unknown) => string | undefined;
}

/** Rejects when the address is not available. */
export async function startConsole(
  options: ConsoleOptions,
): Promise<{ readonly url: string; close(): Promise<void> }> {
  const { oidc, clock, log } = options;
  const app = fastify({
    bodyLimit: FORM_BYTES,
    forceCloseConnections: true,
    // Of an address that no route can be looked up by: no hook has run, so there is no person.
    frameworkErrors: (_error, _request, reply) =>
      void (reply as FastifyReply).code(404).type('text/plain').send(NO_PAGE),
  });
  await addPlugins(app, options);
  // Filled below: the pages name the person whom the sign-in knows.
  let signIn: SignIn = { who: () => undefined };
  const contextOf = (request: FastifyRequest): Context => ({
    person: signIn.who(request),
    oidc: oidc !== undefined,
    now: clock.now(),
  });
  const show = pages(contextOf);
  const say: Say = (request, reply, status, message) =>
    show(request, reply, 'message', { title: TITLES[status] ?? 'Not done', status, message });
  if (oidc === undefined) signIn = everybody;
  else {
    const login = oidcSignIn(oidc, { clock, log, say });
    login.addRoutes(app);
    signIn = login;
  }
  guard(app, { signIn, say, oidc: oidc !== undefined });
  answerErrors(app, options, say);
  addAssets(app);
  addRoutes(app, { ...options, show, say, who: (request) => signIn.who(request)! });
  await app.listen({ host: listenHost(options.host), port: options.port });
  const address = app.server.address() as AddressInfo;
  return { url: `http://${displayAddress(address)}`, close: () => app.close() };
}

const TITLES: Readonly<Record<number, string>> = {
  200: 'Done',
  403: 'Not allowed',
  404: 'Not found',
  429: 'Too many searches',
  503: 'Not available',
};

const somebody: Person = { name: 'somebody', nameFrom: 'console', role: 'support' };
/** Kubernetes' own rights decide who may forward a port. */
const everybody: SignIn = { who: () => somebody };

async function addPlugins(app: FastifyInstance, { secret, oidc }: ConsoleOptions): Promise<void> {
  const own = ["'self'"];
  await app.register(helmet, {
    contentSecurityPolicy: {
      useDefaults: false,
      directives: {
        defaultSrc: own,
        formAction: own,
        baseUri: ["'none'"],
        frameAncestors: ["'none'"],
        objectSrc: ["'none'"],
      },
    },
    referrerPolicy: { policy: 'no-referrer' },
    strictTransportSecurity: oidc !== undefined,
  });
  await app.register(cookie, { secret });
  await app.register(csrf, {
    cookieKey: 'form',
    cookieOpts: {
      path: '/',
      httpOnly: true,
      sameSite: 'strict',
      signed: true,
      // Some browsers keep no such cookie of http://127.0.0.1.
      secure: oidc !== undefined,
    },
    getToken: ({ body }) => (body as { readonly _csrf?: string } | undefined)?._csrf,
  });
  await app.register(formbody, { bodyLimit: FORM_BYTES });
  await app.register(rateLimit, {
    global: false,
    max: SEARCHES_A_MINUTE,
    timeWindow: '1 minute',
  });
}

const NO_PAGE = 'There is no such page.';
const PUBLIC = /^\/(assets\/|login(\/callback)?$)/;

function guard(
  app: FastifyInstance,
  parts: { readonly signIn: SignIn; readonly say: Say; readonly oidc: boolean },
): void {
  app.addHook('onRequest', async (request, reply) => {
    const [path = ''] = request.url.split('?');
    // A site whose name leads to this loopback could read the pages in a visitor's browser.
    if (!parts.oidc && !isLoopback(request.hostname.replace(/^\[(.*)\]$/, '$1')))
      return parts.say(request, reply, 421, 'Open the console by 127.0.0.1 or localhost.');
    if (PUBLIC.test(path) || parts.signIn.who(request) !== undefined) return undefined;
    if (request.method === 'GET')
      return reply.redirect(`/login?to=${encodeURIComponent(path)}`, 303);
    return parts.say(request, reply, 401, 'Your session has ended: log in again.');
  });
  app.setNotFoundHandler((request, reply) => parts.say(request, reply, 404, NO_PAGE));
}

function answerErrors(app: FastifyInstance, options: ConsoleOptions, say: Say): void {
  const { log, databaseFault } = options;
  app.setErrorHandler<Partial<FastifyError> & Error>((error, request, reply) => {
    const { statusCode: status = 500, code = '' } = error;
    const fault =
      error instanceof ProviderError
        ? `The OpenID provider cannot be asked (${error.message}).`
        : databaseFault(error);
    if (fault !== undefined) return say(request, reply, 503, fault);
    if (code.startsWith('FST_CSRF'))
      return say(request, reply, 403, 'The form has expired: open its page again.');
    if (status === 429) return say(request, reply, 429, 'Wait a minute, then search again.');
    if (status < 500) return say(request, reply, status, 'The console cannot use this request.');
    log.error({ err: error }, 'a page failed');
    return say(request, reply, 500, 'A fault of the console; its log has more.');
  });
}

/** Read once: they are small and belong to this version. */
function addAssets(app: FastifyInstance): void {
  const { resolve } = createRequire(import.meta.url);
  const chart = (name: string): string => resolve(`uplot/dist/${name}`);
  const own = (name: string): URL => new URL(`assets/${name}`, import.meta.url);
  const assets: Readonly<Record<string, readonly [string, string | URL]>> = {
    'console.css': ['text/css', own('console.css')],
    'console.js': ['text/javascript', own('console.js')],
    'uplot.css': ['text/css', chart('uPlot.min.css')],
    'uplot.js': ['text/javascript', chart('uPlot.iife.min.js')],
  };
  for (const [name, [type, file]] of Object.entries(assets)) {
    const text = readFileSync(file, 'utf8');
    app.get(`/assets/${name}`, (_, reply) =>
      reply.type(`${type}; charset=utf-8`).header('cache-control', 'max-age=300').send(text),
    );
  }
}
