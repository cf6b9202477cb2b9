/** The metrics of the controller, with all values of their labels. */
import { problemCodes } from '../partner/key-secret.ts';
import { jobStates } from '../queue/job.ts';
import { backlogStates, openStates } from '../submission/states.ts';
import { counter, gauge, ofProcess, openValues } from './definition.ts';

/** Only the leader sets the backlog, so that one process queries the stores. */
export const controllerMetrics = {
  ...ofProcess,
  records: gauge('records', 'Records with work ahead or given up; counted up to 100,000 each.', {
    state: backlogStates,
  }),
  recordsOnHold: gauge(
    'records_on_hold',
    'Records with work ahead of partners on hold, which `records` leaves out.',
  ),
  partnerRecords: gauge(
    'partner_records',
    'Records with work ahead, of the 20,000 that are found first.',
    { partner: openValues },
  ),
  bouncedMails: gauge('bounced_mails', 'Late bounces reported in the last 24 hours.'),
  oldestWaitingSeconds: gauge(
    'oldest_waiting_seconds',
    'Age of the oldest application in a state.',
    { state: openStates },
  ),
  queueJobs: gauge('queue_jobs', 'Jobs in Redis; none while Redis is away.', {
    state: jobStates,
  }),
  backlogReadAt: gauge(
    'backlog_read_timestamp_seconds',
    'When records and ages were last read; 0 while not leading.',
  ),
  auditFindings: gauge(
    'audit_findings',
    'Open findings of the audit, 1,000 of a kind at most; none while not leading.',
    { kind: openValues },
  ),
  probeSuccess: gauge(
    'probe_success',
    '1 if the last submission of the probe was completed, else 0; none without a probe or while not leading.',
  ),
  probeMailSuccess: gauge(
    'probe_mail_success',
    '1 if the relay took the last e-mail of the probe, else 0; none without `PROBE_MAIL_TO`, while not leading, or before the first.',
  ),
  probeSeconds: gauge(
    'probe_seconds',
    'Time that each step of the last probe took; none for a step that failed.',
    { step: ['accept', 'outcome'] },
  ),
  keysWanted: gauge('keys_wanted', 'API keys the partner Secrets ask for.'),
  partnersEnding: gauge(
    'partners_keys_ending',
    'Partners whose last key ends within 7 days, or ended in the last 24 hours.',
  ),
  secretProblems: gauge('secret_problems', 'Secrets or entries that cannot be used.', {
    problem: problemCodes,
  }),
  keyChanges: counter('key_changes', 'Keys written or removed.', {
    change: ['put', 'remove'],
  }),
  syncedAt: gauge(
    'keys_synced_timestamp_seconds',
    'When the stored keys were last those of the partner Secrets.',
  ),
  leader: gauge('leader', '1 while this process leads.'),
  secretsSeenAt: gauge(
    'secrets_seen_timestamp_seconds',
    'When the partner Secrets were last current; only while leading.',
  ),
  secretLists: counter('secret_lists', 'Complete lists of partner Secrets.', {
    result: ['complete', 'failed'],
  }),
  secretWatches: counter('secret_watches', 'Watches of partner Secrets that ended.', {
    result: ['ended', 'expired', 'failed'],
  }),
  secretEvents: counter('secret_events', 'Warning Events about partner Secrets.', {
    result: ['created', 'failed', 'held_back'],
  }),
};
