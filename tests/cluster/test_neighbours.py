"""The conformance matrix: the real definitions of two releases of each project, and all samples
that they publish.

MOFA_NEIGHBOURS names a folder with `crds/PROJECT-RELEASE/*.yaml.xz` and `samples/PROJECT/*.yaml`;
nothing of it is in this tree. MOFA_MATRIX names a file for the matrix. What a sample needs is in
tests/neighbours.py: a policy, and no change to the sample.
"""

import lzma
import os
import re
import secrets
from collections import defaultdict
from pathlib import Path

import pytest
from advisor import Advisor
from mofa_local.cluster import KubectlFailed
from neighbours import OWN, asks, documents, field_of, outcomes, put
from pools import pool
from ruamel.yaml import YAML

from mofa_model.identity import JobClass, identify

FOLDER = os.environ.get("MOFA_NEIGHBOURS", "")
pytestmark = pytest.mark.skipif(
    not FOLDER,
    reason="MOFA_NEIGHBOURS names no folder with the projects' definitions and samples; our own samples run in test_kinds.py",
)
QUICK = ("--settle=1", "--settle-longest=1", "--resync=20", "--backoff=0.2")
"""Of the samples that ask for GPUs, how many are advised at least. [1]"""
MEND = re.compile(r"; (ask|create|give|say|name)|: (create|name|give) ")
"""What every answer without advice says: what would be right."""
ADVISED = {"Recommended", "LowConfidence"}


def releases():
    """Folders of each project's releases, older ones first: a head is newer than any number."""
    found = defaultdict(list)
    for folder in sorted((Path(FOLDER) / "crds").iterdir()):
        project, _, release = folder.name.rpartition("-")
        found[project].append((release == "head", release, folder))
    return {project: [folder for *_, folder in sorted(some)] for project, some in found.items()}


def definitions(number):
    """The definitions of the older (0) or the newer (1) release of every project, by name; of one
    name the first project's.

    MPIJobs are defined by two projects under one name, so the older round has the training
    operator's and the newer one the MPI operator's.
    """
    order = sorted(releases().items(), reverse=number == 0)
    found = {}
    for _, folders in order:
        for path in sorted(folders[min(number, len(folders) - 1)].glob("*.yaml.xz")):
            body = YAML(typ="safe").load(lzma.decompress(path.read_bytes()).decode())
            found.setdefault(body["metadata"]["name"], body)
    return list(found.values())


def samples():
    """Every published sample and our own, by project and file; those that define runtimes first, as
    a platform installs them.
    """
    every = [*sorted((Path(FOLDER) / "samples").glob("*/*.yaml")), *sorted(OWN.glob("*.yaml"))]
    found = {path: documents(path) for path in every}
    return dict(sorted(found.items(), key=lambda item: not _is_runtime(item[1])))


def _is_runtime(bodies):
    return any(one.get("kind") == "ClusterTrainingRuntime" for one in bodies)


def has_field(definition, field):
    """Whether a definition has a field, as far as it says what it has."""
    here = definition["schema"]["openAPIV3Schema"]
    for step in re.sub(r"\[[^\]]*\]", ".[]", field).split("."):
        if here.get("x-kubernetes-preserve-unknown-fields") or "additionalProperties" in here:
            return True
        here = (
            here.get("items")
            if step == "[]" and "items" in here
            else here.get("properties", {}).get(step)
        )
        if here is None:
            return False
    return True


@pytest.fixture(scope="module", params=[0, 1], ids=["older", "newer"])
def defined(cluster, request):
    """The cluster with one release of every project."""
    made = definitions(request.param)
    for one in made:
        cluster.apply(one)
    cluster.await_served(*made)
    yield made
    cluster.kubectl("delete", "clustertrainingruntimes", "--all", "--ignore-not-found")
    for one in made:
        try:
            cluster.kubectl(
                "delete", "crd", one["metadata"]["name"], "--ignore-not-found", "--timeout=60s"
            )
        except KubectlFailed as error:
            pytest.fail(str(error))


def matrix(name, wanted, found, refused, asking):
    """What became of each project's samples, and below of each sample."""
    counts, lines = defaultdict(lambda: [0, 0, 0, 0, 0]), []
    for key, path in wanted.items():
        said, counted = found.get(key), counts[path.parent.name]
        given = said is not None and said["status"] in ADVISED
        for number, is_so in enumerate(
            (True, said is not None, key in asking, key in asking and given)
        ):
            counted[number] += is_so
        status = "silence" if said is None else said["status"]
        shown = "" if said is None else said.get("strategy") or field_of(said["explanation"])
        lines.append(
            f"| {path.parent.name} | {path.stem.rpartition('__')[2]} | {key[0].kind} {key[2]} | {status} | {shown} |"
        )
    for path, kind, one, why in refused:
        counts[path.parent.name][4] += 1
        reason = " ".join(why.split())[:90]
        lines.append(
            f"| {path.parent.name} | {path.stem.rpartition('__')[2]} | {kind.kind} {one} | not taken | {reason} |"
        )
    rows = [
        f"| {project} | {' | '.join(map(str, some))} |" for project, some in sorted(counts.items())
    ]
    head = f"| {name} | taken | answered | ask for GPUs | of these advised | not taken by the API server |\n|---|---|---|---|---|---|"
    every = "| project | sample | object | outcome | strategy or field |\n|---|---|---|---|---|"
    return "\n".join([head, *rows, "", every, *sorted(lines), ""])


def may_train(body):
    """Whether an object trains a language model, or runs a training script that names no model."""
    found = identify(body)
    return found.job_class.trains or (found.job_class is JobClass.OTHER_TRAINING and not found.sure)


def test_no_sample_meets_silence_and_none_is_advised_that_trains_no_language_model(
    cluster, processes, defined, request
):
    """Every other one is told a field that the real definition has, what stands there, and what
    would be right.
    """
    name = request.node.callspec.id
    shapes = {
        (one["spec"]["group"], one["spec"]["names"]["kind"]): one["spec"]["versions"][0]
        for one in defined
    }
    wanted, refused, asking, bodies_of = {}, [], set(), {}
    advisor = Advisor(cluster, processes, f"neighbours-{name}")
    with pool(cluster) as profile:
        advisor.start(*QUICK)
        for number, (path, bodies) in enumerate(samples().items()):
            place = f"{name}-{number}-{secrets.token_hex(2)}"
            taken, others = put(cluster, place, profile, bodies)
            by_name = {body["metadata"].get("name"): body for body in bodies}
            bodies_of |= {(kind, place, one): by_name.get(one, {}) for kind, one in taken}
            wanted |= {(kind, place, one): path for kind, one in taken}
            refused += [(path, *one) for one in others]
            with_gpus = {body["metadata"]["name"] for body in bodies if asks(body.get("spec"))}
            asking |= {(kind, place, one) for kind, one in taken if one in with_gpus}
        found = outcomes(cluster, wanted, 240.0)
        advisor.stop()
    table = matrix(name, wanted, found, refused, asking)
    if target := os.environ.get("MOFA_MATRIX"):
        with Path(target).open("a", encoding="utf-8") as file:
            file.write(table + "\n")
    strange = []
    for (kind, _, _), said in found.items():
        if said["status"] == "InvalidInput":
            text, shape = said["explanation"], shapes.get((kind.group, kind.kind))
            if not MEND.search(text) or (shape and not has_field(shape, field_of(text))):
                strange.append(text)
    assert [key for key in wanted if key not in found] == []
    assert strange == []
    silly = [
        key for key in found if found[key]["status"] in ADVISED and not may_train(bodies_of[key])
    ]
    assert silly == [], table
    assert [
        key
        for key in asking
        if found[key]["status"] == "NotTraining" and "cpu-only" in found[key]["explanation"]
    ] == []
