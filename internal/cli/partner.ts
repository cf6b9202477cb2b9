/** `partner hold|release|holds`: stops all work on a partner's requests, and resumes it. */
import type { Flagged } from '../partner/flags.ts';
import { table } from '../platform/terminal.ts';
import { CommandError, EXIT, type Call, type Command, type ExitCode } from './command.ts';
import { OPEN_COUNTED } from './limits.ts';
import { partner } from './options.ts';
import { fromNow } from './timeline.ts';

export const partnerHold: Command = {
  name: 'partner hold',
  positionals: [partner],
  about: 'put a partner on hold: nothing it sent is worked on',
  details:
    'Takes effect within five seconds: no account is made and no e-mail begins; an e-mail whose content is on its way to the relay ends. Requests are still accepted and recorded, and keep their place. "partner release" lets the work go on; "close --partner PARTNER --state STATE" ends what shall not be done. "partner disable" turns new requests away.',
  options: ['as', 'why'],
  examples: ['partner hold acme --why "key leaked"'],
  run: hold,
};

export const partnerRelease: Command = {
  name: 'partner release',
  positionals: [partner],
  about: 'let the work of a partner on hold go on',
  details: 'Everything that waits is worked on, oldest first.',
  options: ['as', 'why'],
  examples: ['partner release acme --why "all theirs"'],
  run: release,
};

export const partnerHolds: Command = {
  name: 'partner holds',
  positionals: [],
  about: 'which partners are on hold',
  details: `Waiting requests are counted up to ${OPEN_COUNTED}.`,
  options: [],
  examples: ['partner holds', 'partner holds --json'],
  run: list,
};

async function hold(call: Call): Promise<ExitCode> {
  const { desk } = call;
  const [partnerId = ''] = call.positionals;
  await noteUnknown(partnerId, call);
  const done = await desk.trail.record({ action: 'partner hold', partnerId }, () =>
    desk.holds.set(partnerId, desk.trail.by),
  );
  if (!done) throw new CommandError(`${partnerId} is on hold already`);
  return answer(
    call,
    partnerId,
    'held',
    'on hold: a processor that works on a request of it stops within five seconds; new requests are accepted and wait',
  );
}

/** A mistyped name would be flagged in vain. */
export async function noteUnknown(partnerId: string, { desk, out }: Call): Promise<void> {
  if ((await desk.keys.list(partnerId)).length === 0)
    out.note(`no key of ${partnerId} is known: is that its name?`);
}

async function release(call: Call): Promise<ExitCode> {
  const { desk } = call;
  const [partnerId = ''] = call.positionals;
  const done = await desk.trail.record({ action: 'partner release', partnerId }, () =>
    desk.holds.clear(partnerId, desk.trail.by),
  );
  if (!done) throw new CommandError(`${partnerId} is not on hold`);
  return answer(
    call,
    partnerId,
    'released',
    'released: processors go on with its work within half a minute',
  );
}

async function list({ desk, out, values, clock }: Call): Promise<ExitCode> {
  const now = clock.now();
  const rows = await Promise.all(
    (await desk.holds.list()).map(async (one) => ({ ...one, waiting: await waitingOf(one, desk) })),
  );
  if (values.json)
    out.json(rows.map(({ _id, at, by, waiting }) => ({ partner: _id, at, by, waiting })));
  else if (rows.length === 0) out.line('no partner is on hold');
  else {
    const cells = rows.map(({ _id, at, by, waiting }) => [
      _id,
      `${fromNow(at, now)} by ${by}`,
      `${inWords(waiting)} waiting`,
    ]);
    out.line(table(cells, ''));
  }
  return EXIT.ok;
}

function waitingOf({ _id }: Flagged, desk: Call['desk']): Promise<number> {
  return desk.submissions.countOpen(_id, OPEN_COUNTED);
}

function inWords(count: number): string {
  return `${count >= OPEN_COUNTED ? 'at least ' : ''}${count} ${count === 1 ? 'request' : 'requests'}`;
}

function answer({ out, values }: Call, name: string, result: string, text: string): ExitCode {
  if (values.json) out.json({ partner: name, result });
  else out.line(`${name}  ${text}`);
  return EXIT.ok;
}
