/**
 * Checks that openapi-typescript reads docs/openapi.json without a warning; says so where it cannot
 * be had.
 */
import { join } from 'node:path';
import { styleText } from 'node:util';
import { cached, installLog } from '../deploy/local/stores/cache.ts';
import { run } from '../deploy/local/stores/process.ts';
import { messageOf } from '../deploy/local/stores/wait.ts';
import { endOf } from './program.ts';
import { ROOT } from './root.ts';

const GENERATOR = 'openapi-typescript@7.13.0';
const PART = GENERATOR.replace('@', '-');
const TIMEOUT_MS = 5 * 60_000;

/**
 * The folder of openapi-typescript and of the compiler that it works with, which is older than
 * ours: installed into the cache if missing. Throws if it cannot.
 */
export const typeScriptTools = (log: (line: string) => void): Promise<string> =>
  cached(PART, log, async (path) => {
    log('installing openapi-typescript (once)');
    const packages = [GENERATOR, 'typescript@5.9.3'];
    const command = ['npm', 'install', '--prefix', path, '--no-audit', '--no-fund', ...packages];
    await run({ command, logFile: installLog(PART), env: process.env, timeoutMs: TIMEOUT_MS });
  });

export const generatorIn = (tools: string): string =>
  join(tools, 'node_modules/openapi-typescript/bin/cli.js');

async function lint(): Promise<void> {
  let tools: string;
  try {
    tools = await typeScriptTools((line) => console.log(line));
  } catch (error) {
    console.log(styleText('yellow', `left out: ${messageOf(error)}`));
    return;
  }
  const args = [generatorIn(tools), join(ROOT, 'docs/openapi.json')];
  const { code, out, err } = await endOf(process.execPath, args);
  const warnings = err.split('\n').filter((line) => /warn|error|⚠|✘/i.test(line));
  if (code === 0 && warnings.length === 0 && out.includes('export interface paths')) return;
  console.error(`openapi-typescript of docs/openapi.json:\n${err}`);
  process.exitCode = 1;
}

if (import.meta.main) await lint();
