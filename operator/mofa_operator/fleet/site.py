"""Our installation as it stands in a cluster, and the rights of its account."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from mofa_model.kinds import Kind
from mofa_model.kinds.shape import (
    Body,
    Line,
    Many,
    Shape,
    Text,
    at,
    glance,
    items,
    text_of,
    under,
)
from mofa_model.manifest.cluster_profile import EXPORTERS
from mofa_operator.api import Api
from mofa_operator.api_errors import Gone, Refused
from mofa_operator.fleet.fleet import ClusterSeen, read_fleet
from mofa_operator.keys import (
    ADVISOR_POLICY,
    CLUSTER_PROFILE,
    CONFIG_MAP,
    FAILURE_LEDGER,
    NAMESPACE,
    NODE,
    OURS,
    TRAINING_JOB,
)

CRD: Final = Kind(
    "apiextensions.k8s.io",
    "v1",
    "CustomResourceDefinition",
    "customresourcedefinitions",
    namespaced=False,
)
DEPLOYMENT: Final = Kind("apps", "v1", "Deployment", "deployments")
POD: Final = Kind("", "v1", "Pod", "pods")
ACCOUNT: Final = Kind("", "v1", "ServiceAccount", "serviceaccounts")
_RBAC: Final = ("rbac.authorization.k8s.io", "v1")
ROLES: Final = (
    Kind(*_RBAC, "ClusterRole", "clusterroles", namespaced=False),
    Kind(*_RBAC, "Role", "roles"),
)
BINDINGS: Final = (
    Kind(*_RBAC, "ClusterRoleBinding", "clusterrolebindings", namespaced=False),
    Kind(*_RBAC, "RoleBinding", "rolebindings"),
)
_ADMISSION: Final = ("admissionregistration.k8s.io", "v1")
FENCE: Final = Kind(
    *_ADMISSION, "ValidatingAdmissionPolicy", "validatingadmissionpolicies", namespaced=False
)
FENCE_BINDING: Final = Kind(
    *_ADMISSION,
    "ValidatingAdmissionPolicyBinding",
    "validatingadmissionpolicybindings",
    namespaced=False,
)
MONITORS: Final = (
    Kind("monitoring.coreos.com", "v1", "PodMonitor", "podmonitors"),
    Kind("monitoring.coreos.com", "v1", "ServiceMonitor", "servicemonitors"),
)
"""Objects in which the Prometheus operator reads what to scrape."""
_HELM: Final = "meta.helm.sh/"
_PART, _PART_OF = ("app.kubernetes.io/part-of",), "mofa-advisor"
_OF_US: Final = f"{_PART[0]}={_PART_OF}"
"""The label that every object of a release has."""
_INSTALLED: Final = (DEPLOYMENT, ACCOUNT, *ROLES, *BINDINGS, FENCE, FENCE_BINDING)


class _Container(Shape):
    name: Text = ""
    image: Text = ""
    args: Line = None


class Deployed(Shape):
    """The Deployment of an operator."""

    name: Text = under("", "metadata", "name")
    namespace: Text = under("", "metadata", "namespace")
    wanted: int = under(1, "spec", "replicas")
    available: int = under(0, "status", "availableReplicas")
    release: Text = under("", "metadata", "annotations", "meta.helm.sh/release-name")
    account: Text = under("default", "spec", "template", "spec", "serviceAccountName")
    containers: Many[_Container] = under((), "spec", "template", "spec", "containers")

    @property
    def image(self) -> str:
        """The operator's image."""
        return self.containers[0].image if self.containers else ""

    @property
    def settings(self) -> Mapping[str, str]:
        """Its settings by flag name, from its arguments; a flag without a value is empty."""
        arguments = (self.containers[0].args or ()) if self.containers else ()
        pairs = (str(word).removeprefix("--").partition("=") for word in arguments)
        return {name: value for name, _, value in pairs}

    @property
    def place(self) -> str:
        """Namespace and Deployment of the operator, as arguments of kubectl."""
        return f"-n {self.namespace} deployment/{self.name}"

    @property
    def user(self) -> str:
        """The operator's user name at the API server."""
        return f"system:serviceaccount:{self.namespace}:{self.account}"


@dataclass(frozen=True, kw_only=True)
class Site:
    """Our installation in a cluster, as far as it may be read."""

    fleet: ClusterSeen
    definitions: Mapping[Kind, Body | None]
    """Our CustomResourceDefinitions; None = not there. One that may not be read is missing."""
    installed: Mapping[Kind, tuple[Body, ...]]
    """Objects of our releases by kind; a kind that may not be listed is missing."""
    pods: tuple[Body, ...]
    """Pods of the operators."""
    refused: Mapping[Kind, str]
    """Kinds that may not be read, each with the message of the API server."""
    monitors: tuple[Body, ...] = ()
    """PodMonitors and ServiceMonitors, as far as they may be seen."""

    @property
    def honoured(self) -> list[Body]:
        """Monitors with `honorLabels` in namespaces that are not trusted as those of exporters."""
        profiles = self.fleet.store.profiles()
        trusted = {*EXPORTERS, *(name for profile in profiles for name in profile.spec.exporters)}
        return [
            body
            for body in self.monitors
            if text_of(at(body, "metadata", "namespace")) not in trusted
            and any(
                at(endpoint, "honorLabels") is True
                for name in ("podMetricsEndpoints", "endpoints")
                for endpoint in items(at(body, "spec", name))
            )
        ]

    @cached_property
    def operators(self) -> tuple[Deployed, ...]:
        """Deployments that run `mofa operator`."""
        deployments = (glance(Deployed, body) for body in self.installed.get(DEPLOYMENT, ()))
        return tuple(deployed for deployed in deployments if "operator" in deployed.settings)

    @cached_property
    def releases(self) -> frozenset[tuple[str, str]]:
        """Helm releases of ours, by name and namespace; empty texts = applied by hand."""
        ours = (
            body
            for body in self.objects_of(*_INSTALLED)
            if at(body, "metadata", "labels", *_PART) == _PART_OF
        )
        return frozenset(
            (
                text_of(at(body, "metadata", "annotations", f"{_HELM}release-name")),
                text_of(at(body, "metadata", "annotations", f"{_HELM}release-namespace")),
            )
            for body in ours
        )

    def objects_of(self, *kinds: Kind) -> list[Body]:
        """Objects of these kinds."""
        return [body for kind in kinds for body in self.installed.get(kind, ())]

    def sees(self, *kinds: Kind) -> bool:
        """Whether all of these kinds could be listed."""
        return all(kind in self.installed for kind in kinds)


async def read_site(api: Api) -> Site:
    """Read all that the checks of a site need from the API server."""
    refused: dict[Kind, str] = {}

    async def listed(kind: Kind, selector: str | None) -> tuple[Body, ...] | None:
        try:
            return tuple([body async for body in api.list(kind, label_selector=selector)])
        except Gone:
            return ()
        except Refused as error:
            refused[kind] = str(error)
            return None

    async def defined(kind: Kind) -> tuple[bool, Body | None]:
        try:
            return True, await api.get(CRD, "", kind.resource)
        except Refused as error:
            refused[CRD] = str(error)
            return False, None

    fleet = await read_fleet(api)
    definitions = await asyncio.gather(*(defined(kind) for kind in OURS))
    lists = await asyncio.gather(*(listed(kind, _selector(kind)) for kind in _INSTALLED))
    monitors = await asyncio.gather(*(listed(kind, None) for kind in MONITORS))
    for kind in MONITORS:  # they are optional, so that it is no finding if they may not be listed
        refused.pop(kind, None)
    return Site(
        fleet=fleet,
        definitions={
            kind: body
            for kind, (is_readable, body) in zip(OURS, definitions, strict=True)
            if is_readable
        },
        installed={
            kind: listing
            for kind, listing in zip(_INSTALLED, lists, strict=True)
            if listing is not None
        },
        pods=await listed(POD, _OF_US) or (),
        refused=refused | dict(fleet.refused),
        monitors=tuple(body for listing in monitors for body in listing or ()),
    )


def _selector(kind: Kind) -> str | None:
    """The label selector of a kind: roles and bindings of anybody may concern our account, of all
    other kinds only our own objects matter.
    """
    return None if kind in {*ROLES, *BINDINGS} else _OF_US


def named(body: Body) -> str:
    """Name of an object."""
    return text_of(at(body, "metadata", "name"))


def waiting(body: Body) -> tuple[str, str]:
    """Why a pod's containers wait: reason and message; empty where none does."""
    for status in items(at(body, "status", "containerStatuses")):
        reason = text_of(at(status, "state", "waiting", "reason"))
        if reason:
            return reason, text_of(at(status, "state", "waiting", "message"))
    return "", ""


_READ: Final = ("get", "list", "watch")
_EVENT: Final = Kind("", "v1", "Event", "events")


def needed(kinds: Iterable[Kind]) -> Iterator[tuple[str, str, str]]:
    """Rights that the operator needs: (verb, group, resource); `kinds` are those it watches."""
    kinds = tuple(kinds)
    for kind in (
        NODE,
        NAMESPACE,
        CLUSTER_PROFILE,
        FAILURE_LEDGER,
        ADVISOR_POLICY,
        TRAINING_JOB,
        *kinds,
    ):
        yield from ((verb, kind.group, kind.plural) for verb in _READ)
    yield from (("patch", kind.group, kind.plural) for kind in (TRAINING_JOB, *kinds))
    yield from (("patch", kind.group, f"{kind.plural}/status") for kind in OURS)
    yield from ((verb, FAILURE_LEDGER.group, FAILURE_LEDGER.plural) for verb in ("create", "patch"))
    yield "get", CONFIG_MAP.group, CONFIG_MAP.plural
    yield "create", _EVENT.group, _EVENT.plural


def lacking(
    roles: Sequence[Body], bindings: Sequence[Body], deployed: Deployed, kinds: Iterable[Kind]
) -> list[str]:
    """Rights that an operator needs and lacks; a Role counts like a ClusterRole."""
    by_reference = {
        (text_of(role.get("kind")), text_of(at(role, "metadata", "namespace")), named(role)): role
        for role in roles
    }
    rules = [
        rule
        for binding in bindings
        if _binds(binding, deployed)
        for rule in items(by_reference.get(_role_of(binding), {}).get("rules"))
    ]
    return [
        f"{verb} {resource}{'.' if group else ''}{group}"
        for verb, group, resource in needed(kinds)
        if not any(_allows(rule, verb, group, resource) for rule in rules)
    ]


def _binds(binding: Body, deployed: Deployed) -> bool:
    return any(
        (who.get("kind"), who.get("name"), who.get("namespace"))
        == ("ServiceAccount", deployed.account, deployed.namespace)
        for who in items(binding.get("subjects"))
    )


def _role_of(binding: Body) -> tuple[str, str, str]:
    kind = text_of(at(binding, "roleRef", "kind"))
    place = text_of(at(binding, "metadata", "namespace")) if kind == "Role" else ""
    return kind, place, text_of(at(binding, "roleRef", "name"))


def _allows(rule: Body, verb: str, group: str, resource: str) -> bool:
    wanted = (("verbs", verb), ("apiGroups", group), ("resources", resource))
    return not rule.get("resourceNames") and all(
        isinstance(values := rule.get(name), list) and ("*" in values or value in values)
        for name, value in wanted
    )
