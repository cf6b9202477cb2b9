/**
 * The door under a crowd: all the connections it takes and more, and every hostile shape at once. A partner beside them is
 * served, and memory stays below the bound of docs/decisions/0018.
 */
import { Agent } from 'node:http';
import { afterAll, afterEach, beforeAll, expect, test } from '@jest/globals';
import type { ServiceProcess } from '../../deploy/local/processes.ts';
import { MAX_BODY_BYTES, MAX_CONNECTIONS, MAX_INCOMING_BYTES, MAX_PIPELINED } from '../../internal/ingest/limits.ts';
import { pause } from '../../internal/platform/deadline.ts';
import { imageEnvironment } from '../support/image.ts';
import { memoryOf as memoryOfPid, openCrowd, openFilesLimit, type Crowd } from '../support/crowd.ts';
import { bodies, expectAnswer, head, openRaw, type RawConnection } from '../support/door.ts';
import { hostileShapes } from '../support/hostile-shapes.ts';
import { send } from '../support/http.ts';
import { eventually } from '../support/wait.ts';
import { openWorld, type World } from '../support/world.ts';

/** Beyond what the door takes. */
const SURPLUS = 100;
/** Besides the crowd: Jest's own files, the stores, the partner. */
const OTHER_FILES = 500;
/** Opening a crowd takes seconds on a busy machine: none of it may end before all of it is there. */
const KEEP_ALIVE_SECONDS = 60;
const MIB = 1024 * 1024;
/** What an idle connection may cost: 12 kB, of which the sum in docs/decisions/0018 is made, and a third more for garbage. */
const IDLE_CONNECTION_BYTES = 16 * 1024;
/** The pod's memory limit in the chart's values. */
const POD_BYTES = 512 * MIB;
const AS_IN_A_POD = imageEnvironment();

let world: World;
let ingest: ServiceProcess;
let crowds: Crowd[] = [];

beforeAll(async () => {
  world = await openWorld();
  ingest = await world.spawn('ingest', AS_IN_A_POD);
});
afterEach(() => {
  for (const crowd of crowds) crowd.destroy();
  crowds = [];
});
afterAll(() => world.close());

async function gather(door: ServiceProcess, options: Omit<Parameters<typeof openCrowd>[0], 'url'>): Promise<Crowd> {
  const opened = await openCrowd({ url: door.url, ...options });
  crowds.push(opened);
  return opened;
}

const memoryOf = (door: ServiceProcess) => memoryOfPid(door.child.pid ?? 0);
const mib = (bytes: number): string => `${Math.round(bytes / MIB)} MiB`;
const broken = (door: ServiceProcess, kind: string): Promise<number> =>
  world.metric(door, 'partner_ingest_broken_http_total', { kind });

/** Longer than any time-out of the door, so that each shape is met by all of them. */
const SIEGE_MS = 20_000;
const RATE_LIMIT = 600;
const BETWEEN_REQUESTS_MS = 50;

interface Served {
  readonly answers: number;
  readonly slowestMs: number;
}

/** A well-behaved partner, one request after another until `enough`; every one must be accepted. */
async function partnerIsServed(door: ServiceProcess, enough: () => boolean, agent?: Agent): Promise<Served> {
  let [answers, slowestMs] = [0, 0];
  while (!enough()) {
    const startedAt = performance.now();
    const answer = await send(door.url, { key: world.key, body: '{}', ...(agent === undefined ? {} : { agent }) });
    expectAnswer(answer, 202, bodies.accepted);
    slowestMs = Math.max(slowestMs, performance.now() - startedAt);
    answers += 1;
    // As often as a partner may, who is not to be over the limit.
    await pause(BETWEEN_REQUESTS_MS);
  }
  return { answers, slowestMs: Math.round(slowestMs) };
}

/** Runs where this process may hold a socket for each of `count` connections; elsewhere it says what is missing. */
function testWith(count: number, name: string, run: () => Promise<void>): void {
  const needed = count + OTHER_FILES;
  const limit = openFilesLimit();
  if (limit >= needed) test(name, run, 240_000);
  else test.skip(`${name} (needs ${needed} open files, the limit here is ${limit})`, () => {});
}

testWith(
  MAX_CONNECTIONS + SURPLUS,
  `${MAX_CONNECTIONS} idle connections keep no partner waiting and end by themselves; more are closed at once`,
  async () => {
    const door = await world.spawn('ingest', { ...AS_IN_A_POD, HTTP_KEEP_ALIVE_SECONDS: String(KEEP_ALIVE_SECONDS) });
    const agent = new Agent({ keepAlive: true, maxSockets: 1 });
    await partnerIsServed(door, once(50), agent);
    const before = memoryOf(door).now;
    const idle = await gather(door, {
      count: MAX_CONNECTIONS - 1 + SURPLUS,
      from: () => '127.0.0.2',
      begin: (socket) => socket.write(head([], 'GET / HTTP/1.1')),
    });
    // With the partner's own there are as many as it takes.
    await eventually('the surplus to be closed', () => idle.ended.get('') === SURPLUS, 30_000);
    expect(await broken(door, 'too_many_connections')).toBe(SURPLUS);

    const { answers, slowestMs } = await partnerIsServed(door, () => idle.open === 0, agent);
    const cost = memoryOf(door).peak - before;
    console.log(
      `${MAX_CONNECTIONS} connections: ${mib(cost)}, ${Math.round(cost / MAX_CONNECTIONS)} bytes each; ` +
        `beside them ${answers} accepted, the slowest in ${slowestMs} ms`,
    );
    // Each was answered, kept for the time it may be idle, and then closed without another word.
    expect(Object.fromEntries(idle.ended)).toEqual({ '': SURPLUS, 'HTTP/1.1 404 Not Found': MAX_CONNECTIONS - 1 });
    expect(answers).toBeGreaterThan(50);
    expect(cost).toBeLessThan(MAX_CONNECTIONS * IDLE_CONNECTION_BYTES);
    agent.destroy();
    await partnerIsServed(door, once(20));
    await door.stop();
  },
);

test('bodies held back on purpose have a bound together: the oldest give way with a 500, new ones are taken in', async () => {
  const atOnce = Math.floor(MAX_INCOMING_BYTES / MAX_BODY_BYTES);
  const noRoom = (): Promise<number> =>
    world.metric(ingest, 'partner_ingest_not_accepted_total', { reason: 'no_room' });
  const allButOne = Buffer.alloc(MAX_BODY_BYTES - 1, 'x');
  const before = await noRoom();
  const userAgent = 'holds-back';
  const lines = [`Authorization: Bearer ${world.key}`, `User-Agent: ${userAgent}`, `Content-Length: ${MAX_BODY_BYTES}`];
  const held = await gather(ingest, {
    count: atOnce + SURPLUS,
    from: () => '127.0.0.4',
    begin: (socket) => {
      socket.write(head(lines));
      socket.write(allButOne);
    },
  });
  await eventually('the surplus to give way', async () => (await noRoom()) - before === SURPLUS);
  expect([...held.ended]).toEqual([['HTTP/1.1 500 Internal Server Error', SURPLUS]]);
  await partnerIsServed(ingest, once(20));
  expect(held.open).toBe(atOnce);
  await eventually('the rest to run out of time', () => held.open === 0, 20_000);
  // What gave way is not recorded, because its 500 says so; what ran out of time is.
  expect(await world.records({ userAgent })).toHaveLength(atOnce);
  expect((await noRoom()) - before).toBe(SURPLUS);
}, 60_000);

test('requests that do not wait for answers have a bound together: the connection that goes beyond it is closed', async () => {
  const request = `${head([`Authorization: Bearer ${world.key}`, 'Content-Length: 2'])}{}`;
  const each = Math.floor(60_000 / request.length);
  const connections = await Promise.all(
    Array.from({ length: Math.ceil((2 * MAX_PIPELINED) / each) }, () => openRaw(ingest.url)),
  );
  const before = await broken(ingest, 'too_many_pipelined');
  // All is there at once when it wakes up: no answer can come in between.
  ingest.child.kill('SIGSTOP');
  for (const { socket } of connections) socket.write(request.repeat(each));
  await eventually('all to be on its way', () => connections.every(({ socket }) => socket.writableLength === 0));
  ingest.child.kill('SIGCONT');
  const answers = (connection: RawConnection): number => connection.text().match(/HTTP\/1\.1 202 /g)?.length ?? 0;
  await eventually('each to be answered to the end, or closed', () =>
    connections.every((connection) => answers(connection) === each || connection.socket.destroyed),
  );
  const closed = connections.filter(({ socket }) => socket.destroyed);
  expect(closed.length).toBeGreaterThan(0);
  expect((await broken(ingest, 'too_many_pipelined')) - before).toBe(closed.length);
  // Those that stayed within the bound have every one of theirs.
  const served = connections.length - closed.length;
  expect(served).toBe(Math.floor(MAX_PIPELINED / (each - 1)));
  await partnerIsServed(ingest, once(20));
  for (const { socket } of connections) socket.destroy();
});

const besieging = hostileShapes('').reduce((sum, { connections }) => sum + connections, 0);

testWith(
  besieging,
  'every hostile shape at once: memory is bounded, and what a partner sends beside them is accepted',
  async () => {
    const door = await world.spawn('ingest', { ...AS_IN_A_POD, RATE_LIMIT_MAX: String(RATE_LIMIT) });
    // A limit of its own as well.
    const agent = new Agent({ localAddress: '127.0.0.9' });
    await partnerIsServed(door, once(20), agent);
    const before = memoryOf(door).now;
    const siege: [what: string, crowd: Crowd][] = [];
    for (const [shape, { what, connections: count, begin }] of hostileShapes(world.key).entries()) {
      // Few from one address, as a limit by address asks for.
      const from = (index: number): string => `127.1.${shape}.${1 + (index % 100)}`;
      siege.push([what, await gather(door, { count, from, begin, again: true })]);
    }
    const startedAt = performance.now();
    const { answers, slowestMs } = await partnerIsServed(door, () => performance.now() - startedAt > SIEGE_MS, agent);
    const { peak } = memoryOf(door);
    console.log(
      [
        `${besieging} hostile connections for ${SIEGE_MS / 1_000} s: ${mib(before)} before, ${mib(peak)} at the peak; ` +
          `${answers} accepted beside them, the slowest in ${slowestMs} ms`,
        ...siege.map(([what, { open, ended }]) => `  ${what}: ${open} open, ended ${JSON.stringify([...ended])}`),
      ].join('\n'),
    );
    expect(peak).toBeLessThan(POD_BYTES);
    expect(answers).toBeGreaterThan(0);
    for (const [, crowd] of siege) crowd.destroy();
    await door.stop();
  },
);

function once(times: number): () => boolean {
  let count = 0;
  return () => (count += 1) > times;
}
