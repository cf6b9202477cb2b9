/** Runs one command line; every error is one line. */
import { CommanderError } from 'commander';
import { MongoError } from 'mongodb';
import type { Clock } from '../platform/clock.ts';
import { isContactFailure } from '../platform/contact-failure.ts';
import { DeadlineError } from '../platform/deadline.ts';
import { NotDurableError } from '../platform/mongo.ts';
import { tookTooLong } from '../platform/mongo-read.ts';
import { printable } from '../platform/terminal.ts';
import { PROGRAM, programOf } from './command-line.ts';
import { CommandError, EXIT, type Desk, type ExitCode, type Output } from './command.ts';
import { commands } from './commands.ts';
import { UsageError, type Values } from './options.ts';

export interface Surroundings {
  readonly out: Output;
  readonly clock: Clock;
  readonly keysNamespace: string;
  readonly openDesk: (values: Values) => Desk;
  /** Without this call, a signal ends the process. */
  readonly catchStop: () => AbortSignal;
  /** Contains no user or password. */
  readonly storeFault: (error: unknown) => string;
}

export async function runCommand(
  words: readonly string[],
  surroundings: Surroundings,
): Promise<ExitCode> {
  const { out, clock, keysNamespace, openDesk, catchStop } = surroundings;
  let code: ExitCode = EXIT.usage;
  const program = programOf(commands, {
    now: clock.now(),
    output: {
      writeOut: (text) => out.line(text.trimEnd()),
      writeErr: (text) => out.note(text.trimEnd()),
      outputError: (text) => complain(text.replace(/^error: /, ''), out),
    },
    act: async ({ command, positionals, values }) => {
      let desk: Desk | undefined;
      let stop: AbortSignal | undefined;
      code = await command.run({
        positionals,
        values,
        out,
        clock,
        get stop(): AbortSignal {
          stop ??= catchStop();
          return stop;
        },
        keysNamespace,
        get desk(): Desk {
          desk ??= openDesk(values);
          return desk;
        },
      });
    },
  });
  try {
    await program.parseAsync(words, { from: 'user' });
    return code;
  } catch (error) {
    return explain(error, surroundings);
  }
}

function complain(text: string, out: Output): void {
  out.note(printable(`${PROGRAM}: ${text.trim().replaceAll('\n', ' ')}`));
}

/** Omits a driver's message, which can quote documents and addresses. */
function explain(error: unknown, { out, storeFault }: Surroundings): ExitCode {
  // Commander has printed it.
  if (error instanceof CommanderError) return error.exitCode === 0 ? EXIT.ok : EXIT.usage;
  const say = (text: string, code: ExitCode): ExitCode => {
    complain(text, out);
    return code;
  };
  if (error instanceof UsageError) return say(error.message, EXIT.usage);
  if (error instanceof CommandError) return say(error.message, error.code);
  if (error instanceof DeadlineError || error instanceof NotDurableError) {
    return say(
      'MongoDB took too long; what was begun may be done: give the command again',
      EXIT.storeAway,
    );
  }
  // The system, not the driver, reports a failed look-up of a "mongodb+srv" name.
  if (!(error instanceof MongoError) && !isContactFailure(error)) {
    const name = error instanceof Error ? `${error.name}: ${error.message}` : 'unknown error';
    return say(`a fault of this program (${name})`, EXIT.fault);
  }
  if (tookTooLong(error) || (error instanceof Error && error.name === 'MongoNetworkTimeoutError')) {
    return say(
      'MongoDB took too long to answer: narrow the search with --since or --partner',
      EXIT.storeAway,
    );
  }
  return say(storeFault(error), EXIT.storeAway);
}
