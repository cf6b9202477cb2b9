/** Operators' actions: shows an order's plan, asks for a reason, and does what was shown. */
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { bounce, close, correctEmail, release, reopen, resend, retry } from '../orders/moves.ts';
import {
  givenFields,
  isFinal,
  OrderRefused,
  type Given,
  type OpenOrder,
  type Order,
  type OrderContext,
} from '../orders/order.ts';
import {
  disablePartner,
  enablePartner,
  holdPartner,
  releasePartner,
  revokeKey,
} from '../orders/partners.ts';
import { isPartnerId } from '../../partner/key-secret.ts';
import { DeadlineError, withDeadline } from '../../platform/process/deadline.ts';
import { defined } from '../../platform/process/defined.ts';
import type { Logger } from '../../platform/process/log.ts';
import { NotDurableError } from '../../platform/stores/mongo.ts';
import { tookTooLong } from '../../platform/stores/mongo-read.ts';
import { cardOf, isOpen, type State } from '../../submission/states.ts';
import type { About } from '../view/order-words.ts';
import { keysView, OPEN_COUNTED } from '../view/partners.ts';
import { WHY_MAX } from '../view/search-fields.ts';
import { shortId } from './render.ts';
import { filledIn } from './routes.ts';
import { LIMITED, type ConsolePerson } from './sign-in.ts';

/** An order has a few steps, each of which the client of MongoDB ends after 10 s. */
const ORDER_WITHIN_MS = 25_000;
/** How long noting a refusal may take. */
const REFUSAL_WITHIN_MS = 2_000;
export const NOT_ALLOWED = 'Only the role "operator" may do this. Nothing was changed.';

/** What an order needs besides its reason. */
const FIELDS = {
  email: { label: 'The right e-mail address', hint: 'the new link goes there', required: true },
  status: { label: 'Status of the bounce, if known', hint: 'such as 5.1.1', required: false },
} as const;

/** What is mostly so, the likeliest first: one is picked where no other reason is typed. */
const REASONS: Readonly<Record<string, readonly string[]>> = {
  'account correct-email': [
    'the applicant gave a wrong address',
    'the partner sent a wrong address',
    'the applicant has another address now',
  ],
};

interface Action {
  /** The order's name in the trail. */
  readonly called: string;
  readonly open: Order;
  readonly field?: keyof typeof FIELDS;
  /** Reads the last part of the address; undefined if it names nothing. */
  readonly givenBy: (part: string) => (Given & About) | undefined;
}

export const ofRequest = (id: string) =>
  /^req_[0-9a-z]{26}$/.test(id) ? { id, requestId: id } : undefined;
const ofPartner = (partner: string) =>
  isPartnerId(partner) ? { partner, partnerId: partner } : undefined;
const ofKey = (key: string) => (/^[0-9a-f]{12,64}$/.test(key) ? { key, keyId: key } : undefined);

function actionOf(
  called: string,
  open: Order,
  givenBy: Action['givenBy'],
  { field, name = called.split(' ').at(-1)! }: { field?: keyof typeof FIELDS; name?: string } = {},
): [string, Action] {
  return [name, { called, open, givenBy, ...defined({ field }) }];
}

const actions: ReadonlyMap<string, Action> = new Map([
  actionOf('retry', retry, ofRequest),
  actionOf('resend', resend, ofRequest),
  actionOf('account correct-email', correctEmail, ofRequest, { field: 'email' }),
  actionOf('bounce', bounce, ofRequest, { field: 'status' }),
  actionOf('close', close, ofRequest),
  actionOf('reopen', reopen, ofRequest),
  actionOf('account release', release, ofRequest, { name: 'release-account' }),
  actionOf('partner hold', holdPartner, ofPartner),
  actionOf('partner release', releasePartner, ofPartner),
  actionOf('partner disable', disablePartner, ofPartner),
  actionOf('partner enable', enablePartner, ofPartner),
  actionOf('keys revoke', revokeKey, ofKey),
]);

export interface OrderParts {
  /** What an order is given; its trail names this person and reason. */
  readonly orderContextOf: (person: ConsolePerson, why?: string) => OrderContext;
  readonly log: Logger;
  readonly databaseFault: (error: unknown) => string | undefined;
}

/** Called after the work, so work past its deadline sends nothing. */
type Answer = (reply: FastifyReply) => FastifyReply;

const say =
  (status: number, sentence: string, about: About): Answer =>
  (reply) =>
    reply.say(status, sentence, backTo(about));

/** Where an order came from; a key's own page is its partner's, which only its plan knows. */
export function backTo({ requestId, partnerId }: About) {
  if (requestId !== undefined) return { href: `/requests/${requestId}`, name: 'the request' };
  if (partnerId === undefined) return { href: '/partners', name: 'the partners' };
  return { href: `/partners/${encodeURIComponent(partnerId)}`, name: `partner ${partnerId}` };
}

export function addOrders(app: FastifyInstance, parts: OrderParts): void {
  const path = '/orders/:name/:part';
  const asked = (request: FastifyRequest) => {
    const { name, part } = request.params as { readonly name: string; readonly part: string };
    const action = actions.get(name);
    const about = action?.givenBy(part);
    return action && about && { name, part, action, about };
  };
  app.get(path, async (request, reply) => {
    const order = asked(request);
    if (order === undefined) return reply.callNotFound();
    const person = request.person!;
    if (person.role !== 'operator') return reply.say(403, NOT_ALLOWED);
    const context = parts.orderContextOf(person);
    return answered(reply, order, parts, async () => {
      const opened = await order.action.open(order.about, context);
      return impossible(opened) ?? formOf(order, opened, context);
    });
  });
  app.post(path, LIMITED, async (request, reply) => {
    const order = asked(request);
    if (order === undefined) return reply.callNotFound();
    const person = request.person!;
    if (person.role === 'operator') {
      const { reason = '', ...typed } = filledIn(request.body as object);
      const form = { why: reason, reason, ...typed };
      const context = parts.orderContextOf(person, form['why']);
      return answered(reply, { ...order, form }, parts, (begin) =>
        carryOut(order, form, context, begin),
      );
    }
    return refuse(request, reply, parts, { called: order.action.called, about: order.about });
  });
}

/** Answers 403, with a note in the trail. */
export async function refuse(
  request: FastifyRequest,
  reply: FastifyReply,
  parts: OrderParts,
  { called, about }: { readonly called: string; readonly about: About },
): Promise<FastifyReply> {
  const person = request.person!;
  parts.log.warn({ operator: person.name, sub: person.sub, action: called }, 'not an operator');
  const { requestId, partnerId, keyId } = about;
  const { trail } = parts.orderContextOf(person).stores;
  const refused = trail.refused({ action: called, ...defined({ requestId, partnerId, keyId }) });
  await withDeadline(refused, REFUSAL_WITHIN_MS, 'the trail').catch((error: unknown) =>
    parts.log.warn({ reason: faultOf(error, parts) }, 'a refusal was not noted'),
  );
  return reply.say(403, NOT_ALLOWED, backTo(about));
}

interface Asked {
  readonly name: string;
  readonly part: string;
  readonly action: Action;
  readonly about: Given & About;
}

async function carryOut(
  order: Asked,
  form: Readonly<Record<string, string>>,
  context: OrderContext,
  begin: () => void,
): Promise<Answer> {
  const { action, about } = order;
  const { given, faults } = givenIn(form, action);
  const opened = await action
    .open({ ...about, ...given }, context)
    .catch((error: unknown): Promise<OpenOrder> => {
      if (!(error instanceof OrderRefused) || action.field === undefined) throw error;
      faults[action.field] = `${error.message}.`;
      return action.open(about, context);
    });
  const { words } = opened;
  const cannot = impossible(opened);
  if (cannot !== undefined) return cannot;
  if (form['seen'] !== opened.seen)
    return formOf(order, opened, context, {
      // What confirmed another plan confirms nothing here.
      form: { ...form, typed: '' },
      changed: true,
      status: 409,
    });
  const name = confirmationOf(action, words.about);
  if (name !== undefined && form['typed'] !== name) faults['typed'] = `It must be ${name}.`;
  if (Object.keys(faults).length > 0)
    return formOf(order, opened, context, { form, faults, status: 400 });
  if (!(await opened.act(begin))) {
    // Nothing was done, also if the plan that follows cannot be read.
    const after = await action.open({ ...about, ...given }, context).catch(() => undefined);
    const again = { form: { ...form, typed: '' }, changed: true, status: 409 } as const;
    if (after !== undefined) return impossible(after) ?? formOf(order, after, context, again);
    return say(409, `Nothing was changed: ${words.subject} has changed meanwhile.`, words.about);
  }
  const model = { ...modelOf(order, opened), done: words.done };
  return (reply) => reply.page('order', model);
}

/** Work that has not called `begin` in time cannot begin. */
export async function inTime<T>(
  withinMs: number,
  work: (begin: () => void) => Promise<T>,
): Promise<{ readonly result: T } | { readonly error: unknown; readonly hasBegun: boolean }> {
  let [hasBegun, isOver] = [false, false];
  const begin = (): void => {
    if (isOver) throw new DeadlineError('an order came too late');
    hasBegun = true;
  };
  try {
    return { result: await withDeadline(work(begin), withinMs, 'an order') };
  } catch (error) {
    isOver = true;
    return { error, hasBegun };
  }
}

async function answered(
  reply: FastifyReply,
  {
    part,
    about,
    form: { _csrf: _token, ...sent } = {},
  }: Pick<Asked, 'part' | 'about'> & { readonly form?: Readonly<Record<string, string>> },
  parts: OrderParts,
  work: (begin: () => void) => Promise<Answer>,
): Promise<FastifyReply> {
  const ended = await inTime(ORDER_WITHIN_MS, work);
  if ('result' in ended) return ended.result(reply);
  if (ended.error instanceof OrderRefused)
    return reply.say(409, `${ended.error.message}.`, backTo(about));
  const fault = faultOf(ended.error, parts);
  return reply.say(
    503,
    ended.hasBegun
      ? `It is not known whether it was done: ${fault}. Look at ${part} before you do it again.`
      : `Nothing was changed: ${fault}.`,
    backTo(about),
    ended.hasBegun ? {} : sent,
  );
}

export function faultOf(error: unknown, { databaseFault, log }: OrderParts): string {
  if (error instanceof DeadlineError || error instanceof NotDurableError || tookTooLong(error))
    return 'MongoDB took too long';
  const fault = databaseFault(error);
  if (fault === undefined) log.error({ err: error }, 'an order failed');
  return fault ?? 'the console has a fault; its log has more';
}

function impossible({ plan, words }: OpenOrder): Answer | undefined {
  if (plan.to !== undefined) return undefined;
  const why = plan.nothing === undefined ? plan.whyNot : `needs nothing: ${plan.nothing}`;
  return say(409, `Nothing was changed: ${words.subject} ${why}.`, words.about);
}

function givenIn(form: Readonly<Record<string, string>>, { field }: Action) {
  const faults: Record<string, string> = {};
  const given: Record<string, string> = {};
  for (const name of ['why', ...(field === undefined ? [] : [field])] as const) {
    const value = form[name];
    if (value === undefined && name !== 'why' && !FIELDS[name].required) continue;
    const { success, data, error } = givenFields[name].safeParse(value ?? '');
    if (success) given[name] = data;
    else faults[name] = error.issues[0]!.message;
  }
  return { given: given as Pick<Given, 'why' | 'email' | 'status'>, faults };
}

/** The name to type before an order that cannot be undone. */
const confirmationOf = ({ called }: Action, { partnerId, requestId }: About): string | undefined =>
  isFinal(called) ? (partnerId ?? requestId) : undefined;

function modelOf({ name, part, action }: Asked, { plan, words, seen }: OpenOrder) {
  const { about, business, notes = [], would, done } = words;
  const [back, card] = [backTo(about), cardOf(plan.to as State)];
  const { requestId, partnerId = '' } = about;
  return {
    above:
      requestId === undefined
        ? [
            ['Partners', '/partners'],
            [partnerId, back.href],
          ]
        : [
            ['Requests', '/requests'],
            [business ?? shortId(requestId), back.href],
          ],
    title: `${name} ${part}`,
    would: would ?? done,
    to: plan.to,
    // Of other states it may be so for another reason.
    meaning: card && (plan.to === 'closed' || isOpen(plan.to as State) ? `${card.meaning}.` : ''),
    notes,
    seen,
    field: action.field && { name: action.field, ...FIELDS[action.field] },
    typed: confirmationOf(action, about),
    reasons: REASONS[action.called],
    back,
    whyMax: WHY_MAX,
  };
}

async function formOf(
  order: Asked,
  opened: OpenOrder,
  context: OrderContext,
  more: {
    /** As it was sent. */
    readonly form?: Readonly<Record<string, string>>;
    readonly changed?: true;
    readonly faults?: Readonly<Record<string, string>>;
    readonly status?: number;
  } = {},
): Promise<Answer> {
  const counts = await countsOf(opened.words.about, context);
  const model = { faults: {}, form: {}, ...modelOf(order, opened), counts, ...more };
  return (reply) => reply.page('order', model);
}

/** How many requests, accounts and keys are concerned. */
async function countsOf(
  { partnerId, keyId, accountId }: About,
  { stores, clock }: OrderContext,
): Promise<readonly string[]> {
  if (partnerId === undefined)
    return ['1 request', ...(accountId === undefined ? [] : ['1 account'])];
  const [keys, open] = await Promise.all([
    keysView(stores, partnerId, clock.now()),
    stores.submissions.countOpen(partnerId, OPEN_COUNTED),
  ]);
  const active = keys.filter(({ status }) => status === 'active').length;
  return [
    `${keyId === undefined ? '' : '1 of '}${active} active ${active === 1 ? 'key' : 'keys'}`,
    `${open >= OPEN_COUNTED ? 'at least ' : ''}${open} ${open === 1 ? 'request that is' : 'requests that are'} not finished`,
  ];
}
