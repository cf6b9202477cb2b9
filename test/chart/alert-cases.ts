/** For each alert what makes it fire, and what is near to that but healthy; everything else is as in `healthy`. */

/** Values of series from minute to minute, in promtool's notation (`0+60x180`: from 0, 60 more each minute). */
export type SeriesValues = Readonly<Record<string, string>>;

export interface AlertCase {
  readonly alert: string;
  readonly fires: SeriesValues;
  /** Labels of the alert beside its name, severity and namespace. */
  readonly labels?: Readonly<Record<string, string>>;
  /** The description, word for word. */
  readonly says: string;
  readonly quiet: SeriesValues;
}

/** A little more than the longest window that a case needs. */
const MINUTES = 90;
const always = (value: number): string => `${value}+0x${MINUTES}`;
/** So much more each minute. */
const rising = (perMinute: number): string => `0+${perMinute}x${MINUTES}`;
/** Nothing until minute 30, then so much more each minute. */
const risingLate = (perMinute: number): string => `0+0x30 ${perMinute}+${perMinute}x${MINUTES - 31}`;
/** Gone: no sample at all. */
const none = `_x${MINUTES}`;

const start = (component: string, pod: string): string =>
  `process_start_time_seconds{component="${component}",pod="${pod}"}`;
const lag = (pod: string): string => `nodejs_eventloop_lag_p99_seconds{component="ingest",pod="${pod}"}`;
const of = (name: string, labels: string): string => `partner_ingest_${name}{${labels}}`;

/** A system under a steady 600 requests a minute, seen for an hour and a half. */
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
  // Evaluated at minute n, these are the present time.
  [of('keys_refreshed_timestamp_seconds', 'pod="ingest-1"')]: rising(60),
  [of('keys_synced_timestamp_seconds', 'pod="controller-1"')]: rising(60),
  [of('leader', 'pod="controller-1"')]: always(1),
  [of('leader', 'pod="controller-2"')]: always(0),
  [of('oldest_waiting_seconds', 'state="recorded"')]: always(3),
  [of('oldest_waiting_seconds', 'state="account_created"')]: always(5),
  [of('records', 'state="recorded"')]: always(20),
  [of('records', 'state="account_created"')]: always(30),
  [of('records', 'state="dead_lettered"')]: always(0),
  [of('worker_paused', 'queue="applications"')]: always(0),
  [of('worker_paused', 'queue="notifications"')]: always(0),
  [of('reconcile_requeued_total', 'state="recorded"')]: rising(1),
  [of('failures_total', 'class="ours",queue="notifications"')]: always(0),
  [of('outcomes_total', 'state="completed"')]: rising(500),
  [of('outcomes_total', 'state="undeliverable"')]: rising(2),
};

export const cases: readonly AlertCase[] = [
  {
    alert: 'PartnerIngestPromiseBurnsFast',
    fires: {
      [of('requests_total', 'status="500"')]: risingLate(30),
      [of('accept_seconds_count', 'pod="ingest-1"')]: rising(600),
    },
    says: '4.762% of submissions are answered 500 or take longer than 1 s.',
    // One short burst: over the hour it is next to nothing.
    quiet: { [of('requests_total', 'status="500"')]: `0+0x86 40+0x4` },
  },
  {
    alert: 'PartnerIngestPromiseBurnsSlowly',
    // 2 in 600 slower than a second: 3.3 times the budget, too slow a fire for the other alert.
    fires: { [of('accept_seconds_bucket', 'le="1",pod="ingest-1"')]: rising(598) },
    says: '0.3333% of submissions are answered 500 or take longer than 1 s.',
    quiet: { [of('accept_seconds_bucket', 'le="1",pod="ingest-1"')]: rising(599.7) },
  },
  {
    alert: 'PartnerIngestWithdrawalsFailed',
    fires: { [of('withdrawals_total', 'result="too_late"')]: '0+0x60 2+0x30' },
    labels: { result: 'too_late' },
    says: 'In the last hour 2 records answered 500 could not be withdrawn (too_late).',
    quiet: { [of('withdrawals_total', 'result="withdrawn"')]: rising(5) },
  },
  {
    alert: 'PartnerIngestProcessAbsent',
    fires: { [start('processor', 'processor-1')]: none },
    labels: { component: 'processor' },
    says: 'Prometheus reaches no processor pod.',
    // One of two is gone.
    quiet: { [start('ingest', 'ingest-2')]: `5+0x30 _x60` },
  },
  {
    alert: 'PartnerIngestCrashLoop',
    fires: { [start('ingest', 'ingest-1')]: '1000+0x78 2000 2000 3000 3000 4000 4000 5000 5000 5000 5000 5000 5000' },
    labels: { component: 'ingest', pod: 'ingest-1' },
    says: 'ingest-1 has been started 4 times in 15 minutes.',
    quiet: { [start('ingest', 'ingest-1')]: '1000+0x80 2000+0x4 3000+0x4' },
  },
  {
    alert: 'PartnerIngestEventLoopLag',
    fires: { [lag('ingest-1')]: always(0.5) },
    labels: { component: 'ingest', pod: 'ingest-1' },
    says: 'One in a hundred turns of ingest-1 comes 500ms late.',
    // For five minutes only.
    quiet: { [lag('ingest-1')]: '0.01+0x84 0.5+0x5' },
  },
  {
    alert: 'PartnerIngestLeaderAbsent',
    fires: { [of('leader', 'pod="controller-1"')]: always(0) },
    says: 'Changes of partner keys do not take effect, and nobody reads the backlog.',
    // The standby has taken over.
    quiet: {
      [of('leader', 'pod="controller-1"')]: '1+0x10 0+0x80',
      [of('leader', 'pod="controller-2"')]: '0+0x10 1+0x80',
    },
  },
  {
    alert: 'PartnerIngestApplicationsWaiting',
    fires: { [of('oldest_waiting_seconds', 'state="recorded"')]: always(900) },
    says: 'The oldest has waited 15m 0s for its account.',
    quiet: { [of('oldest_waiting_seconds', 'state="recorded"')]: always(500) },
  },
  {
    alert: 'PartnerIngestMailsWaiting',
    fires: {
      [of('oldest_waiting_seconds', 'state="account_created"')]: always(7_200),
      [of('records', 'state="account_created"')]: always(400),
    },
    says: 'The oldest has waited 2h 0m 0s.',
    // One applicant's mail server is away for days.
    quiet: { [of('oldest_waiting_seconds', 'state="account_created"')]: always(172_800) },
  },
  {
    alert: 'PartnerIngestWorkerPaused',
    fires: { [of('worker_paused', 'queue="notifications"')]: '0+0x80 1+0x10' },
    labels: { queue: 'notifications' },
    says: 'For applications that is MongoDB, for notifications MongoDB or the mail relay.',
    quiet: { [of('worker_paused', 'queue="notifications"')]: '0+0x86 1+0x4' },
  },
  {
    alert: 'PartnerIngestDeadLetters',
    fires: { [of('records', 'state="dead_lettered"')]: always(3) },
    says: '3 applications wait for a person.',
    quiet: { [of('records', 'state="dead_lettered"')]: '3+0x10 0+0x80' },
  },
  {
    alert: 'PartnerIngestReconcileRescues',
    fires: { [of('reconcile_requeued_total', 'state="recorded"')]: rising(60) },
    says: '900 records in 15 minutes were queued again because nobody worked on them.',
    // As many at once, after an outage.
    quiet: { [of('reconcile_requeued_total', 'state="recorded"')]: '0+0x75 900+0x15' },
  },
  {
    alert: 'PartnerIngestSenderRefused',
    fires: { [of('failures_total', 'class="ours",queue="notifications"')]: '0+0x70 5+0x20' },
    says: '5 hand-overs in 30 minutes failed through a fault of ours; no attempt is counted.',
    quiet: { [of('failures_total', 'class="transient",queue="notifications"')]: rising(5) },
  },
  {
    alert: 'PartnerIngestMailsUndeliverable',
    fires: { [of('outcomes_total', 'state="undeliverable"')]: rising(100) },
    says: '16.67% of the e-mails of the last hour were refused for good.',
    // A large share of very few.
    quiet: {
      [of('outcomes_total', 'state="completed"')]: always(0),
      [of('outcomes_total', 'state="undeliverable"')]: '0+0x80 4+0x10',
    },
  },
  {
    alert: 'PartnerIngestSecondMails',
    fires: { [of('possible_second_mails_total', 'cause="ambiguous_data"')]: '0+0x60 30+0x30' },
    labels: { cause: 'ambiguous_data' },
    says: 'In the last hour 30 e-mails may have been second ones (ambiguous_data).',
    // An operator wanted them.
    quiet: { [of('possible_second_mails_total', 'cause="resent"')]: '0+0x60 30+0x30' },
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
    quiet: { [of('keys_refreshed_timestamp_seconds', 'pod="ingest-1"')]: '0+60x86 5160+0x4' },
  },
  {
    alert: 'PartnerIngestSecretProblems',
    fires: { [of('secret_problems', 'problem="empty_key"')]: always(1) },
    labels: { problem: 'empty_key' },
    says: '1 with the problem empty_key.',
    quiet: { [of('secret_problems', 'problem="empty_key"')]: '1+0x80 _x10' },
  },
  {
    alert: 'PartnerIngestUntrustedProxy',
    fires: { [of('untrusted_forwarded_for_total', 'pod="ingest-1"')]: rising(590) },
    says: 'Most requests come through a proxy that is not in trustedProxies.',
    // A few partners send the header themselves.
    quiet: { [of('untrusted_forwarded_for_total', 'pod="ingest-1"')]: rising(100) },
  },
];
