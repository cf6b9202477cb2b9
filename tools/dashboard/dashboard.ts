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
import { PREFIX, type Definition } from '../../internal/telemetry/definition.ts';
import { definitions } from '../../internal/telemetry/metrics.ts';
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

type Known = Definition & { readonly process: string };
const known = new Map(
  Object.entries(definitions).flatMap(([process, table]) =>
    Object.values(table).map((one: Definition): [string, Known] => [
      one.name.replace(PREFIX, ''),
      { ...one, process },
    ]),
  ),
);

/** A panel of metrics, each asked as its kind wants it, with what they say of themselves. */
function measured(
  title: string,
  unit: string,
  names: string,
  { about, ...more }: Partial<PanelSpec> = {},
): PanelSpec {
  const shown = names.split(' ').map((name) => {
    const one = known.get(name);
    if (one === undefined) throw new Error(`no process has the metric ${name}`);
    return one;
  });
  const says = [...shown.map(({ help }) => help), ...(about === undefined ? [] : [about])];
  const queries = shown.flatMap((one) => queriesOf(one, shown.length > 1));
  return lines(title, unit, says.join(' '), queries, more);
}

function queriesOf({ name, kind, labels, process }: Known, hasNeighbours: boolean): Query[] {
  // What the controller that leads shows is of the whole system, not of its pod.
  const chosen = process === 'controller' ? IN : POD;
  const own = Object.keys(labels);
  const by = own.length > 0 || kind !== 'gauge' || process === 'controller' ? own : ['pod'];
  const grouped = by.length === 0 ? '' : ` by (${by.join(', ')})`;
  const short = name.replace(PREFIX, '').replace('_total', '').replaceAll('_', ' ');
  const legend = [
    ...(hasNeighbours || by.length === 0 ? [short] : []),
    ...by.map((label) => `{{${label}}}`),
  ].join(' ');
  switch (kind) {
    case 'histogram': {
      const buckets = `sum by (${['le', ...own].join(', ')}) (rate(${name}_bucket{${chosen}}[$__rate_interval]))`;
      return (own.length === 0 ? [0.5, 0.95, 0.99] : [0.95]).map((q) =>
        query(
          [...by.map((label) => `{{${label}}}`), `${q * 100} %`].join(' '),
          `histogram_quantile(${q}, ${buckets})`,
        ),
      );
    }
    case 'counter':
      return [query(legend, `sum${grouped} (rate(${name}{${chosen}}[$__rate_interval]))`)];
    case 'gauge':
      return name.endsWith('_timestamp_seconds')
        ? [query(legend, `time() - max${grouped} (${name}{${chosen}} > 0)`)]
        : [query(legend, `max${grouped} (${name}{${chosen}})`)];
  }
}

/** Share of submissions within the promise, over `window`. */
const promiseKept = (window: string): string =>
  `sum(rate(${metric('accept_seconds_bucket', 'le="1"')}[${window}])) / (sum(rate(${metric('accept_seconds_count')}[${window}])) + sum(rate(${metric('requests_total', 'status="500"')}[${window}])))`;
const FIRING = `ALERTS{${IN},alertname=~"PartnerIngest.*",alertstate="firing"}`;

/** What stands on the board, from top to bottom. */
const dashboardRows: readonly RowSpec[] = [
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
        [
          query(
            '{{status}}',
            `sum by (status) (rate(${metric('requests_total')}[$__rate_interval]))`,
          ),
        ],
        { stacked: true },
      ),
    ],
  },
  {
    title: 'Ingest: what partners see',
    panels: [
      measured('Time to accept', 's', 'accept_seconds', {
        about: 'The promise is below 1 s.',
        bad: 1,
      }),
      measured('Records in a batch', 'short', 'batch_documents', {
        about: 'They grow with load: that is what keeps the time to accept flat.',
      }),
      measured('Time to commit a batch', 's', 'commit_seconds'),
      measured('Not accepted', 'reqps', 'not_accepted_total', { about: 'Each is a 500.' }),
      measured('Waiting to be written', 'short', 'waiting_documents withdrawals_pending', {
        about: 'Beyond 10,000 in a pod new requests get a 500 at once.',
      }),
      measured('Withdrawals', 'reqps', 'withdrawals_total', {
        about: '`too_late` and `abandoned` break a promise.',
      }),
      measured('Idempotency keys', 'reqps', 'idempotency_keys_total'),
      measured('Rate limit', 'reqps', 'limiter_decisions_total', {
        about: '`local` means without Redis: each pod counts on its own.',
      }),
      measured(
        'Broken and odd requests',
        'reqps',
        'broken_http_total untrusted_forwarded_for_total refused_dropped_total',
      ),
      measured('Queue hints', 'reqps', 'hints_total', {
        about: 'A failed or dropped hint costs the application some seconds, nothing else.',
      }),
      measured('API keys held', 'short', 'keys keys_wanted', {
        about: 'The same in every pod, and what the Secrets ask for.',
      }),
    ],
  },
  {
    title: 'The work: from record to e-mail',
    panels: [
      measured('Waiting records', 'short', 'records bounced_mails', {
        about: 'Dead letters and bounced e-mails wait for a person.',
      }),
      measured('Longest wait', 's', 'oldest_waiting_seconds', {
        about: '`recorded` waits for its account, `account_created` for its e-mail.',
      }),
      measured('Jobs in the queue', 'short', 'queue_jobs'),
      measured('Outcomes', 'ops', 'outcomes_total', { stacked: true }),
      measured('E-mails', 'ops', 'mails_total possible_second_mails_total'),
      measured('Time of the relay', 's', 'hand_over_seconds', {
        about: 'A slow relay limits the rate.',
      }),
      measured('From request to e-mail', 's', 'completion_seconds'),
      measured('Attempts', 'ops', 'attempts_total'),
      measured('Failures', 'ops', 'failures_total sender_refused'),
      measured(
        'Healing',
        'ops',
        'reconcile_requeued_total duplicate_keys_total reconcile_unknown_records',
      ),
    ],
  },
  {
    title: 'Partners',
    panels: [
      measured('On hold', 'short', 'partners_held'),
      measured('Requests by partner', 'reqps', 'partner_requests_total'),
      measured('Outcomes by partner', 'ops', 'partner_outcomes_total'),
      measured('Backlog by partner', 'short', 'partner_records'),
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
      measured(
        'Age of the keys',
        's',
        'keys_refreshed_timestamp_seconds keys_synced_timestamp_seconds secrets_seen_timestamp_seconds backlog_read_timestamp_seconds',
        { about: 'Shown as ages: ingest asks every 500 ms, the controller compares every 60 s.' },
      ),
      measured(
        'Partner Secrets',
        'ops',
        'secret_lists_total secret_watches_total secret_events_total',
        {
          about: 'A watch that ends is started again.',
        },
      ),
      measured('Changes of keys', 'ops', 'key_changes_total', {
        about: 'Keys of another installation are left alone: see the problems of Secrets.',
      }),
      lines('Secrets with problems', 'short', 'By problem; also as Events of the Secret.', [
        query('{{problem}}', `sum by (problem) (${shared('secret_problems')}) or vector(0)`),
      ]),
      measured('Keys that end', 'short', 'partners_keys_ending deferred_removals'),
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
        multi: true,
        includeAll: true,
        allValue: '.*',
        current: { text: 'All', value: '$__all' },
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

/** Every query of the board, with the panel it belongs to. */
export function dashboardQueries(): { readonly panel: PanelSpec; readonly query: Query }[] {
  return dashboardRows.flatMap(({ panels }) =>
    panels.flatMap((panel) => panel.queries.map((one) => ({ panel, query: one }))),
  );
}
