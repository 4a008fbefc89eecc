{{- /* What the operator may do to jobs: the rules of a role, and the launch paths of mode Apply. Kinds are in _kinds.tpl. */ -}}

{{- /* Rules about what lives in namespaces: in the ClusterRole for all of them, or in a Role for each watched one. */ -}}
{{- define "mofa.rules" -}}
# TrainingJobs and policies are watched, now and then listed, and read one by one where the two disagree. The answer is
# their status.
- apiGroups: [mofa.dev]
  resources: [trainingjobs, advisorpolicies]
  verbs: [get, list, watch]
- apiGroups: [mofa.dev]
  resources: [trainingjobs/status, advisorpolicies/status]
  verbs: [patch]
# Annotations on TrainingJobs and on the kinds of jobs that people already have; the fence keeps it at annotations.
- apiGroups: [mofa.dev]
  resources: [trainingjobs]
  verbs: [patch]
{{- $kinds := include "mofa.kinds" . | fromYaml }}
{{- range .Values.rbac.kinds }}
{{- $parts := splitList "/" (index $kinds .) }}
- apiGroups: [{{ first $parts }}]
  resources: [{{ last $parts }}]
  verbs: [get, list, watch, patch]
{{- end }}
{{- if and .Values.rbac.apply .Values.rbac.sizes .Values.admissionPolicy.enabled (has "TrainJob" .Values.rbac.kinds) (has "JobSet" .Values.rbac.kinds) }}
# The JobSet of a TrainJob that gets its size: the fence admits that deletion and no other.
- apiGroups: [jobset.x-k8s.io]
  resources: [jobsets]
  verbs: [delete]
{{- end }}
{{- if .Values.operator.admissionChecks }}
# What our AdmissionChecks say of a Workload is in its status.
- apiGroups: [kueue.x-k8s.io]
  resources: [workloads]
  verbs: [get, list, watch]
- apiGroups: [kueue.x-k8s.io]
  resources: [workloads/status]
  verbs: [patch]
{{- end }}
# A config.json that a job names; one by one, never all of a namespace.
- apiGroups: [""]
  resources: [configmaps]
  verbs: [get]
{{- if .Values.rbac.pods }}
# What running jobs are told: pods of one job after another, by their label.
- apiGroups: [""]
  resources: [pods]
  verbs: [list]
{{- end }}
# What a job and its pods name: its runtime, what they claim; one by one.
{{- include "mofa.named" (list . "mofa.beside") }}
# What happened, for `kubectl describe`. A repeat has the same name, so nothing is ever patched.
- apiGroups: [""]
  resources: [events]
  verbs: [create]
{{- end }}

{{- /* Rules to read what the chosen kinds name: (the chart, the template that lists it). */ -}}
{{- define "mofa.named" -}}
{{- $chart := index . 0 }}
{{- range $group, $one := include (index . 1) $chart | fromYaml }}
{{- $chosen := false }}
{{- range $one.by }}
{{- if has . $chart.Values.rbac.kinds }}
{{- $chosen = true }}
{{- end }}
{{- end }}
{{- if $chosen }}
- apiGroups: [{{ $group }}]
  resources: [{{ join ", " $one.resources }}]
  verbs: [get]
{{- end }}
{{- end }}
{{- end }}

{{- /* The variable `launch` of the fence, with rbac.apply: spec changes that start a job that waits, as CEL over object and
       oldObject. Whatever mode Apply comes to write must be admitted here, and nowhere else. */ -}}
{{- define "mofa.launch" -}}
- name: resource
  expression: request.resource.resource + "." + request.resource.group
- name: old
  expression: "oldObject == null ? {} : oldObject.?spec.orValue({})"
- name: new
  expression: "object == null ? {} : object.?spec.orValue({})"
- name: waited # suspended before
  expression: >-
    {{ include "mofa.suspended" "variables.old" }}
- name: waits # suspended afterwards
  expression: >-
    {{ include "mofa.suspended" "variables.new" }}
- name: consents # the object says so itself, by its mode or by a gate of ours
  expression: >-
    variables.before[?"advisor.mofa.dev/mode"].orValue("") == "Apply"
    || variables.before[?"advisor.mofa.dev/gate"].orValue("") == "suspend"
    || "mofa.dev/advisor" in variables.gates_before
- name: told # annotations of a pod template that tell a trainer its arguments
  expression: >-
    ["advisor.mofa.dev/launch-args", "advisor.mofa.dev/checkpoint-interval-steps"]
- name: resumed # our own gate goes, and with it the suspension that it stood for; nothing else
  expression: >-
    variables.waited && !variables.waits
    && variables.before[?"advisor.mofa.dev/gate"].orValue("") == "suspend" && "advisor.mofa.dev/gate" in variables.opened
    &&
    {{- include "mofa.resumed" . | nindent 4 }}
{{ include "mofa.launches" . }}
- name: launch # spec changes that start a job that waits, where it consents (mode Apply)
  expression: >-
    object.?status == oldObject.?status && ((variables.waited && variables.waits && variables.sized) || (
      variables.consents && (variables.resumed || (variables.waited && variables.waits && variables.arguments))))
{{- if .Values.rbac.sizes }}
- name: renewed # a JobSet of a TrainJob that never ran goes, so that Trainer makes it of the new size
  expression: >-
    request.operation == "DELETE" && variables.part == "" && variables.resource == "jobsets.jobset.x-k8s.io"
    && oldObject.spec.?suspend.orValue(false) == true
    && oldObject.metadata.?ownerReferences.orValue([]).exists(o, o.kind == "TrainJob" && o.?controller.orValue(false)
      && o.apiVersion.startsWith("trainer.kubeflow.org/") && o.name == oldObject.metadata.name)
    && oldObject.?status.?restarts.orValue(0) == 0
    && oldObject.?status.?replicatedJobsStatus.orValue([]).all(r, r.active == 0 && r.ready == 0 && r.succeeded == 0 && r.failed == 0)
{{- end }}
{{- end }}
