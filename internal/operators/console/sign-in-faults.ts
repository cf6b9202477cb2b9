/** Why a log-in failed: a sentence for the page and a code for the log, without tokens. */
import * as oidc from 'openid-client';
import { ContactError } from '../../platform/process/contact-failure.ts';
import providerCodes from './provider-codes.json' with { type: 'json' };

/** In the log as `reason`. */
export type SignInCode =
  | 'no_state'
  | 'state_not_ours'
  | 'took_too_long'
  | 'other_browser'
  | 'used_already'
  | 'provider_said'
  | 'not_reached'
  | 'answer_unusable'
  | 'issuer_differs'
  | 'endpoint_unusable'
  | 'clocks_differ'
  | 'claim_differs'
  | 'no_roles'
  | 'too_many_groups'
  | 'no_allowed_role'
  | 'unknown';

/** The provider or an operator must correct it, and perhaps the discovery document is out of date. */
const OF_PROVIDER: ReadonlySet<SignInCode> = new Set([
  'not_reached',
  'answer_unusable',
  'issuer_differs',
  'endpoint_unusable',
]);
/** The person is known, and may not see anything. */
const OF_PERSON: ReadonlySet<SignInCode> = new Set([
  'no_roles',
  'too_many_groups',
  'no_allowed_role',
]);

/** The message is a whole sentence for the page; it holds nothing that a person could not see. */
export class SignInFault extends Error {
  override readonly name = 'SignInFault';
  readonly code: SignInCode;

  constructor(code: SignInCode, message: string, options?: ErrorOptions) {
    super(message, options);
    this.code = code;
  }

  get isOfProvider(): boolean {
    return OF_PROVIDER.has(this.code);
  }

  /** Of the page. */
  get status(): 400 | 403 | 503 {
    if (this.isOfProvider) return 503;
    return OF_PERSON.has(this.code) ? 403 : 400;
  }
}

/** RFC 6749 §4.1.2.1 and §5.2, OpenID Connect Core §3.1.2.6, RFC 6750 §3.1. */
const PROVIDER_CODES: Readonly<Record<string, string>> = providerCodes;

/** Of a code, which is shown and logged. */
const CODE = /^[a-z0-9_.:-]{1,60}$/i;
/** Numbers that Entra ID puts into its free text, and its pages explain. */
const ENTRA_CODE = /\bAADSTS\d{3,9}\b/;
const CAUSES_MOST = 6;

/** `text` is the free text beside the code: nothing of it is shown but a number of Entra ID. */
export function providerSaid(given: unknown, text?: unknown): SignInFault {
  const code = typeof given === 'string' && CODE.test(given) ? given : undefined;
  const [number] = (typeof text === 'string' ? ENTRA_CODE.exec(text.slice(0, 1_000)) : null) ?? [];
  const shown = [code ?? 'an error without a readable code', number].filter(Boolean).join(', ');
  const meaning = code !== undefined && Object.hasOwn(PROVIDER_CODES, code);
  const words = meaning ? `: ${PROVIDER_CODES[code]}` : '; see its log';
  return new SignInFault('provider_said', `The provider answers ${shown}${words}.`);
}

/** For a return without a state of ours, which anybody can forge: only a known code is repeated. */
export const knownCode = (given: unknown): SignInFault | undefined =>
  typeof given === 'string' && Object.hasOwn(PROVIDER_CODES, given)
    ? providerSaid(given)
    : undefined;

/** An address without query, which may hold a secret, and bounded. */
export const placeOf = (url: URL | string): string => {
  const { origin = '', pathname = '' } = URL.parse(String(url)) ?? {};
  return `${origin}${pathname}`.slice(0, 200);
};

/** A text of the provider that goes into a sentence. */
const quoted = (value: unknown): string =>
  typeof value === 'string' ? value.replaceAll(/[^ -~]/g, '?').slice(0, 200) : `a ${typeof value}`;

export function issuerFault(expected: string, named: string): SignInFault {
  const hint =
    named.includes('{') || named.includes('%7B')
      ? 'it stands for all tenants, so that strangers could log in: name your tenant in OIDC_ISSUER'
      : 'set OIDC_ISSUER to the name if you trust it, else check the host that the provider believes it has';
  return new SignInFault(
    'issuer_differs',
    `OIDC_ISSUER is ${quoted(expected)}, and the provider there names itself ${quoted(named)}: ${hint}.`,
  );
}

type FaultParts = Readonly<Record<string, unknown>>;

/** The error and its causes, outermost first. */
function causesOf(error: unknown): FaultParts[] {
  const found: FaultParts[] = [];
  for (
    let one = error as FaultParts | null | undefined;
    typeof one === 'object' && one !== null && found.length < CAUSES_MOST;
    one = one['cause'] as FaultParts
  )
    found.push(one);
  return found;
}

/** `at` is the address that was asked. */
export async function signInFaultOf(error: unknown, at: string): Promise<SignInFault> {
  const causes = causesOf(error);
  const known = causes.find((one) => one instanceof SignInFault || one instanceof ContactError);
  if (known instanceof SignInFault) return known;
  if (known instanceof ContactError)
    return new SignInFault('not_reached', `${known.message}.`, { cause: known });
  if (error instanceof oidc.AuthorizationResponseError || error instanceof oidc.ResponseBodyError)
    return providerSaid(error.error, error.error_description);
  if (error instanceof oidc.WWWAuthenticateChallengeError) return await challengeFault(error, at);
  return answerFault(error, causes, at);
}

/** A 401 tells its cause in its head (RFC 6750) or its body (RFC 6749). */
async function challengeFault(
  { cause, response }: oidc.WWWAuthenticateChallengeError,
  at: string,
): Promise<SignInFault> {
  const inHead = cause.map(({ parameters }) => parameters['error']).find(Boolean);
  if (inHead !== undefined) return providerSaid(inHead);
  const body = (await response.json().catch(() => undefined)) as FaultParts | undefined;
  return typeof body?.['error'] === 'string'
    ? providerSaid(body['error'], body['error_description'])
    : statusFault(response, at);
}

function statusFault({ status, headers }: Response, at: string): SignInFault {
  const to = headers.get('location');
  const leads = to === null ? '' : `, which leads to ${placeOf(URL.parse(to, at) ?? '')}`;
  return new SignInFault(
    'answer_unusable',
    `The provider answers ${status}${leads} at ${placeOf(at)}: check OIDC_ISSUER, and the provider's log.`,
  );
}

/** An answer that the library does not accept. */
function answerFault(error: unknown, causes: readonly FaultParts[], at: string): SignInFault {
  const detail = causes.find((one) => 'claims' in one || 'attribute' in one || 'parameters' in one);
  // `instanceof` fails for those of another package.
  const response = causes.find((one) => 'headers' in one && 'status' in one) as
    Response | undefined;
  const fault = (code: SignInCode, words: string): SignInFault =>
    new SignInFault(code, words, { cause: error });
  switch ((error as { readonly code?: unknown } | undefined)?.code) {
    case 'OAUTH_RESPONSE_IS_NOT_CONFORM':
      if (response !== undefined) return statusFault(response, at);
      break;
    case 'OAUTH_RESPONSE_IS_NOT_JSON': {
      if (response !== undefined && response.status !== 200) return statusFault(response, at);
      const type = quoted(response?.headers.get('content-type') ?? 'no content type');
      return fault(
        'answer_unusable',
        `${placeOf(at)} answers ${type} in place of JSON: look whether another server answers there.`,
      );
    }
    case 'OAUTH_HTTP_REQUEST_FORBIDDEN':
    case 'OAUTH_REQUEST_PROTOCOL_FORBIDDEN':
      return fault(
        'endpoint_unusable',
        `The provider's discovery document names an address without https: check which address it believes it has.`,
      );
    case 'OAUTH_MISSING_SERVER_METADATA':
    case 'OAUTH_INVALID_SERVER_METADATA':
      return fault(
        'endpoint_unusable',
        `The provider's discovery document has no usable ${quoted(detail?.['attribute'])}.`,
      );
    case 'OAUTH_JWT_TIMESTAMP_CHECK_FAILED':
      return fault('clocks_differ', clockWords(detail ?? {}));
    case 'OAUTH_JWT_CLAIM_COMPARISON_FAILED':
    case 'OAUTH_JSON_ATTRIBUTE_COMPARISON_FAILED':
      return claimFault(detail ?? {}, fault);
    default:
  }
  if (detail?.['parameters'] instanceof URLSearchParams && detail['parameters'].has('iss'))
    return issuerParameter(detail, fault) ?? unusable(causes, at, fault);
  return unusable(causes, at, fault);
}

type FaultWith = (code: SignInCode, words: string) => SignInFault;

function issuerParameter(
  { expected, parameters }: FaultParts,
  fault: FaultWith,
): SignInFault | undefined {
  const iss = (parameters as URLSearchParams).get('iss');
  return typeof expected !== 'string' || expected === iss || !URL.canParse(expected)
    ? undefined
    : fault(
        'issuer_differs',
        `The log-in returned from the issuer ${quoted(iss)}, and OIDC_ISSUER is ${quoted(expected)}.`,
      );
}

const CLAIM_HINTS: Readonly<Record<string, string>> = {
  aud: 'check OIDC_CLIENT_ID',
  azp: 'check OIDC_CLIENT_ID',
  iss: 'check OIDC_ISSUER, and the host that the provider believes it has',
};

function claimFault({ claim, attribute, claims, body, expected }: FaultParts, fault: FaultWith) {
  const name = String(claim ?? attribute);
  if (name === 'nonce')
    return fault(
      'claim_differs',
      'The ID token has another nonce: it belongs to another log-in, so a code may have been exchanged.',
    );
  if (name === 'sub')
    return fault('claim_differs', 'UserInfo is about another person (sub) than the ID token.');
  const came = [((claims ?? body) as FaultParts | undefined)?.[name]]
    .flat()
    .map(quoted)
    .join(' ')
    .slice(0, 200);
  return fault(
    name === 'iss' ? 'issuer_differs' : 'claim_differs',
    `The ID token has the ${quoted(name)} ${came}, and ${quoted(expected ?? 'one')} was expected: ${CLAIM_HINTS[name] ?? 'see the log of the provider'}.`,
  );
}

/** Of seconds. A token is issued at the moment of the log-in, so `iat` is the provider's clock. */
function clockWords({ claims, now, claim }: FaultParts): string {
  const { iat } = (claims ?? {}) as FaultParts;
  const ahead = typeof iat === 'number' && typeof now === 'number' ? Math.round(now - iat) : NaN;
  const difference = Number.isNaN(ahead)
    ? 'differ'
    : `differ by ${Math.abs(ahead)} s: this pod's is ${ahead > 0 ? 'ahead' : 'behind'}`;
  return `The ID token is not valid at this time (${quoted(claim)}). The clocks of the provider and of this pod ${difference}; a minute is allowed, so check NTP.`;
}

/** Messages of the library are constant, those of parsers quote what they parse. */
function unusable(causes: readonly FaultParts[], at: string, fault: FaultWith): SignInFault {
  const own = causes.findLast(({ name }) =>
    ['OperationProcessingError', 'UnsupportedOperationError'].includes(String(name)),
  );
  if (own === undefined) {
    const { code, name } = causes[0] ?? {};
    return fault('unknown', `The log-in failed (${quoted(code ?? name)}).`);
  }
  // An encrypted token has five parts.
  const { cause: token } = own;
  const isEncrypted = typeof token === 'string' && token.split('.').length === 5;
  const hint = isEncrypted ? ': the ID token is encrypted, which must be off for this client' : '';
  return fault(
    'answer_unusable',
    `The provider's answer at ${placeOf(at)} cannot be used (${quoted(own['message'])})${hint}.`,
  );
}
