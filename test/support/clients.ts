/** Generates clients of the OpenAPI document in three languages, and compiles them. */
import { copyFileSync, mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { cached, installLog } from '../../deploy/local/stores/cache.ts';
import { findProgram, run } from '../../deploy/local/stores/process.ts';
import { generatorIn, typeScriptTools } from '../../tools/lint-openapi.ts';
import { ROOT } from '../../tools/root.ts';

const PART = 'clients-2';
const TIMEOUT_MS = 10 * 60_000;
const PIP = ['openapi-python-client==0.29.1', 'mypy==2.4.1', 'types-python-dateutil'];
/** Of the Java client. */
const POM = join(ROOT, 'test/support/client.pom.xml');

/** Where the generators and compilers of each language are. */
interface Tools {
  readonly typeScript: string;
  readonly others: string;
}

const maven = (tools: string, folder: string, ...options: string[]): string[] => {
  copyFileSync(POM, join(folder, 'pom.xml'));
  const repository = `-Dmaven.repo.local=${join(tools, 'maven')}`;
  return ['mvn', '--batch-mode', repository, '--file', join(folder, 'pom.xml'), ...options];
};

/** The generators and compilers, installed into the cache if missing. Throws if it cannot. */
export async function findGenerators(
  log: (line: string) => void = () => undefined,
): Promise<Tools> {
  for (const program of ['npm', 'python3', 'javac', 'mvn'])
    if ((await findProgram(program)) === undefined)
      throw new Error(`there is no ${program} on the PATH`);
  const typeScript = await typeScriptTools(log);
  const others = await cached(PART, log, async (path) => {
    log('installing what generates clients (once)');
    const step = (...command: string[]): Promise<void> =>
      run({ command, logFile: installLog(PART), env: process.env, timeoutMs: TIMEOUT_MS });
    const [first, python] = [join(path, 'first'), join(path, 'python')];
    mkdirSync(first, { recursive: true });
    await step('python3', '-m', 'venv', python);
    await step(join(python, 'bin/python'), '-m', 'pip', 'install', '--quiet', ...PIP);
    // Maven fetches a plugin only once it works.
    copyFileSync(join(ROOT, 'docs/openapi.json'), join(first, 'openapi.json'));
    await step(...maven(path, first, 'compile'));
  });
  return { typeScript, others };
}

/** The commands that generate and compile a client in `folder`, which has `openapi.json`. */
export const clients: Readonly<
  Record<string, { file: string; commands: (tools: Tools, folder: string) => string[][] }>
> = {
  TypeScript: {
    file: 'use.ts',
    commands: ({ typeScript }, folder) => [
      [
        process.execPath,
        generatorIn(typeScript),
        join(folder, 'openapi.json'),
        `--output=${join(folder, 'schema.d.ts')}`,
      ],
      [
        process.execPath,
        join(typeScript, 'node_modules/typescript/bin/tsc'),
        '--strict',
        '--noEmit',
        '--exactOptionalPropertyTypes',
        join(folder, 'use.ts'),
      ],
    ],
  },
  Python: {
    file: 'use.py',
    commands: ({ others }, folder) => {
      const python = join(others, 'python/bin/python');
      const output = join(folder, 'ingest');
      const strict = '-m mypy --strict --no-incremental --follow-imports=silent'.split(' ');
      const generate = [python, '-m', 'openapi_python_client', 'generate', '--fail-on-warning'];
      return [
        [
          ...generate,
          '--meta=none',
          `--path=${join(folder, 'openapi.json')}`,
          `--output-path=${output}`,
        ],
        // The generator's own base class is not strict.
        [
          python,
          ...strict,
          ...['use.py', 'ingest/models', 'ingest/api'].map((name) => join(folder, name)),
        ],
      ];
    },
  },
  Java: {
    file: 'src/main/java/Use.java',
    commands: ({ others }, folder) => [maven(others, folder, '--offline', 'compile')],
  },
};
