/** One attempt: claims a record and does the step that is due. */
import { SpanKind } from '@opentelemetry/api';
import type { MailPlace } from '../mail/mail-gate.ts';
import { later } from '../platform/clock.ts';
import { defined } from '../platform/defined.ts';
import {
  contextOf,
  failSpan,
  inSpan,
  linksTo,
  traceFields,
  type NamedSpan,
} from '../platform/tracing.ts';
import { queueSpan, type Step } from '../queue/job.ts';
import type { OpenState } from '../submission/states.ts';
import { attemptOf } from '../submission/submission.ts';
import { finish, giveBack, settle, type Attempt, type AttemptTools } from './apply-verdict.ts';
import { Claim } from './claim.ts';
import { createAccount } from './create-account.ts';
import { classOfError, failed, type Verdict } from './failures.ts';
import type { Work } from './line.ts';
import { giveUpFirstMail, mailApplicant } from './mail-applicant.ts';

/** After this many dead workers, a record is a dead letter. */
const MAX_CRASHES = 5;
/** After this many, it is tried alone, at a random time within `CRASH_APART_MS`. */
const CRASHES_ALONE = 2;
const CRASH_APART_MS = 60_000;

interface BothTools {
  readonly live: AttemptTools;
  readonly test: AttemptTools;
}

export const stepOf = {
  recorded: 'account',
  account_created: 'mail',
} as const satisfies Record<OpenState, Step>;

const resultOf = {
  done: 'done',
  lost: 'claim_lost',
  later: 'failed',
  again: 'failed',
  end: 'failed',
} as const;

/**
 * Resolves with what is left to do on the record. With a place, the e-mail of a new account follows
 * at once; `onAccountEnd` is called between them.
 */
export async function processSubmission(
  both: BothTools,
  work: Work,
  place: MailPlace | undefined,
  onAccountEnd: () => void,
): Promise<Work | undefined> {
  const { step, requestId, partnerId } = work;
  const claimed = await claimRecord(work, both[work.test ? 'test' : 'live']);
  if (claimed === undefined) return undefined;
  const { record, startedAt, askedAtMs } = claimed;
  const { version, test } = record;
  // Only the record says for sure what it is.
  const tools = both[test ? 'test' : 'live'];
  if (work.lost === true) tools.metrics.reconcileRequeued.inc();
  const claim = new Claim(record, askedAtMs, tools);
  const attempt: Attempt = { record, claim, step, startedAt, place };
  const next = await run(attempt, tools, work.traceparent);
  if (attempt.next !== undefined) {
    onAccountEnd();
    await run(attempt.next, tools);
    return undefined;
  }
  if (next === undefined) return undefined;
  const dueAt = tools.clock.now();
  return { requestId, partnerId, version, step: next, dueAt, ...defined({ test }) };
}

async function claimRecord(
  { requestId, version, step, traceparent }: Work,
  { store, clock, metrics, log, outage }: AttemptTools,
) {
  const startedAt = clock.now();
  const askedAtMs = clock.monotonicMs();
  try {
    const record = await store.claim(requestId, version);
    if (record !== undefined) return { record, startedAt, askedAtMs };
    metrics.attempts.inc({ step, result: 'repeat' });
  } catch (error) {
    // The record is soon due again.
    metrics.failures.inc({ step, class: classOfError(error) });
    const fields = { request_id: requestId, ...traceFields(traceparent) };
    log.warn({ ...fields, err: error }, 'attempt could not start');
    outage.wait();
  }
  return undefined;
}

/** Never rejects. Resolves with the step that is due at once. */
async function run(
  attempt: Attempt,
  tools: AttemptTools,
  traceparent?: string,
): Promise<Step | undefined> {
  const { record, claim, step } = attempt;
  try {
    if (await endsByCrashes(attempt, tools)) return undefined;
    // The work is stale: the record moved on under the version that was read.
    if (stepOf[record.state] !== step) {
      await giveBack(attempt, tools);
      return stepOf[record.state];
    }
    return await inSpan(spanOf(attempt, traceparent), async (span) => {
      const what = await judge(attempt, tools);
      const { begun, next } = attempt;
      if (step === 'account' && begun !== undefined && next === undefined)
        await giveUpFirstMail(attempt, begun, tools);
      tools.metrics.attempts.inc({ step, result: resultOf[what.kind] });
      if (what.kind === 'lost') failSpan(span, 'claim_lost');
      if ('failure' in what) failSpan(span, what.failure);
      if ('failure' in what) await settle(what, attempt, tools);
      // The claim may still be ours, as after a hold; if not, this changes nothing.
      else if (what.kind === 'lost') await giveBack(attempt, tools);
      else if (what.event === 'create_account') return 'mail';
      return undefined;
    });
  } finally {
    claim.release();
  }
}

function spanOf({ record, step, startedAt }: Attempt, traceparent?: string): NamedSpan {
  const attributes = {
    'partner_ingest.request_id': record._id,
    'partner_ingest.attempt': attemptOf(record),
  };
  const span: NamedSpan =
    step === 'account'
      ? queueSpan('process', attributes)
      : { name: 'mail applicant', kind: SpanKind.INTERNAL, attributes };
  return {
    ...span,
    startTime: startedAt,
    links: linksTo(traceparent),
    parent: contextOf(record.traceparent),
  };
}

async function judge(attempt: Attempt, tools: AttemptTools): Promise<Verdict> {
  const { record, step } = attempt;
  const act = step === 'account' ? createAccount : mailApplicant;
  try {
    const verdict = await act(attempt, tools);
    if (verdict.kind !== 'done') return verdict;
    return (await finish(verdict, attempt, tools)) ? verdict : { kind: 'lost' };
  } catch (error) {
    const goal = step === 'account' ? 'creating the account' : 'mailing the applicant';
    const words = `${goal} failed: ${error instanceof Error ? error.name : 'unknown error'}`;
    return failed(record, { failure: classOfError(error), words });
  }
}

/** A record may kill its workers, so it is tried alone after two deaths and given up after five. */
async function endsByCrashes(attempt: Attempt, tools: AttemptTools): Promise<boolean> {
  const { record } = attempt;
  const { crashes = 0, takenOver } = record;
  if (crashes >= MAX_CRASHES) {
    const words = 'its workers ended without a word, several times';
    await settle(failed(record, { failure: 'crashed', words }), attempt, tools);
    return true;
  }
  if (takenOver !== true || crashes < CRASHES_ALONE) return false;
  const dueAt = later(tools.clock.now(), Math.random() * CRASH_APART_MS);
  await tools.store.putApart(record, dueAt).catch(() => {});
  return true;
}
