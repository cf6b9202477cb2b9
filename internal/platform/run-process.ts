/** The life of a process: start, wait for a signal, drain, exit. */
import { isDeepStrictEqual } from 'node:util';
import { authorityFiles, ConfigError, type FoundBeside } from './process/config.ts';
import { Closers } from './process/closers.ts';
import { filesOfUri, writtenAt, type Credentials } from './process/follow-credentials.ts';
import { createLogger, describeError, logWritten, type LogFormat } from './process/log.ts';
import type { ProcessTools } from './open-process.ts';
import { createProcessRegistry } from './process/registry.ts';

/** 130 means that a second signal cut the drain short. */
const EXIT = { ok: 0, failed: 1, interrupted: 130 } as const;

/** A longer drain is cut off, so that a pod does not hang until SIGKILL. */
export const DRAIN_DEADLINE_MS = 60_000;

const LAST_LINES_MS = 1_000;

interface Settings {
  readonly LOG_LEVEL: string;
  readonly LOG_FORMAT: LogFormat;
  readonly MONGODB_URI: string;
}

interface Program<Given extends Settings> {
  readonly name: string;
  /** The default, `DRAIN_DEADLINE_MS`, always applies after a crash. */
  readonly drainDeadlineMs?: number;
  /** Fills `found` in. */
  load(found: FoundBeside): Given;
  /** Resolves once the process serves. */
  start(config: Given, tools: ProcessTools): Promise<unknown>;
}

export async function run<Given extends Settings>(program: Program<Given>): Promise<void> {
  const found = nothingFound();
  const config = loadOrExit(() => program.load(found));
  const log = createLogger(program.name, config.LOG_LEVEL, config.LOG_FORMAT);
  for (const reason of found.ignored)
    log.warn({ reason }, 'a setting is ignored; its default counts');
  const closers = new Closers(log);

  let signalled = false;
  let ending = false;
  const finish = async (exitCode: number, lastWords?: string): Promise<void> => {
    if (ending) return;
    ending = true;
    const drainDeadlineMs = exitCode === EXIT.ok ? program.drainDeadlineMs : undefined;
    const timer = setTimeout(() => {
      log.error('drain deadline passed; leaving');
      void logWritten(LAST_LINES_MS).then(() => process.exit(EXIT.failed));
    }, drainDeadlineMs ?? DRAIN_DEADLINE_MS);
    await closers.closeAll();
    clearTimeout(timer);
    log.info({ exitCode }, 'stopped');
    await logWritten(LAST_LINES_MS);
    // The end of the log is what `kubectl describe pod` shows.
    if (lastWords !== undefined) process.stderr.write(`${program.name}: ${lastWords}\n`);
    process.exit(exitCode);
  };
  const onSignal = (signal: NodeJS.Signals): void => {
    if (signalled) process.exit(EXIT.interrupted);
    signalled = true;
    log.info({ signal }, 'draining');
    void finish(EXIT.ok);
  };
  process.on('SIGTERM', onSignal);
  process.on('SIGINT', onSignal);
  const onCrash = (kind: string) => (error: unknown) => {
    log.fatal({ err: error }, kind);
    if (ending) process.exit(EXIT.failed);
    void finish(EXIT.failed);
  };
  process.on('uncaughtException', onCrash('uncaught exception'));
  process.on('unhandledRejection', onCrash('unhandled rejection'));

  const readOnce = () => ({ ...filesOfUri(config.MONGODB_URI), ...writtenAt(authorityFiles()) });
  const atStart = readOnce();
  const credentials: Credentials = {
    files: found.files,
    changed: () => {
      const next = program.load(nothingFound());
      const isSame = isDeepStrictEqual(next, config) && isDeepStrictEqual(readOnce(), atStart);
      return isSame ? undefined : next;
    },
    leave: () => void finish(EXIT.ok),
  };
  const hasFiles = Object.keys({ ...found.files, ...atStart }).length > 0;
  try {
    await program.start(config, {
      log,
      closers,
      registry: createProcessRegistry(program.name),
      credentials: hasFiles ? credentials : undefined,
    });
  } catch (error) {
    // The message of a failed start is about configuration and contains no personal data.
    const reason = error instanceof Error ? error.message : String(error);
    log.fatal({ err: error, reason }, 'could not start');
    await finish(EXIT.failed, `could not start: ${reason}`);
  }
}

function loadOrExit<Given>(load: () => Given): Given {
  try {
    return load();
  } catch (error) {
    const text =
      error instanceof ConfigError ? error.message : JSON.stringify(describeError(error));
    process.stderr.write(`${text}\n`);
    process.exit(EXIT.failed);
  }
}

const nothingFound = (): FoundBeside => ({ ignored: [], files: {} });
