/** `retry` and `resend`: work on a request again, mail its applicant again. The processor does the work, never we. */
import type { Account } from '../account/account.ts';
import { printable, table } from '../platform/terminal.ts';
import { isOpen, meanings, nextState, type OpenState } from '../submission/states.ts';
import type { SubmissionRecord } from '../submission/submission.ts';
import { EXIT, type Call, type Command, type Desk, type ExitCode } from './command.ts';
import { RefusedError } from './refused.ts';
import { UsageError } from './options.ts';
import { PAGE_MAX, READ_DEADLINE_MS } from './limits.ts';
import { filterOf, newestMatching, requestById } from './read-requests.ts';

export const retry: Command = {
  name: 'retry',
  positionals: ['[REQUEST_ID]'],
  about: 'have a dead-lettered or undeliverable request worked on again',
  details:
    'One request at once, or with --state all that match (a list of them without --yes). A request that waits for its next attempt gets it now. Attempts count from one again; the processor takes it within seconds.',
  options: ['state', 'partner', 'since', 'until', 'limit', 'yes', 'as', 'why'],
  examples: [
    'retry req_01m7yefdj3fantjpk5mzvj8mwh --why "relay is back"',
    'retry --state dead_lettered --since 24h',
    'retry --state dead_lettered --since 24h --yes --as jane',
  ],
  run: (call) => (call.positionals[0] === undefined ? retryMany(call) : retryOne(call)),
};

export const resend: Command = {
  name: 'resend',
  positionals: ['REQUEST_ID'],
  about: 'mail the login instructions once more, with the same link',
  details:
    'For a completed or undeliverable request whose link has not been used. The link works for seven more days. For a wrong address: "account correct-email".',
  options: ['yes', 'as', 'why'],
  examples: ['resend req_01m7yefdj3fantjpk5mzvj8mwh --why "applicant lost the mail"'],
  run: resendMail,
};

async function retryOne(call: Call): Promise<ExitCode> {
  const { out, values, clock } = call;
  const several = ['state', 'partner', 'since', 'until', 'limit'] as const;
  const surplus = several.find((name) => values[name] !== undefined);
  if (surplus !== undefined) throw new UsageError(`retry: --${surplus} does not go with a REQUEST_ID`);
  const { desk } = call;
  const record = await requestById(call.positionals[0] ?? '', desk, clock.now());
  const { to, refusal } = await tryAgain(record, desk, true);
  if (to === undefined) throw new RefusedError(`${record._id} ${refusal}`);
  if (values.json) out.json({ request_id: record._id, from: record.state, to });
  else out.line(`${record._id}  ${record.state} → ${to}; the processor takes it within seconds`);
  return EXIT.ok;
}

async function retryMany(call: Call): Promise<ExitCode> {
  const { out, values } = call;
  const { state } = values;
  if (state !== 'dead_lettered' && state !== 'undeliverable') {
    throw new UsageError('retry: give a REQUEST_ID, or --state dead_lettered or --state undeliverable');
  }
  const { desk } = call;
  const records = await newestMatching(desk.requests, filterOf(values), values.limit ?? PAGE_MAX);
  const rows: { request_id: string; from: string; to?: string; result: string }[] = [];
  for (const record of records) {
    const { to, refusal } = await tryAgain(record, desk, values.yes);
    const result = to === undefined ? refusal : values.yes ? 'retried' : 'would be retried';
    rows.push({ request_id: record._id, from: record.state, ...(to === undefined ? {} : { to }), result });
  }
  const possible = rows.filter((entry) => entry.to !== undefined).length;
  if (values.json) out.json({ dry_run: !values.yes, retried: values.yes ? possible : 0, requests: rows });
  else {
    if (rows.length > 0) {
      out.line(
        table(
          rows.map(({ request_id, from, to, result }) => [
            request_id,
            to === undefined ? from : `${from} → ${to}`,
            printable(result),
          ]),
          '',
        ),
      );
    }
    out.line(values.yes ? `${possible} retried` : `${possible} would be retried; add --yes to do it`);
  }
  if (records.length === (values.limit ?? PAGE_MAX)) out.note('there may be more: run it again');
  return rows.length === 0 ? EXIT.found : EXIT.ok;
}

async function resendMail(call: Call): Promise<ExitCode> {
  const { desk, out, values, clock } = call;
  const record = await requestById(call.positionals[0] ?? '', desk, clock.now());
  const { _id: id, state } = record;
  if (state === 'dead_lettered') throw new RefusedError(`${id} is dead_lettered: use "retry ${id}"`);
  if (state !== 'completed' && state !== 'undeliverable') {
    throw new RefusedError(`${id} is ${state}: only a completed or undeliverable request has a mail to send again`);
  }
  const account = await accountToMail(record, desk);
  const again = state === 'completed' ? 'resend' : 'retry';
  const done = await desk.trail.record({ action: 'resend', requestId: id, accountId: account._id }, async () => {
    // The account first: cut off in between, the request is as it was and the command can be given again.
    if (!(await desk.corrections.mailAgain(account))) return false;
    const reason = `operator resend by ${desk.trail.by}`;
    return (await desk.store.reopen(record, again, { accountId: account._id, reason })) === 'account_created';
  });
  if (!done) throw changedMeanwhile(record);
  if (values.json) out.json({ request_id: id, from: state, to: 'account_created' });
  else out.line(`${id}  ${state} → account_created; the same link goes out again within seconds`);
  return EXIT.ok;
}

/** The account of a settled request, if a link to it is still of use. Throws `RefusedError`. */
export async function accountToMail(record: SubmissionRecord, desk: Desk): Promise<Account> {
  const id = record._id;
  if (record.erasedAt !== undefined) throw new RefusedError(`${id} was erased: there is nobody to mail`);
  const account = await desk.accounts.findOne({ requestId: id }, { maxTimeMS: READ_DEADLINE_MS });
  if (account === null) throw new RefusedError(`${id} has no account`);
  if (account.releasedAt !== undefined) throw new RefusedError(`the account of ${id} was released`);
  if (account.notifiedAt !== undefined && account.activation === undefined) {
    throw new RefusedError(`the link of ${id} has been used: the applicant can log in and change things there`);
  }
  return account;
}

/** Does the retry, or with `act` false only tells where it would lead; `refusal` says why not. */
async function tryAgain(
  record: SubmissionRecord,
  desk: Desk,
  act: boolean,
): Promise<{ readonly to: OpenState; readonly refusal?: never } | { readonly to?: never; readonly refusal: string }> {
  const { _id: requestId, state } = record;
  if (record.erasedAt !== undefined) return { refusal: 'was erased: there is nothing to work on' };
  const account = await desk.accounts.findOne({ requestId }, { maxTimeMS: READ_DEADLINE_MS });
  if (account?.releasedAt !== undefined) return { refusal: 'has a released account: the partner applies anew' };
  const accountId = account?._id;
  const facts = { account: accountId !== undefined, claimed: record.version > 0, erased: false };
  const to = isOpen(state) ? state : nextState(state, 'retry', facts);
  if (to === undefined || !isOpen(to)) return { refusal: `is ${state} (${meanings[state]}): nothing to retry` };
  if (!act) return { to };
  const done = await desk.trail.record(
    { action: 'retry', requestId, ...(accountId === undefined ? {} : { accountId }) },
    async () => {
      if (isOpen(state)) return desk.moves.hurry(record);
      const reason = `operator retry by ${desk.trail.by}`;
      return (await desk.store.reopen(record, 'retry', { accountId, reason })) === to;
    },
  );
  return done ? { to } : { refusal: 'changed meanwhile: look at it with "show" and decide again' };
}

/** A worker or another operator was faster. */
export function changedMeanwhile(record: SubmissionRecord): RefusedError {
  return new RefusedError(`${record._id} changed meanwhile: look at it with "show" and decide again`);
}
