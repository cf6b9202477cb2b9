/** The second half of an attempt: e-mails the applicant and finishes the request. */
import type { AccountStore } from '../account/account-store.ts';
import type { Account, Activation } from '../account/account.ts';
import { domainOf } from '../application/email-address.ts';
import { activationLink } from '../mail/activation.ts';
import type { LedgerStore } from '../mail/ledger-store.ts';
import type { Intent } from '../account/mail-ledger.ts';
import type { MailPlace } from '../mail/mail-gate.ts';
import { newSecondMails, possibleMails } from '../mail/ledger.ts';
import { loginInstructions, type Message } from '../mail/message.ts';
import type { HandOver, Mailer } from '../mail/mailer.ts';
import type { Templates } from '../mail/templates.ts';
import { later } from '../platform/clock.ts';
import { retryUntilDone } from '../platform/deadline.ts';
import { defined } from '../platform/defined.ts';
import { referenceOf } from '../platform/ids.ts';
import { traceFields } from '../platform/tracing.ts';
import { attemptOf, type SubmissionRecord } from '../submission/submission.ts';
import type { ProcessorMetrics } from '../telemetry/metrics.ts';
import { AttemptFailure } from './attempt-failure.ts';
import { ClaimLostError, type Claim } from './claim.ts';
import { countOutcome } from './count-outcome.ts';
import { classOfHandOver } from './failures.ts';
import type { FailureTools } from './settle-failure.ts';
import { ACTIVATION_MS, COMPLETE_RETRY, MAX_AMBIGUOUS } from './limits.ts';

export interface MailTools
  extends
    FailureTools,
    Pick<
      ProcessorMetrics,
      'mails' | 'handOverSeconds' | 'possibleSecondMails' | 'completionSeconds'
    > {
  readonly accounts: AccountStore;
  readonly ledger: LedgerStore;
  readonly mailer: Mailer;
  readonly mailSettings: {
    readonly from: string;
    readonly loginUrl: string;
    readonly linkSecret: string;
    readonly supportContact?: string | undefined;
    readonly templates: Templates;
  };
  readonly host: string;
}

interface Mailing {
  readonly record: SubmissionRecord;
  readonly claim: Claim;
  readonly place: MailPlace;
}

export async function mailApplicant(
  mailing: Mailing,
  made: Account | undefined,
  tools: MailTools,
): Promise<void> {
  const account = made ?? (await readAccount(mailing.record, tools));
  // A used link proves that the e-mail arrived.
  const arrived = account.notifiedAt !== undefined || account.activation?.usedAt !== undefined;
  if (!arrived) await mailOnce(mailing, account, tools);
  else if (!(await tools.ledger.confirmOut(account))) throw readAgain();
  await complete(mailing, tools);
}

async function readAccount(
  { accountId }: SubmissionRecord,
  { accounts }: MailTools,
): Promise<Account> {
  const account = accountId === undefined ? undefined : await accounts.read(accountId);
  if (account === undefined)
    throw new AttemptFailure('transient', 'the account of this request was not found');
  if (account.releasedAt !== undefined) {
    throw new AttemptFailure('permanent', 'the account was released by an operator');
  }
  return account;
}

async function complete({ record, claim }: Mailing, tools: MailTools): Promise<void> {
  const state = await tools.store.move(claim.position, 'complete', attemptOf(record));
  if (state === undefined) return;
  countOutcome(record, { state: 'completed', reason: 'none' }, tools);
  const seconds = (tools.clock.now().getTime() - record.receivedAt.getTime()) / 1_000;
  tools.completionSeconds.observe(seconds);
  tools.log.info(
    { request_id: record._id, ...traceFields(record.traceparent), seconds },
    'application completed',
  );
}

async function mailOnce(mailing: Mailing, account: Account, tools: MailTools): Promise<void> {
  const { record, claim, place } = mailing;
  // A hand-over without a result may have sent an e-mail.
  const before = Math.max(
    record.ambiguous ?? 0,
    possibleMails(account.mail, record.mailsSince ?? -1),
  );
  if (before >= MAX_AMBIGUOUS) {
    throw new AttemptFailure(
      'ambiguous',
      `nobody knows what became of the mail (handed over ${before} times)`,
      before,
    );
  }
  await place.turn(claim.signal);
  const intent = {
    claim: record.version,
    startedAt: tools.clock.now(),
    attempt: attemptOf(record),
    host: tools.host,
  };
  const message = await announce(account, intent, claim, tools);
  const startedMs = tools.clock.monotonicMs();
  const handOver = await tools.mailer.handOver(
    message,
    account.email,
    claim.signal,
    () => claim.held,
  );
  const { result } = handOver;
  tools.handOverSeconds.observe({ result }, (tools.clock.monotonicMs() - startedMs) / 1_000);
  tools.mails.inc({ result });
  const blame = place.note(handOver);
  await noteResult(account, intent, handOver, claim, tools);
  if (handOver.result === 'aborted') throw new ClaimLostError(record._id);
  if (handOver.result === 'accepted') return;
  const possible = before + (handOver.result === 'ambiguous' ? 1 : 0);
  throw new AttemptFailure(classOfHandOver(handOver, blame), inWords(handOver), possible);
}

function writeMail(
  account: Account,
  intent: Intent,
  tools: MailTools,
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
      ...defined({ mailVersion: account.mailVersion }),
      reference: referenceOf(account.requestId),
      ...defined({ supportContact }),
      businessName: account.businessName,
      email: account.email,
      loginUrl,
      activationUrl: url,
      activationExpiresAt: expiresAt,
      writtenAt: intent.startedAt,
    },
    domainOf(from),
    templates,
  );
  return { message, activation: { ...link, expiresAt } };
}

/** Records a possible e-mail before it is sent. */
async function announce(
  account: Account,
  intent: Intent,
  claim: Claim,
  tools: MailTools,
): Promise<Message> {
  const { message, activation } = writeMail(account, intent, tools);
  try {
    const begun = await tools.ledger.beginHandOver(account, intent, activation);
    // A sent e-mail cannot be recalled, so this check comes last.
    await claim.confirm();
    if (!begun) throw readAgain();
  } catch (error) {
    await noteAborted(account, intent, tools);
    throw error;
  }
  return message;
}

function readAgain(): AttemptFailure {
  return new AttemptFailure(
    'transient',
    'the account changed or its link was used: it is read again',
  );
}

async function noteAborted(
  account: Account,
  intent: Intent,
  tools: Pick<MailTools, 'ledger'>,
): Promise<void> {
  const handOver = { result: 'aborted', cause: 'claim lost or database away' } as const;
  await tools.ledger.endHandOver(account, intent, handOver).catch(() => {});
}

async function noteResult(
  account: Account,
  intent: Intent,
  handOver: HandOver,
  claim: Claim,
  tools: MailTools,
): Promise<void> {
  const note = async (): Promise<boolean> => {
    const ledger = await tools.ledger.endHandOver(account, intent, handOver);
    const second = ledger === undefined ? [] : newSecondMails(ledger, intent.claim);
    for (const { cause } of second) tools.possibleSecondMails.inc({ cause });
    return true;
  };
  if (handOver.result === 'accepted') {
    // Another attempt would repeat the e-mail until the account records it, so this waits for the
    // database.
    const noted = await retryUntilDone(note, {
      ...COMPLETE_RETRY,
      signal: claim.signal,
      onFailure: () => tools.waitForDatabase(),
    });
    if (noted === true) return;
  }
  await note().catch((error: unknown) =>
    tools.log.debug({ err: error }, 'the result of a hand-over was not noted'),
  );
}

/** Holds no address, because support reads it. */
function inWords(handOver: Exclude<HandOver, { result: 'accepted' | 'aborted' }>): string {
  switch (handOver.result) {
    case 'ambiguous':
      return `the mail server ended the connection without an answer after the mail was sent (${handOver.cause})`;
    case 'unreachable':
      return `the mail server could not be used (${handOver.cause})`;
    case 'refused': {
      const code = [handOver.code, handOver.enhancedCode]
        .filter((part) => part !== undefined)
        .join(' ');
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
