/**
 * What test files need beside Node. Jest leaves out files whose needs are missing, and the summary
 * of `make test` names them.
 */
/* oxlint-disable node/no-process-env -- handed from `make` to Jest and to the closing lines */
import { readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { ROOT } from '../../tools/root.ts';

/** Needs, with the text in a test file that shows each. */
const NEEDS = {
  'MongoDB and Redis': undefined,
  'MongoDB and Redis of our own':
    /deploy\/local\/stores\.ts'|openOwnWorld|faults\/play\.ts'|proof\/controls\.ts'/,
  Linux: /support\/crowd\.ts'/,
  openssl: /'openssl'|support\/(certificate|redis-sets)\.ts'/,
  curl: /testSample\('curl'/,
  'Python 3': /testSample\('Python'/,
  Java: /testSample\('Java'/,
  Prometheus: /local\/prometheus\.ts'/,
  schemathesis: /support\/schemathesis\.ts'/,
  'schemas of Kubernetes': /support\/kubernetes-schemas\.ts'/,
  'JOSE libraries': /support\/jose\.ts'/,
  'generators of clients': /support\/clients\.ts'/,
  'checker of histories': /\/(checker|controls)\.ts'/,
  Helm: /support\/(chart|cluster|keys-world)\.ts'|\.\/rules\.ts'/,
  Chromium: /support\/browser\.ts'/,
  'API server': /support\/(cluster|keys-world)\.ts'|TEST_KUBECONFIG/,
  'API server of our own': /startOwnApiServer/,
} as const;
const ON_STORES = /^test\/(integration|kubernetes|judges\/neighbour)/;
const FOLDERS = ['cmd', 'internal', 'deploy', 'test', 'tools'];
const NOT_OURS = /^test\/(e2e|mongodb)\/|node_modules/;

export type Need = keyof typeof NEEDS;
export const needs = Object.keys(NEEDS) as Need[];

/** Reasons why needs are missing; `cluster` is for `make e2e`. */
export type Obstacles = Readonly<Partial<Record<Need | 'cluster', string>>>;

/** All test files except those in a cluster, with their needs. */
export function testFiles(): { readonly path: string; readonly needs: readonly Need[] }[] {
  return FOLDERS.flatMap((folder) =>
    readdirSync(join(ROOT, folder), { recursive: true, encoding: 'utf8' }).map(
      (name) => `${folder}/${name}`,
    ),
  )
    .filter((path) => path.endsWith('.test.ts') && !NOT_OURS.test(path))
    .map((path) => {
      const text = readFileSync(join(ROOT, path), 'utf8');
      return { path, needs: needs.filter((one) => NEEDS[one]?.test(text) ?? ON_STORES.test(path)) };
    });
}

/** The obstacles that `prepare.ts` found; none if it did not run. */
export function foundObstacles(): Obstacles {
  const file = process.env['TEST_OBSTACLES'] ?? '';
  return file === '' ? {} : (JSON.parse(readFileSync(file, 'utf8')) as Obstacles);
}

export function leftOutFiles(
  obstacles: Obstacles,
): { readonly path: string; readonly lacks: readonly Need[] }[] {
  return testFiles()
    .map((file) => ({
      path: file.path,
      lacks: file.needs.filter((need) => obstacles[need] !== undefined),
    }))
    .filter(({ lacks }) => lacks.length > 0);
}
