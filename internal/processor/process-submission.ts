/** One attempt: claims a record and does the step that is due. */
import type { MailPlace } from '../mail/mail-gate.ts';
import { later } from '../platform/clock.ts';
import { defined } from '../platform/defined.ts';
import { inSpan, type SpanOptions } from '../platform/tracing.ts';
import { queueSpan, type Step } from '../queue/job.ts';
import { isOpen, type OpenState } from '../submission/states.ts';
import { attemptOf, type SubmissionRecord } from '../submission/submission.ts';
import type { ProcessorMetrics } from '../telemetry/metrics.ts';
import { finish, giveBack, settle, type Attempt, type VerdictTools } from './apply-verdict.ts';
import { Claim } from './claim.ts';
import { createAccount, type CreateTools } from './create-account.ts';
import { classOfError, failed, type Verdict } from './failures.ts';
import { FirstMail } from './first-mail.ts';
import type { Holds } from './follow-holds.ts';
import { CRASHES_ALONE, CRASH_APART_MS, MAX_CRASHES } from './limits.ts';
import type { Work } from './line.ts';
import { mailApplicant, type MailTools } from './mail-applicant.ts';

export interface AttemptTools extends VerdictTools, CreateTools, MailTools {
  readonly attempts: ProcessorMetrics['attempts'];
  readonly requeued: ProcessorMetrics['reconcileRequeued'];
  readonly holds: Holds;
}

/** Of live records, and of tests: these have accounts, a mailer and metrics of their own. */
export interface BothTools {
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

/** Resolves with what is left to do on the record. Rejects only if the claim request fails. */
export async function processSubmission(
  work: Work,
  both: BothTools,
  place?: MailPlace,
): Promise<Work | undefined> {
  const { step, first } = work;
  const asking = both[work.test ? 'test' : 'live'];
  const askedAtMs = first?.claimedAtMs ?? asking.clock.monotonicMs();
  const startedAt = asking.clock.now();
  const record = first?.record ?? (await claimRecord(work, asking));
  if (record === undefined || !isOpen(record.state)) {
    asking.attempts.inc({ step, result: 'repeat' });
    return undefined;
  }
  // Only the record says for sure what it is.
  const tools = both[record.test ? 'test' : 'live'];
  if (work.lost === true) tools.requeued.inc();
  const claim = new Claim({
    position: { requestId: record._id, state: record.state, version: record.version },
    store: tools.store,
    clock: tools.clock,
    confirmedAt: askedAtMs,
    stopped: () => tools.holds.has(record.partnerId),
  });
  const attempt = { record, claim, step };
  const { requestId, partnerId } = work;
  const { version, test } = record;
  const next = (of: Step): Work => {
    const dueAt = tools.clock.now();
    return { requestId, partnerId, version, step: of, dueAt, ...defined({ test }) };
  };
  try {
    if (await endsByCrashes(attempt, tools)) return undefined;
    // The work is stale: the record moved on under the version that was read.
    if (stepOf[record.state] !== step) {
      await giveBack(attempt, tools);
      return next(stepOf[record.state]);
    }
    const firstMail = new FirstMail(record, place !== undefined, tools);
    const verdict = await inSpan(
      { ...spanOf(attempt), startedAt, link: work.traceparent, parent: record.traceparent },
      async (span) => {
        const what = await judge(attempt, tools, firstMail, work, place);
        await firstMail.giveUp();
        tools.attempts.inc({ step, result: resultOf[what.kind] });
        if (what.kind === 'lost') span?.fail('claim_lost');
        if ('failure' in what) span?.fail(what.failure);
        if ('failure' in what) await settle(what, attempt, tools);
        // The claim may still be ours, as after a hold; if not, this changes nothing.
        else if (what.kind === 'lost') await giveBack(attempt, tools);
        return what;
      },
    );
    if (verdict.kind !== 'done' || verdict.event !== 'create_account') return undefined;
    const mail = firstMail.next;
    return mail === undefined ? next('mail') : { ...next('mail'), first: mail };
  } finally {
    claim.release();
  }
}

async function claimRecord(
  { requestId, version, step }: Work,
  { store, failures }: AttemptTools,
): Promise<SubmissionRecord | undefined> {
  try {
    return await store.claim(requestId, version);
  } catch (error) {
    failures.inc({ step, class: classOfError(error) });
    throw error;
  }
}

function spanOf({ record, step }: Attempt): SpanOptions {
  const attributes = {
    'partner_ingest.request_id': record._id,
    'partner_ingest.attempt': attemptOf(record),
  };
  return step === 'account'
    ? queueSpan('process', attributes)
    : { name: 'mail applicant', kind: 'INTERNAL', attributes };
}

async function judge(
  attempt: Attempt,
  tools: AttemptTools,
  firstMail: FirstMail,
  { first }: Work,
  place: MailPlace | undefined,
): Promise<Verdict> {
  const { record, claim, step } = attempt;
  try {
    const verdict =
      step === 'account'
        ? await createAccount(record, claim, tools, firstMail)
        : await mailApplicant(
            { record, claim, place: place ?? placeOfTest, begun: first?.mail },
            tools,
          );
    if (verdict.kind !== 'done') return verdict;
    const moves = step === 'account' ? firstMail : tools.store;
    return (await finish(verdict, attempt, tools, moves)) ? verdict : { kind: 'lost' };
  } catch (error) {
    const goal = step === 'account' ? 'creating the account' : 'mailing the applicant';
    const words = `${goal} failed: ${error instanceof Error ? error.name : 'unknown error'}`;
    return failed(record, { failure: classOfError(error), words });
  }
}

/** Tests do not pass the gate, and tell it nothing of the relay. */
const placeOfTest: MailPlace = {
  turn: () => Promise.resolve(),
  note: (handOver) => ('outage' in handOver ? 'relay' : 'mail'),
  release: () => {},
};

/** A record may kill its workers, so it is tried alone after two deaths and given up after five. */
async function endsByCrashes(attempt: Attempt, tools: AttemptTools): Promise<boolean> {
  const { record, claim } = attempt;
  const { crashes = 0, takenOver } = record;
  if (crashes >= MAX_CRASHES) {
    const words = 'its workers ended without a word, several times';
    await settle(failed(record, { failure: 'crashed', words }), attempt, tools);
    return true;
  }
  if (takenOver !== true || crashes < CRASHES_ALONE) return false;
  const dueAt = later(tools.clock.now(), Math.random() * CRASH_APART_MS);
  await tools.store.putApart(claim.position, dueAt).catch(() => {});
  return true;
}
