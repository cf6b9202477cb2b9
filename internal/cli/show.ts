/** `show`: what became of one request. */
import { styleText } from 'node:util';
import { linkState, type Account } from '../account/account.ts';
import type { MailLedger } from '../account/mail-ledger.ts';
import { referenceOf } from '../platform/ids.ts';
import { defined } from '../platform/defined.ts';
import { printable, table } from '../platform/terminal.ts';
import { isOpen } from '../submission/states.ts';
import type { SubmissionRecord } from '../submission/submission.ts';
import { EXIT, type Call, type Command, type ExitCode } from './command.ts';
import { maskApplicant } from './mask.ts';
import { submissionById, type FoundSubmission } from './find-submission.ts';
import { requestId } from './options.ts';
import { fromNow, timeline, timelineRows, utc, type Happening } from './timeline.ts';
import { claimEnd } from './waiting-reason.ts';
import { applicantView, bodyInWords, traceIdOf, viewOf } from './record-json.ts';

export const show: Command = {
  name: 'show',
  positionals: [requestId],
  about: 'what became of a request: states, reasons, e-mails, what to do next',
  details: 'Personal data is masked unless --reveal, which is noted in operator_audit.',
  options: ['reveal', 'as', 'why'],
  examples: [
    'show req_01m7yefdj3fantjpk5mzvj8mwh',
    'show req_01m7yefdj3fantjpk5mzvj8mwh --json',
    'show req_01m7yefdj3fantjpk5mzvj8mwh --reveal --as jane --why "ticket 4711"',
  ],
  run: showRequest,
};

async function showRequest(call: Call): Promise<ExitCode> {
  const { desk, out, values, clock } = call;
  const { reveal } = values;
  const now = clock.now();
  const record = await submissionById(call.positionals[0] ?? '', desk, now);
  const account = await desk.accounts.find('requestId', record._id);
  const onHold = record.partnerId !== undefined && (await desk.holds.isSet(record.partnerId));
  const actions = await desk.trail.ofRequest(record._id);
  if (reveal) await desk.trail.revealed({ action: 'show --reveal', requestId: record._id });

  const happenings = timeline(record, account, actions);
  if (values.json) {
    out.json({
      ...viewOf(record, reveal),
      ...defined({ past_retention: record.pastRetention }),
      ...defined({
        account: account === undefined ? undefined : accountView(account, reveal, now),
      }),
      timeline: happenings,
      next: nextStep(record, account, { now, onHold }),
    });
    return EXIT.ok;
  }
  out.line(
    `${styleText('bold', printable(record._id))}  ${styleText(colourOf(record), record.state)}`,
  );
  out.line(table(facts(record, account, reveal, now)));
  printReasons(call, record);
  out.line(`\n${styleText('bold', 'Timeline')} (UTC)`);
  printTimeline(call, happenings);
  out.line(`\n${styleText('bold', 'Next')}  ${nextStep(record, account, { now, onHold })}`);
  return EXIT.ok;
}

function colourOf({ state }: SubmissionRecord) {
  if (state === 'completed') return 'green';
  return isOpen(state)
    ? 'cyan'
    : state === 'dead_lettered' || state === 'undeliverable'
      ? 'red'
      : 'yellow';
}

function facts(
  record: FoundSubmission,
  account: Account | undefined,
  reveal: boolean,
  now: Date,
): string[][] {
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
  const rows: [string, string | undefined][] = [
    ['reference', referenceOf(record._id)],
    ...request,
    ['idempotency', keyInWords(record)],
    [
      'applicant',
      record.applicant === undefined ? undefined : personInWords(record.applicant, reveal),
    ],
    ['account', account === undefined ? undefined : accountInWords(account, reveal, now)],
    ['trace', traceIdOf(record)],
    ['mails', account?.mail === undefined ? undefined : mailsInWords(account.mail)],
    ['attempts', record.attempts === 0 ? undefined : `${record.attempts} failed in this state`],
    ['last error', record.lastError],
    ['kept until', record.expiresAt === undefined ? undefined : utc(record.expiresAt).slice(0, 10)],
  ];
  return rows.flatMap(([name, value]) =>
    value === undefined ? [] : [[styleText('dim', name), printable(value)]],
  );
}

function keyInWords({ idempotencyDigest, adopted }: SubmissionRecord): string | undefined {
  if (idempotencyDigest === undefined) return undefined;
  return adopted === true ? 'with a key, and sent again with it' : 'with a key';
}

function personInWords(
  person: NonNullable<SubmissionRecord['applicant']>,
  reveal: boolean,
): string {
  const { email, ein, businessName } = maskApplicant(person, reveal);
  return [businessName, email, ein === undefined ? undefined : `EIN ${ein}`]
    .filter((part) => part !== undefined)
    .join(', ');
}

function accountInWords(account: Account, reveal: boolean, now: Date): string {
  if (account.releasedAt !== undefined)
    return `${account._id}, released ${fromNow(account.releasedAt, now)}`;
  const { email } = maskApplicant({ email: account.email }, reveal);
  return `${account._id} for ${email}, ${linkInWords(account, now)}`;
}

function linkInWords(account: Account, now: Date): string {
  const { usedAt, expiresAt } = account.activation ?? {};
  if (usedAt !== undefined) return `its link has been used ${fromNow(usedAt, now)}`;
  if (expiresAt === undefined)
    return account.notifiedAt === undefined ? 'no link sent yet' : 'its link was removed';
  return linkState(account, now) === 'expired'
    ? `its link expired ${fromNow(expiresAt, now)}`
    : `its link is open until ${utc(expiresAt).slice(0, 16)} UTC`;
}

function mailsInWords({ begun, possible }: MailLedger): string {
  const reached = possible > 1 ? `, ${possible} of which may have reached the applicant` : '';
  return `${begun} handed over${reached}`;
}

function accountView(account: Account, reveal: boolean, now: Date): Record<string, unknown> {
  return {
    account_id: account._id,
    ...applicantView(account.released ?? account, reveal),
    created_at: account.createdAt,
    ...defined({ notified_at: account.notifiedAt }),
    link: linkState(account, now),
    ...defined({ link_expires_at: account.activation?.expiresAt }),
    ...defined({ link_used_at: account.activation?.usedAt }),
    ...defined({ released_at: account.releasedAt }),
    ...defined({ mail: account.mail }),
  };
}

function printReasons({ out }: Call, { reasons = [] }: SubmissionRecord): void {
  if (reasons.length === 0) return;
  out.line(
    `\n${styleText('bold', reasons.length === 1 ? 'One reason' : `${reasons.length} reasons`)}`,
  );
  const rows = reasons.map(({ field, code, message, duplicateOf }) => {
    return [
      field ?? '',
      styleText('yellow', code),
      duplicateOf === undefined ? message : `${message} See ${duplicateOf}.`,
    ];
  });
  out.line(table(rows));
}

function printTimeline({ out }: Call, happenings: readonly Happening[]): void {
  out.line(
    table(
      timelineRows(happenings).map(([at = '', after = '', what = '']) => [
        at,
        styleText('dim', after),
        what,
      ]),
    ),
  );
}

function nextStep(
  record: SubmissionRecord,
  account: Account | undefined,
  { now, onHold }: { readonly now: Date; readonly onHold: boolean },
): string {
  const { _id: id, state, dueAt } = record;
  if (onHold && isOpen(state)) {
    return `${record.partnerId} is on hold: "partner-ingest partner release ${record.partnerId}" lets it go on`;
  }
  if (record.erasedAt !== undefined)
    return 'nothing: its personal data is gone, and with it what could be worked on';
  const used = account?.activation?.usedAt !== undefined;
  if (used && (state === 'undeliverable' || state === 'dead_lettered')) {
    return `the link has been used, so the e-mail arrived: "partner-ingest retry ${id}" completes it and mails nothing`;
  }
  switch (state) {
    case 'recorded':
    case 'account_created': {
      if (dueAt === undefined)
        return 'something is wrong: an open request without a time to look at it; run "partner-ingest audit"';
      const until = claimEnd(record, now);
      if (until !== undefined)
        return `a processor is working on it, until ${utc(until)} UTC or longer; if it dies, another takes it then`;
      return dueAt <= now
        ? 'it is due, and a processor takes it by itself; if none does, see "partner-ingest audit"'
        : `a processor takes it by itself ${fromNow(dueAt, now)}; "partner-ingest retry ${id}" makes it due now`;
    }
    case 'completed':
      if (account?.releasedAt !== undefined)
        return 'nothing: the account was released; the partner may apply again';
      if (used) return 'nothing: the applicant has activated the account';
      return `nothing; if the e-mail got lost: "partner-ingest resend ${id} --yes"`;
    case 'rejected':
      return 'the partner sends a corrected application; this one stays rejected';
    case 'undeliverable':
      return `ask the partner for the right address: "partner-ingest account correct-email ${id} ADDRESS --yes"`;
    case 'dead_lettered':
      return `correct the cause (last error), then "partner-ingest retry ${id}"`;
    case 'malformed':
      return 'the partner corrects its program and sends the application again';
    case 'refused':
      return 'the partner uses a valid key and sends the application again';
    case 'withdrawn':
      return 'the partner sends it again, as its 500 said';
    default:
      return 'this version does not know the state: use the version that wrote it';
  }
}
