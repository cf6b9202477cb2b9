/** The commands that change something: what would happen, and with `--yes` what has happened. */
import * as moves from '../orders/moves.ts';
import {
  isFinal,
  runMany,
  type Given,
  type Order,
  type OrderPlan,
  type Tally,
} from '../orders/order.ts';
import { bulkOf, bulkOrders, listing, type BulkName, type Many, type Row } from '../orders/many.ts';
import * as installations from '../orders/installation.ts';
import {
  disablePartner,
  enablePartner,
  holdPartner,
  releasePartner,
  revokeKey,
} from '../orders/partners.ts';
import { hashApiKey, keyIdOf, newApiKey } from '../../partner/api-key.ts';
import { MODE_ANNOTATION } from '../../partner/key-terms.ts';
import { defined } from '../../platform/process/defined.ts';
import { printable } from '../../application/fields.ts';
import { duration, table } from '../view/terminal.ts';
import { timeOfId } from '../../platform/stores/ids.ts';
import type { State } from '../../submission/states.ts';
import type { RequestTarget } from '../view/order-words.ts';
import { utc } from '../view/words.ts';
import {
  address,
  CommandError,
  EXIT,
  foundId,
  keyId,
  keySource,
  maybeRequestId,
  partner as partnerName,
  RATE_DEFAULT,
  requestId,
  UsageError,
  type Call,
  type Command,
  type OptionName,
  type Report,
} from './command.ts';
import { keyOf, partnerManifest } from './partner-manifest.ts';
import { manifestText, partnerSecretManifest } from './secret-manifest.ts';

/** Lists are cut, counts are not. */
const CHANGES_LISTED = 200;
const PROGRESS_EVERY_MS = 2_000;

interface Guarded extends Command {
  /** Needs a reason. */
  readonly reasoned?: true | undefined;
}

export function guarded({ reasoned, run, ...command }: Guarded): Command {
  const { name, options } = command;
  return {
    ...command,
    options: [...options, 'as', 'why'],
    run: async (call) => {
      const { yes, why } = call.values;
      if (reasoned && yes && why === undefined)
        throw new UsageError(`${name}: --why is missing: it is the reason`);
      // What cannot be undone is not done by "somebody in a pod".
      if (isFinal(name) && yes && call.stores.trail.nameFrom === 'host')
        throw new UsageError(`${name}: --as is missing: it cannot be undone, so say who you are`);
      return run(call);
    },
  };
}

interface OneCommand extends Omit<Guarded, 'run'> {
  readonly order: Order;
  /** Needs no `--yes`. */
  readonly atOnce?: true;
  readonly given: (call: Call) => Given;
}

function oneCommandOf(one: OneCommand): Command {
  return guarded({
    ...one,
    options: [...one.options, ...(one.atOnce ? [] : (['yes'] as const))],
    run: (call) => runOne(one, call),
  });
}

const CHANGED = { whyNot: 'changed meanwhile: look at it with "show" and decide again' };

async function runOne({ order, atOnce, given: givenBy }: OneCommand, call: Call): Promise<Report> {
  const { values, note, stores, clock } = call;
  const opened = await order(givenBy(call), { stores, clock, reveal: !values.json });
  const { plan, words } = opened;
  const { subject, notes = [], would, done, unchanged = CHANGED, json } = words;
  const refusal = ({ whyNot, later }: OrderPlan): CommandError =>
    new CommandError(`${subject} ${whyNot}`, later && EXIT.later);
  const told = (line: string, model: object): Report => ({ json: model, text: printable(line) });
  if (plan.whyNot !== undefined) throw refusal(plan);
  if (plan.nothing !== undefined) {
    const why = plan.nothing;
    const model = { ...json.dry, result: 'nothing_to_do', why };
    return told(`${subject}  nothing to do: ${why}`, model);
  }
  if (!values.yes && !atOnce) {
    const model = { dry_run: true, ...json.dry };
    return told(`${would}; nothing was changed; add --yes to do it`, model);
  }
  for (const one of notes) note(one);
  if (!(await opened.act())) throw refusal(unchanged);
  return told(done, json.done);
}

interface Summary {
  readonly json: object;
  readonly line: string;
  readonly notes: readonly string[];
  /** A repeat of the command may do what is left. */
  readonly isLeft: boolean;
  /** Where a repeat of a stopped order may begin. */
  readonly since?: Date | undefined;
}

/** An order about many targets, and how it is reported. */
export interface ToldMany<T> extends Many<T> {
  summary(tally: Tally<T>, rows: readonly Row[]): Summary | Promise<Summary>;
}

export async function runAll<T>(many: ToldMany<T>, call: Call): Promise<Report> {
  const tally: Tally<T> = { looked: 0, possible: 0, done: 0, isStopped: false };
  const rows: Row[] = [];
  const each = listing(many, rows, CHANGES_LISTED);
  const order = { ...many, each, paged: progressOf(many.total, call) };
  try {
    await runMany(order, tally, call.stores.trail, call.stop);
  } catch (fault) {
    // The report says what was done and where to go on.
    tally.isStopped = true;
    if (tally.looked === 0) throw fault;
    return { ...(await reportOf(many, tally, rows)), fault };
  }
  return reportOf(many, tally, rows);
}

async function reportOf<T>(
  many: ToldMany<T>,
  tally: Tally<T>,
  rows: readonly Row[],
): Promise<Report> {
  const { looked, isStopped } = tally;
  const { json, line, notes, isLeft, since } = await many.summary(tally, rows);
  const cells = rows.map((row) => row.cells.map(printable));
  const more = looked > rows.length ? [`… and ${looked - rows.length} more`] : [];
  const text = [...(rows.length > 0 ? [table(cells, '')] : []), ...more, line].join('\n');
  if (!isStopped) {
    const code = looked === 0 || isLeft ? EXIT.found : EXIT.ok;
    return { json, text, notes, code };
  }
  const where = since === undefined ? '' : ` with --since "${utc(since)}"`;
  const stopped = `stopped: what was done stays done; to go on, give the same command again${where}`;
  return {
    json: { ...json, stopped: true, stopped_before: since ?? null },
    text,
    notes: [...notes, stopped],
    code: EXIT.stopped,
  };
}

/** Reports how many are done, the speed and the time that remains. */
export function progressOf(
  total: number | undefined,
  { note, clock }: Pick<Call, 'note' | 'clock'>,
): (count: number) => void {
  const startedMs = clock.monotonicMs();
  let [toldMs, done] = [startedMs, 0];
  return (count) => {
    done += count;
    const now = clock.monotonicMs();
    if (now - toldMs < PROGRESS_EVERY_MS) return;
    toldMs = now;
    const elapsedMs = now - startedMs;
    const rate = Math.round((done * 1_000) / elapsedMs);
    const [of, time] =
      total === undefined
        ? ['', '']
        : [
            ` of about ${total}`,
            `, about ${duration((Math.max(0, total - done) * elapsedMs) / done)} left`,
          ];
    note(`${done}${of} requests, ${rate} a second${time}`);
  };
}

const queryOptions = [
  'state',
  'reason',
  'partner',
  'since',
  'until',
  'limit',
  'rate',
] as const satisfies OptionName[];

const ofRequest = ({ positionals: [id, email], values: { why } }: Call): Given =>
  defined({ id, email, why });
const many = { positionals: [maybeRequestId], options: [], given: ofRequest } as const;
const one = { positionals: [requestId], options: [], given: ofRequest } as const;

export const aside = oneCommandOf({
  ...one,
  name: 'aside',
  order: moves.aside,
  positionals: [foundId],
  reasoned: true,
});

export const retry = manyCommandOf('retry', { ...many, order: moves.retry, atOnce: true });
export const resend = manyCommandOf('resend', { ...many, order: moves.resend });
export const close = manyCommandOf('close', { ...many, order: moves.close, reasoned: true });

export const reopen = oneCommandOf({ ...one, name: 'reopen', order: moves.reopen });

export const bounce = oneCommandOf({
  name: 'bounce',
  order: moves.bounce,
  positionals: [],
  options: ['request', 'messageId', 'email', 'status'],
  atOnce: true,
  given: ({ values: { request: id, messageId, email, status } }) => {
    if ([id, messageId, email].filter((given) => given !== undefined).length !== 1)
      throw new UsageError('bounce: give one of --request, --message-id or --email');
    return defined({ id, messageId, email, status });
  },
});

export const correctEmail = oneCommandOf({
  ...one,
  name: 'account correct-email',
  order: moves.correctEmail,
  positionals: [requestId, address],
});

export const release = oneCommandOf({
  ...one,
  name: 'account release',
  order: moves.release,
});

/** An order about one request if an id is given, else about all that a query finds. */
function manyCommandOf(name: BulkName, given: Omit<OneCommand, 'name'>): Command {
  const command = { name, ...given };
  return guarded({
    ...command,
    options: [...queryOptions, 'yes'],
    run: async (call) => {
      if (call.positionals[0] === undefined) return runAll(await ofQuery(name, call), call);
      const surplus = queryOptions.find((option) => call.values[option] !== undefined);
      if (surplus === undefined) return runOne(command, call);
      throw new UsageError(`${name}: --${surplus} does not go with a REQUEST_ID`);
    },
  });
}

async function ofQuery(name: BulkName, call: Call): Promise<ToldMany<RequestTarget>> {
  const { values, stop } = call;
  const { past, states }: { past: string; states: readonly State[] } = bulkOrders[name];
  const { state, limit, yes = false, rate = RATE_DEFAULT } = values;
  if (state === undefined || !states.includes(state)) {
    const choice = states.map((each) => `--state ${each}`).join(' or ');
    throw new UsageError(`${name}: give a REQUEST_ID, or ${choice}`);
  }
  const bulk = bulkOf(
    name,
    {
      search: values,
      given: ofRequest(call),
      acts: yes,
      limit: limit ?? Infinity,
      rate: yes ? rate : Infinity,
      stop,
      total: limit ?? (await call.stores.submissions.count(values)),
    },
    call,
  );
  return {
    ...bulk,
    summary: ({ looked, possible, done, reached }, rows) => {
      const { waiting, never } = bulk.counts;
      const left = looked - done - never;
      const isLeft = yes && left > 0;
      return {
        json: {
          dry_run: !yes,
          looked_at: looked,
          possible,
          [past]: done,
          not_possible: never,
          ...(yes ? { left } : {}),
          waiting_for_a_partner_on_hold: waiting,
          requests: rows.map(({ json }) => json),
        },
        line: yes ? `${done} ${past}` : `${possible} would be ${past}; add --yes to do it`,
        notes: [
          ...(waiting > 0
            ? [`${waiting} of them wait until "partner release": their partners are on hold`]
            : []),
          ...(isLeft
            ? [`${left} not ${past}, being worked on or changed meanwhile: run it again`]
            : []),
        ],
        isLeft,
        since: timeOfId(reached?.record._id ?? ''),
      };
    },
  };
}

const flagCommand = (name: string, order: Order): Command =>
  oneCommandOf({
    name,
    order,
    positionals: [partnerName],
    options: [],
    atOnce: true,
    given: ({ positionals: [partner] }) => defined({ partner }),
  });

export const partnerFlags = [
  flagCommand('partner hold', holdPartner),
  flagCommand('partner release', releasePartner),
  flagCommand('partner disable', disablePartner),
  flagCommand('partner enable', enablePartner),
];

export const keysRevoke = oneCommandOf({
  name: 'keys revoke',
  order: revokeKey,
  positionals: [keyId],
  options: [],
  given: ({ positionals: [key] }) => defined({ key }),
});

export const moveInstallation = oneCommandOf({
  name: 'installation move',
  order: installations.moveInstallation,
  positionals: [keySource],
  options: [],
  reasoned: true,
  given: ({ positionals: [source] }) => defined({ source }),
});

/** Makes an API key and the manifest of its Secret; needs no store. */
export const keysNew: Command = {
  name: 'keys new',
  positionals: [partnerName],
  options: ['namespace', 'test'],
  run: ({ positionals: [partner = ''], values, note, keysNamespace, followsPartners }) => {
    const { json, test, namespace = keysNamespace } = values;
    const slug = partner.toLowerCase().replace(/[^a-z0-9]+/g, '-');
    const key = newApiKey(defined({ test }));
    // Each key has its own Secret, so that the old key stays active.
    const name = `partner-${slug}-${keyIdOf(hashApiKey(key))}`;
    const annotations = followsPartners ? {} : defined({ [MODE_ANNOTATION]: test && 'test' });
    const secret = { name, namespace, partner, keys: [key], annotations };
    const { yaml, object } = partnerSecretManifest(secret);
    if (!json) note(`the key, shown only now: ${key}`);
    if (!followsPartners) return Promise.resolve({ json: { key, manifest: object }, text: yaml });
    const keys = [keyOf(name, test ? { test } : {})];
    const resource = partnerManifest({ partner, namespace, keys });
    // A field manager of its own adds the key to those that are listed.
    if (!json) note(`apply it with: kubectl apply --server-side --field-manager=${name} -f -`);
    return Promise.resolve({
      json: { key, manifest: object, partner: resource },
      text: `${yaml}\n---\n${manifestText(resource)}`,
    });
  },
};
