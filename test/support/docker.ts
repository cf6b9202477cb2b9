/** The Docker engine of this machine, by its command line. */
import { run } from '../../tools/release/shell.ts';

export async function docker(...args: readonly string[]): Promise<string> {
  return (await run('docker', args)).trim();
}

/**
 * Build arguments: where the base image comes from is the machine's business, as in the Makefile.
 */
export function baseImageArguments(): string[] {
  const base = process.env['BASE_IMAGE'] ?? '';
  return base === '' ? [] : ['--build-arg', `BASE_IMAGE=${base}`];
}
