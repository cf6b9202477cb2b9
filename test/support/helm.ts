/**
 * Helm for the chart's tests: the machine's, else one built from its Go module into the project's
 * cache.
 */
import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { cacheDir, cached, exists, installLog } from '../../deploy/local/stores/cache.ts';
import { buildGoProgram } from '../../deploy/local/stores/go.ts';
import { findProgram } from '../../deploy/local/stores/process.ts';

/**
 * Helm 3 knows which Kubernetes it renders for from its linker flags alone; without them it says
 * 1.20, and the chart refuses that.
 */
const KUBERNETES_MINOR = 34;
const kubernetesOf = (variable: string): string =>
  `-X ${variable}.k8sVersionMajor=1 -X ${variable}.k8sVersionMinor=${KUBERNETES_MINOR}`;
const BUILDS = {
  3: {
    module: 'helm.sh/helm/v3',
    version: 'v3.19.5',
    flags: ['helm.sh/helm/v3/pkg/lint/rules', 'helm.sh/helm/v3/pkg/chartutil']
      .map(kubernetesOf)
      .join(' '),
  },
  4: { module: 'helm.sh/helm/v4', version: 'v4.3.1', flags: '' },
};

export type HelmMajor = keyof typeof BUILDS;

export interface Helm {
  readonly program: string;
  /** Such as `v3.19.5`. */
  readonly version: string;
}

/**
 * Looks at HELM (for 4: HELM4), on the PATH and in our cache; with `build` then builds it, telling
 * that of its progress. A text says why there is none. Tests do not build: `make test` did before
 * it started them.
 */
export async function findHelm(
  major: HelmMajor,
  build?: (line: string) => void,
): Promise<Helm | string> {
  const variable = major === 3 ? 'HELM' : 'HELM4';
  const given = process.env[variable];
  const { module, version, flags } = BUILDS[major];
  const part = `helm-${version}-kubernetes-1.${KUBERNETES_MINOR}`;
  const candidates = [
    given ?? '',
    (await findProgram('helm')) ?? '',
    join(cacheDir(), part, 'helm'),
  ];
  for (const program of candidates) {
    const found = program === '' ? undefined : await versionOf(program);
    if (found?.startsWith(`v${major}.`) === true) return { program, version: found };
    if (program === given) return `${variable} is set to ${given}, which is no Helm ${major}`;
  }
  const none = `no Helm ${major}: ${variable} is not set, and neither the PATH nor our cache has one`;
  if (build === undefined) return `${none}; \`make prepare\` builds it`;
  if ((await findProgram('go')) === undefined) return `${none}, nor is there Go to build it`;
  try {
    const program = {
      name: `Helm ${version}`,
      source: `${module}/cmd/helm@${version}`,
      linkerFlags: flags,
    };
    const folder = await cached(part, build, (path) =>
      buildGoProgram(program, path, { log: build, logFile: installLog(part) }),
    );
    return { program: join(folder, 'helm'), version };
  } catch (error) {
    return `${none}, and building it failed: ${String((error as Error).cause ?? error)}`;
  }
}

async function versionOf(program: string): Promise<string | undefined> {
  if (!(await exists(program))) return undefined;
  const { stdout } = await promisify(execFile)(program, ['version', '--short'], {
    timeout: 20_000,
  });
  return stdout.trim().split('+')[0];
}
