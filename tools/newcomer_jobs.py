"""A newcomer's toys that the operator works with: each is added to a copy, and shows there that it
works.

Kinds of jobs, recovery classes, figures of a pool with their alerts.
"""

from __future__ import annotations

import json

from newcomer_copy import Copy, Fails

KIND = '''"""ToyJob: workers that are all alike, whose devices stand as text."""

from __future__ import annotations

from mofa_model.kinds.demand import PodSet
from mofa_model.kinds.kind import JobKind
from mofa_model.kinds.pods import Accelerators, DeviceText, split
from mofa_model.kinds.shape import Body, Count, Shape, Text, read


class _Spec(Shape):
    workers: Count = 1
    gpus: DeviceText = Accelerators()
    run: Text = ""


class ToyJob(JobKind):
    """Its workers."""

    def pod_sets(self, spec: Body) -> list[PodSet]:
        """All workers."""
        toy = read(_Spec, spec)
        pod = toy.gpus.pod(split([toy.run]))
        return [PodSet(where="spec", template=pod, counted="spec.workers", count=toy.workers)]


TOY_JOB = ToyJob("toy.example.org", "v1", "ToyJob", "toyjobs")
'''
TOY_JOB = """\
apiVersion: toy.example.org/v1
kind: ToyJob
metadata:
  name: llama
  annotations:
    advisor.mofa.dev/model: llama3-8b # said by a person
spec:
  workers: 4
  gpus: 8xH100
  run: torchrun pretrain_gpt.py --tensor-model-parallel-size=8 --global-batch-size=512 \
--seq-length=8192 --bf16
"""
FOLLOWS = {
    "charts/mofa-advisor/values.schema.json": '"ToyJob"',
    "deploy/manifests/operator/deployment.yaml": ",ToyJob",
    "deploy/manifests/rbac.yaml": "resources: [toyjobs]",
    "deploy/kustomize/overlays/namespaced/roles.yaml": "resources: [toyjobs]",
    "docs/reference/kinds.md": "| ToyJob |",
    "docs/reference/settings.md": ",ToyJob",
}
"""Generated files in which a toy kind must be found."""


def kind(copy: Copy) -> str:
    """A toy kind of jobs whose devices are text."""
    copy.write("mofa_model/kinds/toyjob.py", KIND)
    copy.write("examples/toyjob.yaml", TOY_JOB)
    advised, settings = copy.mofa(
        ("annotate", "examples/toyjob.yaml"), ("operator", "--print-settings")
    )
    if "# said by a person" not in advised or '"nodes":4' not in advised.replace(" ", ""):
        raise Fails(f"it is not advised on four nodes: {advised}")
    if "ToyJob" not in settings:
        raise Fails("the operator does not watch it")
    for tool in ("rules", "reference", "metrics", "chart"):
        copy.python(f"tools/{tool}.py")
    for name, text in FOLLOWS.items():
        if text not in (copy.root / name).read_text(encoding="utf-8"):
            raise Fails(f"{name}: {text} is not there")
    return f"advised on 4 nodes of 8 GPUs; {len(FOLLOWS)} generated files have it"


OBSERVED = """
import json

from mofa_model.kinds import JOB_SET
from mofa_operator.decide.pool import profile
from mofa_operator.keys import CLUSTER_PROFILE
from mofa_operator.metrics.exporter import Exporter
from mofa_operator.objects import live
from mofa_operator.observe.nodes import NodeFacts
from mofa_operator.observe.history.watch import WatchedPool, watched_job
from mofa_operator.observe.history.watch import PoolWatch
from mofa_operator.settings import LoopSettings
from mofa_operator.snapshot import NoHistory, NodeCount, ProfileSnapshot

GPUS = {"containers": [{"name": "train", "resources": {"limits": {"nvidia.com/gpu": "8"}}}]}


def job_set(rank_restarts):
    template = {"spec": {"template": {"spec": GPUS}}}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"namespace": "ml", "name": "llama", "uid": "1"},
        "spec": {"replicatedJobs": [{"name": "w", "replicas": 2, "template": template}]},
        "status": {
            "restarts": 0,
            "rankRestarts": rank_restarts,
            "replicatedJobsStatus": [
                {"name": "w", "ready": 2, "succeeded": 0, "jobRestarts": [0, 0]}
            ],
        },
    }


node = NodeFacts(labels={}, ready=True, cordoned=False, gpus=8)
body = {
    "apiVersion": "mofa.dev/v1alpha1",
    "kind": "ClusterProfile",
    "metadata": {"name": "toy", "uid": "1", "generation": 1},
    "spec": {"gpu": "h100"},
}
stands = live(CLUSTER_PROFILE, body)
pool = WatchedPool(profile=stands, node_facts={"a": node, "b": node})
witness = PoolWatch(gap=3600.0)
for look in range(200):
    now = 1_795_003_200.0 + 60 * look
    job = watched_job(JOB_SET, live(JOB_SET, job_set(look // 50)), "toy", now)
    days = witness.look({"toy": pool}, [job], now)["toy"]
snapshot = ProfileSnapshot(
    profile=stands,
    node_count=NodeCount(total=2, ready=2, gpus={8: 2}, names=("a", "b")),
    history=NoHistory(reason="NotConfigured", message="no Prometheus"),
    watched=days,
    now=now,
)
decision, exporter = profile(snapshot, LoopSettings()), Exporter()
exporter.show(decision.figures)
body["status"] = {"failures": decision.status["failures"]}
print(json.dumps({"profile": body, "metrics": exporter.page()[0].decode()}))
"""
"""A watch sees a JobSet restart its ranks three times in 200 minutes; prints what the profile and
/metrics then say.
"""


def recovery_class(copy: Copy) -> str:
    """A toy recovery class, that a field of JobSets counts."""
    kind = "mofa_model/kinds/jobset.py"
    copy.change(
        "mofa_model/spec/recovery_classes.py",
        "    PROCESS = ",
        '    RANK = "rank", "Ranks restart in their processes.", 0.0, 30.0, True\n    PROCESS = ',
    )
    field, count = "    restarts: Tally = 0\n", '                "JobSet.inPlace": '
    counter = (
        '"JobSet.rank": Counter(value=status.rank_restarts, recovery_class=RecoveryClass.RANK)'
    )
    copy.change(kind, field, f"{field}    rank_restarts: Tally = 0\n")
    copy.change(kind, count, f"                {counter},\n{count}")
    copy.change(
        kind,
        "super().visible_classes(body) | ",
        "super().visible_classes(body) | {RecoveryClass.RANK} | ",
    )
    observed = json.loads(copy.python("-c", OBSERVED))
    failures = observed["profile"]["status"]["failures"]
    counted = {row["name"]: row["failures"] for row in failures}
    if counted != {"rank": 3, "pod": 0, "job": 0}:
        raise Fails(f"a watch of three restarts counts {counted}")
    if (
        'mofa_pool_failures_per_node_day{bound="mean",class="rank",pool="toy"}'
        not in observed["metrics"]
    ):
        raise Fails("it is not among the metrics")
    copy.python("-m", "mofa_model.manifest.crds", "made")
    schemas = (copy.root / "made" / "mofa.dev_clusterprofiles.yaml").read_text(encoding="utf-8")
    if schemas.count("- rank\n") != schemas.count("- process\n"):
        raise Fails("the schema of a profile does not know it everywhere")
    seen = {
        "with.yaml": failures,
        "without.yaml": [row for row in failures if row["name"] != "rank"],
    }
    for name, rows in seen.items():
        observed["profile"]["status"]["failures"] = rows
        (copy.root / name).write_text(json.dumps(observed["profile"]), encoding="utf-8")
    job = ("ettr", "--nodes", "2", "--step", "20 s", "--model", "llama3-8b")
    ettr = [
        answer["ettr"]["target"]
        for answer in copy.json(*((*job, "--profile", name) for name in seen))
    ]
    if not ettr[0] < ettr[1]:
        raise Fails(f"its failures cost nothing: {ettr}")
    return (
        f"3 seen by the watch; an ETTR of {ettr[0]:.4f} in place of {ettr[1]:.4f}; in metrics "
        "and schema"
    )


EXPORTED = """
from mofa_operator.decision import PoolFigures
from mofa_operator.keys import CLUSTER_PROFILE
from mofa_operator.metrics.exporter import Exporter
from mofa_operator.objects import live
from mofa_operator.snapshot import NodeCount, ProfileSnapshot

exporter, pool = Exporter(), live(CLUSTER_PROFILE, {"metadata": {"name": "toy"}})
for ready in (8, 5):
    nodes = NodeCount(total=8, ready=ready)
    exporter.show(PoolFigures(snapshot=ProfileSnapshot(profile=pool, node_count=nodes, now=0.0)))
    lines = exporter.page()[0].decode().splitlines()
    print(*(line for line in lines if line.startswith("mofa_pool_toy")))
"""


ALERT = """
  - alert: MofaPoolNodesAway
    severity: warning
    for: 5m
    expr: max by (cluster, pool) (mofa_pool_toy_nodes) > 0
    summary: 'Pool {{ $labels.pool }} has nodes that are away'
    description: >-
      {{ $value }} nodes of the pool are not ready.
    example:
      series:
        'mofa_pool_toy_nodes{pool="toy"}': '0x5 2x20'
      silent: 8m
      fires: 12m
    line: nodes of a pool are away
    runbook: |
      ## What it means

      Nodes of the pool have not been ready for five minutes.

      ## How to look

      `kubectl get nodes`

      ## What to do

      Bring them back, or take them out of the pool.
"""


def figure(copy: Copy) -> str:
    """A toy figure of a pool, with its metric and its alert."""
    after = '    _gauge("mofa_pool_member", '
    row = (
        '_gauge("mofa_pool_toy_nodes", ("pool",), "1", "Nodes that are away.",\n'
        "        lambda f: f.snapshot.node_count.total - f.snapshot.node_count.ready)"
    )
    copy.change("operator/mofa_operator/metrics/declared.py", after, f"    {row},\n{after}")
    shown = copy.python("-c", EXPORTED).splitlines()
    if shown != ['mofa_pool_toy_nodes{pool="toy"} 0.0', 'mofa_pool_toy_nodes{pool="toy"} 3.0']:
        raise Fails(f"with 8 and 5 of 8 nodes ready it says {shown}")
    name = "deploy/rules/source/alerts.yaml"
    copy.write(name, (copy.root / name).read_text(encoding="utf-8") + ALERT)
    copy.python("tools/rules.py")
    copy.python("-m", "pytest", "-q", "-n", "0", "-m", "not slow", "tests/rules")
    return f"{shown[0]} becomes {shown[1].split()[-1]} when three nodes go, and its alert fires"
