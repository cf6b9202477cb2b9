/** `erase --replay`: repeats after a restore what the erasure register names. */
import type { Account } from '../../account/account.ts';
import { defined } from '../../platform/process/defined.ts';
import { isOpen } from '../../submission/states.ts';
import type { SubmissionRecord } from '../../submission/submission.ts';
import { eraseFound, type ErasureTarget } from '../orders/erase.ts';
import * as moves from '../orders/moves.ts';
import {
  OrderRefused,
  type Given,
  type OpenOrder,
  type Order,
  type OrderPlan,
  type Outcome,
  type Tally,
} from '../orders/order.ts';
import * as partners from '../orders/partners.ts';
import { EMPTY, type Registered, type RepeatedOrder } from '../orders/register.ts';
import { claimEnd } from '../view/plans.ts';
import { EXIT, UsageError, type Call, type Report } from './command.ts';
import { runAll, type ToldMany } from './orders.ts';

const orders: Readonly<Record<RepeatedOrder, (of: string) => readonly [Order, Given]>> = {
  'keys revoke': (key) => [partners.revokeKey, { key }],
  'partner disable': (partner) => [partners.disablePartner, { partner }],
  'partner enable': (partner) => [partners.enablePartner, { partner }],
  'partner hold': (partner) => [partners.holdPartner, { partner }],
  'partner release': (partner) => [partners.releasePartner, { partner }],
  aside: (id) => [moves.aside, { id }],
};

interface Repeated {
  readonly what: string;
  readonly id: string;
  readonly state: string;
  /** Undefined for what is erased. */
  readonly opened?: OpenOrder;
  readonly found?: ErasureTarget;
  readonly plan: OrderPlan;
}

export async function replay(call: Call): Promise<Report> {
  const { stores, values, positionals } = call;
  const { yes = false, email, ein, since } = values;
  if (positionals.length > 0 || email !== undefined || ein !== undefined)
    throw new UsageError('erase: --replay goes without REQUEST_ID, --email and --ein');
  const { register } = stores;
  if (register === undefined)
    throw new UsageError('erase: ERASURE_REGISTER is not set, so nothing can be repeated');
  const registered = await register.read(since);
  const { files, cut, foreign } = registered;
  const gone = new Set<string>();
  let isLeft = false;
  const order: ToldMany<Repeated> = {
    action: 'erase --replay',
    pages: everything(registered, gone, call),
    size: 1,
    acts: yes,
    about: {},
    plan: ({ plan }) => plan,
    act: async ([one]) => ((await (one?.opened?.act() ?? eraseFound(one!.found!, call))) ? 1 : 0),
    total: await stores.submissions.about(),
    row: ({ what, id, state, found, plan }, _plan, outcome) => {
      if (outcome === 'unsure' || (outcome === 'left' && found !== undefined)) isLeft = true;
      else if (what === 'request' && plan.to === 'erased') gone.add(id);
      const row = { what, id, state, result: resultOf(plan, outcome) };
      return { json: row, cells: Object.values(row) };
    },
    summary: (tally, rows) => ({
      json: {
        dry_run: !yes,
        count: tally.looked,
        done: tally.done,
        register: { files, erasures: registered.erasures, cut, foreign },
        listed: rows.map(({ json }) => json),
      },
      line: lineOf(tally, yes),
      notes: [
        files === 0 && EMPTY,
        cut > 0 && `${cut} lines of the register are cut off, and were left out`,
        foreign > 0 &&
          `${foreign} lines of the register are changed or of another key, and were left out: give their key, too`,
        isLeft && 'some are being worked on or changed meanwhile: run it again in a minute',
      ].filter((note) => note !== false),
      isLeft: isLeft || foreign > 0,
    }),
  };
  const report = await runAll(order, call);
  // That nothing is back is as it should be, unless the register is lost.
  return report.code === EXIT.found && !isLeft && foreign === 0 && files > 0
    ? { ...report, code: EXIT.ok }
    : report;
}

function lineOf({ looked, done }: Tally<Repeated>, yes: boolean): string {
  if (looked === 0) return 'nothing is back of what the register names';
  return yes
    ? `${done} of ${looked} repeated`
    : `${looked} found; nothing was changed; add --yes to repeat them. This cannot be undone.`;
}

function resultOf({ to = '', whyNot = '' }: OrderPlan, outcome: Outcome): string {
  return { possible: `would be ${to}`, done: to, unsure: 'changed', left: whyNot }[outcome];
}

async function* everything(
  { orders: ordered, isErased }: Registered,
  gone: Set<string>,
  call: Call,
): AsyncGenerator<Repeated[]> {
  const { submissions, accounts } = call.stores;
  for (const { name, of } of ordered) yield repeatedOrder(name, of, call);
  for await (const page of submissions.pages({}, { bodies: false })) {
    const mentioning = page.filter(({ _id }) => isErased('erase body', _id));
    const kept = await submissions.withBody(mentioning.map(({ _id }) => _id));
    yield page.flatMap((record) => {
      const { _id, erasedAt } = record;
      if (erasedAt !== undefined) return [];
      if (isErased('erase', _id)) return [requestFound(record, 'applicant', call)];
      return kept.has(_id) ? [requestFound(record, 'mentioned', call)] : [];
    });
    // An account is erased after its request, whose worker could create it again.
    if (gone.size > 0) yield (await accounts.ofPerson({}, gone)).map(accountFound);
    gone.clear();
  }
  for await (const page of accounts.checkedPages(undefined)) {
    const theirs = page.filter(({ requestId }) => isErased('erase', requestId));
    if (theirs.length === 0) continue;
    const requests = await submissions.checked(theirs.map(({ requestId }) => requestId));
    const open = new Set(requests.flatMap(({ _id, erasedAt }) => (erasedAt ? [] : [_id])));
    yield theirs.filter(({ requestId }) => !open.has(requestId)).map(accountFound);
  }
}

async function repeatedOrder(name: RepeatedOrder, of: string, call: Call): Promise<Repeated[]> {
  const { stores, clock, values } = call;
  const [order, given] = orders[name](of);
  const row = { what: name, id: of, state: '' };
  try {
    const opened = await order({ ...given, ...defined({ why: values.why }) }, { stores, clock });
    const { plan } = opened;
    // Otherwise it is so already.
    return plan.to === undefined ? [] : [{ ...row, opened, plan }];
  } catch (error) {
    if (error instanceof OrderRefused) return [{ ...row, plan: { whyNot: error.message } }];
    throw error;
  }
}

function requestFound(
  record: SubmissionRecord,
  relation: 'applicant' | 'mentioned',
  { clock }: Call,
): Repeated {
  const { _id: id, state } = record;
  const row = { what: 'request', id, state };
  const found = { id, requestId: id, relation, record };
  const isClaimed = claimEnd(record, clock.now()) !== undefined;
  if (relation === 'applicant')
    return { ...row, found, plan: isClaimed ? { whyNot: 'being worked on' } : { to: 'erased' } };
  const needsBody = isOpen(state) || state === 'dead_lettered';
  return { ...row, found, plan: needsBody ? { whyNot: 'still open' } : { to: 'body erased' } };
}

function accountFound({ _id: id, requestId }: Pick<Account, '_id' | 'requestId'>): Repeated {
  const row = { what: 'account', id, state: '' };
  const found = { id, requestId, relation: 'applicant' } as const;
  return { ...row, found, plan: { to: 'erased' } };
}
