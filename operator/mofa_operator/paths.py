"""Where the API server has an object or a kind."""

from __future__ import annotations

from functools import lru_cache
from urllib.parse import quote

from mofa_model.kinds import Kind


def path_of(kind: Kind, namespace: str, name: str = "", *, status: bool = False) -> str:
    """Where an object or a kind is.

    >>> from mofa_operator.keys import TRAINING_JOB
    >>> path_of(TRAINING_JOB, "ml", "llama", status=True)
    '/apis/mofa.dev/v1alpha1/namespaces/ml/trainingjobs/llama/status'
    """
    item = f"/{quote(name, safe='')}" if name else ""
    return f"{_root(kind, namespace)}{item}{'/status' if status else ''}"


@lru_cache(maxsize=1024)
def _root(kind: Kind, namespace: str) -> str:
    group = f"/apis/{kind.group}" if kind.group else "/api"
    inside = f"/namespaces/{quote(namespace, safe='')}" if namespace else ""
    return f"{group}/{kind.version}{inside}/{kind.plural}"
