/** `keys confirm`: removals of most keys, which the controller holds until time passes or an operator confirms them. */
import { HELD_REMOVAL_MS } from '../partner/held-removals.ts';
import { later } from '../platform/clock.ts';
import { printable } from '../platform/terminal.ts';
import { CommandError, EXIT, type Call, type Command, type ExitCode } from './command.ts';
import { utc } from './timeline.ts';

export const keysConfirm: Command = {
  name: 'keys confirm',
  positionals: [],
  about: 'removals of most keys at once, which wait for ten minutes: list them, or let them happen now',
  details:
    'The controller holds a round that would remove more than half of the keys and more than three. Without --yes this lists what is held. With --yes the controller removes just these keys within seconds. "keys list" shows which Secret each key came from.',
  options: ['yes', 'as', 'why'],
  examples: ['keys confirm', 'keys confirm --yes --why "all keys leaked"'],
  run: confirmRemovals,
};

async function confirmRemovals({ desk, values, out }: Call): Promise<ExitCode> {
  const held = (await desk.heldRemovals.list()).filter(({ confirmedAt }) => confirmedAt === undefined);
  const shown = held.map((one) => ({
    owner: one.owner,
    keys: one.keys.length,
    until: later(one.since, HELD_REMOVAL_MS),
  }));
  if (values.json) out.json({ dry_run: !values.yes, held: shown });
  else {
    for (const { owner, keys, until } of shown) {
      out.line(`${keys} keys of ${printable(owner)} stay active until ${utc(until)}`);
    }
  }
  if (held.length === 0) {
    out.note('no removal is held');
    return EXIT.found;
  }
  if (!values.yes) {
    out.note('nothing was changed; add --yes to remove them now');
    return EXIT.ok;
  }
  const count = held.reduce((sum, { keys }) => sum + keys.length, 0);
  const isConfirmed = await desk.trail.record({ action: 'keys confirm', count }, async () => {
    const confirmed = await Promise.all(held.map((one) => desk.heldRemovals.confirm(one)));
    return confirmed.every(Boolean);
  });
  if (!isConfirmed) throw new CommandError('other keys are held by now: look again');
  return EXIT.ok;
}
