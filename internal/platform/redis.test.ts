import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { expect, test } from '@jest/globals';
import { HANG_MS } from '../../test/support/wait.ts';

test('a subscriber that is closed while Redis is away does not keep its process alive', async () => {
  const script = `
    const { createRedis } = await import(${JSON.stringify(import.meta.resolve('./redis.ts'))});
    const log = { info() {}, warn() {} };
    const redis = createRedis('redis://127.0.0.1:1', { for: 'subscriber' }, log);
    redis.once('reconnecting', () => {
      redis.disconnect();
      console.log('closed');
    });`;
  const child = promisify(execFile)(process.execPath, ['--input-type=module', '--eval', script], { timeout: HANG_MS });
  expect((await child).stdout).toBe('closed\n');
}, 120_000);
