/** Constructs the console's parts. */
import { randomBytes } from 'node:crypto';
import { MongoError } from 'mongodb';
import { KeptFindings } from '../../internal/partner/kept-findings.ts';
import { Trail } from '../../internal/operators/trail/trail.ts';
import { Activity } from '../../internal/operators/view/activity.ts';
import { readPods } from '../../internal/operators/view/readings.ts';
import type { ConsoleTools } from '../../internal/operators/console/routes.ts';
import { startConsole } from '../../internal/operators/console/server.ts';
import { SESSION_SECONDS, type ConsolePerson } from '../../internal/operators/console/sign-in.ts';
import { storesOf, type OrderContext } from '../../internal/operators/orders/order.ts';
import { EMPTY, registerOf } from '../../internal/operators/orders/register.ts';
import { later, type Clock } from '../../internal/platform/process/clock.ts';
import { DeadlineError } from '../../internal/platform/process/deadline.ts';
import { defined } from '../../internal/platform/process/defined.ts';
import type { Loops } from '../../internal/platform/process/loop.ts';
import { mongoFault } from '../../internal/platform/stores/mongo.ts';
import { tookTooLong } from '../../internal/platform/stores/mongo-read.ts';
import { openProcess, type ProcessTools } from '../../internal/platform/open-process.ts';
import { printableConfig, retentionOf, type ConfigOf } from '../../internal/settings/settings.ts';
import { TrafficReader } from '../../internal/traffic/traffic-reader.ts';
import { createConsoleMetrics } from '../../internal/telemetry/metrics.ts';
import { readStored } from '../../internal/operators/view/stored.ts';

/** The first page refreshes as often. */
const READ_EVERY_MS = 10_000;
/** Three missed rounds: what is shown is then too old to act on. */
const READINGS_FAIL_AFTER_MS = 35_000;

export async function startConsoleProcess(config: ConfigOf<'console'>, tools: ProcessTools) {
  const { log, closers } = tools;
  const { db, mongo, loops, clock, adminUrl, serving } = await openProcess(
    config,
    {
      name: 'console',
      metrics: createConsoleMetrics(tools.registry),
      // The console still shows the pods.
      readyWithoutDatabase: true,
    },
    tools,
  );
  const databaseFault = (error: unknown): string | undefined => {
    if (tookTooLong(error)) return 'MongoDB took too long to answer: narrow the search by time.';
    return error instanceof MongoError || error instanceof DeadlineError
      ? mongoFault(mongo, error).words
      : undefined;
  };
  const trailOf = (person: Omit<ConsolePerson, 'role'>, why?: string): Trail =>
    new Trail({
      db,
      clock,
      by: person.name,
      nameFrom: person.nameFrom,
      ...defined({ sub: person.sub, why }),
      // Users of the database cannot change the pod's log.
      copy: (entry) => log.info({ operator_audit: entry }, 'noted in operator_audit'),
    });
  const trail = trailOf({ name: '', nameFrom: 'console' });
  const note = (text: string): void => log.warn(text);
  const register = registerOf(config, { clock, note });
  // A register that is not there is told at the start, before an order is refused for it.
  await register?.isEmpty().then(
    (isEmpty) => isEmpty && note(EMPTY),
    ({ message }: Error) => note(message),
  );
  const stores = storesOf({ db, retention: retentionOf(config), clock, register });
  const reads = { ...stores, traffic: new TrafficReader(db), trail };
  const orderContextOf = (person: ConsolePerson, why?: string): OrderContext => ({
    stores: { ...stores, trail: trailOf(person, why) },
    clock,
  });
  const ended = new Set<string>();
  const parts = { reads, kept: new KeptFindings(db), clock, loops, databaseFault, trail, ended };
  const activity = followReadings(config, parts);
  const server = await startConsole({
    host: config.CONSOLE_HOST,
    port: config.CONSOLE_PORT,
    clock,
    log,
    databaseFault,
    command: config.CONSOLE_COMMAND,
    runbooks: config.CONSOLE_RUNBOOKS_URL,
    place: config.CONSOLE_NAME ?? config.MONGODB_DATABASE,
    secret: config.CONSOLE_SESSION_SECRET ?? randomBytes(32).toString('hex'),
    ...defined({ oidc: oidcOf(config) }),
    tools: { reads, trailOf, activity },
    ...defined({ orderContextOf: config.CONSOLE_ACTIONS ? orderContextOf : undefined }),
    ended,
  });
  closers.add('console', () => server.close());

  serving({ config: printableConfig(config), url: server.url });
  return { url: server.url, adminUrl };
}

function oidcOf(config: ConfigOf<'console'>) {
  const {
    OIDC_ISSUER: issuer,
    OIDC_CLIENT_ID: clientId,
    OIDC_CLIENT_SECRET: clientSecret,
  } = config;
  const { CONSOLE_URL: publicUrl } = config;
  // The settings allow all of them or none.
  if (!issuer || !clientId || !clientSecret || !publicUrl) return undefined;
  return {
    issuer,
    clientId,
    clientSecret,
    publicUrl,
    scopes: config.OIDC_SCOPES,
    rolesClaim: config.OIDC_ROLES_CLAIM,
    nameClaim: config.OIDC_NAME_CLAIM,
    proxies: { https: config.HTTPS_PROXY, http: config.HTTP_PROXY, no: config.NO_PROXY },
    roles: {
      ...defined({ operator: config.CONSOLE_ACTIONS ? config.OIDC_OPERATOR_ROLE : undefined }),
      support: config.OIDC_SUPPORT_ROLE,
      viewer: config.OIDC_VIEWER_ROLE,
    },
  };
}

interface ReadingParts {
  readonly reads: ConsoleTools['reads'];
  readonly kept: KeptFindings;
  readonly clock: Clock;
  readonly loops: Loops<'pods' | 'stored'>;
  readonly databaseFault: (error: unknown) => string | undefined;
  readonly trail: Trail;
  readonly ended: Set<string>;
}

/** Reads in the background, so that the first page needs no store. */
function followReadings(
  { CONSOLE_PROCESSES: addresses }: ConfigOf<'console'>,
  parts: ReadingParts,
) {
  const { clock, loops, databaseFault } = parts;
  const activity = new Activity(clock.now());
  const round = { everyMs: READ_EVERY_MS, failsAfterMs: READINGS_FAIL_AFTER_MS };
  loops.start({
    ...round,
    name: 'pods',
    run: async () => activity.add(await readPods(addresses), clock.now()),
  });
  loops.start({
    ...round,
    name: 'stored',
    run: async () => {
      try {
        const [stored, sessions] = await Promise.all([
          readStored(parts),
          parts.trail.endedSessions(later(clock.now(), -SESSION_SECONDS * 1_000)),
        ]);
        for (const id of sessions) parts.ended.add(id);
        activity.stored = stored;
      } catch (error) {
        const fault = databaseFault(error) ?? 'The console has a fault; its log has more.';
        activity.stored = { ...activity.stored, fault };
        throw error;
      }
    },
  });
  return activity;
}
