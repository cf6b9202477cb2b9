/** The HTTP server of the console: what holds for every page. */
import { constants } from 'node:zlib';
import compress from '@fastify/compress';
import cookie from '@fastify/cookie';
import csrf from '@fastify/csrf-protection';
import formbody from '@fastify/formbody';
import helmet from '@fastify/helmet';
import rateLimit from '@fastify/rate-limit';
import fastify, { type FastifyError, type FastifyInstance, type FastifyReply } from 'fastify';
import { listenHost, urlOf } from '../../platform/http/admin-server.ts';
import type { Clock } from '../../platform/process/clock.ts';
import type { Logger } from '../../platform/process/log.ts';
import { isLoopback } from '../../platform/http/networks.ts';
import { addAssets, stylesHash } from './assets.ts';
import { addManyOrders } from './many-orders.ts';
import { addOrders, type OrderParts } from './orders.ts';
import { addPages, colourOf, htmlOf } from './render.ts';
import { addRoutes, type ConsoleTools } from './routes.ts';
import { addSavedViews } from './saved-views.ts';
import {
  addEverybody,
  addSignIn,
  cookieName,
  formOwner,
  ownPath,
  type OidcOptions,
} from './sign-in.ts';
import { SignInFault } from './sign-in-faults.ts';

/** The longest form: ten fields of 1,000 characters, each of which may take nine bytes. */
const FORM_BYTES = 131_072;
/** Searches and reveals of a person, or of an address without OIDC: support needs no more. */
const LIMIT_A_MINUTE = 60;
/** Lower: to guess a masked EIN takes a viewer days. */
const VIEWER_LIMIT_A_MINUTE = 20;
/** Other applications of the domain may set many cookies; Node's default is 16 KB. */
const HEAD_BYTES = 65_536;
/** The default, 11, would take longer than it saves. */
const BROTLI_QUALITY = 5;
/** Each restart without OIDC leaves a cookie under another name. */
const FORM_COOKIE_SECONDS = 604_800;

interface ConsoleOptions {
  readonly host: string;
  readonly port: number;
  /** Signs cookies. */
  readonly secret: string;
  /** Absent: everybody who reaches the loopback may see everything. */
  readonly oidc?: OidcOptions;
  /** How the operator's command is run in this installation. */
  readonly command: string;
  /** Where the runbooks are served, if they are. */
  readonly runbooks?: string | undefined;
  /** The name of the installation. */
  readonly place: string;
  readonly tools: ConsoleTools;
  /** Absent: nobody may act. */
  readonly orderContextOf?: OrderParts['orderContextOf'];
  /** Sessions that people ended, at this pod or another. */
  readonly ended: Set<string>;
  readonly clock: Clock;
  readonly log: Logger;
  /** A sentence for a fault of the database; undefined for any other fault. */
  readonly databaseFault: (error: unknown) => string | undefined;
}

/** Rejects when the address is not available. */
export async function startConsole(
  options: ConsoleOptions,
): Promise<{ readonly url: string; close(): Promise<void> }> {
  const { oidc, clock, host, port } = options;
  const app = fastify({
    bodyLimit: FORM_BYTES,
    http: { maxHeaderSize: HEAD_BYTES },
    forceCloseConnections: true,
    // The address is malformed: no hook has run, so there is no page.
    frameworkErrors: (_error, _request, reply) =>
      void (reply as FastifyReply).code(404).type('text/plain').send(NO_PAGE),
  });
  await addPlugins(app, options);
  const deadLetters = (): number => options.tools.activity.deadLetters();
  addPages(app, { ...options, deadLetters, oidc: oidc !== undefined });
  if (oidc === undefined) addEverybody(app);
  else addSignIn(app, oidc, options);
  guard(app, oidc !== undefined);
  answerErrors(app, options);
  addAssets(app, htmlOf('tab-icon', { colour: colourOf(options.place) }));
  // By the installation, since a secret may be of this start alone.
  const views = cookieName('views', options.place, oidc?.publicUrl);
  addSavedViews(app, { cookie: views, secure: oidc !== undefined, clock });
  addRoutes(app, options.tools, clock);
  const { orderContextOf } = options;
  if (orderContextOf !== undefined) {
    addOrders(app, { ...options, orderContextOf });
    addManyOrders(app, { ...options, orderContextOf });
  }
  await app.listen({ host: listenHost(host), port });
  return { url: urlOf(app.server), close: () => app.close() };
}

async function addPlugins(app: FastifyInstance, { secret, oidc }: ConsoleOptions): Promise<void> {
  const own = ["'self'"];
  await app.register(helmet, {
    contentSecurityPolicy: {
      useDefaults: false,
      directives: {
        defaultSrc: own,
        styleSrc: [...own, stylesHash],
        formAction: own,
        baseUri: ["'none'"],
        frameAncestors: ["'none'"],
        objectSrc: ["'none'"],
      },
    },
    referrerPolicy: { policy: 'no-referrer' },
    strictTransportSecurity: oidc !== undefined,
  });
  await app.register(compress, {
    encodings: ['br', 'gzip'],
    brotliOptions: { params: { [constants.BROTLI_PARAM_QUALITY]: BROTLI_QUALITY } },
  });
  await app.register(cookie, { secret });
  await app.register(csrf, {
    getUserInfo: formOwner,
    csrfOpts: { hmacKey: secret },
    cookieKey: cookieName('form', secret, oidc?.publicUrl),
    cookieOpts: {
      path: '/',
      httpOnly: true,
      // `strict` would void open forms after a link from another site. The token protects them.
      sameSite: 'lax',
      signed: true,
      maxAge: FORM_COOKIE_SECONDS,
      // Some browsers drop secure cookies of http://127.0.0.1.
      secure: oidc !== undefined,
    },
  });
  await app.register(formbody, { bodyLimit: FORM_BYTES });
  await app.register(rateLimit, {
    global: false,
    max: ({ person }) => (person?.role === 'viewer' ? VIEWER_LIMIT_A_MINUTE : LIMIT_A_MINUTE),
    timeWindow: '1 minute',
    // Behind an Ingress all clients have its address.
    keyGenerator: ({ person, ip }) => person?.sub ?? ip,
  });
}

const NO_PAGE = 'There is no such page.';
const PUBLIC = /^\/(assets\/|favicon\.ico$|login(\/callback)?$)/;

function guard(app: FastifyInstance, oidc: boolean): void {
  app.addHook('onRequest', async (request, reply) => {
    const [path = ''] = request.url.split('?');
    // A site whose name resolves to loopback could read the pages in a visitor's browser.
    if (!oidc && !isLoopback(request.hostname.replace(/^\[(.*)\]$/, '$1')))
      return reply.say(421, 'Open the console by 127.0.0.1 or localhost.');
    if (PUBLIC.test(path) || request.person !== undefined) return undefined;
    // A script's request cannot be redirected to the provider, and must not begin a log-in.
    const { 'sec-fetch-mode': mode = 'navigate' } = request.headers;
    if (request.method === 'GET' && mode === 'navigate')
      return reply.redirect(`/login?to=${encodeURIComponent(ownPath(request.url))}`, 303);
    return reply.say(401, 'Your session has ended: log in again.');
  });
  app.addHook('preHandler', (request, reply, done) =>
    request.method === 'POST' ? app.csrfProtection(request, reply, done) : done(),
  );
  app.setNotFoundHandler((_, reply) => reply.say(404, NO_PAGE));
}

function answerErrors(app: FastifyInstance, { log, databaseFault }: ConsoleOptions): void {
  app.setErrorHandler<Partial<FastifyError> & Error>((error, _, reply) => {
    const { statusCode: status = 500, code = '' } = error;
    const fault = error instanceof SignInFault ? error.message : databaseFault(error);
    if (fault !== undefined) return reply.say(503, fault);
    if (code.startsWith('FST_CSRF'))
      return reply.say(403, 'The form has expired: open its page again.');
    if (status === 429) return reply.say(429, 'Wait a minute, then try again.');
    if (status < 500) return reply.say(status, 'The console cannot use this request.');
    log.error({ err: error }, 'a page failed');
    return reply.say(500, 'A fault of the console; its log has more.');
  });
}
