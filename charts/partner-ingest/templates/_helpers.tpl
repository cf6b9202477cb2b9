{{/* Names and labels, used by every template. */}}

{{- define "partner-ingest.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{/* The prefix of all names; 40 characters leave room for the longest suffix in 63. */}}
{{- define "partner-ingest.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- (contains $name .Release.Name | ternary .Release.Name (printf "%s-%s" .Release.Name $name)) | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* What selects a component's pods, for ever: name, instance, component. Takes (dict "root" $ "component" "ingest"). */}}
{{- define "partner-ingest.selector" -}}
app.kubernetes.io/name: {{ include "partner-ingest.name" .root }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{/* Labels of every object. Takes (dict "root" $ "component" "ingest"). */}}
{{- define "partner-ingest.labels" -}}
{{ include "partner-ingest.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/part-of: partner-ingest
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- with .root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/*
metadata of every object but pods. Takes (dict "root" $ "component" "ingest"), optional "name" (a suffix when it is not the
component), "namespace", "annotations", "labels".
*/}}
{{- define "partner-ingest.metadata" -}}
name: {{ .fullname | default (printf "%s-%s" (include "partner-ingest.fullname" .root) (.name | default .component)) }}
namespace: {{ .namespace | default .root.Release.Namespace }}
labels:
  {{- include "partner-ingest.labels" . | nindent 2 }}
  {{- with .labels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with mergeOverwrite (deepCopy .root.Values.commonAnnotations) (.annotations | default dict) }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}
