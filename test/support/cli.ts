/** Runs the operator's command on a world's stores, in this process or in a child. */
import { expect } from '@jest/globals';
import { PassThrough } from 'node:stream';
import { text } from 'node:stream/consumers';
import { ROOT } from '../../tools/root.ts';
import { runCli as runCliHere } from '../../cmd/cli/wire.ts';
import { endOf } from '../../tools/program.ts';
import { failedOnce, submit } from './processing.ts';
import { HANG_MS } from './wait.ts';
import { newApplication, worldOf, type InProcess, type World } from './world.ts';

export type Ran = ReturnType<typeof ran>;

type Environment = Readonly<Record<string, string>>;

const OPERATOR = { USER: 'test-operator' };

// A terminal that runs Jest would add colours.
process.env['NO_COLOR'] = '1';

function ran(code: number | null, stdout: string, stderr: string) {
  // oxlint-disable-next-line typescript/no-unnecessary-type-parameters -- each test knows what it asked for
  return { code, stdout, stderr, json: <T>() => JSON.parse(stdout) as T };
}

/** Runs `partner-ingest WORDS…` in a child; never rejects because of an exit code. */
export async function spawnCli(
  environment: Environment,
  ...words: readonly string[]
): Promise<Ran> {
  const { code, out, err } = await endOf(process.execPath, ['cmd/cli/main.ts', ...words], {
    cwd: ROOT,
    env: {
      PATH: process.env['PATH'],
      NODE_COMPILE_CACHE: process.env['NODE_COMPILE_CACHE'],
      ...OPERATOR,
      ...environment,
    },
    timeoutMs: HANG_MS,
  });
  return ran(code, out, err);
}

/** Runs it in this process, which costs a tenth; command, settings and stores are the real ones. */
export async function runCli(environment: Environment, ...words: readonly string[]): Promise<Ran> {
  const [stdout, stderr] = [new PassThrough(), new PassThrough()];
  const written = Promise.all([text(stdout), text(stderr)]);
  const env = { ...OPERATOR, ...environment };
  const code = await runCliHere(words, { env, stdout, stderr });
  stdout.end();
  stderr.end();
  return ran(code, ...(await written));
}

export function cliOf(
  world: Pick<World, 'environment'>,
): (...words: readonly string[]) => Promise<Ran> {
  return (...words) => runCli(world.environment, ...words);
}

/** What tests of commands do with them. */
export function operatorOf({
  world,
  ingest,
}: {
  readonly world: World;
  readonly ingest: InProcess;
}) {
  const cli = cliOf(world);
  return {
    cli,
    /** Runs a command that succeeds. */
    done: async (...words: readonly string[]): Promise<Ran> => {
      const result = await cli(...words);
      expect(result).toMatchObject({ code: 0 });
      return result;
    },
    /** Runs a command that is refused for `reason`. */
    refused: async (reason: string | RegExp, ...words: readonly string[]): Promise<void> => {
      const { code, stdout, stderr } = await cli(...words);
      expect({ code, stdout }).toEqual({ code: 1, stdout: '' });
      expect(stderr).toMatch(reason);
    },
    /** What the trail has of the request, without beginnings. */
    trailOf: async (requestId: string) =>
      (await world.trail({ requestId, result: { $ne: 'begun' } })).toReversed(),
    /** An application whose first attempt at the e-mail failed; the relay keeps failing. */
    failing: async (given: object = {}) => {
      const application = { ...newApplication(), ...given };
      world.mail.setFault({ at: 'rcpt', answer: { code: 450, message: '4.2.1 try later' } });
      const id = await submit(world, ingest, application);
      await failedOnce(world, id);
      return { id, application };
    },
    /** A completed application and its e-mails. */
    completed: async (given: object = {}) => {
      const application = { ...newApplication(), ...given };
      const id = await submit(world, ingest, application);
      await world.recordIn('completed', id);
      const mails = () => world.mail.mailsTo(application.email);
      return { id, application, mails, messageId: mails()[0]?.messageId ?? '' };
    },
    accountOf: async (requestId: string) => (await world.stores.accounts.findOne({ requestId }))!,
  };
}

/** Opens a world for a test file with an operator's command, and closes it after the tests. */
export async function operatorWorld() {
  const opened = await worldOf(['ingest', 'processor']);
  return { ...opened, ...operatorOf(opened) };
}
