{{/*
Where the four credentials come from: your Secret, your file, or the evaluation stores. They reach the processes as files,
so that no value stands in a pod's environment.
*/}}

{{- define "partner-ingest.secretsPath" -}}/etc/partner-ingest/secrets{{- end -}}

{{/* One credential, as JSON of {"secret", "key"} or {"file"}. Takes (dict "root" $ "of" "mongodb"). */}}
{{- define "partner-ingest.credential" -}}
{{- $from := index .root.Values .of -}}
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
{{- dict "mongodb" "MONGODB_URI" "redis" "REDIS_URL" "smtp" "SMTP_URL" "links" "LINK_SECRET" | toJson -}}
{{- end -}}

{{/* The variables NAME_FILE of some credentials. Takes (dict "root" $ "credentials" (list "mongodb")). */}}
{{- define "partner-ingest.credentialEnv" -}}
{{- $settings := include "partner-ingest.credentialSettings" . | fromJson -}}
{{- range .credentials }}
{{- $setting := index $settings . }}
{{- $credential := include "partner-ingest.credential" (dict "root" $.root "of" .) | fromJson }}
- name: {{ $setting }}_FILE
  value: {{ $credential.file | default (printf "%s/%s" (include "partner-ingest.secretsPath" $) $setting) | quote }}
{{- end }}
{{- end -}}

{{/* The sources of the projected volume with those files; empty when something else brings all of them. */}}
{{- define "partner-ingest.credentialSources" -}}
{{- $settings := include "partner-ingest.credentialSettings" . | fromJson -}}
{{- range .credentials }}
{{- $credential := include "partner-ingest.credential" (dict "root" $.root "of" .) | fromJson }}
{{- if $credential.secret }}
- secret:
    name: {{ $credential.secret }}
    items: [{ key: {{ $credential.key | quote }}, path: {{ index $settings . }} }]
{{- end }}
{{- end }}
{{- end -}}
