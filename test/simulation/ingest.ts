/** A simulated ingest around the service's own submit-application.ts. */
import { submitApplication, type SubmitTools } from '../../internal/ingest/submit-application.ts';
import { GroupCommit, groupCommitLimits } from '../../internal/submission/group-commit.ts';
import { Withdrawals } from '../../internal/submission/withdrawals.ts';
import type { SimProcess } from './scheduler.ts';
import { noMetrics, retention, silent, type Sent, type World } from './world.ts';

const ACCEPT_MS = 2_000;

export type Submission = Pick<Sent, 'email' | 'ein' | 'valid' | 'key'>;

export type Ingest = ReturnType<typeof startIngestProcess>;

type Request = Parameters<typeof submitApplication>[0];
type Reply = Parameters<typeof submitApplication>[1];

export function startIngestProcess(world: World, process: SimProcess) {
  const { scheduler } = world;
  const tools = toolsOf(world, process);
  const submit = (fields: Submission): Sent => {
    const body = {
      email: fields.email,
      business_name: 'Any',
      ein: fields.valid ? fields.ein : 'none',
    };
    const bytes = Buffer.from(JSON.stringify(body));
    const sent: Sent = {
      requestId: idOf(world.sent.length),
      body: bytes,
      ingest: process,
      at: scheduler.now,
      answer: undefined,
      answeredAt: undefined,
      answeredId: undefined,
      ...fields,
    };
    world.sent.push(sent);
    scheduler.after(
      0,
      () => void submitApplication(requestOf(sent, tools), replyTo(sent, world), tools),
      process,
    );
    return sent;
  };
  return { process, submit };
}

/** In order as text, as real ids are: `req_9`, then `req_a10`. */
const idOf = (n: number): string => `req_${'a'.repeat(String(n).length - 1)}${n}`;

/** What cmd/ingest/wire.ts gives the server, over the simulated database, queue and clock. */
function toolsOf(world: World, process: SimProcess): SubmitTools {
  const writing = world.connect(process, 'ingest', ACCEPT_MS);
  const { clock } = writing;
  const metrics = noMetrics as never;
  const group = new GroupCommit({
    db: writing.db,
    limits: groupCommitLimits,
    timeoutMs: ACCEPT_MS,
    clock,
    metrics,
    pendingWithdrawals: () => withdrawals.pending,
  });
  const { db: telling, dueWork } = world.connect(process, 'ingest');
  const withdrawals: Withdrawals = new Withdrawals({
    db: telling,
    retentionDays: 7,
    clock,
    log: silent,
    metrics,
  });
  return {
    clock,
    keys: {
      loaded: true,
      lookup: () => ({
        known: true,
        keyId: 'abcdef012345',
        partnerId: 'demo',
        active: true,
        revoked: false,
        otherMode: false,
        terms: {},
        admits: () => true,
      }),
    },
    limits: {
      ofAddress: { amount: '300', windowSeconds: 60, whose: 'one address' },
      countTest: () => Promise.reject(new Error('no test is played')),
    },
    lookUps: false,
    receipts: undefined,
    log: silent,
    commits: group,
    outages: { note: () => {} },
    refusals: { keep: () => {} },
    withdrawals,
    hints: {
      add: (hint) =>
        void world.queue
          .send([hint])
          .catch(() => dueWork.makeDue([hint]))
          .catch(() => {}),
    },
    retention,
    metrics,
  };
}

/** A request with its judged headers and its body. */
function requestOf({ requestId, body, key }: Sent, { clock }: SubmitTools): Request {
  const request = {
    id: requestId,
    startedAt: clock.monotonicMs(),
    partnerId: 'demo',
    terms: {},
    headers: key === null ? {} : { 'idempotency-key': `"${key}"` },
    client: { ip: '127.0.0.1' },
    incomingBody: {
      expectsContinue: false,
      freeMemory: () => {},
      read: () =>
        Promise.resolve({ end: 'whole', bytes: body, received: body.length, reusable: true }),
    },
    raw: { socket: { destroy: () => {} } },
  };
  return request as unknown as Request;
}

/** Records the partner's answer; a hijacked reply is a closed connection. */
function replyTo(sent: Sent, { scheduler }: World): Reply {
  let status = 0;
  const reply = {
    header: () => reply,
    hijack: () => reply,
    code: (code: number) => {
      status = code;
      return reply;
    },
    send: (body: { readonly data?: { readonly request_id: string } }) => {
      sent.answer = status;
      sent.answeredAt = scheduler.now;
      sent.answeredId = body.data?.request_id;
      return reply;
    },
  };
  return reply as unknown as Reply;
}
