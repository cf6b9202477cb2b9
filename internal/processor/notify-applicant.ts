/** What happens once the account exists: mail the applicant login instructions and finish the request. */
import type { AccountStore } from '../account/account-store.ts';
import type { Account } from '../account/account.ts';
import { activationLink } from '../mail/activation.ts';
import { loginInstructions } from '../mail/message.ts';
import type { HandOver, Mailer } from '../mail/mailer.ts';
import { later } from '../platform/clock.ts';
import { retryUntilDone } from '../platform/deadline.ts';
import type { Hint } from '../queue/job.ts';
import type { SubmissionRecord } from '../submission/submission.ts';
import { AttemptFailure, attempt, type AttemptTools } from './attempt.ts';
import { ClaimLostError, type Claim } from './claim.ts';
import { classOfHandOver } from './failures.ts';
import { ACTIVATION_MS, COMPLETE_RETRY } from './limits.ts';

export interface NotifyTools extends AttemptTools {
  readonly accounts: AccountStore;
  readonly mailer: Mailer;
  readonly mailSettings: { readonly from: string; readonly loginUrl: string; readonly linkSecret: string };
  readonly mails: { inc(labels: { result: string }): void };
  readonly completionSeconds: { observe(value: number): void };
}

/** Mails the hinted record's applicant and completes it. The promise fails only when not even the claim could be asked for. */
export function notifyApplicant(hint: Hint, tools: NotifyTools): Promise<void> {
  return attempt(
    hint,
    {
      queue: 'notifications',
      state: 'account_created',
      goal: 'mailing the applicant',
      work: (record, claim) => mailAndFinish(record, claim, tools),
    },
    tools,
  );
}

async function mailAndFinish(record: SubmissionRecord, claim: Claim, tools: NotifyTools): Promise<void> {
  const { accounts, clock } = tools;
  const account = record.accountId === undefined ? undefined : await accounts.read(record.accountId);
  if (account === undefined) throw new AttemptFailure('transient', 'the account of this request was not found');

  if (account.notifiedAt === undefined) await mailOnce(record, account, claim, tools);
  const number = record.attempts + (record.ambiguous ?? 0) + 1;
  if (!(await tools.store.move(claim.position, 'completed', number))) return;
  tools.outcomes.inc({ state: 'completed', reason: 'none' });
  tools.completionSeconds.observe((clock.now().getTime() - record.receivedAt.getTime()) / 1_000);
}

/** Hands the mail over and notes it in the account, from where a later attempt knows that it is out. */
async function mailOnce(record: SubmissionRecord, account: Account, claim: Claim, tools: NotifyTools): Promise<void> {
  const handOver = await mail(account, claim, tools);
  tools.mails.inc({ result: handOver.result });
  if (handOver.result === 'aborted') throw new ClaimLostError(record._id);
  if (handOver.result !== 'accepted') {
    const needsProbe =
      (handOver.result === 'unreachable' && handOver.connected) ||
      (handOver.result === 'refused' && handOver.phase === 'mail');
    const relayAnswers = needsProbe && (await tools.mailer.probe());
    throw new AttemptFailure(classOfHandOver(handOver, relayAnswers), inWords(handOver));
  }
  // The mail is out: until the account says so, every other attempt would send it again. So this waits for the database
  // as long as the claim is not lost.
  await retryUntilDone(() => tools.accounts.setNotified(account._id), {
    ...COMPLETE_RETRY,
    signal: claim.signal,
    onFailure: () => tools.gates.notifications.wait(),
  });
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
