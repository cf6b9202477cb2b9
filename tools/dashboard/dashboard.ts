/**
 * The dashboard of the service: what an SRE looks at, in the order of the questions asked at 3 a.m.
 */
/* oxlint-disable typescript/no-unsafe-enum-assignment -- Grafana has two enums of each of these names, and exports one */
import {
  DashboardCursorSync,
  VariableHide,
  VariableRefresh,
  VariableSort,
  type Dashboard,
} from '@grafana/schema';
import { layOut, type PanelSpec, type Query, type RowSpec } from './panel.ts';

/** The chart's default; the chart puts `metrics.prometheusRule.sloPercent` in its place. */
const SLO_PERCENT = 99.9;
/** Chosen at the top of the board. */
const IN = 'namespace="$namespace"';
const POD = `${IN},pod=~"$pod"`;

const query = (name: string, ask: string): Query => ({ name, ask });
const metric = (name: string, labels = ''): string =>
  `partner_ingest_${name}{${POD}${labels === '' ? '' : `,${labels}`}}`;
/** For metrics that one process shows for all; the choice of pods is ignored. */
const shared = (name: string): string => `partner_ingest_${name}{${IN}}`;
const rate = (name: string, labels?: string): string =>
  `rate(${metric(name, labels)}[$__rate_interval])`;
const sumRate = (by: string, name: string, labels?: string): string =>
  `sum by (${by}) (${rate(name, labels)})`;
const quantile = (q: number, name: string): string =>
  `histogram_quantile(${q}, sum by (le) (${rate(`${name}_bucket`)}))`;
const quantiles = (name: string): Query[] => [
  query('half', quantile(0.5, name)),
  query('95 %', quantile(0.95, name)),
  query('99 %', quantile(0.99, name)),
];
const lines = (
  title: string,
  unit: string,
  about: string,
  queries: readonly Query[],
  more: Partial<PanelSpec> = {},
): PanelSpec => ({ kind: 'timeseries', title, unit, about, queries, ...more });
const stat = (
  title: string,
  unit: string,
  about: string,
  ask: string,
  more: Partial<PanelSpec> = {},
): PanelSpec => ({
  kind: 'stat',
  title,
  unit,
  about,
  queries: [query(title, ask)],
  ...more,
});

/** Share of submissions within the promise, over `window`. */
const promiseKept = (window: string): string =>
  `sum(rate(${metric('accept_seconds_bucket', 'le="1"')}[${window}])) / (sum(rate(${metric('accept_seconds_count')}[${window}])) + sum(rate(${metric('requests_total', 'status="500"')}[${window}])))`;
const FIRING = `ALERTS{${IN},alertname=~"PartnerIngest.*",alertstate="firing"}`;

/** What stands on the board, from top to bottom. */
export const dashboardRows: readonly RowSpec[] = [
  {
    title: 'In one look',
    open: true,
    panels: [
      stat(
        'Promise kept now',
        'percentunit',
        'Share of submissions recorded within 1 s and not answered 500, in the last 5 minutes. Empty without submissions.',
        promiseKept('5m'),
        { badBelow: 0.999, decimals: 2 },
      ),
      stat(
        'Traffic now',
        'reqps',
        'Requests of the last 5 minutes, of every answer. None may be a fault in front of ingest.',
        `sum(rate(${metric('requests_total')}[5m]))`,
        { decimals: 1 },
      ),
      stat(
        'Finished now',
        'ops',
        'Applications that reached their end in the last 5 minutes, most of them with an e-mail.',
        `sum(rate(${metric('outcomes_total', 'state=~"completed|rejected|undeliverable"')}[5m]))`,
        { decimals: 1 },
      ),
      stat(
        'Longest wait',
        's',
        'How long the application that has waited longest has been waiting.',
        `max(${shared('oldest_waiting_seconds')})`,
        { bad: 600 },
      ),
      stat(
        'Alerts firing',
        'short',
        "Their names are below. Needs the chart's rules.",
        `count(${FIRING}) or vector(0)`,
        { bad: 1 },
      ),
      stat('Leaders', 'short', 'Exactly one controller leads.', `sum(${shared('leader')})`, {
        good: 1,
      }),
      stat(
        'Work that waits',
        'short',
        'Processors waiting for the database, or their mails for the relay.',
        `sum(${metric('worker_paused')})`,
        { bad: 1 },
      ),
      stat(
        'Dead letters',
        'short',
        'Given up; somebody must look. `partner-ingest find --state dead_lettered`',
        `max(${shared('records').replace('}', ',state="dead_lettered"}')})`,
        { bad: 1 },
      ),
      stat(
        'Kept on hold',
        'short',
        'Records of partners that an operator holds: they wait on purpose.',
        `max(${shared('records_on_hold')})`,
      ),
      stat(
        'Pods limiting alone',
        'short',
        'Pods that count requests in their own memory because Redis is away or slow.',
        `sum(${metric('limiter_fallback')})`,
        { bad: 1 },
      ),
      stat('Promise kept', 'percentunit', 'As now, over the time shown.', promiseKept('$__range'), {
        badBelow: 0.999,
        decimals: 3,
      }),
      stat(
        'Error budget left',
        'percentunit',
        "Of 30 days, as far as Prometheus remembers: 100 % is untouched, below 0 the promise is broken. Needs the chart's rules.",
        `1 - sum_over_time(partner_ingest:broken_promise:increase1h{${IN}}[30d:1h]) / sum_over_time(partner_ingest:submissions:increase1h{${IN}}[30d:1h]) / (1 - $slo / 100)`,
        { badBelow: 0, decimals: 1 },
      ),
      {
        kind: 'table',
        title: 'What fires',
        unit: 'short',
        about: "The runbook of that name says what to do. Needs the chart's rules.",
        queries: [query('series', `count by (severity, alertname) (${FIRING})`)],
      },
      {
        kind: 'table',
        title: 'Who is affected',
        unit: 'short',
        about:
          'By partner: requests, those without a 202 in 15 minutes, and records with work ahead.',
        queries: [
          query(
            'requests a minute',
            `60 * sum by (partner) (rate(${metric('partner_requests_total')}[5m]))`,
          ),
          query(
            'without 202, 15 minutes',
            `sum by (partner) (increase(${metric('partner_requests_total', 'status!="202"')}[15m]))`,
          ),
          query('waiting', `max by (partner) (${shared('partner_records')})`),
        ],
      },
      lines(
        'Traffic',
        'reqps',
        'By answer: 202 accepted, 400 malformed, 401 and 403 refused, 429 over the limit, 500 not accepted.',
        [query('{{status}}', sumRate('status', 'requests_total'))],
        { stacked: true },
      ),
    ],
  },
  {
    title: 'Ingest: what partners see',
    panels: [
      {
        kind: 'heatmap',
        title: 'Time to accept',
        unit: 's',
        about: 'From request headers to the durable answer. The promise is below 1 s.',
        queries: [query('{{le}}', sumRate('le', 'accept_seconds_bucket'))],
      },
      lines(
        'Time to accept, quantiles',
        's',
        'The promise is below 1 s.',
        quantiles('accept_seconds'),
        { bad: 1 },
      ),
      lines(
        'Records in a batch',
        'short',
        'Grows with load: that is what keeps the time to accept flat.',
        [
          query(
            'mean',
            `sum(${rate('batch_documents_sum')}) / sum(${rate('batch_documents_count')})`,
          ),
          query('95 %', quantile(0.95, 'batch_documents')),
        ],
      ),
      lines(
        'Time to commit a batch',
        's',
        'The database, as ingest sees it.',
        quantiles('commit_seconds'),
      ),
      lines('Not accepted', 'reqps', 'Why records were not made durable; each is a 500.', [
        query('{{reason}}', sumRate('reason', 'not_accepted_total')),
      ]),
      lines(
        'Waiting to be written',
        'short',
        'In each pod; beyond 10,000 new requests get a 500 at once.',
        [
          query('{{pod}}', `sum by (pod) (${metric('waiting_documents')})`),
          query('to withdraw {{pod}}', `sum by (pod) (${metric('withdrawals_pending')})`),
        ],
      ),
      lines(
        'Withdrawals',
        'reqps',
        'Records answered 500 while in doubt. `too_late` and `abandoned` break a promise.',
        [query('{{result}}', sumRate('result', 'withdrawals_total'))],
      ),
      lines(
        'Idempotency keys',
        'reqps',
        'Requests whose key was bound already: sent again, or with another body.',
        [query('{{result}}', sumRate('result', 'idempotency_keys_total'))],
      ),
      lines('Rate limit', 'reqps', '`local` means without Redis: each pod counts on its own.', [
        query('{{store}} {{decision}}', sumRate('store, decision', 'limiter_decisions_total')),
      ]),
      lines(
        'Broken and odd requests',
        'reqps',
        'No HTTP, too slow, too large; and X-Forwarded-For of unknown proxies.',
        [
          query('{{kind}}', sumRate('kind', 'broken_http_total')),
          query('untrusted X-Forwarded-For', `sum(${rate('untrusted_forwarded_for_total')})`),
          query('refused, record dropped', `sum(${rate('refused_dropped_total')})`),
        ],
      ),
      lines(
        'Queue hints',
        'reqps',
        'A failed or dropped hint costs the application some seconds, nothing else.',
        [query('{{result}}', sumRate('result', 'hints_total'))],
      ),
      lines(
        'API keys held',
        'short',
        'In each pod; the same everywhere, and what the Secrets ask for.',
        [
          query('{{pod}}', `sum by (pod) (${metric('keys')})`),
          query('wanted', `max(${shared('keys_wanted')})`),
        ],
      ),
    ],
  },
  {
    title: 'The work: from record to e-mail',
    panels: [
      lines(
        'Waiting records',
        'short',
        'By state; dead letters and bounced e-mails wait for a person.',
        [
          query('{{state}}', `max by (state) (${shared('records')})`),
          query('bounced in 24 hours', `max(${shared('bounced_mails')})`),
        ],
      ),
      lines(
        'Longest wait',
        's',
        'Since it was received. `recorded` waits for its account, `account_created` for its e-mail.',
        [query('{{state}}', `max by (state) (${shared('oldest_waiting_seconds')})`)],
      ),
      lines('Jobs in the queue', 'short', 'Hints of new applications.', [
        query('{{state}}', `max by (state) (${shared('queue_jobs')})`),
      ]),
      lines(
        'Outcomes',
        'ops',
        'Moves into a state, with the first reason.',
        [query('{{state}} {{reason}}', sumRate('state, reason', 'outcomes_total'))],
        { stacked: true },
      ),
      lines('E-mails', 'ops', 'Hand-overs to the relay, by result.', [
        query('{{result}}', sumRate('result', 'mails_total')),
        query('possibly a second one, {{cause}}', sumRate('cause', 'possible_second_mails_total')),
      ]),
      lines(
        'Time of the relay',
        's',
        'To its last answer about an e-mail, 95 %, by result. A slow relay limits the rate.',
        [
          query(
            '{{result}}',
            `histogram_quantile(0.95, ${sumRate('le, result', 'hand_over_seconds_bucket')})`,
          ),
        ],
      ),
      lines('From request to e-mail', 's', 'Of those mailed now.', quantiles('completion_seconds')),
      lines('Attempts', 'ops', 'A repeat found the work done; a lost claim left it to another.', [
        query('{{step}} {{result}}', sumRate('step, result', 'attempts_total')),
      ]),
      lines('Failures', 'ops', '`ours`: our sender, settings or relay policy was refused.', [
        query('{{step}} {{class}}', sumRate('step, class', 'failures_total')),
        query('sender refused (pods)', `sum(${metric('sender_refused')})`),
      ]),
      lines(
        'Healing',
        'ops',
        'Records that reconcile queued again, and duplicate inserts that a unique index decided.',
        [
          query('queued again', `sum(${rate('reconcile_requeued_total')})`),
          query('duplicate {{found}}', sumRate('found', 'duplicate_keys_total')),
          query('not understood', `max(${metric('reconcile_unknown_records')})`),
        ],
      ),
    ],
  },
  {
    title: 'Partners',
    panels: [
      lines('On hold', 'short', 'Partners that operators have on hold.', [
        query('partners', `max(${metric('partners_held')})`),
      ]),
      lines(
        'Requests by partner',
        'reqps',
        'Of known partners, by status; without those over the limit of an address.',
        [query('{{partner}} {{status}}', sumRate('partner, status', 'partner_requests_total'))],
      ),
      lines('Outcomes by partner', 'ops', 'Moves into a state, with the first reason.', [
        query(
          '{{partner}} {{state}} {{reason}}',
          sumRate('partner, state, reason', 'partner_outcomes_total'),
        ),
      ]),
      lines(
        'Backlog by partner',
        'short',
        'Records with work ahead, of the 20,000 that are found first.',
        [query('{{partner}}', `max by (partner) (${shared('partner_records')})`)],
      ),
      lines(
        'Refused',
        'short',
        'In 15 minutes, and what is usual; and requests with a key that was removed.',
        [
          query(
            '{{status}}',
            `sum by (status) (increase(${metric('requests_total', 'status=~"401|403|429"')}[15m]))`,
          ),
          query(
            'usual {{status}}',
            `sum by (status) (increase(${metric('requests_total', 'status=~"401|403|429"')}[6h])) / 24`,
          ),
          query(
            '{{because}}',
            `sum by (because) (increase(${metric('keys_out_of_terms_total')}[15m]))`,
          ),
          query('removed key', `sum(increase(${metric('removed_key_uses_total')}[15m]))`),
        ],
      ),
    ],
  },
  {
    title: 'Keys and the controller',
    panels: [
      lines(
        'Age of the keys',
        's',
        'Ingest asks for changes every 500 ms, the controller compares all every 60 s.',
        [
          query(
            'held by {{pod}}',
            `time() - max by (pod) (${metric('keys_refreshed_timestamp_seconds')} > 0)`,
          ),
          query('synced', `time() - max(${shared('keys_synced_timestamp_seconds')} > 0)`),
          query('Secrets seen', `time() - max(${shared('secrets_seen_timestamp_seconds')} > 0)`),
          query('backlog read', `time() - max(${shared('backlog_read_timestamp_seconds')} > 0)`),
        ],
      ),
      lines(
        'Partner Secrets',
        'ops',
        'Lists and watches of the Kubernetes API; a watch that ends is begun anew.',
        [
          query(
            'list {{result}}',
            `sum by (result) (rate(${shared('secret_lists_total')}[$__rate_interval]))`,
          ),
          query(
            'watch {{result}}',
            `sum by (result) (rate(${shared('secret_watches_total')}[$__rate_interval]))`,
          ),
          query(
            'Event {{result}}',
            `sum by (result) (rate(${shared('secret_events_total')}[$__rate_interval]))`,
          ),
        ],
      ),
      lines(
        'Changes of keys',
        'ops',
        'Keys of another installation are left alone: see the problems of Secrets.',
        [
          query(
            '{{change}}',
            `sum by (change) (rate(${shared('key_changes_total')}[$__rate_interval]))`,
          ),
        ],
      ),
      lines('Secrets to mend', 'short', 'Also as Events of the Secret.', [
        query('{{problem}}', `sum by (problem) (${shared('secret_problems')}) or vector(0)`),
        query(
          'partners whose last key ends',
          `max(${shared('partners_keys_ending')}) or vector(0)`,
        ),
        query('removals deferred', `max(${shared('deferred_removals')}) or vector(0)`),
      ]),
    ],
  },
  {
    title: 'Saturation, by pod',
    panels: [
      lines('Event loop lag, 99 %', 's', 'Above 0.1 s partners feel it.', [
        query('{{pod}}', `max by (pod) (nodejs_eventloop_lag_p99_seconds{${POD}})`),
      ]),
      lines(
        'Clock offset',
        's',
        "From the database's clock, either way; beyond 5 s a processor takes no work.",
        [query('{{pod}}', `max by (pod) (abs(partner_ingest_clock_offset_seconds{${POD}}))`)],
      ),
      lines('CPU', 'short', 'Cores.', [
        query(
          '{{pod}}',
          `sum by (pod) (rate(process_cpu_seconds_total{${POD}}[$__rate_interval]))`,
        ),
      ]),
      lines('Time in garbage collection', 'percentunit', 'Share of a core.', [
        query(
          '{{pod}}',
          `sum by (pod) (rate(nodejs_gc_duration_seconds_sum{${POD}}[$__rate_interval]))`,
        ),
      ]),
      lines('Memory', 'bytes', 'Resident; the limit of the pod is in its manifest.', [
        query('{{pod}}', `sum by (pod) (process_resident_memory_bytes{${POD}})`),
      ]),
      lines('Heap in use', 'bytes', 'A saw that climbs over hours is a leak.', [
        query('{{pod}}', `sum by (pod) (nodejs_heap_size_used_bytes{${POD}})`),
      ]),
      lines(
        'Sockets',
        'short',
        'Open connections of every kind, and files open of those allowed.',
        [
          query('{{pod}}', `sum by (pod) (nodejs_active_resources{${POD},type=~"TCP.*Wrap"})`),
          query(
            'busiest, share of files',
            `max(process_open_fds{${POD}} / process_max_fds{${POD}})`,
          ),
        ],
      ),
      lines(
        'Pods',
        'short',
        'Running, and the most that the autoscaler may start (kube-state-metrics tells that).',
        [
          query(
            '{{component}}',
            `count by (component) (process_start_time_seconds{${IN},component=~".+"})`,
          ),
          ...(['ingest', 'processor'] as const).map((component) =>
            query(
              `most of ${component}`,
              `max(kube_horizontalpodautoscaler_spec_max_replicas{${IN},horizontalpodautoscaler=~".*-${component}"})`,
            ),
          ),
        ],
      ),
      lines('Restarts', 'short', 'Starts of the process in a pod within 15 minutes.', [
        query('{{pod}}', `max by (pod) (changes(process_start_time_seconds{${POD}}[15m]))`),
      ]),
      lines('Running since', 's', 'A line that falls to zero is a restart.', [
        query('{{pod}}', `time() - max by (pod) (process_start_time_seconds{${POD}})`),
      ]),
    ],
  },
];

/** Grafana's dashboard model, as the chart ships it. */
export const dashboard: Dashboard = {
  uid: 'partner-ingest',
  title: 'partner-ingest',
  description:
    'Are applications accepted, processed and mailed, and how far behind? Generated by `make docs`.',
  tags: ['partner-ingest'],
  editable: true,
  schemaVersion: 39,
  graphTooltip: DashboardCursorSync.Crosshair,
  refresh: '30s',
  time: { from: 'now-1h', to: 'now' },
  timezone: 'browser',
  annotations: {
    list: [
      {
        name: 'Alerts',
        enable: true,
        iconColor: 'red',
        datasource: { type: 'prometheus', uid: '${datasource}' },
        target: {
          refId: 'A',
          expr: FIRING,
        } as never,
      },
    ],
  },
  templating: {
    list: [
      {
        type: 'datasource',
        name: 'datasource',
        label: 'Data source',
        query: 'prometheus',
        current: { text: 'default', value: 'default' },
        hide: VariableHide.dontHide,
      },
      choice('namespace', 'Namespace', 'label_values(partner_ingest_leader, namespace)'),
      {
        type: 'constant',
        name: 'slo',
        label: 'Promise in percent',
        query: String(SLO_PERCENT),
        current: { text: String(SLO_PERCENT), value: String(SLO_PERCENT) },
        hide: VariableHide.hideVariable,
      },
      {
        ...choice(
          'pod',
          'Pod',
          `label_values(process_start_time_seconds{${IN},component=~".+"}, pod)`,
        ),
        ...all(),
      },
    ],
  },
  panels: layOut(dashboardRows),
};

function choice(name: string, label: string, ask: string) {
  const datasource = { type: 'prometheus', uid: '${datasource}' };
  // Pods come and go.
  const refresh = VariableRefresh.onTimeRangeChanged;
  return {
    type: 'query' as const,
    name,
    label,
    datasource,
    query: { query: ask, refId: name },
    refresh,
    sort: VariableSort.alphabeticalAsc,
    hide: VariableHide.dontHide,
  };
}

function all() {
  return {
    multi: true,
    includeAll: true,
    allValue: '.*',
    current: { text: 'All', value: '$__all' },
  };
}

/** Every query of the board, with the panel it belongs to. */
export function dashboardQueries(): { readonly panel: PanelSpec; readonly query: Query }[] {
  return dashboardRows.flatMap(({ panels }) =>
    panels.flatMap((panel) => panel.queries.map((one) => ({ panel, query: one }))),
  );
}
