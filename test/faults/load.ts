/** A bounded constant load of partners; each request is in the ledger before it is sent. */
import { randomInt } from 'node:crypto';
import {
  Agent,
  type IncomingMessage,
  type OutgoingHttpHeaders,
  request as requestPlain,
} from 'node:http';
import { Agent as TlsAgent, type AgentOptions, request as requestTls } from 'node:https';
import { json } from 'node:stream/consumers';
import { INGEST_PATH, send } from '../support/http.ts';
import type { Random } from '../support/random.ts';
import {
  type Answer,
  type ApplicantKeys,
  Ledger,
  type LedgerEntry,
  type RequestKind,
  type Seen,
  userAgentOf,
} from './ledger.ts';

export interface Target {
  readonly instance: string;
  readonly url: string;
}

interface LoadOptions {
  /** The file of the ledger. */
  readonly file: string;
  readonly random: Random;
  /** Loads of one database need ranges of requests and applicants of their own. */
  readonly first?: number;
  readonly keyed?: boolean;
  /** Accepted requests are looked up, and half of all ask for a receipt. */
  readonly extensions?: boolean;
  readonly keys: Readonly<Record<'good' | 'inactive' | 'unknown', string>>;
  /** An empty list pauses the load. */
  targets(): readonly Target[];
  phase(): string;
  readonly perSecond: number;
  /**
   * Most requests under way at once; the others wait. Given, there are fewer while many fail, as of
   * a client that gives way.
   */
  readonly atOnce?: number;
  readonly connection?: AgentOptions;
}

export interface Load {
  readonly ledger: Ledger;
  /** Stops sending; resolves once no request is under way. */
  pause(): Promise<void>;
  resume(): void;
  /** Also closes the ledger. */
  stop(): Promise<void>;
}

const CONCURRENCY = 96;
/** What a failed request takes of those at once is 1, and what an answered one gives back. */
const ROOM_GAINED = 0.1;
const LEAST_AT_ONCE = 4;
/** What a late timer makes up for. */
const MOST_AT_A_TIME = 32;
/** At one process, where `atOnce` is not given, so that a frozen one delays only its own. */
const CONCURRENCY_EACH = 40;
/** Look-ups for each request that is sent. */
const LOOK_UP_SHARE = 0.2;
/** Longer than a frozen process needs to answer. */
const CLIENT_TIMEOUT_MS = 75_000;

export function startLoad(options: LoadOptions): Load {
  const { random, connection, first = 0, keyed = true, atOnce = CONCURRENCY } = options;
  const mostEach = options.atOnce ?? CONCURRENCY_EACH;
  const planner = new Planner(random, first, { keyed });
  const ledger = new Ledger(options.file, first);
  const agentOf = (more: AgentOptions): Agent =>
    connection === undefined ? new Agent(more) : new TlsAgent({ ...connection, ...more });
  const agent = agentOf({ keepAlive: true, maxSockets: atOnce });
  const underWay = new Set<Promise<void>>();
  const accepted: string[] = [];
  const underWayAt = new Map<string, number>();
  const countAt = (instance: string, change: number): void => {
    underWayAt.set(instance, (underWayAt.get(instance) ?? 0) + change);
  };
  let [running, room] = [true, atOnce];
  const answered = (ok: boolean): void => {
    if (options.atOnce === undefined) return;
    room = Math.min(atOnce, Math.max(LEAST_AT_ONCE, room + (ok ? ROOM_GAINED : -1)));
  };

  const sendOne = async (planned: PlannedRequest, target: Target): Promise<void> => {
    const { kind, applicant, idempotencyKey, body, key } = planned;
    const receipted = options.extensions === true && ledger.entries.length % 2 === 0;
    const entry = ledger.sending({
      phase: options.phase(),
      kind,
      ...(applicant === undefined ? {} : { applicant }),
      ...(idempotencyKey === undefined ? {} : { idempotencyKey }),
      ...(receipted ? { receipted } : {}),
      instance: target.instance,
      body: kind === 'cut' ? body.subarray(0, random.below(body.length)) : body,
    });
    countAt(target.instance, 1);
    const headers = {
      'content-length': String(body.length),
      'user-agent': userAgentOf(entry.n),
      ...(receipted ? { prefer: 'receipt' } : {}),
      ...(idempotencyKey === undefined ? {} : { 'idempotency-key': `"${idempotencyKey}"` }),
      ...(key === 'none' ? {} : { authorization: `Bearer ${options.keys[key]}` }),
    };
    try {
      const ownAgent = kind === 'cut' ? agentOf({}) : agent;
      const answer = await post(target.url, entry, { headers, agent: ownAgent });
      ledger.answered(entry, answer);
      if (options.extensions === true && answer.status === 202) {
        accepted.push(answer.requestId ?? '');
        if (accepted.length > REMEMBERED) accepted.shift();
      }
      answered(answer.status !== 500);
      if (answer.status === 500) planner.failed(planned);
    } catch (error) {
      const { code, message } = error as NodeJS.ErrnoException;
      ledger.unanswered(entry, code ?? message);
      if (kind !== 'cut') answered(false);
      planner.failed(planned);
    }
    countAt(target.instance, -1);
  };
  const lookUpOne = async ({ instance, url }: Target): Promise<void> => {
    // Not of the plan's sequence, so that look-ups do not change what is sent.
    const id = accepted[randomInt(accepted.length)]!;
    const ended = ledger.lookingUp(id);
    countAt(instance, 1);
    try {
      ended(await lookUp(url, id, { key: options.keys.good, agent }));
    } catch (error) {
      ended(undefined, (error as NodeJS.ErrnoException).code);
    }
    countAt(instance, -1);
  };
  const keep = (one: Promise<void>): void => {
    underWay.add(one);
    void one.finally(() => underWay.delete(one));
  };
  const sendNext = (): void => {
    const free = options
      .targets()
      .filter(({ instance }) => (underWayAt.get(instance) ?? 0) < mostEach);
    const [one, ...others] = free;
    if (!running || one === undefined || underWay.size >= room) return;
    for (const planned of planner.next()) keep(sendOne(planned, random.pick([one, ...others])));
    if (accepted.length > 0 && Math.random() < LOOK_UP_SHARE) keep(lookUpOne(one));
  };
  let last = performance.now();
  const everyMs = 1_000 / options.perSecond;
  const timer = setInterval(() => {
    // A busy machine calls later than asked.
    const due = Math.min(MOST_AT_A_TIME, Math.floor((performance.now() - last) / everyMs));
    last = due === MOST_AT_A_TIME ? performance.now() : last + due * everyMs;
    for (let one = 0; one < due; one += 1) sendNext();
  }, everyMs);

  const pause = async (): Promise<void> => {
    running = false;
    while (underWay.size > 0) await Promise.all(underWay);
  };
  return {
    ledger,
    pause,
    resume() {
      running = true;
    },
    async stop() {
      clearInterval(timer);
      await pause();
      agent.destroy();
      ledger.close();
    },
  };
}

/** Sends the body; a cut body ends its connection. */
function post(
  url: string,
  { kind, body }: LedgerEntry,
  options: { readonly headers: OutgoingHttpHeaders; readonly agent: Agent },
): Promise<Omit<Answer, 'at'>> {
  return new Promise((resolve, reject) => {
    const cut = kind === 'cut';
    const signal = AbortSignal.timeout(CLIENT_TIMEOUT_MS);
    const ask = url.startsWith('https:') ? requestTls : requestPlain;
    const outgoing = ask(
      new URL(INGEST_PATH, url),
      { method: 'POST', ...options, signal },
      (incoming) => void readAnswer(incoming).then(resolve, reject),
    );
    outgoing.on('error', reject);
    if (cut) outgoing.write(body, () => outgoing.destroy(new Error('cut on purpose')));
    else outgoing.end(body);
  });
}

/** Undefined for an answer that says nothing about the request. */
async function lookUp(
  url: string,
  id: string,
  { key, agent }: { readonly key: string; readonly agent: Agent },
): Promise<Seen | undefined> {
  const path = `${INGEST_PATH}/${id}`;
  const signal = AbortSignal.timeout(CLIENT_TIMEOUT_MS);
  const answer = await send(url, { method: 'GET', path, key, agent, signal });
  const { status } = answer;
  if (status === 404) return { status };
  if (status !== 200) return undefined;
  const { data } = answer.json as { readonly data: { readonly state: string } };
  return { status, state: data.state };
}

async function readAnswer(incoming: IncomingMessage): Promise<Omit<Answer, 'at'>> {
  const body = (await json(incoming)) as { readonly data?: { readonly request_id?: string } };
  const requestId = body.data?.request_id;
  const { 'x-request-id': xRequestId, receipt } = incoming.headers;
  return {
    status: incoming.statusCode ?? 0,
    ...(requestId === undefined ? {} : { requestId }),
    ...(typeof xRequestId === 'string' ? { xRequestId } : {}),
    ...(typeof receipt === 'string' ? { receipt } : {}),
  };
}

// Plans requests from a seed: new applicants, repeats, races and all kinds of faults.

interface PlannedRequest {
  readonly kind: RequestKind;
  readonly applicant?: ApplicantKeys;
  readonly body: Buffer;
  readonly key: 'good' | 'inactive' | 'unknown' | 'none';
  readonly idempotencyKey?: string;
}

const WEIGHTS = {
  fresh: 62,
  repeat: 6,
  repeatDressedUp: 4,
  race: 4,
  sameEmail: 3,
  sameEin: 3,
  malformed: 8,
  tooLarge: 1,
  invalid: 6,
  badKey: 3,
  cut: 1,
  secondBody: 3,
} as const;

/** Repeats choose from this number of latest applicants. */
const REMEMBERED = 40;
/** A race sends one application this many times at once, and up to three more. */
const RACE_LEAST = 3;
const RACE_SPREAD = 4;
const FIRST_EIN = 100_000_000;
/** One recipient's server alone says nothing of the relay. */
const DOMAINS = 4;
const TOO_LARGE_BYTES = 65_500;
/** The share of failed requests that are sent again. */
const RETRY_SHARE = 0.5;
const KEYED_SHARE = 0.5;
/** The share of repeats in what is sent while there are failed requests. */
const AGAIN_SHARE = 0.5;

const NAMES = [
  'Ada Ltd',
  'Åse & Sønner AS',
  '株式会社 例',
  'O"Hara <b>Partners</b>',
  'Nulls \u0000 Inc',
  'x'.repeat(900),
] as const;
const MALFORMED = ['', '[]', 'null', '"text"', '17', '{"email":', '{}{}', '{"a":1}]', '\0', 'ÿþ{'];

interface Recent {
  readonly keys: ApplicantKeys;
  readonly request: PlannedRequest;
  readonly used: string | undefined;
}

class Planner {
  readonly #random: Random;
  readonly #recent: Recent[] = [];
  readonly #again: PlannedRequest[] = [];
  readonly #keyed: boolean;
  #applicants: number;

  /**
   * Planners of one database need different ranges of applicants, given by `before`. With `keyed`
   * half of new applicants have an idempotency key, and some keys come with a second body.
   */
  constructor(random: Random, before = 0, { keyed = false } = {}) {
    this.#random = random;
    this.#keyed = keyed;
    this.#applicants = before;
  }

  next(): readonly PlannedRequest[] {
    const random = this.#random;
    // In a long outage repeats alone would be sent.
    const again = random.next() < AGAIN_SHARE ? this.#again.shift() : undefined;
    if (again !== undefined) return [again];
    const earlier = this.#recent[random.below(this.#recent.length)];
    const choice = random.weighted(WEIGHTS);
    if (earlier !== undefined) {
      const { keys, request, used } = earlier;
      if (choice === 'repeat') return [request];
      if (choice === 'repeatDressedUp') return [dressedUp(keys)];
      if (choice === 'sameEmail') return [application({ ...this.#newKeys(), email: keys.email })];
      if (choice === 'sameEin') return [application({ ...this.#newKeys(), ein: keys.ein })];
      if (choice === 'secondBody' && this.#keyed) return this.#secondBody(used);
    }
    switch (choice as string) {
      case 'race':
        return Array<PlannedRequest>(RACE_LEAST + random.below(RACE_SPREAD)).fill(this.#fresh());
      case 'malformed':
        // latin1 makes some bodies invalid UTF-8.
        return [malformed(Buffer.from(random.pick(MALFORMED), 'latin1'))];
      case 'tooLarge':
        return [malformed(Buffer.from(JSON.stringify({ pad: 'x'.repeat(TOO_LARGE_BYTES) })))];
      case 'invalid':
        return [invalid(random, this.#newKeys())];
      case 'badKey': {
        const key = random.pick(['inactive', 'unknown', 'none'] as const);
        return [{ ...this.#unremembered(), kind: 'unauthorized', key }];
      }
      case 'cut':
        return [{ ...this.#unremembered(), kind: 'cut' }];
      default:
        return [this.#fresh()];
    }
  }

  /** Reports a failed request, which may be sent again. */
  failed(request: PlannedRequest): void {
    if (request.kind !== 'valid') return;
    if (request.idempotencyKey !== undefined || this.#random.next() < RETRY_SHARE)
      this.#again.push(request);
  }

  #newKeys(): ApplicantKeys {
    this.#applicants += 1;
    return {
      email: `applicant-${this.#applicants}@d${this.#applicants % DOMAINS}.example.com`,
      ein: String(FIRST_EIN + this.#applicants),
    };
  }

  #fresh(): PlannedRequest {
    const keys = this.#newKeys();
    const request = application(keys, this.#random.pick(NAMES));
    const used = this.#keyed && this.#random.next() < KEYED_SHARE ? keyOf(keys) : undefined;
    this.#recent.push({ keys, request, used });
    if (this.#recent.length > REMEMBERED) this.#recent.shift();
    // The repeat has no key, as of a partner that forgot it.
    return used === undefined ? request : { ...request, idempotencyKey: used };
  }

  /** Sends another application under a used key, or two at once under a new one. */
  #secondBody(used: string | undefined): PlannedRequest[] {
    if (used !== undefined) return [{ ...application(this.#newKeys()), idempotencyKey: used }];
    const keys = this.#newKeys();
    return [keys, this.#newKeys()].map((each) => ({
      ...application(each),
      idempotencyKey: keyOf(keys),
    }));
  }

  /** A new applicant for requests that must have no effect. */
  #unremembered(): Pick<PlannedRequest, 'body' | 'key'> {
    const { body, key } = application(this.#newKeys());
    return { body, key };
  }
}

function keyOf({ ein }: ApplicantKeys): string {
  return `chaos-${ein}`;
}

function application(keys: ApplicantKeys, name = 'Business'): PlannedRequest {
  const fields = { email: keys.email, business_name: name, ein: keys.ein };
  return { kind: 'valid', applicant: keys, key: 'good', body: Buffer.from(JSON.stringify(fields)) };
}

/** The same applicant in other bytes: capitals, white space, more fields, a byte order mark. */
function dressedUp(keys: ApplicantKeys): PlannedRequest {
  const fields = {
    note: 'again',
    ein: keys.ein,
    business_name: 'Other Name',
    email: ` ${keys.email.toUpperCase()} `,
  };
  return {
    kind: 'valid',
    applicant: keys,
    key: 'good',
    body: Buffer.from(`\uFEFF${JSON.stringify(fields, null, 2)}\n`),
  };
}

const malformed = (body: Buffer): PlannedRequest => ({ kind: 'malformed', key: 'good', body });

function invalid(random: Random, keys: ApplicantKeys): PlannedRequest {
  const valid = { email: keys.email, business_name: 'Business', ein: keys.ein };
  const fields = random.pick<object>([
    {},
    { ...valid, email: 'nobody' },
    { ...valid, email: 7 },
    { ...valid, business_name: ' \t' },
    { ...valid, ein: '12-3456789' },
    { ...valid, ein: Number(keys.ein) },
    { ...valid, ein: `${keys.ein}\n` },
  ]);
  return { kind: 'invalid', key: 'good', body: Buffer.from(JSON.stringify(fields)) };
}
