/** Runs programs of this machine with a deadline, and says what they said when they fail. */
import { spawn } from 'node:child_process';

/** Lines of a failed program's output that go into the error. */
const SHOWN_LINES = 40;

export interface CommandOptions {
  /** Goes to the program's standard input. */
  readonly input?: string;
  readonly timeoutMs: number;
  readonly cwd?: string;
  /** On top of this process's environment. */
  readonly env?: Readonly<Record<string, string>>;
}

export interface CommandOutput {
  readonly out: string;
  readonly err: string;
}

/** Rejects when the program is not there, takes too long or ends with another code than 0. */
export async function command(
  program: string,
  args: readonly string[],
  options: CommandOptions,
): Promise<CommandOutput> {
  const child = spawn(program, args, {
    ...(options.cwd === undefined ? {} : { cwd: options.cwd }),
    env: { ...process.env, ...options.env },
    stdio: ['pipe', 'pipe', 'pipe'],
    timeout: options.timeoutMs,
    killSignal: 'SIGKILL',
  });
  const output = { out: '', err: '' };
  child.stdout.setEncoding('utf8').on('data', (text: string) => (output.out += text));
  child.stderr.setEncoding('utf8').on('data', (text: string) => (output.err += text));
  // A program that ends without reading its input is told by its exit code.
  child.stdin.on('error', () => undefined);
  child.stdin.end(options.input ?? '');
  const [code, signal] = await new Promise<[number | null, string | null]>((resolve, reject) => {
    child.once('error', reject);
    child.once('close', (...ended) => resolve(ended));
  });
  if (code !== 0) {
    const why =
      signal === null
        ? `ended with ${code}`
        : `was ended by ${signal} (time: ${options.timeoutMs} ms)`;
    const said = `${output.out}\n${output.err}`.trim().split('\n').slice(-SHOWN_LINES).join('\n');
    throw new Error(`${program} ${args.join(' ').slice(0, 200)} ${why}:\n${said}`);
  }
  return output;
}
