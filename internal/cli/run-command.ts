/**
 * Runs one command line: help, the command, or one clear line about what is wrong; gives the exit
 * code.
 */
import { MongoError } from 'mongodb';
import type { Clock } from '../platform/clock.ts';
import { classify } from '../platform/contact.ts';
import { CommandError, EXIT, type Desk, type ExitCode, type Output } from './command.ts';
import { tookTooLong } from '../platform/mongo-read.ts';
import { findCommand, parseLine } from './command-line.ts';
import { UsageError, type Values } from './options.ts';
import { commands } from './commands.ts';
import { PROGRAM, helpFor, helpForAll } from './help.ts';

export interface Surroundings {
  readonly out: Output;
  readonly clock: Clock;
  readonly input: () => Promise<string>;
  readonly keysNamespace: string;
  /** Opens the stores for a caller; throws a `UsageError` when the configuration is wrong. */
  readonly openDesk: (values: Values) => Desk;
  /** Catches the first signal to stop; without this call a signal ends the process. */
  readonly catchStop: () => AbortSignal;
  /** Why MongoDB cannot be used, without user and password. */
  readonly storeFault: (error: unknown) => string;
}

export async function runCommand(
  words: readonly string[],
  surroundings: Surroundings,
): Promise<ExitCode> {
  const { out, clock, input, keysNamespace, openDesk } = surroundings;
  try {
    if (words.length === 0) {
      out.note(helpForAll(commands));
      return EXIT.usage;
    }
    if (words.includes('--help') || words.includes('-h') || words[0] === 'help') {
      const command = findCommand(words[0] === 'help' ? words.slice(1) : words, commands);
      out.line(command === undefined ? helpForAll(commands) : helpFor(command));
      return EXIT.ok;
    }
    const { command, positionals, values } = parseLine(words, commands, clock.now());
    let desk: Desk | undefined;
    let stop: AbortSignal | undefined;
    const call = {
      positionals,
      values,
      out,
      clock,
      input,
      get stop(): AbortSignal {
        stop ??= surroundings.catchStop();
        return stop;
      },
      keysNamespace,
      get desk(): Desk {
        desk ??= openDesk(values);
        return desk;
      },
    };
    return await command.run(call);
  } catch (error) {
    return explain(error, surroundings);
  }
}

/** One line, and never what a driver says: that can quote documents and addresses. */
function explain(error: unknown, { out, storeFault }: Surroundings): ExitCode {
  const say = (text: string, code: ExitCode): ExitCode => {
    out.note(`${PROGRAM}: ${text}`);
    return code;
  };
  if (error instanceof UsageError) return say(error.message, EXIT.usage);
  if (error instanceof CommandError) return say(error.message, EXIT.found);
  // The look-up of a "mongodb+srv" name fails with an error of the system.
  if (!(error instanceof MongoError) && classify(error).kind !== 'name') {
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
