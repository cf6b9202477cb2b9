/**
 * Fetches and builds what tests need before the first test, and writes down what is missing. `node
 * test/support/prepare.ts FILE [--needs NAMES | PATTERN …]` takes Jest's patterns. With
 * REQUIRE_ALL=1 it exits with 1 if anything is missing.
 */
/* oxlint-disable node/no-process-env -- stores, an API server and programs may be given by the environment */
import { mkdirSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { styleText } from 'node:util';
import { ROOT } from '../../tools/root.ts';
import { prometheusPrograms } from '../../deploy/local/prometheus.ts';
import { installStores } from '../../deploy/local/stores.ts';
import { findProgram, succeeds } from '../../deploy/local/stores/process.ts';
import { messageOf } from '../../deploy/local/stores/wait.ts';
import { goProgram } from '../../tools/go-program.ts';
import { noCluster } from '../e2e/cluster.ts';
import { findChecker } from '../proof/checker.ts';
import { installBrowser } from './browser.ts';
import { findGenerators } from './clients.ts';
import { findVerifiers } from './jose.ts';
import { findSchemas } from './kubernetes-schemas.ts';
import { needs, testFiles, type Need, type Obstacles } from './needs.ts';
import { findSchemathesis } from './schemathesis.ts';

type Log = (line: string) => void;
/** Returns or throws why it is missing, or returns undefined. */
type Prepare = (log: Log) => Promise<string | undefined>;

const given = (name: string): string | undefined => {
  const value = process.env[name];
  return value === '' ? undefined : value;
};
const variable = (name: string): string | undefined =>
  given(name) === undefined ? `${name} is not set` : undefined;
const answers = async (program: string, args: readonly string[]): Promise<string | undefined> =>
  (await succeeds([program, ...args])) ? undefined : `${program} ${args.join(' ')} does not work`;
const stores = async (urls: Parameters<typeof installStores>[0], log: Log): Promise<undefined> => {
  await installStores(urls, log);
};

const PREPARE: Readonly<Record<Need | 'cluster', Prepare>> = {
  'MongoDB and Redis': (log) =>
    stores({ mongo: given('MONGODB_URI'), redis: given('REDIS_URL') }, log),
  'MongoDB and Redis of our own': (log) => stores({}, log),
  Linux: async () => (process.platform === 'linux' ? undefined : `this is ${process.platform}`),
  openssl: async () =>
    (await findProgram('openssl')) === undefined ? 'there is no openssl on the PATH' : undefined,
  // Older versions lack this option.
  curl: () => answers('curl', ['--retry-all-errors', '--version']),
  'Python 3': () => answers('python3', ['--version']),
  Java: () => answers('java', ['--version']),
  Prometheus: async (log) => void (await prometheusPrograms(log)),
  schemathesis: async (log) => void (await findSchemathesis(log)),
  'schemas of Kubernetes': async (log) => void (await findSchemas(log)),
  'JOSE libraries': async (log) => void (await findVerifiers(log)),
  'generators of clients': async (log) => void (await findGenerators(log)),
  'checker of histories': async (log) => void (await findChecker(log)),
  Helm: async (log) => void (await goProgram('helm', log)),
  Chromium: installBrowser,
  'API server': async () => variable('TEST_KUBECONFIG'),
  'API server of our own': async () => variable('TEST_API_SERVER_COMMAND'),
  cluster: noCluster,
};

async function prepare(names: readonly (Need | 'cluster')[]): Promise<Obstacles> {
  const begin = performance.now();
  const say = (line: string): void =>
    console.log(
      styleText(
        'dim',
        `${((performance.now() - begin) / 1_000).toFixed(0).padStart(4)} s  ${line}`,
      ),
    );
  const told = new Set<string>();
  const once = (line: string): void => {
    if (told.has(line)) return;
    told.add(line);
    say(line);
  };
  const found = await Promise.all(
    names.map(async (name) => {
      const obstacle = await PREPARE[name](once).catch(messageOf);
      say(obstacle === undefined ? `ready: ${name}` : `not to be had: ${name}`);
      return [name, obstacle] as const;
    }),
  );
  return Object.fromEntries(found.filter(([, obstacle]) => obstacle !== undefined));
}

function wanted(args: readonly string[]): (Need | 'cluster')[] {
  const [first, names = ''] = args;
  if (first === '--needs') return needs.filter((need) => names.split(',').includes(need));
  const patterns = args.map((pattern) => new RegExp(pattern, 'i'));
  const chosen = testFiles().filter(
    ({ path }) => patterns.length === 0 || patterns.some((one) => one.test(join(ROOT, path))),
  );
  const needed = new Set(chosen.flatMap((file) => file.needs));
  return [
    ...needs.filter((need) => needed.has(need)),
    ...(patterns.length === 0 ? (['cluster'] as const) : []),
  ];
}

const [file = '', ...args] = process.argv.slice(2);
const obstacles = await prepare(wanted(args));
mkdirSync(dirname(file), { recursive: true });
writeFileSync(file, JSON.stringify(obstacles, null, 2));
const missing = Object.entries(obstacles);
if (missing.length > 0 && (given('REQUIRE_ALL') !== undefined || args[0] === '--needs')) {
  console.error(
    styleText(
      'red',
      `missing:\n${missing.map(([name, reason]) => `  - ${name}: ${reason}`).join('\n')}`,
    ),
  );
  process.exitCode = 1;
}
