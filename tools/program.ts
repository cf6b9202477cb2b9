/** Runs programs of this machine to their end, and says what they said when they fail. */
import { spawn } from 'node:child_process';

/** An `npm ci` on a busy machine takes the longest: a minute. It only catches a hang. */
const TIMEOUT_MS = 10 * 60_000;
/** Lines of a failed program's output that go into the error. */
const SHOWN_LINES = 40;
/** Characters of its arguments that do. */
const SHOWN_ARGUMENTS = 200;

export interface RunOptions {
  /** Goes to the program's standard input. */
  readonly input?: string;
  readonly timeoutMs?: number;
  readonly cwd?: string;
  /** Instead of this process's environment. */
  readonly env?: NodeJS.ProcessEnv;
}

export interface Ended {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
  readonly out: string;
  readonly err: string;
}

/** Gives how the program ended and what it printed; rejects only where it is not there. */
export async function endOf(
  program: string,
  args: readonly string[],
  { input = '', timeoutMs = TIMEOUT_MS, cwd, env }: RunOptions = {},
): Promise<Ended> {
  const child = spawn(program, args, {
    cwd,
    env,
    stdio: ['pipe', 'pipe', 'pipe'],
    timeout: timeoutMs,
    killSignal: 'SIGKILL',
  });
  const output = { out: '', err: '' };
  child.stdout.setEncoding('utf8').on('data', (text: string) => (output.out += text));
  child.stderr.setEncoding('utf8').on('data', (text: string) => (output.err += text));
  // A program that ends without reading its input is told by its exit code.
  child.stdin.on('error', () => undefined);
  child.stdin.end(input);
  return await new Promise((resolve, reject) => {
    child.once('error', reject);
    child.once('close', (code, signal) => resolve({ code, signal, ...output }));
  });
}

/** The same; rejects where it takes too long or ends with another code than 0. */
export async function run(
  program: string,
  args: readonly string[],
  options: RunOptions = {},
): Promise<Ended> {
  const ended = await endOf(program, args, options);
  if (ended.code === 0) return ended;
  const said = `${ended.out}\n${ended.err}`.trim().split('\n').slice(-SHOWN_LINES).join('\n');
  const words = args.join(' ').slice(0, SHOWN_ARGUMENTS);
  throw new Error(`${program} ${words} ended with ${ended.signal ?? ended.code}:\n${said}`);
}
