/**
 * Applies each mutant to a copy of the working tree and runs its test, which must turn red. The
 * test must be green without the mutant.
 */
import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { cp, mkdtemp, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, relative } from 'node:path';
import { parseArgs, styleText } from 'node:util';
import { ROOT } from '../../tools/root.ts';
import { startMongo, startRedis } from '../../deploy/local/stores.ts';
import { duration } from '../../internal/operators/view/terminal.ts';
import { mutants, mutated, type Mutant } from './list.ts';

/** The number of cores of the machines that run it. */
const COPIES = 2;
const DRAWN = 10;
const RUN_DEADLINE_MS = 300_000;

const colours = { red: 'green', survived: 'red', invalid: 'red', 'left out': 'yellow' } as const;
type Verdict = keyof typeof colours;

const say = (line: string): void => void process.stderr.write(`${line}\n`);
const stop = new AbortController();
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => stop.abort());

const { values: flags } = parseArgs({
  options: { draw: { type: 'string', default: '' }, count: { type: 'string', default: '' } },
});
const rank = ({ file, find, replace }: Mutant): string =>
  createHash('sha256').update([flags.draw, file, find, replace].join('\0')).digest('hex');
/** All mutants, or always the same few for a commit. */
const wanted =
  flags.draw === ''
    ? mutants
    : mutants
        .toSorted((one, other) => (rank(one) < rank(other) ? -1 : 1))
        .slice(0, Number(flags.count === '' ? DRAWN : flags.count));
const left = [...wanted];

/** Copies the working tree; packages are shared. */
async function copyTree(): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'mutants-'));
  const isOurs = (path: string): boolean =>
    !/^(node_modules|dist|coverage|\.git|\.run)$/.test(relative(ROOT, path));
  await cp(ROOT, folder, { recursive: true, filter: isOurs });
  await symlink(join(ROOT, 'node_modules'), join(folder, 'node_modules'));
  return folder;
}

type Outcome = 'green' | 'red' | 'broken' | 'nothing ran';

/** Runs a test file; `broken` means that it could not be loaded. */
async function runTest(folder: string, test: string, stores: NodeJS.ProcessEnv): Promise<Outcome> {
  const results = join(folder, '.mutant-results.json');
  await rm(results, { force: true });
  const options = ['--ci', '--passWithNoTests', '--json', `--outputFile=${results}`, '--runInBand'];
  const child = spawn('npm', ['run', '-s', 'jest', '--', ...options, '--runTestsByPath', test], {
    cwd: folder,
    env: { ...process.env, ...stores },
    stdio: 'ignore',
    // A process group of its own, so that its children end with it.
    detached: true,
  });
  const end = (): void => {
    if (child.pid !== undefined && child.exitCode === null) process.kill(-child.pid, 'SIGKILL');
  };
  const timer = setTimeout(end, RUN_DEADLINE_MS);
  stop.signal.addEventListener('abort', end);
  const code = await new Promise<number | null>((resolve, reject) => {
    child.once('error', reject).once('close', resolve);
  });
  clearTimeout(timer);
  stop.signal.removeEventListener('abort', end);
  const text = await readFile(results, 'utf8').catch(() => undefined);
  // Jest does not find a test file that this machine cannot run.
  if (text === undefined) return code === 0 ? 'nothing ran' : 'red';
  const told = JSON.parse(text) as { numPassedTests: number; numFailedTests: number };
  if (told.numFailedTests > 0) return 'red';
  if (code !== 0) return 'broken';
  return told.numPassedTests === 0 ? 'nothing ran' : 'green';
}

const needsStores = (test: string): boolean => /^test\/(integration|kubernetes)\//.test(test);
/** Results without a mutant. */
const unchanged = new Map<string, Promise<Outcome>>();

async function tryOne(
  mutant: Mutant,
  folder: string,
  stores: NodeJS.ProcessEnv,
): Promise<readonly [Verdict, string]> {
  const run = (): Promise<Outcome> =>
    runTest(
      folder,
      mutant.test,
      needsStores(mutant.test) ? stores : { PARTNER_INGEST_TEST_STORES: 'none' },
    );
  const path = join(folder, mutant.file);
  const text = await readFile(path, 'utf8');
  const changed = mutated(text, mutant);
  if (changed === undefined) return ['invalid', 'its text does not occur exactly once'];
  const before = unchanged.get(mutant.test) ?? run();
  unchanged.set(mutant.test, before);
  if ((await before) === 'nothing ran') return ['left out', 'its test does not run here'];
  if ((await before) !== 'green') return ['invalid', 'its test is red without it'];
  await writeFile(path, changed);
  try {
    const outcome = await run();
    if (outcome === 'red') return ['red', ''];
    return outcome === 'broken' ? ['invalid', 'with it nothing runs'] : ['survived', mutant.why];
  } finally {
    await writeFile(path, text);
  }
}

async function tryAll(): Promise<Verdict[]> {
  const verdicts: Verdict[] = [];
  const servers = wanted.some(({ test }) => needsStores(test))
    ? await Promise.all([
        startMongo({ url: process.env['MONGODB_URI'], log: say }),
        startRedis({ url: process.env['REDIS_URL'], log: say }),
      ])
    : [];
  const stores = { MONGODB_URI: servers[0]?.url, REDIS_URL: servers[1]?.url };
  const folders = await Promise.all(Array.from({ length: COPIES }, copyTree));
  const work = async (folder: string): Promise<void> => {
    for (
      let mutant = left.shift();
      mutant !== undefined && !stop.signal.aborted;
      mutant = left.shift()
    ) {
      const startedAt = performance.now();
      const [verdict, words] = await tryOne(mutant, folder, stores);
      if (stop.signal.aborted) return;
      verdicts.push(verdict);
      const place = `${verdicts.length}/${wanted.length}`;
      const took = duration(performance.now() - startedAt);
      const change = `${mutant.file}: ${JSON.stringify(mutant.find)}`;
      say(`${place}  ${styleText(colours[verdict], verdict)}  ${change}  ${took}  ${words}`);
    }
  };
  try {
    await Promise.all(folders.map(work));
  } finally {
    await Promise.all(folders.map((folder) => rm(folder, { recursive: true, force: true })));
    await Promise.all(servers.map((server) => server.stop()));
  }
  return verdicts;
}

const startedAt = performance.now();
const verdicts = await tryAll();
const isGood = (verdict: Verdict): boolean => verdict === 'red' || verdict === 'left out';
const good = verdicts.length === wanted.length && verdicts.every(isGood);
const counts = Object.entries(Object.groupBy(verdicts, (verdict) => verdict)).map(
  ([verdict, some]) => `${some.length} ${verdict}`,
);
const took = styleText('dim', `in ${duration(performance.now() - startedAt)}`);
console.log(`\n${styleText(good ? 'green' : 'red', counts.join(', '))} ${took}`);
process.exitCode = good ? 0 : 1;
