{{- /* Made by tools/chart.py from mofa_model/kinds; do not edit. */ -}}

{{- /* Existing kinds by the names of rbac.kinds, as group/plural. */ -}}
{{- define "mofa.kinds" -}}
JobSet: jobset.x-k8s.io/jobsets
TrainJob: trainer.kubeflow.org/trainjobs
PyTorchJob: kubeflow.org/pytorchjobs
MPIJob: kubeflow.org/mpijobs
VolcanoJob: batch.volcano.sh/jobs
RayJob: ray.io/rayjobs
RayCluster: ray.io/rayclusters
LeaderWorkerSet: leaderworkerset.x-k8s.io/leaderworkersets
Job: batch/jobs
Workload: kueue.x-k8s.io/workloads
{{- end }}

{{- /* What jobs and their pods name, in their namespaces: groups, resources, and by which kinds. */ -}}
{{- define "mofa.beside" -}}
trainer.kubeflow.org: {resources: [trainingruntimes], by: [TrainJob]}
resource.k8s.io: {resources: [resourceclaimtemplates], by: [JobSet, TrainJob, PyTorchJob, MPIJob, VolcanoJob, RayJob, RayCluster, LeaderWorkerSet, Job, Workload]}
{{- end }}

{{- /* The same, of the whole cluster. */ -}}
{{- define "mofa.above" -}}
trainer.kubeflow.org: {resources: [clustertrainingruntimes], by: [TrainJob]}
resource.k8s.io: {resources: [deviceclasses], by: [JobSet, TrainJob, PyTorchJob, MPIJob, VolcanoJob, RayJob, RayCluster, LeaderWorkerSet, Job, Workload]}
{{- end }}

{{- /* CEL: resources on which the operator writes annotations. */ -}}
{{- define "mofa.annotated" -}}
"mofa.dev/trainingjobs", "jobset.x-k8s.io/jobsets", "trainer.kubeflow.org/trainjobs",
"kubeflow.org/pytorchjobs", "kubeflow.org/mpijobs", "batch.volcano.sh/jobs", "ray.io/rayjobs",
"ray.io/rayclusters", "leaderworkerset.x-k8s.io/leaderworkersets", "batch/jobs",
"kueue.x-k8s.io/workloads"
{{- end }}

{{- /* API groups of existing kinds. */ -}}
{{- define "mofa.groups" -}}
jobset.x-k8s.io, trainer.kubeflow.org, kubeflow.org, batch.volcano.sh, ray.io, leaderworkerset.x-k8s.io, batch, kueue.x-k8s.io
{{- end }}

{{- /* Resources of existing kinds. */ -}}
{{- define "mofa.resources" -}}
jobsets, trainjobs, pytorchjobs, mpijobs, jobs, rayjobs, rayclusters, leaderworkersets, workloads
{{- end }}

{{- /* CEL: a spec is as it was, whatever webhooks of its own project add to it. */ -}}
{{- define "mofa.untouched" -}}
object.?spec == oldObject.?spec
|| (request.resource.group + "/" + request.resource.resource == "leaderworkerset.x-k8s.io/leaderworkersets"
  && object.spec.all(k, k == "leaderWorkerTemplate" || (k in oldObject.spec && oldObject.spec[k] == object.spec[k]))
  && oldObject.spec.all(k, k == "leaderWorkerTemplate" || k in object.spec)
  && ("leaderWorkerTemplate" in object.spec) == ("leaderWorkerTemplate" in oldObject.spec)
  && (!("leaderWorkerTemplate" in object.spec) || (
    object.spec.leaderWorkerTemplate.all(k, k in ["leaderTemplate", "workerTemplate"] || (k in oldObject.spec.leaderWorkerTemplate && oldObject.spec.leaderWorkerTemplate[k] == object.spec.leaderWorkerTemplate[k]))
    && oldObject.spec.leaderWorkerTemplate.all(k, k in ["leaderTemplate", "workerTemplate"] || k in object.spec.leaderWorkerTemplate)
    && ("leaderTemplate" in object.spec.leaderWorkerTemplate) == ("leaderTemplate" in oldObject.spec.leaderWorkerTemplate)
    && (!("leaderTemplate" in object.spec.leaderWorkerTemplate) || [[oldObject.spec.leaderWorkerTemplate.leaderTemplate, object.spec.leaderWorkerTemplate.leaderTemplate]].all(pair,
      pair[1].all(k, k == "metadata" || (k in pair[0] && pair[0][k] == pair[1][k]))
      && pair[0].all(k, k == "metadata" || k in pair[1])
      && pair[1].?metadata.orValue({}).all(k, pair[0].?metadata[?k] == pair[1].?metadata[?k]
        || (k == "creationTimestamp" && pair[1].metadata[k] == null))
      && pair[0].?metadata.orValue({}).all(k, pair[1].?metadata[?k].hasValue())))
    && ("workerTemplate" in object.spec.leaderWorkerTemplate) == ("workerTemplate" in oldObject.spec.leaderWorkerTemplate)
    && (!("workerTemplate" in object.spec.leaderWorkerTemplate) || [[oldObject.spec.leaderWorkerTemplate.workerTemplate, object.spec.leaderWorkerTemplate.workerTemplate]].all(pair,
      pair[1].all(k, k == "metadata" || (k in pair[0] && pair[0][k] == pair[1][k]))
      && pair[0].all(k, k == "metadata" || k in pair[1])
      && pair[1].?metadata.orValue({}).all(k, pair[0].?metadata[?k] == pair[1].?metadata[?k]
        || (k == "creationTimestamp" && pair[1].metadata[k] == null))
      && pair[0].?metadata.orValue({}).all(k, pair[1].?metadata[?k].hasValue()))))))
{{- end }}

{{- /* CEL: whether a job waits, as its spec says it: (the spec). */ -}}
{{- define "mofa.suspended" -}}
(variables.resource in ["pytorchjobs.kubeflow.org", "mpijobs.kubeflow.org"] ? {{ . }}.?runPolicy.?suspend : {{ . }}.?suspend).orValue(false) == true
{{- end }}

{{- /* CEL: nothing of a job differs but that it waits no more. */ -}}
{{- define "mofa.resumed" -}}
(variables.resource in ["pytorchjobs.kubeflow.org", "mpijobs.kubeflow.org"] ? (
  variables.new.all(k, k == "runPolicy" || (k in variables.old && variables.old[k] == variables.new[k]))
  && variables.old.all(k, k == "runPolicy" || k in variables.new)
  && variables.new.runPolicy.all(k, k == "suspend" || (k in variables.old.runPolicy && variables.old.runPolicy[k] == variables.new.runPolicy[k]))
  && variables.old.runPolicy.all(k, k == "suspend" || k in variables.new.runPolicy)) : (
  variables.new.all(k, k == "suspend" || (k in variables.old && variables.old[k] == variables.new[k]))
  && variables.old.all(k, k == "suspend" || k in variables.new)))
{{- end }}

{{- /* CEL: what may differ in a job that is launched, a variable for each kind. */ -}}
{{- define "mofa.launches" -}}
- name: jobset # arguments of a JobSet
  expression: >-
    variables.resource == "jobsets.jobset.x-k8s.io"
    && variables.new.all(k, k == "replicatedJobs" || (k in variables.old && variables.old[k] == variables.new[k]))
    && variables.old.all(k, k == "replicatedJobs" || k in variables.new)
    && variables.old.replicatedJobs.map(r, r.name) == variables.new.replicatedJobs.map(r, r.name)
    && variables.new.replicatedJobs.all(r, variables.old.replicatedJobs.exists(o, o.name == r.name
      && r.all(k, k == "template" || (k in o && o[k] == r[k]))
      && o.all(k, k == "template" || k in r)
      && o.template.?metadata == r.template.?metadata
      && r.template.spec.all(k, k == "template" || (k in o.template.spec && o.template.spec[k] == r.template.spec[k]))
      && o.template.spec.all(k, k == "template" || k in r.template.spec)
      && r.template.spec.template.all(k, k == "metadata" || (k in o.template.spec.template && o.template.spec.template[k] == r.template.spec.template[k]))
      && o.template.spec.template.all(k, k == "metadata" || k in r.template.spec.template)
      && r.template.spec.template.?metadata.orValue({}).all(k, k == "annotations" || (k in o.template.spec.template.?metadata.orValue({}) && o.template.spec.template.?metadata.orValue({})[k] == r.template.spec.template.?metadata.orValue({})[k]))
      && o.template.spec.template.?metadata.orValue({}).all(k, k == "annotations" || k in r.template.spec.template.?metadata.orValue({}))
      && r.template.spec.template.?metadata.?annotations.orValue({}).all(k, k in variables.told
        || o.template.spec.template.?metadata.?annotations[?k] == r.template.spec.template.?metadata.?annotations[?k])
      && o.template.spec.template.?metadata.?annotations.orValue({}).all(k, k in variables.told
        || r.template.spec.template.?metadata.?annotations[?k].hasValue())))
- name: trainjob # arguments of a TrainJob
  expression: >-
    variables.resource == "trainjobs.trainer.kubeflow.org"
    && variables.new.all(k, k == "runtimePatches" || (k in variables.old && variables.old[k] == variables.new[k]))
    && variables.old.all(k, k == "runtimePatches" || k in variables.new)
    && variables.old.?runtimePatches.orValue([]).filter(p, p.manager != "mofa.dev/advisor")
      == variables.new.?runtimePatches.orValue([]).filter(p, p.manager != "mofa.dev/advisor")
    && variables.new.?runtimePatches.orValue([]).filter(p, p.manager == "mofa.dev/advisor").all(p,
      p.all(k, k in ["manager", "time", "trainingRuntimeSpec"])
      && p.trainingRuntimeSpec.all(k, k == "template")
      && p.trainingRuntimeSpec.template.all(k, k == "spec")
      && p.trainingRuntimeSpec.template.spec.all(k, k == "replicatedJobs")
      && p.trainingRuntimeSpec.template.spec.replicatedJobs.all(j, j.all(k, k in ["name", "template"])
        && j.template.all(k, k == "spec") && j.template.spec.all(k, k == "template")
        && j.template.spec.template.all(k, k == "metadata")
        && j.template.spec.template.metadata.all(k, k == "annotations")
        && j.template.spec.template.metadata.annotations.all(k, k in variables.told)))
- name: pytorchjob # arguments of a PyTorchJob
  expression: >-
    variables.resource == "pytorchjobs.kubeflow.org"
    && variables.new.all(k, k == "pytorchReplicaSpecs" || (k in variables.old && variables.old[k] == variables.new[k]))
    && variables.old.all(k, k == "pytorchReplicaSpecs" || k in variables.new)
    && variables.old.pytorchReplicaSpecs.all(role, role in variables.new.pytorchReplicaSpecs)
    && variables.new.pytorchReplicaSpecs.all(role, role in variables.old.pytorchReplicaSpecs
      && variables.new.pytorchReplicaSpecs[role].all(k, k == "template" || (k in variables.old.pytorchReplicaSpecs[role] && variables.old.pytorchReplicaSpecs[role][k] == variables.new.pytorchReplicaSpecs[role][k]))
      && variables.old.pytorchReplicaSpecs[role].all(k, k == "template" || k in variables.new.pytorchReplicaSpecs[role])
      && [[variables.old.pytorchReplicaSpecs[role].template, variables.new.pytorchReplicaSpecs[role].template]].all(pair,
        pair[1].all(k, k == "spec" || (k in pair[0] && pair[0][k] == pair[1][k]))
        && pair[0].all(k, k == "spec" || k in pair[1])
        && pair[1].spec.all(k, k == "containers" || (k in pair[0].spec && pair[0].spec[k] == pair[1].spec[k]))
        && pair[0].spec.all(k, k == "containers" || k in pair[1].spec)
        && pair[0].spec.containers.map(c, c.name) == pair[1].spec.containers.map(c, c.name)
        && pair[1].spec.containers.all(c, pair[0].spec.containers.exists(o, o.name == c.name
          && c.all(k, k == "args" || (k in o && o[k] == c[k]))
          && o.all(k, k == "args" || k in c)
          && (c.name == "pytorch" || o.?args == c.?args)))))
- name: rayjob # arguments of a RayJob
  expression: >-
    variables.resource == "rayjobs.ray.io"
    && variables.new.all(k, k in ["entrypoint", "backoffLimit"] || (k in variables.old && variables.old[k] == variables.new[k]))
    && variables.old.all(k, k in ["entrypoint", "backoffLimit"] || k in variables.new)
    && variables.new.?backoffLimit.orValue(0) >= variables.old.?backoffLimit.orValue(0)
- name: batch # arguments of a batch Job
  expression: >-
    variables.resource == "jobs.batch"
    && variables.new.all(k, k in ["template", "backoffLimit"] || (k in variables.old && variables.old[k] == variables.new[k]))
    && variables.old.all(k, k in ["template", "backoffLimit"] || k in variables.new)
    && variables.new.?backoffLimit.orValue(0) >= variables.old.?backoffLimit.orValue(0)
    && variables.new.template.all(k, k == "metadata" || (k in variables.old.template && variables.old.template[k] == variables.new.template[k]))
    && variables.old.template.all(k, k == "metadata" || k in variables.new.template)
    && variables.new.template.?metadata.orValue({}).all(k, k == "annotations" || (k in variables.old.template.?metadata.orValue({}) && variables.old.template.?metadata.orValue({})[k] == variables.new.template.?metadata.orValue({})[k]))
    && variables.old.template.?metadata.orValue({}).all(k, k == "annotations" || k in variables.new.template.?metadata.orValue({}))
    && variables.new.template.?metadata.?annotations.orValue({}).all(k, k in variables.told
      || variables.old.template.?metadata.?annotations[?k] == variables.new.template.?metadata.?annotations[?k])
    && variables.old.template.?metadata.?annotations.orValue({}).all(k, k in variables.told
      || variables.new.template.?metadata.?annotations[?k].hasValue())
- name: sized # a job that asks for a size and states none gets one
  expression: >-
    (variables.resource == "trainjobs.trainer.kubeflow.org"
    && variables.before[?"advisor.mofa.dev/size"].hasValue()
    && variables.new.all(k, k == "trainer" || (k in variables.old && variables.old[k] == variables.new[k]))
    && variables.old.all(k, k == "trainer" || k in variables.new)
    && !variables.old.?trainer.?numNodes.hasValue()
    && variables.new.?trainer.orValue({}).all(k, k in ["numNodes", "numProcPerNode", "resourcesPerNode", "args"] || (k in variables.old.?trainer.orValue({}) && variables.old.?trainer.orValue({})[k] == variables.new.?trainer.orValue({})[k]))
    && variables.old.?trainer.orValue({}).all(k, k in ["numNodes", "numProcPerNode", "resourcesPerNode", "args"] || k in variables.new.?trainer.orValue({})))
    || (variables.resource == "rayjobs.ray.io"
    && variables.before[?"advisor.mofa.dev/size"].hasValue()
    && variables.new.all(k, k in ["rayClusterSpec", "entrypoint"] || (k in variables.old && variables.old[k] == variables.new[k]))
    && variables.old.all(k, k in ["rayClusterSpec", "entrypoint"] || k in variables.new)
    && variables.new.rayClusterSpec.all(k, k == "workerGroupSpecs" || (k in variables.old.rayClusterSpec && variables.old.rayClusterSpec[k] == variables.new.rayClusterSpec[k]))
    && variables.old.rayClusterSpec.all(k, k == "workerGroupSpecs" || k in variables.new.rayClusterSpec)
    && variables.old.rayClusterSpec.workerGroupSpecs.size() == 1 && variables.new.rayClusterSpec.workerGroupSpecs.size() == 1
    && variables.old.rayClusterSpec.workerGroupSpecs[0].?replicas.orValue(0) == 0
    && variables.new.rayClusterSpec.workerGroupSpecs[0].all(k, k in ["replicas", "minReplicas", "maxReplicas", "template"] || (k in variables.old.rayClusterSpec.workerGroupSpecs[0] && variables.old.rayClusterSpec.workerGroupSpecs[0][k] == variables.new.rayClusterSpec.workerGroupSpecs[0][k]))
    && variables.old.rayClusterSpec.workerGroupSpecs[0].all(k, k in ["replicas", "minReplicas", "maxReplicas", "template"] || k in variables.new.rayClusterSpec.workerGroupSpecs[0])
    && variables.new.rayClusterSpec.workerGroupSpecs[0].template.all(k, k == "spec" || (k in variables.old.rayClusterSpec.workerGroupSpecs[0].template && variables.old.rayClusterSpec.workerGroupSpecs[0].template[k] == variables.new.rayClusterSpec.workerGroupSpecs[0].template[k]))
    && variables.old.rayClusterSpec.workerGroupSpecs[0].template.all(k, k == "spec" || k in variables.new.rayClusterSpec.workerGroupSpecs[0].template)
    && variables.new.rayClusterSpec.workerGroupSpecs[0].template.spec.all(k, k == "containers" || (k in variables.old.rayClusterSpec.workerGroupSpecs[0].template.spec && variables.old.rayClusterSpec.workerGroupSpecs[0].template.spec[k] == variables.new.rayClusterSpec.workerGroupSpecs[0].template.spec[k]))
    && variables.old.rayClusterSpec.workerGroupSpecs[0].template.spec.all(k, k == "containers" || k in variables.new.rayClusterSpec.workerGroupSpecs[0].template.spec)
    && variables.old.rayClusterSpec.workerGroupSpecs[0].template.spec.containers.map(c, c.name) == variables.new.rayClusterSpec.workerGroupSpecs[0].template.spec.containers.map(c, c.name)
    && variables.new.rayClusterSpec.workerGroupSpecs[0].template.spec.containers.all(c, variables.old.rayClusterSpec.workerGroupSpecs[0].template.spec.containers.exists(o, o.name == c.name
      && c.all(k, k == "resources" || (k in o && o[k] == c[k]))
      && o.all(k, k == "resources" || k in c))))
- name: arguments # of any kind
  expression: variables.jobset || variables.trainjob || variables.pytorchjob || variables.rayjob || variables.batch
{{- end }}
