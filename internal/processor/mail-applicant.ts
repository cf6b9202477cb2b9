/** The step of the e-mail: hands it over once and finishes the request. */
import type { AccountStore } from '../account/account-store.ts';
import type { Account, Activation } from '../account/account.ts';
import { domainOf } from '../application/email-address.ts';
import { endingOf } from '../application/test-endings.ts';
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
import type { SubmissionRecord } from '../submission/submission.ts';
import { attemptOf } from '../submission/submission.ts';
import type { ProcessorMetrics } from '../telemetry/metrics.ts';
import { untilSaid, type VerdictTools } from './apply-verdict.ts';
import type { Claim } from './claim.ts';
import { classOfHandOver, failed, type FailureClass, type Verdict } from './failures.ts';
import { ACTIVATION_MS, COMPLETE_RETRY, MAX_AMBIGUOUS } from './limits.ts';

export interface MailTools
  extends
    VerdictTools,
    Pick<ProcessorMetrics, 'mails' | 'handOverSeconds' | 'possibleSecondMails'> {
  readonly accounts: AccountStore;
  readonly ledger: LedgerStore;
  readonly mailer: Pick<Mailer, 'handOver'>;
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
  /** Of a new account. */
  readonly begun?: BegunMail | undefined;
}

/** An e-mail whose hand-over is in the ledger. */
export interface BegunMail {
  readonly account: Account;
  readonly intent: Intent;
  readonly message: Message;
}

const COMPLETED: Verdict = { kind: 'done', event: 'complete' };
/** What a test can ask for. */
const REFUSED: HandOver = {
  result: 'refused',
  phase: 'rcpt',
  fault: 'recipient',
  code: 550,
  enhancedCode: '5.1.1',
};
const LOST: Verdict = { kind: 'lost' };

export async function mailApplicant(mailing: Mailing, tools: MailTools): Promise<Verdict> {
  const { record, begun } = mailing;
  if (begun !== undefined) {
    await mailing.place.turn(mailing.claim.signal);
    return sendMail(mailing, begun, 0, tools);
  }
  const fail = (failure: FailureClass, words: string): Verdict =>
    failed(record, { failure, words });
  const { accountId } = record;
  const account = accountId === undefined ? undefined : await tools.accounts.read(accountId);
  if (account === undefined) return fail('transient', 'the account of this request was not found');
  if (account.releasedAt !== undefined)
    return fail('permanent', 'the account was released by an operator');
  // A used link proves that the e-mail arrived.
  const arrived = account.notifiedAt !== undefined || account.activation?.usedAt !== undefined;
  if (!arrived) return mailOnce(mailing, account, tools);
  return (await tools.ledger.confirmOut(account)) ? COMPLETED : readAgain(record);
}

/** The account changed or its link was used. */
function readAgain(record: SubmissionRecord): Verdict {
  const words = 'the account changed or its link was used: it is read again';
  return failed(record, { failure: 'transient', words });
}

async function mailOnce(mailing: Mailing, account: Account, tools: MailTools): Promise<Verdict> {
  const { record, claim, place } = mailing;
  // A hand-over without a result may have sent an e-mail.
  const before = Math.max(
    record.ambiguous ?? 0,
    possibleMails(account.mail, record.mailsSince ?? -1),
  );
  if (before >= MAX_AMBIGUOUS) {
    const words = `nobody knows what became of the mail (handed over ${before} times)`;
    return failed(record, { failure: 'ambiguous', words, ambiguous: before });
  }
  await place.turn(claim.signal);
  if (!claim.held) return LOST;
  const { activation, ...mail } = writeMail(account, record.version, attemptOf(record), tools);
  // Records a possible e-mail before it is sent.
  const begin = () => tools.ledger.beginHandOver(account, mail.intent, activation);
  return sendMail(mailing, mail, before, tools, begin);
}

async function sendMail(
  mailing: Mailing,
  { account, intent, message }: BegunMail,
  before: number,
  tools: MailTools,
  begin = () => Promise.resolve(true),
): Promise<Verdict> {
  const { record, claim, place } = mailing;
  try {
    const begun = await begin();
    // A sent e-mail cannot be recalled, so this check comes last.
    // An operator who changed the account took the claim before, perhaps just now.
    const held = await claim.confirm({ again: account.mailVersion !== undefined });
    if (!held || !begun) {
      await noteAborted(mailing, account, intent, tools);
      return held ? readAgain(record) : LOST;
    }
  } catch (error) {
    await noteAborted(mailing, account, intent, tools);
    throw error;
  }
  const startedMs = tools.clock.monotonicMs();
  const { undeliverable = false } = (record.test && endingOf(account.ein)) || {};
  const handOver = undeliverable
    ? REFUSED
    : await tools.mailer.handOver(message, account.email, claim.signal, () => claim.held);
  const { result } = handOver;
  tools.handOverSeconds.observe({ result }, (tools.clock.monotonicMs() - startedMs) / 1_000);
  tools.mails.inc({ result });
  const blame = place.note(handOver);
  const noted = await noteResult(mailing, account, intent, handOver, tools);
  if (handOver.result === 'aborted') return LOST;
  if (handOver.result === 'accepted') {
    // An operator may have asked for another mail meanwhile.
    return noted !== undefined && noted.notifiedAt === undefined ? readAgain(record) : COMPLETED;
  }
  return failed(record, {
    failure: classOfHandOver(handOver, blame),
    words: inWords(handOver),
    ambiguous: before + (handOver.result === 'ambiguous' ? 1 : 0),
  });
}

export function writeMail(
  account: Account,
  claim: number,
  attempt: number,
  tools: Pick<MailTools, 'mailSettings' | 'host' | 'clock'>,
): BegunMail & { readonly activation: Omit<Activation, 'usedAt'> } {
  const intent = { claim, startedAt: tools.clock.now(), attempt, host: tools.host };
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
  return { account, intent, message, activation: { ...link, expiresAt } };
}

export async function noteAborted(
  mailing: Pick<Mailing, 'record'>,
  account: Account,
  intent: Intent,
  tools: Pick<MailTools, 'ledger' | 'closed' | 'log'>,
): Promise<void> {
  const handOver = { result: 'aborted', cause: 'claim lost or database away' } as const;
  // Without its result a hand-over counts as an e-mail that may have arrived.
  await untilSaid(() => tools.ledger.endHandOver(account, intent, handOver), mailing, tools);
}

async function noteResult(
  mailing: Mailing,
  account: Account,
  intent: Intent,
  handOver: HandOver,
  tools: MailTools,
): Promise<Pick<Account, 'notifiedAt'> | undefined> {
  const note = async () => {
    const after = await tools.ledger.endHandOver(account, intent, handOver);
    const second = after?.mail === undefined ? [] : newSecondMails(after.mail, intent.claim);
    for (const { cause } of second) tools.possibleSecondMails.inc({ cause });
    return { after };
  };
  if (handOver.result === 'accepted') {
    // Another attempt would repeat the e-mail until the account records it, so this waits for the
    // database.
    const noted = await retryUntilDone(note, {
      ...COMPLETE_RETRY,
      signal: mailing.claim.signal,
      onFailure: () => tools.waitForDatabase(),
    });
    if (noted !== undefined) return noted.after;
  }
  await untilSaid(note, mailing, tools);
  return undefined;
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
