/** Logs people in by OpenID Connect, and keeps them in a signed cookie. */
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import * as oidc from 'openid-client';
import type { Clock } from '../platform/clock.ts';
import type { Logger } from '../platform/log.ts';
import { LOGIN_SECONDS, PROVIDER_TIMEOUT_S, SESSION_SECONDS } from './limits.ts';
import type { Person, Role } from './person.ts';
import type { Messages } from './render.ts';

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
  readonly until: number;
}

interface Login {
  readonly kind: typeof LOGIN;
  readonly state: string;
  readonly nonce: string;
  readonly verifier: string;
  readonly to: string;
  readonly until: number;
}

/** Needs `@fastify/cookie` with a secret. */
export function oidcSignIn(
  app: FastifyInstance,
  options: OidcOptions,
  tools: { readonly clock: Clock; readonly log: Logger; readonly messages: Messages },
): SignIn {
  const { clock, log, messages } = tools;
  const redirectUri = new URL(CALLBACK, options.publicUrl).href;
  const provider = providerOf(options);
  const keep = (reply: FastifyReply, content: Session | Login, seconds: number): void =>
    void reply.setCookie(content.kind, Buffer.from(JSON.stringify(content)).toString('base64url'), {
      ...{ path: '/', httpOnly: true, secure: true, sameSite: 'lax', signed: true },
      maxAge: seconds,
    });
  const kept = <T extends Session | Login>(request: FastifyRequest, kind: T['kind']) => {
    const { valid, value } = request.unsignCookie(request.cookies[kind] ?? '');
    if (!valid) return undefined;
    const content = JSON.parse(Buffer.from(value, 'base64url').toString()) as T;
    // The signature does not cover the cookie's name.
    return content.kind === kind && content.until > nowSeconds(clock) ? content : undefined;
  };

  app.get('/login', async (request, reply) => {
    const [state, nonce, verifier] = [
      oidc.randomState(),
      oidc.randomNonce(),
      oidc.randomPKCECodeVerifier(),
    ];
    const { to = '/' } = request.query as { to?: string };
    const until = nowSeconds(clock) + LOGIN_SECONDS;
    keep(reply, { kind: LOGIN, state, nonce, verifier, to: ownPath(to), until }, LOGIN_SECONDS);
    const target = oidc.buildAuthorizationUrl(await provider(), {
      redirect_uri: redirectUri,
      scope: 'openid profile email',
      ...{ state, nonce, code_challenge_method: 'S256' },
      code_challenge: await oidc.calculatePKCECodeChallenge(verifier),
    });
    return reply.redirect(target.href, 303);
  });

  app.get(CALLBACK, async (request, reply) => {
    const login = kept<Login>(request, LOGIN);
    void reply.clearCookie(LOGIN, { path: '/' });
    if (login === undefined)
      return messages.show(request, reply, 400, 'The log-in took too long, or began elsewhere.');
    const claims = await claimsOf(request, login).catch((error: unknown) => {
      log.warn({ reason: reasonOf(error) }, 'a log-in failed');
    });
    if (claims === undefined)
      return messages.show(request, reply, 400, 'The log-in did not succeed.');
    const [name, role] = [nameOf(claims), roleOf(claims, options)];
    if (role === undefined) {
      log.warn({ operator: name }, 'a person without a role tried to log in');
      const words = `You are ${name}, who has neither role: ${Object.values(options.roles).join(' or ')}.`;
      return messages.show(request, reply, 403, words);
    }
    const until = nowSeconds(clock) + SESSION_SECONDS;
    keep(reply, { kind: SESSION, name, role, until }, SESSION_SECONDS);
    log.info({ operator: name, role }, 'logged in');
    return reply.redirect(login.to, 303);
  });

  app.post('/logout', { preHandler: app.csrfProtection.bind(app) }, (request, reply) => {
    void reply.clearCookie(SESSION, { path: '/' });
    return messages.show(request, reply, 200, 'You are logged out of the console.');
  });

  async function claimsOf(request: FastifyRequest, login: Login) {
    const tokens = await oidc.authorizationCodeGrant(
      await provider(),
      new URL(request.url, options.publicUrl),
      {
        pkceCodeVerifier: login.verifier,
        expectedState: login.state,
        expectedNonce: login.nonce,
        idTokenExpected: true,
      },
    );
    return tokens.claims();
  }

  return {
    who: (request) => {
      const session = kept<Session>(request, SESSION);
      return session && { name: session.name, nameFrom: 'oidc', role: session.role };
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

const nowSeconds = (clock: Clock): number => clock.now().getTime() / 1_000;

/** Without the message, which may quote a token. */
function reasonOf(error: unknown): string {
  const { code, name } = error as { readonly code?: unknown; readonly name?: unknown };
  return String(code ?? name ?? 'unknown');
}
