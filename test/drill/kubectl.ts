/**
 * `kubectl` for the drill's machine, which has no cluster: the forms that first commands of runbooks use, answered from the
 * processes that run here. Whatever else it is asked is an error. DRILL_PODS names a file with an array of PodState.
 */
/* oxlint-disable node/no-process-env -- this is a program of its own */
import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import type { PodState } from './pods.ts';

const PROJECT = fileURLToPath(new URL('../..', import.meta.url));
const READY_TIMEOUT_MS = 2_000;
/** The chart's `adminPort`, which each process has as a port of its own here. */
const ADMIN_PORT = /\b9090\b/g;
const UNITS: Readonly<Record<string, number>> = { s: 1_000, m: 60_000, h: 3_600_000 };

class Refused extends Error {}

const pods = JSON.parse(readFileSync(process.env['DRILL_PODS'] ?? '', 'utf8')) as readonly PodState[];

function print(lines: readonly string[]): void {
  if (lines.length > 0) console.log(lines.join('\n'));
}

/** The value of `-l x`, `--tail=5`, `-o name`; undefined where the option is not there. */
function option(words: readonly string[], name: string): string | undefined {
  const index = words.findIndex((word) => word === name || word.startsWith(`${name}=`));
  if (index === -1) return undefined;
  return words[index] === name ? words[index + 1] : words[index]?.slice(name.length + 1);
}

function selected(words: readonly string[]): readonly PodState[] {
  const selector = option(words, '-l') ?? '';
  const [, component] = /^app\.kubernetes\.io\/component=(\w+)$/.exec(selector) ?? [];
  if (component !== undefined) return pods.filter((pod) => pod.component === component);
  if (selector.startsWith('app.kubernetes.io/instance=')) return pods;
  throw new Refused(`the drill has no selector ${selector}`);
}

function named(name: string): PodState {
  const pod = pods.find((one) => one.name === name.replace(/^pod\//, ''));
  if (pod === undefined) throw new Refused(`Error from server (NotFound): pods "${name}" not found`);
  return pod;
}

async function isReady({ running, adminPort }: PodState): Promise<boolean> {
  if (!running) return false;
  const signal = AbortSignal.timeout(READY_TIMEOUT_MS);
  return fetch(`http://127.0.0.1:${adminPort}/readyz`, { signal }).then(
    ({ ok }) => ok,
    () => false,
  );
}

async function getDeployments(words: readonly string[]): Promise<void> {
  const [, name] = words;
  const all =
    name?.startsWith('-') === false ? pods.filter((pod) => name.endsWith(`-${pod.component}`)) : selected(words);
  print(['NAME                        READY   UP-TO-DATE   AVAILABLE   AGE']);
  for (const [component, members] of Object.entries(Object.groupBy(all, (pod) => pod.component))) {
    const ready = (await Promise.all((members ?? []).map(isReady))).filter(Boolean).length;
    const count = members?.length ?? 0;
    print([
      `${`partner-ingest-${component}`.padEnd(28)}${ready}/${count}     ${count}            ${ready}           1h`,
    ]);
  }
}

async function get(words: readonly string[]): Promise<void> {
  const [kind] = words;
  const output = option(words, '-o');
  if (kind === 'pods' && output === 'name') print(selected(words).map(({ name }) => `pod/${name}`));
  else if (kind === 'pod' && output === 'jsonpath={.status.containerStatuses[*].lastState}') {
    process.stdout.write(JSON.stringify(named(words[1] ?? '').previous?.lastState ?? {}));
  } else if (kind === 'deploy' && output === undefined) await getDeployments(words);
  else if (kind === 'events') console.error('No resources found');
  else throw new Refused(`the drill has no get ${words.join(' ')}`);
}

function logs(words: readonly string[]): void {
  const [, count = '1', unit = 'h'] = /^(\d+)([smh])$/.exec(option(words, '--since') ?? '') ?? [];
  const since = Date.now() - Number(count) * (UNITS[unit] ?? 0);
  // As kubectl does with a selector that is given no --tail.
  const tail = Number(option(words, '--tail') ?? (words.includes('-l') ? 10 : -1));
  const [name] = words;
  const from = name?.startsWith('-') === false ? [named(name)] : selected(words);
  for (const pod of from) {
    const all = words.includes('--previous') ? pod.previous?.log : pod.log;
    if (all === undefined) throw new Refused(`previous terminated container in pod "${pod.name}" not found`);
    const lines = all.filter((line) => Date.parse(/"time":"([^"]+)"/.exec(line)?.[1] ?? '') >= since);
    print(tail < 0 ? lines : lines.slice(-tail));
  }
}

/** Runs the words after `--` with the environment of the pod's process. */
function exec(words: readonly string[]): number {
  const target = words.find((word) => !word.startsWith('-')) ?? '';
  const [, component] = /^deploy\/partner-ingest-(\w+)$/.exec(target) ?? [];
  const pod = component === undefined ? named(target) : pods.find((one) => one.component === component && one.running);
  if (pod?.running !== true) throw new Refused('error: timed out waiting for the condition');
  const [program, ...rest] = words.slice(words.indexOf('--') + 1);
  if (program !== 'partner-ingest' && program !== 'node') throw new Refused(`the drill has no program ${program}`);
  const args = program === 'node' ? rest.map((word) => word.replaceAll(ADMIN_PORT, String(pod.adminPort))) : rest;
  const env = { PATH: process.env['PATH'], ...pod.environment };
  const command = program === 'node' ? args : ['cmd/cli/main.ts', ...args];
  return spawnSync(process.execPath, command, { cwd: PROJECT, env, stdio: 'inherit' }).status ?? 1;
}

async function main(given: readonly string[]): Promise<number> {
  const [verb, ...words] = given[0] === '-n' ? given.slice(2) : given;
  if (verb === 'exec') return exec(words);
  if (verb === 'get') await get(words);
  else if (verb === 'logs') logs(words);
  else throw new Refused(`the drill has no ${verb}`);
  return 0;
}

process.exitCode = await main(process.argv.slice(2)).catch((error: unknown) => {
  console.error(error instanceof Refused ? error.message : error);
  return 1;
});
