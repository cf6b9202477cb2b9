/**
 * A small login page for `make run` and compose.yaml: what docs/login.md asks of a login application,
 * and nothing else.
 */
import { createHash } from 'node:crypto';
import type { AddressInfo } from 'node:net';
import fastify, { type FastifyInstance } from 'fastify';
import { MongoClient, type Collection } from 'mongodb';

export type LoginPage = Awaited<ReturnType<typeof startLoginPage>>;

/**
 * What the page knows of an account: the contract, written down as another team's program would.
 */
interface Account {
  readonly _id: string;
  readonly activation?: {
    readonly tokenHash: string;
    readonly expiresAt: Date;
    readonly usedAt?: Date;
  };
}

type Outcome = 'activated' | 'used' | 'expired' | 'unknown';

const LOOPBACK = '127.0.0.1';
/** A form with two short fields. */
const BODY_MAX_BYTES = 4_096;
const STORE_TIMEOUT_MS = 5_000;

/** Listens on loopback where no host is named; `port` 0 picks a free one. */
export async function startLoginPage(options: {
  readonly mongodbUri: string;
  readonly database: string;
  readonly host?: string;
  readonly port?: number;
}) {
  const client = new MongoClient(options.mongodbUri, {
    serverSelectionTimeoutMS: STORE_TIMEOUT_MS,
    socketTimeoutMS: STORE_TIMEOUT_MS,
    w: 'majority',
  });
  const app = buildPage(client.db(options.database).collection<Account>('accounts'));
  try {
    await app.listen({ port: options.port ?? 0, host: options.host ?? LOOPBACK });
  } catch (error) {
    await client.close();
    throw error;
  }
  return {
    /** For `LOGIN_URL`. */
    url: `http://${LOOPBACK}:${(app.server.address() as AddressInfo).port}/`,
    close: async () => {
      await app.close();
      await client.close();
    },
  };
}

function buildPage(accounts: Collection<Account>): FastifyInstance {
  const app = fastify({ forceCloseConnections: true, bodyLimit: BODY_MAX_BYTES });
  app.addContentTypeParser(
    'application/x-www-form-urlencoded',
    { parseAs: 'string' },
    (_request, body, done) => done(null, new URLSearchParams(String(body))),
  );
  app.addHook('onRequest', async (_request, reply) => {
    // The address holds the token: no referrer, no cache, no frame.
    reply.headers({
      'referrer-policy': 'no-referrer',
      'cache-control': 'no-store',
      'x-content-type-options': 'nosniff',
      'content-security-policy':
        "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    });
  });

  // Opening the link changes nothing: scanners of mails open links too.
  app.get('/', async (request, reply) => {
    const query = new URLSearchParams(request.url.split('?')[1] ?? '');
    return reply
      .type('text/html; charset=utf-8')
      .send(confirmPage(query.get('account') ?? '', query.get('token') ?? ''));
  });

  app.post('/', async (request, reply) => {
    const form = request.body instanceof URLSearchParams ? request.body : new URLSearchParams();
    const outcome = await useLink(accounts, form.get('account') ?? '', form.get('token') ?? '');
    return reply
      .code(outcome === 'activated' ? 200 : 410)
      .type('text/html; charset=utf-8')
      .send(pageOf(...words[outcome]));
  });
  return app;
}

/**
 * Compares the token, checks the expiry and notes the use in one update: of two clicks at once, one
 * activates.
 */
async function useLink(
  accounts: Collection<Account>,
  account: string,
  token: string,
): Promise<Outcome> {
  const now = new Date();
  const mine = {
    _id: account,
    'activation.tokenHash': createHash('sha256').update(token).digest('hex'),
  };
  const { matchedCount } = await accounts.updateOne(
    { ...mine, 'activation.expiresAt': { $gt: now }, 'activation.usedAt': { $exists: false } },
    { $set: { 'activation.usedAt': now } },
  );
  if (matchedCount === 1) return 'activated';
  const found = await accounts.findOne(mine);
  if (found === null) return 'unknown';
  return found.activation?.usedAt === undefined ? 'expired' : 'used';
}

const words: Readonly<Record<Outcome, readonly [title: string, text: string]>> = {
  activated: [
    'Your account is activated',
    'You can log in now. A real login application asks for a password here.',
  ],
  used: [
    'This link has been used',
    'The account is activated already: log in with your e-mail address.',
  ],
  expired: [
    'This link has expired',
    'Ask support for a new one, with the reference number in your e-mail.',
  ],
  unknown: ['This link is not valid', 'Copy it whole from the newest e-mail you got from us.'],
};

/** What an opened link shows. */
function confirmPage(account: string, token: string): string {
  if (account === '' || token === '')
    return pageOf('Log in', 'Open the link in your e-mail first: it activates your account.');
  const fields = Object.entries({ account, token }).map(
    ([name, value]) => `<input type="hidden" name="${name}" value="${escapeHtml(value)}" />`,
  );
  const form = `<form method="post" action="/">${fields.join('')}<button>Activate account</button></form>`;
  return pageOf('Activate your account', 'This can be done once.', form);
}

function pageOf(title: string, text: string, more = ''): string {
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8" />
<meta name="viewport" content="width=device-width, initial-scale=1" />
<title>${title}</title>
<style>:root { color-scheme: light dark; font-family: system-ui } main { max-width: 420px; margin: 20vh auto }</style>
</head>
<body><main><h1>${title}</h1><p>${text}</p>${more}</main></body>
</html>
`;
}

function escapeHtml(text: string): string {
  return text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('"', '&quot;');
}

/** In a container: all addresses, because only compose.yaml's port leads here. */
if (import.meta.main)
  await startLoginPage({
    mongodbUri: process.env['MONGODB_URI'] ?? '',
    database: process.env['MONGODB_DATABASE'] ?? 'partner_ingest',
    host: '0.0.0.0',
    port: Number(process.env['PORT']),
  });
