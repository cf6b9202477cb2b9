/** A process of the service ends with the program that started it, however that program ends. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { expect, test } from '@jest/globals';
import { HANG_MS, eventually } from '../../test/support/wait.ts';
import { alive, findProgram } from './stores/process.ts';

// No store listens there: ingest starts without one.
const STARTER = `
  import { startService } from ${JSON.stringify(new URL('./processes.ts', import.meta.url).href)};
  const service = await startService('ingest', {
    MONGODB_URI: 'mongodb://127.0.0.1:1/', REDIS_URL: 'redis://127.0.0.1:1',
  });
  process.once('SIGINT', () => process.exit(130));
  console.log(service.child.pid);
`;

async function expectNothingLeft(
  signal: NodeJS.Signals,
  environment: NodeJS.ProcessEnv,
): Promise<void> {
  const starter = spawn(process.execPath, ['--input-type=module-typescript', '--eval', STARTER], {
    stdio: ['ignore', 'pipe', 'inherit'],
    env: environment,
  });
  const [line] = (await once(starter.stdout, 'data', { signal: AbortSignal.timeout(HANG_MS) })) as [
    Buffer,
  ];
  const pid = Number(line);
  expect(alive(pid)).toBe(true);
  starter.kill(signal);
  await eventually('the service to have ended', () => Promise.resolve(!alive(pid)));
}

const withSetpriv = (await findProgram('setpriv')) === undefined ? test.skip : test;
withSetpriv('a starter that is killed leaves no process of the service (needs setpriv)', () =>
  expectNothingLeft('SIGKILL', process.env),
);

test('without setpriv, no child survives a starter that ends by itself', () =>
  expectNothingLeft('SIGINT', { ...process.env, PATH: '' }));
