"""Live sources of `mofa rates --prometheus` and `mofa profile --from-cluster`, without an operator.

The functions are entry points of the group `mofa.sources`. A profile is given as the name of a
bundled one, as a file, or, where a kubeconfig exists, as the name of a live object. The flavour and
credentials of Prometheus come from the operator's environment variables (MOFA_PROMETHEUS_FLAVOUR,
…_BEARER_TOKEN_FILE, …).
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

from mofa_model.errors import BadFile, BadValue, MofaError, SourceUnreachable
from mofa_model.manifest.surroundings import bundled_profiles, manifests_of
from mofa_model.reliability.observed import ObservedFailures
from mofa_operator.api import Api
from mofa_operator.api_errors import ApiError
from mofa_operator.credentials import Credentials
from mofa_operator.keys import CLUSTER_PROFILE, NODE
from mofa_operator.observe.history.history import observed_of, read_history
from mofa_operator.observe.nodes import facts_of, pools_of
from mofa_operator.observe.prometheus.client import Prometheus
from mofa_operator.settings import PrometheusSettings
from mofa_operator.snapshot import NoHistory

PATIENCE: Final = 120.0
"""Longest wait for one query; a person waits for it and asks once, so it is long. [s]"""


def observed(url: str, profile: str) -> ObservedFailures:
    """The history of a profile's pool in Prometheus; raises SourceUnreachable without one."""
    return asyncio.run(_observed(environment(url), manifest(profile)))


async def _observed(settings: PrometheusSettings, body: Mapping[str, Any]) -> ObservedFailures:
    async with Prometheus(settings) as prometheus:
        history = await read_history(prometheus, body, time.time())
    if isinstance(history, NoHistory):
        raise SourceUnreachable(f"Prometheus at {prometheus.address}: {history.message}")
    return observed_of(history)


def environment(url: str) -> PrometheusSettings:
    """Settings of the server: from the operator's environment variables, else defaults."""
    options: dict[str, Any] = {
        field.name: os.environ[variable]
        for field in fields(PrometheusSettings)
        if field.name in {"flavour", "bearer_token_file", "basic_auth_file", "org_id", "ca_file"}
        and (variable := f"MOFA_PROMETHEUS_{field.name.upper()}") in os.environ
    }
    return PrometheusSettings(url=url, timeout=PATIENCE, **options)


def manifest(profile: str) -> Mapping[str, Any]:
    """The manifest of a profile: a bundled one, a file, or the live object of that name."""
    if profile in bundled_profiles() or Path(profile).is_file():
        manifests = manifests_of(profile)
        if len(manifests) != 1:
            raise BadFile(profile, f"holds {len(manifests)} ClusterProfiles; give one")
        return manifests[0]
    live = asyncio.run(_live(profile))
    if live is None:
        names = ", ".join(sorted(bundled_profiles()))
        raise BadValue(
            "--profile",
            profile,
            f"give a file, a bundled name ({names}), or the name of a ClusterProfile in your "
            "cluster",
        )
    return live


async def _live(name: str) -> Mapping[str, Any] | None:
    """The object in the kubeconfig's cluster; None where cluster or object is missing."""
    try:
        api = Api.from_environment()
    except MofaError:
        return None
    async with api:
        try:
            return await api.get(CLUSTER_PROFILE, "", name)
        except ApiError as error:
            raise SourceUnreachable(
                f"cluster: the ClusterProfile {name} cannot be read: {error}"
            ) from None


def live() -> list[dict[str, Any]]:
    """The pools of the cluster that KUBECONFIG names; without one, of the pod's own cluster."""
    return asyncio.run(_live_pools())


async def _live_pools() -> list[dict[str, Any]]:
    try:
        async with Api(Credentials.from_environment()) as api:
            return pools_of([facts_of(body) async for body in api.list(NODE)])
    except ApiError as error:
        raise SourceUnreachable(f"--from-cluster: nodes cannot be listed: {error}") from None
