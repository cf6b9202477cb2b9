/** The life of a process: start, wait for a signal, drain, exit. */
import { ConfigError } from './config-error.ts';
import { Closers } from './closers.ts';
import { createLogger, describeError, logWritten, type Logger } from './log.ts';

/** 130 means that a second signal cut the drain short. */
const EXIT = { ok: 0, failed: 1, interrupted: 130 } as const;

/** A longer drain is cut off, so that a pod does not hang until SIGKILL. */
export const DRAIN_DEADLINE_MS = 60_000;

const LAST_LINES_MS = 1_000;

export interface Program<Config extends { readonly LOG_LEVEL: string }> {
  readonly name: string;
  /** The default, `DRAIN_DEADLINE_MS`, always applies after a crash. */
  readonly drainDeadlineMs?: number;
  /** `warn` gets each setting whose value does not count. */
  load(warn: (ignored: string) => void): Config;
  /** Resolves once the process serves. */
  start(config: Config, tools: { log: Logger; closers: Closers }): Promise<unknown>;
}

export async function run<Config extends { readonly LOG_LEVEL: string }>(
  program: Program<Config>,
): Promise<void> {
  const ignored: string[] = [];
  const config = loadOrExit(program, (each) => ignored.push(each));
  const log = createLogger(program.name, config.LOG_LEVEL);
  for (const reason of ignored) log.warn({ reason }, 'a setting is ignored; its default counts');
  const closers = new Closers(log);

  let signalled = false;
  const finish = async (exitCode: number): Promise<never> => {
    const deadlineMs =
      exitCode === EXIT.ok ? (program.drainDeadlineMs ?? DRAIN_DEADLINE_MS) : DRAIN_DEADLINE_MS;
    const timer = setTimeout(() => {
      log.error('drain deadline passed; leaving');
      void logWritten(LAST_LINES_MS).then(() => process.exit(EXIT.failed));
    }, deadlineMs);
    await closers.closeAll();
    clearTimeout(timer);
    log.info({ exitCode }, 'stopped');
    await logWritten(LAST_LINES_MS);
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
    if (signalled) process.exit(EXIT.failed);
    signalled = true;
    void finish(EXIT.failed);
  };
  process.on('uncaughtException', onCrash('uncaught exception'));
  process.on('unhandledRejection', onCrash('unhandled rejection'));

  try {
    await program.start(config, { log, closers });
  } catch (error) {
    // The message of a failed start is about configuration and contains no personal data.
    log.fatal(
      { err: error, reason: error instanceof Error ? error.message : String(error) },
      'could not start',
    );
    if (!signalled) await finish(EXIT.failed);
  }
}

function loadOrExit<Config extends { readonly LOG_LEVEL: string }>(
  program: Program<Config>,
  warn: (ignored: string) => void,
): Config {
  try {
    return program.load(warn);
  } catch (error) {
    const text =
      error instanceof ConfigError ? error.message : JSON.stringify(describeError(error));
    process.stderr.write(`${text}\n`);
    process.exit(EXIT.failed);
  }
}
