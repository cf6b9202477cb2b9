/** An API server for tests: the one of TEST_KUBECONFIG, else etcd and kube-apiserver of our own where this machine can make them. */
import { spawn } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { mkdir, mkdtemp, rm, symlink } from 'node:fs/promises';
import { createServer, type AddressInfo } from 'node:net';
import { homedir, tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

/** Prints the path of a kubeconfig as its last line; `envtest-down` beside it ends what it started. */
const ENVTEST_UP = fileURLToPath(new URL('../../../shared/cluster/envtest-up', import.meta.url));

export const NO_API_SERVER = 'TEST_KUBECONFIG is not set, and there is no ../shared/cluster/envtest-up';

export interface ApiServer {
  readonly kubeconfig: string;
  /** How to start a second one on the same etcd; absent for a cluster that is not ours. */
  readonly command?: readonly string[];
  readonly description: string;
  stop(): Promise<void>;
}

/** Undefined where there is none to be had. Rejects when it should be there and does not start. */
export async function startApiServer(log: (line: string) => void): Promise<ApiServer | undefined> {
  const given = process.env['TEST_KUBECONFIG'];
  if (given !== undefined && given !== '') {
    return { kubeconfig: given, description: 'Kubernetes of TEST_KUBECONFIG', stop: () => Promise.resolve() };
  }
  if (!existsSync(ENVTEST_UP)) return undefined;

  // A folder, pids and ports of our own: other test runs on this machine have theirs. Only built programs are shared.
  const folder = await mkdtemp(join(tmpdir(), 'api-server-'));
  const cache =
    process.env['LOCAL_CLUSTER_CACHE'] ??
    join(process.env['XDG_CACHE_HOME'] ?? join(homedir(), '.cache'), 'local-cluster');
  const programs = join(cache, 'bin');
  await mkdir(programs, { recursive: true });
  await symlink(programs, join(folder, 'bin'));
  const [etcdPort, apiPort] = [await freePorts(2), await freePorts(1)];
  const environment = {
    ...process.env,
    LOCAL_CLUSTER_CACHE: folder,
    LOCAL_CLUSTER_RUN: join(folder, 'run'),
    ENVTEST_ETCD_PORT: String(etcdPort),
    ENVTEST_API_PORT: String(apiPort),
  };
  if (!['lc', 'lc-control'].some((program) => existsSync(join(programs, program)))) {
    log('building etcd and kube-apiserver for the tests: about four minutes, once');
  }
  const stop = async (): Promise<void> => {
    await runScript(join(dirname(ENVTEST_UP), 'envtest-down'), environment);
    await rm(folder, { recursive: true });
  };
  try {
    const kubeconfig = (await runScript(ENVTEST_UP, environment)).trim().split('\n').at(-1) ?? '';
    const pid = readFileSync(join(folder, 'run', 'envtest-apiserver.pid'), 'utf8').split(' ')[0];
    const command = readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0').slice(0, -1);
    return { kubeconfig, command, description: 'etcd and kube-apiserver', stop };
  } catch (error) {
    await stop();
    throw error;
  }
}

function runScript(script: string, env: NodeJS.ProcessEnv): Promise<string> {
  return new Promise((resolve, reject) => {
    const child = spawn(script, { env, stdio: ['ignore', 'pipe', 'pipe'] });
    let [out, errors] = ['', ''];
    child.stdout.on('data', (text: Buffer) => (out += text.toString()));
    child.stderr.on('data', (text: Buffer) => (errors += text.toString()));
    child.on('error', reject);
    // Not 'close': what the script starts may keep its pipes.
    child.on('exit', (code) =>
      code === 0 ? resolve(out) : reject(new Error(`${script} ended with ${code}:\n${errors}`)),
    );
  });
}

/** The first of `count` free ports in a row. */
export async function freePorts(count: number): Promise<number> {
  for (let attempt = 0; attempt < 20; attempt += 1) {
    const first = await listenOn(0);
    if (first === undefined) continue;
    const others = await Promise.all(Array.from({ length: count - 1 }, (_, index) => listenOn(first + index + 1)));
    if (others.every((port) => port !== undefined)) return first;
  }
  throw new Error(`no ${count} free ports in a row`);
}

function listenOn(port: number): Promise<number | undefined> {
  return new Promise((resolve) => {
    const server = createServer();
    server.once('error', () => resolve(undefined));
    server.listen(port, '127.0.0.1', () => {
      const { port: got } = server.address() as AddressInfo;
      server.close(() => resolve(got));
    });
  });
}
