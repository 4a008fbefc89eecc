"""The newcomer as a test: adds toys to a copy of this tree, as CONTRIBUTING says, and shows that each of them works.

    python tools/newcomer.py                    all toys
    python tools/newcomer.py schedule           one
    python tools/newcomer.py --suite axis       with `make check verify test-unit` in the copy, no test edited
    python tools/newcomer.py --near kind        with the quick tests of the rooms that changed

The copy is a clean clone with what is changed here. For each toy it prints the files and lines that were written (generated ones
apart), and a price, a flag or a count that changed by it. It fails where a toy needs more files or lines than it should, or changes
nothing, and with `--suite` where a check or a quick test fails.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
JOB = (
    "--model",
    "llama3-8b",
    "--gpu",
    "h100",
    "--gpus",
    "64",
    "--global-batch",
    "512",
    "--seq",
    "8192",
)
COMMANDS = """
import contextlib, io, json, sys
from mofa_model.cli import main

told = []
for command in json.loads(sys.argv[1]):
    with contextlib.redirect_stdout(io.StringIO()) as out:
        code = main(command)
    if code:
        sys.exit(f"mofa {' '.join(command)} ends with {code}")
    told.append(out.getvalue())
print(json.dumps(told))
"""


LINES = 40
"""Lines that a toy may write by hand, apart from a block and a schedule, whose mathematics is theirs."""
GENERATORS = (
    ("-m", "mofa_model.manifest.crds"),
    ("tools/rules.py",),
    ("tools/reference.py",),
    ("tools/metrics.py",),
    ("tools/chart.py",),
    ("tools/dashboards.py",),
)
"""What a contributor runs before a commit, as CONTRIBUTING says."""


class Fails(Exception):
    """A toy that does not work."""


@dataclass
class Copy:
    """A scratch copy of the tree."""

    root: Path
    """Where it is."""
    touched: set[str] = field(default_factory=set)
    """Files that a person wrote or changed."""

    def write(self, name: str, text: str) -> None:
        """A new file."""
        self.touched.add(name)
        (self.root / name).write_text(text, encoding="utf-8")

    def change(self, name: str, old: str, new: str) -> None:
        """One place of a file that is there."""
        path = self.root / name
        text = path.read_text(encoding="utf-8")
        if text.count(old) != 1:
            raise Fails(f"{name}: {old!r} is there {text.count(old)} times")
        self.touched.add(name)
        path.write_text(text.replace(old, new), encoding="utf-8")

    def lines(self) -> int:
        """Lines that were written or replaced by hand."""
        self.run("git", "add", "--intent-to-add", *self.touched)
        counted = self.run("git", "diff", "--numstat", "--", *self.touched)
        return sum(int(line.split()[0]) for line in counted.splitlines())

    def keep_to(self, files: int, lines: int) -> None:
        """Refuse more files or lines than a toy should need."""
        if len(self.touched) > files:
            raise Fails(
                f"{len(self.touched)} files, where {files} should do: {', '.join(sorted(self.touched))}"
            )
        if (written := self.lines()) > lines:
            raise Fails(f"{written} lines, where {lines} should do")

    def generate(self) -> None:
        """Do what a contributor does before a commit."""
        self.run(
            str(ROOT / ".venv/bin/ruff"),
            "format",
            "--quiet",
            *(name for name in self.touched if name.endswith(".py")),
            "mofa_model/__init__.py",
        )
        for words in GENERATORS:
            self.python(*words)

    def suite(self) -> str:
        """Check, and run the whole quick tier; what pytest says at its end."""
        self.generate()
        for target in ("check", "verify"):
            self.run("make", f"VENV={ROOT / '.venv'}", target)
        return self.tested("-n", "2", "--ignore=tests/test_newcomer.py")

    def near(self) -> str:
        """Run the quick tests of the rooms that changed; what pytest says at its end."""
        self.generate()
        return self.tested("-n", "0", *self.rooms())

    def rooms(self) -> list[str]:
        """The folders of tests that mirror the folders of the modules that were written."""
        modules = (Path(name) for name in self.touched if name.endswith(".py"))
        folders = {
            "tests"
            / module.parent.relative_to("operator" if module.parts[0] == "operator" else ".")
            for module in modules
        }
        return sorted(map(str, folders))

    def tested(self, *options: str) -> str:
        """Run quick tests with no test edited; what pytest says at its end."""
        quick = ("-m", "not slow and not cluster")
        said = self.run(sys.executable, "-m", "pytest", "-q", *quick, *options)
        if edited := self.run("git", "status", "--porcelain", "tests"):
            raise Fails(f"tests were edited: {edited}")
        return said.strip().splitlines()[-1]

    def mofa(self, *commands: tuple[str, ...]) -> list[str]:
        """What commands of the copy print, one after the other in one process."""
        told: list[str] = json.loads(self.python("-c", COMMANDS, json.dumps(commands)))
        return told

    def python(self, *arguments: str) -> str:
        """What a program of the copy prints."""
        return self.run(sys.executable, *arguments)

    def run(self, *command: str) -> str:
        """What any program prints, run in the copy."""
        path = os.pathsep.join(str(self.root / part) for part in ("", "operator", "deploy/local"))
        done = subprocess.run(
            command,
            cwd=self.root, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            raise Fails(f"{' '.join(command)[:200]}: {done.stdout.strip()} {done.stderr.strip()}")
        return done.stdout

    def json(self, *commands: tuple[str, ...]) -> list[Any]:
        """The JSON that commands of the copy print."""
        return [json.loads(told) for told in self.mofa(*((*one, "-o", "json") for one in commands))]


def limited(*limits: str) -> tuple[str, ...]:
    """Flags that limit a search."""
    return tuple(word for limit in limits for word in ("--constraint", limit))


SCHEDULE = '''"""GPipe: all forwards, then all backwards: the simplest order, and the one that holds the most activations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mofa_model.schedules.schedule import Operation, OperationKind, Order, Schedule


@dataclass(frozen=True)
class GPipe(Schedule):
    """All forwards first."""

    value: ClassVar[str] = "gpipe"

    def order(self, p, m, v=1) -> Order:
        """Forwards, then backwards."""
        self.own_virtual_stages(v)
        kinds = [(k, j) for k in (OperationKind.FORWARD, OperationKind.BACKWARD) for j in range(m)]
        return tuple(tuple((Operation(k, i, j),) for k, j in kinds) for i in range(p))

    def in_flight(self, *, position, microbatches, stages, virtual=1.0):
        """All of them, Eq. (5). [1]"""
        return microbatches + 0 * position

    def time(self, flow):
        """Fill, work and drain, Eq. (9). [s]"""
        return flow.microbatches * flow.slowest + (flow.total - flow.slowest) + 2 * (flow.stages - 1) * flow.hop


GPIPE = GPipe()
'''


def schedule(copy: Copy) -> str:
    """A toy schedule."""
    copy.write("mofa_model/schedules/gpipe.py", SCHEDULE)
    copy.change(
        "mofa_model/schedules/__init__.py",
        "from mofa_model.schedules.interleaved import",
        "from mofa_model.schedules.gpipe import GPIPE\nfrom mofa_model.schedules.interleaved import",
    )
    copy.change(
        "mofa_model/schedules/__init__.py", "DUALPIPE, DUALPIPE_V)", "DUALPIPE, DUALPIPE_V, GPIPE)"
    )
    words = ("1f1b", "gpipe")
    advised, *priced = copy.json(
        ("advise", *JOB, *limited("schedule=gpipe", "pp=4")),
        *(("explain", *JOB, "--strategy", f"tp=2,pp=4,schedule={word}") for word in words),
    )
    chosen = advised["strategy"]
    if "schedule=gpipe" not in chosen:
        raise Fails(f"the search does not choose it where nothing else is allowed: {chosen}")
    memory = {word: one["summary"]["memory_bytes"] for word, one in zip(words, priced, strict=True)}
    if memory["gpipe"] <= memory["1f1b"]:
        raise Fails(f"it holds no more than 1F1B: {memory}")
    return f"advised {chosen}; {memory['gpipe'] / 2**30:.1f} GiB in place of {memory['1f1b'] / 2**30:.1f}"


BLOCK = '''"""Pooling: a token adds the mean of all before it, projected to a width and back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mofa_model.blocks.block import Block, Core, Cut, Kept, Projection, Sight


@dataclass(frozen=True, kw_only=True, slots=True)
class Pooling(Block):
    """The mean of what came before."""

    word: ClassVar = "pooling"

    width: float
    """Width of the mean."""

    def products(self, hidden) -> tuple[Projection, ...]:
        """There and back."""
        return Projection(n=self.width, k=hidden), Projection(n=hidden, k=self.width, cut=Cut.INPUT)

    def cores(self) -> tuple[Core, ...]:
        """A running sum."""
        return (Core(heads=self.width, width=1, fixed=1),)

    def kept(self, hidden) -> tuple[Kept, ...]:
        """The mean."""
        return (Kept(elements=self.width, feeds=True),)

    def sight(self) -> Sight:
        """The sum is handed on."""
        return Sight(turned=2 * self.width, state=self.width)

    def split(self) -> tuple[float, ...]:
        """The width."""
        return (self.width,)
'''
POOLED = """
[toy-pooled]
layers = [[8, ["pooling", "dense"], ["pooling", "dense"], ["pooling", "dense"], ["attention", "dense"]]]
hidden = 4096
pooling = { width = 4096 }
attention = { heads = 32, kv_heads = 8, head_dim = 128 }
dense = { width = 14336 }
embedding = { vocabulary = 128256 }
source = "a newcomer"
"""


def block(copy: Copy) -> str:
    """A toy block: one file, and a preset that has it."""
    copy.write("mofa_model/blocks/pooling.py", BLOCK)
    name = "mofa_model/presets/models.toml"
    copy.write(name, (copy.root / name).read_text(encoding="utf-8") + POOLED)
    models = ("toy-pooled", "llama3-8b")
    *seen, pooled, plain, advised = copy.json(
        *(("explain", *JOB, "--model", model, "--strategy", "tp=2,sp=true") for model in models),
        *(("presets", "models", model) for model in models),
        ("advise", *JOB, "--model", "toy-pooled", "--framework", "any", *limited("pp=1")),
    )
    layers = seen[0]["layers"]
    if "pooling + dense" not in layers:
        raise Fails(f"no layer has it: {', '.join(layers)}")
    step, memory = (
        [one["summary"][name] for one in seen] for name in ("step_seconds", "memory_bytes")
    )
    if not (step[0] < step[1] and memory[0] < memory[1] and pooled != plain):
        raise Fails(f"it costs as much as attention: {step}, {memory}")
    return f"a step of {step[0]:.2f} s in place of {step[1]:.2f} s; advised {advised['strategy']}"


DEVICE = """
[toy-gpu]
aliases = ["toy"]
class = "other"
peak_bf16 = "4000 TFLOP/s"
memory = "160 GiB"
memory_bandwidth = "8 TB/s"
scale_up = "nvlink4"
scale_out = "ndr"
host_link = "pcie5"
gpus_per_node = 8
domain = 8
source = "a newcomer"
"""


def device(copy: Copy) -> str:
    """A toy device."""
    name = "mofa_model/presets/devices.toml"
    copy.write(name, (copy.root / name).read_text(encoding="utf-8") + DEVICE)
    gpus = ("toy", "h100")
    priced = copy.json(*(("explain", *JOB, "--gpu", gpu, "--strategy", "tp=2") for gpu in gpus))
    step = {gpu: one["summary"]["step_seconds"] for gpu, one in zip(gpus, priced, strict=True)}
    if step["toy"] == step["h100"]:
        raise Fails(f"its step is that of an H100: {step}")
    return f"a step of {step['toy']:.2f} s in place of {step['h100']:.2f} s on H100s"


FIELD = """    muon: bool = False
    \"\"\"Muon updates the weights: one moment, and Newton-Schulz iterations on every matrix.\"\"\"
    tensor_overlap: bool = False
"""
ROW = """    switch(
        "muon", "muon", Scope.STATE, tried.of_all(False, True), 22, example="muon=true",
        about="Whether Muon updates the weights.", feature="muon", assumed=False,
    ),
    switch(
        "tensor_overlap", "tp-overlap","""
RULE = """    rule = workload.training.optimizer
    return replace(rule, states=4.0, iterations=5.0, gather=2.0) if strategy.muon else rule
"""
MANIFEST = """
apiVersion: mofa.dev/v1alpha1
kind: TrainingJob
metadata: {name: toy, namespace: default}
spec:
  model: {preset: llama3-8b}
  training: {sequenceLength: 8192, globalBatchSize: 512}
  cluster: {profile: h100-east, nodes: 8}
  constraints: {tp: {values: [2]}, pp: {values: [1]}, cp: {values: [1]}, muon: LIMIT}
"""


def axis(copy: Copy) -> str:
    """A toy axis that changes memory, the time of a step, and the bytes of a checkpoint."""
    copy.change("mofa_model/strategy.py", "    tensor_overlap: bool = False\n", FIELD)
    copy.change(
        "mofa_model/strategy.py", '    switch(\n        "tensor_overlap", "tp-overlap",', ROW
    )
    rule = "mofa_model/estimate/model_states.py"
    copy.change(rule, "    return workload.training.optimizer\n", RULE)
    copy.change(rule, "  # noqa: ARG001", "")
    allow = ("--allow", "experimental")  # no run has it yet
    plain = (*JOB, *allow, *limited("cp=1", "mbs=1", "recompute=none", "tp=2"))
    alone = (
        *plain,
        *limited("pp=2", "schedule=v-half"),
    )  # which no trainer has, so both are priced alike
    with_it, without, trained = copy.json(
        ("advise", *alone, *limited("muon=true")),
        ("advise", *alone, *limited("muon=false")),
        ("advise", *plain, "--framework", "megatron"),
    )
    if "muon=true" not in with_it["strategy"] or "muon" in without["strategy"]:
        raise Fails(f"a constraint does not hold it: {with_it['strategy']}, {without['strategy']}")
    if "muon" in trained["strategy"]:
        raise Fails("it is chosen for a trainer that does not have it")
    seconds, size = (
        [one["predicted"][name]["target"] for one in (with_it, without)]
        for name in ("step_seconds", "memory_bytes")
    )
    if seconds[0] == seconds[1] or size[0] >= size[1]:
        raise Fails(f"it costs as much as without: {seconds}, {size}")
    saves = [one["checkpoint_interval_steps"] for one in (with_it, without)]
    if saves[0] >= saves[1]:
        raise Fails(f"its smaller checkpoints are saved no more often: every {saves} steps")
    limits = ("true", "false")
    for limit in limits:
        (copy.root / f"{limit}.yaml").write_text(MANIFEST.replace("LIMIT", limit), encoding="utf-8")
    for limit, found in zip(
        limits, copy.json(*(("advise", f"{limit}.yaml") for limit in limits)), strict=True
    ):
        if ("muon=true" in found["strategy"]) != (limit == "true"):
            raise Fails(f"a manifest that says {limit} gets {found['strategy']}")
    return f"a step of {seconds[0]:.3f} s in place of {seconds[1]:.3f} s; saved every {saves[0]} steps in place of {saves[1]}"


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
  run: torchrun pretrain_gpt.py --tensor-model-parallel-size=8 --global-batch-size=512 --seq-length=8192 --bf16
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
    told, settings = copy.mofa(
        ("annotate", "examples/toyjob.yaml"), ("operator", "--print-settings")
    )
    if "# said by a person" not in told or '"nodes":4' not in told.replace(" ", ""):
        raise Fails(f"it is not advised on four nodes: {told}")
    if "ToyJob" not in settings:
        raise Fails("the operator does not watch it")
    for tool in ("rules", "reference", "metrics", "chart"):
        copy.python(f"tools/{tool}.py")
    for name, text in FOLLOWS.items():
        if text not in (copy.root / name).read_text(encoding="utf-8"):
            raise Fails(f"{name}: {text} is not there")
    return f"advised on 4 nodes of 8 GPUs; {len(FOLLOWS)} generated files have it"


TERM = """    norms: Seconds = term(
        "ours",
        "all-reduce of gradient norms",
        called="gradient norms",
        seconds=lambda step: 2.0 * step.cluster.calibration.links.collective,
    )
    # The slowest node delays all terms above.
"""


def term(copy: Copy) -> str:
    """A toy term of the step."""
    ((before,),) = (copy.json(("explain", *JOB, "--strategy", "tp=2")),)
    copy.change(
        "mofa_model/estimate/step.py", "    # The slowest node delays all terms above.\n", TERM
    )
    after, advised = copy.json(
        ("explain", *JOB, "--strategy", "tp=2"),
        ("advise", *JOB, *limited("tp=2", "pp=1", "cp=1", "mbs=1")),
    )
    longer = after["summary"]["step_seconds"] - before["summary"]["step_seconds"]
    if "gradient norms" not in json.dumps(after) or not 0 < longer < 0.01:
        raise Fails(f"a step is longer by {longer} s")
    return f"a step is longer by {longer:.6f} s, as its table says; advised {advised['strategy']}"


TRAINER_ENTRY = """
[toytrain]
about = "a toy trainer"
like = "torchtitan"
tp = false
pp = false
cp = false
ep = false
sharding = ["zero3"]
shard_groups = false
recompute = ["none"]
adapters = false
source = "a newcomer"
"""
TRAINER = '''"""Toytrain: two arguments."""

from collections.abc import Sequence
from typing import Final

from mofa_model.launch.answer import Launch, LaunchSettings, OpenFile, Reading
from mofa_model.strategy import Sharding, Strategy

TRAINER: Final = "toytrain"


def write(strategy: Strategy, settings: LaunchSettings) -> Launch:
    """Micro-batch and batch."""
    words = f"--toy-micro-batch={int(strategy.mbs)}", f"--toy-batch={settings.global_batch}"
    return Launch(trainer=TRAINER, release="1.0", arguments=words)


def matches(words: Sequence[str]) -> bool:
    """Whether a launch is its own."""
    return any(word.startswith("--toy-") for word in words)


def read(words: Sequence[str], _open: OpenFile) -> Reading:
    """Micro-batch and batch, as they were written."""
    said = dict(word.split("=", 1) for word in words if word.startswith("--toy-"))
    layout = {"mbs": int(said["--toy-micro-batch"]), "sharding": Sharding.WEIGHTS}
    return Reading(trainer=TRAINER, layout=layout, global_batch=int(said["--toy-batch"]))
'''


def trainer(copy: Copy) -> str:
    """A toy trainer: what it can run, and its flags."""
    name = "mofa_model/axes/frameworks.toml"
    copy.write(name, (copy.root / name).read_text(encoding="utf-8") + TRAINER_ENTRY)
    copy.write("mofa_model/launch/toytrain.py", TRAINER)
    (advised,) = copy.json(("advise", *JOB, "--framework", "toytrain", "--launch", "toytrain"))
    arguments = advised["launch"]["arguments"]
    if not any(word.startswith("--toy-micro-batch=") for word in arguments):
        raise Fails(f"its launch says {arguments}")
    line = f"torchrun train.py {' '.join(arguments)}"
    (again,) = copy.json(("explain", *JOB, "--strategy", line))
    if "optimizer=zero3" not in advised["strategy"] or again["strategy"] != advised["strategy"]:
        raise Fails(f"{advised['strategy']} is read back as {again['strategy']}")
    return f"advised {advised['strategy']}, launched by {' '.join(arguments)} and read back"


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
            "replicatedJobsStatus": [{"name": "w", "ready": 2, "succeeded": 0, "jobRestarts": [0, 0]}],
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
pool, witness = WatchedPool(profile=stands, node_facts={"a": node, "b": node}), PoolWatch(gap=3600.0)
for look in range(200):
    now = 1_795_003_200.0 + 60 * look
    days = witness.look({"toy": pool}, [watched_job(JOB_SET, live(JOB_SET, job_set(look // 50)), "toy", now)], now)["toy"]
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
"""A watch sees a JobSet restart its ranks three times in 200 minutes; prints what the profile and /metrics then say."""


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
    copy.change(kind, "super().shown(body) | ", "super().shown(body) | {RecoveryClass.RANK} | ")
    told = json.loads(copy.python("-c", OBSERVED))
    known = told["profile"]["status"]["failures"]
    counted = {row["name"]: row["failures"] for row in known}
    if counted != {"rank": 3, "pod": 0, "job": 0}:
        raise Fails(f"a watch of three restarts counts {counted}")
    if (
        'mofa_pool_failures_per_node_day{bound="mean",class="rank",pool="toy"}'
        not in told["metrics"]
    ):
        raise Fails("it is not among the metrics")
    copy.python("-m", "mofa_model.manifest.crds", "made")
    schemas = (copy.root / "made" / "mofa.dev_clusterprofiles.yaml").read_text(encoding="utf-8")
    if schemas.count("- rank\n") != schemas.count("- process\n"):
        raise Fails("the schema of a profile does not know it everywhere")
    seen = {"with.yaml": known, "without.yaml": [row for row in known if row["name"] != "rank"]}
    for name, rows in seen.items():
        told["profile"]["status"]["failures"] = rows
        (copy.root / name).write_text(json.dumps(told["profile"]), encoding="utf-8")
    job = ("ettr", "--nodes", "2", "--step", "20 s", "--model", "llama3-8b")
    ettr = [
        one["ettr"]["target"] for one in copy.json(*((*job, "--profile", name) for name in seen))
    ]
    if not ettr[0] < ettr[1]:
        raise Fails(f"its failures cost nothing: {ettr}")
    return f"3 seen by the watch; an ETTR of {ettr[0]:.4f} in place of {ettr[1]:.4f}; in metrics and schema"


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
    print(*(line for line in exporter.page()[0].decode().splitlines() if line.startswith("mofa_pool_toy")))
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
    row = '_gauge("mofa_pool_toy_nodes", ("pool",), "1", "Nodes that are away.", lambda f: f.snapshot.node_count.total - f.snapshot.node_count.ready)'
    copy.change("operator/mofa_operator/metrics/declared.py", after, f"    {row},\n{after}")
    shown = copy.python("-c", EXPORTED).splitlines()
    if shown != ['mofa_pool_toy_nodes{pool="toy"} 0.0', 'mofa_pool_toy_nodes{pool="toy"} 3.0']:
        raise Fails(f"with 8 and 5 of 8 nodes ready it says {shown}")
    name = "deploy/rules/source/alerts.yaml"
    copy.write(name, (copy.root / name).read_text(encoding="utf-8") + ALERT)
    copy.python("tools/rules.py")
    copy.python("-m", "pytest", "-q", "-n", "0", "-m", "not slow", "tests/rules")
    return f"{shown[0]} becomes {shown[1].split()[-1]} when three nodes go, and its alert fires"


TOYS: dict[str, tuple[int, int, Callable[[Copy], str]]] = {
    "block": (2, 60, block),
    "device": (1, LINES, device),
    "schedule": (2, LINES, schedule),
    "axis": (2, LINES, axis),
    "kind": (2, LINES, kind),
    "term": (1, LINES, term),
    "trainer": (2, LINES, trainer),
    "recovery-class": (2, LINES, recovery_class),
    "figure": (2, LINES, figure),
}
"""Each toy with the files and lines that it may write by hand."""


def cloned(folder: Path) -> Copy:
    """A clean clone of this tree, with what is changed here and not committed."""
    copy = Copy(folder / "clone")
    subprocess.run(["git", "clone", "--quiet", "--local", ROOT, copy.root], check=True)
    changed = subprocess.run(
        ["git", "ls-files", "--modified", "--deleted", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    for name in set(changed.stdout.splitlines()):
        if not (ROOT / name).exists():
            (copy.root / name).unlink()
            continue
        (copy.root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, copy.root / name)
    copy.run("git", "add", "--all")
    copy.run(
        "git",
        "-c",
        "user.name=newcomer",
        "-c",
        "user.email=",
        "commit",
        "--quiet",
        "--allow-empty",
        "--message",
        "here",
    )
    return copy


def main(words: list[str]) -> int:
    """Every toy in a copy of its own."""
    names = [word for word in words if word not in {"--suite", "--near"}]
    if unknown := set(names) - set(TOYS):
        print(f"newcomer: {', '.join(sorted(unknown))}: there are {', '.join(TOYS)}")
        return 2
    failed = False
    for name in names or TOYS:
        files, lines, add = TOYS[name]
        with tempfile.TemporaryDirectory() as folder:
            copy = cloned(Path(folder))
            written = 0
            try:
                said = add(copy)
                written = copy.lines()
                copy.keep_to(files, lines)
                if "--suite" in words:
                    said += f"; {copy.suite()}"
                if "--near" in words:
                    said += f"; {copy.near()}"
            except Fails as problem:
                failed, said = True, f"FAILS: {problem}"
            touched = ", ".join(sorted(copy.touched))
            print(f"{name}: {len(copy.touched)} files, {written} lines ({touched}): {said}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
