/**
 * A simulated operator: the steps of the command line (internal/cli), on the same stores; `erase`,
 * `close`, `retry` and `bounce` are the commands themselves.
 */
import type { Account } from '../../internal/account/account.ts';
import { AccountCorrections } from '../../internal/account/account-corrections.ts';
import { AccountQueries } from '../../internal/account/account-queries.ts';
import { normalizeEmail } from '../../internal/application/identity.ts';
import type { OperatorAction } from '../../internal/audit/entry.ts';
import { bounce } from '../../internal/cli/bounce.ts';
import { close } from '../../internal/cli/close.ts';
import { CommandError, EXIT, type Call, type Command } from '../../internal/cli/command.ts';
import { erase } from '../../internal/cli/erase.ts';
import { applicantOf } from '../../internal/cli/match-person.ts';
import { retry } from '../../internal/cli/retry.ts';
import { OperatorMoves, type Seen } from '../../internal/submission/operator-moves.ts';
import { isOpen, nextState, type ReopeningEvent } from '../../internal/submission/states.ts';
import type { SubmissionRecord } from '../../internal/submission/submission.ts';
import { SupportQueries } from '../../internal/submission/support-queries.ts';
import type { OrderEvent } from './plan.ts';
import { retention, type World } from './world.ts';

const AGAIN_MS = 3_000;
const out = { json: () => {}, note: () => {} };
const never = new AbortController().signal;

export interface Operator {
  /**
   * Gives the order, and gives it again when it failed half-way or the record was changed
   * meanwhile, as people do.
   */
  order(requestId: string, event: OrderEvent): void;
  /** Puts the partner on hold, or releases it. */
  hold(onHold: boolean): void;
  /** Whether all orders have been carried out. */
  atRest(): boolean;
}

export function startOperator(world: World, skewMs: number): Operator {
  const process = world.newProcess('operator', skewMs);
  const { db, clock, holds } = world.connect(process, 'operator');
  const moves = new OperatorMoves({ db, retention, clock });
  const corrections = new AccountCorrections({ db, clock });
  const [submissions, accounts] = [new SupportQueries(db), new AccountQueries(db)];

  const noteErasure = (requestId: string | undefined): void => {
    const record = world.records().find(({ _id }) => _id === requestId);
    const person = record === undefined ? undefined : applicantOf(record).email;
    if (person === undefined) return;
    world.erasedPeople.add(person);
    for (const one of world.records())
      if (applicantOf(one).email === person) world.toErase.add(one._id);
  };
  const trail = {
    by: 'somebody',
    record: async (
      { action, requestId }: Pick<OperatorAction, 'action' | 'requestId'>,
      act: () => Promise<boolean>,
    ) => {
      if (action === 'erase') noteErasure(requestId);
      return act();
    },
  };
  const desk = { submissions, accounts, moves, corrections, holds, trail };
  /** Gives the command itself; true once it has nothing left to do, or refuses. */
  const give = async (command: Command, call: Pick<Call, 'positionals'> & { request?: string }) => {
    const values = { yes: true, json: true, why: 'an order', request: call.request };
    const { positionals } = call;
    const code = await command
      .run({ positionals, values, desk, clock, out, stop: never } as unknown as Call)
      .catch((error: unknown) => {
        if (!(error instanceof CommandError)) throw error;
      });
    return command !== erase || code === undefined || code === EXIT.ok;
  };
  /** True when there is nothing more to do. */
  const order = async (requestId: string, event: OrderEvent): Promise<boolean> => {
    const record = await submissions.byId(requestId);
    if (record === undefined) return true;
    if (event === 'erase') return give(erase, { positionals: [requestId] });
    if (event === 'close') return give(close, { positionals: [requestId] });
    if (event === 'retry') return give(retry, { positionals: [requestId] });
    if (event === 'bounce') return give(bounce, { positionals: [], request: requestId });
    const account = await accounts.find('requestId', requestId);
    if (account?.releasedAt !== undefined) return true;
    if (event === 'release') {
      if (account === undefined || isOpen(record.state)) return true;
      return trail.record({ action: event }, () => corrections.release(account));
    }
    const facts = {
      account: account !== undefined,
      claimed: record.version > 0,
      erased: record.erasedAt !== undefined,
    };
    if (nextState(record.state, event, facts) === undefined) return true;
    return trail.record({ action: event }, () => carryOut(record, account, event));
  };
  /** True when there is nothing more to do. */
  const carryOut = async (
    record: SubmissionRecord,
    account: Account | undefined,
    event: ReopeningEvent,
  ): Promise<boolean> => {
    const requestId = record._id;
    const reason = `operator: ${event}`;
    let seen: Seen | undefined = record;
    if (account !== undefined && event === 'resend' && !(await corrections.mailAgain(account)))
      return false;
    if (account !== undefined && event === 'correct_address') {
      // A worker that is about to mail the old address loses its claim before the address changes.
      if (isOpen(record.state)) seen = await moves.claim(record);
      if (seen === undefined) return false;
      const email = `Corrected.${requestId}@example.com`;
      if ((await corrections.correctEmail(account, email)) !== 'done') return false;
      await moves.correctEmail(requestId, normalizeEmail(email));
    }
    return (await moves.reopen(seen, event, { accountId: account?._id, reason })) !== 'changed';
  };
  let open = 0;
  let holding = Promise.resolve();
  /** As people do: again and again, until it is done. */
  const untilDone = async (act: () => Promise<boolean>): Promise<void> => {
    while (!(await act().catch(() => false))) await world.scheduler.pause(AGAIN_MS);
    open -= 1;
  };
  const start = (run: () => void): void => {
    open += 1;
    world.scheduler.after(0, run, process);
  };
  return {
    order: (requestId, event) => start(() => void untilDone(() => order(requestId, event))),
    hold: (onHold) => {
      const setHold = async (): Promise<boolean> => {
        await (onHold ? holds.set('demo', 'somebody') : holds.clear('demo', 'somebody'));
        return true;
      };
      start(() => {
        holding = holding.then(() => untilDone(setHold));
      });
    },
    atRest: () => open === 0,
  };
}
