/**
 * The first e-mail of a new account costs no claim of its own. The account's step begins it, and
 * stores its hand-over with the account. The record's move to the next step also claims it for the
 * e-mail, and the attempt that follows at once hands it over (`mailApplicant`). Where that cannot
 * be, its hand-over is noted as aborted, and reconcile brings the record again.
 */
import type { Account } from '../account/account.ts';
import { handOversOf, ledgerWith } from '../account/mail-ledger.ts';
import { loginInstructions } from '../mail/message.ts';
import { attemptOf, type OpenRecord } from '../submission/submission.ts';
import type { Changes } from '../submission/worker-moves.ts';
import { Claim } from './claim.ts';
import { ABORTED, newIntent, noteAborted } from './mail-step.ts';
import { writeOrRetry, type Attempt, type AttemptTools, type PreparedMail } from './step.ts';

/** Adds the hand-over to an account that is about to be created. */
export function beginFirstMail(
  account: Account,
  attempt: Attempt,
  tools: AttemptTools,
): PreparedMail {
  const intent = newIntent(attempt.record.version + 1, 1, tools);
  const { message, activation } = loginInstructions(account, tools.mailSettings, intent.startedAt);
  return { account: { ...account, activation, mail: ledgerWith(intent) }, intent, message };
}

/**
 * Moves the record and claims it for the e-mail. Returns the attempt that hands it over; undefined
 * if another worker has the record.
 */
export async function moveToMail(
  firstMail: PreparedMail,
  changes: Changes,
  attempt: Attempt,
  tools: AttemptTools,
): Promise<Attempt | undefined> {
  const { store, clock } = tools;
  const { record: before, place, logFields } = attempt;
  const askedAtMs = clock.monotonicMs();
  let record: OpenRecord | undefined;
  try {
    record = await store.moveOn(before, attemptOf(before), changes);
  } finally {
    if (record === undefined) await giveUp(firstMail, before, tools);
  }
  if (record === undefined) return undefined;
  const claim = new Claim(record, askedAtMs, tools);
  return { record, step: 'mail', startedAt: clock.now(), logFields, claim, place, firstMail };
}

/** The record was not claimed for the e-mail that was begun. */
async function giveUp(
  firstMail: PreparedMail,
  { _id, version }: OpenRecord,
  tools: AttemptTools,
): Promise<void> {
  await noteAborted(firstMail, tools);
  // `moveOn` may have claimed the record although its answer was lost.
  const position = { _id, state: 'account_created', version: version + 1 } as const;
  await writeOrRetry(() => tools.store.putBack(position, tools.clock.now()), tools);
}

/**
 * An e-mail is handed over only after the record has moved on to it, so one that was begun before
 * its worker died reached nobody.
 */
export async function noteUnsent(
  accountId: string,
  { record }: Attempt,
  tools: AttemptTools,
): Promise<void> {
  if (record.history.some(({ state }) => state === 'account_created')) return;
  const account = await tools.accounts.read(accountId);
  if (account === undefined) return;
  const unsent = handOversOf(account.mail).filter(({ result }) => result === undefined);
  for (const intent of unsent) await tools.ledger.endHandOver(account, intent, ABORTED);
}
