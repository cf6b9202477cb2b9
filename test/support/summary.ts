/** The closing lines of `make test`: what passed, what failed, and what this machine could not run and why. */
import { existsSync, readFileSync } from 'node:fs';
import { connect } from 'node:net';
import { prometheusPrograms } from '../../deploy/local/prometheus.ts';
import { paint } from '../../internal/platform/terminal.ts';
import { noCluster } from '../e2e/cluster.ts';
import { NO_API_SERVER } from './api-server.ts';
import { findHelm } from './helm.ts';

interface JestResults {
  readonly numPassedTests: number;
  readonly numFailedTests: number;
  readonly numPendingTests: number;
  readonly numRuntimeErrorTestSuites: number;
  readonly startTime: number;
  readonly testResults: readonly {
    readonly name: string;
    readonly assertionResults: readonly { readonly status: string; readonly fullName: string }[];
  }[];
}

const DOCKER_SOCKET = '/var/run/docker.sock';

/** `e2eFile` holds the results of the tests in a cluster, where they were run. */
async function main(file: string, e2eFile: string): Promise<number> {
  const results = JSON.parse(readFileSync(file, 'utf8')) as JestResults;
  const e2e = existsSync(e2eFile) ? (JSON.parse(readFileSync(e2eFile, 'utf8')) as JestResults) : undefined;
  const runs = e2e === undefined ? [results] : [results, e2e];
  const passed = runs.reduce((sum, run) => sum + run.numPassedTests, 0);
  const failed = runs.reduce((sum, run) => sum + run.numFailedTests + run.numRuntimeErrorTestSuites, 0);
  const seconds = Math.round((Date.now() - results.startTime) / 1_000);
  const skipped = results.testResults.flatMap(({ name, assertionResults }) =>
    assertionResults
      .filter(({ status }) => status === 'pending')
      .map(({ fullName }) => ({ fullName, room: /\/test\/(kubernetes|chart)\//.exec(name)?.[1] })),
  );
  const skippedIn = (room: string): number => skipped.filter((each) => each.room === room).length;
  const leftOut = [
    ...(skippedIn('kubernetes') > 0 ? [`${skippedIn('kubernetes')} tests with an API server: ${NO_API_SERVER}`] : []),
    ...(skippedIn('chart') > 0 ? [`${skippedIn('chart')} tests of the chart`] : []),
    ...skipped.filter(({ room }) => room === undefined).map(({ fullName }) => `skipped: ${fullName}`),
    ...(e2e === undefined ? [`tests in a Kubernetes cluster (make e2e): ${await whyNoE2e()}`] : []),
    ...[await findHelm(3, false), await findHelm(4)].filter((helm) => typeof helm === 'string'),
    ...((await dockerAnswers()) ? [] : ['stores in Docker containers: no Docker engine answers on this machine']),
  ];
  const noPrometheus = await prometheusPrograms(() => undefined).then(
    () => [],
    (error: Error) => [`alert rules and the dashboard's queries: ${error.message}`],
  );
  leftOut.push(...noPrometheus);
  console.log(`\n${paint('yellow', 'left out:')}\n${leftOut.map((reason) => `  - ${reason}`).join('\n')}\n`);
  if (results.numPendingTests > 0) console.log(paint('yellow', `${results.numPendingTests} skipped`));
  const line = `${passed} passed, ${failed} failed`;
  console.log(`${paint(failed === 0 ? 'green' : 'red', line)} ${paint('dim', `in ${seconds} s`)}`);
  return failed === 0 ? 0 : 1;
}

async function whyNoE2e(): Promise<string> {
  return (await noCluster()) ?? 'only part of the tests was asked for';
}

function dockerAnswers(): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(DOCKER_SOCKET);
    socket.once('connect', () => {
      socket.destroy();
      resolve(true);
    });
    socket.once('error', () => resolve(false));
  });
}

process.exitCode = await main(process.argv[2] ?? '', process.argv[3] ?? '');
