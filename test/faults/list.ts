/** All faults in their order, with the alerts they raise and the findings they allow. */
import type { Expectation, Fault, Injector } from './fault.ts';
import { hurryMails, mailFaults, retryMails } from './mail.ts';
import { partnerFaults } from './partners.ts';
import { processFaults } from './processes.ts';
import { storeFaults } from './stores.ts';

const injectors = { ...storeFaults, ...processFaults, ...partnerFaults, ...mailFaults };

const alert = (short: string): string => `PartnerIngest${short}`;
const FAST = alert('PromiseBurnsFast');
const SLOWLY = alert('PromiseBurnsSlowly');
const PENDING = alert('WithdrawalsPending');
const DROPPED = alert('RefusalsDropped');
const WAITING = alert('ApplicationsWaiting');
const MAILS_WAITING = alert('MailsWaiting');
const PAUSED = alert('WorkerPaused');
const DECLINED = alert('MailsDeclined');
const LIMITER = alert('LimiterFallback');
const RESCUES = alert('ReconcileRescues');
const LOOP = alert('CrashLoop');
const FAILING = alert('LoopFailing');
/** The lease of the controllers is in MongoDB. */
const LEADER = alert('LeaderAbsent');

const expectations: Readonly<Record<keyof typeof injectors, Expectation>> = {
  'redis-killed': { raises: [LIMITER] },
  'redis-hung': { raises: [LIMITER] },
  'redis-slow': { raises: [LIMITER] },
  'redis-emptied': { raises: [], may: [RESCUES] },
  'redis-loses-queue': { raises: [RESCUES], may: [WAITING] },
  'queue-paused': { raises: [RESCUES] },
  // Work that the paused queue delayed is still under way.
  'mongodb-killed': {
    raises: [FAST, PAUSED, DROPPED],
    may: [PENDING, SLOWLY, WAITING, LEADER, FAILING],
  },
  'mongodb-hung': { raises: [FAST], may: [PENDING, SLOWLY, PAUSED, DROPPED, FAILING] },
  'mongodb-slow': { raises: [FAST], may: [PENDING, SLOWLY, PAUSED, DROPPED, FAILING] },
  // Too few requests are answered 500 for an alert.
  'mongodb-cut': { raises: [], may: [SLOWLY, FAST, PAUSED, DROPPED] },
  'mongodb-election': { raises: [FAST], may: [SLOWLY, PAUSED, PENDING, DROPPED] },
  // A claim that the election interrupted expires in the stall.
  'mongodb-majority-stalled': {
    raises: [FAST, PENDING, PAUSED],
    may: [SLOWLY, RESCUES, DROPPED, WAITING, LEADER, FAILING],
  },
  'mongodb-rolled-back': { raises: [FAST], may: [SLOWLY, PAUSED, PENDING, DROPPED] },
  'mongodb-partitioned': { raises: [FAST, PENDING], may: [SLOWLY, DROPPED] },
  // After a step of the clock no claim is taken over for 45 s.
  'mongodb-clock-leaps': { raises: [], may: [RESCUES, WAITING, MAILS_WAITING, FAILING] },
  'mongodb-insert-hangs': { raises: [], may: [WAITING, RESCUES, PAUSED, FAILING] },
  'mongodb-hiccups': { raises: [SLOWLY], may: [DROPPED] },
  'mongodb-hung-ingest-killed': {
    raises: [SLOWLY],
    may: [FAST, LOOP, PENDING, PAUSED, DROPPED],
    allows: ['processed_after_500'],
  },
  'ingest-killed': { raises: [LOOP], may: [SLOWLY], allows: ['processed_after_500'] },
  'processor-killed': { raises: [LOOP], allows: ['second_mail', 'dead_letter'] },
  'controller-killed': { raises: [LOOP], may: [LEADER] },
  'ingest-drained': { raises: [] },
  'processor-drained': { raises: [] },
  'processors-gone': { raises: [alert('ProcessAbsent')], allows: ['second_mail'] },
  'controllers-gone': { raises: [LEADER] },
  'ingest-choked': { raises: [alert('EventLoopLag')] },
  'ingest-frozen': { raises: [alert('WithdrawalsFailed')], may: [PENDING, SLOWLY, FAST] },
  'processor-frozen': { raises: [], allows: ['second_mail', 'dead_letter'] },
  'keys-unreadable': { raises: [alert('KeysStale'), alert('SecretProblems')], may: [FAILING] },
  'empty-key': { raises: [alert('SecretProblems')] },
  'keys-emptied': { raises: [alert('SecretProblems')] },
  'keys-guessed': { raises: [] },
  'clocks-leap': { raises: [] },
  // The age of the backlog grows until the next count.
  'backlog-refused': { raises: [FAILING], may: [WAITING] },
  // The controllers restart, and the new leader audits at once.
  'account-alone': { raises: [alert('AuditFindings')], may: [LEADER] },
  'probe-refused': { raises: [alert('ProbeFails')], may: [LEADER] },
  'untrusted-proxy': { raises: [alert('UntrustedProxy')] },
  'smtp-stopped': { raises: [PAUSED], may: [MAILS_WAITING], allows: ['second_mail'] },
  'smtp-550': { raises: [alert('MailsUndeliverable')], allows: ['undeliverable', 'second_mail'] },
  'mails-bounced': { raises: [alert('MailsBounced')], allows: ['undeliverable'] },
  'smtp-451': { raises: [MAILS_WAITING, DECLINED], allows: ['second_mail'] },
  // The first few end before their words are known as the relay's.
  'smtp-refuses-all': {
    raises: [DECLINED],
    may: [MAILS_WAITING, alert('MailsUndeliverable'), alert('MailsBlamed')],
    allows: ['undeliverable', 'second_mail'],
  },
  'smtp-hanging': {
    raises: [MAILS_WAITING],
    may: [PAUSED, DECLINED],
    allows: ['second_mail', 'dead_letter'],
    repair: hurryMails,
  },
  'smtp-cut-after-store': {
    raises: [],
    may: [MAILS_WAITING],
    allows: ['second_mail', 'dead_letter'],
    repair: hurryMails,
  },
  'smtp-cut-before-store': {
    raises: [alert('DeadLetters')],
    may: [MAILS_WAITING],
    allows: ['second_mail', 'dead_letter'],
    repair: retryMails,
  },
  'mongodb-role-lost': { raises: [WAITING] },
  // Records wait for their next attempt after the lost role is back.
  'smtp-sender-refused': {
    raises: [alert('SenderRefused')],
    may: [MAILS_WAITING, WAITING, PAUSED],
  },
  'smtp-policy': {
    raises: [alert('MailsBlamed')],
    may: [MAILS_WAITING, DECLINED],
    allows: ['undeliverable', 'second_mail'],
  },
  // The drill leaves these out: it has one Redis and ordinary disks.
  'power-cut': { raises: [], may: [FAST, SLOWLY, PAUSED, DROPPED] },
  'redis-sentinel-failover': { raises: [] },
  'redis-cluster-failover': { raises: [] },
};

export const faults: readonly Fault[] = Object.entries(expectations).map(([name, expected]) => {
  const injector: Injector = injectors[name as keyof typeof injectors];
  return { name, ...injector, ...expected };
});

/** Returns the named faults in their order; throws on an unknown name. */
export function faultsNamed(names: readonly string[]): readonly Fault[] {
  return names.map((name) => {
    const fault = faults.find((one) => one.name === name);
    if (fault === undefined) {
      const all = faults.map((one) => `  ${one.name.padEnd(28)}${one.about}`).join('\n');
      throw new Error(`there is no fault "${name}", but these:\n${all}`);
    }
    return fault;
  });
}
