/** One request: what it asked for, what became of it and why, and what may be done with it. */
import { linkState, type Account } from '../../account/account.ts';
import {
  eachField,
  isEmailAddress,
  normalizedApplicant,
  printable,
  type Applicant,
} from '../../application/fields.ts';
import { hintsOn } from '../../application/parse-application.ts';
import { reasonsForPartner } from '../../application/reasons.ts';
import { defined } from '../../platform/process/defined.ts';
import { referenceOf } from '../../platform/stores/ids.ts';
import { cardOf, isOpen, type State } from '../../submission/states.ts';
import type { SubmissionRecord } from '../../submission/submission.ts';
import { checkRecord, findingName, kinds, printOf, type Kind } from '../../self-audit/rules.ts';
import type { FoundSubmission } from './look-up.ts';
import { duplicateIn, nextStep, offersFor, type LineState } from './next.ts';
import { errorOf, fromNow, isLook, utc, utcSeconds } from './words.ts';
import { maskApplicant } from './mask.ts';
import { accountJson, bodyInWords, recordJson, sentInWords, traceIdOf } from './record.ts';
import type { Reads } from './reads.ts';
import { rowOf } from './search.ts';
import { mailsInWords, timeline, type Happening } from './timeline.ts';
import type { TrailEntry } from '../trail/trail.ts';

/** Listed by e-mail address, and by EIN. */
const OTHERS_LISTED = 10;
const OF_THE_NEXT_STEP: readonly Kind[] = ['overdue', 'never_due'];

/** `good` ended as it should, `bad` needs an operator, `other` needs the partner. */
/** `lost`: what an applicant's server refused, which is no fault of ours. */
export type Tone = 'good' | 'open' | 'bad' | 'lost' | 'other';

export type RequestView = Awaited<ReturnType<typeof requestView>>;

/** What the audit finds wrong that no next step corrects, and what operators put aside. */
async function wrongWith(
  record: FoundSubmission,
  account: Account | undefined,
  { now, onHold }: { readonly now: Date; readonly onHold: boolean },
  aside: Reads['aside'],
): Promise<string[]> {
  // The audit reads neither tests nor what is built from an account.
  if (record.test === true || record.pastRetention === true) return [];
  const { _id } = record;
  const held = new Set(onHold ? [record.partnerId ?? ''] : []);
  const found = checkRecord(record, account, { now, onHold: held });
  const print = printOf(record, account);
  const nameOf = (kind: Kind): string => findingName([kind, _id, print]);
  const entries = await aside.of(found.map(nameOf));
  const open = found.filter(
    (kind) =>
      kinds[kind].weight === 'problem' &&
      !OF_THE_NEXT_STEP.includes(kind) &&
      !entries.has(nameOf(kind)),
  );
  const meanings = open.map((kind) => kinds[kind].meaning).join(', and ');
  const wrong = `something is wrong: it ${meanings}; "What is stuck" in docs/operations.md says what to do, and "partner-ingest aside ${_id} --yes --why REASON" puts it aside`;
  const put = found.flatMap((kind) => {
    const { by, why = '', at } = entries.get(nameOf(kind)) ?? {};
    if (at === undefined) return [];
    return [
      `${printable(by ?? '')} put aside ${fromNow(at, now)} that it ${kinds[kind].meaning} (${printable(why)})`,
    ];
  });
  return [...(open.length > 0 ? [wrong] : []), ...put];
}

/** `reveal` must have been noted in the trail. */
export async function requestView(
  record: FoundSubmission,
  reads: Pick<Reads, 'submissions' | 'accounts' | 'holds' | 'trail' | 'aside'>,
  {
    now,
    reveal,
    mayReveal = false,
    line,
  }: {
    readonly now: Date;
    readonly reveal: boolean;
    readonly mayReveal?: boolean;
    readonly line?: LineState;
  },
) {
  const [account, onHold, actions, others] = await Promise.all([
    reads.accounts.find('requestId', record._id),
    record.partnerId !== undefined && reads.holds.isSet(record.partnerId),
    reads.trail.ofRequest(record._id),
    othersOf(record, reads),
  ]);
  const circumstances = { now, onHold, line };
  const step = nextStep(record, account, circumstances);
  const { waits } = step;
  const wrong = await wrongWith(record, account, circumstances, reads.aside);
  const next = [...wrong, step.next].join('; ');
  const offers = offersFor(record, account, circumstances);
  const sameAs = record.state === 'rejected' ? duplicateIn(record) : undefined;
  const asked = offers.find(({ order }) => order && order.name === step.order);
  const typed = sameAs === undefined ? asked?.command : `partner-ingest show ${sameAs}`;
  const happenings = timeline(record, account, actions);
  return {
    requestId: record._id,
    test: record.test === true,
    business: maskApplicant(record.applicant ?? {}, reveal, mayReveal).businessName,
    partnerId: record.partnerId,
    received: record.pastRetention ? undefined : record.receivedAt,
    state: record.state,
    tone: toneOf(record.state),
    facts: factsOf(record, account, { now, reveal, waits }),
    applicant: personOf(record.applicant ?? {}, reveal, mayReveal),
    partnerSees: partnerSees(record),
    reasons: reasonsOf(record),
    timeline: happenings,
    /** What happened last, who did it, and how long ago. */
    changed: changedInWords(happenings, actions, now),
    next,
    /** The other request of a duplicate. */
    sameAs,
    offers: offers.map((one) => ({ ...one, isNext: one === asked })),
    /**
     * Requests of the same e-mail address or EIN, newest first; at most `OTHERS_LISTED` of each.
     */
    others: others.map((one) => {
      return { ...rowOf(one, reveal, mayReveal), same: sameInWords(record, one) };
    }),
    /** The same as JSON, for programs. */
    json: {
      ...recordJson(record, reveal),
      ...defined({
        past_retention: record.pastRetention,
        account: account === undefined ? undefined : accountJson(account, reveal, now),
        waits_for: waits,
      }),
      timeline: happenings.map(({ look: _look, said = '', ...one }) => ({
        ...one,
        what: one.what + said,
      })),
      next: typed === undefined ? next : `${next}: "${typed}"`,
      commands: offers.map(({ what, command }) => ({ what, command })),
      others: others.map(({ _id, state }) => ({ request_id: _id, state })),
    },
  };
}

/** The state and reasons of the partner's look-up; undefined if it finds nothing. */
function partnerSees({ partnerId, pastRetention, state, reasons = [] }: FoundSubmission) {
  if (partnerId === undefined || pastRetention) return undefined;
  const said = reasonsForPartner(reasons).map(({ message }) => message);
  return [cardOf(state)?.status ?? 'processing', said.join(' ')].filter(Boolean).join(': ');
}

const reasonsOf = ({ reasons = [] }: FoundSubmission) =>
  reasons.map(({ field = '', code, message, duplicateOf }) => ({
    field,
    code,
    message: duplicateOf === undefined ? message : `${message} See ${duplicateOf}.`,
  }));

/** What follows from an order within this time is of the operator. */
const FOLLOWS_MS = 10_000;

function changedInWords(
  happenings: readonly Happening[],
  actions: readonly TrailEntry[],
  now: Date,
): string | undefined {
  const endOf = ({ at, until = at }: Happening): number => until.getTime();
  const last = happenings.toSorted((one, other) => endOf(one) - endOf(other)).at(-1);
  if (last === undefined) return undefined;
  const at = new Date(endOf(last));
  const by = actions.findLast(
    (one) => one.result !== 'not_done' && Math.abs(one.at.getTime() - endOf(last)) < FOLLOWS_MS,
  );
  if (by === undefined) return `Changed ${fromNow(at, now)}: ${last.what}`;
  const who = `by ${printable(by.by)} ${fromNow(at, now)}`;
  return isLook(by.action) ? `Looked at ${who}` : `Changed ${who}: ${by.action}`;
}

async function othersOf(
  { _id, applicant = {} }: FoundSubmission,
  { submissions }: Pick<Reads, 'submissions'>,
): Promise<SubmissionRecord[]> {
  const { email = '', ein = '' } = applicant;
  // A value such as "none" may stand in requests of many people.
  const searches = [
    ...(isEmailAddress(email) ? [{ email }] : []),
    ...(/^[0-9]{9}$/.test(ein) ? [{ ein }] : []),
  ];
  const found = searches.map((search) => submissions.newest(search, OTHERS_LISTED + 1));
  const byId = new Map((await Promise.all(found)).flat().map((one) => [one._id, one]));
  byId.delete(_id);
  return [...byId.values()].toSorted((one, other) => (one._id < other._id ? 1 : -1));
}

/** Why a request stands among the others. */
function sameInWords(...both: [SubmissionRecord, SubmissionRecord]): string {
  const [one, other] = both.map(({ applicant = {} }) => normalizedApplicant(applicant));
  if (one?.ein !== other?.ein) return 'with this e-mail address';
  return one?.email === other?.email ? 'with both' : 'with this EIN';
}

export function toneOf(state: State): Tone {
  if (state === 'completed') return 'good';
  if (isOpen(state)) return 'open';
  if (state === 'undeliverable') return 'lost';
  return state === 'dead_lettered' ? 'bad' : 'other';
}

function factsOf(
  record: FoundSubmission,
  account: Account | undefined,
  { now, reveal, waits }: { now: Date; reveal: boolean; waits: string | undefined },
) {
  const partner = record.partnerId === undefined ? 'nobody known' : `partner ${record.partnerId}`;
  const request: [string, string][] = record.pastRetention
    ? [
        ['request', 'past its retention; this comes from its account'],
        ['from', partner],
      ]
    : [
        ['received', `${utc(record.receivedAt)} UTC, ${fromNow(record.receivedAt, now)}`],
        ['from', `${partner} at ${record.remoteIp}`],
        ['answered', String(record.httpStatus)],
        ['body', bodyInWords(record)],
      ];
  const { applicant, expiresAt } = record;
  const rows: [string, string | undefined][] = [
    ['reference', referenceOf(record._id)],
    ...request,
    ['sent', sentInWords(record)],
    ['idempotency', keyInWords(record)],
    ['applicant', applicant === undefined ? undefined : personInWords(applicant, reveal)],
    ['hint', hintsInWords(record)],
    [
      'account',
      account === undefined ? undefined : accountInWords(account, record, { reveal, now }),
    ],
    ['trace', traceIdOf(record)],
    ['mails', account?.mail === undefined ? undefined : mailsInWords(account.mail)],
    ['attempts', record.attempts === 0 ? undefined : `${record.attempts} failed in this state`],
    ['last error', errorOf(record)],
    ['waits for', waits],
    ['kept until', expiresAt === undefined ? undefined : utc(expiresAt).slice(0, 10)],
  ];
  return rows.flatMap(([name, words]) => (words === undefined ? [] : [{ name, words }]));
}

const hintsInWords = ({ applicant = {} }: SubmissionRecord): string | undefined =>
  hintsOn(applicant)
    .map(({ message }) => message)
    .join(' ') || undefined;

function keyInWords({ idempotencyDigest, adopted }: SubmissionRecord): string | undefined {
  if (idempotencyDigest === undefined) return undefined;
  return adopted === true ? 'with a key, and sent again with it' : 'with a key';
}

/** `name` is the field's in a body. */
function personOf(person: Applicant, reveal: boolean, byWords = false) {
  const shown = maskApplicant(person, reveal, byWords);
  const parts = eachField(({ name, label, leads = false }, key) => {
    const value = shown[key];
    return value === undefined ? undefined : { name, label, leads, value };
  });
  return Object.values(parts).toSorted((one, other) => Number(other.leads) - Number(one.leads));
}

const personInWords = (person: Applicant, reveal: boolean): string =>
  personOf(person, reveal)
    .map(({ label, value }) => (label === undefined ? value : `${label} ${value}`))
    .join(', ');

function accountInWords(
  account: Account,
  { state }: SubmissionRecord,
  { reveal, now }: { readonly reveal: boolean; readonly now: Date },
): string {
  if (account.releasedAt !== undefined)
    return `${account._id}, released ${fromNow(account.releasedAt, now)}`;
  const { email } = maskApplicant({ email: account.email }, reveal);
  const link = state === 'undeliverable' ? unreachedLink(account) : undefined;
  return `${account._id} for ${email}, ${link ?? linkInWords(account, now)}`;
}

/** Only who got the e-mail can open its link. */
const unreachedLink = ({ activation }: Account): string | undefined =>
  activation !== undefined && activation.usedAt === undefined
    ? 'its e-mail was refused or came back, so nobody has its link'
    : undefined;

function linkInWords(account: Account, now: Date): string {
  const { usedAt, expiresAt } = account.activation ?? {};
  if (usedAt !== undefined) return `its link has been used ${fromNow(usedAt, now)}`;
  if (expiresAt === undefined)
    return account.notifiedAt === undefined ? 'no link sent yet' : 'its link was removed';
  if (account.notifiedAt === undefined)
    return (account.mail?.possible ?? 0) > 0
      ? 'its link may have been mailed'
      : 'its link has not been mailed';
  return linkState(account, now) === 'expired'
    ? `its link expired ${fromNow(expiresAt, now)}`
    : `its link is open until ${utcSeconds(expiresAt).slice(0, 16)} UTC`;
}
