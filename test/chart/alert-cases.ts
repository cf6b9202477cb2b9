/**
 * For each alert, series that make it fire and similar healthy ones; all others come from
 * `healthy`.
 */
import { kinds } from '../../internal/view/check-records.ts';

/**
 * Values of series from minute to minute, in promtool's notation (`0+60x180`: from 0, 60 more each
 * minute).
 */
export type SeriesValues = Readonly<Record<string, string>>;

export interface AlertCase extends Firing {
  readonly alert: string;
  readonly quiet: SeriesValues;
  /** Other series that fire it, by their cause. */
  readonly alsoFires?: Readonly<Record<string, Firing>>;
  /** Other series that must not fire it, by their cause. */
  readonly alsoQuiet?: Readonly<Record<string, SeriesValues>>;
}

export interface Firing {
  readonly fires: SeriesValues;
  /** Labels besides name, severity and namespace. */
  readonly labels?: Readonly<Record<string, string>>;
  readonly says: string;
  /** The severity, for a rule with two of them. */
  readonly severity?: 'critical' | 'warning';
}

/** Cases that need eight days of series, in steps of 15 minutes, over `healthyForAWeek`. */
export interface LongCase {
  readonly alert: string;
  readonly name: string;
  readonly series: SeriesValues;
  /** The description; undefined if the alert must not fire. */
  readonly says?: string;
}

const MINUTES = 90;
const always = (value: number): string => `${value}+0x${MINUTES}`;
const rising = (perMinute: number): string => `0+${perMinute}x${MINUTES}`;
/** The series is constant until minute 30. */
const risingLate = (perMinute: number): string =>
  `0+0x30 ${perMinute}+${perMinute}x${MINUTES - 31}`;

const start = (component: string, pod: string): string =>
  `process_start_time_seconds{component="${component}",pod="${pod}"}`;
const up = (pod: string): string => `up{pod="${pod}"}`;
const lag = (pod: string): string =>
  `nodejs_eventloop_lag_p99_seconds{component="ingest",pod="${pod}"}`;
const of = (name: string, labels: string): string => `partner_ingest_${name}{${labels}}`;

const STEPS = 776;
const daily = (count: number): string => `0+${count / 96}x${STEPS}`;

/** A partner that sends twenty good submissions a day. */
export const healthyForAWeek: SeriesValues = {
  [start('ingest', 'ingest-1')]: `1000+0x${STEPS}`,
  [start('processor', 'processor-1')]: `1000+0x${STEPS}`,
  [of('leader', 'pod="controller-1"')]: `1+0x${STEPS}`,
  [of('accept_seconds_bucket', 'le="1",pod="ingest-1"')]: daily(20),
  [of('accept_seconds_count', 'pod="ingest-1"')]: daily(20),
  [of('requests_total', 'status="202"')]: daily(20),
  [of('requests_total', 'status="500"')]: `0+0x${STEPS}`,
};

export const longCases: readonly LongCase[] = [
  {
    alert: 'PartnerIngestPromiseBurnsSlowly',
    name: 'five broken of twenty a day, over three days',
    series: {
      [of('requests_total', 'status="500"')]: `0+0x528 1+0x32 2+0x32 3+0x99 4+0x32 5+0x46`,
    },
    says: '7.705% of submissions are answered 500 or take longer than 1 s.',
  },
  {
    alert: 'PartnerIngestPromiseBurnsSlowly',
    name: 'four broken of twenty a day',
    series: { [of('requests_total', 'status="500"')]: `0+0x528 1+0x32 2+0x32 3+0x132 4+0x46` },
  },
];

/** A constant 600 requests a minute for an hour and a half. */
export const healthy: SeriesValues = {
  [start('ingest', 'ingest-1')]: always(1_000),
  [start('processor', 'processor-1')]: always(1_000),
  [start('controller', 'controller-1')]: always(1_000),
  [lag('ingest-1')]: always(0.012),
  [of('accept_seconds_bucket', 'le="1",pod="ingest-1"')]: rising(600),
  [of('accept_seconds_count', 'pod="ingest-1"')]: rising(600),
  [of('requests_total', 'status="202"')]: rising(600),
  [of('requests_total', 'status="500"')]: always(0),
  [of('withdrawals_total', 'result="too_late"')]: always(0),
  [of('withdrawals_total', 'result="dropped"')]: always(0),
  [of('untrusted_forwarded_for_total', 'pod="ingest-1"')]: always(0),
  [of('limiter_fallback', 'pod="ingest-1"')]: always(0),
  // promtool evaluates at minute n, when these are the present time.
  [of('keys_refreshed_timestamp_seconds', 'pod="ingest-1"')]: rising(60),
  [of('keys_synced_timestamp_seconds', 'pod="controller-1"')]: rising(60),
  [of('refused_dropped_total', 'pod="ingest-1"')]: always(0),
  [of('leader', 'pod="controller-1"')]: always(1),
  [of('leader', 'pod="controller-2"')]: always(0),
  [of('probe_success', 'pod="controller-1"')]: always(1),
  [of('oldest_waiting_seconds', 'state="recorded"')]: always(3),
  [of('oldest_waiting_seconds', 'state="account_created"')]: always(5),
  [of('records', 'state="recorded"')]: always(20),
  [of('records', 'state="account_created"')]: always(30),
  [of('records', 'state="dead_lettered"')]: always(0),
  [of('worker_paused', 'waits_for="database"')]: always(0),
  [of('worker_paused', 'waits_for="relay"')]: always(0),
  [of('reconcile_requeued_total', 'component="processor"')]: rising(1),
  [of('bounced_mails', '')]: always(2),
  [of('sender_refused', 'component="processor"')]: always(0),
  [of('outcomes_total', 'state="completed"')]: rising(500),
  [of('outcomes_total', 'state="undeliverable"')]: rising(2),
  [of('outcomes_total', 'state="dead_lettered"')]: always(0),
};

/** Two submissions in an hour and a half. */
const FEW: SeriesValues = {
  [of('accept_seconds_bucket', 'le="1",pod="ingest-1"')]: '0+0x30 1+0x29 2+0x30',
  [of('accept_seconds_count', 'pod="ingest-1"')]: '0+0x30 1+0x29 2+0x30',
};

/** Ten applications a day, and one e-mail that has waited for five hours. */
const ONE_WAITS: SeriesValues = {
  [of('oldest_waiting_seconds', 'state="account_created"')]: always(18_000),
  [of('records', 'state="account_created"')]: always(1),
};

export const cases: readonly AlertCase[] = [
  {
    alert: 'PartnerIngestPromiseBurnsFast',
    fires: {
      [of('requests_total', 'status="500"')]: risingLate(30),
      [of('accept_seconds_count', 'pod="ingest-1"')]: rising(600),
    },
    says: '4.762% of submissions are answered 500 or take longer than 1 s.',
    // A short burst is a small share of an hour.
    quiet: { [of('requests_total', 'status="500"')]: `0+0x86 40+0x4` },
    alsoFires: {
      // 6 in 600 are below the threshold of the short windows and above that of the six-hour
      // window.
      'slow answers for long': {
        fires: { [of('accept_seconds_bucket', 'le="1",pod="ingest-1"')]: rising(594) },
        says: '1% of submissions are answered 500 or take longer than 1 s.',
      },
      // No five minutes hold more than one submission.
      'five broken of seven': {
        fires: { ...FEW, [of('requests_total', 'status="500"')]: '0+0x59 1 1 2 2 3 3 4 4 5+0x22' },
        says: '71.43% of submissions are answered 500 or take longer than 1 s.',
      },
    },
    alsoQuiet: {
      'four broken of six': {
        ...FEW,
        [of('requests_total', 'status="500"')]: '0+0x59 1 1 2 2 3 3 4+0x24',
      },
    },
  },
  {
    alert: 'PartnerIngestProbeFails',
    fires: {
      [of('probe_success', 'pod="controller-1"')]: '1+0x83 0+0x6',
      [of('loop_failing', 'loop="probe",pod="controller-1"')]: '0+0x80 1+0x10',
    },
    says: 'For five minutes no test submission of the standing probe has been accepted and completed.',
    quiet: { [of('probe_success', 'pod="controller-1"')]: '1+0x80 0+0x4 1 0+0x4' },
    alsoFires: {
      'it is not accepted, and live work waits': {
        fires: {
          [of('probe_success', 'pod="controller-1"')]: '1+0x83 0+0x6',
          [of('oldest_waiting_seconds', 'state="recorded"')]: always(500),
        },
        says: 'For five minutes no test submission of the standing probe has been accepted and completed.',
      },
    },
    alsoQuiet: {
      'it waits behind live work': {
        [of('probe_success', 'pod="controller-1"')]: always(0),
        [of('probe_seconds', 'pod="controller-1",step="accept"')]: always(0.01),
        [of('oldest_waiting_seconds', 'state="recorded"')]: always(500),
      },
    },
  },
  {
    alert: 'PartnerIngestRefusalsDropped',
    fires: { [of('refused_dropped_total', 'pod="ingest-1"')]: '0+0x75 30+0x14' },
    says: '30 requests answered 401 or 403 in 15 minutes are only counted: MongoDB took no record of them.',
    quiet: { [of('refused_dropped_total', 'pod="ingest-1"')]: '0+0x75 20+0x14' },
  },
  {
    alert: 'PartnerIngestPromiseBurnsSlowly',
    // 2 in 600 are 3.3 times the budget, below the threshold of the fast alert.
    fires: { [of('accept_seconds_bucket', 'le="1",pod="ingest-1"')]: rising(598) },
    says: '0.3333% of submissions are answered 500 or take longer than 1 s.',
    quiet: { [of('accept_seconds_bucket', 'le="1",pod="ingest-1"')]: rising(599.7) },
    alsoFires: {
      'for days': {
        fires: { [of('accept_seconds_bucket', 'le="1",pod="ingest-1"')]: rising(598.8) },
        says: '0.2% of submissions are answered 500 or take longer than 1 s.',
      },
    },
  },
  {
    alert: 'PartnerIngestWithdrawalsFailed',
    fires: { [of('withdrawals_total', 'result="too_late"')]: '0+0x60 2+0x30' },
    labels: { result: 'too_late' },
    says: 'In the last hour 2 records answered 500 could not be withdrawn (too_late).',
    quiet: { [of('withdrawals_total', 'result="withdrawn"')]: rising(5) },
  },
  {
    alert: 'PartnerIngestWithdrawalsPending',
    fires: { [of('withdrawals_pending', 'pod="ingest-1"')]: '0+0x88 3+0x2' },
    labels: { pod: 'ingest-1' },
    says: '3 of ingest-1 wait for MongoDB; after 30 s some may be processed all the same.',
    quiet: { [of('withdrawals_pending', 'pod="ingest-1"')]: '0+0x40 3 0+0x50' },
  },
  {
    alert: 'PartnerIngestProcessAbsent',
    // Prometheus keeps a sample for five minutes.
    fires: { [start('processor', 'processor-1')]: '1000+0x80 _x10' },
    labels: { component: 'processor' },
    says: 'Prometheus reaches no processor pod.',
    quiet: { [start('ingest', 'ingest-2')]: `5+0x30 _x60` },
  },
  {
    alert: 'PartnerIngestCrashLoop',
    fires: {
      [start('ingest', 'ingest-1')]:
        '1000+0x78 2000 2000 3000 3000 4000 4000 5000 5000 5000 5000 5000 5000',
    },
    labels: { pod: 'ingest-1' },
    says: 'ingest-1 has been started 4 times in 15 minutes.',
    quiet: { [start('ingest', 'ingest-1')]: '1000+0x80 2000+0x4 3000+0x4' },
    alsoFires: {
      'it ends on its configuration': {
        fires: { [up('test-partner-ingest-processor-5d4f-x')]: '_x78 0+0x11' },
        labels: { pod: 'test-partner-ingest-processor-5d4f-x' },
        says: 'test-partner-ingest-processor-5d4f-x has not answered Prometheus for 10 minutes: it does not start, or cannot be reached.',
      },
    },
    alsoQuiet: {
      'a new pod starts': { [up('test-partner-ingest-processor-5d4f-x')]: '_x84 0+0x5' },
      'a scrape fails now and then': {
        [up('test-partner-ingest-ingest-7c9b-x')]: '0 1 0 0 1+0x86',
      },
      'pods of others in the namespace': {
        [up('other-processor-7c9b-x')]: always(0),
        'process_start_time_seconds{pod="other-1"}':
          '1000+0x78 2000 2000 3000 3000 4000 4000 5000 5000 5000 5000 5000 5000',
      },
    },
  },
  {
    alert: 'PartnerIngestEventLoopLag',
    fires: { [lag('ingest-1')]: '0.01+0x75 0.5+0x14' },
    labels: { component: 'ingest', pod: 'ingest-1' },
    says: 'One in a hundred turns of the event loop of ingest-1 is 500ms late.',
    quiet: { [lag('ingest-1')]: '0.01+0x84 0.5+0x5' },
  },
  {
    alert: 'PartnerIngestLoopFailing',
    fires: { [of('loop_failing', 'loop="keys",pod="ingest-1"')]: '0+0x83 1+0x6' },
    labels: { pod: 'ingest-1', loop: 'keys' },
    says: 'The loop keys of ingest-1 does not succeed; its /readyz has the reason.',
    quiet: { [of('loop_failing', 'loop="keys",pod="ingest-1"')]: '0+0x80 1+0x3 0+0x6' },
  },
  {
    alert: 'PartnerIngestLeaderAbsent',
    fires: { [of('leader', 'pod="controller-1"')]: '1+0x85 0+0x4' },
    says: 'Changes of partner keys do not take effect, and the backlog is not read.',
    alsoFires: {
      'two lead': {
        fires: { [of('leader', 'pod="controller-2"')]: '0+0x85 1+0x4' },
        says: 'Changes of partner keys do not take effect, and the backlog is not read.',
      },
      'no controller runs': {
        fires: {
          [of('leader', 'pod="controller-1"')]: '1+0x80 _x10',
          [of('leader', 'pod="controller-2"')]: '0+0x80 _x10',
        },
        says: 'Changes of partner keys do not take effect, and the backlog is not read.',
      },
    },
    alsoQuiet: {
      'nobody leads for a minute': { [of('leader', 'pod="controller-1"')]: '1+0x88 0+0x1' },
    },
    quiet: {
      [of('leader', 'pod="controller-1"')]: '1+0x10 0+0x80',
      [of('leader', 'pod="controller-2"')]: '0+0x10 1+0x80',
    },
  },
  {
    alert: 'PartnerIngestAuditFindings',
    fires: { [of('audit_findings', 'kind="account_missing",pod="controller-1"')]: '0+0x80 1+0x10' },
    labels: { kind: 'account_missing' },
    says: 'The audit of the last hour found 1 of the kind account_missing.',
    // Notices do not fire.
    quiet: Object.fromEntries(
      Object.entries(kinds)
        .filter(([, [weight]]) => weight === 'notice')
        .map(([kind]) => [of('audit_findings', `kind="${kind}",pod="controller-1"`), always(3)]),
    ),
  },
  {
    alert: 'PartnerIngestApplicationsWaiting',
    fires: { [of('oldest_waiting_seconds', 'state="recorded"')]: '3+0x85 900+0x4' },
    says: 'The oldest has waited 15m 0s for its account.',
    quiet: { [of('oldest_waiting_seconds', 'state="recorded"')]: always(500) },
  },
  {
    alert: 'PartnerIngestMailsWaiting',
    fires: {
      [of('oldest_waiting_seconds', 'state="account_created"')]: '5+0x85 7200+0x4',
      [of('records', 'state="account_created"')]: '30+0x85 400+0x4',
    },
    says: 'The oldest has waited 2h 0m 0s.',
    severity: 'warning',
    alsoFires: {
      'for more than four hours': {
        fires: {
          [of('oldest_waiting_seconds', 'state="account_created"')]: '5+0x85 18000+0x4',
          [of('records', 'state="account_created"')]: '30+0x85 400+0x4',
        },
        says: 'The oldest has waited 5h 0m 0s.',
        severity: 'critical',
      },
      ...Object.fromEntries(
        Object.entries({
          'one, while the relay is away': {
            ...ONE_WAITS,
            [of('worker_paused', 'waits_for="relay"')]: '0+0x86 1 0 1 0',
          },
          'three, and none has been taken': {
            ...ONE_WAITS,
            [of('records', 'state="account_created"')]: always(3),
            [of('mails_total', 'result="accepted"')]: always(7),
          },
        }).map(([name, fires]) => [
          name,
          { fires, says: 'The oldest has waited 5h 0m 0s.', severity: 'critical' as const },
        ]),
      ),
    },
    // One applicant's mail server is away for days.
    quiet: {
      [of('oldest_waiting_seconds', 'state="account_created"')]: always(172_800),
      [of('mails_total', 'result="accepted"')]: rising(500),
    },
    alsoQuiet: { 'one, of ten a day': ONE_WAITS },
  },
  {
    alert: 'PartnerIngestWorkerPaused',
    fires: { [of('worker_paused', 'waits_for="relay"')]: '0+0x80 1+0x10' },
    labels: { waits_for: 'relay' },
    says: 'Accounts are made. Their e-mails wait, and no attempt is counted.',
    severity: 'warning',
    alsoFires: {
      'the database is away': {
        severity: 'critical',
        fires: { [of('worker_paused', 'waits_for="database"')]: '0+0x80 1+0x10' },
        labels: { waits_for: 'database' },
        says: 'Nothing is worked on until it takes writes again.',
      },
    },
    quiet: { [of('worker_paused', 'waits_for="relay"')]: '0+0x86 1+0x4' },
  },
  {
    alert: 'PartnerIngestDeadLetters',
    fires: { [of('outcomes_total', 'reason="transient",state="dead_lettered"')]: '5+0x85 8+0x4' },
    says: 'Applications given up within an hour: 3.',
    alsoFires: {
      'a lone one': {
        fires: { [of('outcomes_total', 'reason="crashed",state="dead_lettered"')]: '0+0x85 1+0x4' },
        says: 'Applications given up within an hour: 1.',
      },
    },
    // Many partners are known, and none is new.
    quiet: {
      [of('records', 'state="dead_lettered"')]: always(1_000),
      [of('outcomes_total', 'reason="transient",state="dead_lettered"')]: always(1_000),
    },
  },
  {
    alert: 'PartnerIngestReconcileRescues',
    fires: { [of('reconcile_requeued_total', 'component="processor"')]: '0+0x50 60+60x39' },
    says: '900 records in 15 minutes were queued again because no worker had them.',
    // Waiting e-mails are not in the queue.
    alsoFires: {
      'e-mails wait for the relay at times': {
        fires: {
          [of('reconcile_requeued_total', 'component="processor"')]: '0+0x50 60+60x39',
          [of('worker_paused', 'waits_for="relay"')]: '0+0x70 1+0x12 0+0x8',
        },
        says: '900 records in 15 minutes were queued again because no worker had them.',
      },
    },
    // The same number at once, after an outage.
    quiet: { [of('reconcile_requeued_total', 'component="processor"')]: '0+0x75 900+0x15' },
    // Each of these failures has its own alert or recovers by itself.
    alsoQuiet: {
      'the workers were paused': {
        [of('reconcile_requeued_total', 'component="processor"')]: rising(60),
        [of('worker_paused', 'waits_for="database"')]: '0+0x79 1+0x7 0+0x4',
      },
      'Redis was away': {
        [of('reconcile_requeued_total', 'component="processor"')]: rising(60),
        [of('limiter_fallback', 'pod="ingest-1"')]: '0+0x79 1+0x7 0+0x4',
      },
      'a processor starts again and again': {
        [of('reconcile_requeued_total', 'component="processor"')]: rising(60),
        [start('processor', 'processor-1')]: '1000+0x70 2000+0x10 3000+0x10',
      },
      'an ingest starts again and again, each time without hinting what it stored last': {
        [of('reconcile_requeued_total', 'component="processor"')]: rising(60),
        [start('ingest', 'ingest-1')]: '1000+0x70 2000+0x10 3000+0x10',
      },
    },
  },
  {
    alert: 'PartnerIngestSenderRefused',
    fires: { [of('sender_refused', 'component="processor"')]: '0+0x70 1+0x20' },
    says: 'It refuses before it knows the recipient. All e-mails wait, and no attempt is counted.',
    quiet: { [of('failures_total', 'class="transient",step="mail"')]: rising(5) },
  },
  {
    alert: 'PartnerIngestMailsBlamed',
    fires: { [of('failures_total', 'class="ours",step="mail"')]: '0+0x70 60+0x20' },
    says: '60 hand-overs in 30 minutes were refused with an answer that blames us.',
    // A few refusals come from one recipient's domain.
    quiet: { [of('failures_total', 'class="ours",step="mail"')]: '0+0x70 5+0x20' },
  },
  {
    alert: 'PartnerIngestMailsDeclined',
    fires: { [of('failures_total', 'class="throttled",step="mail"')]: '0+0x30 1+1x59' },
    says: 'It said "later" 30 times in 30 minutes, and took none.',
    // The relay takes the other e-mails.
    quiet: {
      [of('failures_total', 'class="throttled",step="mail"')]: '0+0x30 1+1x59',
      [of('mails_total', 'result="accepted"')]: '0+0x80 1+0x9',
    },
  },
  {
    alert: 'PartnerIngestMailsUndeliverable',
    fires: { [of('outcomes_total', 'state="undeliverable"')]: rising(100) },
    says: '16.67% of the e-mails of the last hour were refused for good.',
    // The refused share is large, but of few e-mails.
    quiet: {
      [of('outcomes_total', 'state="completed"')]: always(0),
      [of('outcomes_total', 'state="undeliverable"')]: '0+0x80 4+0x10',
    },
  },
  {
    alert: 'PartnerIngestMailsBounced',
    fires: { [of('bounced_mails', '')]: always(20) },
    says: '20 e-mails were reported as bounced in the last 24 hours; their applicants have no link.',
    quiet: { [of('bounced_mails', '')]: always(19) },
  },
  {
    alert: 'PartnerIngestLimiterFallback',
    fires: { [of('limiter_fallback', 'pod="ingest-1"')]: '0+0x80 1+0x10' },
    labels: { pod: 'ingest-1' },
    says: 'ingest-1 counts requests on its own: an address may send its limit to each pod.',
    quiet: { [of('limiter_fallback', 'pod="ingest-1"')]: '0+0x86 1+0x4' },
  },
  {
    alert: 'PartnerIngestKeysStale',
    fires: { [of('keys_refreshed_timestamp_seconds', 'pod="ingest-1"')]: '0+60x70 4200+0x20' },
    labels: { pod: 'ingest-1' },
    says: 'New keys are refused and revoked ones accepted: last read 20m 0s ago.',
    severity: 'warning',
    quiet: { [of('keys_refreshed_timestamp_seconds', 'pod="ingest-1"')]: '0+60x86 5160+0x4' },
    alsoQuiet: {
      'a pod that never had keys serves nobody': {
        [of('keys_refreshed_timestamp_seconds', 'pod="ingest-2"')]: always(0),
      },
    },
    alsoFires: {
      'for more than an hour': {
        fires: { [of('keys_refreshed_timestamp_seconds', 'pod="ingest-1"')]: '0+60x10 600+0x80' },
        labels: { pod: 'ingest-1' },
        severity: 'critical',
        says: 'New keys are refused and revoked ones accepted: last read 1h 20m 0s ago.',
      },
      'the controller alone is late': {
        severity: 'warning',
        fires: { [of('keys_synced_timestamp_seconds', 'pod="controller-1"')]: '0+60x70 4200+0x20' },
        says: 'New keys are refused and revoked ones accepted: last read 20m 0s ago.',
      },
    },
  },
  {
    alert: 'PartnerIngestSecretProblems',
    fires: { [of('secret_problems', 'problem="empty_key"')]: '0+0x82 1+0x8' },
    labels: { problem: 'empty_key' },
    says: '1 with the problem empty_key.',
    quiet: { [of('secret_problems', 'problem="empty_key"')]: '0+0x86 1+0x4' },
  },
  {
    alert: 'PartnerIngestUntrustedProxy',
    fires: { [of('untrusted_forwarded_for_total', 'pod="ingest-1"')]: '0+0x70 590+590x19' },
    says: 'Most requests come through a proxy that is not in trustedProxies, or that names no address.',
    // A few partners send the header themselves.
    quiet: { [of('untrusted_forwarded_for_total', 'pod="ingest-1"')]: rising(100) },
  },
];
