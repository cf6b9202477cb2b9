/**
 * The running service against its own OpenAPI document, by schemathesis: short in `make test`, long
 * in `make fuzz`.
 */
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { newApiKey } from '../../internal/partner/api-key.ts';
import { eventually } from '../support/wait.ts';
import { send } from '../support/http.ts';
import { findSchemathesis, runSchemathesis } from '../support/schemathesis.ts';
import { openWorld, type InProcess, type World } from '../support/world.ts';

/** `make fuzz` sets it: fuzz with a random seed for this many seconds. */
const seconds = Number(process.env['FUZZ_SECONDS'] ?? 0);
const SHORT = ['--seed=1', '--max-examples=30'];
const TIMEOUT_MS = (seconds + 240) * 1_000;

const tool = await findSchemathesis();
if (typeof tool === 'string') throw new Error(tool);
const otherKey = newApiKey();
let world: World;
let ingest: InProcess;

beforeAll(async () => {
  world = await openWorld({ environment: { STATUS_ENDPOINT: 'true' } });
  await world.writePartner({ partner: 'other', keys: [otherKey] });
  ingest = await world.start('ingest');
  await world.start('processor');
  await eventually(
    'the other key',
    async () => (await send(ingest.url, { key: otherKey, body: '{}' })).status === 202,
  );
});
afterAll(() => world.close());

test(
  'every answer is as the document says',
  async () => {
    const { passed, output } = await runSchemathesis({
      python: tool.python,
      documentUrl: `${ingest.adminUrl}/openapi.json`,
      baseUrl: `${ingest.url}/api/v1`,
      keys: { demo: world.key, other: otherKey },
      limits: seconds === 0 ? SHORT : [`--max-time=${seconds}`],
      timeoutMs: TIMEOUT_MS,
    });
    if (seconds > 0) process.stdout.write(output);
    // In the message, because what a worker of Jest prints just before the failure can be lost.
    expect(passed ? 'passed' : output).toBe('passed');
  },
  TIMEOUT_MS,
);
