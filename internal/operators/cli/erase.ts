/** `erase`: what it finds, and with `--yes` erases, of one applicant. */
import { openErasure, type Erasure, type Found } from '../orders/erase.ts';
import type { Row } from '../orders/many.ts';
import type { Tally } from '../orders/order.ts';
import { defined } from '../../platform/process/defined.ts';
import { BACKUPS_HOLD, erasureNotes } from '../view/order-words.ts';
import { maybeRequestId, UsageError } from './command.ts';
import { guarded, runAll } from './orders.ts';
import { replay } from './replay.ts';

export const erase = guarded({
  name: 'erase',
  positionals: [maybeRequestId],
  options: ['email', 'ein', 'replay', 'since', 'yes'],
  run: async (call) => {
    if (call.values.replay) return replay(call);
    const { email, ein, since, yes = false } = call.values;
    if (since !== undefined) throw new UsageError('erase: --since needs --replay');
    const [id] = call.positionals;
    if ([id, email, ein].filter((given) => given !== undefined).length !== 1)
      throw new UsageError('erase: give one of REQUEST_ID, --email or --ein');
    const erasure = await openErasure(defined({ id, email, ein }), yes, call);
    const summary = (tally: Tally<Found>, rows: readonly Row[]) => summaryOf(tally, rows, erasure);
    return runAll({ ...erasure.order, summary }, call);
  },
});

async function summaryOf(
  { looked, done, isStopped }: Tally<Found>,
  rows: readonly Row[],
  { order: { acts }, isLeft, alike, unregistered }: Erasure,
) {
  const found = isStopped ? undefined : await alike();
  const line = acts
    ? `${done} done; ${BACKUPS_HOLD}`
    : `${looked} found; nothing was changed; add --yes to erase. This cannot be undone.`;
  return {
    json: {
      dry_run: !acts,
      count: looked,
      listed: rows.map(({ json }) => json),
      ...(found && { [`${found.same}_elsewhere`]: found.requestIds }),
    },
    line: looked === 0 ? 'nothing holds this applicant' : line,
    notes: erasureNotes({
      isLeft: isLeft(),
      alike: found,
      how: `by --${found?.same} or by their ids`,
      unregistered,
    }),
    isLeft: isLeft(),
  };
}
