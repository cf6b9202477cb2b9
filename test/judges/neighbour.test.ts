/**
 * A victim's fixed work alone, then beside an adversary that chooses bodies, rates, Secrets and
 * recipients. The outcome must be equal and the time bounded.
 */
import type { Socket } from 'node:net';
import { afterEach, beforeAll, expect, test } from '@jest/globals';
import type { DemoPartner } from '../../deploy/local/demo-keys.ts';
import type { ServiceProcess } from '../../deploy/local/processes.ts';
import { LIST_PATH } from '../../internal/ingest/contract.ts';
import { MAX_BODY_BYTES, SHARED } from '../../internal/ingest/bounds.ts';
import { newApiKey } from '../../internal/partner/api-key.ts';
import { pause } from '../../internal/platform/process/deadline.ts';
import { pastLockConflicts } from '../../internal/platform/stores/mongo.ts';
import { openCrowd, openFilesLimit } from '../support/crowd.ts';
import { INGEST_PATH, send, type Answer } from '../support/http.ts';
import { head, openRaw, type RawConnection } from '../support/ingest.ts';
import { knownAnswers } from '../support/known-answers.ts';
import type { SmtpFault } from '../support/mail-catcher.ts';
import { newRecord } from '../support/records.ts';
import { newRandom } from '../support/random.ts';
import { eventually } from '../support/wait.ts';
import { newApplication, requestIdOf, worldOf } from '../support/world.ts';
import { shapes } from './shapes.ts';

const ADVERSARY = 100;
const VICTIM = 30;
/** The victim may take this long, or this multiple of its time alone. */
const BOUND_MS = 6_000;
const TIMES_ALONE = 5;
const POLL_MS = 100;
/** Each number is beyond every bound of a minute. */
const WAVES = 8;
const ONE_A_MINUTE = { 'partner-ingest.io/max-per-minute': '1' };
const SEED = 37;
const ADDRESSES = 20;
const AGAIN_AFTER_MS = 500;
/** The duration of the victim's requests. */
const SLOW_MS = 4_000;
/** Files of this process, the stores and the victim. */
const OTHER_FILES = 500;

interface Adversary {
  readonly does: () => Promise<unknown>;
  /** The relay's fault for the adversary's recipients. */
  readonly relay?: SmtpFault;
}

const victimKey = newApiKey();
const { world } = await worldOf([], { partners: [{ partner: 'victim', keys: [victimKey] }] });
let ingest: ServiceProcess;
let processor: ServiceProcess;
let bound: number;

beforeAll(async () => {
  ingest = await world.spawn('ingest');
  processor = await world.spawn('processor');
  bound = Math.max(BOUND_MS, TIMES_ALONE * (await victimWorks()).tookMs);
});
// Work that the adversary left must not delay the next test.
afterEach(async () => {
  await pastLockConflicts(() => world.stores.requests.deleteMany({}));
});

const isTheirs = (address: string): boolean => address.includes('-adversary@');

function applicationTo(domain: string, mark = ''): string {
  const { email, ...others } = newApplication();
  return JSON.stringify({ ...others, email: email.replace(/@.*/, `${mark}@${domain}`) });
}

/** Sends all bodies at once, `waves` times. */
const sends =
  (body: (n: number) => string | Buffer, { waves = 1, key = world.key } = {}) =>
  async (): Promise<void> => {
    const sendOne = (_: unknown, n: number) => send(ingest.url, { key, body: body(n) });
    for (let wave = 0; wave < waves; wave += 1)
      await Promise.all(Array.from({ length: ADVERSARY }, sendOne));
  };

/** Sends the victim's work; ends when all is completed, or after `withinMs`. */
async function victimWorks(withinMs = Infinity) {
  const startedAt = performance.now();
  const ids = await Promise.all(
    Array.from({ length: VICTIM }, async (_, n) => {
      const body = applicationTo(`v${n % 5}.example`);
      return requestIdOf(await send(ingest.url, { key: victimKey, body }));
    }),
  );
  for (;;) {
    const completed = (await world.records({ _id: { $in: ids }, state: 'completed' })).length;
    const tookMs = performance.now() - startedAt;
    if (completed === VICTIM || tookMs > withinMs) return { completed, tookMs };
    await pause(POLL_MS);
  }
}

/** Resolves once ingest has read all earlier Secrets. */
async function afterAnotherRound(): Promise<void> {
  const key = newApiKey();
  await world.writePartner({ partner: 'witness', keys: [key] });
  await eventually('a key that was written later', async () => {
    return (await send(ingest.url, { key, body: '[]' })).status === 400;
  });
}

/** Returns what the adversary changed for the victim; an empty list is good. */
async function judge(
  adversary: Adversary,
  meets: (address: string) => boolean = isTheirs,
): Promise<string[]> {
  const { relay } = adversary;
  if (relay !== undefined)
    world.mail.setFault(({ rcptTo }) => (rcptTo.some(meets) ? relay : undefined));
  try {
    await adversary.does();
    const beside = await victimWorks(bound);
    return [
      ...(beside.completed === VICTIM ? [] : [`${beside.completed} of ${VICTIM} completed`]),
      ...(beside.tookMs <= bound ? [] : [`more than ${Math.round(bound)} ms`]),
    ];
  } finally {
    world.mail.setFault(undefined);
    // Hung sessions would last ten minutes.
    await world.mail.stopListening();
    await world.mail.listenAgain();
  }
}

const moments = { rcpt: 'rcpt', data: 'data-command', content: 'data' } as const;
/** One known answer of each kind at each phase. */
const answers = new Map<string, SmtpFault>();
for (const { phase, answer, failure } of knownAnswers) {
  if (phase === 'mail') continue;
  const message = answer.slice(4).replaceAll('\n', ' ');
  const code = Number(answer.slice(0, 3));
  const name = `${failure} at ${phase}`;
  if (!answers.has(name)) answers.set(name, { at: moments[phase], answer: { code, message } });
}
answers.set('silence at rcpt', { at: 'rcpt', hang: true });
answers.set('a cut after the content', { at: 'data', cut: 'after-store' });

test.each([...answers])(
  'the adversary’s recipients meet %s, and the victim’s work is done as if alone',
  async (name, relay) => {
    const oneDomain = name.length % 2 === 0;
    const domainOf = (n: number): string => (oneDomain ? 'one.example' : `a${n}.example`);
    const body = (n: number): string => applicationTo(domainOf(n), '-adversary');
    expect(await judge({ does: sends(body), relay })).toEqual([]);
  },
);

test('after the relay declines one applicant, each later one gets the e-mail', async () => {
  // A new processor has no history with the relay.
  await processor.stop();
  processor = await world.spawn('processor');
  const ofTheVictim = async (domain: string, mark: string, filter: object): Promise<void> => {
    const id = requestIdOf(
      await send(ingest.url, { key: victimKey, body: applicationTo(domain, mark) }),
    );
    await eventually(`the answer of the relay for ${domain}`, async () => {
      return (await world.records({ _id: id, ...filter })).length > 0;
    });
  };
  const answer = { code: 451, message: '4.7.1 Try again later' };
  world.mail.setFault(({ rcptTo }) => (rcptTo.some(isTheirs) ? { at: 'data', answer } : undefined));
  try {
    await ofTheVictim('one.example', '-adversary', { lastError: { $exists: true } });
    for (let n = 0; n < 4; n += 1)
      await ofTheVictim(`later${n}.example`, '', { state: 'completed' });
  } finally {
    world.mail.setFault(undefined);
  }
});

test('the adversary sends the costliest bodies, and the victim’s work is done as if alone', async () => {
  const bodies = newRandom(SEED)
    .shuffled([...shapes(SEED, ADVERSARY)])
    .slice(0, ADVERSARY)
    .map((shape) => shape.body());
  expect(await judge({ does: sends((n) => bodies[n]!) })).toEqual([]);
});

test('the adversary sends too fast and with unknown keys, and the victim’s work is done as if alone', async () => {
  const body = (): string => applicationTo('one.example', '-adversary');
  const bounded = newApiKey();
  await world.writePartner({
    partner: 'bounded',
    keys: [bounded],
    annotations: { 'partner-ingest.io/max-per-minute': '10' },
  });
  await eventually('its bound', async () => {
    return (await send(ingest.url, { key: bounded, body: '[]' })).status === 429;
  });
  const does = (): Promise<unknown> =>
    Promise.all([
      sends(body, { waves: WAVES, key: bounded })(),
      sends(body, { waves: WAVES, key: newApiKey() })(),
    ]);
  expect(await judge({ does })).toEqual([]);
});

const thousand = Array.from({ length: 1_000 }, newApiKey);
const secrets: readonly (readonly [string, Omit<DemoPartner, 'partner'>])[] = [
  ['claims the victim’s key, inactive', { keys: [victimKey], status: 'inactive' }],
  [
    'claims the victim’s key, with a bad annotation',
    { keys: [victimKey, 'short', ''], annotations: { 'partner-ingest.io/cidrs': 'nowhere' } },
  ],
  ['claims the victim’s key, with few requests', { keys: [victimKey], annotations: ONE_A_MINUTE }],
  ['holds a thousand keys', { keys: thousand }],
  ['ends most keys', { keys: thousand.slice(0, 10), annotations: ONE_A_MINUTE }],
  ['has no keys, and an unknown status', { keys: [], status: 'Active' }],
];

test.each(secrets)(
  'the adversary’s Secret changes all the time, then %s, and the victim’s work is done as if alone',
  async (_name, last) => {
    const does = async (): Promise<void> => {
      for (const [, secret] of secrets) {
        await world.writePartner({ partner: 'adversary', ...secret });
        await pause(POLL_MS);
      }
      await world.writePartner({ partner: 'adversary', ...last });
      await afterAnotherRound();
    };
    expect(await judge({ does })).toEqual([]);
  },
);

interface Siege {
  readonly count: number;
  readonly begin: (socket: Socket) => void;
  /** Counters that show that the bound is reached. */
  readonly reached: readonly [
    metric: string,
    labels: Readonly<Record<string, string>>,
    count?: number,
  ];
}

/** An open record that no processor works on. */
const endless = newRecord({ dueAt: new Date(Date.now() + 86_400_000) });
const authorized = (): string => `Authorization: Bearer ${world.key}`;
const get =
  (path: string, ...lines: string[]) =>
  (socket: Socket): boolean =>
    socket.write(head([authorized(), ...lines], `GET ${path} HTTP/1.1`));
const lookUp = get(`${INGEST_PATH}/req_${'0'.repeat(26)}`);
const again = (count: number, ask: (socket: Socket) => void): Siege => ({
  count,
  begin: (socket) => {
    socket.on('data', () => ask(socket));
    ask(socket);
  },
  reached: ['requests', { status: '503' }],
});

/** How the adversary uses up each shared resource. */
const sieges: Readonly<Record<keyof typeof SHARED, Siege>> = {
  incomingBytes: {
    count: 1_200,
    begin: (socket) => {
      socket.write(head([authorized(), `Content-Length: ${MAX_BODY_BYTES}`]));
      socket.write(' '.repeat(MAX_BODY_BYTES - 1));
    },
    reached: ['not_accepted', { reason: 'no_room' }],
  },
  connections: {
    count: SHARED.connections + 100,
    begin: lookUp,
    reached: ['broken_http', { kind: 'too_many_connections' }],
  },
  lookUps: again(2 * SHARED.lookUps, lookUp),
  lists: again(16 * SHARED.lists, get(LIST_PATH)),
  waits: {
    count: 2 * SHARED.waits,
    begin: (socket) => get(`${INGEST_PATH}/${endless._id}`, 'Prefer: wait=30')(socket),
    reached: ['requests', { status: '200' }, SHARED.waits],
  },
};

test.each(Object.entries(sieges))(
  'the adversary takes all %s from many addresses, and the victim is answered as if alone',
  async (_name, { count, begin, reached: [metric, labels, reached = 1] }) => {
    if (openFilesLimit() < count + OTHER_FILES) return;
    await world.stores.requests.insertOne(endless);
    const crowd = await openCrowd({
      url: ingest.url,
      count,
      from: (index) => `127.2.0.${1 + (index % ADDRESSES)}`,
      begin,
      againAfterMs: AGAIN_AFTER_MS,
    });
    const told = new Set<string>();
    const note = ({ status, headers }: Answer): void => {
      told.add([status, headers['preference-applied']].join(' '));
    };
    const ask = (path: string): Promise<Answer> =>
      send(ingest.url, { key: victimKey, method: 'GET', path, headers: { prefer: 'wait=20' } });
    const half = ' '.repeat(MAX_BODY_BYTES / 2);
    const ofVictim = head([
      `Authorization: Bearer ${victimKey}`,
      `Content-Length: ${2 * half.length}`,
    ]);
    const bodies: RawConnection[] = [];
    try {
      bodies.push(...(await Promise.all([1, 2, 3].map(() => openRaw(ingest.url)))));
      for (const body of bodies) body.write(ofVictim + half);
      const slow = pause(SLOW_MS).then(async () => {
        for (const body of bodies) body.write(half);
        for (const body of bodies) note(await body.answer());
      });
      for (const until = performance.now() + SLOW_MS; performance.now() < until;) {
        const answer = await send(ingest.url, { key: victimKey, body: '{}' });
        note(answer);
        note(await ask(answer.headers['location'] ?? ''));
        note(await ask(LIST_PATH));
      }
      await slow;
      // A body of blanks is no JSON object.
      expect(told).toEqual(new Set(['202 ', '200 wait=20', '200 ', '400 ']));
      await eventually('the bound', async () => {
        const counted = await world.metric(ingest, `partner_ingest_${metric}_total`, labels);
        return counted >= reached;
      });
    } finally {
      crowd.destroy();
      for (const { socket } of bodies) socket.destroy();
    }
  },
);

test('the judge catches a relay that treats the victim as the adversary', async () => {
  const body = (): string => applicationTo('one.example', '-adversary');
  const relay = { at: 'rcpt', hang: true } as const;
  expect(await judge({ does: sends(body), relay }, () => true)).toEqual([
    `0 of ${VICTIM} completed`,
    expect.stringMatching(/^more than/),
  ]);
});
