/** `partner list|disable|enable`: whether a partner's keys are accepted. */
import { styleText } from 'node:util';
import type { Flagged } from '../partner/flags.ts';
import { secretName, STATUS_ANNOTATION, type KeySource } from '../partner/key-secret.ts';
import { KEYS_LISTED, type PartnerKey } from '../partner/key-store.ts';
import { printable, table } from '../platform/terminal.ts';
import { CommandError, EXIT, type Call, type Command, type ExitCode } from './command.ts';
import { partner } from './options.ts';
import { noteUnknown } from './partner.ts';
import { fromNow, lastUseCells } from './timeline.ts';

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

export const partnerDisable: Command = {
  name: 'partner disable',
  positionals: [partner],
  about: 'answer all keys of a partner 403, whatever its Secrets say',
  details:
    'Every ingest that reaches MongoDB does so within about a second, also for keys that come later. Neither Kubernetes nor the controller is needed. What was accepted is still worked on; "partner hold" stops that. "partner enable" undoes it.',
  options: ['as', 'why'],
  examples: ['partner disable acme --as jane --why "contract ended"'],
  run: disable,
};

export const partnerEnable: Command = {
  name: 'partner enable',
  positionals: [partner],
  about: 'accept the keys of a disabled partner again',
  details:
    'A key whose Secret, or another Secret of the partner, says "inactive" stays inactive; this command then prints what to type.',
  options: ['as', 'why'],
  examples: ['partner enable acme --as jane'],
  run: enable,
};

interface Access {
  readonly partnerId: string;
  readonly status: 'active' | 'inactive' | 'disabled' | 'no keys';
  readonly active: number;
  readonly inactive: number;
  readonly lastUsedAt: Date | undefined;
  readonly disabled: Flagged | undefined;
  readonly hold: Flagged | undefined;
  /** Secrets whose status makes keys inactive. */
  readonly inactiveBy: readonly KeySource[];
}

async function list(call: Call): Promise<ExitCode> {
  const { desk, out, values, clock } = call;
  const now = clock.now();
  const [keys, disabled, holds] = await Promise.all([
    desk.keys.list(undefined),
    desk.keys.disabled(),
    desk.holds.list(),
  ]);
  const byPartner = Map.groupBy(keys, ({ partnerId }) => partnerId);
  const names = new Set([...byPartner.keys(), ...[...disabled, ...holds].map(({ _id }) => _id)]);
  const partners = [...names].toSorted().map((name) =>
    accessOf(name, byPartner.get(name) ?? [], now, {
      disabled: disabled.find(({ _id }) => _id === name),
      hold: holds.find(({ _id }) => _id === name),
    }),
  );
  if (values.json) out.json(partners.map(jsonOf));
  else if (partners.length === 0) out.line('there are no partners');
  else {
    const header = ['PARTNER', 'STATUS', 'ACTIVE KEYS', 'LAST USED (UTC)', '', 'WHY'];
    const rows = partners.map((one) => rowOf(one, now));
    out.line(table([header.map((name) => styleText('dim', name)), ...rows], ''));
  }
  if (keys.length === KEYS_LISTED) out.note(`only the first ${KEYS_LISTED} keys are looked at`);
  return EXIT.ok;
}

async function disable(call: Call): Promise<ExitCode> {
  const { desk, positionals } = call;
  const [partnerId = ''] = positionals;
  await noteUnknown(partnerId, call);
  const done = await desk.trail.record({ action: 'partner disable', partnerId }, () =>
    desk.keys.disable(partnerId, desk.trail.by),
  );
  if (!done) throw new CommandError(`${partnerId} is disabled already`);
  const text =
    'is disabled: each ingest that reaches MongoDB answers its keys 403 within a second; what it sent before is still worked on';
  return answer(call, { partnerId, result: 'disabled', text, inactiveBy: [] });
}

async function enable(call: Call): Promise<ExitCode> {
  const { desk, positionals, clock } = call;
  const [partnerId = ''] = positionals;
  const { inactiveBy } = accessOf(partnerId, await desk.keys.list(partnerId), clock.now());
  const done = await desk.trail.record({ action: 'partner enable', partnerId }, () =>
    desk.keys.enable(partnerId, desk.trail.by),
  );
  if (!done) {
    for (const secret of inactiveBy) call.out.note(reactivation(secret));
    throw new CommandError(`${partnerId} is not disabled`);
  }
  const text = 'is enabled: each ingest that reaches MongoDB knows it within a second';
  return answer(call, { partnerId, result: 'enabled', text, inactiveBy });
}

interface Done {
  readonly partnerId: string;
  readonly result: 'disabled' | 'enabled';
  readonly text: string;
  readonly inactiveBy: readonly KeySource[];
}

function answer({ out, values }: Call, { partnerId, result, text, inactiveBy }: Done): ExitCode {
  if (values.json)
    out.json({ partner: partnerId, result, inactive_by: inactiveBy.map(secretName) });
  else out.line(`${partnerId} ${text}`);
  for (const secret of inactiveBy) out.note(reactivation(secret));
  return EXIT.ok;
}

function reactivation(secret: KeySource): string {
  const { namespace, name } = secret;
  return `Secret ${secretName(secret)} makes keys inactive; to undo that: kubectl -n ${namespace} annotate secret ${name} ${STATUS_ANNOTATION}=active --overwrite`;
}

function accessOf(
  partnerId: string,
  keys: readonly PartnerKey[],
  now: Date,
  {
    disabled,
    hold,
  }: { readonly disabled?: Flagged | undefined; readonly hold?: Flagged | undefined } = {},
): Access {
  const usable = keys.filter(
    ({ revokedAt, terms }) =>
      revokedAt === undefined && (terms?.notAfter === undefined || terms.notAfter > now),
  );
  const active = usable.filter(({ status }) => status === 'active').length;
  const off = usable.filter(({ status }) => status === 'inactive');
  const used = keys.flatMap(({ lastUsedAt }) => (lastUsedAt === undefined ? [] : [lastUsedAt]));
  const sources = off.map(({ inactiveBy, source }) => inactiveBy ?? source);
  return {
    partnerId,
    status: statusOf({ isDisabled: disabled !== undefined, active, inactive: off.length }),
    active,
    inactive: off.length,
    lastUsedAt: used.toSorted((one, other) => other.getTime() - one.getTime())[0],
    disabled,
    hold,
    inactiveBy: [...new Map(sources.map((one) => [secretName(one), one])).values()],
  };
}

function statusOf(counts: {
  readonly isDisabled: boolean;
  readonly active: number;
  readonly inactive: number;
}): Access['status'] {
  if (counts.isDisabled) return 'disabled';
  if (counts.active > 0) return 'active';
  return counts.inactive > 0 ? 'inactive' : 'no keys';
}

function rowOf(one: Access, now: Date): string[] {
  const { active, inactive, lastUsedAt, disabled, hold, inactiveBy } = one;
  const set = ({ at, by }: Flagged): string => `${fromNow(at, now)} by ${by}`;
  const why = [
    ...(disabled === undefined ? [] : [`disabled ${set(disabled)}`]),
    ...inactiveBy.map((secret) => `inactive by Secret ${secretName(secret)}`),
    ...(hold === undefined ? [] : [`put on hold ${set(hold)}`]),
  ];
  return [
    one.partnerId,
    one.status,
    inactive === 0 ? `${active}` : `${active} of ${active + inactive}`,
    ...lastUseCells(lastUsedAt, now),
    why.join('; '),
  ].map(printable);
}

function jsonOf({ partnerId, status, active, inactive, ...more }: Access) {
  const set = (flag: Flagged | undefined) =>
    flag === undefined ? null : { at: flag.at, by: flag.by };
  return {
    partner: partnerId,
    status,
    keys: { active, inactive },
    last_used_at: more.lastUsedAt ?? null,
    disabled: set(more.disabled),
    on_hold: set(more.hold),
    inactive_by: more.inactiveBy.map(secretName),
  };
}
