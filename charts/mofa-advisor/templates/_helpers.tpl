{{- /* Names, labels and small words that several templates share. */ -}}

{{- define "mofa.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 52 | trimSuffix "-" }}
{{- end }}

{{- /* Of what lives in the release's namespace; short enough for names that are made from it. */ -}}
{{- define "mofa.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" }}
{{- else if contains (include "mofa.name" .) .Release.Name }}
{{- .Release.Name | trunc 52 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "mofa.name" .) | trunc 52 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- /* Of what lives outside it. Releases that watch namespaces of their own may be many, so theirs carries the namespace;
       two that watch all namespaces would write against each other, and meet here: helm refuses the second. */ -}}
{{- define "mofa.clusterName" -}}
{{- include "mofa.fullname" . }}{{ if .Values.watchNamespaces }}-{{ .Release.Namespace }}{{ end }}
{{- end }}

{{- define "mofa.selector" -}}
app.kubernetes.io/name: {{ include "mofa.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "mofa.about" -}}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/part-of: mofa-advisor
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "mofa.labels" -}}
{{ include "mofa.selector" . }}
{{ include "mofa.about" . }}
{{- end }}

{{- /* Of the pod that `helm test` makes: neither the Service nor the NetworkPolicy of the operator may take it for one. */ -}}
{{- define "mofa.testSelector" -}}
app.kubernetes.io/name: {{ include "mofa.name" . }}-test
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "mofa.serviceAccount" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "mofa.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- required "serviceAccount.name: is missing; name an account, or set serviceAccount.create" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- define "mofa.repository" -}}
{{ with .Values.global.imageRegistry }}{{ . }}/{{ end }}{{ .Values.image.repository }}
{{- end }}

{{- define "mofa.image" -}}
{{- if .Values.image.digest -}}
{{ include "mofa.repository" . }}@{{ .Values.image.digest }}
{{- else -}}
{{ include "mofa.repository" . }}:{{ default .Chart.AppVersion .Values.image.tag }}
{{- end }}
{{- end }}
