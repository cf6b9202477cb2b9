/** A running service for tests: the real wiring on its own stores, with a mail catcher. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll } from '@jest/globals';
import type { Filter } from 'mongodb';
import { startConsoleProcess } from '../../cmd/console/wire.ts';
import { startController } from '../../cmd/controller/wire.ts';
import { startIngest } from '../../cmd/ingest/wire.ts';
import { startProcessor } from '../../cmd/processor/wire.ts';
import { writePartnerSecret, type DemoPartner } from '../../deploy/local/demo-keys.ts';
import { documentedRights, rightsOf } from './documented-rights.ts';
import { startMailCatcher } from './mail-catcher.ts';
import { sumOf } from './metrics-text.ts';
import {
  startService,
  type ServiceName,
  type ServiceProcess,
} from '../../deploy/local/processes.ts';
import { newApiKey } from '../../internal/partner/api-key.ts';
import { MODE_ANNOTATION } from '../../internal/partner/key-terms.ts';
import { Closers } from '../../internal/platform/process/closers.ts';
import { loadConfig } from '../../internal/settings/settings.ts';
import { createLogger } from '../../internal/platform/process/log.ts';
import { createRegistry } from '../../internal/platform/process/registry.ts';
import { rateLimitedCollection } from '../../internal/submission/over-limit.ts';
import { type SubmissionRecord } from '../../internal/submission/submission.ts';
import type { TrailEntry } from '../../internal/operators/trail/trail.ts';
import { OPERATOR_AUDIT } from '../../internal/self-audit/walk.ts';
import { startMongoWire } from './mongo-wire.ts';
import { openTestStores } from './test-stores.ts';
import { HANG_MS, HEAL_HANG_MS, eventually } from './wait.ts';

type Environment = Readonly<Record<string, string>>;

/** Nothing listens there, so a process starts without Redis. */
export const NO_REDIS = 'redis://127.0.0.1:1';

export interface InProcess {
  /** The URL of ingest or console; else empty. */
  readonly url: string;
  readonly adminUrl: string;
  close(): Promise<void>;
}

/** A file that sets it runs its world with a test key: the contract is the same. */
export const mode: { test?: true } = {};

export type World = Awaited<ReturnType<typeof openWorld>>;

interface WorldOptions {
  /** Each process has only the rights that docs/stores.md gives it at MongoDB. */
  readonly documentedRights?: true;
  /** False: no controller is started. */
  readonly controller?: boolean;
  readonly environment?: Environment;
  /** Partners besides `demo` and `dormant`, whose keys each process knows from its start. */
  readonly partners?: readonly DemoPartner[];
}

/** Opens stores, mail catcher and two partners, and a controller by default. */
export async function openWorld(options: WorldOptions = {}) {
  const closers = new Closers(createLogger('test', 'warn'));
  const stores = await openTestStores();
  closers.add('stores', () => stores.close(), HANG_MS);
  const mail = await startMailCatcher();
  closers.add('mail', () => mail.close());
  const keyFolder = await mkdtemp(join(tmpdir(), 'partner-keys-'));
  closers.add('key folder', () => rm(keyFolder, { recursive: true }));

  const [key, inactiveKey] = [newApiKey(mode), newApiKey()];
  const annotations = mode.test ? { [MODE_ANNOTATION]: 'test' } : {};
  await writePartnerSecret(keyFolder, { partner: 'demo', keys: [key], annotations });
  await writePartnerSecret(keyFolder, {
    partner: 'dormant',
    keys: [inactiveKey],
    status: 'inactive',
  });
  for (const partner of options.partners ?? []) await writePartnerSecret(keyFolder, partner);

  const environment: Environment = {
    MONGODB_URI: stores.mongodbUri,
    MONGODB_DATABASE: stores.database,
    REDIS_URL: stores.redisUrl,
    // Given stores may be on another machine.
    ALLOW_INSECURE_STORES: 'true',
    HTTP_HOST: '127.0.0.1',
    HTTP_PORT: '0',
    CONSOLE_PORT: '0',
    ADMIN_HOST: '127.0.0.1',
    ADMIN_PORT: '0',
    // Only tests of the limiter set a limit.
    RATE_LIMIT_MAX: '1000000',
    // Only tests of time-outs set a short one; a busy machine must not cause a 500.
    ACCEPT_TIMEOUT_MS: '10000',
    SMTP_URL: mail.smtpUrl,
    MAIL_FROM: 'accounts@partner-ingest.example',
    LOGIN_URL: 'https://login.partner-ingest.example/',
    LINK_SECRET: 'a-secret-for-tests-of-32-characters-or-more',
    PARTNER_KEYS_SOURCE: `directory:${keyFolder}`,
    LOG_LEVEL: 'silent',
    ...options.environment,
  };

  /** FerretDB has no roles, so a proxy refuses as they would. */
  const refused = new Set<string>();
  const restrict = async (name: ServiceName, given: Environment): Promise<Environment> => {
    if (options.documentedRights === undefined) return {};
    const acts = given['CONSOLE_ACTIONS'] === 'true' ? ' with actions' : '';
    const partners = given['WATCH_PARTNERS'] === 'true' ? 'controller with Partners, also' : '';
    const rights = new Set([name + acts, partners].flatMap(documentedRights));
    const wire = await startMongoWire(stores.mongodbUri);
    closers.add('rights', () => wire.close());
    wire.instead((command) => {
      const lacks = rightsOf(command).find((right) => !rights.has(right));
      if (lacks === undefined) return undefined;
      refused.add(`${name}: ${lacks}`);
      return { ok: 0, code: 13, codeName: 'Unauthorized', errmsg: `not authorized: ${lacks}` };
    });
    return { MONGODB_URI: wire.url };
  };

  const record = (requestId: string) => stores.requests.findOne({ _id: requestId });
  const world = {
    stores,
    mail,
    /** Keys of the active partner `demo` and the inactive partner `dormant`. */
    key,
    inactiveKey,
    keyFolder,
    environment,
    /** Starts a process's wiring inside this one and waits until it is ready. */
    async start(name: ServiceName, given: Environment = {}): Promise<InProcess> {
      const overrides = { ...(await restrict(name, given)), ...given };
      const own = new Closers(createLogger('test', 'warn'));
      closers.add(name, () => own.closeAll(), HANG_MS);
      const wanted = { ...environment, ...overrides };
      const log = createLogger(name, wanted['LOG_LEVEL'] ?? 'silent');
      const tools = { log, closers: own, registry: createRegistry(name) };
      const started =
        name === 'ingest'
          ? await startIngest(loadConfig('ingest', wanted), tools)
          : name === 'processor'
            ? { url: '', ...(await startProcessor(loadConfig('processor', wanted), tools)) }
            : name === 'console'
              ? await startConsoleProcess(loadConfig('console', wanted), tools)
              : { url: '', ...(await startController(loadConfig('controller', wanted), tools)) };
      await eventually(
        `${name} to be ready`,
        async () => (await fetch(`${started.adminUrl}/readyz`)).ok,
      );
      return { ...started, close: () => own.closeAll() };
    },
    /** Starts a child process and waits until it is ready. */
    async spawn(name: ServiceName, given: Environment = {}): Promise<ServiceProcess> {
      const overrides = { ...(await restrict(name, given)), ...given };
      const service = await startService(name, { ...environment, LOG_LEVEL: 'info', ...overrides });
      closers.add(name, () => service.stop(), HANG_MS);
      await service.ready();
      return service;
    },
    writePartner: (partner: DemoPartner) => writePartnerSecret(keyFolder, partner),
    record,
    recordIn: (state: SubmissionRecord['state'], requestId: string, timeoutMs = HEAL_HANG_MS) =>
      eventually(
        `${requestId} to be ${state}`,
        async () => {
          const found = await record(requestId);
          return found?.state === state ? found : undefined;
        },
        timeoutMs,
      ),
    records: (filter: object = {}) => stores.requests.find(filter).toArray(),
    accounts: (filter: object = {}) => stores.accounts.find(filter).toArray(),
    rateLimited: () => rateLimitedCollection(stores.db).find().toArray(),
    /** What the trail of operators has, newest first. */
    trail: (filter: Filter<TrailEntry> = {}): Promise<TrailEntry[]> =>
      stores.db.collection<TrailEntry>(OPERATOR_AUDIT).find(filter).sort({ _id: -1 }).toArray(),
    /** Sums a metric over the series with these labels. */
    async metric(
      process: { readonly adminUrl: string },
      name: string,
      labels: Readonly<Record<string, string>> = {},
    ) {
      const response = await fetch(`${process.adminUrl}/metrics`);
      return sumOf(await response.text(), name, labels);
    },
    close: async () => {
      await closers.closeAll();
      if (refused.size > 0)
        throw new Error(`rights that no page documents: ${[...refused].join(', ')}`);
    },
  };
  if (options.controller !== false) await world.start('controller');
  return world;
}

/** Opens a world for a test file, in which these processes run, and closes it after the tests. */
export async function worldOf<Name extends ServiceName = never>(
  names: readonly Name[] = [],
  options: WorldOptions = {},
): Promise<Readonly<Record<Name, InProcess>> & { readonly world: World }> {
  const world = await openWorld(options);
  afterAll(() => world.close());
  try {
    const started = {} as Record<Name, InProcess>;
    for (const name of names) started[name] = await world.start(name);
    return { ...started, world };
  } catch (error) {
    await world.close();
    throw error;
  }
}

let applicants = 0;

export function newApplication(): { email: string; business_name: string; ein: string } {
  applicants += 1;
  const unique = `${process.pid % 1_000}${String(applicants).padStart(5, '0')}`;
  return {
    email: `applicant-${unique}@example.com`,
    business_name: `Business ${unique}`,
    ein: unique.padStart(9, '0').slice(-9),
  };
}

export function requestIdOf(answer: { readonly json: unknown }): string {
  return (answer.json as { data: { request_id: string } }).data.request_id;
}
