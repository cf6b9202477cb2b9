/** Pastes the command blocks of pages into a terminal, with replacements for printed names. */
import { type ChildProcessWithoutNullStreams, spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { mkdir, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { stringify } from 'yaml';
import { ROOT } from '../../tools/root.ts';
import type { ClusterTools } from './cluster.ts';
import { type Ingress, INGRESS_HOST } from './ingress.ts';
import { blockOf, BLOCKS, type WalkedPage } from './page-blocks.ts';

const BLOCK_TIMEOUT_MS = 360_000;

export class Reader {
  readonly #folder: string;
  readonly #terminal: Terminal;
  readonly #pasted = new Set<string>();
  readonly inPlace: Map<string, string>;

  private constructor(folder: string, terminal: Terminal, inPlace: ReadonlyMap<string, string>) {
    this.#folder = folder;
    this.#terminal = terminal;
    this.inPlace = new Map(inPlace);
  }

  static async open(
    tools: ClusterTools,
    inPlace: ReadonlyMap<string, string>,
    ingress: Ingress | undefined,
  ): Promise<Reader> {
    const folder = await mkdtemp(join(tmpdir(), 'e2e-pages-'));
    const programs = join(folder, 'bin');
    await mkdir(programs);
    await symlink(tools.kubectl, join(programs, 'kubectl'));
    await symlink(tools.helm, join(programs, 'helm'));
    await symlink(join(ROOT, 'charts'), join(folder, 'charts'));
    // Resolves names and trusts the certificate as a public one.
    if (ingress !== undefined)
      await writeFile(
        join(folder, '.curlrc'),
        `resolve = "${INGRESS_HOST}:443:${ingress.address}"\ncacert = "${ingress.caFile}"\n`,
      );
    const path = `${programs}:${process.env['PATH'] ?? ''}`;
    return new Reader(
      folder,
      new Terminal(folder, { KUBECONFIG: tools.kubeconfig, PATH: path, CURL_HOME: folder }),
      inPlace,
    );
  }

  async write(name: string, values: object): Promise<void> {
    await writeFile(join(this.#folder, name), stringify(values));
  }

  /** Runs the block with this beginning; returns its output. */
  async paste<Page extends WalkedPage>(
    page: Page,
    beginning: (typeof BLOCKS)[Page][number],
    typed = '',
  ): Promise<string> {
    this.#pasted.add(`${page}: ${beginning}`);
    let block = blockOf(page, beginning);
    for (const [printed, written] of this.inPlace) block = block.replaceAll(printed, written);
    return await this.#terminal.run(block, BLOCK_TIMEOUT_MS, typed);
  }

  async type(command: string): Promise<string> {
    return await this.#terminal.run(command, BLOCK_TIMEOUT_MS);
  }

  get left(): string[] {
    const all = Object.entries(BLOCKS).flatMap(([page, blocks]) =>
      blocks.map((block) => `${page}: ${block}`),
    );
    return all.filter((block) => !this.#pasted.has(block));
  }

  async close(): Promise<void> {
    this.#terminal.close();
    await rm(this.#folder, { recursive: true });
  }
}

// One bash that keeps variables and functions between blocks of commands.

class Terminal {
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
