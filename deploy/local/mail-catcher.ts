// Catches mails instead of delivering them: SMTP server, page to read them, JSON API and faults for tests.
import { parseArgs } from 'node:util';
import type { FastifyInstance } from 'fastify';
import { Mailbox, type CaughtMail } from './mail-catcher/mailbox.ts';
import { portOf, SmtpListener, type FaultChoice, type SmtpCounts, type SmtpFault } from './mail-catcher/smtp.ts';
import { buildWeb } from './mail-catcher/web.ts';

export type { CaughtMail, Envelope } from './mail-catcher/mailbox.ts';
export type { FaultChoice, SmtpAnswer, SmtpCounts, SmtpFault, SmtpPhase } from './mail-catcher/smtp.ts';

/** A running mail catcher. */
export interface MailCatcher {
  /** `smtp://127.0.0.1:PORT` */
  readonly smtpUrl: string;
  /** `http://127.0.0.1:PORT`; empty when it was started with `web: false`. */
  readonly webUrl: string;
  /** Oldest first; the live list, so take a copy to keep one. */
  readonly mails: readonly CaughtMail[];
  /** Since the start; `dropped` counts mails forgotten for want of room. */
  readonly counts: Readonly<SmtpCounts & { dropped: number }>;
  /** By envelope recipient, whatever the To header says; case does not count. */
  mailsTo(address: string): CaughtMail[];
  /** The first kept or coming mail that fits; the error after `timeoutMs` lists what came instead. */
  waitForMail(predicate: (mail: CaughtMail) => boolean, timeoutMs: number): Promise<CaughtMail>;
  /** Holds for all sessions until it is set again; `undefined` is good behaviour. Hung sessions stay hung. */
  setFault(fault: SmtpFault | FaultChoice | undefined): void;
  /** Forgets the mails; `counts` go on. */
  clear(): void;
  /** SMTP refuses connections and the open ones are destroyed; the page stays up. */
  stopListening(): Promise<void>;
  /** On the same port; rejects when somebody took it meanwhile. */
  listenAgain(): Promise<void>;
  /** Ends everything, also pending waits. */
  close(): Promise<void>;
}

/** Ports are chosen by the system when left out; the host is 127.0.0.1. */
export interface MailCatcherOptions {
  smtpPort?: number;
  webPort?: number;
  host?: string;
  /** `false` leaves the page and the JSON API out. */
  web?: boolean;
  /** Mails kept, newest first; 1,000 when left out. */
  keep?: number;
}

const LOOPBACK = '127.0.0.1';

/** The ports of the command line; the ones that mail catchers usually have. */
const USUAL_SMTP_PORT = 1_025;
const USUAL_WEB_PORT = 8_025;

const LAST_PORT = 65_535;

/** Listens on both ports or rejects and leaves nothing open. */
export async function startMailCatcher(options: MailCatcherOptions = {}): Promise<MailCatcher> {
  const { smtpPort = 0, webPort = 0, host = LOOPBACK, web = true, keep } = options;
  const mailbox = new Mailbox(keep);
  const listener = new SmtpListener(mailbox, host, smtpPort);
  await listener.listen();
  const smtpUrl = `smtp://${host}:${listener.port}`;
  let app: FastifyInstance | undefined;
  let webUrl = '';
  try {
    if (web) {
      app = await buildWeb(mailbox, smtpUrl);
      await app.listen({ port: webPort, host });
      webUrl = `http://${host}:${portOf(app.server)}`;
    }
  } catch (error) {
    await listener.stop();
    throw error;
  }
  return {
    smtpUrl,
    webUrl,
    mails: mailbox.mails,
    get counts() {
      return { ...listener.counts, dropped: mailbox.dropped };
    },
    mailsTo: (address) => mailbox.to(address),
    waitForMail: (predicate, timeoutMs) => mailbox.waitFor(predicate, timeoutMs),
    setFault: (fault) => listener.setFault(fault),
    clear: () => mailbox.clear(),
    stopListening: () => listener.stop(),
    listenAgain: () => listener.listen(),
    close: async () => {
      mailbox.close();
      await Promise.all([listener.stop(), app?.close()]);
    },
  };
}

/** `node deploy/local/mail-catcher.ts [--host ADDRESS] [--smtp-port N] [--web-port N]`, until a signal comes. */
async function main(): Promise<void> {
  const { values } = parseArgs({
    options: {
      host: { type: 'string', default: LOOPBACK },
      'smtp-port': { type: 'string' },
      'web-port': { type: 'string' },
    },
  });
  const catcher = await startMailCatcher({
    host: values.host,
    smtpPort: portFrom('smtp-port', values['smtp-port'], USUAL_SMTP_PORT),
    webPort: portFrom('web-port', values['web-port'], USUAL_WEB_PORT),
  });
  for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => void catcher.close());
  console.log(`mail catcher: send mails to ${catcher.smtpUrl}, read them at ${catcher.webUrl}`);
}

function portFrom(option: string, given: string | undefined, usual: number): number {
  if (given === undefined) return usual;
  if (!/^\d{1,5}$/u.test(given) || Number(given) > LAST_PORT) throw new Error(`--${option} must be a port number`);
  return Number(given);
}

if (import.meta.main) {
  main().catch((error: unknown) => {
    console.error(`mail catcher: ${error instanceof Error ? error.message : String(error)}`);
    process.exitCode = 1;
  });
}
