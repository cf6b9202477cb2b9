/** The part of the audit about mails: one for each completed account, a second one only where a named window was open. */
import type { Account } from '../../internal/account/account.ts';
import { UNKNOWN_PHASE, type AuditView } from './audit.ts';
import type { SentMail } from './facts.ts';

/** Kept mails and stops are timed by different clocks of this machine's processes and by its event loops. */
const CLOCK_SLACK_MS = 1_500;
/** A processor that died this long after a mail had other reasons not to write it down than its death; MongoDB is back sooner. */
const STOP_WITHIN_MS = 15_000;
/** Sent again at most twice (docs/decisions/0002), whatever happens. */
const MOST_MAILS = 3;

export function checkMails(view: AuditView): void {
  const byRecipient = new Map<string, SentMail[]>();
  for (const mail of view.mails) byRecipient.set(mail.to, [...(byRecipient.get(mail.to) ?? []), mail]);
  const known = new Set(view.accounts.map((account) => account.emailNormalized));
  for (const [to, mails] of byRecipient) {
    if (!known.has(to)) view.violation('stray_mail', UNKNOWN_PHASE, to, `${mails.length} mails, but no account`);
  }
  for (const account of view.accounts) {
    const mails = byRecipient.get(account.emailNormalized) ?? [];
    const state = view.byId.get(account.requestId)?.state;
    const phase = view.phaseOf(account.requestId);
    if (state === 'completed' && mails.length === 0) {
      view.violation('missing_mail', phase, account.requestId, `completed, but no mail came to ${account.email}`);
    }
    if (mails.length > MOST_MAILS) {
      view.violation('doubled_mail', phase, account.requestId, `${mails.length} mails went to ${account.email}`);
    }
    for (const [index, mail] of mails.slice(1).entries()) {
      checkSecond(account, mails[index] ?? mail, mail, phase, view);
    }
  }
}

function checkSecond(account: Account, first: SentMail, second: SentMail, phase: string, view: AuditView): void {
  view.counts(phase).secondMails += 1;
  const words = `mailed again ${((second.at - first.at) / 1_000).toFixed(1)} s later`;
  const excuse = excuseFor(account, first, second, view);
  if (excuse === undefined || first.messageId !== second.messageId) {
    const id = first.messageId === second.messageId ? '' : ', with another Message-ID';
    view.violation('doubled_mail', phase, account.requestId, `${words}${id}, and no window was open`);
  } else {
    view.window(`second mail: ${excuse}`, phase, account.requestId);
  }
}

/** The two windows of docs/decisions/0002: an ambiguous end after the content, and a crash before our update. */
function excuseFor(account: Account, first: SentMail, second: SentMail, view: AuditView): string | undefined {
  const { ambiguous, mailStops, processorStops } = view.facts;
  const near = (at: number): boolean => Math.abs(at - first.at) < CLOCK_SLACK_MS;
  if (ambiguous.get(account.emailNormalized)?.some(near) === true) return 'its session was cut after the content';
  if (mailStops.some(near)) return 'the mail server was stopped just then';
  const between = (at: number): boolean =>
    at > first.at - CLOCK_SLACK_MS && at < Math.min(second.at, first.at + STOP_WITHIN_MS);
  return processorStops.some(between) ? 'a processor was killed or frozen in between' : undefined;
}
