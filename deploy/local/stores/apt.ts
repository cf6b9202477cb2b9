// What apt itself knows of this machine, so that no mirror's name stands in the project.

import { readFile } from 'node:fs/promises';
import { endOf } from '../../../tools/program.ts';

/** The lines that an apt program prints; none where there is no apt. */
async function linesOf(program: string, ...args: readonly string[]): Promise<string[]> {
  const { out } = await endOf(program, args).catch(() => ({ out: '' }));
  return out.split('\n').filter((line) => line !== '');
}

/** The mirror from which this machine gets its Debian; undefined on another system. */
export async function machineMirror(): Promise<string | undefined> {
  const release = await readFile('/etc/os-release', 'utf8').catch(() => '');
  if (!/^ID=["']?debian["']?$/m.test(release)) return undefined;
  const format = ['--format', '$(REPO_URI) $(RELEASE)', 'Created-By: Packages'];
  const sources = await linesOf('apt-get', 'indextargets', ...format);
  // Third parties use the names of releases too, but only Debian has `-updates`, or is called so.
  const own =
    sources.find((source) => source.endsWith('-updates')) ??
    sources.find((source) => /\/debian\/? /.test(source));
  return (own ?? sources[0])?.split(' ')[0];
}

/** The machine's settings about expired indexes: a frozen mirror is taken only when told so. */
export async function validityOptions(): Promise<string[]> {
  return (await linesOf('apt-config', 'dump')).filter((line) => line.includes('Check-Valid-Until'));
}
