/** `bounce`: reports that the e-mail of a completed request came back after the relay took it. */
import { normalizeEmail } from '../application/identity.ts';
import { accountOfMessageId } from '../mail/message.ts';
import { CommandError, type Call } from './command.ts';
import { UsageError } from './options.ts';
import { commandOf } from './order.ts';
import { planned, requestTarget, requestWords, type RequestTarget } from './request-target.ts';

interface Bounced extends RequestTarget {
  /** Only a Message-ID says of which e-mail it is. */
  readonly isEarlier: boolean;
}

export const bounce = commandOf<Bounced>({
  name: 'bounce',
  positionals: [],
  about: 'report that the e-mail of a completed request bounced later',
  details:
    'Takes the request, the Message-ID of the e-mail, or its recipient. The request becomes undeliverable. What was reported before changes nothing and exits with 0; what is about no mail of ours, with 1; what comes before its request is completed, with 75: give it again later. Not for a request whose link has been used.',
  options: ['request', 'messageId', 'email', 'status'],
  examples: [
    'bounce --request req_01m7yefdj3fantjpk5mzvj8mwh --status 5.1.1 --why "provider\'s webhook"',
    'bounce --message-id "<acc_01m7yppxy4e01v3gzvkymsa33d.login-instructions@example.com>" --as bounces',
    'bounce --email jane@example.com --status 5.1.1',
  ],
  atOnce: true,
  select,
  plan: (target, call) => {
    const { record, account, isEarlier } = target;
    if (isEarlier)
      return {
        nothing: 'it is about an earlier e-mail, which was reported before or followed by another',
      };
    return account !== undefined && record.state === 'undeliverable'
      ? { nothing: 'it is undeliverable already' }
      : planned('bounce')(target, call);
  },
  act: async ([bounced], { desk, values }) => {
    const code = values.status === undefined ? '' : ` (${values.status})`;
    const reason = `the e-mail bounced after the mail server had taken it${code}, reported by ${desk.trail.by}`;
    // The account notes the e-mail until a retry, so this is one write.
    const { record } = bounced!;
    const moved = { seen: record, accountId: record.accountId };
    return (await desk.moves.move('report_bounce', moved, reason)) ? 1 : 0;
  },
  words: (target) => {
    const { _id, state: from } = target.record;
    const to = 'undeliverable';
    const done = `${_id}  ${from} → ${to}; "show" says what to do next`;
    return {
      ...requestWords(target, { done, json: { from, to } }),
      unchanged: 'changed meanwhile: report it again later',
      unchangedIsLater: true,
    };
  },
});

async function select(call: Call): Promise<Bounced> {
  const { request, messageId, email } = call.values;
  if ([request, messageId, email].filter((given) => given !== undefined).length !== 1)
    throw new UsageError('bounce: give one of --request, --message-id or --email');
  if (messageId !== undefined) {
    const mail = accountOfMessageId(messageId);
    if (mail === undefined)
      throw new CommandError('the Message-ID is none of ours: nothing was changed');
    const target = await requestTarget(mail.accountId, call);
    return { ...target, isEarlier: target.account?.mailVersion !== mail.mailVersion };
  }
  if (request !== undefined) return { ...(await requestTarget(request, call)), isEarlier: false };
  const account = await call.desk.accounts.find('emailNormalized', normalizeEmail(email ?? ''));
  if (account === undefined)
    throw new CommandError('no account has this address: nothing was changed');
  return { ...(await requestTarget(account.requestId, call)), isEarlier: false };
}
