/** Who uses the console: everybody on loopback, or people who log in by OpenID Connect. */
import { createHash, createHmac, randomBytes, randomUUID } from 'node:crypto';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import * as oidc from 'openid-client';
import type { NameFrom, Trail } from '../trail/trail.ts';
import type { Role } from './claims.ts';
import {
  logged,
  logOutAt,
  personOf,
  providerOf,
  type Provider,
  type ProviderOptions,
} from './provider.ts';
import { knownCode, SignInFault, signInFaultOf } from './sign-in-faults.ts';
import { inTurns } from './turns.ts';
import { later, type Clock } from '../../platform/process/clock.ts';
import { defined } from '../../platform/process/defined.ts';
import type { Logger } from '../../platform/process/log.ts';

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

export interface OidcOptions extends ProviderOptions {
  /** Where people open the console. */
  readonly publicUrl: string;
  readonly scopes: string;
}

/** A working day; then the provider is asked again. */
export const SESSION_SECONDS = 8 * 3_600;
/** Time from the click to the return from the provider. */
const LOGIN_SECONDS = 600;
const CALLBACK = '/login/callback';
/** Of tabs that begin at the same moment. All cookies must fit into the 8 KB that many proxies allow. */
const LOGIN_COOKIES = 32;
/**
 * Of the page to return to after the log-in, in JSON: it stands in the `state` of the provider's
 * address, which must not become too long.
 */
const PATH_MAX = 500;
/** Calls of the provider at a time, for all who return from it. */
const CALLS_AT_ONCE = 4;
const CALLS_WAITING = 100;
/** Kubernetes' own rights decide who may forward a port. */
export function addEverybody(app: FastifyInstance): void {
  const somebody: ConsolePerson = { name: 'somebody', nameFrom: 'console', role: 'support' };
  app.decorateRequest('person', { getter: () => somebody });
}

/** What the signed `state` says; it returns from the provider. */
interface Login {
  readonly id: string;
  /** The name of the cookie. */
  readonly slot: string;
  /** The hash of this browser's cookie. */
  readonly browser: string;
  readonly to: string;
  /** In ms. */
  readonly until: number;
}

const NO_STATE = new SignInFault(
  'no_state',
  'The provider returned without the state of a log-in, or the address is not whole.',
);
const NOT_OURS = new SignInFault(
  'state_not_ours',
  'The log-in was not begun at this console, or its address was changed. If it happens again, look whether all its pods have the same CONSOLE_SESSION_SECRET.',
);
const TOOK_TOO_LONG = new SignInFault(
  'took_too_long',
  `The log-in took more than ${LOGIN_SECONDS / 60} minutes.`,
);
const OTHER_BROWSER = new SignInFault(
  'other_browser',
  'The log-in began in another browser, or this one did not keep its cookie.',
);
const USED_ALREADY = new SignInFault(
  'used_already',
  'The log-in was used already, as after "back" or a reload.',
);

/** Limits a route by the plugin's registered bounds. */
export const LIMITED = { config: { rateLimit: {} } } as const;

/** Named by the secret: consoles on one host share cookies, whatever their port. */
export function cookieName(kind: string, secret: string, publicUrl = ''): string {
  const mark = createHash('sha256').update(secret).digest('hex').slice(0, 8);
  // No other host of the domain can set such a cookie.
  const prefix = publicUrl.startsWith('https:') ? '__Host-' : '';
  return `${prefix}${kind}-${mark}`;
}

/** Others see one letter of a name. */
export const mayReveal = ({ person }: FastifyRequest): boolean => person?.role !== 'viewer';

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
  const isLogin = (cookie: string): boolean => cookie.startsWith(`${name}-`);
  const isSecret = (value?: string): boolean => /^[\w-]{22}$/.test(value ?? '');
  const secretsOf = (browser: string, state: string) => ({
    state,
    nonce: hash(`nonce ${browser} ${state}`),
    verifier: hash(`verifier ${browser} ${state}`),
  });
  return {
    begin: ({ cookies }: FastifyRequest, reply: FastifyReply, to: string) => {
      const id = randomUUID();
      // A tab that began earlier has its secret still when it returns: no other takes its place.
      const [slot = slotOf(id), browser = randomBytes(16).toString('base64url')] =
        Object.entries(cookies).find(([one, value]) => isLogin(one) && isSecret(value)) ?? [];
      const until = later(clock.now(), LOGIN_SECONDS * 1_000).getTime();
      const login: Login = { slot, id, browser: hash(`browser ${browser}`), to, until };
      const text = Buffer.from(JSON.stringify(login)).toString('base64url');
      const cookie = { ...COOKIE, signed: false, maxAge: LOGIN_SECONDS };
      void reply.setCookie(slot, browser, cookie);
      return secretsOf(browser, `${text}.${hash(`state ${text}`)}`);
    },
    /** A fault says why this log-in cannot go on. */
    begun: ({ cookies }: FastifyRequest, state: string) => {
      const [text = '', signature] = state.split('.');
      if (signature !== hash(`state ${text}`)) return { fault: NOT_OURS };
      const login = JSON.parse(Buffer.from(text, 'base64url').toString()) as Login;
      if (login.until <= clock.now().getTime()) return { fault: TOOK_TOO_LONG };
      const browser = cookies[login.slot] ?? '';
      if (hash(`browser ${browser}`) !== login.browser) return { fault: OTHER_BROWSER };
      return { login: { ...login, ...secretsOf(browser, state) } };
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
  const provider = providerOf(options, { log });
  app.decorateRequest('person', {
    getter(this: FastifyRequest) {
      const kept = session.kept(this);
      return kept && !ended.has(kept.id) ? kept : undefined;
    },
  });

  addBegin(app, options, { logins, provider, log });
  app.get(CALLBACK, async (request, reply) => {
    const { state, error: code } = request.query as {
      state?: string | string[];
      error?: unknown;
    };
    const { login, fault } =
      state === undefined
        ? { fault: knownCode(code) ?? NO_STATE }
        : logins.begun(request, String(state));
    try {
      if (login === undefined) throw fault;
      const person = await inTurn(request.ip, () => {
        if (!used(login.id, LOGIN_SECONDS)) throw USED_ALREADY;
        return personOf(provider, new URL(request.url, options.publicUrl), login, options);
      });
      const { name, sub, role, nameless } = person;
      session.keep(reply, { id: randomUUID(), name, sub, nameFrom: 'oidc', role });
      log.info({ operator: name, sub, role, ...defined({ nameless }) }, 'logged in');
      return await reply.redirect(login.to, 303);
    } catch (error) {
      if (!(error instanceof SignInFault)) throw error;
      if (error.isOfProvider) provider.doubt();
      log.warn(logged(error), 'a log-in failed');
      // The person is known, and has no role.
      if (error.status === 403) session.clear(reply);
      else if (request.person !== undefined) return reply.redirect(login?.to ?? '/', 303);
      return reply.say(error.status, `${error.message} To try again, log in again.`);
    }
  });
  const elsewhere = (): Promise<string | undefined> =>
    provider
      .configuration()
      .then((configuration) => logOutAt(configuration, options.publicUrl))
      // Many have no such place.
      .catch(() => undefined);
  addLogOut(app, session, elsewhere, parts);
}

interface BeginParts {
  readonly logins: ReturnType<typeof loginsOf>;
  readonly provider: Provider;
  readonly log: Logger;
}

function addBegin(
  app: FastifyInstance,
  options: OidcOptions,
  { logins, provider, log }: BeginParts,
): void {
  // After the discovery it asks nobody, and it keeps nothing here: strangers may repeat it.
  app.get('/login', async (request, reply) => {
    const { to } = request.query as { to?: unknown };
    const configuration = await provider.configuration();
    const { state, nonce, verifier } = logins.begin(request, reply, ownPath(String(to)));
    const parameters = {
      redirect_uri: new URL(CALLBACK, options.publicUrl).href,
      scope: options.scopes,
      state,
      nonce,
      code_challenge: await oidc.calculatePKCECodeChallenge(verifier),
      code_challenge_method: 'S256',
    };
    try {
      return reply.redirect(oidc.buildAuthorizationUrl(configuration, parameters).href, 303);
    } catch (error) {
      provider.doubt();
      const fault = await signInFaultOf(error, options.issuer);
      log.warn(logged(fault), 'a log-in failed');
      throw fault;
    }
  });
}

function addLogOut(
  app: FastifyInstance,
  session: ReturnType<typeof cookieOf<Session>>,
  elsewhere: () => Promise<string | undefined>,
  { ended, tools }: SignInParts,
): void {
  app.post('/logout', async (request, reply) => {
    const { id, ...person } = session.kept(request)!;
    // First of all, so that this pod refuses a copy of the cookie even if the database is away.
    ended.add(id);
    session.clear(reply);
    await tools.trailOf(person).loggedOut(id);
    return reply.page('message', {
      title: 'Done',
      status: 200,
      message: 'You are logged out of the console. Your session at the provider goes on.',
      elsewhere: await elsewhere(),
    });
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

/** A log-in must not lead to another site. */
export function ownPath(to: string): string {
  // Printable ASCII without a backslash, which browsers read as a slash.
  return JSON.stringify(to).length <= PATH_MAX && /^\/(?!\/)[!-[\]-~]*$/.test(to) ? to : '/';
}
