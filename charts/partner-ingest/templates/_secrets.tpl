{{/*
Where the credentials come from: your Secret, your file, or the evaluation stores. They reach the processes as files,
so that no value stands in a pod's environment.
*/}}

{{- define "partner-ingest.secretsPath" -}}/etc/partner-ingest/secrets{{- end -}}

{{/*
One credential, as JSON of {"secret", "key"} or {"file"}: a component's own where it has one, else the shared one. Takes
(dict "root" $ "of" "mongodb" "component" "ingest").
*/}}
{{- define "partner-ingest.credential" -}}
{{- $own := dig .of dict (index .root.Values .component) -}}
{{- $from := or $own.existingSecret $own.file | empty | ternary (index .root.Values .of) $own -}}
{{- if .root.Values.evaluation.enabled -}}
{{- dict "secret" (printf "%s-evaluation" (include "partner-ingest.fullname" .root)) "key" .of | toJson -}}
{{- else if $from.file -}}
{{- dict "file" $from.file | toJson -}}
{{- else -}}
{{- dict "secret" $from.existingSecret "key" $from.key | toJson -}}
{{- end -}}
{{- end -}}

{{/* Which setting each credential is, as JSON. */}}
{{- define "partner-ingest.credentialSettings" -}}
{{- dict "mongodb" "MONGODB_URI" "redis" "REDIS_URL" "smtp" "SMTP_URL" "links" "LINK_SECRET" "probe" "PROBE_KEY" "tests" "PROBE_KEY" | toJson -}}
{{- end -}}

{{/* The variables NAME_FILE of some credentials. Takes (dict "root" $ "component" "ingest" "credentials" (list "mongodb")). */}}
{{- define "partner-ingest.credentialEnv" -}}
{{- $settings := include "partner-ingest.credentialSettings" . | fromJson -}}
{{- range .credentials }}
{{- $setting := index $settings . }}
{{- $credential := include "partner-ingest.credential" (dict "root" $.root "of" . "component" $.component) | fromJson }}
- name: {{ $setting }}_FILE
  value: {{ $credential.file | default (printf "%s/%s" (include "partner-ingest.secretsPath" $) $setting) | quote }}
{{- end }}
{{- end -}}

{{/* The sources of the projected volume with those files; empty when something else brings all of them. */}}
{{- define "partner-ingest.credentialSources" -}}
{{- $settings := include "partner-ingest.credentialSettings" . | fromJson -}}
{{- range .credentials }}
{{- $credential := include "partner-ingest.credential" (dict "root" $.root "of" . "component" $.component) | fromJson }}
{{- if $credential.secret }}
- secret:
    name: {{ $credential.secret | quote }}
    items: [{ key: {{ $credential.key | quote }}, path: {{ index $settings . }} }]
{{- end }}
{{- end }}
{{- end -}}
