{{/*
The Deployment of a component. Takes (dict "root" $ "component" "ingest"), and what is its own: "credentials" (list), "env"
(YAML text), "port" (beside the admin port), "preStopSeconds", "drainSeconds", "apiToken" (true: it talks to the Kubernetes API), "autoscaled",
"traced" (true: it sends traces), "volumes" and "volumeMounts" (YAML text).
*/}}
{{- define "partner-ingest.deployment" -}}
{{- $values := index .root.Values .component -}}
{{- $pod := mergeOverwrite (deepCopy .root.Values.pods) (deepCopy $values.pod) -}}
{{- /* Two placements that are merged are neither. */}}
{{- range $key := list "nodeSelector" "affinity" }}{{ if hasKey $values.pod $key }}{{ $_ := set $pod $key (get $values.pod $key) }}{{ end }}{{ end -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  {{- $replicas := include "partner-ingest.replicas" . }}
  {{- $mark := $replicas | empty | ternary (dict "partner-ingest.io/replicas" "autoscaler") dict }}
  {{- include "partner-ingest.metadata" (dict "root" .root "component" .component "annotations" (merge $mark ($values.annotations | default dict))) | nindent 2 }}
spec:
  {{- with $replicas }}
  replicas: {{ . }}
  {{- end }}
  revisionHistoryLimit: {{ .root.Values.revisionHistoryLimit | int64 }}
  {{- with $values.updateStrategy }}
  strategy:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  selector:
    matchLabels:
      {{- include "partner-ingest.selector" . | nindent 6 }}
  template:
    metadata:
      labels:
        {{- include "partner-ingest.podLabels" (dict "root" .root "component" .component "labels" $pod.labels) | nindent 8 }}
      annotations:
        {{- include "partner-ingest.podAnnotations" (dict "root" .root "component" .component "pod" $pod) | nindent 8 }}
    spec:
      serviceAccountName: {{ include "partner-ingest.serviceAccountName" . | quote }}
      automountServiceAccountToken: {{ .apiToken | default false }}
      # Variables of neighbouring Services would only be noise in the environment that the processes check.
      enableServiceLinks: false
      # preStop, then the drain, which cuts itself off five seconds before the end.
      terminationGracePeriodSeconds: {{ add (.preStopSeconds | default 0) (.drainSeconds | default 60) 5 }}
      {{- with include "partner-ingest.pullSecrets" .root | trim }}
      {{- . | nindent 6 }}
      {{- end }}
      securityContext:
        {{- include "partner-ingest.withoutNulls" $pod.securityContext | nindent 8 }}
      {{- with $pod.extraInitContainers }}
      initContainers:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      containers:
        - name: {{ .component }}
          {{- include "partner-ingest.container" (dict "given" . "values" $values "pod" $pod "root" .root) | nindent 10 }}
        {{- with $pod.extraContainers }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- with include "partner-ingest.volumes" (dict "given" . "pod" $pod "root" .root) | trim }}
      volumes:
        {{- . | nindent 8 }}
      {{- end }}
      {{- with include "partner-ingest.placement" (dict "given" . "pod" $pod) | trim }}
      {{- . | nindent 6 }}
      {{- end }}
{{- end -}}

{{/*
The number of pods; with an autoscaler none, so that a rollback does not set that of then. But a field that an upgrade takes away
becomes 1: a Deployment that the release gave a number before, which has no mark of ours, keeps what the cluster has now.
*/}}
{{- define "partner-ingest.replicas" -}}
{{- if .autoscaled -}}
{{- $name := printf "%s-%s" (include "partner-ingest.fullname" .root) .component -}}
{{- $live := lookup "apps/v1" "Deployment" .root.Release.Namespace $name -}}
{{- if not (dig "metadata" "annotations" "partner-ingest.io/replicas" "" $live) }}{{ dig "spec" "replicas" "" $live }}{{ end -}}
{{- else -}}
{{- dig "replicaCount" 1 (index .root.Values .component) | int64 -}}
{{- end -}}
{{- end -}}

{{/*
Where Prometheus scrapes a pod that no monitor selects, and whose log and shell are meant where a sidecar was injected. A change of
the chart's own Secret (evaluation) restarts the pods; one of yours is taken up by the processes (docs/upgrade.md).
*/}}
{{- define "partner-ingest.podAnnotations" -}}
{{- $ours := dict "kubectl.kubernetes.io/default-container" .component -}}
{{- if eq (include "partner-ingest.scrapedBy" .root) "annotations" -}}
{{- $_ := set $ours "prometheus.io/scrape" "true" -}}
{{- $_ := set $ours "prometheus.io/port" (.root.Values.adminPort | toString) -}}
{{- $_ := set $ours "prometheus.io/path" "/metrics" -}}
{{- end -}}
{{- $annotations := mergeOverwrite $ours (deepCopy .root.Values.commonAnnotations) .pod.annotations -}}
{{- if .root.Values.evaluation.enabled -}}
{{- $_ := set $annotations "checksum/evaluation" (include "partner-ingest.evaluationCredentials" .root | sha256sum) -}}
{{- end -}}
{{- toYaml $annotations -}}
{{- end -}}

{{/* A map without the keys that were set to null (Helm keeps those of maps that are merged by hand). */}}
{{- define "partner-ingest.withoutNulls" -}}
{{- $kept := dict -}}
{{- range $key, $value := . }}{{ if not (kindIs "invalid" $value) }}{{ $_ := set $kept $key $value }}{{ end }}{{ end -}}
{{- toYaml $kept -}}
{{- end -}}

{{/* A process bounds its heap by the memory that it started with, so a pod that is resized in place must start again. */}}
{{- define "partner-ingest.resizePolicy" -}}
resizePolicy:
  - { resourceName: cpu, restartPolicy: NotRequired }
  - { resourceName: memory, restartPolicy: RestartContainer }
{{- end -}}

{{- define "partner-ingest.container" -}}
image: {{ include "partner-ingest.image" .root | quote }}
imagePullPolicy: {{ .root.Values.image.pullPolicy }}
args: [dist/cmd/{{ .given.component }}/main.js]
terminationMessagePolicy: FallbackToLogsOnError
ports:
  {{- with .given.port }}
  - { name: http, containerPort: {{ . }}, protocol: TCP }
  {{- end }}
  - { name: admin, containerPort: {{ .root.Values.adminPort }}, protocol: TCP }
env:
  {{- include "partner-ingest.merged" (dict "ours" (include "partner-ingest.env" .) "theirs" .pod.extraEnv "by" "name") | nindent 2 }}
{{- with .pod.extraEnvFrom }}
envFrom:
  {{- toYaml . | nindent 2 }}
{{- end }}
startupProbe:
  httpGet: { path: /livez, port: admin }
  {{- toYaml .root.Values.probes.startup | nindent 2 }}
livenessProbe:
  httpGet: { path: /livez, port: admin }
  {{- toYaml .root.Values.probes.liveness | nindent 2 }}
readinessProbe:
  httpGet: { path: /readyz, port: admin }
  {{- toYaml .root.Values.probes.readiness | nindent 2 }}
{{- with .given.preStopSeconds }}
lifecycle:
  preStop:
    sleep: { seconds: {{ . }} }
{{- end }}
resources:
  {{- toYaml .values.resources | nindent 2 }}
{{- include "partner-ingest.resizePolicy" . | nindent 0 }}
securityContext:
  {{- include "partner-ingest.withoutNulls" .pod.containerSecurityContext | nindent 2 }}
{{- with include "partner-ingest.volumeMounts" . | trim }}
volumeMounts:
  {{- . | nindent 2 }}
{{- end }}
{{- end -}}

{{/*
Two lists as one. What the user's names again counts in place of ours, and of several the last: Kubernetes refuses two. A variable
also stands for the file that would hold it. Takes (dict "ours" "a list in YAML" "theirs" (list) "by" "name").
*/}}
{{- define "partner-ingest.merged" -}}
{{- $last := dict -}}
{{- range $index, $one := .theirs }}{{ $_ := set $last (get $one $.by) $index }}{{ end -}}
{{- $kept := list -}}
{{- range .ours | fromYamlArray }}
{{- $name := get . $.by }}
{{- if not (or (hasKey $last $name) (hasKey $last (trimSuffix "_FILE" $name)) (eq (dig "value" "-" .) "")) }}{{ $kept = append $kept . }}{{ end }}
{{- end -}}
{{- range $index, $one := .theirs }}{{ if eq (get $last (get $one $.by)) $index }}{{ $kept = append $kept $one }}{{ end }}{{ end -}}
{{- with $kept }}{{ toYaml . }}{{ end -}}
{{- end -}}

{{/* A quantity of memory in MiB: 512Mi, 1Gi, 600M or plain bytes. */}}
{{- define "partner-ingest.mebibytes" -}}
{{- $text := toString . -}}
{{- if kindIs "float64" . }}{{ $text = printf "%.0f" . }}{{ end -}}
{{- $bytes := dict "" 1.0 "k" 1e3 "M" 1e6 "G" 1e9 "Ki" 1024.0 "Mi" 1048576.0 "Gi" 1073741824.0 -}}
{{- $unit := regexFind "[A-Za-z]*$" $text -}}
{{- divf (mulf (trimSuffix $unit $text | float64) (get $bytes $unit | default 0.0)) 1048576.0 | int -}}
{{- end -}}

{{/*
V8's bounds: half of the pod's memory for what lives long, and at most a fifth for what is young (three semi-spaces). The rest is
for connections and bodies, which are outside V8's heap (docs/decisions/0018).
*/}}
{{- define "partner-ingest.heapEnv" -}}
{{- $limit := ((.values.resources).limits).memory -}}
{{- if $limit }}
{{- $mebibytes := include "partner-ingest.mebibytes" $limit | int }}
{{- if ge $mebibytes 64 }}
- name: NODE_OPTIONS
  value: --max-semi-space-size={{ ge $mebibytes 1024 | ternary 64 (ge $mebibytes 512 | ternary 32 (ge $mebibytes 256 | ternary 16 8)) }} --max-old-space-size={{ div $mebibytes 2 }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Variables of every process, then those of this one. */}}
{{- define "partner-ingest.env" -}}
{{- $values := .root.Values -}}
- name: LOG_LEVEL
  value: {{ $values.logLevel | quote }}
- name: LOG_FORMAT
  value: {{ $values.logFormat | quote }}
- name: ADMIN_HOST
  value: {{ $values.listenAddress | quote }}
- name: ADMIN_PORT
  value: {{ $values.adminPort | quote }}
- name: MONGODB_DATABASE
  value: {{ $values.mongodb.database | quote }}
- name: ALLOW_INSECURE_STORES
  value: {{ or $values.evaluation.enabled $values.allowInsecureStores | quote }}
{{- include "partner-ingest.credentialEnv" (dict "root" .root "component" .given.component "credentials" .given.credentials) }}
{{- /* Also where it is not mounted: the command refuses there what it would not note. */}}
{{- if $values.erasureRegister.existingClaim }}
- name: ERASURE_REGISTER
  value: {{ include "partner-ingest.registerPath" . | quote }}
{{- end }}
{{- with .given.env }}
{{ . | trim }}
{{- end }}
{{ include "partner-ingest.commandEnv" .root | trim }}
{{- include "partner-ingest.caEnv" .root }}
{{- include "partner-ingest.heapEnv" . }}
{{- if and .given.traced $values.tracing.endpoint }}
- name: OTEL_EXPORTER_OTLP_ENDPOINT
  value: {{ $values.tracing.endpoint | quote }}
- name: OTEL_EXPORTER_OTLP_PROTOCOL
  value: {{ $values.tracing.protocol | quote }}
- name: OTEL_TRACES_SAMPLER
  value: {{ $values.tracing.sampler | quote }}
- name: OTEL_TRACES_SAMPLER_ARG
  value: {{ $values.tracing.sampleRatio | quote }}
- name: K8S_POD_NAME
  valueFrom: { fieldRef: { fieldPath: metadata.name } }
- name: OTEL_RESOURCE_ATTRIBUTES
  value: k8s.namespace.name={{ $.root.Release.Namespace }},k8s.pod.name=$(K8S_POD_NAME),service.version={{ $.root.Chart.AppVersion }}
{{- end }}
{{- end -}}

{{/* What the command `partner-ingest` needs, which runs in any pod: where keys and processes are, how long requests are kept. */}}
{{- define "partner-ingest.commandEnv" -}}
{{- $addresses := list -}}
{{- range list "ingest" "processor" "controller" -}}
{{- $addresses = append $addresses (printf "http://%s-%s-metrics:%v" (include "partner-ingest.fullname" $) . $.Values.adminPort) -}}
{{- end -}}
- name: CONSOLE_PROCESSES
  value: {{ join "," $addresses | quote }}
- name: WATCH_NAMESPACES
  value: {{ include "partner-ingest.keyNamespace" . | quote }}
- name: WATCH_PARTNERS
  value: {{ .Values.partnerKeys.partners.enabled | quote }}
- name: RETENTION_COMPLETED_DAYS
  value: {{ .Values.retention.completedDays | quote }}
- name: RETENTION_REJECTED_DAYS
  value: {{ .Values.retention.rejectedDays | quote }}
- name: RETENTION_UNDELIVERABLE_DAYS
  value: {{ .Values.retention.undeliverableDays | quote }}
- name: RETENTION_CLOSED_DAYS
  value: {{ .Values.retention.closedDays | quote }}
- name: RETENTION_BODY_DAYS
  value: {{ .Values.retention.bodyDays | quote }}
{{- end -}}

{{/* Node's own variable for more certificate authorities; holds for MongoDB, Redis, SMTP and traces alike. Takes the root. */}}
{{- define "partner-ingest.caEnv" -}}
{{- if or .Values.caBundle.existingConfigMap .Values.caBundle.existingSecret }}
- name: NODE_EXTRA_CA_CERTS
  value: /etc/partner-ingest/ca/ca.crt
{{- end }}
{{- end -}}

{{- define "partner-ingest.volumeMounts" -}}
{{- include "partner-ingest.merged" (dict "ours" (include "partner-ingest.ownVolumeMounts" .) "theirs" .pod.extraVolumeMounts "by" "mountPath") -}}
{{- end -}}

{{- define "partner-ingest.ownVolumeMounts" -}}
{{- if include "partner-ingest.credentialSources" (dict "root" .root "component" .given.component "credentials" .given.credentials) }}
- { name: secrets, mountPath: {{ include "partner-ingest.secretsPath" . }}, readOnly: true }
{{- end }}
{{- if or .root.Values.caBundle.existingConfigMap .root.Values.caBundle.existingSecret }}
- { name: ca, mountPath: /etc/partner-ingest/ca, readOnly: true }
{{- end }}
{{- if has "erasureRegister" .given.credentials }}
- { name: erasures, mountPath: {{ include "partner-ingest.registerPath" . }} }
{{- end }}
{{- with .given.volumeMounts }}
{{ . | trim }}
{{- end }}
{{- end -}}

{{- define "partner-ingest.volumes" -}}
{{- include "partner-ingest.merged" (dict "ours" (include "partner-ingest.ownVolumes" .) "theirs" .pod.extraVolumes "by" "name") -}}
{{- end -}}

{{- define "partner-ingest.ownVolumes" -}}
{{- with include "partner-ingest.credentialSources" (dict "root" .root "component" .given.component "credentials" .given.credentials) }}
- name: secrets
  projected:
    defaultMode: 0440
    sources:
      {{- . | trim | nindent 6 }}
{{- end }}
{{- with .root.Values.caBundle }}
{{- if .existingConfigMap }}
- name: ca
  configMap: { name: {{ .existingConfigMap | quote }}, items: [{ key: {{ .key | quote }}, path: ca.crt }] }
{{- else if .existingSecret }}
- name: ca
  secret: { secretName: {{ .existingSecret | quote }}, defaultMode: 0440, items: [{ key: {{ .key | quote }}, path: ca.crt }] }
{{- end }}
{{- end }}
{{- if has "erasureRegister" .given.credentials }}
- name: erasures
  persistentVolumeClaim: { claimName: {{ .root.Values.erasureRegister.existingClaim | quote }} }
{{- end }}
{{- with .given.volumes }}
{{ . | trim }}
{{- end }}
{{- end -}}

{{/* Where the pods may run, and how they find names. Without "given" they are single ones, which nothing spreads. */}}
{{- define "partner-ingest.placement" -}}
{{- range $key := list "nodeSelector" "tolerations" "affinity" "priorityClassName" "schedulerName" "runtimeClassName" "hostAliases" "dnsPolicy" "dnsConfig" }}
{{- with index $.pod $key }}
{{ $key }}: {{ toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- $spread := .pod.topologySpreadConstraints }}
{{- if kindIs "invalid" $spread }}
{{- $spread = list
  (dict "topologyKey" "topology.kubernetes.io/zone" "maxSkew" 1 "whenUnsatisfiable" "ScheduleAnyway" "matchLabelKeys" (list "pod-template-hash"))
  (dict "topologyKey" "kubernetes.io/hostname" "maxSkew" 1 "whenUnsatisfiable" "ScheduleAnyway" "matchLabelKeys" (list "pod-template-hash")) }}
{{- end }}
{{- with $.given | empty | ternary list $spread }}
{{- $selector := dict "matchLabels" (include "partner-ingest.selector" $.given | fromYaml) }}
topologySpreadConstraints:
  {{- range . }}
  - {{- hasKey . "labelSelector" | ternary . (merge (dict "labelSelector" (deepCopy $selector)) (omit . "labelSelector")) | toYaml | nindent 4 }}
  {{- end }}
{{- end }}
{{- with .pod.extraPodSpec }}
{{ toYaml . }}
{{- end }}
{{- end -}}
