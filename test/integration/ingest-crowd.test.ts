/**
 * Ingest under a crowd: all the connections it takes and more, and every hostile shape at once. A
 * partner beside them is served, and memory stays below the bound of docs/decisions/0018.
 */
import { Agent } from 'node:http';
import { afterAll, afterEach, beforeAll, expect, test } from '@jest/globals';
import type { ServiceProcess } from '../../deploy/local/processes.ts';
import {
  BODY_TIMEOUT_MS,
  HEADERS_TIMEOUT_MS,
  MAX_BODY_BYTES,
  MAX_CONNECTIONS,
  MAX_CONNECTIONS_PER_ADDRESS,
  MAX_INCOMING_BYTES,
  MAX_PIPELINED,
} from '../../internal/ingest/limits.ts';
import { pause } from '../../internal/platform/deadline.ts';
import { imageEnvironment } from '../support/image.ts';
import {
  memoryOf as memoryOfPid,
  openCrowd,
  openFilesLimit,
  type Crowd,
} from '../support/crowd.ts';
import { bodies, expectAnswer, head, openRaw, type RawConnection } from '../support/ingest.ts';
import { hostileShapes } from '../support/hostile-shapes.ts';
import { send } from '../support/http.ts';
import { eventually } from '../support/wait.ts';
import { openWorld, type World } from '../support/world.ts';

const [REFUSED, RAN_OUT] = [
  'HTTP/1.1 500 Internal Server Error',
  'HTTP/1.1 400 Bad Request',
] as const;
/** Beyond what ingest takes. */
const SURPLUS = 100;
/** Besides the crowd: Jest's own files, the stores, the partner. */
const OTHER_FILES = 500;
/**
 * Longer than the test: none of the crowd may end before all of it is there, and opening it takes
 * its time.
 */
const ENDLESS_SECONDS = 600;
/** Of a crowd that is to end by itself. */
const [SOME, SOON_SECONDS] = [200, 1];
const MIB = 1024 * 1024;
/**
 * What an idle connection may cost: 12 kB, of which the sum in docs/decisions/0018 is made, and
 * garbage of a young generation.
 */
const IDLE_CONNECTION_BYTES = 20 * 1024;
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
  ingest.child.kill('SIGCONT');
  for (const crowd of crowds) crowd.destroy();
  crowds = [];
});
afterAll(() => world.close());

async function gather(
  target: ServiceProcess,
  options: Omit<Parameters<typeof openCrowd>[0], 'url'>,
): Promise<Crowd> {
  const opened = await openCrowd({ url: target.url, ...options });
  crowds.push(opened);
  return opened;
}

const memoryOf = (target: ServiceProcess) => memoryOfPid(target.child.pid ?? 0);
const mib = (bytes: number): string => `${Math.round(bytes / MIB)} MiB`;
const broken = (target: ServiceProcess, kind: string): Promise<number> =>
  world.metric(target, 'partner_ingest_broken_http_total', { kind });

/** Longer than any time-out of ingest, so that each shape is met by all of them. */
const SIEGE_MS = 15_000;
/** One that ends comes again: at once, it would take both cores from all other tests. */
const AGAIN_AFTER_MS = 5_000;
/** Of 60 kB each: 360 MB, if nothing bounded them. */
const WHOLE_BODIES = 6_000;
const RATE_LIMIT = 600;
const BETWEEN_REQUESTS_MS = 50;

interface Served {
  readonly answers: number;
  readonly slowestMs: number;
}

/** A well-behaved partner, one request after another until `enough`; every one must be accepted. */
async function partnerIsServed(
  target: ServiceProcess,
  enough: () => boolean,
  agent?: Agent,
): Promise<Served> {
  let [answers, slowestMs] = [0, 0];
  while (!enough()) {
    const startedAt = performance.now();
    const answer = await send(target.url, {
      key: world.key,
      body: '{}',
      ...(agent === undefined ? {} : { agent }),
    });
    expectAnswer(answer, 202, bodies.accepted);
    slowestMs = Math.max(slowestMs, performance.now() - startedAt);
    answers += 1;
    // As often as a partner may, who is not to be over the limit.
    await pause(BETWEEN_REQUESTS_MS);
  }
  return { answers, slowestMs: Math.round(slowestMs) };
}

/**
 * Runs where this process may hold a socket for each of `count` connections; elsewhere it says what
 * is missing.
 */
function testWith(count: number, name: string, run: () => Promise<void>): void {
  const needed = count + OTHER_FILES;
  const limit = openFilesLimit();
  if (limit >= needed) test(name, run);
  else test.skip(`${name} (needs ${needed} open files, the limit here is ${limit})`, () => {});
}

testWith(
  MAX_CONNECTIONS + SURPLUS,
  `${MAX_CONNECTIONS} idle connections keep no partner waiting; more are closed at once`,
  async () => {
    const target = await world.spawn('ingest', {
      ...AS_IN_A_POD,
      HTTP_KEEP_ALIVE_SECONDS: String(ENDLESS_SECONDS),
    });
    const agent = new Agent({ keepAlive: true, maxSockets: 1 });
    await partnerIsServed(target, once(50), agent);
    const before = memoryOf(target).now;
    const idle = await gather(target, {
      count: MAX_CONNECTIONS - 1 + SURPLUS,
      from: (index) => `127.0.1.${1 + Math.floor(index / MAX_CONNECTIONS_PER_ADDRESS)}`,
      begin: (socket) => socket.write(head([], 'GET / HTTP/1.1')),
    });
    // With the partner's own there are as many as it takes.
    await eventually('the surplus to be closed', () => idle.ended.get('') === SURPLUS);
    await eventually(
      'it to be counted',
      async () => (await broken(target, 'too_many_connections')) === SURPLUS,
    );

    const { slowestMs } = await partnerIsServed(target, once(100), agent);
    const cost = memoryOf(target).peak - before;
    console.log(
      `${MAX_CONNECTIONS} connections: ${mib(cost)}, ${Math.round(cost / MAX_CONNECTIONS)} bytes each; ` +
        `beside them the slowest answer in ${slowestMs} ms`,
    );
    expect([idle.open, Object.fromEntries(idle.ended)]).toEqual([
      MAX_CONNECTIONS - 1,
      { '': SURPLUS },
    ]);
    expect(cost).toBeLessThan(MAX_CONNECTIONS * IDLE_CONNECTION_BYTES);
    agent.destroy();
    idle.destroy();
    await partnerIsServed(target, once(20));
    await target.stop();
  },
);

test(`${SOME} idle connections end by themselves, each after its answer and without another word`, async () => {
  const target = await world.spawn('ingest', {
    ...AS_IN_A_POD,
    HTTP_KEEP_ALIVE_SECONDS: String(SOON_SECONDS),
  });
  const idle = await gather(target, {
    count: SOME,
    from: () => '127.0.0.3',
    begin: (socket) => socket.write(head([], 'GET / HTTP/1.1')),
  });
  await eventually('all to end', () => idle.open === 0);
  expect(Object.fromEntries(idle.ended)).toEqual({ 'HTTP/1.1 404 Not Found': SOME });
  await target.stop();
});

test('bodies held back on purpose have a bound together: the oldest give way with a 500, new ones are taken in', async () => {
  const atOnce = Math.floor(MAX_INCOMING_BYTES / MAX_BODY_BYTES);
  const noRoom = (): Promise<number> =>
    world.metric(ingest, 'partner_ingest_not_accepted_total', { reason: 'no_room' });
  const allButOne = Buffer.alloc(MAX_BODY_BYTES - 1, 'x');
  const notAccepted = (): Promise<number> =>
    world.metric(ingest, 'partner_ingest_not_accepted_total');
  const [before, allBefore] = [await noRoom(), await notAccepted()];
  const userAgent = 'holds-back';
  const lines = [
    `Authorization: Bearer ${world.key}`,
    `User-Agent: ${userAgent}`,
    `Content-Length: ${MAX_BODY_BYTES}`,
  ];
  const begunAt = performance.now();
  const held = await gather(ingest, {
    count: atOnce + SURPLUS,
    from: () => '127.0.0.4',
    begin: (socket) => {
      socket.write(head(lines));
      socket.write(allButOne);
    },
  });
  await eventually('the surplus to give way', () => held.open <= atOnce);
  // Where it takes longer to send them all than a body may take, the first run out of time and make
  // room.
  if (performance.now() - begunAt < BODY_TIMEOUT_MS)
    expect((await noRoom()) - before).toBe(SURPLUS);
  await partnerIsServed(ingest, once(20));
  await eventually('the rest to run out of time', () => held.open === 0);
  const {
    [REFUSED]: refused = 0,
    [RAN_OUT]: ranOut = 0,
    ...others
  } = Object.fromEntries(held.ended);
  expect(others).toEqual({});
  expect(refused + ranOut).toBe(atOnce + SURPLUS);
  // What gave way is not recorded, because its 500 says so; what ran out of time is, unless a busy
  // database took too long.
  expect(await world.records({ userAgent, state: 'malformed' })).toHaveLength(ranOut);
  expect((await notAccepted()) - allBefore).toBe(refused);
});

test('requests that do not wait for answers have a bound on each connection: one that goes beyond it is closed', async () => {
  const request = `${head([`Authorization: Bearer ${world.key}`, 'Content-Length: 2'])}{}`;
  const [within, beyond] = [MAX_PIPELINED + 1, MAX_PIPELINED + 2];
  const counts = Array.from({ length: 40 }, (_, index) => (index % 2 === 0 ? within : beyond));
  const connections = await Promise.all(counts.map(() => openRaw(ingest.url)));
  const before = await broken(ingest, 'too_many_pipelined');
  // All is there at once when it wakes up: no answer can come in between.
  ingest.child.kill('SIGSTOP');
  for (const [index, { socket }] of connections.entries())
    socket.write(request.repeat(counts[index] ?? 0));
  await eventually('all to be on its way', () =>
    connections.every(({ socket }) => socket.writableLength === 0),
  );
  ingest.child.kill('SIGCONT');
  const answers = (connection: RawConnection): number =>
    connection.text().match(/HTTP\/1\.1 202 /g)?.length ?? 0;
  // What others do on their connections takes nothing from one that stays within the bound.
  await eventually('each to be answered to the end, or closed', () =>
    connections.every((connection, index) =>
      counts[index] === within ? answers(connection) === within : connection.socket.destroyed,
    ),
  );
  await eventually(
    'those closed to be counted',
    async () => (await broken(ingest, 'too_many_pipelined')) - before === counts.length / 2,
  );
  await partnerIsServed(ingest, once(20));
  for (const { socket } of connections) socket.destroy();
});

testWith(
  WHOLE_BODIES,
  'whole bodies without a key that arrive while the process stands still: memory is bounded, each gets its 401',
  async () => {
    const target = await world.spawn('ingest', AS_IN_A_POD);
    const bytes = Buffer.alloc(60_000, 'x');
    const openedAt = performance.now();
    const crowd = await gather(target, {
      count: WHOLE_BODIES,
      from: (index) => `127.2.0.${1 + (index % 100)}`,
    });
    const before = memoryOf(target).now;
    target.child.kill('SIGSTOP');
    crowd.each((socket) => {
      socket.write(head([`Content-Length: ${bytes.length}`]));
      socket.write(bytes);
    });
    await eventually('all to be on its way', () => crowd.unsent === 0, 180_000);
    target.child.kill('SIGCONT');
    const asleepMs = performance.now() - openedAt;
    const refused = (): number => crowd.answered('HTTP/1.1 401 ');
    const ranOut = (): number =>
      [...crowd.ended].reduce(
        (sum, [status, count]) => (status.startsWith('HTTP/1.1 401 ') ? sum : sum + count),
        0,
      );
    await eventually('each to be answered', () => refused() + ranOut() === WHOLE_BODIES, 180_000);
    // A busy machine may take longer to send all than ingest waits for the head of a request.
    if (asleepMs < HEADERS_TIMEOUT_MS) expect(ranOut()).toBe(0);
    const { peak } = memoryOf(target);
    console.log(
      `${WHOLE_BODIES} whole bodies at once: ${mib(before)} before, ${mib(peak)} at the peak`,
    );
    expect(peak).toBeLessThan(POD_BYTES);
    await partnerIsServed(target, once(20));
    await target.stop();
  },
);

const besieging = hostileShapes('').reduce((sum, { connections }) => sum + connections, 0);

testWith(
  besieging,
  'every hostile shape at once: memory is bounded, and what a partner sends beside them is accepted',
  async () => {
    const target = await world.spawn('ingest', {
      ...AS_IN_A_POD,
      RATE_LIMIT_MAX: String(RATE_LIMIT),
    });
    // A limit of its own as well.
    const agent = new Agent({ localAddress: '127.0.0.9' });
    await partnerIsServed(target, once(20), agent);
    const before = memoryOf(target).now;
    const siege: [what: string, crowd: Crowd][] = [];
    for (const [shape, { what, connections: count, begin }] of hostileShapes(world.key).entries()) {
      // Few from one address, as a limit by address asks for.
      const from = (index: number): string => `127.1.${shape}.${1 + (index % 100)}`;
      siege.push([
        what,
        await gather(target, { count, from, begin, againAfterMs: AGAIN_AFTER_MS }),
      ]);
    }
    const startedAt = performance.now();
    const { answers, slowestMs } = await partnerIsServed(
      target,
      () => performance.now() - startedAt > SIEGE_MS,
      agent,
    );
    const { peak } = memoryOf(target);
    console.log(
      [
        `${besieging} hostile connections for ${SIEGE_MS / 1_000} s: ${mib(before)} before, ${mib(peak)} at the peak; ` +
          `${answers} accepted beside them, the slowest in ${slowestMs} ms`,
        ...siege.map(
          ([what, { open, ended }]) =>
            `  ${what}: ${open} open, ended ${JSON.stringify([...ended])}`,
        ),
      ].join('\n'),
    );
    expect(peak).toBeLessThan(POD_BYTES);
    expect(answers).toBeGreaterThan(0);
    for (const [, crowd] of siege) crowd.destroy();
    await target.stop();
  },
);

function once(times: number): () => boolean {
  let count = 0;
  return () => (count += 1) > times;
}
