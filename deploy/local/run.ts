/**
 * `make run`: the whole service on this machine, with stores, demo partners and MailDev for the
 * e-mails; Ctrl-C ends all of it.
 */
/* oxlint-disable node/no-process-env -- stores may be given by MONGODB_URI and REDIS_URL */
import { mkdir, rm, writeFile, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { styleText } from 'node:util';
import { newApiKey } from '../../internal/partner/api-key.ts';
import { writePartnerSecret } from './demo-keys.ts';
import { startLoginPage } from './login-page.ts';
import { installMailDev, startMailDev } from './maildev.ts';
import { startService, type ServiceProcess } from './processes.ts';
import { installStores, startMongo, startRedis } from './stores.ts';
import { canListen, freePort, messageOf } from './stores/wait.ts';
import { table } from '../../internal/operators/view/terminal.ts';

/** Where a running system leaves its logs, demo keys and addresses. */
const RUN_FOLDER = fileURLToPath(new URL('../../.run/', import.meta.url));
const RUN_STATE = join(RUN_FOLDER, 'state.json');

/** Undefined while nothing runs. */
export async function readRunState(): Promise<RunState | undefined> {
  try {
    return JSON.parse(await readFile(RUN_STATE, 'utf8')) as RunState;
  } catch {
    return undefined;
  }
}

/** What `make smoke` needs to know of a running system. */
export interface RunState {
  readonly pid: number;
  readonly baseUrl: string;
  readonly apiKey: string;
  readonly inactiveKey: string;
  readonly mailUrl: string;
  readonly mongodbUri: string;
  readonly database: string;
  /** Admin addresses, with commas. */
  readonly processes: string;
}

const PORTS = {
  http: 8080,
  admin: { ingest: 9090, processor: 9091, controller: 9092, console: 9093 },
  console: 8081,
  smtp: 1025,
  mail: 1080,
  login: 8026,
};
/** Only for this machine: production takes it from a Secret. */
const DEMO_LINK_SECRET = 'only-for-make-run-on-this-machine-0000';
/** That of the evaluation, which everybody knows. */
const TEST_KEY = 'pik_test_evaluation_only_not_for_production';

const opened: { readonly name: string; readonly close: () => Promise<unknown> }[] = [];
let closing: Promise<void> | undefined;

function closeAll(): Promise<void> {
  closing ??= (async () => {
    for (const { name, close } of opened.toReversed()) {
      await close().catch((error: unknown) =>
        console.error(`${name} did not stop cleanly:`, error),
      );
    }
  })();
  return closing;
}

async function main(): Promise<void> {
  const startedAt = performance.now();
  const step = (text: string): void => console.log(styleText('dim', `… ${text}`));
  await rm(RUN_FOLDER, { recursive: true, force: true });
  await mkdir(RUN_FOLDER, { recursive: true });

  const urls = { mongo: process.env['MONGODB_URI'], redis: process.env['REDIS_URL'] };
  await Promise.all([installStores(urls, step), installMailDev(step)]);
  step('starting the stores and MailDev');
  const [mongo, redis, mail] = await Promise.all([
    startMongo({ url: urls.mongo, log: step }).then((store) => {
      opened.push({ name: 'MongoDB', close: () => store.stop() });
      return store;
    }),
    startRedis({ url: urls.redis, log: step }).then((store) => {
      opened.push({ name: 'Redis', close: () => store.stop() });
      return store;
    }),
    startMailDev({
      smtpPort: await portOrFree(PORTS.smtp),
      webPort: await portOrFree(PORTS.mail),
      logFile: join(RUN_FOLDER, 'maildev.log'),
      log: step,
    }).then((maildev) => {
      opened.push({ name: 'MailDev', close: () => maildev.close() });
      return maildev;
    }),
  ]);
  const database = process.env['MONGODB_DATABASE'] ?? 'partner_ingest';
  const login = await startLoginPage({
    mongodbUri: mongo.url,
    database,
    port: await portOrFree(PORTS.login),
  });
  opened.push({ name: 'login page', close: () => login.close() });

  const [apiKey, inactiveKey] = [newApiKey(), newApiKey()];
  const keyFolder = join(RUN_FOLDER, 'partner-keys');
  await writePartnerSecret(keyFolder, { partner: 'demo', keys: [apiKey] });
  await writePartnerSecret(keyFolder, {
    partner: 'dormant',
    keys: [inactiveKey],
    status: 'inactive',
  });
  await writePartnerSecret(keyFolder, {
    partner: 'test',
    keys: [TEST_KEY],
    annotations: { 'partner-ingest.io/mode': 'test' },
  });

  step('starting ingest, processor, controller and console');
  // Developers with a collector can look at traces.
  const otel = Object.fromEntries(
    Object.entries(process.env).filter(([name]) => name.startsWith('OTEL_')),
  );
  const stores = {
    MONGODB_URI: mongo.url,
    REDIS_URL: redis.url,
    MONGODB_DATABASE: database,
    // Stores that were given may be on another machine.
    ALLOW_INSECURE_STORES: 'true',
    ...otel,
  };
  const start = async (
    name: ServiceProcess['name'],
    environment: Record<string, string>,
  ): Promise<ServiceProcess> => {
    const service = await startService(
      name,
      { ...stores, ADMIN_PORT: String(await portOrFree(PORTS.admin[name])), ...environment },
      { logFile: join(RUN_FOLDER, `${name}.log`), compiled: true },
    );
    opened.push({ name, close: () => service.stop() });
    void service.exited.then(({ code, signal }) => {
      if (closing !== undefined) return;
      console.error(
        styleText(
          'red',
          `${name} ended (${signal ?? code}); see .run/${name}.log. Stopping everything.`,
        ),
      );
      process.exitCode = 1;
      void closeAll();
    });
    return service;
  };
  const port = String(await portOrFree(PORTS.http));
  const baseUrl = `http://127.0.0.1:${port}/api/v1`;
  const [ingest, processor, controller] = await Promise.all([
    start('ingest', { HTTP_PORT: port }),
    start('processor', {
      SMTP_URL: mail.smtpUrl,
      MAIL_FROM: 'accounts@partner-ingest.example',
      MAIL_SUPPORT_CONTACT: 'help@partner-ingest.example',
      LOGIN_URL: login.url,
      LINK_SECRET: DEMO_LINK_SECRET,
      MAIL_TEMPLATES: process.env['MAIL_TEMPLATES'] ?? '',
    }),
    start('controller', {
      PARTNER_KEYS_SOURCE: `directory:${keyFolder}`,
      ALLOW_PUBLISHED_SECRETS: 'true',
      PROBE_URL: baseUrl,
      PROBE_KEY: TEST_KEY,
    }),
  ]);
  await Promise.all([ingest, processor, controller].map((service) => service.ready()));
  const processes = [ingest, processor, controller].map(({ adminUrl }) => adminUrl).join(',');
  const page = await start('console', {
    CONSOLE_PORT: String(await portOrFree(PORTS.console)),
    CONSOLE_NAME: 'this machine',
    CONSOLE_COMMAND: 'deploy/local/with-node.sh node deploy/local/cli.ts',
    CONSOLE_PROCESSES: processes,
  });

  const state: RunState = {
    pid: process.pid,
    baseUrl,
    apiKey,
    inactiveKey,
    mailUrl: mail.webUrl,
    mongodbUri: mongo.url,
    database,
    processes,
  };
  await writeFile(RUN_STATE, `${JSON.stringify(state, null, 2)}\n`);
  opened.push({ name: 'state', close: () => rm(RUN_STATE, { force: true }) });

  const seconds = ((performance.now() - startedAt) / 1_000).toFixed(1);
  console.log(
    `\n${styleText('green', `partner-ingest is ready`)} ${styleText('dim', `(${seconds} s)`)}\n`,
  );
  console.log(
    table([
      ['ingest', `${baseUrl}/capital/ingest`, `health and metrics ${ingest.adminUrl}`],
      ['processor', '', `health and metrics ${processor.adminUrl}`],
      ['controller', `reads .run/partner-keys/*.yaml`, `health and metrics ${controller.adminUrl}`],
      ['console', page.url, 'the page for people who look'],
      ['e-mails', mail.webUrl, `MailDev; SMTP ${mail.smtpUrl}`],
      ['login page', login.url, 'where the link of an e-mail leads'],
      ['MongoDB', mongo.url, mongo.description],
      ['Redis', redis.url, redis.description],
      ['logs', '.run/*.log', ''],
    ]),
  );
  console.log(
    `\n${styleText('bold', 'Send an application')} (another terminal), then open ${styleText('cyan', mail.webUrl)}:\n`,
  );
  const submit = (key: string, ein: string): string =>
    `${baseUrl}/capital/ingest -H 'Authorization: Bearer ${key}' -H 'Content-Type: application/json' ` +
    `-d '{"email":"ada@example.com","business_name":"Ada Ltd","ein":"${ein}"}'`;
  console.log(styleText('cyan', `curl -i ${submit(apiKey, '123456789')}`));
  console.log(
    `\n${styleText('bold', 'Send a test')}, which makes nothing real, and see its outcome:\n`,
  );
  console.log(
    styleText(
      'cyan',
      `curl -H 'Authorization: Bearer ${TEST_KEY}' -H 'Prefer: wait=30' ` +
        `${baseUrl}/capital/ingest/$(curl -s ${submit(TEST_KEY, '000000000')} | grep -o 'req_[0-9a-z]*')`,
    ),
  );
  console.log(
    `\nA key of an inactive partner (403): ${inactiveKey}\n${styleText('bold', 'make smoke')} sends one through and shows each step. Ctrl-C stops everything.\n`,
  );
}

/** `wanted` if it is free on loopback, else another free port. */
async function portOrFree(wanted: number): Promise<number> {
  return (await canListen(wanted)) ? wanted : await freePort();
}

if (import.meta.main) {
  const stop = (signal: NodeJS.Signals): void => {
    // Only a second Ctrl-C cuts it short: SIGTERM comes twice where a whole group gets it, because
    // make passes its own one on.
    if (closing !== undefined && signal === 'SIGINT') process.exit(130);
    if (closing !== undefined) return;
    console.log(styleText('dim', '\n… stopping'));
    void closeAll().then(() => console.log(styleText('dim', 'stopped')));
  };
  process.on('SIGINT', stop);
  process.on('SIGTERM', stop);
  try {
    await main();
  } catch (error) {
    console.error(styleText('red', messageOf(error)));
    process.exitCode = 1;
    await closeAll();
  }
}
