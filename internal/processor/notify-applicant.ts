/** What happens once the account exists: mail the applicant login instructions and finish the request. */
import type { AccountStore } from '../account/account-store.ts';
import type { Account, Activation } from '../account/account.ts';
import { activationLink } from '../mail/activation.ts';
import type { LedgerStore } from '../mail/ledger-store.ts';
import { newSecondMails, possibleMails, type Intent } from '../mail/ledger.ts';
import { loginInstructions, type Message } from '../mail/message.ts';
import type { HandOver, Mailer } from '../mail/mailer.ts';
import type { Templates } from '../mail/templates.ts';
import { later } from '../platform/clock.ts';
import { retryUntilDone } from '../platform/deadline.ts';
import { referenceOf } from '../platform/ids.ts';
import { traceFields } from '../platform/tracing.ts';
import type { Hint } from '../queue/job.ts';
import { attemptOf, type SubmissionRecord } from '../submission/submission.ts';
import type { ProcessorMetrics } from '../telemetry/metrics.ts';
import { AttemptFailure, runAttempt, type AttemptTools, type Step } from './attempt.ts';
import { ClaimLostError, type Claim } from './claim.ts';
import { countOutcome } from './count-outcome.ts';
import { classOfHandOver } from './failures.ts';
import type { Sending } from './sending.ts';
import { ACTIVATION_MS, COMPLETE_RETRY, MAX_AMBIGUOUS } from './limits.ts';

export interface NotifyTools
  extends
    AttemptTools,
    Pick<ProcessorMetrics, 'mails' | 'handOverSeconds' | 'possibleSecondMails' | 'completionSeconds'> {
  readonly accounts: AccountStore;
  readonly ledger: LedgerStore;
  readonly mailer: Mailer;
  readonly sending: Sending;
  readonly mailSettings: {
    readonly from: string;
    readonly loginUrl: string;
    readonly linkSecret: string;
    readonly supportContact?: string | undefined;
    readonly templates: Templates;
  };
  /** For the mail ledger: where this process runs. */
  readonly host: string;
}

/** Mails the hinted record's applicant and completes it. Rejects only if the claim request fails. */
export function notifyApplicant(hint: Hint, tools: NotifyTools): Promise<void> {
  return runAttempt(hint, { ...notifying, work: (record, claim) => mailAndFinish(record, claim, tools) }, tools);
}

export const notifying = {
  queue: 'notifications',
  state: 'account_created',
  goal: 'mailing the applicant',
} as const satisfies Omit<Step, 'work'>;

async function mailAndFinish(record: SubmissionRecord, claim: Claim, tools: NotifyTools): Promise<void> {
  const { accounts } = tools;
  const account = record.accountId === undefined ? undefined : await accounts.read(record.accountId);
  if (account === undefined) throw new AttemptFailure('transient', 'the account of this request was not found');
  if (account.releasedAt !== undefined)
    throw new AttemptFailure('permanent', 'the account was released by an operator');

  // A used link proves that the e-mail arrived.
  const arrived = account.notifiedAt !== undefined || account.activation?.usedAt !== undefined;
  if (!arrived) await mailOnce(record, account, claim, tools);
  else if (!(await tools.ledger.confirmOut(account))) throw readAgain();
  await complete(record, claim, tools);
}

/** Ends a request whose e-mail is out. */
export async function complete(record: SubmissionRecord, claim: Claim, tools: NotifyTools): Promise<void> {
  const state = await tools.store.move(claim.position, 'complete', attemptOf(record));
  if (state === undefined) return;
  countOutcome(record, { state, reason: 'none' }, tools);
  const seconds = (tools.clock.now().getTime() - record.receivedAt.getTime()) / 1_000;
  tools.completionSeconds.observe(seconds);
  tools.log.info({ request_id: record._id, ...traceFields(record.traceparent), seconds }, 'application completed');
}

/** Hands the mail over and notes it in the account, from where a later attempt knows that it is out. */
async function mailOnce(record: SubmissionRecord, account: Account, claim: Claim, tools: NotifyTools): Promise<void> {
  // One without a result may have mailed as well: its worker was killed, or could not write down how it ended.
  const before = Math.max(record.ambiguous ?? 0, possibleMails(account.mail, record.mailsSince ?? -1));
  if (before >= MAX_AMBIGUOUS) {
    throw new AttemptFailure('ambiguous', `nobody knows what became of the mail (handed over ${before} times)`, before);
  }
  const mail = { accountId: account._id, email: account.email, signal: claim.signal };
  const handOver = await tools.sending.inTurn(mail, async () => {
    const intent = intentOf(record, tools);
    const message = await announce(account, intent, claim, tools);
    return handOverAndNote({ account, intent, message }, claim, tools);
  });
  await judge(handOver, record, before, tools);
}

/** What the ledger holds of a hand-over under the record's claim before it begins. */
export function intentOf(record: SubmissionRecord, { clock, host }: NotifyTools): Intent {
  return { claim: record.version, startedAt: clock.now(), attempt: attemptOf(record), host };
}

/** A mail that the ledger has as begun. */
export interface Announced {
  readonly account: Account;
  readonly intent: Intent;
  readonly message: Message;
}

export async function handOverAndNote(
  { account, intent, message }: Announced,
  claim: Claim,
  tools: NotifyTools,
): Promise<HandOver> {
  const startedMs = tools.clock.monotonicMs();
  const handOver = await tools.mailer.handOver(message, account.email, claim.signal, () => claim.held);
  const { result } = handOver;
  tools.handOverSeconds.observe({ result }, (tools.clock.monotonicMs() - startedMs) / 1_000);
  tools.mails.inc({ result });
  await noteResult(account, intent, handOver, claim, tools);
  return handOver;
}

/** Returns if the mail is out; throws what else came of it. `before`: mails that may have been out already. */
export async function judge(
  handOver: HandOver,
  record: SubmissionRecord,
  before: number,
  tools: NotifyTools,
): Promise<void> {
  if (handOver.result === 'aborted') throw new ClaimLostError(record._id);
  if (handOver.result !== 'accepted') {
    const needsProbe =
      (handOver.result === 'unreachable' && handOver.connected) ||
      (handOver.result === 'refused' && handOver.phase === 'mail');
    const relayAnswers = !needsProbe || (await tools.mailer.probe());
    const possible = before + (handOver.result === 'ambiguous' ? 1 : 0);
    throw new AttemptFailure(classOfHandOver(handOver, relayAnswers), inWords(handOver), possible);
  }
}

/** The mail, and what the account holds of its link. */
export function writeMail(
  account: Account,
  intent: Intent,
  tools: NotifyTools,
): { readonly message: Message; readonly activation: Omit<Activation, 'usedAt'> } {
  const { from, loginUrl, linkSecret, supportContact, templates } = tools.mailSettings;
  const { url, ...link } = activationLink(account._id, {
    loginUrl,
    linkSecret,
    version: account.linkVersion ?? 0,
    madeWith: account.activation,
  });
  const expiresAt = later(intent.startedAt, ACTIVATION_MS);
  const message = loginInstructions(
    {
      accountId: account._id,
      ...(account.mailVersion === undefined ? {} : { mailVersion: account.mailVersion }),
      reference: referenceOf(account.requestId),
      ...(supportContact === undefined ? {} : { supportContact }),
      businessName: account.businessName,
      email: account.email,
      loginUrl,
      activationUrl: url,
      activationExpiresAt: expiresAt,
      writtenAt: intent.startedAt,
    },
    from.slice(from.lastIndexOf('@') + 1),
    templates,
  );
  return { message, activation: { ...link, expiresAt } };
}

/** Writes the mail, and before it goes out notes in the account that it may be out from now on. */
async function announce(account: Account, intent: Intent, claim: Claim, tools: NotifyTools): Promise<Message> {
  const { message, activation } = writeMail(account, intent, tools);
  try {
    const begun = await tools.ledger.beginHandOver(account, intent, activation);
    // The last look at the claim comes right before the mail, which cannot be taken back.
    await claim.confirm();
    if (!begun) throw readAgain();
  } catch (error) {
    await noteAborted(account, intent, tools);
    throw error;
  }
  return message;
}

function readAgain(): AttemptFailure {
  return new AttemptFailure('transient', 'the account changed or its link was used: it is read again');
}

/** Nothing goes out now. Where even this cannot be noted, the intent counts as a mail that may be out. */
export async function noteAborted(account: Account, intent: Intent, tools: Pick<NotifyTools, 'ledger'>): Promise<void> {
  const handOver = { result: 'aborted', cause: 'claim lost or database away' } as const;
  await tools.ledger.endHandOver(account, intent, handOver).catch(() => {});
}

async function noteResult(
  account: Account,
  intent: Intent,
  handOver: HandOver,
  claim: Claim,
  tools: NotifyTools,
): Promise<void> {
  const note = async (): Promise<boolean> => {
    const ledger = await tools.ledger.endHandOver(account, intent, handOver);
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
      return `the mail server did not accept ${what} (${code})`;
    }
  }
}
