/** `keys confirm`: ends keys whose end was deferred. */
import { secretName } from '../partner/key-secret.ts';
import { keyIdOf } from '../partner/api-key.ts';
import { DEFER_MS } from '../partner/key-store.ts';
import { later } from '../platform/clock.ts';
import { printable } from '../platform/terminal.ts';
import { CommandError, EXIT, type Call, type Command, type ExitCode } from './command.ts';
import { utc } from '../view/times.ts';

export const keysConfirm: Command = {
  name: 'keys confirm',
  positionals: [],
  about:
    'deferred removals, where most keys would end within ten minutes: list them, or let them happen now',
  details:
    'Once more than three keys, and more than half of all, end within ten minutes, further ends are deferred for ten minutes. Without --yes this lists these keys. With --yes the controller ends just these within seconds.',
  options: ['yes', 'as', 'why'],
  examples: ['keys confirm', 'keys confirm --yes --why "all keys leaked"'],
  run: confirmRemovals,
};

async function confirmRemovals({ desk, values, out }: Call): Promise<ExitCode> {
  const deferred = await desk.keys.deferred();
  const shown = deferred.map(({ _id, partnerId, source, deferredAt }) => ({
    key: keyIdOf(_id),
    partner: partnerId,
    secret: secretName(source),
    until: deferredAt && later(deferredAt, DEFER_MS),
  }));
  if (values.json) out.json({ dry_run: !values.yes, deferred: shown });
  else {
    for (const { key, partner, secret, until } of shown) {
      const when = until === undefined ? '' : ` until ${utc(until)}`;
      out.line(printable(`key ${key} of ${partner}, from ${secret}, stays active${when}`));
    }
  }
  if (deferred.length === 0) {
    out.note('no removal is deferred');
    return EXIT.ok;
  }
  if (!values.yes) {
    out.note('nothing was changed; add --yes to end these keys now');
    return EXIT.ok;
  }
  let confirmed = 0;
  await desk.trail.record({ action: 'keys confirm', count: deferred.length }, async () => {
    confirmed = await desk.keys.confirm(deferred.map(({ _id }) => _id));
    return confirmed > 0;
  });
  if (confirmed === 0) throw new CommandError('these removals are not deferred any more');
  if (confirmed < deferred.length)
    out.note(`${deferred.length - confirmed} of them are not deferred any more`);
  out.note('the controller ends them within seconds, if their Secrets still do');
  return EXIT.ok;
}
