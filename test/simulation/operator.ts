/** A simulated operator: the steps of the command line, on the same stores. */
import { normalizeEmail } from '../../internal/application/identity.ts';
import { nextState, type ReopeningEvent } from '../../internal/submission/states.ts';
import type { World } from './world.ts';

const AGAIN_MS = 3_000;

export interface Operator {
  /** Gives the order, and gives it again when it failed half-way or the record was changed meanwhile, as people do. */
  order(requestId: string, event: ReopeningEvent): void;
  /** Whether all orders have been carried out. */
  atRest(): boolean;
}

/** The address an applicant's account is corrected to. */
export const correctedAddress = (requestId: string): string => `Corrected.${requestId}@example.com`;

export function startOperator(world: World, skewMs: number): Operator {
  const process = world.newProcess('operator', skewMs);
  const { store, accountCollection } = world.connect(process, 'operator');

  /** True when there is nothing more to do. */
  const order = async (requestId: string, event: ReopeningEvent): Promise<boolean> => {
    const record = await store.read(requestId);
    if (record === undefined) return true;
    const account = await accountCollection.findOne({ requestId });
    const facts = { account: account !== null, claimed: record.version > 0, erased: false };
    if (nextState(record.state, event, facts) === undefined) return true;
    if (account !== null && event !== 'retry') {
      const email = correctedAddress(requestId);
      const address = event === 'correct_address' ? { email, emailNormalized: normalizeEmail(email) } : {};
      await accountCollection.updateOne({ _id: account._id }, { $set: address, $unset: { notifiedAt: true } });
    }
    return (await store.reopen(record, event, { accountId: account?._id, reason: `operator: ${event}` })) !== 'changed';
  };
  let open = 0;
  const persist = async (requestId: string, event: ReopeningEvent): Promise<void> => {
    while (!(await order(requestId, event).catch(() => false))) await world.scheduler.pause(AGAIN_MS);
  };
  return {
    order: (requestId, event) => {
      open += 1;
      world.scheduler.after(0, () => void persist(requestId, event).then(() => (open -= 1)), process);
    },
    atRest: () => open === 0,
  };
}
