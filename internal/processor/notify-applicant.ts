/** What happens once the account exists: mail the applicant login instructions and finish the request. */
import type { AccountStore } from '../account/account-store.ts';
import type { Account } from '../account/account.ts';
import { activationLink } from '../mail/activation.ts';
import { newSecondMails, type Intent, type SecondMailCause } from '../mail/ledger.ts';
import { loginInstructions, type Message } from '../mail/message.ts';
import type { HandOver, Mailer } from '../mail/mailer.ts';
import type { Templates } from '../mail/templates.ts';
import { later } from '../platform/clock.ts';
import { retryUntilDone } from '../platform/deadline.ts';
import { traceFields } from '../platform/tracing.ts';
import type { Hint } from '../queue/job.ts';
import type { SubmissionRecord } from '../submission/submission.ts';
import { AttemptFailure, attempt, type AttemptTools } from './attempt.ts';
import { ClaimLostError, type Claim } from './claim.ts';
import { classOfHandOver } from './failures.ts';
import { ACTIVATION_MS, COMPLETE_RETRY } from './limits.ts';

export interface NotifyTools extends AttemptTools {
  readonly accounts: AccountStore;
  readonly mailer: Mailer;
  readonly mailSettings: {
    readonly from: string;
    readonly loginUrl: string;
    readonly linkSecret: string;
    readonly templates: Templates;
  };
  /** For the mail ledger: where this process runs. */
  readonly host: string;
  readonly mails: { inc(labels: { result: string }): void };
  readonly possibleSecondMails: { inc(labels: { cause: SecondMailCause }): void };
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
  if (account.releasedAt !== undefined)
    throw new AttemptFailure('permanent', 'the account was released by an operator');

  if (account.notifiedAt === undefined) await mailOnce(record, account, claim, tools);
  const state = await tools.store.move(claim.position, 'complete', attemptNumber(record));
  if (state === undefined) return;
  tools.outcomes.inc({ state, reason: 'none' });
  const seconds = (clock.now().getTime() - record.receivedAt.getTime()) / 1_000;
  tools.completionSeconds.observe(seconds);
  tools.log.info({ request_id: record._id, ...traceFields(record.traceparent), seconds }, 'application completed');
}

function attemptNumber(record: SubmissionRecord): number {
  return record.attempts + (record.ambiguous ?? 0) + 1;
}

/** Hands the mail over and notes it in the account, from where a later attempt knows that it is out. */
async function mailOnce(record: SubmissionRecord, account: Account, claim: Claim, tools: NotifyTools): Promise<void> {
  const intent = {
    claim: claim.position.version,
    startedAt: tools.clock.now(),
    attempt: attemptNumber(record),
    host: tools.host,
  };
  const message = await announce(account, intent, claim, tools);
  const handOver = await tools.mailer.handOver(message, account.email, claim.signal, () => claim.held);
  tools.mails.inc({ result: handOver.result });
  await noteResult(account, intent, handOver, claim, tools);
  if (handOver.result === 'aborted') throw new ClaimLostError(record._id);
  if (handOver.result !== 'accepted') {
    const needsProbe =
      (handOver.result === 'unreachable' && handOver.connected) ||
      (handOver.result === 'refused' && handOver.phase === 'mail');
    const relayAnswers = needsProbe && (await tools.mailer.probe());
    throw new AttemptFailure(classOfHandOver(handOver, relayAnswers), inWords(handOver));
  }
}

/** Writes the mail, and before it goes out notes in the account that it may be out from now on. */
async function announce(account: Account, intent: Intent, claim: Claim, tools: NotifyTools): Promise<Message> {
  const { from, loginUrl, linkSecret, templates } = tools.mailSettings;
  const link = activationLink(account._id, { loginUrl, linkSecret, version: account.linkVersion ?? 0 });
  const expiresAt = later(intent.startedAt, ACTIVATION_MS);
  const message = loginInstructions(
    {
      accountId: account._id,
      ...(account.mailVersion === undefined ? {} : { mailVersion: account.mailVersion }),
      businessName: account.businessName,
      email: account.email,
      loginUrl,
      activationUrl: link.url,
      activationExpiresAt: expiresAt,
      writtenAt: intent.startedAt,
    },
    from.slice(from.lastIndexOf('@') + 1),
    templates,
  );
  try {
    await tools.accounts.beginHandOver(account, intent, { tokenHash: link.tokenHash, expiresAt });
    // The last look at the claim comes right before the mail, which cannot be taken back.
    await claim.confirm();
  } catch (error) {
    // Nothing goes out now. Where even this cannot be noted, the intent counts as a mail that may be out.
    const handOver = { result: 'aborted', cause: 'claim lost or database away' } as const;
    await tools.accounts.endHandOver(account, intent, handOver).catch(() => {});
    throw error;
  }
  return message;
}

async function noteResult(
  account: Account,
  intent: Intent,
  handOver: HandOver,
  claim: Claim,
  tools: NotifyTools,
): Promise<void> {
  const note = async (): Promise<boolean> => {
    const ledger = await tools.accounts.endHandOver(account, intent, handOver);
    const second = ledger === undefined ? [] : newSecondMails(ledger, intent.claim);
    for (const { cause } of second) tools.possibleSecondMails.inc({ cause });
    return true;
  };
  if (handOver.result === 'accepted') {
    // The mail is out: until the account says so, every other attempt would send it again. So this waits for the
    // database as long as the claim is not lost.
    const noted = await retryUntilDone(note, {
      ...COMPLETE_RETRY,
      signal: claim.signal,
      onFailure: () => tools.gates.notifications.wait(),
    });
    if (noted === true) return;
  }
  // Without this note the hand-over counts as one that may have mailed: too often at worst, never too seldom.
  await note().catch((error: unknown) => tools.log.debug({ err: error }, 'the result of a hand-over was not noted'));
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
      const what = {
        mail: 'our sender address',
        rcpt: "the applicant's address",
        data: 'the mail',
        content: 'the mail',
      }[handOver.phase];
      return `the mail server refused ${what} (${code})`;
    }
  }
}
