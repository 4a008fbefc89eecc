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

{{- /* CEL: two mappings are the same but for one key. */ -}}
{{- define "mofa.same" -}}
{{- $old := index . 0 }}{{ $new := index . 1 }}{{ $but := index . 2 -}}
{{ $new }}.all(k, k == "{{ $but }}" || (k in {{ $old }} && {{ $old }}[k] == {{ $new }}[k]))
&& {{ $old }}.all(k, k == "{{ $but }}" || k in {{ $new }})
{{- end }}

{{- /* CEL: two pod templates are the same but for the annotations in which a trainer is told its arguments. */ -}}
{{- define "mofa.samePods" -}}
{{- $old := index . 0 }}{{ $new := index . 1 -}}
{{ include "mofa.same" (list $old $new "metadata") }}
&& {{ include "mofa.same" (list (printf "%s.?metadata.orValue({})" $old) (printf "%s.?metadata.orValue({})" $new) "annotations") }}
&& {{ $new }}.?metadata.?annotations.orValue({}).all(k, k in variables.told
  || {{ $old }}.?metadata.?annotations[?k] == {{ $new }}.?metadata.?annotations[?k])
&& {{ $old }}.?metadata.?annotations.orValue({}).all(k, k in variables.told || {{ $new }}.?metadata.?annotations[?k].hasValue())
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
    (variables.resource == "pytorchjobs.kubeflow.org" ? variables.old.?runPolicy.?suspend : variables.old.?suspend).orValue(false) == true
- name: waits # suspended afterwards
  expression: >-
    (variables.resource == "pytorchjobs.kubeflow.org" ? variables.new.?runPolicy.?suspend : variables.new.?suspend).orValue(false) == true
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
    && (variables.resource == "pytorchjobs.kubeflow.org"
      ? ({{- include "mofa.same" (list "variables.old" "variables.new" "runPolicy") | nindent 6 }}
        && {{- include "mofa.same" (list "variables.old.runPolicy" "variables.new.runPolicy" "suspend") | nindent 8 }})
      : ({{- include "mofa.same" (list "variables.old" "variables.new" "suspend") | nindent 6 }}))
- name: jobset # annotations of its pods
  expression: >-
    variables.resource == "jobsets.jobset.x-k8s.io"
    && {{- include "mofa.same" (list "variables.old" "variables.new" "replicatedJobs") | nindent 4 }}
    && variables.old.replicatedJobs.map(r, r.name) == variables.new.replicatedJobs.map(r, r.name)
    && variables.new.replicatedJobs.all(r, variables.old.replicatedJobs.exists(o, o.name == r.name
      && {{- include "mofa.same" (list "o" "r" "template") | nindent 6 }}
      && o.template.?metadata == r.template.?metadata
      && {{- include "mofa.same" (list "o.template.spec" "r.template.spec" "template") | nindent 6 }}
      && {{- include "mofa.samePods" (list "o.template.spec.template" "r.template.spec.template") | nindent 6 }}))
- name: batch # the same
  expression: >-
    variables.resource == "jobs.batch"
    && {{- include "mofa.same" (list "variables.old" "variables.new" "template") | nindent 4 }}
    && {{- include "mofa.samePods" (list "variables.old.template" "variables.new.template") | nindent 4 }}
- name: trainjob # the patch of its runtime that is ours, and there the same
  expression: >-
    variables.resource == "trainjobs.trainer.kubeflow.org"
    && {{- include "mofa.same" (list "variables.old" "variables.new" "runtimePatches") | nindent 4 }}
    && variables.old.?runtimePatches.orValue([]).filter(p, p.manager != "mofa.dev/advisor")
      == variables.new.?runtimePatches.orValue([]).filter(p, p.manager != "mofa.dev/advisor")
    && variables.new.?runtimePatches.orValue([]).filter(p, p.manager == "mofa.dev/advisor").all(p,
      p.all(k, k in ["manager", "time", "trainingRuntimeSpec"])
      && p.trainingRuntimeSpec.all(k, k == "template") && p.trainingRuntimeSpec.template.all(k, k == "spec")
      && p.trainingRuntimeSpec.template.spec.all(k, k == "replicatedJobs")
      && p.trainingRuntimeSpec.template.spec.replicatedJobs.all(j, j.all(k, k in ["name", "template"])
        && j.template.all(k, k == "spec") && j.template.spec.all(k, k == "template")
        && j.template.spec.template.all(k, k == "metadata") && j.template.spec.template.metadata.all(k, k == "annotations")
        && j.template.spec.template.metadata.annotations.all(k, k in variables.told)))
- name: pytorchjob # args of the containers called pytorch
  expression: >-
    variables.resource == "pytorchjobs.kubeflow.org"
    && {{- include "mofa.same" (list "variables.old" "variables.new" "pytorchReplicaSpecs") | nindent 4 }}
    && variables.old.pytorchReplicaSpecs.all(role, role in variables.new.pytorchReplicaSpecs)
    && variables.new.pytorchReplicaSpecs.all(role, role in variables.old.pytorchReplicaSpecs
      && {{- include "mofa.same" (list "variables.old.pytorchReplicaSpecs[role]" "variables.new.pytorchReplicaSpecs[role]" "template") | nindent 6 }}
      && [[variables.old.pytorchReplicaSpecs[role].template, variables.new.pytorchReplicaSpecs[role].template]].all(pair,
        {{- include "mofa.same" (list "pair[0]" "pair[1]" "spec") | nindent 8 }}
        && {{- include "mofa.same" (list "pair[0].spec" "pair[1].spec" "containers") | nindent 8 }}
        && pair[0].spec.containers.map(c, c.name) == pair[1].spec.containers.map(c, c.name)
        && pair[1].spec.containers.all(c, pair[0].spec.containers.exists(o, o.name == c.name
          && {{- include "mofa.same" (list "o" "c" "args") | nindent 10 }}
          && (c.name == "pytorch" || o.?args == c.?args)))))
- name: rayjob # its entrypoint
  expression: >-
    variables.resource == "rayjobs.ray.io"
    && {{- include "mofa.same" (list "variables.old" "variables.new" "entrypoint") | nindent 4 }}
- name: launch # spec changes that start a job that waits, where it consents (mode Apply)
  expression: >-
    object.?status == oldObject.?status && variables.consents && (variables.resumed || (variables.waited && variables.waits
    && (variables.jobset || variables.batch || variables.trainjob || variables.pytorchjob || variables.rayjob)))
{{- end }}
