/**
 * Helm for the chart's tests: the machine's, 3 or 4, else Helm 4, built from its Go module into the
 * project's cache.
 */
import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { cacheDir, cached, exists, installLog } from '../../deploy/local/stores/cache.ts';
import { buildGoProgram } from '../../deploy/local/stores/go.ts';
import { findProgram } from '../../deploy/local/stores/process.ts';

const VERSION = 'v4.3.1';

export interface Helm {
  readonly program: string;
}

/**
 * Looks at HELM, on the PATH and in our cache; with `build` then builds it, telling that of its
 * progress. A text says why there is none. Tests do not build: `make test` did before it started
 * them.
 */
export async function findHelm(build?: (line: string) => void): Promise<Helm | string> {
  const given = process.env['HELM'] ?? '';
  const part = `helm-${VERSION}`;
  const candidates = [
    given,
    (await findProgram('helm')) ?? '',
    join(cacheDir(), part, 'helm'),
  ].filter((program) => program !== '');
  for (const program of candidates) {
    if (await isHelm(program)) return { program };
    if (program === given) return `HELM is set to ${given}, which is neither Helm 3 nor 4`;
  }
  const none = 'no Helm: HELM is not set, and neither the PATH nor our cache has one';
  if (build === undefined) return `${none}; \`make prepare\` builds it`;
  if ((await findProgram('go')) === undefined) return `${none}, nor is there Go to build it`;
  try {
    const program = { name: `Helm ${VERSION}`, source: `helm.sh/helm/v4/cmd/helm@${VERSION}` };
    const folder = await cached(part, build, (path) =>
      buildGoProgram(program, path, { log: build, logFile: installLog(part) }),
    );
    return { program: join(folder, 'helm') };
  } catch (error) {
    return `${none}, and building it failed: ${String((error as Error).cause ?? error)}`;
  }
}

async function isHelm(program: string): Promise<boolean> {
  if (!(await exists(program))) return false;
  const { stdout } = await promisify(execFile)(program, ['version', '--short'], {
    timeout: 20_000,
  });
  return /^v[34]\./.test(stdout);
}
