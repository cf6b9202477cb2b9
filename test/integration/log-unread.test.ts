/** A process serves and ends although its log is not read. */
import { spawn } from 'node:child_process';
import { expect, test } from '@jest/globals';
import { ROOT } from '../../tools/root.ts';
import { send } from '../support/http.ts';
import { sumOf } from '../support/metrics-text.ts';
import { eventually, HANG_MS } from '../support/wait.ts';
import { newApplication, worldOf } from '../support/world.ts';

/** Their log lines exceed what the pipe can hold. */
const REQUESTS = 8_000;

const { world } = await worldOf();

test('an ingest whose log nobody reads accepts requests, and ends on SIGTERM', async () => {
  const child = spawn(process.execPath, ['cmd/ingest/main.ts'], {
    cwd: ROOT,
    env: {
      PATH: process.env['PATH'],
      ...world.environment,
      LOG_LEVEL: 'info',
      LOG_ACCEPTS: 'true',
    },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  try {
    const exited = new Promise<number | null>((resolve) => child.once('exit', resolve));
    let said = '';
    child.stdout.on('data', (bytes) => (said += String(bytes)));
    const serving = await eventually('ingest to serve', () =>
      said
        .split('\n')
        .slice(0, -1)
        .map((line) => JSON.parse(line) as { msg: string; url: string; admin: string })
        .find(({ msg }) => msg === 'serving'),
    );
    await eventually('ingest to be ready', async () => (await fetch(`${serving.admin}/readyz`)).ok);
    child.stdout.removeAllListeners('data').pause();

    const statuses = new Set<number>();
    const sendAll = async (): Promise<void> => {
      for (let sent = 0; sent < REQUESTS / 10; sent += 1) {
        const body = JSON.stringify(newApplication());
        statuses.add((await send(serving.url, { key: world.key, body })).status);
      }
    };
    await Promise.all(Array.from({ length: 10 }, sendAll));
    expect([...statuses]).toEqual([202]);
    const ask = async (path: string) => (await fetch(`${serving.admin}${path}`)).text();
    expect(await ask('/readyz')).toMatch(/nobody reads the log: \d+ lines dropped/);
    const dropped = sumOf(await ask('/metrics'), 'partner_ingest_log_lines_dropped_total');
    expect(dropped).toBeGreaterThan(0);

    child.kill('SIGTERM');
    const hung = new Promise<string>((resolve) => setTimeout(resolve, HANG_MS / 2, 'hung').unref());
    expect(await Promise.race([exited, hung])).toBe(0);
  } finally {
    child.kill('SIGKILL');
  }
});
