/**
 * `bounce`: reports that the e-mail of a completed request came back after the relay accepted it.
 */
import { normalizeEmail } from '../application/identity.ts';
import { readNotification, type BouncedMail } from '../mail/delivery-status.ts';
import { handOversOf } from '../mail/ledger.ts';
import { accountOfMessageId } from '../mail/message.ts';
import type { Account } from '../account/account.ts';
import { CommandError, EXIT, type Call, type Command, type ExitCode } from './command.ts';
import type { FoundSubmission } from '../view/look-up.ts';
import { submissionById } from './command.ts';
import { UsageError } from './options.ts';

export const bounce: Command = {
  name: 'bounce',
  positionals: [],
  about: 'report that the e-mail of a completed request bounced later',
  details:
    'Reads the notification of a mail system from standard input, or takes --message-id or --request. The request becomes undeliverable. A notification that is no failure, or was reported before, changes nothing and exits with 0; one that is about no mail of ours, with 1; one that comes before its request is completed, with 75: give it again later. Not for a request whose link has been used.',
  options: ['messageId', 'request', 'status', 'as', 'why'],
  examples: [
    'bounce --as bounces < notification.eml',
    'bounce --message-id "<acc_01m7yppxy4e01v3gzvkymsa33d.login-instructions@example.com>" --status 5.1.1',
    'bounce --request req_01m7yefdj3fantjpk5mzvj8mwh --why "provider\'s webhook"',
  ],
  run: reportBounce,
};

interface Bounced {
  readonly id: string;
  /** Undefined if only the request was given. */
  readonly isNewest?: (account: Account) => boolean;
  readonly status: string | undefined;
}

async function reportBounce(call: Call): Promise<ExitCode> {
  const bounced = await bouncedMail(call);
  if (typeof bounced === 'string') return nothingToDo(call, undefined, bounced);
  const { desk, out, values, clock } = call;
  const record = await submissionById(bounced.id, desk, clock.now());
  const account = await desk.accounts.find('requestId', record._id);
  if (account === undefined)
    throw new CommandError(`${record._id} is ${record.state} and has no account`);
  const done = reportedBefore(record, account, bounced);
  if (done !== undefined) return nothingToDo(call, record, done);
  assertReportable(record, account);
  const code = bounced.status === undefined ? '' : ` (${bounced.status})`;
  const reason = `the e-mail bounced after the mail server had taken it${code}, reported by ${desk.trail.by}`;
  const told = await desk.trail.record(
    { action: 'bounce', requestId: record._id, accountId: account._id },
    // The account notes the e-mail until a retry, so this is one write.
    () => desk.moves.reportBounce(record, reason),
  );
  if (!told)
    throw new CommandError(`${record._id} changed meanwhile: report it again later`, EXIT.later);
  if (values.json) out.json({ request_id: record._id, from: record.state, to: 'undeliverable' });
  else out.line(`${record._id}  ${record.state} → undeliverable; "show" says what to do next`);
  return EXIT.ok;
}

/** Returns a sentence if the notification reports no failure. */
async function bouncedMail(call: Call): Promise<Bounced | string> {
  const { request, messageId, status } = call.values;
  if (request !== undefined && messageId !== undefined) {
    throw new UsageError('bounce: give one of --request and --message-id');
  }
  if (request !== undefined) return { id: request, status };
  if (messageId !== undefined) return ofMail(messageId, status);
  if (status !== undefined)
    throw new UsageError('bounce: --status goes with --request or --message-id');
  const notification = await readNotification(await call.input());
  if (notification.kind === 'none')
    throw new CommandError(`standard input ${notification.why}: nothing was changed`);
  if (notification.kind === 'no_failure')
    return `the notification says ${notification.action || 'nothing'}, which is no failure`;
  if (notification.messageId !== undefined)
    return ofMail(notification.messageId, notification.status);
  const found = await byRelaysId(notification, call.desk);
  if (found === undefined)
    throw new CommandError('the notification is about no mail of ours: nothing was changed');
  return found;
}

function ofMail(messageId: string, status: string | undefined): Bounced {
  const mail = accountOfMessageId(messageId);
  if (mail === undefined)
    throw new CommandError('the Message-ID is none of ours: nothing was changed');
  return {
    id: mail.accountId,
    isNewest: ({ mailVersion }) => mailVersion === mail.mailVersion,
    status,
  };
}

/** Some relays assign their own Message-ID, which the ledger holds. */
async function byRelaysId(
  mail: BouncedMail,
  { accounts }: Call['desk'],
): Promise<Bounced | undefined> {
  for (const address of mail.recipients) {
    const account = await accounts.find('emailNormalized', normalizeEmail(address));
    const handOver = handOversOf(account?.mail).findLast(
      ({ answer }) => answer !== undefined && mail.holdsIdOf(answer),
    );
    if (account === undefined || handOver === undefined) continue;
    const isNewest = ({ notifiedAt }: Account): boolean =>
      notifiedAt?.getTime() === handOver.endedAt?.getTime();
    return { id: account._id, isNewest, status: mail.status };
  }
  return undefined;
}

function reportedBefore(
  record: FoundSubmission,
  account: Account,
  { isNewest }: Bounced,
): string | undefined {
  if (isNewest?.(account) === false) {
    return 'it is about an earlier e-mail, which was reported before or followed by another';
  }
  return record.state === 'undeliverable' ? 'it is undeliverable already' : undefined;
}

function assertReportable(record: FoundSubmission, account: Account): void {
  const id = record._id;
  if (account.releasedAt !== undefined) throw new CommandError(`the account of ${id} was released`);
  if (account.activation?.usedAt !== undefined) {
    throw new CommandError(
      `the link of ${id} has been used, so the e-mail arrived: nothing was changed`,
    );
  }
  if (record.pastRetention === true)
    throw new CommandError(`${id} is past its retention: nothing was changed`);
  if (record.state === 'account_created') {
    throw new CommandError(
      `${id} is account_created: its e-mail is not noted as sent yet, so report it again later`,
      EXIT.later,
    );
  }
  if (record.state !== 'completed') {
    throw new CommandError(
      `${id} is ${record.state}: only the e-mail of a completed request can bounce later`,
    );
  }
}

function nothingToDo(
  { out, values }: Call,
  record: FoundSubmission | undefined,
  why: string,
): ExitCode {
  const request = record === undefined ? {} : { request_id: record._id };
  if (values.json) out.json({ ...request, result: 'nothing_to_do', why });
  else out.line(`${record === undefined ? '' : `${record._id}  `}nothing to do: ${why}`);
  return EXIT.ok;
}
