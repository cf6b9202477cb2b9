/** schemathesis checks the running service against its OpenAPI document. */
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, test } from '@jest/globals';
import { run } from '../../deploy/local/stores/process.ts';
import { newApiKey } from '../../internal/partner/api-key.ts';
import { findSchemathesis } from '../support/schemathesis.ts';
import { worldOf } from '../support/world.ts';

/** `make fuzz` sets it: fuzz with a random seed for this many seconds. */
const seconds = Number(process.env['FUZZ_SECONDS'] ?? 0);
const SHORT = ['--seed=1', '--max-examples=30'];
const CONFIG = fileURLToPath(new URL('../support/schemathesis.toml', import.meta.url));
const TIMEOUT_MS = (seconds + 240) * 1_000;

const python = await findSchemathesis();
const otherKey = newApiKey();
const partners = [{ partner: 'other', keys: [otherKey] }];
const { world, ingest } = await worldOf(['ingest', 'processor'], { partners });

/** All phases with all checks but those `schemathesis.toml` switches off. */
async function runSchemathesis(limits: readonly string[]) {
  const folder = await mkdtemp(join(tmpdir(), 'schemathesis-'));
  const [keysFile, logFile] = [join(folder, 'keys.json'), join(folder, 'log')];
  const auth = Object.entries({ demo: world.key, other: otherKey }).map(([name, key]) => ({
    name,
    fixedHeaders: [{ name: 'Authorization', value: `Bearer ${key}` }],
  }));
  try {
    await writeFile(keysFile, JSON.stringify({ auth }), { mode: 0o600 });
    const program = `${python} -m schemathesis.cli --config-file ${CONFIG} run`;
    const settings = '--no-color --generation-database=none --continue-on-failure';
    const passed = await run({
      command: [
        ...program.split(' '),
        `${ingest.adminUrl}/openapi.json`,
        `--url=${ingest.url}/api/v1`,
        ...settings.split(' '),
        ...limits,
      ],
      logFile,
      env: { ...process.env, PARTNER_KEYS_FILE: keysFile, HYPOTHESIS_STORAGE_DIRECTORY: folder },
      timeoutMs: TIMEOUT_MS,
    }).then(
      () => true,
      () => false,
    );
    return { passed, output: await readFile(logFile, 'utf8') };
  } finally {
    await rm(folder, { recursive: true });
  }
}

test(
  'every answer matches the OpenAPI document',
  async () => {
    const { passed, output } = await runSchemathesis(
      seconds === 0 ? SHORT : [`--max-time=${seconds}`],
    );
    if (seconds > 0) process.stdout.write(output);
    // In the message, because Jest can lose what a worker prints before a failure.
    expect(passed ? 'passed' : output).toBe('passed');
  },
  TIMEOUT_MS,
);
