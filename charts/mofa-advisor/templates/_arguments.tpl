{{- /* The arguments of `mofa`. Numbers of a values file are floats: a million must not become 1e+06 where it is counted. */ -}}
{{- define "mofa.arguments" -}}
- operator
{{- with .Values.operator }}
- --log-format={{ .logFormat }}
- --writes-per-second={{ .writesPerSecond }}
- --workers={{ int64 .workers }}
- --resync={{ .resyncSeconds }}
- --quiet={{ .quietSeconds }}
- --gate-longest={{ .gateSeconds }}
- --most-jobs={{ int64 .mostJobs }}
{{- if $.Values.admissionPolicy.enabled }}
- --fence
{{- end }}
{{- if .dryRun }}
- --dry-run
{{- end }}
{{- if .verbose }}
- --verbose
{{- end }}
{{- if .admissionChecks }}
- --admission-checks
{{- end }}
{{- if .page }}
- --page
{{- end }}
{{- if .authenticate }}
- --authenticate
{{- end }}
{{- end }}
{{- if .Values.rbac.pods }}
- --pods
{{- end }}
- --kinds={{ join "," .Values.rbac.kinds }}
{{- with .Values.watchNamespaces }}
- --namespace={{ join "," . }}
{{- end }}
{{- if .Values.leaderElection.enabled }}
- --lease-enabled
- --lease-namespace={{ .Release.Namespace }}
- --lease-name={{ include "mofa.serviceAccount" . }}
{{- end }}
{{- with .Values.prometheus }}
{{- if .url }}
- {{ printf "--prometheus-url=%s" .url | quote }}
- --prometheus-flavour={{ .flavour }}
- --prometheus-interval={{ .intervalSeconds }}
- --prometheus-timeout={{ .timeoutSeconds }}
{{- with .orgId }}
- {{ printf "--prometheus-org-id=%s" . | quote }}
{{- end }}
{{- if .insecureSkipVerify }}
- --prometheus-insecure-skip-verify
{{- end }}
{{- if .auth.bearerTokenKey }}
- --prometheus-bearer-token-file=/etc/mofa/prometheus/{{ .auth.bearerTokenKey }}
{{- end }}
{{- if .auth.basicAuthKey }}
- --prometheus-basic-auth-file=/etc/mofa/prometheus/{{ .auth.basicAuthKey }}
{{- end }}
{{- if .caConfigMap }}
- --prometheus-ca-file=/etc/mofa/ca/ca.crt
{{- end }}
{{- end }}
{{- end }}
{{- range .Values.operator.extraArgs }}
- {{ . | quote }}
{{- end }}
{{- end }}
