{{- /* What values.schema.json cannot say: values that do not go together. Each message begins with the key to change. */ -}}
{{- define "mofa.checks" -}}
{{- if and (gt (int .Values.replicas) 1) (not .Values.leaderElection.enabled) }}
{{- fail "replicas: more than one needs leaderElection.enabled, or two operators would write" }}
{{- end }}
{{- if and .Values.podDisruptionBudget.enabled (lt (int .Values.replicas) 2) }}
{{- fail "podDisruptionBudget.enabled: with one replica it would block every drain; set replicas to 2 and leaderElection.enabled" }}
{{- end }}
{{- if and .Values.serviceMonitor.enabled .Values.podMonitor.enabled }}
{{- fail "podMonitor.enabled: with serviceMonitor.enabled every series would be scraped twice; choose one" }}
{{- end }}
{{- if and .Values.podMonitor.enabled .Values.operator.authenticate }}
{{- fail "podMonitor.enabled: operator.authenticate wants the scraper's token, which only a ServiceMonitor sends; set serviceMonitor.enabled" }}
{{- end }}
{{- with .Values.prometheus }}
{{- if and .auth.bearerTokenKey .auth.basicAuthKey }}
{{- fail "prometheus.auth.basicAuthKey: one of it and bearerTokenKey, not both" }}
{{- end }}
{{- if and (or .auth.bearerTokenKey .auth.basicAuthKey) (not .auth.existingSecret) }}
{{- fail "prometheus.auth.existingSecret: is missing; a key is named, but no Secret that has it" }}
{{- end }}
{{- if and .auth.existingSecret (not (or .auth.bearerTokenKey .auth.basicAuthKey)) }}
{{- fail "prometheus.auth.existingSecret: needs bearerTokenKey or basicAuthKey, the key that holds the credentials" }}
{{- end }}
{{- if and (or .auth.existingSecret .caConfigMap .orgId) (not .url) }}
{{- fail "prometheus.url: is missing; credentials, an authority or a tenant are given, but no server" }}
{{- end }}
{{- end }}
{{- end }}
