/** A process of the service ends with the program that started it, however that program ends; only Linux can do this. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { expect, test } from '@jest/globals';
import { HANG_MS, eventually } from '../../test/support/wait.ts';
import { alive } from './stores/process.ts';

// No store listens there: ingest starts without one.
const STARTER = `
  import { startService } from ${JSON.stringify(new URL('./processes.ts', import.meta.url).href)};
  const service = await startService('ingest', {
    MONGODB_URI: 'mongodb://127.0.0.1:1/', REDIS_URL: 'redis://127.0.0.1:1',
  });
  console.log(service.child.pid);
`;

test('a killed starter leaves no process of the service', async () => {
  const starter = spawn(process.execPath, ['--input-type=module-typescript', '--eval', STARTER], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const [line] = (await once(starter.stdout, 'data', { signal: AbortSignal.timeout(HANG_MS) })) as [Buffer];
  const pid = Number(line);
  expect(alive(pid)).toBe(true);
  starter.kill('SIGKILL');
  await eventually('the service to have ended', () => Promise.resolve(!alive(pid)));
});
