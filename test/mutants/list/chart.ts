/** Mutants of the chart and of the alert rules. */
import { mutantsOf } from '../mutant.ts';

const TEMPLATES = 'charts/partner-ingest/templates';
const OPTIONS = 'test/chart/options.test.ts';
const RENDER = 'test/chart/render.test.ts';
const REFUSALS = 'test/chart/refusals.test.ts';
const VALUES = 'test/chart/values.test.ts';

export const chart = [
  ...mutantsOf(`${TEMPLATES}/ingest/deployment.yaml`, VALUES, [
    ['.Values.retention.malformedDays', '.Values.retention.withdrawnDays', 'malformed requests are kept too long'],
  ]),
  ...mutantsOf(`${TEMPLATES}/processor/deployment.yaml`, VALUES, [
    [
      '{{ .Values.smtp.supportContact | quote }}',
      '{{ ternary .Values.smtp.supportContact "" (ne .Values.smtp.fromName "") | quote }}',
      'mails say nothing of the support',
    ],
  ]),
  ...mutantsOf(`${TEMPLATES}/_deployment.tpl`, OPTIONS, [
    [
      'secretName: {{ .existingSecret }}, defaultMode: 0440',
      'secretName: {{ .existingSecret }}, defaultMode: 0444',
      'everybody in the pod can read the CA Secret',
    ],
    [
      'projected:\n    defaultMode: 0440',
      'projected:\n    defaultMode: 0444',
      'everybody in the pod reads credentials',
    ],
  ]),
  ...mutantsOf(`${TEMPLATES}/_deployment.tpl`, RENDER, [
    ['.drainSeconds | default 60) 5', '.preStopSeconds | default 0) 5', 'a pod is killed in the middle of its drain'],
    [
      'automountServiceAccountToken: {{ .apiToken | default false }}',
      'automountServiceAccountToken: true',
      'ingest and processor could talk to the API server',
    ],
    [
      'readinessProbe:\n  httpGet: { path: /readyz',
      'readinessProbe:\n  httpGet: { path: /livez',
      'a pod without keys gets requests',
    ],
  ]),
  ...mutantsOf(`${TEMPLATES}/networkpolicies.yaml`, OPTIONS, [
    ['ternary (list 1025) list', 'ternary (list 25) list', 'the first try cannot mail'],
    [
      '  ingress:\n    - from:\n        {{- list $ours | toYaml | nindent 8 }}',
      '  ingress:\n    - from: []',
      'anybody in the cluster reaches stores without a password',
    ],
  ]),
  ...mutantsOf(`${TEMPLATES}/controller/rbac.yaml`, OPTIONS, [
    ['"verbs" (list "get" "list" "watch")', '"verbs" (list "get" "list" "watch" "update")', 'Secrets could be changed'],
    [
      '(dict "namespace" . "rules" $secrets)',
      '(dict "namespace" $.Release.Namespace "rules" $secrets)',
      'no key is read',
    ],
  ]),
  ...mutantsOf(`${TEMPLATES}/controller/namespaces.yaml`, OPTIONS, [
    [
      'ternary dict (dict "helm.sh/resource-policy" "keep")',
      'ternary dict dict',
      'an uninstall deletes the Secrets of all partners',
    ],
  ]),
  ...mutantsOf(`${TEMPLATES}/ingest/service.yaml`, OPTIONS, [
    ['externalTrafficPolicy: Local', 'externalTrafficPolicy: Cluster', 'all partners share one rate limit'],
  ]),
  ...mutantsOf(`${TEMPLATES}/validate.yaml`, REFUSALS, [
    ['hasSuffix "/0" .', 'hasSuffix "/00" .', 'every client can choose the address it is limited by'],
    [
      '(empty $v.ingress.tls) (not $v.allowPlainHttp)',
      '(empty $v.ingress.tls) $v.allowPlainHttp',
      'keys travel in plain text',
    ],
  ]),
];

export const alerts = mutantsOf('charts/partner-ingest/files/alerts.yaml', 'test/chart/alerts.test.ts', [
  ['{$(in)}) != 1', '{$(in)}) < 1', 'two leaders raise no alert'],
  ['or absent(partner_ingest_leader{$(in)})', '', 'no controller at all raises no alert'],
  [
    'partner_ingest_keys_synced_timestamp_seconds{$(in)}) > $(keysStaleSeconds)',
    'partner_ingest_keys_synced_timestamp_seconds{$(in)}) > 10 * $(keysStaleSeconds)',
    'a controller that reads no keys raises no alert',
  ],
  ['for: 10m', 'for: 60m', 'a starved process is told an hour late'],
  ['for: 20m', 'for: 60m', 'lost work is told an hour late'],
  ['{$(in),cause!="resent"}', '{$(in)}', 'an operator who resends mails is woken'],
  ['ratio_rate1h{$(in)} > 14.4', 'ratio_rate1h{$(in)} > 144', 'broken promises go unnoticed for hours'],
  [
    'increase6h{$(in)} >= $(minimumBroken)',
    'increase6h{$(in)} >= 10 * $(minimumBroken)',
    'an outage of a small business wakes nobody',
  ],
]);
