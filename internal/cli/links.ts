/** `links void`: ends the links that a leaked secret can forge, and has new ones mailed. */
import type { Account } from '../account/account.ts';
import { isOpen } from '../submission/states.ts';
import { EXIT, type Call, type Command, type Desk, type ExitCode } from './command.ts';
import { submissionById } from './find-submission.ts';
import { CHANGES_LISTED } from './limits.ts';
import { UsageError } from './options.ts';
import { reopen } from './retry.ts';

export const voidLinks: Command = {
  name: 'links void',
  positionals: [],
  about: 'end all unused links made with a leaked key of LINK_SECRET and mail new ones',
  details:
    'First take the key out of LINK_SECRET and restart the processors: they make the new links with its first key. Reads all accounts. A request that is undeliverable or a dead letter loses its link and is not mailed. If it was cut off, "audit" lists a request that lacks its e-mail as mail_not_noted; "resend" mails it.',
  options: ['key', 'yes', 'as', 'why'],
  examples: ['links void --key key-2026-05', 'links void --key none --yes --as jane --why "LINK_SECRET leaked"'],
  run: voidOpenLinks,
};

type Result = 'void' | 'void, mailed again' | 'changed meanwhile';

async function voidOpenLinks(call: Call): Promise<ExitCode> {
  const { desk, out, values, clock } = call;
  const { key } = values;
  if (key === undefined) throw new UsageError('links void: --key is missing; "none" is the secret without a key id');
  const counts: Partial<Record<Result, number>> = {};
  const listed: { account_id: string; request_id: string; result?: Result }[] = [];
  let found = 0;
  for await (const page of desk.accounts.withOpenLink(key === 'none' ? undefined : key, clock.now())) {
    for (const account of page) {
      found += 1;
      const result = values.yes ? await voidOne(account, desk, clock.now()) : undefined;
      if (result !== undefined) counts[result] = (counts[result] ?? 0) + 1;
      if (listed.length < CHANGES_LISTED) {
        listed.push({
          account_id: account._id,
          request_id: account.requestId,
          ...(result === undefined ? {} : { result }),
        });
      }
    }
  }
  const changed = counts['changed meanwhile'] ?? 0;
  if (values.json) out.json({ dry_run: !values.yes, found, counts, listed });
  else if (!values.yes)
    out.line(`${found} open links were made with this key; nothing was changed; add --yes to void them`);
  else
    out.line(
      `${found - changed} links are void; ${counts['void, mailed again'] ?? 0} of their applicants get a new one`,
    );
  if (changed > 0) out.note(`${changed} changed meanwhile: run it again`);
  return found === 0 || changed > 0 ? EXIT.found : EXIT.ok;
}

async function voidOne(account: Account, desk: Desk, now: Date): Promise<Result> {
  const record = await submissionById(account.requestId, desk, now);
  const { _id: requestId, state } = record;
  let result: Result = 'changed meanwhile';
  await desk.trail.record({ action: 'links void', requestId, accountId: account._id }, async () => {
    // A worker that is about to mail the old link loses its claim before the link changes.
    const held = isOpen(state) ? await desk.moves.claim(record) : record;
    if (held === undefined || !(await desk.corrections.voidLink(account))) return false;
    result = 'void';
    if (state !== 'completed' && !isOpen(state)) return true;
    const reason = `operator voided its link, by ${desk.trail.by}`;
    const mailed = isOpen(state)
      ? await desk.moves.hurry(held)
      : (await reopen(desk, record, 'resend', { accountId: account._id, reason })) === 'account_created';
    if (mailed) result = 'void, mailed again';
    return true;
  });
  return result;
}
