/**
 * Steady, bounded load of partners on the ingest processes, every request in the ledger before it
 * is sent.
 */
import { Agent, request, type IncomingMessage } from 'node:http';
import { INGEST_PATH } from '../support/http.ts';
import { userAgentOf, type Answer, type Ledger, type LedgerEntry } from './ledger.ts';
import type { PlannedRequest, Planner } from './planner.ts';
import type { Random } from '../support/random.ts';

/** An ingest process that takes requests now. */
export interface Target {
  readonly instance: string;
  readonly url: string;
}

export interface LoadOptions {
  readonly planner: Planner;
  readonly random: Random;
  readonly ledger: Ledger;
  readonly keys: Readonly<Record<'good' | 'inactive' | 'unknown', string>>;
  /** Those to choose from; empty means that nothing is sent for now. */
  targets(): readonly Target[];
  phase(): string;
  readonly perSecond: number;
  /** More headers of request `n`, such as the partner's address where we stand in for a proxy. */
  headers?(n: number): Readonly<Record<string, string>>;
}

export interface Load {
  /** Nothing new is sent until `resume`; resolves once nothing is under way. */
  pause(): Promise<void>;
  resume(): void;
  /** Ends for good. */
  stop(): Promise<void>;
}

/** Requests under way at once; beyond it the next ones wait for their turn. */
const CONCURRENCY = 96;
/** Of these at one process, so that a frozen one does not hold up the load on the others. */
const CONCURRENCY_EACH = 40;
/**
 * A partner gives up after this: patient enough to hear what a process says that was frozen
 * meanwhile.
 */
const CLIENT_TIMEOUT_MS = 75_000;

export function startLoad(options: LoadOptions): Load {
  const { planner, random, ledger } = options;
  const agent = new Agent({ keepAlive: true, maxSockets: CONCURRENCY });
  const underWay = new Set<Promise<void>>();
  const underWayAt = new Map<string, number>();
  const countAt = (instance: string, change: number): void => {
    underWayAt.set(instance, (underWayAt.get(instance) ?? 0) + change);
  };
  let running = true;

  const sendOne = (planned: PlannedRequest, target: Target): void => {
    const body =
      planned.kind === 'cut'
        ? planned.body.subarray(0, random.below(planned.body.length))
        : planned.body;
    const entry = ledger.sending({
      phase: options.phase(),
      kind: planned.kind,
      ...(planned.applicant === undefined ? {} : { applicant: planned.applicant }),
      ...(planned.idempotencyKey === undefined ? {} : { idempotencyKey: planned.idempotencyKey }),
      instance: target.instance,
      body,
    });
    const key = planned.key === 'none' ? undefined : options.keys[planned.key];
    const headers = options.headers?.(entry.n) ?? {};
    const done = post(target.url, entry, { key, agent, headers, announced: planned.body.length })
      .then(
        (answer) => {
          ledger.answered(entry, answer);
          if (answer.status === 500) planner.failed(planned);
        },
        (error: unknown) => {
          ledger.unanswered(
            entry,
            error instanceof Error
              ? ((error as NodeJS.ErrnoException).code ?? error.message)
              : String(error),
          );
          planner.failed(planned);
        },
      )
      .finally(() => {
        underWay.delete(done);
        countAt(target.instance, -1);
      });
    underWay.add(done);
    countAt(target.instance, 1);
  };
  const timer = setInterval(() => {
    const free = options
      .targets()
      .filter(({ instance }) => (underWayAt.get(instance) ?? 0) < CONCURRENCY_EACH);
    const [first, ...others] = free;
    if (!running || first === undefined || underWay.size >= CONCURRENCY) return;
    for (const planned of planner.next()) sendOne(planned, random.pick([first, ...others]));
  }, 1_000 / options.perSecond);

  const pause = async (): Promise<void> => {
    running = false;
    while (underWay.size > 0) await Promise.all(underWay);
  };
  return {
    pause,
    resume() {
      running = true;
    },
    async stop() {
      clearInterval(timer);
      await pause();
      agent.destroy();
    },
  };
}

/**
 * Sends the entry's bytes; where they are fewer than `announced`, the connection is ended behind
 * them.
 */
function post(
  url: string,
  entry: LedgerEntry,
  options: {
    readonly key: string | undefined;
    readonly agent: Agent;
    readonly headers: Readonly<Record<string, string>>;
    readonly announced: number;
  },
): Promise<Omit<Answer, 'at'>> {
  return new Promise((resolve, reject) => {
    const cut = entry.kind === 'cut';
    const outgoing = request(
      new URL(INGEST_PATH, url),
      {
        method: 'POST',
        ...(cut ? { agent: false } : { agent: options.agent }),
        headers: {
          ...options.headers,
          'content-length': String(options.announced),
          'user-agent': userAgentOf(entry.n),
          ...(entry.idempotencyKey === undefined
            ? {}
            : { 'idempotency-key': `"${entry.idempotencyKey}"` }),
          ...(options.key === undefined ? {} : { authorization: `Bearer ${options.key}` }),
        },
        signal: AbortSignal.timeout(CLIENT_TIMEOUT_MS),
      },
      (incoming) => {
        readAnswer(incoming).then(resolve, reject);
      },
    );
    outgoing.on('error', reject);
    if (cut) outgoing.write(entry.body, () => outgoing.destroy(new Error('cut on purpose')));
    else outgoing.end(entry.body);
  });
}

async function readAnswer(incoming: IncomingMessage): Promise<Omit<Answer, 'at'>> {
  const parts: Buffer[] = [];
  for await (const part of incoming) parts.push(part as Buffer);
  const body = JSON.parse(Buffer.concat(parts).toString('utf8')) as {
    data?: { request_id?: string };
  };
  const requestId = body.data?.request_id;
  const xRequestId = incoming.headers['x-request-id'];
  return {
    status: incoming.statusCode ?? 0,
    ...(requestId === undefined ? {} : { requestId }),
    ...(typeof xRequestId === 'string' ? { xRequestId } : {}),
    ...(incoming.headers['idempotent-replayed'] === 'true' ? { replayed: true } : {}),
  };
}
