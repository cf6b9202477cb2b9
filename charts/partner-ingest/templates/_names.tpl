{{/* Names and labels, used by every template. */}}

{{/* A text as Kubernetes wants it in a name: Helm and an alias allow more (a dot in a release's name, capitals, a `_`). */}}
{{- define "partner-ingest.asName" -}}
{{- regexReplaceAll "[^a-z0-9]+" (lower .) "-" | trimAll "-" -}}
{{- end -}}

{{/* A name of at most "most" characters. Names that are cut alike stay apart by a hash. Takes (dict "name" "…" "most" 40). */}}
{{- define "partner-ingest.cut" -}}
{{- if gt (len .name) (int .most) -}}
{{- printf "%s-%s" (trunc (sub .most 9 | int) .name | trimSuffix "-") (sha256sum .name | trunc 8) -}}
{{- else -}}
{{- .name -}}
{{- end -}}
{{- end -}}

{{- define "partner-ingest.givenName" -}}{{ default .Chart.Name .Values.nameOverride }}{{- end -}}

{{/*
The prefix of all names and the name in labels, as JSON of {"fullname", "name"}; 40 characters leave room for the longest suffix in 63.
A Service's name begins with a letter. A release is not named again after a chart whose name it holds, except for an alias, which
may have a sister whose name it holds, too. "former" is what the chart made of the same values before it had a hash.
*/}}
{{- define "partner-ingest.madeNames" -}}
{{- $given := include "partner-ingest.givenName" . -}}
{{- $joined := printf "%s-%s" .Release.Name $given -}}
{{- $short := contains $given .Release.Name | ternary .Release.Name $joined -}}
{{- $isAlias := and (contains "/charts/" .Template.BasePath) (ne $given "partner-ingest") -}}
{{- $names := dict -}}
{{- range $of, $full := dict "made" ($isAlias | ternary $joined $short) "former" $short -}}
{{- $full = include "partner-ingest.asName" ($.Values.fullnameOverride | default $full) -}}
{{- $full = regexMatch "^[a-z]" $full | ternary $full (printf "r-%s" $full) -}}
{{- $name := include "partner-ingest.asName" $given -}}
{{- if eq $of "former" -}}
{{- $full = trunc 40 $full | trimSuffix "-" -}}
{{- $name = trunc 40 $name | trimSuffix "-" -}}
{{- end -}}
{{- $_ := set $names $of (dict
  "fullname" (include "partner-ingest.cut" (dict "name" $full "most" 40))
  "name" (include "partner-ingest.cut" (dict "name" $name "most" 40) | default "partner-ingest")) -}}
{{- end -}}
{{- toJson $names -}}
{{- end -}}

{{/* An installation that has the former names keeps them: selectors cannot change, and its partner keys lie under one of them. */}}
{{- define "partner-ingest.names" -}}
{{- $names := include "partner-ingest.madeNames" . | fromJson -}}
{{- $former := $names.former -}}
{{- if ne (toJson $former) (toJson $names.made) -}}
{{- $live := lookup "apps/v1" "Deployment" .Release.Namespace (printf "%s-ingest" $former.fullname) -}}
{{- $labels := dig "metadata" "labels" dict $live -}}
{{- $ofChart := regexMatch (printf "^%s-[0-9]+[.]" (include "partner-ingest.asLabel" .Chart.Name)) (get $labels "helm.sh/chart") -}}
{{- $named := dig "spec" "selector" "matchLabels" "app.kubernetes.io/name" "" $live -}}
{{- if and $ofChart (eq (get $labels "app.kubernetes.io/instance") .Release.Name) (eq $named $former.name) -}}
{{- $_ := set $names "made" $former -}}
{{- end -}}
{{- end -}}
{{- toJson $names.made -}}
{{- end -}}

{{- define "partner-ingest.name" -}}{{ (include "partner-ingest.names" . | fromJson).name }}{{- end -}}
{{- define "partner-ingest.fullname" -}}{{ (include "partner-ingest.names" . | fromJson).fullname }}{{- end -}}

{{/*
The full name for objects outside of the release's namespace: with that namespace, unless the release is named after it. A full name
holds no `--`, so no two releases get the same. 52 characters leave room for the suffix in 63.
*/}}
{{- define "partner-ingest.clusterName" -}}
{{- $full := include "partner-ingest.fullname" . -}}
{{- $apart := include "partner-ingest.cut" (dict "name" (printf "%s--%s" $full .Release.Namespace) "most" 52) -}}
{{- has .Release.Namespace (list .Release.Name $full) | ternary $full $apart -}}
{{- end -}}

{{/* What selects a component's pods; it must never change. Takes (dict "root" $ "component" "ingest"), as all below do. */}}
{{- define "partner-ingest.selector" -}}
app.kubernetes.io/name: {{ include "partner-ingest.name" .root | quote }}
app.kubernetes.io/instance: {{ .root.Release.Name | quote }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{- define "partner-ingest.asLabel" -}}
{{- regexReplaceAll "[^A-Za-z0-9._-]" (toString .) "_" | trunc 63 | trimAll "-._" -}}
{{- end -}}

{{/* Labels of an object; also takes "labels" of its own. */}}
{{- define "partner-ingest.labels" -}}
{{- $ours := dict
  "app.kubernetes.io/version" (include "partner-ingest.asLabel" .root.Chart.AppVersion)
  "app.kubernetes.io/part-of" "partner-ingest"
  "app.kubernetes.io/managed-by" .root.Release.Service
  "helm.sh/chart" (include "partner-ingest.asLabel" (printf "%s-%s" .root.Chart.Name .root.Chart.Version)) -}}
{{- $selector := include "partner-ingest.selector" . | fromYaml -}}
{{- mergeOverwrite $ours (deepCopy .root.Values.commonLabels) (.labels | default dict) $selector | toYaml -}}
{{- end -}}

{{/* Labels of a pod: none that changes with the chart's version, which would restart pods that did not change. */}}
{{- define "partner-ingest.podLabels" -}}
{{- $selector := include "partner-ingest.selector" . | fromYaml -}}
{{- mergeOverwrite (deepCopy .root.Values.commonLabels) (.labels | default dict) $selector | toYaml -}}
{{- end -}}

{{/*
metadata of every object. Also takes "name" (a suffix, where it is not the component), "fullname" (the whole name),
"namespace" ("" for objects without one), "labels", "annotations".
*/}}
{{- define "partner-ingest.metadata" -}}
name: {{ .fullname | default (printf "%s-%s" (include "partner-ingest.fullname" .root) (.name | default .component)) | quote }}
{{- with (hasKey . "namespace" | ternary .namespace .root.Release.Namespace) }}
namespace: {{ . | quote }}
{{- end }}
labels:
  {{- include "partner-ingest.labels" . | nindent 2 }}
{{- with mergeOverwrite (deepCopy .root.Values.commonAnnotations) (.annotations | default dict) }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Name of a component's ServiceAccount. */}}
{{- define "partner-ingest.serviceAccountName" -}}
{{- $account := (index .root.Values .component).serviceAccount -}}
{{- $made := printf "%s-%s" (include "partner-ingest.fullname" .root) .component -}}
{{- $account.name | default ($account.create | ternary $made "default") -}}
{{- end -}}

{{/* Secrets for the registries, of the parent chart and of this one, each as `{name: …}`; common charts take texts, too. Takes the root. */}}
{{- define "partner-ingest.pullSecrets" -}}
{{- $secrets := list -}}
{{- range concat (.Values.global.imagePullSecrets | default list) .Values.image.pullSecrets -}}
{{- $secrets = append $secrets (kindIs "map" . | ternary . (dict "name" .)) -}}
{{- end -}}
{{- with $secrets | uniq }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end -}}
{{- end -}}

{{/* An image with the global registry, unless its first part is a registry already. Takes (dict "root" $ "image" "acme/mongo:8"). */}}
{{- define "partner-ingest.imageName" -}}
{{- $first := contains "/" .image | ternary (splitList "/" .image | first) "" -}}
{{- $named := or (eq $first "localhost") (regexMatch "[.:]" $first) -}}
{{- with .root.Values.global.imageRegistry }}{{ if not $named }}{{ trimSuffix "/" . }}/{{ end }}{{ end }}{{ .image -}}
{{- end -}}

{{/* The image of ours: digest, else tag, else the chart's appVersion. Takes the root. */}}
{{- define "partner-ingest.image" -}}
{{- with .Values.image -}}
{{- include "partner-ingest.imageName" (dict "root" $ "image" .repository) }}{{ .digest | empty | ternary (printf ":%s" (.tag | default $.Chart.AppVersion | toString)) (printf "@%s" .digest) -}}
{{- end -}}
{{- end -}}

{{/*
The namespace of the partner keys. It holds data of the user: an installation keeps the one it made as `<full name>-keys`, and so does
one whose namespace the chart does not make. Takes the root.
*/}}
{{- define "partner-ingest.keyNamespace" -}}
{{- with .Values.partnerKeys.namespace -}}
{{- . -}}
{{- else -}}
{{- $former := printf "%s-keys" (include "partner-ingest.fullname" .) -}}
{{- $made := printf "%s-keys" (include "partner-ingest.clusterName" .) -}}
{{- if and (ne $made $former) .Values.partnerKeys.createNamespace (include "partner-ingest.keysFromKubernetes" .) -}}
{{- eq (include "partner-ingest.ownerOf" (dict "kind" "Namespace" "name" $former)) (printf "%s/%s" .Release.Namespace .Release.Name) | ternary $former $made -}}
{{- else -}}
{{- $former -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The release that owns an object without a namespace, as `namespace/name`; "/" where none is seen. Takes (dict "kind" "Namespace" "name" "…"). */}}
{{- define "partner-ingest.ownerOf" -}}
{{- $told := dig "metadata" "annotations" dict (lookup "v1" .kind "" .name) -}}
{{- get $told "meta.helm.sh/release-namespace" }}/{{ get $told "meta.helm.sh/release-name" -}}
{{- end -}}

{{/* true where the controller asks the Kubernetes API. Takes the root. */}}
{{- define "partner-ingest.keysFromKubernetes" -}}
{{- if eq .Values.partnerKeys.source "kubernetes" }}true{{ end -}}
{{- end -}}

{{/*
true where an object of an operator's kind is made: "auto" makes it where the cluster has the kind. Takes
(dict "root" $ "enabled" "auto" "kind" "monitoring.coreos.com/v1/PodMonitor").
*/}}
{{- define "partner-ingest.makes" -}}
{{- $known := and (eq (toString .enabled) "auto") (.root.Capabilities.APIVersions.Has .kind) -}}
{{- if and .root.Values.metrics.enabled (or $known (eq (toString .enabled) "true")) }}true{{ end -}}
{{- end -}}

{{/* The components whose metrics are scraped, as a list in YAML. Takes the root. */}}
{{- define "partner-ingest.scraped" -}}
{{- concat (list "ingest" "processor" "controller") (.Values.console.enabled | ternary (list "console") list) | toYaml -}}
{{- end -}}

{{/* The one way by which Prometheus finds the pods: ServiceMonitor, PodMonitor or annotations. Takes the root. */}}
{{- define "partner-ingest.scrapedBy" -}}
{{- $metrics := .Values.metrics -}}
{{- if include "partner-ingest.makes" (dict "root" . "enabled" $metrics.serviceMonitor.enabled "kind" "monitoring.coreos.com/v1/ServiceMonitor") -}}
ServiceMonitor
{{- else if include "partner-ingest.makes" (dict "root" . "enabled" $metrics.podMonitor.enabled "kind" "monitoring.coreos.com/v1/PodMonitor") -}}
PodMonitor
{{- else if $metrics.enabled -}}
annotations
{{- end -}}
{{- end -}}

{{/* What selects this release's series, without braces. Takes the root. */}}
{{- define "partner-ingest.series" -}}
namespace={{ .Release.Namespace | quote }}
{{- range $label, $value := .Values.metrics.matchLabels }},{{ $label }}={{ $value | quote }}{{ end -}}
{{- end -}}

{{/* true where there is a test partner's key for the standing probe. Takes the root. */}}
{{- define "partner-ingest.probes" -}}
{{- $key := or .Values.evaluation.enabled .Values.probe.existingSecret .Values.probe.file -}}
{{- if and $key .Values.ingest.statusEndpoint }}true{{ end -}}
{{- end -}}

{{/* true where there is a port for reports of late bounces. Takes the root. */}}
{{- define "partner-ingest.bounces" -}}
{{- with .Values.processor.bounces }}{{ if or .existingSecret .file }}true{{ end }}{{ end -}}
{{- end -}}

{{/* Base URL of the Service. Takes the root. */}}
{{- define "partner-ingest.serviceUrl" -}}
http://{{ include "partner-ingest.fullname" . }}-ingest:{{ .Values.service.port }}/api/v1
{{- end -}}

{{/* Helm, Argo CD and Flux each have their own word for what is not to be deleted. */}}
{{- define "partner-ingest.kept" -}}
helm.sh/resource-policy: keep
argocd.argoproj.io/sync-options: Prune=false,Delete=false
kustomize.toolkit.fluxcd.io/prune: disabled
{{- end -}}

{{/* A time of RFC 3339 as the controller reads it: a date that exists, with seconds and an offset. */}}
{{- define "partner-ingest.timePattern" -}}
{{- $leap := `(\d\d[2468][048]|\d\d[13579][26]|\d\d0[48]|[02468][048]00|[13579][26]00)-02-29` -}}
{{- $day := `\d{4}-((0[13578]|1[02])-(0[1-9]|[12]\d|3[01])|(0[469]|11)-(0[1-9]|[12]\d|30)|02-(0[1-9]|1\d|2[0-8]))` -}}
{{- $time := `([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d+)?(Z|[+-]([01]\d|2[0-3]):[0-5]\d)` -}}
{{- printf `^(%s|%s)T%s$` $leap $day $time -}}
{{- end -}}
