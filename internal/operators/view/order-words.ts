/** What an order would do and has done: sentences for people, and the same for programs. */
import type { Account } from '../../account/account.ts';
import { maskEmail } from '../../application/fields.ts';
import { sourceWords, type InstallationDocument } from '../../installation/installation.ts';
import { keyIdOf } from '../../partner/api-key.ts';
import { secretName } from '../../partner/key-secret.ts';
import type { PartnerKey } from '../../partner/key-store.ts';
import { defined } from '../../platform/process/defined.ts';
import { findingName, type Suspect } from '../../self-audit/rules.ts';
import type { OperatorAction } from '../trail/trail.ts';
import type { FoundSubmission } from './look-up.ts';
import { reactivation } from './partners.ts';
import type { Plan } from './plans.ts';
import { maskApplicant } from './mask.ts';

export type About = Omit<OperatorAction, 'action'>;

export interface Words {
  /** Begins the sentence that says why not. */
  readonly subject: string;
  readonly about: About;
  /** What pages call the request, masked. */
  readonly business?: string;
  readonly notes?: readonly string[];
  /** What would happen; if absent, `done` says it. */
  readonly would?: string;
  readonly done: string;
  /** Said if the target has changed since it was selected. */
  readonly unchanged?: Pick<Plan, 'whyNot' | 'later'>;
  /** The same as JSON, for programs. */
  readonly json: { readonly dry?: object; readonly done: object };
}

interface Shown {
  /** What the plan leads to. */
  readonly to?: string;
}

export interface RequestTarget {
  readonly record: FoundSubmission;
  readonly account: Account | undefined;
  /** Whether its partner is on hold. */
  readonly onHold: boolean;
}

/** `would` is about the account. */
function requestWords(
  { record, account }: RequestTarget,
  { would, done, json }: { readonly would?: string; readonly done: string; readonly json: object },
): Words {
  const { _id: id, state } = record;
  const accountId = account?._id;
  return {
    subject: id,
    about: { requestId: id, ...defined({ accountId }) },
    ...defined({ business: maskApplicant(record.applicant ?? {}, false, true).businessName }),
    ...defined({ would: would && `${accountId} of ${id} (${state}): ${would}` }),
    done,
    json: {
      dry: { request_id: id, ...defined({ account_id: accountId, would }) },
      done: { request_id: id, ...json },
    },
  };
}

/** What the request still waits for once it is due. */
function whenDue({ record: { partnerId }, onHold }: RequestTarget) {
  if (!onHold) return { next: 'it is due now, and a processor takes it by itself', json: {} };
  return {
    next: `it waits: ${partnerId} is on hold until "partner release ${partnerId}"`,
    json: { waits_for: `partner ${partnerId} is on hold` },
  };
}

interface MoveInWords {
  readonly to: string | undefined;
  /** What the move means for the account. */
  readonly would?: string;
  readonly next?: string;
  readonly json?: object;
}

function moveWords(target: RequestTarget, { to, would, next, json }: MoveInWords): Words {
  const { _id, state: from } = target.record;
  const sentences = [`${_id}  ${from} → ${to}`, would, next];
  const done = sentences.filter((one) => one !== undefined).join('; ');
  return requestWords(target, { ...defined({ would }), done, json: { from, to, ...json } });
}

/** Words for a request that a processor works on next. */
export function dueWords(target: RequestTarget, { to }: Shown, would?: string): Words {
  return moveWords(target, { to, ...defined({ would }), ...whenDue(target) });
}

export function closeWords(target: RequestTarget, { to }: Shown): Words {
  const words = moveWords(target, { to, json: { dry_run: false } });
  return { ...words, would: words.done };
}

export function bounceWords(target: RequestTarget, { to }: Shown, alike: boolean): Words {
  const cause = alike
    ? 'most others came back with the same status'
    : "it says nothing of the applicant's mailbox";
  const why = to === 'dead_lettered' ? `${cause}, so you decide: ` : '';
  return {
    ...moveWords(target, { to, next: `${why}"show" says what to do next` }),
    unchanged: { whyNot: 'changed meanwhile: report it again later', later: true },
  };
}

/** What an interrupted correction has left to do. */
export type CorrectionLeft = 'everything' | 'record_and_mail' | 'record' | 'nothing';

export interface Correction extends RequestTarget {
  readonly email: string;
  readonly left: CorrectionLeft;
}

/** Without `reveal`, the address is masked. */
export function correctionWords(target: Correction, reveal: boolean): Words {
  const { account, email, left } = target;
  // Only the operator can see a typing error.
  const shown = email === '' ? 'the address given' : reveal ? email : maskEmail(email);
  const was = maskEmail(account?.email ?? '');
  const change = left === 'everything' ? `${was} → ${shown}` : shown;
  const would = {
    everything: `its address, ${was}, becomes ${shown}, and a new link is mailed`,
    record_and_mail: `a correction to ${shown} was cut off: it is finished and a new link is mailed`,
    record: `a correction to ${shown} was cut off after its e-mail: its request is brought in step`,
    nothing: '',
  }[left];
  const { next, json } = whenDue(target);
  const [mailed, waits] =
    left === 'record'
      ? ['finished: nothing is mailed, the e-mail has gone out before', {}]
      : [`the old link is void, a new one is mailed; ${next}`, json];
  return requestWords(target, {
    would,
    done: `${account?._id}  ${change}; ${mailed}`,
    json: { account_id: account?._id, result: 'corrected', ...waits },
  });
}

export function releaseWords(target: RequestTarget): Words {
  const id = target.account?._id;
  return requestWords(target, {
    would: 'its e-mail address and EIN are given free, its link ends',
    done: `${id}  released: the e-mail address and the EIN may be applied with again`,
    json: { account_id: id, result: 'released' },
  });
}

export interface Findings {
  readonly id: string;
  /** Undefined if the account is gone. */
  readonly requestId: string | undefined;
  readonly found: readonly Suspect[];
}

export function asideWords({ id, requestId, found }: Findings): Words {
  const kinds = found.map(([kind]) => kind);
  const json = { id, kinds };
  const subject = `${id}  ${kinds.join(', ')}`;
  return {
    subject: id,
    about: {
      ...defined({ requestId, accountId: id === requestId ? undefined : id }),
      aside: found.map(findingName),
    },
    would: `${subject}: would be put aside`,
    done: `${subject}: put aside; what changes is found again`,
    json: { dry: json, done: { ...json, result: 'aside' } },
  };
}

/** What each order about a partner leads to. */
export const flagWords = {
  hold: {
    result: 'held',
    done: ' on hold: a processor that works on a request of it stops within five seconds; new requests are accepted and wait',
    already: 'is on hold already',
  },
  release: {
    result: 'released',
    done: ' released: processors go on with its work within half a minute',
    already: 'is not on hold',
  },
  disable: {
    result: 'disabled',
    done: 'is disabled: each ingest that reaches MongoDB answers its keys 403 within a second; what it sent before is still worked on',
    already: 'is disabled already',
  },
  enable: {
    result: 'enabled',
    done: 'is enabled: each ingest that reaches MongoDB knows it within a second',
    already: 'is not disabled',
  },
} as const;

export interface PartnerTarget {
  readonly partnerId: string;
  readonly isKnown: boolean;
  /** Secrets whose keys stay inactive after `enable`; empty for `disable`, else absent. */
  readonly inactiveBy?: readonly string[];
}

export function partnerWords(
  name: keyof typeof flagWords,
  { partnerId, isKnown, inactiveBy }: PartnerTarget,
): Words {
  const { result, done, already } = flagWords[name];
  return {
    subject: partnerId,
    about: { partnerId },
    notes: [
      ...(isKnown ? [] : [`no key of ${partnerId} is known: is that its name?`]),
      ...(inactiveBy ?? []).map(reactivation),
    ],
    done: `${partnerId} ${done}`,
    unchanged: { whyNot: already },
    json: { done: { partner: partnerId, result, ...defined({ inactive_by: inactiveBy }) } },
  };
}

export const REVOKED = { whyNot: 'is revoked already' } as const;

export function revokeWords({ hash, partnerId, source }: PartnerKey): Words {
  const shown = { key: keyIdOf(hash), partner: partnerId, secret: secretName(source) };
  const subject = `key ${shown.key} of ${partnerId}, from ${shown.secret},`;
  return {
    subject,
    about: { partnerId, keyId: shown.key },
    would: `${subject} would be revoked`,
    done: `${subject} is revoked: each ingest that reaches MongoDB answers it 401 within a second; remove it from its Secret`,
    unchanged: REVOKED,
    json: { dry: shown, done: { ...shown, result: 'revoked' } },
  };
}

export function moveInstallationWords({
  found,
  to,
}: {
  readonly found: InstallationDocument | undefined;
  readonly to: string;
}): Words {
  const owner = found?.keysOf === undefined ? 'no source yet' : sourceWords(found.keysOf);
  const subject = `the installation of this database`;
  const shown = { id: found?.id, from: found?.keysOf, to };
  return {
    subject,
    about: { keysOf: to },
    would: `${subject} has its partner keys from ${owner}; they would come from ${sourceWords(to)}, whose controllers would lead, and keys that are in no Secret there would end; its names in Redis would get another id`,
    done: `${subject} has its partner keys from ${sourceWords(to)} now: a controller there leads within 20 s, and each process takes up the new id within 12 s`,
    json: { dry: shown, done: { ...shown, result: 'moved' } },
  };
}

export const BACKUPS_HOLD =
  'backups still hold them until they are past their own retention (docs/privacy.md)';

/** The most requests that are listed. */
export const ALIKE_LISTED = 20;

/** Requests of the same EIN or e-mail address that an erasure leaves. */
export interface Alike {
  readonly same: 'ein' | 'email';
  readonly requestIds: readonly string[];
}

export const NO_REGISTER =
  'no erasure register is named: after a restore from an older backup erase them again (docs/restore.md)';

/** `alike` is undefined if an erasure was stopped; `how` to erase those. */
export function erasureNotes({
  isLeft,
  alike,
  how,
  unregistered,
}: {
  readonly isLeft: boolean;
  readonly alike: Alike | undefined;
  readonly how: string;
  readonly unregistered: string | undefined;
}): string[] {
  const { same, requestIds = [] } = alike ?? {};
  const more = requestIds.length < ALIKE_LISTED ? '' : ', and perhaps more';
  return [
    ...(unregistered === undefined ? [] : [unregistered]),
    ...(isLeft
      ? [
          'some changed meanwhile or are being worked on: run it again in a minute; retry or close dead letters first',
        ]
      : []),
    ...(requestIds.length > 0
      ? [
          `not erased, but of the same ${same === 'ein' ? 'EIN' : 'e-mail address'}: ${requestIds.join(', ')}${more}: if they are the same person, erase them ${how}`,
        ]
      : []),
  ];
}
