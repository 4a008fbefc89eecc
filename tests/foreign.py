"""The kinds of jobs that people already have, as small definitions: any spec is kept, status is a subresource as theirs is."""

from mofa_operator.keys import BATCH_JOB, EXISTING

KINDS = tuple(kind for kind in EXISTING if kind != BATCH_JOB)
"""Those that a cluster does not have by itself."""


def definition(kind):
    """A CustomResourceDefinition for one of them."""
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    names = {
        "kind": kind.kind,
        "plural": kind.plural,
        "singular": kind.kind.lower(),
        "listKind": f"{kind.kind}List",
    }
    version = {
        "name": kind.version,
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "schema": {
            "openAPIV3Schema": {"type": "object", "properties": {"spec": anything, "status": anything}}
        },
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind.plural}.{kind.group}"},
        "spec": {"group": kind.group, "names": names, "scope": "Namespaced", "versions": [version]},
    }


def job(kind, namespace, name, **metadata):
    """An object of one of these kinds, suspended."""
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {"name": name, "namespace": namespace, **metadata},
        "spec": {"suspend": True},
    }


def install(cluster):
    """Have these kinds in a cluster; returns when they are served."""
    made = [definition(kind) for kind in KINDS]
    cluster.apply(*made)
    names = [f"crd/{one['metadata']['name']}" for one in made]
    cluster.kubectl("wait", "--for=condition=Established", "--timeout=60s", *names)
