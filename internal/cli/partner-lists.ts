/** `partner list` and `partner holds`: whose keys are accepted, and whose work waits. */
import type { Flagged } from '../partner/flags.ts';
import { secretName } from '../partner/key-secret.ts';
import { table } from '../platform/terminal.ts';
import { OPEN_COUNTED } from '../view/limits.ts';
import { holdsView, partnersView, type PartnerView } from '../view/partners.ts';
import { fromNow } from '../view/times.ts';
import { EXIT, type Call, type Command, type ExitCode } from './command.ts';
import { headed, lastUseCells } from './tables.ts';

export const partnerList: Command = {
  name: 'partner list',
  positionals: [],
  about: 'all partners: whether their keys are accepted, and what switched one off',
  details:
    'A partner is "active", "inactive" by the status of a Secret, "disabled" by "partner disable", or has "no keys". The last use is at most 30 s behind.',
  options: [],
  examples: ['partner list', 'partner list --json'],
  run: list,
};

export const partnerHolds: Command = {
  name: 'partner holds',
  positionals: [],
  about: 'which partners are on hold',
  details: `Waiting requests are counted up to ${OPEN_COUNTED}.`,
  options: [],
  examples: ['partner holds', 'partner holds --json'],
  run: holds,
};

async function list({ desk, out, values, clock }: Call): Promise<ExitCode> {
  const now = clock.now();
  const partners = await partnersView(desk, now);
  if (values.json) out.json(partners.map(jsonOf));
  else if (partners.length === 0) out.line('there are no partners');
  else {
    const header = ['PARTNER', 'STATUS', 'ACTIVE KEYS', 'LAST USED (UTC)', '', 'WHY'];
    out.line(
      headed(
        header,
        partners.map((one) => rowOf(one, now)),
      ),
    );
  }
  return EXIT.ok;
}

function rowOf(one: PartnerView, now: Date): string[] {
  const { active, inactive } = one.keys;
  const set = ({ at, by }: Flagged): string => `${fromNow(at, now)} by ${by}`;
  const why = [
    ...(one.disabled === undefined ? [] : [`disabled ${set(one.disabled)}`]),
    ...one.inactiveBy.map((secret) => `inactive by Secret ${secretName(secret)}`),
    ...(one.hold === undefined ? [] : [`put on hold ${set(one.hold)}`]),
  ];
  return [
    one.partner,
    one.status,
    inactive === 0 ? `${active}` : `${active} of ${active + inactive}`,
    ...lastUseCells(one.lastUsedAt, now),
    why.join('; '),
  ];
}

function jsonOf(one: PartnerView) {
  const set = (flag: Flagged | undefined) =>
    flag === undefined ? null : { at: flag.at, by: flag.by };
  return {
    partner: one.partner,
    status: one.status,
    keys: one.keys,
    last_used_at: one.lastUsedAt ?? null,
    disabled: set(one.disabled),
    on_hold: set(one.hold),
    inactive_by: one.inactiveBy.map(secretName),
  };
}

async function holds({ desk, out, values, clock }: Call): Promise<ExitCode> {
  const now = clock.now();
  const held = await holdsView(desk);
  if (values.json) out.json(held);
  else if (held.length === 0) out.line('no partner is on hold');
  else {
    const cells = held.map(({ partner, at, by, waiting }) => [
      partner,
      `${fromNow(at, now)} by ${by}`,
      `${waiting >= OPEN_COUNTED ? 'at least ' : ''}${waiting} ${waiting === 1 ? 'request' : 'requests'} waiting`,
    ]);
    out.line(table(cells, ''));
  }
  return EXIT.ok;
}
