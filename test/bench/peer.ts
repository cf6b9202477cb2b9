/** Public ingesters that `make bench PEER=…` compares ours with: HTTP in, a document in MongoDB, a majority before the 2xx. */
import { spawn } from 'node:child_process';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { cached, installLog } from '../../deploy/local/stores/cache.ts';
import { findProgram, run } from '../../deploy/local/stores/process.ts';
import { freePort, poll } from '../../deploy/local/stores/wait.ts';
import { startProgram, type Program } from './load.ts';

type Environment = Record<string, string>;

const PARSE_SERVER = 'parse-server-9.10.0';
const PARSE_SERVER_PACKAGE = 'parse-server@9.10.0';
const INSTALL_TIMEOUT_MS = 600_000;
const START_TIMEOUT_MS = 30_000;
const CONFIGURATION = fileURLToPath(new URL('peer/redpanda-connect.yaml', import.meta.url));

const PEERS: Readonly<Record<string, (environment: Environment) => Promise<Program>>> = {
  'parse-server': startParseServer,
  'redpanda-connect': startRedpandaConnect,
};

/** Rejects when there is no such peer, or this machine cannot have it. */
export function startPeer(name: string, environment: Environment): Promise<Program> {
  const start = PEERS[name];
  if (start === undefined) throw new Error(`no peer ${name}: PEER is ${Object.keys(PEERS).join(' or ')}`);
  return start(environment);
}

/** From npm into the project's cache. */
async function startParseServer(environment: Environment): Promise<Program> {
  const folder = await cached(PARSE_SERVER, console.error, (path) =>
    run({
      command: [
        'npm',
        'install',
        '--prefix',
        path,
        '--ignore-scripts',
        '--no-audit',
        '--no-fund',
        PARSE_SERVER_PACKAGE,
      ],
      env: process.env,
      logFile: installLog(PARSE_SERVER),
      timeoutMs: INSTALL_TIMEOUT_MS,
    }),
  );
  return startProgram('peer/parse-server.ts', {
    ...environment,
    PARSE_SERVER: join(folder, 'package.json'),
    // None: its default is a folder where it is started.
    PARSE_SERVER_LOGS_FOLDER: 'null',
  });
}

/** The machine's own program. */
async function startRedpandaConnect(environment: Environment): Promise<Program> {
  const program = await findProgram('redpanda-connect');
  if (program === undefined) throw new Error('there is no redpanda-connect on the PATH: install it by hand');
  const port = await freePort();
  const url = `http://127.0.0.1:${port}`;
  const child = spawn(program, ['run', CONFIGURATION], {
    env: { ...environment, PORT: String(port) },
    stdio: ['ignore', 'ignore', 'inherit'],
  });
  const exited = new Promise<void>((resolve) => child.once('exit', () => resolve()));
  const answers = (): Promise<boolean> =>
    fetch(`${url}/api/v1/capital/ingest`).then(
      () => true,
      () => child.exitCode !== null,
    );
  if (!(await poll(START_TIMEOUT_MS, answers)) || child.exitCode !== null) {
    child.kill();
    throw new Error('redpanda-connect did not start');
  }
  const stop = async (): Promise<void> => {
    child.kill();
    await exited;
  };
  return { url, pid: child.pid ?? 0, stop };
}
