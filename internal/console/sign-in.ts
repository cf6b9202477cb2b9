/** Logs people in by OpenID Connect, and keeps them in a signed cookie. */
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import * as oidc from 'openid-client';
import type { Clock } from '../platform/clock.ts';
import type { Logger } from '../platform/log.ts';
import { LOGIN_SECONDS, PROVIDER_TIMEOUT_S, SESSION_SECONDS } from './limits.ts';
import type { Person, Role } from './person.ts';
import type { Say } from './render.ts';

export interface OidcOptions {
  readonly issuer: string;
  readonly clientId: string;
  readonly clientSecret: string;
  /** Where people open the console. */
  readonly publicUrl: string;
  /** A claim of the ID token: a name, or a path such as `realm_access.roles`. */
  readonly rolesClaim: string;
  /** The claim's value for each role. */
  readonly roles: Readonly<Record<Role, string>>;
}

export interface SignIn {
  /** Undefined for a person who must log in first. */
  who(request: FastifyRequest): Person | undefined;
}

const SESSION = 'session';
const LOGIN = 'login';
const CALLBACK = '/login/callback';

interface Session {
  readonly kind: typeof SESSION;
  readonly name: string;
  readonly role: Role;
}

interface Login {
  readonly kind: typeof LOGIN;
  readonly state: string;
  readonly nonce: string;
  readonly verifier: string;
  readonly to: string;
}

interface Until {
  readonly until: number;
}

/** Signed, and worth nothing after their time. Needs `@fastify/cookie` with a secret. */
function cookiesOf(clock: Clock) {
  const now = (): number => clock.now().getTime();

  const keep = (reply: FastifyReply, seconds: number, content: Session | Login): void => {
    const until = now() + seconds * 1_000;
    const text = Buffer.from(JSON.stringify({ ...content, until })).toString('base64url');
    void reply.setCookie(content.kind, text, {
      path: '/',
      httpOnly: true,
      secure: true,
      sameSite: 'lax',
      signed: true,
      maxAge: seconds,
    });
  };

  const kept = <T extends Session | Login>(request: FastifyRequest, kind: T['kind']) => {
    const { valid, value } = request.unsignCookie(request.cookies[kind] ?? '');
    if (!valid) return undefined;
    try {
      const content = JSON.parse(Buffer.from(value, 'base64url').toString()) as T & Until;
      // The signature does not cover the cookie's name.
      return content.kind === kind && content.until > now() ? content : undefined;
    } catch {
      return undefined;
    }
  };

  return { keep, kept };
}

export function oidcSignIn(
  options: OidcOptions,
  { clock, log, say }: { readonly clock: Clock; readonly log: Logger; readonly say: Say },
): SignIn & { addRoutes(app: FastifyInstance): void } {
  const provider = providerOf(options);
  const { keep, kept } = cookiesOf(clock);

  const begin = async (request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> => {
    const [state, nonce] = [oidc.randomState(), oidc.randomNonce()];
    const verifier = oidc.randomPKCECodeVerifier();
    const { to = '/' } = request.query as { to?: string };
    keep(reply, LOGIN_SECONDS, { kind: LOGIN, state, nonce, verifier, to: ownPath(to) });
    const target = oidc.buildAuthorizationUrl(await provider(), {
      redirect_uri: new URL(CALLBACK, options.publicUrl).href,
      scope: 'openid profile email',
      state,
      nonce,
      code_challenge: await oidc.calculatePKCECodeChallenge(verifier),
      code_challenge_method: 'S256',
    });
    return reply.redirect(target.href, 303);
  };

  const claimsOf = async (request: FastifyRequest, login: Login): Promise<Claims | undefined> => {
    const back = new URL(request.url, options.publicUrl);
    const tokens = await oidc.authorizationCodeGrant(await provider(), back, {
      pkceCodeVerifier: login.verifier,
      expectedState: login.state,
      expectedNonce: login.nonce,
      idTokenExpected: true,
    });
    return tokens.claims();
  };

  const end = async (request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> => {
    const login = kept<Login>(request, LOGIN);
    void reply.clearCookie(LOGIN, { path: '/' });
    if (login === undefined)
      return say(request, reply, 400, 'The log-in took too long, or began elsewhere.');
    const claims = await claimsOf(request, login).catch((error: unknown) => {
      log.warn({ reason: reasonOf(error) }, 'a log-in failed');
    });
    if (claims === undefined)
      return say(request, reply, 400, 'The log-in did not succeed: try again.');
    const [name, role] = [nameOf(claims), roleOf(claims, options)];
    if (role === undefined) {
      log.warn({ operator: name }, 'a person without a role tried to log in');
      const roles = Object.values(options.roles).join(' nor ');
      return say(request, reply, 403, `${name} has neither the role ${roles}.`);
    }
    keep(reply, SESSION_SECONDS, { kind: SESSION, name, role });
    log.info({ operator: name, role }, 'logged in');
    return reply.redirect(login.to, 303);
  };

  return {
    who: (request) => {
      const session = kept<Session>(request, SESSION);
      return session && { name: session.name, nameFrom: 'oidc', role: session.role };
    },
    addRoutes: (app) => {
      app.get('/login', begin);
      app.get(CALLBACK, end);
      app.post('/logout', { preHandler: app.csrfProtection.bind(app) }, (request, reply) => {
        void reply.clearCookie(SESSION, { path: '/' });
        return say(request, reply, 200, 'You are logged out of the console.');
      });
    },
  };
}

/** Asked at the first log-in and, while it fails, at each: the console starts without it. */
function providerOf(options: OidcOptions): () => Promise<oidc.Configuration> {
  let known: Promise<oidc.Configuration> | undefined;
  const issuer = new URL(options.issuer);
  const insecure = issuer.protocol === 'http:' ? [oidc.allowInsecureRequests] : [];
  return () => {
    known ??= oidc
      .discovery(issuer, options.clientId, options.clientSecret, undefined, {
        execute: insecure,
        timeout: PROVIDER_TIMEOUT_S,
      })
      .catch((error: unknown) => {
        known = undefined;
        throw new ProviderError(reasonOf(error));
      });
    return known;
  };
}

/** The provider cannot be asked. */
export class ProviderError extends Error {
  override readonly name = 'ProviderError';
}

type Claims = Readonly<Record<string, unknown>>;

function nameOf(claims: Claims): string {
  const { email, email_verified: verified, preferred_username: user, sub } = claims;
  if (typeof email === 'string' && verified !== false) return email;
  return typeof user === 'string' ? user : String(sub);
}

function roleOf(claims: Claims, { rolesClaim, roles }: OidcOptions): Role | undefined {
  const at = (value: unknown, key: string): unknown => (value as Claims | undefined)?.[key];
  const claim = claims[rolesClaim] ?? rolesClaim.split('.').reduce<unknown>(at, claims);
  const given = [claim].flat();
  return (['support', 'viewer'] as const).find((role) => given.includes(roles[role]));
}

/** Another site's address must not be reached through ours. */
function ownPath(to: string): string {
  return /^\/[\w/-]*$/.test(to) && !to.startsWith('//') ? to : '/';
}

/** Without the message, which may quote a token. */
function reasonOf(error: unknown): string {
  const { code, name } = error as { readonly code?: string; readonly name?: string };
  return code ?? name ?? 'unknown';
}
