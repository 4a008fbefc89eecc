"""Samples of jobs as people have them, opted in by the policy of their namespace alone, and what
becomes of each.

A person opts in a namespace: an AdvisorPolicy there lists the kinds and says what no sample can
say, the model and the size of a step. Nothing of a sample is changed but the namespace it is in,
and that a name is given where it leaves that to the API server.
"""

import json
import time
from pathlib import Path

from advisor import ours, read
from mofa_local.client import Client, Refused
from mofa_local.processes import is_late
from ruamel.yaml import YAML

from mofa_model.kinds import KINDS, job_kind
from mofa_operator.keys import ADVISOR_POLICY

OWN = Path(__file__).parent / "data" / "samples"
TRAINING = {"model": "llama3.2-1b", "sequenceLength": 2048, "globalBatchSize": 64}
GPUS = {"nvidia.com/gpu", "amd.com/gpu"}


def documents(path):
    """The objects of a file; none where it is a template that is no YAML."""
    try:
        bodies = [
            body
            for body in YAML(typ="safe").load_all(path.read_text("utf-8"))
            if isinstance(body, dict)
        ]
    except Exception:  # noqa: BLE001 - whatever the reader says of it, nobody can apply it either
        return []
    return _plain(json.loads(json.dumps(bodies, default=str)))


def _plain(value):
    """A value without fields that hold nothing: a key that stands alone is as one that does not
    stand there.
    """
    if isinstance(value, dict):
        return {key: _plain(member) for key, member in value.items() if member is not None}
    return [_plain(member) for member in value] if isinstance(value, list) else value


def policy(namespace, profile, **more):
    """The policy by which a namespace is opted in, whatever versions its samples are of."""
    kinds = [{"apiVersion": kind.api_version, "kind": kind.kind} for kind in KINDS]
    return {
        "apiVersion": ADVISOR_POLICY.api_version,
        "kind": ADVISOR_POLICY.kind,
        "metadata": {"name": "everything", "namespace": namespace},
        "spec": {"kinds": kinds, "profile": profile, "training": TRAINING, **more},
    }


def put(cluster, namespace, profile, bodies, **more):
    """Create a sample in a namespace of its own; the result is what was taken of kinds that are
    advised, and what was refused.

    Unknown fields are dropped, as kubectl has it where a person asks for no more; a sample of a
    version that is not served is created in one that says the same.
    """
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    cluster.apply(policy(namespace, profile, **more))
    client = Client(cluster.kubeconfig)
    served = client.resources()
    taken, refused = [], []
    for number, body in enumerate(bodies):
        metadata = body.setdefault("metadata", {})
        metadata.pop("namespace", None)
        metadata.setdefault("name", f"{metadata.pop('generateName', 'sample-')}{number}")
        kind = job_kind(body.get("apiVersion"), body.get("kind"))
        versions = [
            body.get("apiVersion"),
            *(
                []
                if kind is None
                else (f"{kind.group}/{version}" for version in (kind.version, *kind.others))
            ),
        ]
        version = next(
            (version for version in versions if f"{version}/{body.get('kind')}" in served), None
        )
        if version is None:
            if kind is not None:
                refused.append((kind, metadata["name"], f"{body.get('apiVersion')} is not served"))
            continue
        try:
            path, resource = served[f"{version}/{body['kind']}"]
            if resource["scope"] == "Namespaced":
                metadata["namespace"] = namespace
                path = f"{path}/namespaces/{namespace}"
            client.ask(
                "POST",
                f"{path}/{resource['resource']}?fieldValidation=Ignore",
                body | {"apiVersion": version},
            )
        except Refused as error:
            if kind is not None:
                refused.append((kind, metadata["name"], str(error)))
        else:
            if kind is not None:
                taken.append((kind, metadata["name"]))
    return taken, refused


def asks(value):
    """Whether any pod in an object asks for GPUs, as their resources are named."""
    if isinstance(value, dict):
        has_gpus = any(str(amount) != "0" for name, amount in value.items() if name in GPUS)
        return has_gpus or any(map(asks, value.values()))
    return isinstance(value, list) and any(map(asks, value))


def outcomes(cluster, wanted, seconds=120.0):
    """Our annotations of objects, by (kind, namespace, name), once all have an outcome or the time
    is over.
    """
    start, statuses = time.monotonic(), {}
    while len(statuses) < len(wanted) and not is_late(start, seconds):
        for kind in {kind for kind, _, _ in wanted}:
            for body in read(cluster, kind.resource):
                key = kind, body["metadata"]["namespace"], body["metadata"]["name"]
                if key in wanted and "status" in ours(body):
                    statuses[key] = ours(body)
        time.sleep(0.5)
    return statuses


def field_of(explanation):
    """The field that an explanation names: what stands before its first colon, without a reference
    to another object.
    """
    text = explanation.partition("': ")[2] if "': spec" in explanation else explanation
    return text.partition(": ")[0]
