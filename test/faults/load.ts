/** A bounded constant load of partners; each request is in the ledger before it is sent. */
import { Agent, request, type IncomingMessage, type OutgoingHttpHeaders } from 'node:http';
import { Agent as TlsAgent, request as requestTls, type AgentOptions } from 'node:https';
import { json } from 'node:stream/consumers';
import { INGEST_PATH } from '../support/http.ts';
import { Ledger, userAgentOf, type Answer, type LedgerEntry } from './ledger.ts';
import { Planner, type PlannedRequest } from './planner.ts';
import type { Random } from '../support/random.ts';

export interface Target {
  readonly instance: string;
  readonly url: string;
}

export interface LoadOptions {
  /** The file of the ledger. */
  readonly file: string;
  readonly random: Random;
  /** Loads of one database need ranges of requests and applicants of their own. */
  readonly first?: number;
  readonly keyed?: boolean;
  readonly keys: Readonly<Record<'good' | 'inactive' | 'unknown', string>>;
  /** An empty list pauses the load. */
  targets(): readonly Target[];
  phase(): string;
  readonly perSecond: number;
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

/** Most requests under way at once; the others wait. */
const CONCURRENCY = 96;
/** Most requests under way at one process, so that a frozen one delays only its own. */
const CONCURRENCY_EACH = 40;
/** Longer than a frozen process needs to answer. */
const CLIENT_TIMEOUT_MS = 75_000;

export function startLoad(options: LoadOptions): Load {
  const { random, connection, first = 0, keyed = true } = options;
  const planner = new Planner(random, first, { keyed });
  const ledger = new Ledger(options.file, first);
  const agentOf = (more: AgentOptions): Agent =>
    connection === undefined ? new Agent(more) : new TlsAgent({ ...connection, ...more });
  const agent = agentOf({ keepAlive: true, maxSockets: CONCURRENCY });
  const underWay = new Set<Promise<void>>();
  const underWayAt = new Map<string, number>();
  const countAt = (instance: string, change: number): void => {
    underWayAt.set(instance, (underWayAt.get(instance) ?? 0) + change);
  };
  let running = true;

  const sendOne = async (planned: PlannedRequest, target: Target): Promise<void> => {
    const { kind, applicant, idempotencyKey, body, key } = planned;
    const entry = ledger.sending({
      phase: options.phase(),
      kind,
      ...(applicant === undefined ? {} : { applicant }),
      ...(idempotencyKey === undefined ? {} : { idempotencyKey }),
      instance: target.instance,
      body: kind === 'cut' ? body.subarray(0, random.below(body.length)) : body,
    });
    countAt(target.instance, 1);
    const headers = {
      'content-length': String(body.length),
      'user-agent': userAgentOf(entry.n),
      ...(idempotencyKey === undefined ? {} : { 'idempotency-key': `"${idempotencyKey}"` }),
      ...(key === 'none' ? {} : { authorization: `Bearer ${options.keys[key]}` }),
    };
    try {
      const ownAgent = kind === 'cut' ? agentOf({}) : agent;
      const answer = await post(target.url, entry, { headers, agent: ownAgent });
      ledger.answered(entry, answer);
      if (answer.status === 500) planner.failed(planned);
    } catch (error) {
      const { code, message } = error as NodeJS.ErrnoException;
      ledger.unanswered(entry, code ?? message);
      planner.failed(planned);
    }
    countAt(target.instance, -1);
  };
  const timer = setInterval(() => {
    const free = options
      .targets()
      .filter(({ instance }) => (underWayAt.get(instance) ?? 0) < CONCURRENCY_EACH);
    const [one, ...others] = free;
    if (!running || one === undefined || underWay.size >= CONCURRENCY) return;
    for (const planned of planner.next()) {
      const sending = sendOne(planned, random.pick([one, ...others]));
      underWay.add(sending);
      void sending.finally(() => underWay.delete(sending));
    }
  }, 1_000 / options.perSecond);

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
    const ask = url.startsWith('https:') ? requestTls : request;
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

async function readAnswer(incoming: IncomingMessage): Promise<Omit<Answer, 'at'>> {
  const body = (await json(incoming)) as { readonly data?: { readonly request_id?: string } };
  const requestId = body.data?.request_id;
  const xRequestId = incoming.headers['x-request-id'];
  return {
    status: incoming.statusCode ?? 0,
    ...(requestId === undefined ? {} : { requestId }),
    ...(typeof xRequestId === 'string' ? { xRequestId } : {}),
  };
}
