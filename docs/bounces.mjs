#!/usr/bin/env node
/**
 * Takes a provider's webhooks for bounces, checks who sent them, and reports them, signed, to
 * `POST /bounces` (docs/email.md). One file without packages, for Node 20 or newer: copy it.
 *
 *   PROVIDER=postmark PROVIDER_KEY=user:password BOUNCE_SECRET=… \
 *     BOUNCES_URL=https://…/bounces PORT=8090 node bounces.mjs
 *
 * For Amazon SES it is an AWS Lambda, subscribed to the topic of SNS: its handler is `handler`.
 *
 * A function of `providers` throws where the sender is not proven, else returns bounces in our
 * form. What says that the provider still tries is left out. A status goes along only where the
 * provider means the recipient; without one an operator decides.
 */
/* oxlint-disable node/no-process-env -- a program of its own, for operators */
import { createHmac, createPublicKey, timingSafeEqual, verify } from 'node:crypto';
import { createServer } from 'node:http';
import process from 'node:process';
import { pathToFileURL } from 'node:url';

const AT_ONCE = 500;
const MAX_BODY_BYTES = 1_048_576;
const TOLERANCE_SECONDS = 300;
const TIMEOUT_MS = 20_000;

const statusIn = (text = '') => /(?<![\d.])([245]\.\d{1,3}\.\d{1,3})(?!\.?\d)/.exec(text)?.[1];

const bounceOf = ({ messageId = '', email, status, at }) => ({
  ...(/^<?acc_/.test(messageId) ? { message_id: messageId } : { email }),
  ...(status === undefined ? {} : { status }),
  at: new Date(at).toISOString(),
});

const isSame = (one, other) => {
  const [a, b] = [one, other].map((text) => createHmac('sha256', 'same').update(text).digest());
  return timingSafeEqual(a, b);
};

const isRecent = (seconds) => Math.abs(Date.now() / 1_000 - Number(seconds)) <= TOLERANCE_SECONDS;

function check(isProven, what) {
  if (!isProven) throw Object.assign(new Error(`${what} proves no sender`), { status: 401 });
}

export const providers = {
  /** SNS asks for no key of ours: a Lambda is called by its subscription alone. */
  ses: (body) => {
    const { bounce, mail, ...event } = JSON.parse(body);
    if ((event.notificationType ?? event.eventType) !== 'Bounce') return [];
    // The other permanent ones are of lists of SES and ours, also of people who complained.
    const isOfRecipient = ['General', 'NoEmail'].includes(bounce.bounceSubType);
    const isFinal = bounce.bounceType === 'Permanent' && isOfRecipient;
    const messageId = mail.commonHeaders?.messageId;
    // An answer of a person on holiday is a bounce without an action.
    return bounce.bouncedRecipients
      .filter(({ action }) => bounce.bounceType === 'Permanent' || action === 'failed')
      .map(({ emailAddress: email, status, diagnosticCode }) => {
        const told = isFinal ? (statusIn(diagnosticCode) ?? statusIn(status)) : undefined;
        return bounceOf({ messageId, email, status: told, at: bounce.timestamp });
      });
  },

  /** The key is `user:password` of the webhook's address. */
  postmark: (body, headers, key) => {
    const login = `Basic ${Buffer.from(key).toString('base64')}`;
    check(isSame(headers.authorization ?? '', login), 'Authorization');
    const { RecordType, Type, Email: email, Details, BouncedAt: at } = JSON.parse(body);
    const given = { HardBounce: statusIn(Details), BadEmailAddress: undefined, Blocked: undefined };
    return RecordType === 'Bounce' && Type in given
      ? [bounceOf({ email, status: given[Type], at })]
      : [];
  },

  /** The key is the public one of the signed event webhook. */
  sendgrid: (body, headers, key) => {
    const seconds = headers['x-twilio-email-event-webhook-timestamp'] ?? '';
    const signature = headers['x-twilio-email-event-webhook-signature'] ?? '';
    const der = Buffer.from(key, 'base64');
    const publicKey = createPublicKey({ key: der, format: 'der', type: 'spki' });
    const signed = Buffer.concat([Buffer.from(seconds), body]);
    const isProven = verify('sha256', signed, publicKey, Buffer.from(signature, 'base64'));
    check(isRecent(seconds) && isProven, 'The signature');
    return JSON.parse(body)
      .filter(({ event }) => event === 'bounce' || event === 'dropped')
      .map(({ event, type, email, status, timestamp, ...more }) => {
        const told = event === 'bounce' && type !== 'blocked' ? statusIn(status) : undefined;
        const at = timestamp * 1_000;
        return bounceOf({ messageId: more['smtp-id'], email, status: told, at });
      });
  },

  /** The key is the one that signs webhooks. */
  mailgun: (body, _headers, key) => {
    const { signature = {}, 'event-data': event } = JSON.parse(body);
    const { timestamp, token } = signature;
    const wanted = createHmac('sha256', key).update(`${timestamp}${token}`).digest('hex');
    check(isRecent(timestamp) && isSame(String(signature.signature), wanted), 'The signature');
    if (event.event !== 'failed' || event.severity !== 'permanent') return [];
    const { 'enhanced-code': code, message } = event['delivery-status'] ?? {};
    const isSuppressed = String(event.reason).startsWith('suppress-');
    const status = isSuppressed ? undefined : (statusIn(code) ?? statusIn(message));
    const messageId = event.message?.headers?.['message-id'];
    return [bounceOf({ messageId, email: event.recipient, status, at: event.timestamp * 1_000 })];
  },
};

/** Rejects unless all are stored; a repeat changes nothing, so let the provider send again. */
export async function report(bounces, { url, secret }) {
  for (let from = 0; from < bounces.length; from += AT_ONCE) {
    const body = JSON.stringify({ bounces: bounces.slice(from, from + AT_ONCE) });
    const seconds = Math.floor(Date.now() / 1_000);
    const v1 = createHmac('sha256', secret).update(`${seconds}.${body}`).digest('hex');
    const headers = {
      'content-type': 'application/json',
      'bounce-signature': `t=${seconds},v1=${v1}`,
    };
    const signal = AbortSignal.timeout(TIMEOUT_MS);
    const answer = await fetch(url, { method: 'POST', headers, body, signal });
    const text = await answer.text();
    if (answer.status !== 200) throw new Error(`POST /bounces: ${answer.status} ${text}`);
  }
}

const { env } = process;
const target = { url: env.BOUNCES_URL, secret: env.BOUNCE_SECRET };

/** Of a Lambda; if it throws, SNS calls again. */
export async function handler({ Records }) {
  await report(
    Records.flatMap(({ Sns }) => providers.ses(Sns.Message)),
    target,
  );
}

async function take(request) {
  const parts = [];
  let bytes = 0;
  for await (const part of request) {
    bytes += part.length;
    if (bytes > MAX_BODY_BYTES) throw Object.assign(new Error('too large'), { status: 413 });
    parts.push(part);
  }
  const body = Buffer.concat(parts);
  await report(providers[env.PROVIDER](body, request.headers, env.PROVIDER_KEY), target);
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? '').href) {
  const needs = ['PROVIDER', 'PROVIDER_KEY', 'BOUNCES_URL', 'BOUNCE_SECRET', 'PORT'];
  const missing = needs.filter((name) => !env[name]);
  if (missing.length > 0) throw new Error(`set ${missing.join(', ')}`);
  // What comes to this port from SES would have no proof of its sender.
  if (env.PROVIDER === 'ses' || !Object.hasOwn(providers, env.PROVIDER))
    throw new Error('PROVIDER must be postmark, sendgrid or mailgun; for SES see the handler');
  const server = createServer((request, response) =>
    take(request).then(
      () => response.end(),
      (error) => {
        console.error(error.message);
        response.writeHead(error.status ?? 503).end();
      },
    ),
  );
  server.requestTimeout = TIMEOUT_MS;
  server.listen(Number(env.PORT));
}
