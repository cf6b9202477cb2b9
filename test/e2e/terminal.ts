/** One bash that keeps variables and functions between blocks of commands. */
import { randomUUID } from 'node:crypto';
import { spawn, type ChildProcessWithoutNullStreams } from 'node:child_process';

export class Terminal {
  readonly #bash: ChildProcessWithoutNullStreams;
  readonly #end = `end-${randomUUID()}`;
  #said = '';
  #heard = (): void => undefined;
  #ended = false;

  constructor(folder: string, env: Readonly<Record<string, string>>) {
    this.#bash = spawn('bash', ['--norc', '-euo', 'pipefail'], {
      cwd: folder,
      env: { ...process.env, ...env },
    });
    const hear = (text: string): void => {
      this.#said += text;
      this.#heard();
    };
    this.#bash.stdout.setEncoding('utf8').on('data', hear);
    this.#bash.stderr.setEncoding('utf8').on('data', hear);
    // `close` reports a bash that has ended.
    this.#bash.stdin.on('error', () => undefined);
    this.#bash.once('close', () => {
      this.#ended = true;
      this.#heard();
    });
  }

  /**
   * Returns the output. Rejects when a command fails, which ends the terminal. `typed` is standard
   * input.
   */
  async run(block: string, timeoutMs: number, typed = ''): Promise<string> {
    this.#said = '';
    const input = `'${typed.replaceAll("'", String.raw`'\''`)}'`;
    this.#bash.stdin.write(`{\n${block}\n} <<< ${input} 2>&1\necho ${this.#end}\n`);
    let timer: NodeJS.Timeout | undefined;
    try {
      await new Promise<void>((resolve, reject) => {
        timer = setTimeout(
          () => reject(new Error(this.#failure(`took over ${timeoutMs} ms`, block))),
          timeoutMs,
        );
        this.#heard = () => {
          if (this.#said.includes(this.#end)) resolve();
          else if (this.#ended) reject(new Error(this.#failure('failed', block)));
        };
        this.#heard();
      });
    } finally {
      clearTimeout(timer);
    }
    return this.#said.slice(0, this.#said.indexOf(this.#end));
  }

  #failure(why: string, block: string): string {
    return `a block of commands ${why}:\n${block}\nIt printed:\n${this.#said}`;
  }

  close(): void {
    this.#bash.kill('SIGKILL');
  }
}
