/** Constructs the operator's command. */
import { closeSync, constants, openSync, writeSync } from 'node:fs';
import { hostname, userInfo } from 'node:os';
import type { Writable } from 'node:stream';
import type { Db, MongoClient } from 'mongodb';
import { defined } from '../../internal/platform/process/defined.ts';
import { type NameFrom, Trail, type TrailEntry } from '../../internal/operators/trail/trail.ts';
import { runCommand } from '../../internal/operators/cli/command-line.ts';
import {
  EXIT,
  UsageError,
  type CommandStores,
  type ExitCode,
} from '../../internal/operators/cli/command.ts';
import { storesOf } from '../../internal/operators/orders/order.ts';
import { registerOf } from '../../internal/operators/orders/register.ts';
import { DAY_MS } from '../../internal/platform/process/clock.ts';
import {
  ConfigError,
  readTerminalEnvironment,
  type Environment,
} from '../../internal/platform/process/config.ts';
import { loadConfig, retentionOf, type ConfigOf } from '../../internal/settings/settings.ts';
import { DatabaseClock } from '../../internal/platform/stores/database-clock.ts';
import { withDeadline } from '../../internal/platform/process/deadline.ts';
import { KeptFindings } from '../../internal/partner/kept-findings.ts';
import { TrafficReader } from '../../internal/traffic/traffic-reader.ts';
import { printable } from '../../internal/application/fields.ts';
import { printableJson } from '../../internal/operators/view/terminal.ts';
import { connectMongo, createMongo, mongoFault } from '../../internal/platform/stores/mongo.ts';

const CONNECT_WITHIN_MS = 10_000;
const CLOSE_DEADLINE_MS = 2_000;
const STOP_SIGNALS = ['SIGINT', 'SIGTERM'] as const;
/** Standard error of the container's first process, which the kubelet keeps. */
const POD_LOG = '/proc/1/fd/2';

export interface Terminal {
  readonly env: Environment;
  readonly stdout: Writable;
  readonly stderr: Writable & { readonly isTTY?: boolean };
}

export async function runCli(
  words: readonly string[],
  terminal: Terminal = process,
): Promise<ExitCode> {
  const { env, stdout, stderr } = terminal;
  const note = (text: string): void => void stderr.write(`${text}\n`);
  const clock = new DatabaseClock();
  const store = await openStore(env, clock);
  const stop = new AbortController();
  const onSignal = (): void => stop.abort();
  stdout.on('error', ({ code }: NodeJS.ErrnoException) => {
    // A reader such as `head` may close the pipe early.
    if (code === 'EPIPE') process.exit(EXIT.ok);
    note(`partner-ingest: the output cannot be written (${code})`);
    process.exit(EXIT.found);
  });
  // An order goes on although nobody reads its notes.
  stderr.on('error', () => {});
  try {
    return await runCommand(words, {
      stdout,
      note,
      clock,
      keysNamespace: readTerminalEnvironment(env).keysNamespace,
      followsPartners: readTerminalEnvironment(env).followsPartners,
      processes: store.config?.CONSOLE_PROCESSES ?? [],
      openStores: (values) => {
        if ('fault' in store) throw store.fault;
        return deskOf(store, clock, note, {
          ...operator(values.as, env),
          ...defined({ why: values.why }),
          copy: (entry) => copyOut(entry, note, terminal),
        });
      },
      catchStop: () => {
        // A second signal ends the process.
        for (const signal of STOP_SIGNALS) process.once(signal, onSignal);
        return stop.signal;
      },
      storeFault: (error) => mongoFault(store.mongo, error).words,
    });
  } finally {
    for (const signal of STOP_SIGNALS) process.off(signal, onSignal);
    const closing = store.mongo?.close() ?? Promise.resolve();
    await withDeadline(closing, CLOSE_DEADLINE_MS, 'closing').catch(() => {});
  }
}

interface Store {
  readonly mongo: MongoClient;
  readonly config: ConfigOf<'cli'>;
  readonly db: Db;
}

/** A fault counts only if a command needs the store. */
async function openStore(
  environment: Environment,
  clock: DatabaseClock,
): Promise<Store | (Partial<Store> & { readonly fault: unknown })> {
  let mongo: MongoClient | undefined;
  let config: ConfigOf<'cli'> | undefined;
  try {
    config = loadConfig('cli', environment);
    mongo = createMongo(config.MONGODB_URI, 'partner-ingest cli');
    const db = mongo.db(config.MONGODB_DATABASE);
    await connectMongo(mongo, CONNECT_WITHIN_MS);
    // Relative times count from the database's time, too.
    await clock.measure(db);
    return { mongo, config, db };
  } catch (error) {
    const isUsage = error instanceof ConfigError;
    return {
      ...defined({ mongo, config }),
      fault: isUsage ? new UsageError(error.faults.join('; ')) : error,
    };
  }
}

function deskOf(
  { config, db }: Store,
  clock: DatabaseClock,
  note: (text: string) => void,
  trail: Omit<ConstructorParameters<typeof Trail>[0], 'db' | 'clock'>,
): CommandStores {
  const retention = retentionOf(config);
  const { completed, rejected, undeliverable, closed } = retention;
  const accountRequestsKeptMs = Math.min(completed, undeliverable, closed) * DAY_MS;
  return {
    ...storesOf({ db, retention, clock, register: registerOf(config, { clock, note }) }),
    trail: new Trail({ db, clock, ...trail }),
    traffic: new TrafficReader(db),
    kept: new KeptFindings(db),
    accountRequestsKeptMs,
    acceptedKeptMs: Math.min(accountRequestsKeptMs, rejected * DAY_MS),
  };
}

function operator(
  said: string | undefined,
  environment: Environment,
): { readonly by: string; readonly nameFrom: NameFrom } {
  if (said !== undefined) return { by: said, nameFrom: '--as' };
  const { user } = readTerminalEnvironment(environment);
  if (user !== undefined && user !== '') return { by: user, nameFrom: '$USER' };
  try {
    return { by: userInfo().username, nameFrom: 'account' };
  } catch {
    // A container's user often has no name; the Kubernetes audit log says who entered the pod.
    return { by: `somebody in ${hostname()}`, nameFrom: 'host' };
  }
}

/**
 * In a pod, entries also go to the log of its first process, which database operators cannot change
 * and `kubectl exec` does not show.
 */
function copyOut(entry: TrailEntry, note: (text: string) => void, { env, stderr }: Terminal): void {
  const line = printableJson({ operator_audit: entry });
  const { inPod } = readTerminalEnvironment(env);
  if (!inPod && stderr.isTTY !== true) return note(line);
  // The command itself reports how it ended.
  if (entry.ends === undefined) note(notedInWords(entry));
  if (!inPod) return;
  try {
    // The write is non-blocking, because a log without a reader must not stop the command.
    const log = openSync(POD_LOG, constants.O_WRONLY | constants.O_APPEND | constants.O_NONBLOCK);
    try {
      writeSync(log, `${line}\n`);
    } finally {
      closeSync(log);
    }
  } catch {
    note(`partner-ingest: the pod's log cannot be written, keep this line: ${line}`);
  }
}

/** The entry in words, for the operator. */
function notedInWords({ _id, by, nameFrom, why, ...action }: TrailEntry): string {
  const about = action.requestId ?? action.partnerId ?? action.keyId ?? '';
  const reason = why === undefined ? '' : `, because: ${why}`;
  const hint = nameFrom === 'host' ? '; say who you are with --as NAME' : '';
  const words = [action.action, about].filter((word) => word !== '').join(' ');
  return printable(`noted in operator_audit: ${words}, by ${by} (${nameFrom})${reason}${hint}`);
}
