/** Credentials that change under load: processes exit one by one to start with them; no request fails. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { Agent } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, test } from '@jest/globals';
import type { ServiceProcess } from '../../deploy/local/processes.ts';
import { pause } from '../../internal/platform/deadline.ts';
import { send } from '../support/http.ts';
import { HEAL_HANG_MS, eventually } from '../support/wait.ts';
import { newApplication, worldOf } from '../support/world.ts';

const CLIENTS = 8;
const LOOK_EVERY_MS = 500;

const folder = mkdtempSync(join(tmpdir(), 'rotation-'));
const { world } = await worldOf();
afterAll(() => rmSync(folder, { recursive: true }));

test('ingest processes leave in turn after a change of credentials, and so does the console', async () => {
  const file = join(folder, 'uri');
  writeFileSync(file, world.stores.mongodbUri);
  const environment = { MONGODB_URI: '', MONGODB_URI_FILE: file };
  const desk = await world.spawn('console', environment);
  const ingests = [
    await world.spawn('ingest', environment),
    await world.spawn('ingest', environment),
  ];

  /** What a Service of Kubernetes would lead to. */
  let endpoints: readonly ServiceProcess[] = ingests;
  const stop = new AbortController();
  const endpointsFollow = async (): Promise<void> => {
    for (; !stop.signal.aborted; await pause(LOOK_EVERY_MS)) {
      const ready = await Promise.all(
        ingests.map(async (ingest) => {
          const answer = await fetch(`${ingest.adminUrl}/readyz`).catch(() => undefined);
          return answer?.ok === true ? [ingest] : [];
        }),
      );
      endpoints = ready.flat();
    }
  };
  const answers = new Map<number | string, number>();
  const agent = new Agent({ keepAlive: true });
  const client = async (_: unknown, n: number): Promise<void> => {
    for (; !stop.signal.aborted; await pause(1)) {
      const url = endpoints[n % Math.max(1, endpoints.length)]?.url ?? 'http://nobody.invalid';
      const body = JSON.stringify(newApplication());
      const answer = await send(url, { key: world.key, body, agent }).catch(String);
      const result = typeof answer === 'string' ? answer : answer.status;
      answers.set(result, (answers.get(result) ?? 0) + 1);
    }
  };
  const load = Promise.all([endpointsFollow(), ...Array.from({ length: CLIENTS }, client)]);

  await eventually('load', () => (answers.get(202) ?? 0) > CLIENTS);
  writeFileSync(file, `${world.stores.mongodbUri}&maxIdleTimeMS=60000`);
  const [first] = await eventually(
    'one to have left',
    () => {
      const left = ingests.filter(({ child }) => child.exitCode !== null);
      return left.length > 0 && left;
    },
    HEAL_HANG_MS,
  );
  stop.abort();
  await load;
  agent.destroy();
  expect([...answers.keys()]).toEqual([202]);
  for (const { exited } of [first!, desk]) expect(await exited).toEqual({ code: 0, signal: null });
});
