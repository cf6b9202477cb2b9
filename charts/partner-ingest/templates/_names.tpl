{{/* Names and labels, used by every template. */}}

{{/* A part of a name as Kubernetes wants it, whatever Helm or an alias allows: a dot in a release's name, capitals, a `_`. */}}
{{- define "partner-ingest.asName" -}}
{{- regexReplaceAll "[^a-z0-9]+" (lower .) "-" | trunc 40 | trimAll "-" -}}
{{- end -}}

{{- define "partner-ingest.name" -}}
{{- include "partner-ingest.asName" (default .Chart.Name .Values.nameOverride) | default "partner-ingest" -}}
{{- end -}}

{{/* The prefix of all names; 40 characters leave room for the longest suffix in 63. A Service's name begins with a letter. */}}
{{- define "partner-ingest.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- $released := contains $name .Release.Name | ternary .Release.Name (printf "%s-%s" .Release.Name $name) -}}
{{- $full := include "partner-ingest.asName" (.Values.fullnameOverride | default $released) -}}
{{- include "partner-ingest.asName" (regexMatch "^[a-z]" $full | ternary $full (printf "r-%s" $full)) -}}
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

{{/* An image with the global registry, unless its first part is a registry already. Takes (dict "root" $ "image" "mongo:8"). */}}
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

{{/* The namespace of the partner keys. Takes the root. */}}
{{- define "partner-ingest.keyNamespace" -}}
{{- .Values.partnerKeys.namespace | default (printf "%s-keys" (include "partner-ingest.fullname" .)) -}}
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

{{/* true where there is a test partner's key for the standing probe. Takes the root. */}}
{{- define "partner-ingest.probes" -}}
{{- $key := or .Values.evaluation.enabled .Values.probe.existingSecret .Values.probe.file -}}
{{- if and $key .Values.ingest.statusEndpoint }}true{{ end -}}
{{- end -}}

{{/* Base URL of the Service. Takes the root. */}}
{{- define "partner-ingest.serviceUrl" -}}
http://{{ include "partner-ingest.fullname" . }}-ingest:{{ .Values.service.port }}/api/v1
{{- end -}}
