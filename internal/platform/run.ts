/** The life of a process: start, wait for a signal, drain, exit with a telling code. */
import { ConfigError } from './config-error.ts';
import { Closers } from './closers.ts';
import { createLogger, describeError, logWritten, type Logger } from './log.ts';

/**
 * Exit codes: 0 after a drain, 1 for a failed start or a crash, 130 when a second signal cut the
 * drain short.
 */
const EXIT = { ok: 0, failed: 1, interrupted: 130 } as const;

/**
 * A drain that takes longer than this is cut off, so that a pod never hangs until SIGKILL, unless a
 * process says otherwise.
 */
export const DRAIN_DEADLINE_MS = 60_000;

/** The last lines of the log get this long. */
const LAST_LINES_MS = 1_000;

/** What `run` needs to know of a process. */
export interface Program<Config extends { readonly LOG_LEVEL: string }> {
  readonly name: string;
  /**
   * A drain that takes longer is cut off; without it, `DRAIN_DEADLINE_MS`. After a crash that one
   * holds in any case.
   */
  readonly drainDeadlineMs?: number;
  load(): Config;
  /** Opens everything, registering each closing step; resolves once the process serves. */
  start(config: Config, tools: { log: Logger; closers: Closers }): Promise<unknown>;
}

/**
 * Runs `program` until SIGTERM or SIGINT and ends the process; never returns control to the caller.
 */
export async function run<Config extends { readonly LOG_LEVEL: string }>(
  program: Program<Config>,
): Promise<void> {
  const config = loadOrExit(program);
  const log = createLogger(program.name, config.LOG_LEVEL);
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
    // The stack of our own frames is safe; the message may quote data and stays out (see log.ts).
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
    // A failed start is about our set-up (a port in use, a missing folder), so its message holds no
    // personal data.
    log.fatal(
      { err: error, reason: error instanceof Error ? error.message : String(error) },
      'could not start',
    );
    if (!signalled) await finish(EXIT.failed);
  }
}

function loadOrExit<Config extends { readonly LOG_LEVEL: string }>(
  program: Program<Config>,
): Config {
  try {
    return program.load();
  } catch (error) {
    const text =
      error instanceof ConfigError ? error.message : JSON.stringify(describeError(error));
    process.stderr.write(`${text}\n`);
    process.exit(EXIT.failed);
  }
}
