/* oxlint-disable node/no-process-env -- where the Docker engine listens is told by the environment of the person */
// Says whether a Docker engine really answers: a docker client alone, or a socket nobody serves,
// must cost no time.

import { request } from 'node:http';
import { connect } from 'node:net';
import { homedir } from 'node:os';
import { join } from 'node:path';
import process from 'node:process';

const PING_TIMEOUT_MS = 1_000;
const TLS_PORT = 2_376;
const HTTP_OK = 200;

type Address = { socketPath: string } | { host: string; port: number; tls: boolean };

/**
 * Says whether an engine answers at DOCKER_HOST, or else at one of the sockets where engines
 * usually listen.
 */
export async function engineAnswers(): Promise<boolean> {
  const answers = await Promise.all(engineAddresses(process.env).map(ping));
  return answers.includes(true);
}

function engineAddresses(env: NodeJS.ProcessEnv): Address[] {
  const dockerHost = env['DOCKER_HOST'] ?? '';
  if (dockerHost !== '') {
    if (!URL.canParse(dockerHost)) return [];
    const url = new URL(dockerHost);
    if (url.protocol === 'unix:') return [{ socketPath: url.pathname }];
    const tls = (env['DOCKER_TLS_VERIFY'] ?? '') !== '';
    return url.port === ''
      ? []
      : [{ host: url.hostname, port: Number(url.port), tls: tls || Number(url.port) === TLS_PORT }];
  }
  // The same places as testcontainers looks at.
  const sockets = [
    '/var/run/docker.sock',
    join(homedir(), '.docker/run/docker.sock'),
    join(homedir(), '.docker/desktop/docker.sock'),
    `/run/user/${process.getuid?.() ?? ''}/docker.sock`,
  ];
  if (env['XDG_RUNTIME_DIR'] !== undefined)
    sockets.push(join(env['XDG_RUNTIME_DIR'], 'docker.sock'));
  return sockets.map((socketPath) => ({ socketPath }));
}

function ping(address: Address): Promise<boolean> {
  return new Promise((resolve) => {
    if ('tls' in address && address.tls) {
      // Without the client's certificate no request is answered; that something listens has to do.
      const socket = connect(address.port, address.host);
      socket.setTimeout(PING_TIMEOUT_MS, () => socket.destroy(new Error('no connection in time')));
      socket.once('connect', () => socket.end());
      socket.once('close', (failed) => resolve(!failed));
      socket.once('error', () => resolve(false));
      return;
    }
    const ask = request(
      { ...address, path: '/_ping', signal: AbortSignal.timeout(PING_TIMEOUT_MS) },
      (response) => {
        response.resume();
        resolve(response.statusCode === HTTP_OK);
      },
    );
    ask.once('error', () => resolve(false));
    ask.end();
  });
}
