// The web side of the mail catcher: the page where a person reads the mails, and a JSON API for tests.
import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import fastify, { type FastifyInstance } from 'fastify';
import type { CaughtMail, Mailbox } from './mailbox.ts';

const PAGE = new URL('./page.html', import.meta.url);

/** Pages that may listen for changes at once; one reader has one or two tabs. */
const LISTENERS = 32;

/** Headers of every answer: mails are untrusted, so no sniffing, framing, caching or referrer. */
const COMMON_HEADERS = {
  'x-content-type-options': 'nosniff',
  'referrer-policy': 'no-referrer',
  'cache-control': 'no-store',
};

/**
 * A mail's HTML runs no scripts, loads nothing (not even pictures: a sender would learn of the reading), sends no
 * forms, and may only open its links in a new tab. The sandbox is repeated here for a URL that is opened directly.
 */
const MAIL_POLICY = [
  "default-src 'none'",
  "style-src 'unsafe-inline'",
  'img-src data:',
  'font-src data:',
  "form-action 'none'",
  "base-uri 'none'",
  "frame-ancestors 'self'",
  'sandbox allow-popups allow-popups-to-escape-sandbox',
].join('; ');

/** Without the target, a link would open inside the frame, where most sites refuse to be shown. */
const MAIL_PREFIX = '<!doctype html><meta charset="utf-8"><base target="_blank">';

type Summary = Pick<CaughtMail, 'id' | 'receivedAt' | 'messageId' | 'from' | 'fromName' | 'envelopeTo' | 'subject'>;

/** Builds the server; the caller listens and closes. */
export async function buildWeb(mailbox: Mailbox, smtpUrl: string): Promise<FastifyInstance> {
  const page = (await readFile(PAGE, 'utf8')).replace('{{smtpUrl}}', smtpUrl);
  const pagePolicy = policyOf(page);
  const app = fastify({ forceCloseConnections: true });

  app.addHook('onRequest', async (_request, reply) => {
    reply.headers(COMMON_HEADERS);
  });

  app.get('/', async (_request, reply) =>
    reply.type('text/html; charset=utf-8').header('content-security-policy', pagePolicy).send(page),
  );

  app.get<{ Querystring: { to?: string; summary?: string } }>('/api/mails', (request) => {
    const { to, summary } = request.query;
    const mails = typeof to === 'string' ? mailbox.to(to) : mailbox.mails;
    const newestFirst = mails.toReversed();
    return summary === undefined ? newestFirst.map(withoutRaw) : newestFirst.map(summaryOf);
  });

  app.delete('/api/mails', async (_request, reply) => {
    mailbox.clear();
    return reply.code(204).send();
  });

  app.get<{ Params: { id: string } }>('/api/mails/:id', async (request, reply) => {
    const mail = mailbox.find(Number(request.params.id));
    return mail ?? reply.code(404).send({ error: 'no such mail' });
  });

  app.get<{ Params: { id: string } }>('/api/mails/:id/html', async (request, reply) => {
    const mail = mailbox.find(Number(request.params.id));
    if (mail === undefined) return reply.code(404).send({ error: 'no such mail' });
    return reply
      .type('text/html; charset=utf-8')
      .header('content-security-policy', MAIL_POLICY)
      .send(MAIL_PREFIX + mail.html);
  });

  let listeners = 0;
  app.get('/api/changes', async (request, reply) => {
    if (listeners >= LISTENERS) return reply.code(503).send({ error: 'too many pages are open' });
    listeners += 1;
    reply.hijack();
    reply.raw.writeHead(200, { ...COMMON_HEADERS, 'content-type': 'text/event-stream' });
    // A first event at once: a page that reconnects has missed changes and must look again.
    // While a page does not read, one waiting event is as good as many.
    const tell = (): void => {
      if (!reply.raw.writableNeedDrain) reply.raw.write('data: changed\n\n');
    };
    tell();
    const stopTelling = mailbox.onChange(tell);
    request.raw.once('close', () => {
      listeners -= 1;
      stopTelling();
    });
    return reply;
  });

  return app;
}

function withoutRaw(mail: CaughtMail): Omit<CaughtMail, 'raw'> {
  const { raw: _raw, ...rest } = mail;
  return rest;
}

function summaryOf(mail: CaughtMail): Summary {
  const { id, receivedAt, messageId, from, fromName, envelopeTo, subject } = mail;
  return { id, receivedAt, messageId, from, fromName, envelopeTo, subject };
}

/** Allows exactly the page's own script and style, by hash, so that nothing a mail smuggles in could ever run. */
function policyOf(page: string): string {
  return [
    "default-src 'none'",
    `script-src ${hashOf(page, 'script')}`,
    `style-src ${hashOf(page, 'style')}`,
    'img-src data:',
    "connect-src 'self'",
    "frame-src 'self'",
    "form-action 'none'",
    "base-uri 'none'",
    "frame-ancestors 'none'",
  ].join('; ');
}

function hashOf(page: string, element: 'script' | 'style'): string {
  const content = page.split(`<${element}>`)[1]?.split(`</${element}>`)[0] ?? '';
  return `'sha256-${createHash('sha256').update(content).digest('base64')}'`;
}
