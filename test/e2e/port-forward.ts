/** Starts `kubectl port-forward` on demand, and again after it has ended. */
import { spawn, type ChildProcess } from 'node:child_process';
import type { Kubectl } from './kubectl.ts';

const START_TIMEOUT_MS = 20_000;

export class PortForward {
  readonly #kubectl: Kubectl;
  readonly #target: string;
  readonly #port: number;
  #child: ChildProcess | undefined;
  #address: Promise<string> | undefined;

  constructor(kubectl: Kubectl, target: string, port: number) {
    this.#kubectl = kubectl;
    this.#target = target;
    this.#port = port;
  }

  /** Resolves to `127.0.0.1:PORT` of the present pod. */
  async address(): Promise<string> {
    this.#address ??= this.#start();
    try {
      return await this.#address;
    } catch (error) {
      this.#address = undefined;
      throw error;
    }
  }

  /** The next `address()` starts a new forward to another pod. */
  close(): void {
    this.#child?.kill('SIGKILL');
    this.#child = undefined;
    this.#address = undefined;
  }

  #start(): Promise<string> {
    const args = [
      '--namespace',
      this.#kubectl.namespace,
      'port-forward',
      this.#target,
      `:${this.#port}`,
    ];
    const child = spawn(this.#kubectl.program, args, {
      env: this.#kubectl.environment,
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    this.#child = child;
    child.once('exit', () => {
      if (this.#child === child) this.close();
    });
    return new Promise((resolve, reject) => {
      let said = '';
      const timer = setTimeout(() => child.kill('SIGKILL'), START_TIMEOUT_MS);
      const hear = (text: Buffer): void => {
        said += text.toString();
        const port = /Forwarding from 127\.0\.0\.1:(\d+)/.exec(said)?.[1];
        if (port === undefined) return;
        clearTimeout(timer);
        resolve(`127.0.0.1:${port}`);
      };
      child.stdout.on('data', hear);
      child.stderr.on('data', hear);
      child.once('error', reject);
      child.once('exit', () => {
        clearTimeout(timer);
        reject(new Error(`port-forward to ${this.#target} ended: ${said}`));
      });
    });
  }
}
