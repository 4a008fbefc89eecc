{{- /* What the operator may do to jobs: their kinds, the rules of a role, and the launch paths of mode Apply. */ -}}

{{- /* Existing kinds by the names of rbac.kinds, as group/plural; operator/mofa_operator/control/kinds.py has the same. */ -}}
{{- define "mofa.kinds" -}}
JobSet: jobset.x-k8s.io/jobsets
TrainJob: trainer.kubeflow.org/trainjobs
PyTorchJob: kubeflow.org/pytorchjobs
VolcanoJob: batch.volcano.sh/jobs
RayJob: ray.io/rayjobs
Job: batch/jobs
{{- end }}

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
# A config.json that a job names; one by one, never all of a namespace.
- apiGroups: [""]
  resources: [configmaps]
  verbs: [get]
# What happened, for `kubectl describe`. A repeat has the same name, so nothing is ever patched.
- apiGroups: [""]
  resources: [events]
  verbs: [create]
{{- end }}

{{- /* The variable `launch` of the fence, with rbac.apply: spec changes that start a job that waits, as a CEL expression over
       object and oldObject. Whatever mode Apply comes to write must be admitted here, and nowhere else. */ -}}
{{- define "mofa.launch" -}}
- name: launch # spec changes that start a job that waits (mode Apply); none as long as the operator starts no jobs
  expression: "false"
{{- end }}
