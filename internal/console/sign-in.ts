/** Who uses the console: everybody on loopback, or people who log in by OpenID Connect. */
import { createHash, createHmac, randomBytes, randomUUID } from 'node:crypto';
import type { FastifyError, FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import * as oidc from 'openid-client';
import { EnvHttpProxyAgent, fetch as fetchBy } from 'undici';
import type { NameFrom, Trail } from '../trail/trail.ts';
import { inTurns } from './turns.ts';
import { later, type Clock } from '../platform/process/clock.ts';
import type { Logger } from '../platform/process/log.ts';

/** `viewer` sees everything masked; `support` may reveal; `operator` may also act. */
export type Role = 'viewer' | 'support' | 'operator';

export interface ConsolePerson {
  /** The session's id; absent without OIDC. */
  readonly id?: string;
  readonly name: string;
  /** The provider's id of the person, which no two people share and nobody can change. */
  readonly sub?: string;
  /** `oidc`: proven by the provider. `console`: anybody who reached the loopback of the pod. */
  readonly nameFrom: Extract<NameFrom, 'console' | 'oidc'>;
  readonly role: Role;
}

declare module 'fastify' {
  interface FastifyRequest {
    /** Undefined for a person who must log in first. */
    readonly person: ConsolePerson | undefined;
  }
}

export interface OidcOptions {
  readonly issuer: string;
  readonly clientId: string;
  readonly clientSecret: string;
  /** Where people open the console. */
  readonly publicUrl: string;
  readonly scopes: string;
  /** A claim: a name, or a path such as `realm_access.roles`. */
  readonly rolesClaim: string;
  /** The claim's value for each role; nobody is an operator where the console does not act. */
  readonly roles: Readonly<Record<Exclude<Role, 'operator'>, string>> & {
    readonly operator?: string;
  };
}

/** A working day; then the provider is asked again. */
export const SESSION_SECONDS = 8 * 3_600;
/** Time from the click to the return from the provider. */
const LOGIN_SECONDS = 600;
/** Time-out of the provider's answers. */
const PROVIDER_TIMEOUT_S = 5;
const CALLBACK = '/login/callback';
/** The number of tabs that can log in at once. All cookies must fit into the 8 KB that many proxies allow. */
const LOGIN_COOKIES = 32;
/** Characters in JSON. A longer address would make the provider's address too long. */
const PATH_MAX = 500;
/** Calls of the provider at a time, for all who return from it. */
const CALLS_AT_ONCE = 4;
const CALLS_WAITING = 100;
/** Time between two attempts to discover the provider. */
const DISCOVERY_PAUSE_MS = 1_000;
const NOT_LOGGED_IN =
  'The log-in did not succeed, was used already, took too long, or began in another browser: log in again.';

/** Kubernetes' own rights decide who may forward a port. */
export function addEverybody(app: FastifyInstance): void {
  const somebody: ConsolePerson = { name: 'somebody', nameFrom: 'console', role: 'support' };
  app.decorateRequest('person', { getter: () => somebody });
}

/** What the signed `state` says; it returns from the provider. */
interface Login {
  readonly id: string;
  /** The hash of this browser's cookie. */
  readonly browser: string;
  readonly to: string;
  /** In ms. */
  readonly until: number;
}

/** Limits a route by the plugin's registered bounds. */
export const LIMITED = { config: { rateLimit: {} } } as const;

/** Named by the secret: consoles on one host share cookies, whatever their port. */
export function cookieName(kind: string, secret: string, publicUrl = ''): string {
  const mark = createHash('sha256').update(secret).digest('hex').slice(0, 8);
  // No other host of the domain can set such a cookie.
  const prefix = publicUrl.startsWith('https:') ? '__Host-' : '';
  return `${prefix}${kind}-${mark}`;
}

/** A form is valid only in the session that opened it. */
export const formOwner = ({ person }: FastifyRequest): string =>
  `${person?.id ?? ''} ${person?.sub ?? ''}`;

const COOKIE = { path: '/', httpOnly: true, secure: true, sameSite: 'lax', signed: true } as const;

/** A signed cookie, void after `maxAge` seconds. Needs `@fastify/cookie` with a secret. */
function cookieOf<Content extends object>(name: string, maxAge: number, clock: Clock) {
  // The value contains the cookie's name, which the signature does not cover.
  const mark = `${name} `;
  return {
    keep: (reply: FastifyReply, content: Content): void => {
      const until = later(clock.now(), maxAge * 1_000).getTime();
      const text = mark + JSON.stringify({ ...content, until });
      void reply.setCookie(name, text, { ...COOKIE, maxAge });
    },
    kept: (request: FastifyRequest): Content | undefined => {
      const { valid, value } = request.unsignCookie(request.cookies[name] ?? '');
      if (!valid || !value.startsWith(mark)) return undefined;
      const content = JSON.parse(value.slice(mark.length)) as Content & {
        readonly until: number;
      };
      return content.until > clock.now().getTime() ? content : undefined;
    },
    clear: (reply: FastifyReply): FastifyReply => reply.clearCookie(name, COOKIE),
  };
}

/**
 * Log-ins that have begun. The browser keeps a short secret for each; the address that it was asked
 * for travels in the `state`, so that no cookie is long, and their number is bounded.
 */
function loginsOf(name: string, secret: string, clock: Clock) {
  const hash = (text: string): string =>
    createHmac('sha256', secret).update(`${name} ${text}`).digest('base64url');
  const slotOf = (id: string): string =>
    `${name}-${createHash('sha256').update(id).digest()[0]! % LOGIN_COOKIES}`;
  const secretsOf = (browser: string, state: string) => ({
    state,
    nonce: hash(`nonce ${browser} ${state}`),
    verifier: hash(`verifier ${browser} ${state}`),
  });
  return {
    begin: (reply: FastifyReply, to: string) => {
      const [id, browser] = [randomUUID(), randomBytes(16).toString('base64url')];
      const until = later(clock.now(), LOGIN_SECONDS * 1_000).getTime();
      const login: Login = { id, browser: hash(`browser ${browser}`), to, until };
      const text = Buffer.from(JSON.stringify(login)).toString('base64url');
      const cookie = { ...COOKIE, signed: false, maxAge: LOGIN_SECONDS };
      void reply.setCookie(slotOf(id), browser, cookie);
      return secretsOf(browser, `${text}.${hash(`state ${text}`)}`);
    },
    /** Undefined in another browser than the one that began it. */
    begun: ({ cookies }: FastifyRequest, state: string) => {
      const [text = '', signature] = state.split('.');
      if (signature !== hash(`state ${text}`)) return undefined;
      const login = JSON.parse(Buffer.from(text, 'base64url').toString()) as Login;
      if (login.until <= clock.now().getTime()) return undefined;
      const browser = cookies[slotOf(login.id)] ?? '';
      if (hash(`browser ${browser}`) !== login.browser) return undefined;
      return { ...login, ...secretsOf(browser, state) };
    },
  };
}

type Session = ConsolePerson & { readonly id: string };

interface SignInParts {
  readonly secret: string;
  readonly clock: Clock;
  readonly log: Logger;
  /** Ended sessions, whose cookies are void before their time. */
  readonly ended: Set<string>;
  readonly tools: { readonly trailOf: (person: ConsolePerson) => Pick<Trail, 'loggedOut'> };
}

export function addSignIn(app: FastifyInstance, options: OidcOptions, parts: SignInParts): void {
  const { secret, clock, log, ended } = parts;
  const named = (kind: string): string => cookieName(kind, secret, options.publicUrl);
  const session = cookieOf<Session>(named('session'), SESSION_SECONDS, clock);
  const logins = loginsOf(named('login'), secret, clock);
  const inTurn = inTurns(CALLS_AT_ONCE, CALLS_WAITING);
  const used = usedOnce(clock);
  const provider = discoverOnce(options);
  app.decorateRequest('person', {
    getter(this: FastifyRequest) {
      const kept = session.kept(this);
      return kept && !ended.has(kept.id) ? kept : undefined;
    },
  });

  // After the discovery it asks nobody, and it keeps nothing here: strangers may repeat it.
  app.get('/login', async (request, reply) => {
    const { to } = request.query as { to?: unknown };
    const configuration = await provider();
    const { state, nonce, verifier } = logins.begin(reply, ownPath(String(to)));
    const target = oidc.buildAuthorizationUrl(configuration, {
      redirect_uri: new URL(CALLBACK, options.publicUrl).href,
      scope: options.scopes,
      state,
      nonce,
      code_challenge: await oidc.calculatePKCECodeChallenge(verifier),
      code_challenge_method: 'S256',
    });
    return reply.redirect(target.href, 303);
  });
  app.get(CALLBACK, async (request, reply) => {
    const state = String((request.query as { state?: unknown }).state);
    const begun = logins.begun(request, state);
    const claims =
      begun &&
      (await inTurn(request.ip, async () =>
        used(begun.id, LOGIN_SECONDS) ? claimsOf(provider, request.url, begun, options) : undefined,
      ).catch((error: unknown) => {
        if ((error as FastifyError).statusCode === 429) throw error;
        log.warn({ reason: reasonOf(error) }, 'a log-in failed');
      }));
    if (!claims)
      return request.person === undefined
        ? reply.say(400, NOT_LOGGED_IN)
        : reply.redirect(begun?.to ?? '/', 303);
    const { sub } = claims;
    const { name, role } = claims;
    if (role === undefined) {
      session.clear(reply);
      log.warn({ operator: name, sub }, 'a person without a role tried to log in');
      const roles = Object.values(options.roles).join(' nor ');
      return reply.say(403, `${name} has neither the role ${roles}.`);
    }
    session.keep(reply, { id: randomUUID(), name, sub, nameFrom: 'oidc', role });
    log.info({ operator: name, sub, role }, 'logged in');
    return reply.redirect(begun.to, 303);
  });
  addLogOut(app, session, parts);
}

function addLogOut(
  app: FastifyInstance,
  session: ReturnType<typeof cookieOf<Session>>,
  { ended, tools }: SignInParts,
): void {
  app.post('/logout', async (request, reply) => {
    const { id, ...person } = session.kept(request)!;
    // First of all, so that this pod refuses a copy of the cookie even if the database is away.
    ended.add(id);
    session.clear(reply);
    await tools.trailOf(person).loggedOut(id);
    return reply.say(200, 'You are logged out of the console.');
  });
}

/** True at the first use at this pod; at others the provider refuses a used code. */
function usedOnce(clock: Clock): (id: string, seconds: number) => boolean {
  const uses = new Map<string, number>();
  return (id, seconds) => {
    const now = clock.now().getTime();
    // The oldest comes first.
    for (const [old, until] of uses) {
      if (until > now) break;
      uses.delete(old);
    }
    if (uses.has(id)) return false;
    uses.set(id, now + seconds * 1_000);
    return true;
  };
}

/** Discovers the provider at the first log-in that reaches it; asks it at most once a second. */
function discoverOnce(options: OidcOptions): () => Promise<oidc.Configuration> {
  let known: Promise<oidc.Configuration> | undefined;
  return () =>
    (known ??= discover(options).catch((error: unknown) => {
      setTimeout(() => (known = undefined), DISCOVERY_PAUSE_MS).unref();
      throw error;
    }));
}

/** Uses what the provider supports; `client_secret_basic` is OpenID Connect's default. */
function clientAuth(secret: string): oidc.ClientAuth {
  const [basic, post] = [oidc.ClientSecretBasic(secret), oidc.ClientSecretPost(secret)];
  return (server, ...request) => {
    const methods = server.token_endpoint_auth_methods_supported;
    const isBasic = methods?.includes('client_secret_basic') ?? true;
    return (isBasic ? basic : post)(server, ...request);
  };
}

async function discover(options: OidcOptions): Promise<oidc.Configuration> {
  const auth = clientAuth(options.clientSecret);
  const issuer = new URL(options.issuer);
  // Uses HTTPS_PROXY and NO_PROXY; pods are read without a proxy.
  const dispatcher = new EnvHttpProxyAgent();
  const asked = (url: string, request: object) => fetchBy(url, { ...request, dispatcher });
  try {
    return await oidc.discovery(issuer, options.clientId, undefined, auth, {
      [oidc.customFetch]: asked as unknown as oidc.CustomFetch,
      execute: issuer.protocol === 'http:' ? [oidc.allowInsecureRequests] : [],
      timeout: PROVIDER_TIMEOUT_S,
    });
  } catch (error) {
    throw new ProviderError(reasonOf(error));
  }
}

export class ProviderError extends Error {
  override readonly name = 'ProviderError';
}

type Claims = Readonly<Record<string, unknown>>;

/** What the ID token says of the person, completed by UserInfo. */
async function claimsOf(
  provider: () => Promise<oidc.Configuration>,
  url: string,
  { verifier, state, nonce }: { readonly [Name in 'verifier' | 'state' | 'nonce']: string },
  options: OidcOptions,
) {
  const configuration = await provider();
  const back = new URL(url, options.publicUrl);
  const tokens = await oidc.authorizationCodeGrant(configuration, back, {
    pkceCodeVerifier: verifier,
    expectedState: state,
    expectedNonce: nonce,
    idTokenExpected: true,
  });
  const claims = tokens.claims()!;
  const { sub } = claims;
  const { email, email_verified: verified } = claims as Claims;
  const isWhole = ![email, verified, rolesOf(claims, options)].includes(undefined);
  const { userinfo_endpoint: userInfo } = configuration.serverMetadata();
  const more: Claims =
    userInfo === undefined || isWhole
      ? {}
      : await oidc.fetchUserInfo(configuration, tokens.access_token, sub);
  return {
    sub,
    // What one document says of its address says nothing of the other's.
    name: nameOf(verified === undefined ? more : claims, sub),
    role: roleOf(rolesOf(claims, options) ?? rolesOf(more, options), options),
  };
}

/** An address that is not verified may be another person's. */
function nameOf({ email, email_verified: verified }: Claims, sub: string): string {
  return typeof email === 'string' && verified === true ? email : sub;
}

function rolesOf(claims: Claims, { rolesClaim }: OidcOptions): unknown {
  const at = (value: unknown, key: string): unknown => (value as Claims | undefined)?.[key];
  return claims[rolesClaim] ?? rolesClaim.split('.').reduce<unknown>(at, claims);
}

function roleOf(roles: unknown, options: OidcOptions): Role | undefined {
  const given = [roles].flat();
  return (['operator', 'support', 'viewer'] as const).find((role) => {
    const value = options.roles[role];
    return value !== undefined && given.includes(value);
  });
}

/** A log-in must not lead to another site. */
export function ownPath(to: string): string {
  // Printable ASCII without a backslash, which browsers read as a slash.
  return JSON.stringify(to).length <= PATH_MAX && /^\/(?!\/)[!-[\]-~]*$/.test(to) ? to : '/';
}

/** Leaves out the message, which may quote a token. */
function reasonOf(error: unknown): string {
  const { code, name } = error as { readonly code?: string; readonly name?: string };
  return code ?? name ?? 'unknown';
}
