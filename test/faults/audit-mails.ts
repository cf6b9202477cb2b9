/** Audits mails: one for each completed account, a second one only within a documented window. */
import type { Account } from '../../internal/account/account.ts';
import {
  handOversOf,
  mayHaveArrived,
  secondMails,
  type SecondMail,
} from '../../internal/account/mail-ledger.ts';
import { UNKNOWN_PHASE, type AuditView } from './audit.ts';
import type { SentMail } from './facts.ts';
import { MAX_AMBIGUOUS } from '../../internal/processor/step.ts';

/** Mails and stops are timed by different processes. */
const CLOCK_SLACK_MS = 1_500;
/** MongoDB recovers sooner, so a processor that ran this long after a mail must have noted it. */
const STOP_WITHIN_MS = 15_000;

export function checkMails(view: AuditView): void {
  const byRecipient = Map.groupBy(view.mails, ({ to }) => to);
  const known = new Set(view.accounts.map((account) => account.emailNormalized));
  for (const [to, mails] of byRecipient) {
    if (!known.has(to))
      view.about(UNKNOWN_PHASE, to)('stray_mail', `${mails.length} mails, but no account`);
  }
  for (const account of view.accounts) {
    const mails = byRecipient.get(account.emailNormalized) ?? [];
    const { requestId, mail: ledger = { begun: 0, possible: 0 } } = account;
    const wrong = view.about(view.phaseOf(requestId), requestId);
    if (view.byId.get(requestId)?.state === 'completed' && mails.length === 0)
      wrong('missing_mail', `completed, but no mail came to ${account.email}`);
    if (new Set(mails.map(({ messageId }) => messageId)).size > 1)
      wrong('doubled_mail', 'mailed again with another Message-ID');
    // The ledger counts every mail, and its counts match its entries.
    const { begun, possible } = ledger;
    if (mails.length > possible)
      wrong('untrue_ledger', `${mails.length} mails came, its ledger knows of ${possible} at most`);
    const entries = handOversOf(account.mail);
    const arrived = entries.filter(mayHaveArrived).length;
    if (begun < entries.length || (begun === entries.length && possible !== arrived))
      wrong('untrue_ledger', `${begun} begun, but ${entries.length} by its entries`);
    if (!view.facts.reopened.has(requestId)) checkSecondMails(account, mails, view);
  }
}

/** The ledger must name the window of each second mail, and the run must have caused it. */
function checkSecondMails(account: Account, mails: readonly SentMail[], view: AuditView): void {
  const { requestId } = account;
  const phase = view.phaseOf(requestId);
  const wrong = view.about(phase, requestId);
  const came = Math.max(0, mails.length - 1);
  view.count(phase, 'secondMails', came);
  // docs/decisions/0002 has this bound.
  if (mails.length > MAX_AMBIGUOUS) wrong('doubled_mail', `${mails.length} mails came`);
  const listed = secondMails(handOversOf(account.mail));
  const explained = listed.filter((second) => isExplained(account, second, mails, view));
  for (const { cause } of explained.slice(0, came))
    view.window('second_mail', phase, requestId, `second mail: ${windows[cause]}`);
  if (explained.length >= came) return;
  const causes = listed.map(({ cause }) => cause).join(', ') || 'none';
  wrong(
    'doubled_mail',
    `${mails.length} mails, but of the windows in the ledger (${causes}) the run opened ${explained.length}`,
  );
}

/** Why a second mail went out, as docs/decisions/0002 lists it; no run asks for a resend. */
const windows: Readonly<Record<SecondMail['cause'], string>> = {
  ambiguous_data: 'the session of the one before was cut after the content',
  crash: 'the processor of the one before was killed or frozen before it wrote down the result',
  resent: 'somebody asked for it',
};

/** Says whether the run did at that time what the ledger claims. */
function isExplained(
  account: Account,
  { before, handOver, cause }: SecondMail,
  mails: readonly SentMail[],
  view: AuditView,
): boolean {
  const { ambiguous, mailStops, processorStops } = view.facts;
  const from = before.startedAt.getTime() - CLOCK_SLACK_MS;
  const within = (to: number) => (at: number) => at > from && at < to;
  const next = handOver.startedAt.getTime();
  if (cause === 'ambiguous_data') {
    const during = within((before.endedAt?.getTime() ?? next) + CLOCK_SLACK_MS);
    return ambiguous.get(account.emailNormalized)?.some(during) === true || mailStops.some(during);
  }
  const mail = mails.findLast(({ at }) => at < next);
  return (
    cause === 'crash' &&
    processorStops.some(within(Math.min(next, (mail?.at ?? next) + STOP_WITHIN_MS)))
  );
}
