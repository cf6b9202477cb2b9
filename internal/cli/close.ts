/** `close`: ends an open request or a dead letter. */
import type { Account } from '../account/account.ts';
import { cards, nextState } from '../submission/states.ts';
import type { SubmissionRecord } from '../submission/submission.ts';
import { CommandError, EXIT, type Call, type Command, type ExitCode } from './command.ts';
import { submissionById } from './command.ts';
import { onlyOne, orderMany, queryOptions, type Order, type Plan } from './bulk-order.ts';
import { WALK_PAGE } from '../platform/mongo-read.ts';
import { UsageError, maybeRequestId } from './options.ts';
import { changedMeanwhile } from './waiting-reason.ts';
import { claimInWords } from '../view/plans.ts';

export const close: Command = {
  name: 'close',
  positionals: [maybeRequestId],
  about: 'end an open request or a dead letter for good, with a reason',
  details:
    'It ends "rejected", or "undeliverable" where its account exists already; the account stays. The reason of --why stands in its history, so name no person in it. A request that a worker has in hand is left alone. With --state, all that match are counted, and closed only with --yes. Ctrl-C stops it between two pages.',
  options: [...queryOptions, 'yes', 'as', 'why'],
  examples: [
    'close req_01m7yefdj3fantjpk5mzvj8mwh --yes --why "sent by mistake, ticket 4711"',
    'close --state dead_lettered --reason 451 --until 30d --why "ticket 4711"',
    'close --state dead_lettered --partner acme --yes --why "ticket 4711"',
  ],
  run: closeRequests,
};

const order: Order = {
  action: 'close',
  past: 'closed',
  states: ['recorded', 'account_created', 'dead_lettered'],
  plan,
  atOnce: WALK_PAGE,
  act: (planned, { desk, values }) =>
    desk.moves.moveAll(
      'close',
      planned.map(({ record, account, to }) => ({ seen: record, to, accountId: account?._id })),
      `operator closed it: ${values.why ?? ''}, by ${desk.trail.by}`,
    ),
};

function plan(record: SubmissionRecord, account: Account | undefined): Plan {
  const { state, version, erasedAt } = record;
  const facts = {
    account: account !== undefined,
    claimed: version > 0,
    erased: erasedAt !== undefined,
  };
  const to = nextState(state, 'close', facts);
  return to === undefined
    ? { whyNot: `is ${state} (${cards[state].meaning}): nothing to close` }
    : { to };
}

async function closeRequests(call: Call): Promise<ExitCode> {
  const { values, out } = call;
  const [id] = call.positionals;
  if (values.yes && values.why === undefined)
    throw new UsageError('close: --why is missing: it is the reason');
  if (id === undefined) return orderMany(call, order);
  onlyOne(call, 'close');

  const { desk, clock } = call;
  const record = await submissionById(id, desk, clock.now());
  const account = await desk.accounts.find('requestId', record._id);
  const { to, whyNot } = plan(record, account);
  const left = claimInWords(record, clock.now()) ?? whyNot;
  if (to === undefined || left !== undefined) throw new CommandError(`${record._id} ${left}`);
  if (values.yes) {
    const act = async (): Promise<boolean> =>
      (await order.act([{ record, account, to }], call)) === 1;
    const done = await desk.trail.record({ action: 'close', requestId: record._id }, act);
    if (!done) throw changedMeanwhile(record);
  }
  if (values.json)
    out.json({ dry_run: !values.yes, request_id: record._id, from: record.state, to });
  else
    out.line(
      `${record._id}  ${record.state} → ${to}${values.yes ? '' : '; nothing was changed; add --yes to do it'}`,
    );
  return EXIT.ok;
}
