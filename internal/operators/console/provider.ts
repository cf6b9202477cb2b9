/** The OpenID provider: its discovery document, and what it says of a person. */
import * as oidc from 'openid-client';
import { Agent, fetch as fetchBy, ProxyAgent } from 'undici';
import { ContactError } from '../../platform/process/contact-failure.ts';
import { noProxyTest } from '../../platform/http/networks.ts';
import type { LogFields, Logger } from '../../platform/process/log.ts';
import { cameOf, readOf, roleFault, type ClaimOptions, type Claims, type Role } from './claims.ts';
import { issuerFault, placeOf, SignInFault, signInFaultOf } from './sign-in-faults.ts';

export interface ProviderOptions extends ClaimOptions {
  readonly issuer: string;
  readonly clientId: string;
  readonly clientSecret: string;
  /** As in the environment. */
  readonly proxies: Readonly<Record<'http' | 'https' | 'no', string | undefined>>;
}

/** Time-out of the provider's answers. */
const PROVIDER_TIMEOUT_S = 10;
const ANSWER_BYTES = 1_048_576;
/** Clocks of the provider and of this pod may differ by as much. */
const CLOCKS_DIFFER_S = 60;
/** Endpoints move. */
const DISCOVERY_KEPT_MS = 3_600_000;
/** Time between two attempts to discover the provider. */
const DISCOVERY_PAUSE_MS = 1_000;

export interface Provider {
  /** Throws `SignInFault` while the provider has never been discovered. */
  readonly configuration: () => Promise<oidc.Configuration>;
  /** Discovers it again at the next use. */
  readonly doubt: () => void;
}

/**
 * Discovers the provider at the first use, after an hour and after a doubt; asks it at most once a
 * second. What is known counts while it cannot be discovered again.
 */
export function providerOf(
  options: ProviderOptions,
  {
    log,
    elapsedMs = () => performance.now(),
  }: { readonly log: Logger; readonly elapsedMs?: () => number },
): Provider {
  const asked = askedBy(options.proxies);
  let known: oidc.Configuration | undefined;
  let renewAt = -Infinity;
  let tryAt = -Infinity;
  let last: Promise<oidc.Configuration> | undefined;
  const renew = async (): Promise<oidc.Configuration> => {
    try {
      known = await discover(options, asked);
      renewAt = elapsedMs() + DISCOVERY_KEPT_MS;
      return known;
    } catch (error) {
      log.warn(logged(error), 'the OpenID provider cannot be discovered');
      if (known === undefined) throw error;
      return known;
    } finally {
      tryAt = elapsedMs() + DISCOVERY_PAUSE_MS;
    }
  };
  return {
    configuration: () => {
      const now = elapsedMs();
      if (known !== undefined && now < renewAt) return Promise.resolve(known);
      if (last === undefined || now >= tryAt) {
        tryAt = Infinity;
        last = renew();
      }
      return last;
    },
    doubt: () => {
      renewAt = -Infinity;
    },
  };
}

/** Fields of a fault in the log. An error of the network quotes no answer. */
export function logged(error: unknown): LogFields {
  if (!(error instanceof SignInFault)) return { err: error };
  const { cause, code: reason, message: told } = error;
  return cause instanceof ContactError ? { reason, told, err: cause.cause } : { reason, told };
}

type AskProvider = (url: string, request: object) => Promise<Response>;

/** Pods are read without a proxy, the provider with that of the environment. */
function askedBy({ http, https, no }: ProviderOptions['proxies']): AskProvider {
  const isDirect = noProxyTest(no);
  const limits = { maxResponseSize: ANSWER_BYTES };
  const wayTo = (address: string | undefined) => ({
    dispatcher:
      address === undefined ? new Agent(limits) : new ProxyAgent({ ...limits, uri: address }),
    // Without its login.
    proxy: address && new URL(address).origin,
  });
  const [direct, plain, secure] = [wayTo(undefined), wayTo(http), wayTo(https ?? http)];
  return async (address, request) => {
    const url = new URL(address);
    const proxied = url.protocol === 'https:' ? secure : plain;
    const { dispatcher, proxy } = isDirect(url) ? direct : proxied;
    try {
      const answer = await fetchBy(address, { ...request, dispatcher });
      // Read here, so that each fault of the network is told as one.
      const body = await answer.arrayBuffer();
      const { status, headers } = answer;
      return new Response(body.byteLength > 0 ? body : null, { status, headers: [...headers] });
    } catch (error) {
      // The cause says more than "fetch failed".
      const { cause = error } = error as Error;
      const by = proxy === undefined ? '' : ` through the proxy ${proxy}`;
      const setting = proxy === undefined ? 'OIDC_ISSUER' : 'OIDC_ISSUER and HTTPS_PROXY';
      const at = `${placeOf(url)}${by}`;
      throw new ContactError({ name: 'The OpenID provider', at, setting }, cause);
    }
  };
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

async function discover(options: ProviderOptions, asked: AskProvider): Promise<oidc.Configuration> {
  // People also give the address of the document.
  const given = options.issuer.trim().replace(/\/\.well-known\/openid-configuration\/?$/, '');
  const discovered = (issuer: URL): Promise<oidc.Configuration> =>
    oidc.discovery(
      issuer,
      options.clientId,
      { [oidc.clockTolerance]: CLOCKS_DIFFER_S },
      clientAuth(options.clientSecret),
      {
        [oidc.customFetch]: asked as unknown as oidc.CustomFetch,
        execute: issuer.protocol === 'http:' ? [oidc.allowInsecureRequests] : [],
        timeout: PROVIDER_TIMEOUT_S,
      },
    );
  const slashless = (issuer: string): string => issuer.replace(/\/$/, '');
  try {
    const found = await discovered(new URL(given)).catch((error: unknown) => {
      const named = namedIssuer(error);
      if (named === undefined) throw error;
      if (slashless(named) !== slashless(given)) throw issuerFault(given, named);
      return discovered(new URL(named));
    });
    const { issuer } = found.serverMetadata();
    // Tokens of any tenant of Entra ID would count.
    if (issuer.includes('{')) throw issuerFault(given, issuer);
    return found;
  } catch (error) {
    throw await signInFaultOf(error, `${slashless(given)}/.well-known/openid-configuration`);
  }
}

/** The issuer in a discovery document that the library refuses for it. */
function namedIssuer(error: unknown): string | undefined {
  const { code, cause } = error as oidc.ClientError;
  const { attribute, body } = (cause ?? {}) as {
    readonly attribute?: string;
    readonly body?: { readonly issuer?: unknown };
  };
  return code === 'OAUTH_JSON_ATTRIBUTE_COMPARISON_FAILED' && attribute === 'issuer'
    ? String(body?.issuer)
    : undefined;
}

/**
 * Where a person ends her session at the provider; throws where it names no usable place. No address to return to is given by its standard name, because most refuse one that is not
 * registered; `logout_uri` is what Cognito must have, and others do not read it.
 */
export const logOutAt = (configuration: oidc.Configuration, publicUrl: string): string =>
  oidc.buildEndSessionUrl(configuration, { logout_uri: new URL('/', publicUrl).href }).href;

interface LoggedIn {
  readonly sub: string;
  readonly name: string;
  readonly role: Role;
  /** Why the name is `sub`. */
  readonly nameless: string | undefined;
}

/**
 * What the ID token says of the person, completed by UserInfo. Throws `SignInFault`, also for a
 * person without a role.
 */
export async function personOf(
  provider: Provider,
  back: URL,
  { verifier, state, nonce }: { readonly [Name in 'verifier' | 'state' | 'nonce']: string },
  options: ProviderOptions,
): Promise<LoggedIn> {
  const configuration = await provider.configuration();
  const { token_endpoint: endpoint = '', userinfo_endpoint: userInfo } =
    configuration.serverMetadata();
  const tokens = await oidc
    .authorizationCodeGrant(configuration, back, {
      pkceCodeVerifier: verifier,
      expectedState: state,
      expectedNonce: nonce,
      idTokenExpected: true,
    })
    .catch(async (error: unknown) => {
      throw await signInFaultOf(error, endpoint);
    });
  const claims = tokens.claims()!;
  const { sub } = claims;
  const documents: Claims[] = [claims];
  let said = readOf(documents, options);
  let fault: SignInFault | undefined;
  if (userInfo !== undefined && (said.name === undefined || said.role === undefined))
    try {
      documents.push(await oidc.fetchUserInfo(configuration, tokens.access_token, sub));
      said = readOf(documents, options);
    } catch (error) {
      fault = await signInFaultOf(error, userInfo);
      if (fault.isOfProvider) provider.doubt();
    }
  const { name, role } = said;
  // UserInfo may have had the role.
  if (role === undefined) throw fault ?? roleFault(name ?? sub, documents, options);
  const missing = `${options.nameClaim} is missing or not verified; ${cameOf(documents)}`;
  const nameless = name === undefined ? (fault?.message ?? missing) : undefined;
  return { sub, name: name ?? sub, role, nameless };
}
