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
{{- if and .root.Values.evaluation.enabled (not (has .of (list "bounces" "receipts" "erasureRegister"))) -}}
{{- dict "secret" (printf "%s-evaluation" (include "partner-ingest.fullname" .root)) "key" .of | toJson -}}
{{- else if $from.file -}}
{{- dict "file" $from.file | toJson -}}
{{- else -}}
{{- dict "secret" $from.existingSecret "key" $from.key | toJson -}}
{{- end -}}
{{- end -}}

{{/* Our certificate for Redis, as JSON of setting to {"key"} in its Secret or {"file"}. Takes the root. */}}
{{- define "partner-ingest.redisTls" -}}
{{- $tls := dict -}}
{{- with .Values.redis.tls -}}
{{- if .existingSecret -}}
{{- $tls = dict "REDIS_TLS_CERT" (dict "key" "tls.crt") "REDIS_TLS_KEY" (dict "key" "tls.key") -}}
{{- end -}}
{{- range $setting, $file := dict "REDIS_TLS_CERT" .certFile "REDIS_TLS_KEY" .keyFile "REDIS_TLS_CA" .caFile -}}
{{- if $file }}{{ $_ := set $tls $setting (dict "file" $file) }}{{ end -}}
{{- end -}}
{{- end -}}
{{- $tls | toJson -}}
{{- end -}}

{{/* Which setting each credential is, as JSON. */}}
{{- define "partner-ingest.credentialSettings" -}}
{{- dict "mongodb" "MONGODB_URI" "redis" "REDIS_URL" "smtp" "SMTP_URL" "links" "LINK_SECRET" "bounces" "BOUNCE_SECRETS" "probe" "PROBE_KEY" "tests" "PROBE_KEY" "receipts" "RECEIPT_KEYS" "erasureRegister" "ERASURE_REGISTER_KEY" | toJson -}}
{{- end -}}

{{/* The credential of the erasure register, as a JSON list, where there is one. Takes the root. */}}
{{- define "partner-ingest.register" -}}
{{- .Values.erasureRegister.existingClaim | empty | ternary list (list "erasureRegister") | toJson -}}
{{- end -}}

{{- define "partner-ingest.registerPath" -}}/var/lib/partner-ingest/erasures{{- end -}}

{{/* The variables NAME_FILE of some credentials. Takes (dict "root" $ "component" "ingest" "credentials" (list "mongodb")). */}}
{{- define "partner-ingest.credentialEnv" -}}
{{- $settings := include "partner-ingest.credentialSettings" . | fromJson -}}
{{- range .credentials }}
{{- $setting := index $settings . }}
{{- $credential := include "partner-ingest.credential" (dict "root" $.root "of" . "component" $.component) | fromJson }}
- name: {{ $setting }}_FILE
  value: {{ $credential.file | default (printf "%s/%s" (include "partner-ingest.secretsPath" $) $setting) | quote }}
{{- end }}
{{- if has "redis" .credentials }}
{{- range $setting, $from := include "partner-ingest.redisTls" .root | fromJson }}
- name: {{ $setting }}_FILE
  value: {{ $from.file | default (printf "%s/%s" (include "partner-ingest.secretsPath" $) $setting) | quote }}
{{- end }}
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
{{- if has "redis" .credentials }}
{{- range $setting, $from := include "partner-ingest.redisTls" .root | fromJson }}
{{- with $from.key }}
- secret:
    name: {{ $.root.Values.redis.tls.existingSecret | quote }}
    items: [{ key: {{ . }}, path: {{ $setting }} }]
{{- end }}
{{- end }}
{{- end }}
{{- end -}}
