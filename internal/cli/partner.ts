/** `partner hold|release|discard|holds`: keep a partner's work from being done, let it go on, or end it. */
import type { Hold } from '../partner/holds.ts';
import { isPartnerId } from '../partner/key-secret.ts';
import { table } from '../platform/terminal.ts';
import { CommandError, EXIT, type Call, type Command, type ExitCode } from './command.ts';
import { HELD_COUNTED } from './limits.ts';
import { UsageError } from './options.ts';
import { fromNow, utc } from './timeline.ts';

export const partnerHold: Command = {
  name: 'partner hold',
  positionals: ['PARTNER'],
  about: 'keep what a partner sent from being worked on',
  details:
    'Takes effect within five seconds, also on requests under way. Requests are still accepted, and kept: nothing is lost. With --since, only what was received from then on. "partner release" lets the work go on, "partner discard" ends it. To turn new requests away, make the key inactive.',
  options: ['since', 'as', 'why'],
  examples: ['partner hold acme --why "key leaked"', 'partner hold acme --since 2026-11-21T09:00Z --as jane'],
  run: hold,
};

export const partnerRelease: Command = {
  name: 'partner release',
  positionals: ['PARTNER'],
  about: 'let the work of a held partner go on',
  details: 'Everything that was held is worked on, oldest first.',
  options: ['as', 'why'],
  examples: ['partner release acme --why "all theirs"'],
  run: release,
};

export const partnerDiscard: Command = {
  name: 'partner discard',
  positionals: ['PARTNER'],
  about: 'end what is held of a partner, without any further work',
  details:
    'Held requests end as rejected with the reason "discarded", which a status look-up shows. Accounts that exist stay: see "account release". What the partner sends from now on stays held until "partner release". This cannot be undone.',
  options: ['yes', 'as', 'why'],
  examples: ['partner discard acme', 'partner discard acme --yes --as jane --why "sent with the leaked key"'],
  run: discard,
};

export const partnerHolds: Command = {
  name: 'partner holds',
  positionals: [],
  about: 'which partners are held, or were',
  details: `Requests that are set aside are counted up to ${HELD_COUNTED}; a request is set aside when its turn comes.`,
  options: ['partner'],
  examples: ['partner holds', 'partner holds --partner acme --json'],
  run: list,
};

async function hold(call: Call): Promise<ExitCode> {
  const { desk, out, values } = call;
  const partnerId = partnerOf(call);
  const held = await heldOf(partnerId, call);
  if (held !== undefined) {
    throw new CommandError(`${partnerId} is held already${sinceOf(held)}: for another time, release it first`);
  }
  if ((await desk.keys.list(partnerId)).length === 0) out.note(`no key of ${partnerId} is known: is that its name?`);
  await desk.trail.record({ action: 'partner hold', partnerId }, async () => {
    await desk.holds.hold(partnerId, desk.trail.by, values.since);
    return true;
  });
  return answer(call, partnerId, 'held', 'held within five seconds; new requests are accepted and kept');
}

async function release(call: Call): Promise<ExitCode> {
  const { desk } = call;
  const partnerId = partnerOf(call);
  await mustBeHeld(partnerId, call);
  await desk.trail.record({ action: 'partner release', partnerId }, () => {
    return desk.holds.release(partnerId, desk.trail.by);
  });
  return answer(call, partnerId, 'released', 'released; its work goes on within seconds');
}

async function discard(call: Call): Promise<ExitCode> {
  const { desk, out, values } = call;
  const partnerId = partnerOf(call);
  const held = await mustBeHeld(partnerId, call);
  if (!values.yes) {
    const aside = await countOf(held, call);
    if (values.json) out.json({ dry_run: true, partner: partnerId, set_aside: aside });
    else {
      out.line(`${partnerId} is held${sinceOf(held)}; ${inWords(aside)} set aside so far`);
      out.line('all that is held would end as rejected; nothing was changed; add --yes to do it');
    }
    return EXIT.ok;
  }
  await desk.trail.record({ action: 'partner discard', partnerId }, () => {
    return desk.holds.discard(partnerId, desk.trail.by);
  });
  const then = `what it sends from now on stays held until "partner release ${partnerId}"`;
  return answer(call, partnerId, 'discarded', `what was held ends as rejected; ${then}`);
}

async function list(call: Call): Promise<ExitCode> {
  const { desk, out, values, clock } = call;
  const now = clock.now();
  const holds = await desk.holds.list(values.partner);
  const rows = [];
  for (const one of holds) {
    const { _id, partnerId, state, since, at, by, endedAt, endedBy } = one;
    rows.push({
      hold: _id,
      partner: partnerId,
      state,
      since,
      at,
      by,
      endedAt,
      endedBy,
      aside: await countOf(one, call),
    });
  }
  if (values.json) {
    out.json(
      rows.map(({ endedAt, endedBy, aside, ...row }) => ({
        ...row,
        ended_at: endedAt,
        ended_by: endedBy,
        set_aside: aside,
      })),
    );
  } else if (rows.length === 0) out.line('no partner is held');
  else {
    const cells = rows.map(({ partner, state, since, at, by, aside }) => [
      partner,
      state,
      since === undefined ? 'everything' : `since ${utc(since)} UTC`,
      `${fromNow(at, now)} by ${by}`,
      `${inWords(aside)} set aside`,
    ]);
    out.line(table(cells, ''));
  }
  return rows.length === 0 ? EXIT.found : EXIT.ok;
}

function partnerOf({ positionals }: Call): string {
  const [partner = ''] = positionals;
  if (isPartnerId(partner)) return partner;
  throw new UsageError('PARTNER must be 1 to 63 letters, digits, ".", "_" or "-", as a Kubernetes label');
}

async function heldOf(partnerId: string, { desk }: Call): Promise<Hold | undefined> {
  return (await desk.holds.list(partnerId)).find(({ state }) => state === 'held');
}

async function mustBeHeld(partnerId: string, call: Call): Promise<Hold> {
  const held = await heldOf(partnerId, call);
  if (held === undefined) throw new CommandError(`${partnerId} is not held`);
  return held;
}

function countOf({ _id }: Hold, { desk }: Call): Promise<number> {
  return desk.submissions.countSetAside(_id, HELD_COUNTED);
}

function inWords(count: number): string {
  return `${count >= HELD_COUNTED ? 'at least ' : ''}${count} ${count === 1 ? 'request' : 'requests'}`;
}

function sinceOf({ since }: Hold): string {
  return since === undefined ? '' : ` for what came since ${utc(since)} UTC`;
}

function answer({ out, values }: Call, partner: string, result: string, text: string): ExitCode {
  if (values.json) out.json({ partner, result });
  else out.line(`${partner}  ${text}`);
  return EXIT.ok;
}
