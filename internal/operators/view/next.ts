/** What a request waits for, what happens next, and the operator's commands that are possible. */
import type { Account } from '../../account/account.ts';
import { isOpen } from '../../submission/states.ts';
import type { FoundSubmission } from './look-up.ts';
import { claimEnd, planOf, type PlannedOrder } from './plans.ts';
import { reasonInWords } from './reason-words.ts';
import { fromNow, utc, utcSeconds } from './words.ts';

interface Circumstances {
  readonly now: Date;
  readonly onHold: boolean;
  /** Undefined if the processors cannot be asked. */
  readonly line?: LineState | undefined;
}

/** What the processors report about their work. */
export interface LineState {
  readonly processors: number;
  readonly relay?: NoticedOutage | undefined;
  readonly database?: NoticedOutage | undefined;
}

interface NoticedOutage {
  readonly since: Date;
  /** The reason as processors report it; may be empty. */
  readonly why: string;
}

const PROGRAM = 'partner-ingest';

interface NextStep {
  /** Only of an open request. */
  readonly waits?: string;
  /** A sentence for people, without the command of `order`. */
  readonly next: string;
  /** The name of the offered order that it asks for. */
  readonly order?: string;
}

export function nextStep(
  record: FoundSubmission,
  account: Account | undefined,
  { now, onHold, line }: Circumstances,
): NextStep {
  const { dueAt, partnerId, version } = record;
  if (!isOpen(record.state)) return afterEnd(record, account);
  if (onHold)
    return {
      waits: `"partner release": partner ${partnerId} is on hold`,
      next: `${partnerId} is on hold until an operator releases it`,
      order: 'release',
    };
  const until = claimEnd(record, now);
  if (until !== undefined)
    return {
      waits: 'the worker that has it',
      next: `a processor is working on it, until ${utc(until)} UTC or longer; if it dies, another takes it then`,
    };
  if (dueAt === undefined)
    return {
      waits: 'nothing, so nobody looks at it',
      next: `something is wrong: an open request without a time to look at it; run "${PROGRAM} audit"`,
    };
  if (line?.database !== undefined) return untilBack('the database', line.database);
  const isMail = record.state === 'account_created' && record.test !== true;
  if (line?.relay !== undefined && isMail) return untilBack('the relay', line.relay);
  if (dueAt > now && record.waitsSince !== undefined && record.attempts === 0)
    return {
      waits: `an earlier request of the applicant, since ${utcSeconds(record.waitsSince)} UTC`,
      next: 'the earlier one is decided first; this one waits for an hour at most',
    };
  // A record of version 0 waits for its job; after `dueAt`, reconcile takes it.
  if (dueAt > now && version > 0)
    return {
      waits: `a retry at ${utcSeconds(dueAt)} UTC, ${fromNow(dueAt, now)}`,
      next: 'a processor takes it by itself then; a retry makes it due now',
      order: 'retry',
    };
  if (line?.processors === 0)
    return { waits: 'a processor: none answers', next: 'it is due: start a processor' };
  const asked = line === undefined && isMail;
  return {
    waits: asked ? 'a free place, or the relay' : 'a free place',
    next: `a processor takes it by itself; if none does, see "${PROGRAM} audit"${asked ? ' and the /readyz of the processors' : ''}`,
  };
}

function untilBack(what: string, { since, why }: NoticedOutage) {
  return {
    waits: `${what}, which is away at least since ${utcSeconds(since)} UTC`,
    next: `a processor takes it by itself once ${what} is back${why === '' ? '' : `; ${why}`}`,
  };
}

function afterEnd(record: FoundSubmission, account: Account | undefined): NextStep {
  const { state } = record;
  if (record.erasedAt !== undefined)
    return { next: 'nothing: its personal data is gone, and with it what could be worked on' };
  if (record.test) return { next: 'nothing: it is a test' };
  if (account?.releasedAt !== undefined)
    return { next: 'nothing: the account was released; the partner may apply again' };
  if (record.releasedAt !== undefined && account !== undefined)
    return {
      next: 'its release was cut off: release it again to complete it',
      order: 'release-account',
    };
  const used = account?.activation?.usedAt !== undefined;
  if (used && (state === 'undeliverable' || state === 'dead_lettered')) {
    return {
      next: 'the link has been used, so the e-mail arrived: a retry completes it and mails nothing',
      order: 'retry',
    };
  }
  switch (state) {
    case 'completed':
      return used
        ? { next: 'nothing: the applicant has activated the account' }
        : { next: 'nothing; if the e-mail got lost, send it again', order: 'resend' };
    case 'rejected':
      return { next: afterRejection(record) };
    case 'undeliverable':
      return { next: 'ask the partner for the right address', order: 'correct-email' };
    case 'dead_lettered':
      return { next: 'correct the cause, then retry it', order: 'retry' };
    case 'closed':
      return {
        next: 'nothing: an operator closed it; to reopen it is the only way back',
        order: 'reopen',
      };
    case 'malformed':
      return { next: 'the partner corrects its program and sends the application again' };
    case 'refused':
      return { next: 'the partner uses a valid key and sends the application again' };
    case 'withdrawn':
      return { next: 'the partner sends it again, as its 500 said' };
    case 'recorded':
    case 'account_created':
    default:
      return { next: 'this version does not know the state: use the version that wrote it' };
  }
}

/** The request whose account the rejected applicant has already. */
export const duplicateIn = ({ reasons = [] }: Pick<FoundSubmission, 'reasons'>) =>
  reasons.find(({ duplicateOf }) => duplicateOf !== undefined)?.duplicateOf;

function afterRejection(record: FoundSubmission): string {
  const { reasons = [] } = record;
  if (duplicateIn(record) === undefined)
    return 'the partner sends a corrected application; this one stays rejected';
  const isOnly = reasons.every(({ duplicateOf }) => duplicateOf !== undefined);
  const more = isOnly ? '' : '; the partner corrects the other faults';
  return `help the applicant at the request that has the account${more}`;
}

/** An order that the console offers, too. */
interface OfferedOrder {
  readonly name: string;
  /** The id of the request or partner. */
  readonly part: string;
}

/** Reasons of an address that takes no e-mail, however often it is sent. */
const FOR_GOOD: ReadonlySet<string> = new Set([
  'unknown_mailbox',
  'mailbox_disabled',
  'domain_refused',
]);

/** Why another e-mail to the same address cannot help; undefined if it may. */
function whyInVain(record: FoundSubmission, account: Account | undefined): string | undefined {
  if (record.state !== 'undeliverable' || account?.activation?.usedAt !== undefined)
    return undefined;
  const reason = record.reasons?.find(({ code }) => FOR_GOOD.has(code));
  return reason && `${reasonInWords(reason)}: another e-mail would come back, too.`;
}

/**
 * The commands that would change something now, ready to paste. An operator fills in the words in
 * capitals.
 */
export function offersFor(
  record: FoundSubmission,
  account: Account | undefined,
  { now, onHold }: Circumstances,
) {
  const { _id: id, partnerId, state, erasedAt } = record;
  const can = (order: PlannedOrder): boolean =>
    planOf(order, record, account, now).to !== undefined;
  const named = '--as NAME --why REASON';
  const act = (name: string, part = id) => ({ name, part });
  const offers: [isPossible: boolean, what: string, command: string, order?: OfferedOrder][] = [
    [
      onHold && isOpen(state),
      'let its partner go on',
      `partner release ${partnerId}`,
      act('release', partnerId),
    ],
    [can('retry'), 'work on it now', `retry ${id}`, act('retry')],
    [can('resend'), 'mail the same link again', `resend ${id} --yes`, act('resend')],
    [
      can('correctEmail'),
      'correct the e-mail address',
      `account correct-email ${id} ADDRESS --yes`,
      act('correct-email'),
    ],
    [
      can('bounce'),
      'report that its e-mail came back',
      `bounce --request ${id} --status CODE`,
      act('bounce'),
    ],
    [can('close'), 'end it for good', `close ${id} --yes ${named}`, act('close')],
    [can('reopen'), 'work again on what was closed', `reopen ${id} --yes ${named}`, act('reopen')],
    [
      can('release'),
      'free its e-mail address and EIN for a new application',
      `account release ${id} --yes ${named}`,
      act('release-account'),
    ],
    [erasedAt === undefined, 'show its personal data', `show ${id} --reveal ${named}`],
    [
      erasedAt === undefined || account !== undefined,
      'erase the applicant',
      `erase ${id} --yes ${named}`,
      act('erase'),
    ],
  ];
  const inVain = whyInVain(record, account);
  return offers.flatMap(([isPossible, what, command, order]) => {
    if (!isPossible) return [];
    const mailsAgain = order?.name === 'retry' || order?.name === 'resend';
    const vain = mailsAgain ? inVain : undefined;
    return [{ what, command: `${PROGRAM} ${command}`, order, vain }];
  });
}
