/**
 * MailDev, which shows people the e-mails: npm installs it into the cache once, and it runs as a
 * child that ends with us.
 */
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { cached, installLog } from './stores/cache.ts';
import { answersWell, run, startProcess, waitUntilUp } from './stores/process.ts';

export const MAILDEV_VERSION = '3.0.0';
const PART = `maildev-${MAILDEV_VERSION}`;
const INSTALL_TIMEOUT_MS = 5 * 60_000;
const START_TIMEOUT_MS = 60_000;
const LOOPBACK = '127.0.0.1';
/**
 * It keeps all mails in memory unless it is told how many: 210 MB with these two bounds, 325 MB and
 * more without.
 */
const MAILS_KEPT = 500;
const HEAP_MB = 128;

/** A mail as its API lists it. */
export interface ShownMail {
  readonly id: string;
  /** Of the Date header, in whole seconds. */
  readonly time: string;
  readonly subject: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly text: string;
  readonly envelope: { readonly to: readonly { readonly address: string }[] };
}

/**
 * The folder it is installed in. It is no package of the project: it weighs 110 MB, and only `make
 * run` needs it.
 */
export function installMailDev(log: (line: string) => void): Promise<string> {
  return cached(PART, log, async (path) => {
    log(`installing MailDev ${MAILDEV_VERSION} with npm (110 MB, once) …`);
    await mkdir(path);
    const options = ['--ignore-scripts', '--no-audit', '--no-fund', '--loglevel=error'];
    await run({
      command: ['npm', 'install', '--prefix', path, ...options, `maildev@${MAILDEV_VERSION}`],
      // oxlint-disable-next-line node/no-process-env -- npm needs the environment as it is (proxy, registry)
      env: process.env,
      logFile: installLog(PART),
      timeoutMs: INSTALL_TIMEOUT_MS,
    });
  });
}

/** Resolves once page and API answer. */
export async function startMailDev(options: {
  readonly smtpPort: number;
  readonly webPort: number;
  readonly logFile: string;
  readonly log: (line: string) => void;
}) {
  const program = join(
    await installMailDev(options.log),
    'node_modules/maildev/dist/bin/maildev.js',
  );
  const smtp = ['--ip', LOOPBACK, '--smtp', String(options.smtpPort)];
  const web = ['--web-ip', LOOPBACK, '--web', String(options.webPort)];
  const server = await startProcess({
    command: [
      process.execPath,
      `--max-old-space-size=${HEAP_MB}`,
      program,
      ...smtp,
      ...web,
      '--max-emails',
      String(MAILS_KEPT),
    ],
    logFile: options.logFile,
    wrapped: false,
  });
  const webUrl = `http://${LOOPBACK}:${options.webPort}`;
  await waitUntilUp('MailDev', server, START_TIMEOUT_MS, () =>
    answersWell(`${webUrl}/api/healthz`),
  );
  return {
    smtpUrl: `smtp://${LOOPBACK}:${options.smtpPort}`,
    webUrl,
    close: () => server.end('SIGTERM'),
  };
}
