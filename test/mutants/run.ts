/**
 * Applies each mutant to a copy of the working tree and runs its tests there: each must turn red.
 * Prints a table and ends red if one survives. A test must first be green without a mutant, because
 * a test that is red anyway shows nothing.
 */
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { parseArgs, styleText } from 'node:util';
import { startMongo, startRedis, type Store } from '../../deploy/local/stores.ts';
import { duration, table } from '../../internal/platform/terminal.ts';
import { copyTree, type Copy, type Outcome } from './copy.ts';
import { mutants } from './list.ts';
import { draw, mutated, type Mutant } from './mutant.ts';

/** As many tests at a time as the machines have cores that this is made for. */
const COPIES = 2;
const DRAWN = 10;
/** Characters of a change that the table shows, and how many of them before it. */
const SHOWN = 30;
const CONTEXT = 10;

const colours = {
  red: 'green',
  survived: 'red',
  invalid: 'red',
  'left out': 'yellow',
} as const;

interface Tried {
  readonly mutant: Mutant;
  readonly verdict: keyof typeof colours;
  /** The tests that turned red, or what is wrong. */
  readonly words: string;
  readonly milliseconds: number;
}

const say = (line: string): void => void process.stderr.write(`${line}\n`);

function chosen(commit: string, count: number): readonly Mutant[] {
  if (!Number.isInteger(count) || count < 1) throw new Error('COUNT must be a whole number from 1');
  return commit === '' ? mutants : draw(mutants, commit, count);
}

const needsStores = (test: string): boolean => /^test\/(integration|kubernetes)\//.test(test);

class Trial {
  readonly #stores: NodeJS.ProcessEnv;
  readonly #signal: AbortSignal;
  /** How each test ends without a mutant. */
  readonly #unchanged = new Map<string, Promise<Outcome>>();

  constructor(stores: NodeJS.ProcessEnv, signal: AbortSignal) {
    this.#stores = stores;
    this.#signal = signal;
  }

  async try(mutant: Mutant, copy: Copy): Promise<Tried> {
    const startedAt = performance.now();
    const tried = (verdict: Tried['verdict'], words: string): Tried => ({
      mutant,
      verdict,
      words,
      milliseconds: performance.now() - startedAt,
    });
    const path = join(copy.folder, mutant.file);
    const text = await readFile(path, 'utf8');
    const changed = mutated(text, mutant);
    if (changed === undefined) return tried('invalid', 'its text does not occur exactly once');
    const unchanged = await this.#withoutMutant(mutant.test, copy);
    if (unchanged.result === 'nothing ran')
      return tried('left out', 'its test is skipped on this machine');
    if (unchanged.result !== 'green')
      return tried('invalid', `red without it: ${unchanged.failed.join('; ')}`);
    await writeFile(path, changed);
    try {
      const { result, failed } = await this.#run(mutant.test, copy);
      if (result === 'broken')
        return tried('invalid', `with it nothing runs: ${failed.join(', ')}`);
      return result === 'red' ? tried('red', failed.join('; ')) : tried('survived', mutant.why);
    } finally {
      await writeFile(path, text);
    }
  }

  #withoutMutant(test: string, copy: Copy): Promise<Outcome> {
    const known = this.#unchanged.get(test) ?? this.#run(test, copy);
    this.#unchanged.set(test, known);
    return known;
  }

  #run(test: string, copy: Copy): Promise<Outcome> {
    const stores = needsStores(test) ? this.#stores : { PARTNER_INGEST_TEST_STORES: 'none' };
    return copy.test(test, { ...process.env, ...stores }, this.#signal);
  }
}

async function startStores(
  wanted: readonly Mutant[],
): Promise<readonly [Store, Store] | readonly []> {
  if (!wanted.some(({ test }) => needsStores(test))) return [];
  return Promise.all([
    startMongo({ url: process.env['MONGODB_URI'], log: say }),
    startRedis({ url: process.env['REDIS_URL'], log: say }),
  ]);
}

async function tryAll(wanted: readonly Mutant[], signal: AbortSignal): Promise<Tried[]> {
  const stores = await startStores(wanted);
  const [mongo, redis] = stores;
  const copies = await Promise.all(
    Array.from({ length: Math.min(COPIES, wanted.length) }, copyTree),
  );
  const trial = new Trial({ MONGODB_URI: mongo?.url, REDIS_URL: redis?.url }, signal);
  const all: Tried[] = [];
  const left = [...wanted];
  const work = async (copy: Copy): Promise<void> => {
    for (
      let mutant = left.shift();
      mutant !== undefined && !signal.aborted;
      mutant = left.shift()
    ) {
      const tried = await trial.try(mutant, copy);
      if (signal.aborted) return;
      all.push(tried);
      const { verdict, milliseconds } = tried;
      say(
        `${all.length}/${wanted.length}  ${verdict.padEnd(8)}  ${mutant.file}  ${duration(milliseconds)}`,
      );
    }
  };
  try {
    await Promise.all(copies.map(work));
  } finally {
    await Promise.all([
      ...copies.map((copy) => copy.remove()),
      ...stores.map((store) => store.stop()),
    ]);
  }
  return wanted.flatMap((mutant) => all.filter((tried) => tried.mutant === mutant));
}

const short = (text: string, length: number): string => {
  const line = text.replaceAll(/\s+/g, ' ').trim();
  return line.length > length ? `${line.slice(0, length - 1)}…` : line;
};

/** What differs, from a few characters before it on. */
function changeOf({ find, replace }: Mutant): string {
  const differsAt = find.split('').findIndex((character, index) => character !== replace[index]);
  const from = Math.max(0, (differsAt === -1 ? find.length : differsAt) - CONTEXT);
  return `${short(find.slice(from), SHOWN)} → ${short(replace.slice(from), SHOWN)}`;
}

function tableOf(all: readonly Tried[]): string {
  const rows = all.map(({ mutant, verdict, words, milliseconds }) => [
    styleText(colours[verdict], verdict),
    mutant.file.split('/').at(-1) ?? '',
    changeOf(mutant),
    duration(milliseconds),
    short(words, 60),
  ]);
  return table(
    [['verdict', 'file', 'change', 'time', 'what turned red, or is wrong'], ...rows],
    '',
  );
}

async function main(): Promise<number> {
  const { values } = parseArgs({
    options: {
      draw: { type: 'string', default: '' },
      count: { type: 'string', default: '' },
    },
  });
  const wanted = chosen(values.draw, values.count === '' ? DRAWN : Number(values.count));
  const stop = new AbortController();
  for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => stop.abort());
  const startedAt = performance.now();
  const all = await tryAll(wanted, stop.signal);
  const counts = Object.keys(colours).map(
    (verdict) => `${all.filter((tried) => tried.verdict === verdict).length} ${verdict}`,
  );
  const good =
    all.length === wanted.length &&
    all.every(({ verdict }) => verdict === 'red' || verdict === 'left out');
  const took = styleText('dim', `in ${duration(performance.now() - startedAt)}`);
  console.log(
    `\n${tableOf(all)}\n\n${styleText(good ? 'green' : 'red', counts.join(', '))} ${took}`,
  );
  return good ? 0 : 1;
}

process.exitCode = await main().catch((error: unknown) => {
  console.error(error instanceof Error ? error.message : error);
  return 2;
});
