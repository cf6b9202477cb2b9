/** Opens what every process has: its admin port, traces, the database with its time, and loops. */
import type { Registry } from 'prom-client';
import { startAdminServer } from './http/admin-server.ts';
import type { Probe } from './process/fault.ts';
import type { Closers } from './process/closers.ts';
import { tracedAs } from './process/config.ts';
import { DatabaseClock } from './stores/database-clock.ts';
import {
  followCredentials,
  refusalIn,
  type Credentials,
  type Trial,
} from './process/follow-credentials.ts';
import { watchLog, type LogFields, type Logger } from './process/log.ts';
import { Loops, type LoopTools } from './process/loop.ts';
import type { PlainCounter, PlainGauge } from './process/registry.ts';
import { makeFirstContact, type IndexDefinition } from './stores/mongo-indexes.ts';
import { connectMongo, createMongo, mongoFault } from './stores/mongo.ts';
import { startTracing } from './process/tracing.ts';

export interface ProcessTools {
  readonly log: Logger;
  readonly closers: Closers;
  readonly registry: Registry;
  /** Undefined if all credentials came from variables. */
  readonly credentials?: Credentials | undefined;
}

interface ProcessConfig {
  readonly ADMIN_HOST: string;
  readonly ADMIN_PORT: number;
  readonly MONGODB_URI: string;
  readonly MONGODB_DATABASE: string;
}

interface ProcessMetrics<Loop extends string> {
  readonly loopFailing: LoopTools<Loop | 'clock' | 'credentials'>['failing'];
  readonly ready: PlainGauge;
  readonly logLinesDropped: PlainCounter;
}

interface ProcessOptions<Loop extends string, Metrics = unknown> {
  readonly name: string;
  readonly metrics: Metrics & ProcessMetrics<Loop>;
  /** Made before the process is ready. */
  readonly indexes?: readonly IndexDefinition[];
  readonly traced?: true;
  readonly documents?: Readonly<Record<string, object>>;
  /** The process is ready without the database, whose faults are then warnings. */
  readonly readyWithoutDatabase?: true;
}

/** What a process' parts are constructed with. */
export type Opened<Metrics> = Awaited<ReturnType<typeof openProcess<string, Metrics>>>;

/** Resolves once the admin port listens; the database may come later. */
export async function openProcess<Loop extends string, Metrics>(
  config: ProcessConfig,
  options: ProcessOptions<Loop, Metrics>,
  tools: ProcessTools,
) {
  const { log, closers, registry } = tools;
  const { metrics, documents = {} } = options;
  // Read at each probe, so callers may add to them.
  let isStarting = true;
  const probes = {
    live: [] as Probe[],
    ready: [() => (isStarting ? [{ code: 'starting', words: 'starting' }] : [])] as Probe[],
    warnings: [watchLog(metrics.logLinesDropped)],
  };
  // This port closes last, so that metrics stay readable during a drain.
  const { ADMIN_HOST: host, ADMIN_PORT: port } = config;
  const files = tools.credentials?.files;
  const admin = await startAdminServer({
    host,
    port,
    registry,
    readiness: metrics.ready,
    documents,
    files,
    ...probes,
  });
  closers.add('admin port', () => admin.close());
  const serviceName = options.traced && tracedAs(options.name);
  if (serviceName !== undefined) {
    const tracing = await startTracing(serviceName, log);
    probes.warnings.push(tracing.warnings);
    closers.add('traces', () => tracing.close());
  }
  const serving = (fields: LogFields): void => {
    isStarting = false;
    log.info({ ...fields, admin: admin.url }, 'serving');
  };
  const database = openDatabase(config, options, tools, probes);
  const trials: Trial[] = [(next) => tryMongo(next, options.name)];
  followCredentials({ ...tools, ...probes, ...database, trials });
  return { ...tools, metrics, adminUrl: admin.url, serving, trials, ...probes, ...database };
}

const TRIAL_MS = 10_000;

/** Only a refusal counts: a server that is away says nothing of credentials. */
async function tryMongo(next: unknown, name: string) {
  if (next === undefined) return undefined;
  const { MONGODB_URI: uri } = next as ProcessConfig;
  const client = createMongo(uri, `partner-ingest ${name}`, { maxPoolSize: 1 });
  try {
    await connectMongo(client, TRIAL_MS);
    return undefined;
  } catch (error) {
    const { fault, isSure } = refusalIn([mongoFault(client, error)]);
    return isSure ? fault : undefined;
  } finally {
    await client.close().catch(() => {});
  }
}

function openDatabase<Loop extends string>(
  config: ProcessConfig,
  { name, metrics, indexes = [], readyWithoutDatabase }: ProcessOptions<Loop>,
  { log, closers }: ProcessTools,
  { ready, warnings }: { readonly ready: Probe[]; readonly warnings: Probe[] },
) {
  const mongo = createMongo(config.MONGODB_URI, `partner-ingest ${name}`);
  closers.add('mongodb', () => mongo.close());
  const db = mongo.db(config.MONGODB_DATABASE);
  const contact = makeFirstContact(db, indexes, log);
  closers.add('first contact', () => contact.stop());
  const loops = new Loops({
    log,
    closers,
    failing: metrics.loopFailing,
    faultOf: (error) => mongoFault(mongo, error),
  });
  const clock = new DatabaseClock();
  const faults = readyWithoutDatabase ? warnings : ready;
  faults.push(contact.faults, contact.hides(loops.faults), contact.hides(clock.faults));
  warnings.push(contact.hides(loops.warnings));
  return { mongo, db, contact, loops, clock, clockKnown: clock.follow(db, loops).succeeded };
}
