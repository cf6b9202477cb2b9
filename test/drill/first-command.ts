/** Runs the first command of an alert's runbook as printed, and looks for the pattern that the runbook gives for its output. */
import { execFile } from 'node:child_process';
import { mkdir, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { ActiveAlert } from '../../deploy/local/prometheus.ts';
import { read } from '../support/pages.ts';
import type { PodState } from './pods.ts';

const KUBECTL = fileURLToPath(new URL('kubectl.ts', import.meta.url));
/** Of one command; each program of it starts a Node on a busy machine. */
const COMMAND_TIMEOUT_MS = 90_000;
const MAX_OUTPUT_BYTES = 2 ** 26;
/** Some gauges cover the time since the last scrape, which is a second here and half a minute in a cluster. */
const READINGS = 5;
/** Of an output in which nothing was found. */
const SHOWN_CHARACTERS = 2_000;
/** The form that each runbook has: one line of shell, then the pattern its output holds while the fault is on. */
export const FIRST_COMMAND = /^## First command\n\n```sh\n(.+)\n```\n\nLook for: `(.+)`\n/m;
const SETUP = /^```sh\n([^]*?)^```/m;

/** Runs first commands one after the other, each alert's until it finds the cause. */
export class FirstCommands {
  readonly #folder: string;
  readonly #pods: () => readonly PodState[];
  readonly #log: (line: string) => void;
  #running = Promise.resolve();
  #left = 0;
  /** Whether the command of each alert found the cause. */
  readonly found = new Map<string, boolean>();

  constructor(options: {
    readonly folder: string;
    readonly pods: () => readonly PodState[];
    readonly log: (line: string) => void;
  }) {
    this.#folder = options.folder;
    this.#pods = options.pods;
    this.#log = options.log;
  }

  /** Whether one is still to end. */
  get busy(): boolean {
    return this.#left > 0;
  }

  /** Plans that of an alert that has begun to fire. */
  run(alert: ActiveAlert): void {
    this.#left += 1;
    this.#running = this.#running.then(async () => {
      this.found.set(alert.name, await this.#finds(alert).catch((error: unknown) => this.#failed(error)));
      this.#left -= 1;
    });
  }

  async whenDone(): Promise<void> {
    await this.#running;
  }

  #failed(error: unknown): false {
    this.#log(`  a first command could not be run: ${String(error)}`);
    return false;
  }

  async #finds({ name, labels }: ActiveAlert): Promise<boolean> {
    const [, command, pattern] = FIRST_COMMAND.exec(read(`docs/runbooks/${name}.md`)) ?? [];
    if (command === undefined || pattern === undefined) throw new Error(`the runbook of ${name} has no first command`);
    let output = '';
    for (let reading = 1; reading <= READINGS; reading += 1) {
      output = await this.#terminal(`POD=${labels['pod'] ?? ''}\n${command}`);
      if (new RegExp(pattern, 'm').test(output)) return true;
    }
    this.#log(`  ${name}: nothing matches ${pattern} in:\n${output.slice(-SHOWN_CHARACTERS)}`);
    return false;
  }

  /** Standard output of a terminal into which the functions of the runbooks were pasted. */
  async #terminal(command: string): Promise<string> {
    await mkdir(this.#folder, { recursive: true });
    const [program, pods] = [join(this.#folder, 'kubectl'), join(this.#folder, 'pods.json')];
    await writeFile(program, `#!/bin/sh\nexec '${process.execPath}' '${KUBECTL}' "$@"\n`, { mode: 0o755 });
    await writeFile(pods, JSON.stringify(this.#pods()));
    const [, setup = ''] = SETUP.exec(read('docs/runbooks/README.md')) ?? [];
    const env = {
      PATH: [this.#folder, dirname(process.execPath), '/usr/local/bin:/usr/bin:/bin'].join(':'),
      DRILL_PODS: pods,
    };
    const settings = { env, timeout: COMMAND_TIMEOUT_MS, maxBuffer: MAX_OUTPUT_BYTES };
    return new Promise((resolve) => {
      // A grep that finds nothing is no failure of the terminal.
      execFile('bash', ['-c', `${setup}\n${command}`], settings, (_error, stdout) => resolve(stdout));
    });
  }
}
