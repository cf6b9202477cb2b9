/** An OpenID provider with the habits of a real one, which a test may change while it runs. */
import { createHash, createHmac, generateKeyPairSync, randomUUID, sign } from 'node:crypto';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { text } from 'node:stream/consumers';
import { listen } from './listen.ts';

type Claims = Readonly<Record<string, unknown>>;

export interface Habits {
  /** Its own name; the origin is replaced by that of the fake. */
  readonly issuer: string;
  /** Others are refused. */
  readonly scopes: readonly string[];
  /** In the ID token, besides those of OpenID Connect. */
  readonly idToken: Claims;
  /** Absent: it has no UserInfo. */
  readonly userInfo?: Claims;
  readonly auth?: readonly ('client_secret_basic' | 'client_secret_post')[];
  readonly alg?: 'RS256' | 'HS256';
  /** Besides `clientId`. */
  readonly audience?: readonly string[];
  readonly discovery?: Claims;
}

/** What a test may change of a running provider. */
export interface Trouble {
  /** In place of the discovery document. */
  discovery?: Reply | undefined;
  /** Parameters with which it returns in place of a code. */
  authorize?: Readonly<Record<string, string>>;
  /** In place of tokens. */
  token?: Reply;
  userInfo?: Reply;
  /** Over the claims of the ID token. */
  claims?: Claims;
  /** Of its clock before that of the test. */
  aheadS?: number;
  /** Behind the paths of its endpoints. */
  moved?: string;
  /** In place of the ID token. */
  idToken?: string;
}

export interface Reply {
  readonly status?: number;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: unknown;
}

interface Client {
  readonly id: string;
  readonly secret: string;
  readonly redirectUri: string;
}

const keyPair = () => generateKeyPairSync('rsa', { modulusLength: 2_048 });
/** Making one takes long. */
const KEYS = keyPair();
const base64 = (value: unknown): string => Buffer.from(JSON.stringify(value)).toString('base64url');

export async function startFakeProvider(habits: Habits, client: Client) {
  const trouble: Trouble = {};
  const calls: string[] = [];
  const codes = new Map<string, URLSearchParams>();
  let keys = KEYS;
  let kid = randomUUID();
  const server: Server = createServer((request, response) => {
    void answer(request, response);
  });
  const origin = `http://127.0.0.1:${await listen(server)}`;
  const issuer = habits.issuer.replace(/^https:\/\/[^/]+/, origin);
  const path = new URL(issuer).pathname.replace(/\/$/, '');
  const endpoint = (name: string): string => `${path}/${name}${trouble.moved ?? ''}`;

  const send = (response: ServerResponse, { status = 200, headers = {}, body }: Reply): void => {
    const isText = typeof body === 'string';
    response.writeHead(status, {
      'content-type': isText ? 'text/html' : 'application/json',
      ...headers,
    });
    response.end(isText ? body : JSON.stringify(body));
  };

  function token(nonce: string | null): string {
    const now = Math.floor(Date.now() / 1_000) + (trouble.aheadS ?? 0);
    const { alg = 'RS256' } = habits;
    const aud = [client.id, ...(habits.audience ?? [])];
    const claims = {
      iss: issuer,
      aud: aud.length === 1 ? client.id : aud,
      ...(aud.length === 1 ? {} : { azp: client.id }),
      iat: now,
      nbf: now,
      exp: now + 300,
      nonce,
      ...habits.idToken,
      ...trouble.claims,
    };
    const signed = `${base64({ alg, kid, typ: 'JWT' })}.${base64(claims)}`;
    const signature =
      alg === 'HS256'
        ? createHmac('sha256', client.secret).update(signed).digest('base64url')
        : sign('sha256', Buffer.from(signed), keys.privateKey).toString('base64url');
    return trouble.idToken ?? `${signed}.${signature}`;
  }

  function authorize(query: URLSearchParams): Reply {
    const unknown = query
      .get('scope')!
      .split(' ')
      .filter((one) => !habits.scopes.includes(one));
    const given =
      trouble.authorize ??
      (unknown.length > 0
        ? { error: 'invalid_scope', error_description: unknown.join(' ') }
        : undefined);
    if (query.get('client_id') !== client.id || query.get('redirect_uri') !== client.redirectUri)
      return { status: 400, body: 'redirect URI or client is not registered' };
    const code = randomUUID();
    codes.set(code, query);
    const back = new URL(client.redirectUri);
    const parameters = { state: query.get('state')!, ...(given ?? { code }) };
    for (const [name, value] of Object.entries(parameters)) back.searchParams.set(name, value);
    return { status: 302, headers: { location: back.href } };
  }

  function exchange({ headers }: IncomingMessage, form: URLSearchParams): Reply {
    if (trouble.token !== undefined) return trouble.token;
    const { auth = ['client_secret_basic', 'client_secret_post'] } = habits;
    const [, basic = ''] = (headers.authorization ?? '').split('Basic ');
    const given = Buffer.from(basic, 'base64')
      .toString()
      .replaceAll('+', ' ')
      .split(':')
      .map(decodeURIComponent);
    const isClient =
      (auth.includes('client_secret_basic') &&
        given.join(':') === `${client.id}:${client.secret}`) ||
      (auth.includes('client_secret_post') && form.get('client_secret') === client.secret);
    if (!isClient) return { status: 401, body: { error: 'invalid_client' } };
    const begun = codes.get(form.get('code')!);
    codes.delete(form.get('code')!);
    const challenge = createHash('sha256').update(form.get('code_verifier')!).digest('base64url');
    if (begun?.get('code_challenge') !== challenge)
      return { status: 400, body: { error: 'invalid_grant' } };
    const nonce = begun.get('nonce');
    const tokens = { access_token: 'opaque', token_type: 'Bearer', expires_in: 300 };
    return { body: { ...tokens, id_token: token(nonce) } };
  }

  async function answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const url = new URL(request.url!, origin);
    calls.push(url.pathname);
    const { userInfo } = habits;
    const document = {
      issuer,
      authorization_endpoint: origin + endpoint('authorize'),
      token_endpoint: origin + endpoint('token'),
      jwks_uri: origin + endpoint('keys'),
      ...(userInfo && { userinfo_endpoint: origin + endpoint('userinfo') }),
      token_endpoint_auth_methods_supported: habits.auth ?? [
        'client_secret_basic',
        'client_secret_post',
      ],
      id_token_signing_alg_values_supported: [habits.alg ?? 'RS256'],
      ...habits.discovery,
    };
    const replies: Readonly<Record<string, () => Reply | Promise<Reply>>> = {
      [`${path}/.well-known/openid-configuration`]: () => trouble.discovery ?? { body: document },
      [endpoint('authorize')]: () => authorize(url.searchParams),
      [endpoint('token')]: async () => exchange(request, new URLSearchParams(await text(request))),
      [endpoint('userinfo')]: () => {
        if (trouble.userInfo !== undefined) return trouble.userInfo;
        const isAllowed = request.headers.authorization === 'Bearer opaque';
        return isAllowed ? { body: { sub: habits.idToken['sub'], ...userInfo } } : { status: 401 };
      },
      [endpoint('keys')]: () => ({
        body: { keys: [{ ...keys.publicKey.export({ format: 'jwk' }), kid, use: 'sig' }] },
      }),
    };
    send(response, (await replies[url.pathname]?.()) ?? { status: 404, body: 'no such page' });
  }

  return {
    issuer,
    server,
    trouble,
    /** Paths in the order asked. */
    calls,
    rotateKeys: (): void => {
      [keys, kid] = [keyPair(), randomUUID()];
    },
    close: (): void => {
      server.close();
      server.closeAllConnections();
    },
  };
}

export type FakeProvider = Awaited<ReturnType<typeof startFakeProvider>>;
