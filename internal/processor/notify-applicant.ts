/** What happens once the account exists: mail the applicant login instructions and finish the request. */
import type { AccountStore } from '../account/account-store.ts';
import type { Account } from '../account/account.ts';
import { activationLink } from '../mail/activation.ts';
import { loginInstructions } from '../mail/message.ts';
import type { HandOver, Mailer } from '../mail/mailer.ts';
import { later, type Clock } from '../platform/clock.ts';
import { retryUntilDone } from '../platform/deadline.ts';
import type { Hint } from '../queue/job.ts';
import type { SubmissionStore } from '../submission/submission-store.ts';
import type { SubmissionRecord } from '../submission/submission.ts';
import { Claim, ClaimLostError } from './claim.ts';
import { classOfError, classOfHandOver, type FailureClass } from './failures.ts';
import { ACTIVATION_MS, COMPLETE_RETRY } from './limits.ts';
import { settleFailure, type FailureTools } from './settle-failure.ts';

export interface NotifyTools extends FailureTools {
  readonly store: SubmissionStore;
  readonly accounts: AccountStore;
  readonly mailer: Mailer;
  readonly clock: Clock;
  readonly mailSettings: { readonly from: string; readonly loginUrl: string; readonly linkSecret: string };
  readonly mails: { inc(labels: { result: string }): void };
  readonly attempts: { inc(labels: { queue: string; result: string }): void };
  readonly completionSeconds: { observe(value: number): void };
}

/** Why an attempt did not end in a mail: class for the verdict, words for support. */
class NotifyFailure extends Error {
  override readonly name = 'NotifyFailure';
  readonly failure: FailureClass;
  constructor(failure: FailureClass, words: string) {
    super(words);
    this.failure = failure;
  }
}

/** Mails the hinted record's applicant unless someone else does or did. Rejects only when no claim could be asked for. */
export async function notifyApplicant(hint: Hint, tools: NotifyTools): Promise<void> {
  const { store, clock } = tools;
  const confirmedAt = clock.monotonicMs();
  const record = await store.claim(hint.requestId, hint.version);
  if (record?.state !== 'account_created') {
    tools.attempts.inc({ queue: 'notifications', result: 'repeat' });
    return;
  }
  const position = { requestId: record._id, state: record.state, version: record.version } as const;
  const claim = new Claim({ position, store, clock, confirmedAt });
  try {
    await mailAndFinish(record, claim, tools);
    tools.attempts.inc({ queue: 'notifications', result: 'done' });
  } catch (error) {
    if (error instanceof ClaimLostError) {
      tools.attempts.inc({ queue: 'notifications', result: 'claim_lost' });
      return;
    }
    tools.attempts.inc({ queue: 'notifications', result: 'failed' });
    const known = error instanceof NotifyFailure;
    await settleFailure(
      {
        record,
        position,
        queue: 'notifications',
        failure: known ? error.failure : classOfError(error),
        lastError: known ? error.message : `mailing failed: ${error instanceof Error ? error.name : 'unknown error'}`,
      },
      tools,
    );
  } finally {
    claim.release();
  }
}

async function mailAndFinish(record: SubmissionRecord, claim: Claim, tools: NotifyTools): Promise<void> {
  const { accounts, clock } = tools;
  const account = record.accountId === undefined ? undefined : await accounts.read(record.accountId);
  if (account === undefined) throw new NotifyFailure('transient', 'the account of this request was not found');

  const handOver = await mail(account, claim, tools);
  tools.mails.inc({ result: handOver.result });
  if (handOver.result === 'aborted') throw new ClaimLostError(record._id);
  if (handOver.result !== 'accepted') {
    const needsProbe =
      (handOver.result === 'unreachable' && handOver.connected) ||
      (handOver.result === 'refused' && handOver.phase === 'mail');
    const relayAnswers = needsProbe && (await tools.mailer.probe());
    throw new NotifyFailure(classOfHandOver(handOver, relayAnswers), inWords(handOver));
  }
  // The mail is out: until the record says so, every other attempt would send it again. So this waits for the database
  // as long as the claim is not lost.
  const attempt = record.attempts + (record.ambiguous ?? 0) + 1;
  const moved = await retryUntilDone(() => tools.store.move(claim.position, 'completed', attempt), {
    ...COMPLETE_RETRY,
    signal: claim.signal,
    onFailure: () => tools.gates.notifications.wait(),
  });
  if (moved !== true) return;
  tools.outcomes.inc({ state: 'completed', reason: 'none' });
  tools.completionSeconds.observe((clock.now().getTime() - record.receivedAt.getTime()) / 1_000);
  await accounts.setNotified(account._id);
}

async function mail(account: Account, claim: Claim, tools: NotifyTools): Promise<HandOver> {
  const { from, loginUrl, linkSecret } = tools.mailSettings;
  const link = activationLink(account._id, { loginUrl, linkSecret });
  const expiresAt = later(tools.clock.now(), ACTIVATION_MS);
  await tools.accounts.setActivation(account._id, { tokenHash: link.tokenHash, expiresAt });
  const message = loginInstructions(
    {
      accountId: account._id,
      businessName: account.businessName,
      email: account.email,
      loginUrl,
      activationUrl: link.url,
      activationExpiresAt: expiresAt,
    },
    from.slice(from.lastIndexOf('@') + 1),
  );
  // The last look at the claim comes right before the mail, which cannot be taken back.
  await claim.confirm();
  return tools.mailer.handOver(message, account.email, claim.signal);
}

/** For support: what the mail server did, without the address it was about. */
function inWords(handOver: Exclude<HandOver, { result: 'accepted' | 'aborted' }>): string {
  switch (handOver.result) {
    case 'ambiguous':
      return `the mail server ended the connection without an answer after the mail was sent (${handOver.cause})`;
    case 'unreachable':
      return `the mail server could not be used (${handOver.cause})`;
    case 'refused': {
      const code = [handOver.code, handOver.enhancedCode].filter((part) => part !== undefined).join(' ');
      const what = { mail: 'our sender address', rcpt: "the applicant's address", data: 'the mail' }[handOver.phase];
      return `the mail server refused ${what} (${code})`;
    }
  }
}
