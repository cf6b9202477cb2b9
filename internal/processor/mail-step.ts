/** The step of the e-mail: hands one over, notes what became of it, and returns the verdict. */
import type { Account, Intent } from '../account/account.ts';
import { mailReason } from '../application/reasons.ts';
import {
  endingOf,
  intervalOfMailProbe,
  mailProbeInterval,
} from '../application/sandbox-endings.ts';
import { newSecondMails, possibleMails } from '../account/mail-ledger.ts';
import type { MailPlace } from '../mail/mail-gate.ts';
import { UNSENT } from '../mail/mailer.ts';
import { loginInstructions } from '../mail/message.ts';
import { outcomeOf, refusalOf, type HandOver } from '../mail/relay-answers.ts';
import { ownerName } from '../partner/key-terms.ts';
import { retryUntilDone } from '../platform/process/deadline.ts';
import { attemptOf, type Fact, type OpenRecord } from '../submission/submission.ts';
import { writeOrRetry, type Attempt, type AttemptTools, type PreparedMail } from './step.ts';
import {
  classOfHandOver,
  LOST,
  MAX_AMBIGUOUS,
  verdictOfFailure,
  type FailureClass,
  type Verdict,
} from './verdict.ts';

const COMPLETE_RETRY = { firstMs: 100, capMs: 2_000 } as const;

/** What is stored of the answer to a probe. */
const PROBE_WORDS = 300;

const COMPLETED: Verdict = { kind: 'done', event: 'complete' };
/** The relay's answer that the EIN of a test can ask for. */
const REFUSED: HandOver = {
  result: 'refused',
  ...refusalOf('rcpt', 550, '550 5.1.1 mailbox unknown'),
};
export const ABORTED = { result: 'aborted', cause: 'claim lost or database away' } as const;

/** Of tests whose e-mail nobody gets. */
const placeOfTest: MailPlace = {
  turn: () => Promise.resolve(),
  note: (handOver) => ('outage' in handOver ? 'relay' : 'mail'),
  release: () => {},
};

export async function mailApplicant(attempt: Attempt, tools: AttemptTools): Promise<Verdict> {
  const { record, claim, firstMail, place = placeOfTest } = attempt;
  if (firstMail !== undefined) {
    await place.turn(claim.signal);
    return sendMail(attempt, firstMail, 0, tools);
  }
  const fail = (failure: FailureClass, code: Fact['code'], words: string): Verdict =>
    verdictOfFailure(record, { failure, fact: { code, words } });
  const { accountId } = record;
  const account = accountId === undefined ? undefined : await tools.accounts.read(accountId);
  if (account === undefined)
    return fail('transient', 'account_missing', 'the account of this request was not found');
  if (account.releasedAt !== undefined)
    return fail('permanent', 'account_released', 'the account was released by an operator');
  // A used link proves that the e-mail arrived.
  const arrived = account.notifiedAt !== undefined || account.activation?.usedAt !== undefined;
  if (!arrived) return mailOnce(attempt, account, tools);
  return (await tools.ledger.confirmOut(account)) ? COMPLETED : readAgain(record);
}

/** The account changed or its link was used. */
function readAgain(record: OpenRecord): Verdict {
  const words = 'the account changed or its link was used: it is read again';
  const fact = { code: 'account_changed', words } as const;
  return verdictOfFailure(record, { failure: 'transient', fact });
}

async function mailOnce(attempt: Attempt, account: Account, tools: AttemptTools): Promise<Verdict> {
  const { record, claim, place = placeOfTest } = attempt;
  // A hand-over without a result may have sent an e-mail.
  const before = Math.max(
    record.ambiguous ?? 0,
    possibleMails(account.mail, record.mailsSince ?? -1),
  );
  const isProbe = probeInterval(record, account) !== undefined;
  if (before >= (isProbe ? 1 : MAX_AMBIGUOUS)) {
    const words = `nobody knows what became of the mail (handed over ${before} times)`;
    const failure = isProbe ? 'permanent' : 'ambiguous';
    const fact = { code: 'mails_unknown', words } as const;
    return verdictOfFailure(record, { failure, fact, ambiguous: before });
  }
  await place.turn(claim.signal);
  if (!claim.mayGoOn) return LOST;
  const intent = newIntent(record.version, attemptOf(record), tools);
  const { message, activation } = loginInstructions(account, tools.mailSettings, intent.startedAt);
  // Records a possible e-mail before it is sent.
  const noteBegin = () => tools.ledger.beginHandOver(account, intent, activation);
  return sendMail(attempt, { account, intent, message }, before, tools, noteBegin);
}

async function sendMail(
  attempt: Attempt,
  mail: PreparedMail,
  before: number,
  tools: AttemptTools,
  noteBegin = () => Promise.resolve(true),
): Promise<Verdict> {
  const { record, claim, place = placeOfTest } = attempt;
  const { account, message } = mail;
  const probe = probeInterval(record, account);
  const unasked = probe === undefined ? undefined : whyUnasked(probe, tools);
  if (unasked !== undefined) {
    await noteAborted(mail, tools);
    const fact = { code: 'relay_unasked', words: unasked } as const;
    return verdictOfFailure(record, { failure: 'permanent', fact });
  }
  try {
    const isNoted = await noteBegin();
    // A sent e-mail cannot be recalled, so this check comes last. An order that changed the account
    // took the claim first, perhaps just now, so the database is asked.
    const held = await claim.confirm({ again: account.mailVersion !== undefined });
    if (!held || !isNoted) {
      await noteAborted(mail, tools);
      return held ? readAgain(record) : LOST;
    }
  } catch (error) {
    await noteAborted(mail, tools);
    throw error;
  }
  const startedMs = tools.clock.monotonicMs();
  const { undeliverable = false } = (record.test && endingOf(account.ein)) || {};
  const mailer = mailerOf(attempt, tools);
  const heard = undeliverable
    ? REFUSED
    : await mailer.handOver(message, account.email, claim.signal, () => claim.mayGoOn);
  const { result } = heard;
  const seconds = (tools.clock.monotonicMs() - startedMs) / 1_000;
  tools.metrics.handOverSeconds.observe({ result }, seconds);
  tools.metrics.mails.inc({ result });
  if (record.partnerId !== undefined)
    tools.traffic.mailed(ownerName(record.partnerId, record), result);
  const blame = place.note(heard);
  const noted = await noteResult(attempt, mail, heard, tools);
  const handOver = (await tools.trust?.judge(heard, account, record.mailsSince)) ?? heard;
  if (handOver.result === 'aborted') return LOST;
  if (handOver.result === 'accepted') {
    // An operator may have asked for another mail meanwhile.
    return noted !== undefined && noted.notifiedAt === undefined ? readAgain(record) : COMPLETED;
  }
  const fact = factOf(handOver);
  if (probe !== undefined) {
    // No second try: the relay would get all of them once it is back.
    const answer = handOver.result === 'refused' ? [handOver.answer] : [];
    const words = [fact.words, ...answer].join(': ').slice(0, PROBE_WORDS);
    return verdictOfFailure(record, { failure: 'permanent', fact: { ...fact, words } });
  }
  return verdictOfFailure(record, {
    failure: classOfHandOver(handOver, blame),
    fact,
    ...(handOver.result === 'refused' && handOver.why && { reasons: [mailReason(handOver.why)] }),
    ambiguous: before + (handOver.result === 'ambiguous' ? 1 : 0),
  });
}

const probeInterval = ({ probe }: OpenRecord, account: Account): number | undefined =>
  probe === 'mail' ? intervalOfMailProbe(account) : undefined;

/** The relay is not asked for a test without a place. */
function mailerOf({ record, place }: Attempt, { mailer, probeMailer }: AttemptTools) {
  if (record.test !== true) return mailer;
  const named = record.probe === 'mail' ? probeMailer : mailer;
  return (place === undefined ? undefined : named) ?? UNSENT;
}

/** Late ones would all go out together. */
function whyUnasked(interval: number, { probeMailer, clock }: AttemptTools) {
  if (probeMailer === undefined)
    return 'the relay was not asked: PROBE_MAIL_TO is not set at the processor';
  const late = mailProbeInterval(clock.now()) - interval;
  return Math.abs(late) > 1 ? 'the relay was not asked: it is too late for this e-mail' : undefined;
}

export function newIntent(claim: number, attempt: number, { clock, host }: AttemptTools): Intent {
  return { claim, startedAt: clock.now(), attempt, host };
}

export async function noteAborted(
  { account, intent }: PreparedMail,
  tools: AttemptTools,
): Promise<void> {
  // Without its result a hand-over counts as an e-mail that may have arrived.
  await writeOrRetry(() => tools.ledger.endHandOver(account, intent, ABORTED), tools);
}

async function noteResult(
  attempt: Attempt,
  { account, intent }: PreparedMail,
  handOver: HandOver,
  tools: AttemptTools,
): Promise<Pick<Account, 'notifiedAt'> | undefined> {
  const outcome = outcomeOf(handOver, account.email);
  const note = async () => {
    const after = await tools.ledger.endHandOver(account, intent, outcome);
    const second = after?.mail === undefined ? [] : newSecondMails(after.mail, intent.claim);
    for (const { cause } of second) tools.metrics.possibleSecondMails.inc({ cause });
    return { after };
  };
  if (handOver.result === 'accepted') {
    // Another attempt would repeat the e-mail until the account records it, so this waits for the
    // database.
    const noted = await retryUntilDone(note, {
      ...COMPLETE_RETRY,
      signal: attempt.claim.signal,
      onFailure: (error) => tools.outage.wait(error),
    });
    if (noted !== undefined) return noted.after;
  }
  await writeOrRetry(note, tools);
  return undefined;
}

/** Why an e-mail was not taken. */
export function factOf(handOver: Exclude<HandOver, { result: 'accepted' | 'aborted' }>): Fact {
  switch (handOver.result) {
    case 'ambiguous': {
      const { cause: of } = handOver;
      const words = `the mail server ended the connection without an answer after the mail was sent (${of})`;
      return { code: 'mail_unanswered', of, words };
    }
    case 'unreachable': {
      const { cause: of } = handOver;
      return { code: 'relay_unusable', of, words: `the mail server could not be used (${of})` };
    }
    case 'refused': {
      const of = [handOver.code, handOver.enhancedCode]
        .filter((part) => part !== undefined)
        .join(' ');
      const what = {
        mail: 'our sender address',
        rcpt: handOver.failure === 'permanent' ? "the applicant's address" : 'the mail for now',
        data: 'the mail',
        content: 'the mail',
      }[handOver.phase];
      const alike = handOver.alike ? ', and others in the same words' : '';
      const words = `the mail server did not accept ${what} (${of})${alike}`;
      return { code: 'mail_refused', of, words };
    }
  }
}
