/** Runs the functions of docs/runbooks/README.md with a local `kubectl`. */
import { createServer } from 'node:http';
import { expect, test } from '@jest/globals';
import { Queue } from 'bullmq';
import { run } from '../../tools/program.ts';
import { ROOT } from '../../tools/root.ts';
import { InstallationStore } from '../../internal/installation/installation.ts';
import { queuePrefix } from '../../internal/installation/installation.ts';
import { systemClock as clock } from '../../internal/platform/process/clock.ts';
import { listen } from '../support/listen.ts';
import { alertSections, read } from '../support/pages.ts';
import { storesOfFile } from '../support/test-stores.ts';

const DEADLINE_MS = 60_000;
const blockOf = (text: string): string => /^```sh\n([\s\S]*?)^```/m.exec(text)?.[1] ?? '';

/** A kubectl with two pods that runs the command of an exec locally. */
const KUBECTL = `kubectl() {
  case "$*" in *"get pods"*) printf 'pod/one\\npod/two\\n'; return;; esac
  while [ "$1" != -- ]; do shift; done; shift
  if [ "$1" = partner-ingest ]; then shift; set -- node cmd/cli/main.ts "$@"; fi
  "\${@//9090/$ADMIN_PORT}"
}`;

const stores = await storesOfFile();

/** Runs `command` in a terminal with the functions; returns its output. */
async function terminal(
  command: string,
  { redisUrl = stores.redisUrl, adminPort = 9090 } = {},
): Promise<string> {
  const env = {
    PATH: process.env['PATH'],
    REDIS_URL: redisUrl,
    ADMIN_PORT: String(adminPort),
    MONGODB_URI: stores.mongodbUri,
    MONGODB_DATABASE: stores.database,
  };
  const script = `${blockOf(read('docs/runbooks/README.md'))}\n${KUBECTL}\n${command}`;
  return (await run('bash', ['-c', script], { cwd: ROOT, env, timeoutMs: DEADLINE_MS })).out;
}

test('ReconcileRescues: the first command finds a paused queue, and the second resumes it', async () => {
  const { text = '' } =
    alertSections.find(({ path }) => path.endsWith('#PartnerIngestReconcileRescues')) ?? {};
  const pattern = new RegExp(/^Look for: `(.+)`$/m.exec(text)?.[1] ?? '$.', 'm');
  const { hostname, port, pathname } = new URL(stores.redisUrl);
  const connection = { host: hostname, port: Number(port), db: Number(pathname.slice(1)) };
  const id = 'here';
  await new InstallationStore({ db: stores.db, clock }).make({ id });
  const queue = new Queue('applications', { connection, prefix: queuePrefix(id) });
  try {
    await queue.pause();
    expect(await terminal(blockOf(text))).toMatch(pattern);
    const [, fix = 'false'] = /`(queue hdel)`/.exec(text) ?? [];
    await terminal(fix);
    expect(await queue.isPaused()).toBe(false);
    expect(await terminal(blockOf(text))).not.toMatch(pattern);
  } finally {
    await queue.close();
  }
});

test('redis prints the answer of Redis, or that it is away', async () => {
  expect(await terminal('redis info')).toMatch(/^maxmemory_policy:/m);
  expect(await terminal('redis info', { redisUrl: 'redis://127.0.0.1:1' })).toContain(
    'redis: connect ECONNREFUSED',
  );
});

test('metrics prints the lines of every pod with its name', async () => {
  const admin = createServer((request, response) =>
    response.end(request.url === '/metrics' ? 'first 1\nsecond 2' : ''),
  );
  const port = await listen(admin);
  try {
    const printed = await terminal('metrics ingest | grep -v first', { adminPort: port });
    expect(printed).toBe('pod/one second 2\npod/two second 2\n');
  } finally {
    admin.close();
  }
});
