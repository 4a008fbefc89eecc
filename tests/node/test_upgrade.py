"""From an older release to this one and back by helm, under fifty live objects: no job restarts,
and none is ever without its advice.
"""

import contextlib
import json
import subprocess
import tarfile
import threading
import time
from collections import Counter
from dataclasses import replace

import pytest
import yaml
from advisor import condition, ours
from mofa_local import images, nodes
from mofa_local.blocks import write_block
from mofa_local.cluster import KubectlFailed
from mofa_local.neighbourhood import missing as neighbours_missing
from mofa_local.processes import Processes
from mofa_local.real import supply
from mofa_local.real.machine import missing
from mofa_local.series import sampled
from mofa_local.synthetic import Job, draw
from pools import EXAMPLES
from real_site import HOME, RELEASE, ROOT, RealSite, until
from started import STUB, batch, job_set

pytestmark = pytest.mark.soak
BEFORE = "a9304a71"
"""A commit of 0.1.0, which people may have installed from a clone."""
BESIDE = ("kube-state-metrics", "jobset")
IN_A_POD = ("extraEnv[0].name=POD_ID", "extraEnv[0].value=older")
"""Without it kopf asks for the name of its user, whom the image does not know: that release saw no
profile in any pod.
"""
POOL = "local.mofa.dev/pool"
PLACE = "ml"
APPLIED = {"job": (batch, 16), "jobset": (job_set, 8)}
"""Jobs that mode Apply starts, and whose pods run on: 24."""
WAITING, TRAINING = 8, 18
"""JobSets that somebody else holds, and TrainingJobs: with the others fifty."""
KINDS = "jobs,jobsets,trainingjobs"


@pytest.fixture(scope="module")
def older(tmp_path_factory):
    """The tree of the older release."""
    folder = tmp_path_factory.mktemp("older")
    asked = ["git", "archive", "--format=tar", f"--output={folder / 'tree.tar'}", BEFORE]
    if subprocess.run(asked, cwd=ROOT, capture_output=True, check=False).returncode:
        pytest.skip(f"this clone has no commit {BEFORE}; `git fetch --unshallow` brings it")
    with tarfile.open(folder / "tree.tar") as held:
        held.extractall(folder / "tree", filter="data")
    with (folder / "tree" / ".dockerignore").open("a", encoding="ascii") as ignored:
        ignored.write("!requirements/build.txt\n")  # which its Dockerfile copies, and it left out
    return folder / "tree"


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    if why := missing() or neighbours_missing(*BESIDE):
        pytest.skip(why)
    folder = tmp_path_factory.mktemp("upgrade")
    with Processes(folder / "run") as processes:
        made = RealSite(folder, processes, gpus=128)
        try:
            yield made.start(*BESIDE)
            said = made.kubectl("logs", "-n", HOME, f"deploy/{RELEASE}", "--tail=40")
            made.seen.note("the operator's last words", said)
        except KubectlFailed as gone:  # removed, as the last step of the test asks
            made.seen.note("no operator is left to ask", str(gone))
        finally:
            made.stop()


def test_an_upgrade_and_its_rollback_lose_no_advice_and_restart_no_job(site, older):
    site.prometheus.data.mkdir(parents=True, exist_ok=True)
    write_block(lived(), site.prometheus.data)
    site.scrape()
    old = supply.load_advisor(site.node.containers, older)
    site.seen.note(
        f"images: {images.size(old) / 1e6:.0f} MB of {BEFORE}, {images.size(site.image) / 1e6:.0f} MB of this tree, base included"
    )
    site.install(
        "operator.quietSeconds=2",
        *IN_A_POD,
        chart=older / "charts" / "mofa-advisor",
        image=old,
    )
    until(lambda: ready(site.operator()), what="the older operator is Ready")
    assert served(site) == stated(older), "the older chart's definitions"
    begin(site)
    until(lambda: len(advised(site)) == 50, what="fifty objects have advice", patience=400)
    began = until(lambda: running(site), what="24 jobs run", patience=400)
    failed = until(lambda: counted(site), what="failures of nodes are counted", patience=900)
    first = models(site)
    site.seen.note(f"fifty objects are advised by {first}, 24 of them run")
    with watched(site) as seen:
        helm(site, "upgrade", ROOT / "charts" / "mofa-advisor", site.image)
        until(lambda: not models(site) & first, what="all are answered anew", patience=400)
        second = models(site)
        assert served(site) == stated(ROOT), "helm has brought the new definitions"
        assert running(site) == began, "every process of every job is the one that it was"
        assert counted(site) == failed, "what the pool has learned is there, once"
        new_job(site, "new")
        site.seen.note(
            f"upgraded: all fifty are answered by {second}; after {seen.looks} looks none was without advice"
        )
        site.helm("rollback", RELEASE, "1", "--wait", "--timeout=5m")
        until(lambda: models(site) == first, what="the older one answers again", patience=400)
        assert served(site) == stated(older), "a rollback takes the definitions back too"
        assert running(site) == began
        assert counted(site) == failed
        new_job(site, "newer")
        site.seen.note(f"rolled back: answered by {first} again, after {seen.looks} looks")
        helm(site, "upgrade", ROOT / "charts" / "mofa-advisor", site.image)
        until(lambda: models(site) == second, what="and forward once more", patience=400)
        assert running(site) == began
        assert counted(site) == failed, "days that an older operator kept are added once"
    assert seen.looks > 20
    assert not seen.bare, f"without advice for a moment: {seen.bare}"
    site.seen.note(f"upgraded again; {seen.looks} looks in all, none without advice")
    nothing_is_left(site, began)


def lived():
    """Two days of a pool whose nodes failed four times, as Prometheus kept them."""
    harm = {"process": 0, "pod": 4, "job": 0}
    past = draw(end=int(time.time()) - 600, nodes=2, days=2, jobs=(Job(name="past", nodes=2),), failures=harm, node_caused=1.0)  # fmt: skip
    return sampled(replace(past, nodes=("pool-0", "pool-1")), lambda _: True)


def begin(site):
    """The pool, the policy, and fifty objects."""
    site.cluster.kubectl("label", "node", site.node.name, f"{POOL}=real")
    labels = {POOL: "real"}
    nodes.create(site.cluster, [nodes.node(f"pool-{one}", labels=labels) for one in range(2)])
    profile = yaml.safe_load((EXAMPLES / "h100-east.yaml").read_text("utf-8"))
    profile.pop("status")
    profile |= {"metadata": {"name": "real"}, "spec": profile["spec"] | {"nodeSelector": labels}}
    few = {axis: {"values": [1]} for axis in ("tp", "pp", "cp", "mbs")}
    policy = {
        "apiVersion": "mofa.dev/v1alpha1",
        "kind": "AdvisorPolicy",
        "metadata": {"name": "all", "namespace": PLACE},
        "spec": {
            "kinds": [
                {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet"},
                {"apiVersion": "batch/v1", "kind": "Job"},
            ],
            "profile": "real",
            "training": {"model": "llama3.2-1b", "tokens": "1T", "framework": "megatron"},
            "constraints": few,
        },
    }
    stub = {"pretrain_gpt.py": "sleep 1000000 &\nwait\n"}
    site.cluster.apply(
        profile,
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": PLACE}},
        policy,
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "stub", "namespace": PLACE},
            "data": stub,
        },
    )
    until(
        lambda: site.read("cprof", "real")["status"]["nodes"]["ready"] == 3, what="the pool is seen"
    )
    for kind, (made, many) in APPLIED.items():
        site.cluster.apply(*(made(PLACE, f"{kind}-{one}") for one in range(many)))
    held = [job_set(PLACE, f"held-{one}", gate=None, mode=None) for one in range(WAITING)]
    site.cluster.apply(*held, *(training_job(f"training-{one}") for one in range(TRAINING)))


def training_job(name):
    """A TrainingJob of its own length, so that each is asked for itself."""
    number = int(name.rpartition("-")[2]) if name[-1].isdigit() else 99
    training = {"tokens": f"{number + 1}B", "sequenceLength": 4096, "globalBatchSize": 64}
    return {
        "apiVersion": "mofa.dev/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": name, "namespace": PLACE},
        "spec": {
            "model": {"preset": "llama3.2-1b"},
            "training": {**training, "framework": "megatron"},
            "cluster": {"profile": "real", "nodes": 1},
            "constraints": {axis: {"values": [1]} for axis in ("pp", "cp", "mbs")},
        },
    }


def helm(site, verb, chart, image):
    """What docs/upgrade.md says, and the name of the image."""
    repository, _, tag = image.rpartition(":")
    site.helm(
        verb, RELEASE, str(chart), "--reset-then-reuse-values", "--wait", "--timeout=5m",
        f"--set=image.repository={repository}", f"--set=image.tag={tag}",
    )  # fmt: skip


def ready(pod):
    return bool(pod) and condition(pod, "Ready").get("status") == "True"


def objects(site):
    return json.loads(site.kubectl("get", KINDS, "-n", PLACE, "-o", "json"))["items"]


def name_of(body):
    return f"{body['kind']}/{body['metadata']['name']}"


def advised(site):
    """Objects with advice. Jobs that a JobSet made are the JobSet's."""
    return {
        name_of(one): ours(one)
        for one in objects(site)
        if "strategy" in ours(one) and not one["metadata"].get("ownerReferences")
    }


def models(site):
    """Versions of the model that answered the objects which have advice."""
    return {one["model-version"] for one in advised(site).values()}


def running(site):
    """Processes of the 24 jobs, by number and as they were started, and how often their containers
    began; None before all run.
    """
    # A shell that is about to become the program is none yet.
    commands = [(pid, line) for pid, line in site.commands(STUB) if line[1:2] == [STUB]]
    found = frozenset((pid, " ".join(line)) for pid, line in commands)
    pods = json.loads(site.kubectl("get", "pods", "-n", PLACE, "-o", "json"))["items"]
    began = Counter(one["metadata"]["uid"] for one in pods)
    again = [
        state["restartCount"]
        for one in pods
        for state in one["status"].get("containerStatuses", ())
    ]
    many = sum(many for _, many in APPLIED.values())
    return (found, frozenset(began), sum(again)) if len(found) == many == len(set(began)) else None


def counted(site):
    """Failures that the pool's ledger holds by class; None where there is none."""
    ledger = site.read("failureledger", "real")["status"]
    found = Counter()
    for day in ledger.get("days", ()):
        for one in day.get("classes", ()):
            found[one["name"]] += one["failures"]
    return +found or None


def new_job(site, name):
    """A job that comes now is advised by whoever runs now."""
    site.cluster.apply(training_job(name))
    until(lambda: f"TrainingJob/{name}" in advised(site), what=f"{name} is advised")


class Watched:
    """What a look a moment found: objects that had advice and have none."""

    def __init__(self):
        self.looks, self.bare, self.ended = 0, set(), threading.Event()


@contextlib.contextmanager
def watched(site):
    """Look all the time, and keep what was without advice."""
    seen, wanted = Watched(), set(advised(site))

    def look():
        while not seen.ended.is_set():
            seen.bare |= wanted - set(advised(site))
            seen.looks += 1
            time.sleep(0.5)

    looking = threading.Thread(target=look)
    looking.start()
    try:
        yield seen
    finally:
        seen.ended.set()
        looking.join()


def stated(tree):
    """Fields of every definition in a tree."""
    return {
        body["metadata"]["name"]: paths(body)
        for body in (
            yaml.safe_load(one.read_text("utf-8")) for one in (tree / "crds").glob("*.yaml")
        )
    }


def served(site):
    """Fields of every definition that the API server has."""
    found = json.loads(site.kubectl("get", "crd", "-o", "json"))["items"]
    return {
        one["metadata"]["name"]: paths(one)
        for one in found
        if one["metadata"]["name"].endswith(".mofa.dev")
    }


def paths(definition):
    """Every field of a definition's schema, by its path."""

    def below(schema, at):
        for key, part in schema.get("properties", {}).items():
            yield f"{at}.{key}"
            yield from below(part, f"{at}.{key}")
        if isinstance(inner := schema.get("items"), dict):
            yield from below(inner, f"{at}[]")

    (version,) = definition["spec"]["versions"]
    return frozenset(below(version["schema"]["openAPIV3Schema"], ""))


def nothing_is_left(site, began):
    """What docs/install.md says of removal: helm, the definitions, the namespace."""
    site.helm("uninstall", RELEASE, "--wait")
    assert running(site) == began, "jobs run on"
    definitions = list(served(site))
    assert len(definitions) == 4, "helm leaves them, and with them what people made"
    site.kubectl("delete", "crd", *definitions)
    site.kubectl("delete", "namespace", HOME)
    kinds = "crd,clusterrole,clusterrolebinding,validatingadmissionpolicy,validatingadmissionpolicybinding,namespace"
    left = site.kubectl("get", kinds, "-o", "name").split()
    assert not [one for one in left if "mofa" in one], left
    assert running(site) == began
    site.seen.note("uninstalled: nothing of it is left, and 24 jobs run on")
