/** Pastes the command blocks of pages into a terminal, with replacements for printed names. */
import { mkdir, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { stringify } from 'yaml';
import { ROOT } from '../../tools/root.ts';
import type { ClusterTools } from './cluster.ts';
import { INGRESS_HOST, type Ingress } from './ingress.ts';
import { BLOCKS, blockOf, type WalkedPage } from './page-blocks.ts';
import { Terminal } from './terminal.ts';

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
