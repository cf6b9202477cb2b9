/**
 * Plays a week of four partners into the stores, with a few faults, so that pages have what they
 * are made for. What pages count of the last hour is also what they list.
 */
import { accountCollection, type Account } from '../../internal/account/account.ts';
import { claimedIn, parseApplication } from '../../internal/application/parse-application.ts';
import {
  duplicateReason,
  mailReason,
  type StoredReason,
} from '../../internal/application/reasons.ts';
import { keyIdOf } from '../../internal/partner/api-key.ts';
import { KeyStore } from '../../internal/partner/key-store.ts';
import { DAY_MS, later } from '../../internal/platform/process/clock.ts';
import type { Loop } from '../../internal/platform/process/loop.ts';
import { newId } from '../../internal/platform/stores/ids.ts';
import { rateLimitedCollection } from '../../internal/submission/over-limit.ts';
import type { State } from '../../internal/submission/states.ts';
import { asLastError, type Fact } from '../../internal/submission/submission.ts';
import { HOUR_MS, MINUTE_MS, startOf } from '../../internal/traffic/traffic.ts';
import { TrafficCounter } from '../../internal/traffic/traffic-counter.ts';
import { newRandom, type Random } from './random.ts';
import { newRecord, recordOf } from './records.ts';
import type { World } from './world.ts';

/** `most`: requests a minute when most come. */
const PARTNERS = {
  northwind: {
    most: 48,
    address: '198.51.100.20',
    answers: { 202: 0.9955, 400: 0.0045 },
    ends: { completed: 0.974, digits: 0.005, address: 0.004, duplicate: 0.012, gone: 0.005 },
  },
  acme: {
    most: 31,
    address: '203.0.113.7',
    limit: 60,
    surge: [2.4, 122, 117],
    answers: { 202: 0.9936, 400: 0.004, 401: 0.0014, 422: 0.001 },
    ends: {
      completed: 0.925,
      digits: 0.034,
      address: 0.014,
      name: 0.004,
      duplicate: 0.015,
      gone: 0.004,
      full: 0.0025,
      nowhere: 0.0015,
    },
  },
  globex: {
    most: 9,
    address: '192.0.2.44',
    limit: 12,
    surge: [2.2, 34, 18],
    answers: { 202: 0.996, 400: 0.004 },
    ends: { completed: 0.96, digits: 0.02, duplicate: 0.015, gone: 0.005 },
  },
  umbrella: {
    most: 3,
    address: '192.0.2.130',
    answers: { 202: 1 },
    ends: { completed: 0.7, digits: 0.02, address: 0.22, duplicate: 0.05, full: 0.01 },
  },
} as const satisfies Record<string, PlayedPartner>;
type Name = keyof typeof PARTNERS;

interface PlayedPartner {
  readonly most: number;
  readonly address: string;
  readonly limit?: number;
  /** How much more, from and until a number of minutes ago. */
  readonly surge?: readonly [times: number, from: number, until: number];
  readonly answers: Readonly<Record<number, number>>;
  readonly ends: Readonly<Record<string, number>>;
}

const FAULTS: Readonly<Record<string, object>> = {
  digits: { ein: '12-34567' },
  address: { email: 'office at example' },
  name: { business_name: undefined },
};
const REFUSALS: Readonly<Record<string, readonly [Parameters<typeof mailReason>[0], string]>> = {
  gone: ['unknown_mailbox', '550 5.1.1 no such mailbox'],
  full: ['mailbox_full', '552 5.2.2 mailbox is full'],
  nowhere: ['domain_refused', '556 5.1.10 this domain takes no e-mail'],
};
/** When they were received and given up, in minutes ago. */
const GIVEN_UP: readonly (readonly [Name, number, number, Fact])[] = [
  ...(['northwind', 'globex', 'northwind', 'umbrella'] as const).map((partner, index) => {
    const of = 'MongoServerError, DocumentValidationFailure, 121';
    const words = `creating the account failed: ${of}`;
    const fact = { code: 'step_failed', of, words } as const;
    const ago = 95 + 11 * index;
    return [partner, 3 * 1_440 + 20 + ago, ago, fact] as const;
  }),
  ...(['acme', 'northwind'] as const).map((partner, index) => {
    const words = 'its workers ended without a word, several times';
    return [partner, 171 + index, 158 + index, { code: 'workers_died', words }] as const;
  }),
];
/** The hour of the day that it is, for them: a morning lies behind. */
const HOUR_NOW = 11.4;
/** Of so long all records are there, of so long those that did not end well. */
const [ALL_KEPT_MS, SOME_KEPT_MS] = [65 * MINUTE_MS, 26 * HOUR_MS];
/** After its receipt a request is played to its end within this time. */
const ENDS_WITHIN_MS = 2_000;
const [FIRST, SECOND] = [
  'Harbor Juniper Kestrel Lumen Marigold Orchard Pioneer Quarry Ridge Summit Tidewater Willow',
  'Bakery Dental Freight Optics Cafe Design Farms Garage Labs Media Roofing Studio Textiles',
].map((all) => all.split(' ')) as [string[], string[]];

/** A night, a morning, a dip at noon, an afternoon. */
function curve(hour: number): number {
  const bump = (at: number, width: number): number => Math.exp(-(((hour - at) / width) ** 2));
  return 0.06 + 0.9 * bump(10.3, 2) + 0.75 * bump(15, 2.4) + 0.2 * bump(19.5, 1.5);
}

interface Played {
  readonly at: Date;
  readonly partner: Name;
  readonly status: number;
  readonly acceptMs: number;
  readonly fields: object;
  readonly state?: State;
  readonly endedAt: Date;
  readonly reasons?: readonly StoredReason[];
  readonly fact?: Fact;
  readonly reply?: string;
  /** Undefined if it has no record. */
  readonly id?: string | undefined;
}

/** Of all partners, in the order of receipt; the same each time, from the begin on. */
class Script {
  readonly #begin: Date;
  readonly #first: number;
  #serial = 0;
  /** Whose accounts a duplicate may meet. */
  readonly #holders: (readonly [string, Name, string])[] = [];

  constructor(begin: Date) {
    this.#begin = begin;
    this.#first = startOf(begin.getTime(), MINUTE_MS);
  }

  /** `weight`: a minute that stands for an hour has more. */
  minute(ago: number, weight: number, from: Date, until: Date): Played[] {
    const random = newRandom(1e6 - ago);
    const start = this.#first - ago * MINUTE_MS;
    const hour = (HOUR_NOW - ago / 60 + 24 * 8) % 24;
    return Object.entries(PARTNERS)
      .flatMap(([name, partner]: [string, PlayedPartner]) => {
        const [times, first, last] = partner.surge ?? [1, -Infinity, Infinity];
        const more = ago <= first && ago > last && weight === 1 ? times : 1;
        const wanted = partner.most * curve(hour) * weight * more * random.between(0.85, 1.15);
        return Array.from({ length: Math.floor(wanted + random.next()) }, (_, index) => {
          const at = new Date(start + Math.floor(random.next() * MINUTE_MS));
          const isOver = weight === 1 && index >= (partner.limit ?? Infinity);
          return this.#request(name as Name, at, isOver, ago, random);
        });
      })
      .filter(({ at }) => at >= from && at < until)
      .toSorted((one, other) => one.at.getTime() - other.at.getTime())
      .map((one) => this.#withRecord(one));
  }

  #request(partner: Name, at: Date, isOver: boolean, ago: number, random: Random): Played {
    const { answers, ends }: PlayedPartner = PARTNERS[partner];
    const acceptMs = 6 + 11 * random.next() ** 3 + (random.chance(0.002) ? 9 : 0);
    const fails = ago > 40 && ago < 42 && random.chance(0.08);
    const isOff = partner === 'acme' && ago === 150 && random.chance(0.5);
    const status = isOver ? 429 : isOff ? 403 : fails ? 500 : Number(random.weighted(answers));
    const name = `${random.pick(FIRST)} ${random.pick(SECOND)}`;
    this.#serial += 1;
    const domain = `${name.toLowerCase().replace(' ', '-')}-${this.#serial}.example`;
    const fields = {
      email: `${random.pick(['office', 'ada', 'hello', 'billing'])}@${domain}`,
      business_name: name,
      ein: String(310_000_000 + this.#serial * 769),
    };
    const endedAt = later(at, random.between(700, 1_300));
    const played = { at, partner, status, acceptMs, fields, endedAt };
    if (status !== 202) return played;
    const ending = random.weighted(ends);
    if (ending in REFUSALS) {
      const [code, reply] = REFUSALS[ending]!;
      const of = reply.split(' ').slice(0, 2).join(' ');
      const words = `the mail server did not accept the applicant's address (${of})`;
      const fact = { code: 'mail_refused', of, words } as const;
      return { ...played, state: 'undeliverable', reasons: [mailReason(code)], fact, reply };
    }
    const rejectedAt = { endedAt: later(at, random.between(90, 260)), state: 'rejected' } as const;
    const [ein, whose, id] = this.#holders.at(-random.below(400) - 1) ?? [];
    if (ending === 'duplicate') {
      const reasons = [duplicateReason('ein', id, whose === partner)];
      return { ...played, ...rejectedAt, fields: { ...fields, ...(ein && { ein }) }, reasons };
    }
    if (!(ending in FAULTS)) return { ...played, state: 'completed' };
    const faulty = { ...fields, ...FAULTS[ending] };
    const parsed = parseApplication(Buffer.from(JSON.stringify(faulty)));
    return {
      ...played,
      ...rejectedAt,
      fields: faulty,
      reasons: parsed.valid ? [] : parsed.reasons,
    };
  }

  #withRecord(one: Played): Played {
    const agoMs = this.#begin.getTime() - one.at.getTime();
    const hasRecord = one.state !== undefined || [400, 401, 403].includes(one.status);
    const keptMs = one.state === 'completed' ? ALL_KEPT_MS : SOME_KEPT_MS;
    if (!hasRecord || agoMs > keptMs) return one;
    const id = newId('req', one.at);
    const { ein } = claimedIn(Buffer.from(JSON.stringify(one.fields)));
    if (one.state === 'completed') this.#holders.push([ein!, one.partner, id]);
    return { ...one, id };
  }
}

/** Plays until `begin`; what it returns plays on until then. */
export async function playDay(world: World, begin = new Date()) {
  const script = new Script(begin);
  const first = startOf(begin.getTime(), MINUTE_MS);
  const givenUp = GIVEN_UP.map(([partner, receivedAgo, ago, fact], index): Played => {
    const [at, endedAt] = [receivedAgo, ago].map((one) => later(begin, -one * MINUTE_MS));
    const fields = {
      email: `office@foundry-${index}.example`,
      business_name: `Foundry ${index}`,
      ein: String(290_000_000 + 7_919 * index),
    };
    const times = { at: at!, endedAt: endedAt!, acceptMs: 9 };
    const id = newId('req', at!);
    return { ...times, partner, status: 202, fields, state: 'dead_lettered', fact, id };
  });
  const week: Played[] = [];
  const [long, untilFirst] = [later(begin, -8 * DAY_MS), later(begin, -ENDS_WITHIN_MS)];
  // Before the last day one minute stands for its hour, but at this time of the day, which is shown.
  for (let ago = 7 * 24 + 1; ago > 26; ago -= 1) {
    const hour = (first - startOf(first - ago * HOUR_MS, HOUR_MS)) / MINUTE_MS;
    const isShown = [23, 0, 1].includes(ago % 24);
    const [minutes, weight] = isShown ? [60, 1] : [1, 55];
    for (let minute = 0; minute < minutes; minute += 1)
      week.push(...script.minute(hour - minute, weight, long, untilFirst));
  }
  for (let ago = 26 * 60; ago >= 0; ago -= 1) week.push(...script.minute(ago, 1, long, untilFirst));
  let played = untilFirst;
  await store(world, [...givenUp, ...week], [later(begin, -26 * HOUR_MS), played], begin);
  return async (until = new Date()): Promise<void> => {
    const to = later(until, -ENDS_WITHIN_MS);
    const some: Played[] = [];
    for (let at = startOf(played.getTime(), MINUTE_MS); at < to.getTime(); at += MINUTE_MS)
      some.push(...script.minute((first - at) / MINUTE_MS, 1, played, to));
    await store(world, some, [played, to], begin);
    played = to;
  };
}

/** Counts and records what was played in a time, at the end of which keys were used last. */
async function store(
  world: World,
  all: readonly Played[],
  [from, to]: readonly [Date, Date],
  begin: Date,
): Promise<void> {
  await count(world, all, levelsOf(from, to, begin));
  const keys = await new KeyStore({ db: world.stores.db, clock: clockAt(() => to) }).list();
  const keyOf = ({ partner, status }: Played) => {
    const theirs = keys.filter(({ partnerId }) => partnerId === partner);
    return theirs.find(({ terms }) => (terms.notAfter !== undefined) === (status === 401))!;
  };
  const stored = all.filter(({ id }) => id !== undefined);
  const records = stored.map((one) => recordOfPlayed(one, keyIdOf(keyOf(one).hash), to));
  const accounts = stored.flatMap((one) => accountOf(one, to));
  if (records.length > 0) await world.stores.requests.insertMany(records, { ordered: false });
  if (accounts.length > 0)
    await accountCollection(world.stores.db).insertMany(accounts, { ordered: false });
  const limited = Map.groupBy(
    all.filter(({ status }) => status === 429),
    (one) => `${one.partner} ${startOf(one.at.getTime(), MINUTE_MS)}`,
  );
  const windows = [...limited.values()].map((some) => {
    const [one] = some as [Played, ...Played[]];
    const { address, limit = 0 }: PlayedPartner = PARTNERS[one.partner];
    const windowStart = new Date(startOf(one.at.getTime(), MINUTE_MS));
    const keyId = keyIdOf(keyOf(one).hash);
    return {
      _id: `${address} ${keyId} ${windowStart.toISOString()} played ${one.at.toISOString()}`,
      address,
      partnerId: one.partner,
      keyId,
      limits: [`${limit} a minute of this partner`],
      windowStart,
      count: some.length,
      requestIds: [],
      expiresAt: later(to, 30 * DAY_MS),
    };
  });
  if (windows.length > 0) await rateLimitedCollection(world.stores.db).insertMany(windows);
  const lastOf = Map.groupBy(all, ({ partner }) => partner);
  for (const theirs of lastOf.values()) {
    const last = theirs.findLast(({ status }) => status === 202);
    // A partner may have had no other answers in a short time.
    if (last === undefined) continue;
    await new KeyStore({ db: world.stores.db, clock: clockAt(() => to) }).touch(
      [keyOf(last).hash],
      last.at,
    );
  }
}

const clockAt = (now: () => Date) => ({ now, monotonicMs: () => now().getTime() });

type Happens = readonly [at: Date, count: (counter: TrafficCounter) => void];

/** Most that waited in each minute; the relay had a bad while an hour ago. */
function levelsOf(from: Date, to: Date, begin: Date): Happens[] {
  const levels: Happens[] = [];
  for (
    let at = startOf(from.getTime() + MINUTE_MS - 1, MINUTE_MS);
    at < to.getTime();
    at += MINUTE_MS
  ) {
    const random = newRandom(at / MINUTE_MS);
    const ago = (begin.getTime() - at) / MINUTE_MS;
    const late = ago > 44 && ago < 52 ? Math.round(4.5 * (52 - ago)) : 0;
    levels.push([
      new Date(at),
      (counter) => {
        counter.waiting('recorded', random.below(3));
        counter.waiting('account_created', 1 + random.below(4) + late);
      },
    ]);
  }
  return levels;
}

async function count(
  world: World,
  all: readonly Played[],
  levels: readonly Happens[],
): Promise<void> {
  const events = all.flatMap((one): Happens[] => [
    [
      one.at,
      (counter) => {
        const acceptMs = one.status === 202 ? one.acceptMs : undefined;
        counter.answered(one.partner, 'answers', one.status, acceptMs);
      },
    ],
    [
      one.endedAt,
      (counter) => {
        if (one.state === undefined) return;
        const { partner, state, at: receivedAt, reasons } = one;
        counter.ended(partner, { receivedAt, history: [] }, state, reasons);
        if (state === 'completed') counter.mailed(partner, 'accepted');
        if (state === 'undeliverable') counter.mailed(partner, 'refused');
      },
    ],
  ]);
  let now = new Date(0);
  const loops = { start: () => ({ stop: () => Promise.resolve() }) as unknown as Loop };
  // A week is one write, which a busy machine takes its time for.
  const limits = { rowsMax: 20_000, writeWithinMs: 120_000 };
  const tools = { db: world.stores.db, clock: clockAt(() => now), loops };
  const counter = new TrafficCounter(tools, limits);
  const inOrder = [...events, ...levels].toSorted(([one], [other]) => Number(one) - Number(other));
  for (const [at, happens] of inOrder) {
    now = at;
    happens(counter);
  }
  await counter.close();
}

function recordOfPlayed(one: Played, keyId: string, now: Date) {
  const { at, partner, status, fields, state, endedAt, reasons, fact, id } = one;
  const of = {
    _id: id!,
    receivedAt: at,
    partnerId: partner,
    remoteIp: PARTNERS[partner].address,
    httpStatus: status,
  };
  const expiresAt = later(now, 90 * DAY_MS);
  if (state === undefined) {
    const turned = status === 400 ? ('malformed' as const) : ('refused' as const);
    const history = [{ state: turned, at, attempt: 0 }];
    const text = JSON.stringify(fields).slice(0, -1);
    const {
      dueAt: _,
      body,
      ...record
    } = newRecord({ ...of, state: turned, history, stateAt: at }, text);
    return { ...record, keyId, expiresAt, ...(status === 400 && { body }) };
  }
  const hasAccount = state === 'completed' || state === 'undeliverable';
  const step = (to: State, when: Date) => ({ state: to, at: when, attempt: 1 });
  const why = fact ?? reasons?.[0];
  const reason =
    why && ('words' in why ? { reason: why.words, code: why.code } : { reason: why.code });
  const { dueAt: _, ...record } = recordOf(fields, at, {
    ...of,
    state,
    history: [
      { state: 'recorded', at, attempt: 0 },
      ...(hasAccount ? [step('account_created', later(at, 190))] : []),
      { ...step(state, endedAt), ...reason },
    ],
    stateAt: endedAt,
    version: 2,
    ...(state !== 'dead_lettered' && { expiresAt }),
    ...(reasons && { reasons }),
    ...(hasAccount && { accountId: id!.replace('req_', 'acc_') }),
    ...(fact && asLastError(fact)),
  });
  return record;
}

function accountOf(
  { at, partner, fields, state, endedAt, reply, id }: Played,
  now: Date,
): Account[] {
  if (state !== 'completed' && state !== 'undeliverable') return [];
  const { email, businessName, ein } = claimedIn(Buffer.from(JSON.stringify(fields)));
  const accountId = id!.replace('req_', 'acc_');
  const handOver = {
    claim: 2,
    startedAt: later(endedAt, -240),
    endedAt: later(endedAt, -20),
    attempt: 1,
    host: 'processor',
  };
  const [code, enhancedCode] = reply?.split(' ') ?? [];
  const refused = {
    result: 'refused',
    phase: 'rcpt',
    code: Number(code),
    enhancedCode,
    answer: reply,
  };
  return [
    {
      _id: accountId,
      email: email!,
      businessName: businessName!,
      ein: ein!,
      emailNormalized: email!,
      requestId: id!,
      partnerId: partner,
      createdAt: later(at, 190),
      activation: { tokenHash: accountId, expiresAt: later(now, 7 * DAY_MS) },
      ...(reply === undefined && { notifiedAt: handOver.endedAt }),
      mail: {
        begun: 1,
        possible: reply === undefined ? 1 : 0,
        handOvers: {
          2: {
            ...handOver,
            ...(reply === undefined
              ? { result: 'accepted', phase: 'answered', code: 250, enhancedCode: '2.0.0' }
              : (refused as object)),
          },
        },
      },
    },
  ];
}
