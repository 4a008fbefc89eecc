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
    part,
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
"""What says whom Prometheus scrapes, where its operator is."""
_HELM: Final = "meta.helm.sh/"
_PART, _PART_OF = ("app.kubernetes.io/part-of",), "mofa-advisor"
_OF_US: Final = f"{_PART[0]}={_PART_OF}"
"""What every object of a release says of itself."""
_INSTALLED: Final = (DEPLOYMENT, ACCOUNT, *ROLES, *BINDINGS, FENCE, FENCE_BINDING)


class _Container(Shape):
    name: Text = ""
    image: Text = ""
    args: Line = None


class Deployed(Shape):
    """An operator's Deployment."""

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
        words = [str(word) for one in self.containers[:1] for word in one.args or ()]
        return {
            name: value
            for name, _, value in (word.removeprefix("--").partition("=") for word in words)
        }

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
    """What was read."""

    fleet: ClusterSeen
    definitions: Mapping[Kind, Body | None]
    """Our CustomResourceDefinitions; None = not there. One that may not be read is missing."""
    installed: Mapping[Kind, tuple[Body, ...]]
    """Objects of our releases by kind; a kind that may not be listed is missing."""
    pods: tuple[Body, ...]
    """Pods of the operators."""
    refused: Mapping[Kind, str]
    """What may not be read, and what the API server said."""
    monitors: tuple[Body, ...] = ()
    """Who is scraped, as far as that may be seen."""

    @property
    def honoured(self) -> list[Body]:
        """Monitors outside of exporters' namespaces that let targets say who they are."""
        trusted = {
            name for profile in self.fleet.store.profiles() for name in profile.spec.exporters
        }
        return [
            body
            for body in self.monitors
            if text_of(at(body, "metadata", "namespace")) not in trusted | {*EXPORTERS}
            and any(
                at(one, "honorLabels") is True
                for name in ("podMetricsEndpoints", "endpoints")
                for one in items(at(body, "spec", name))
            )
        ]

    @cached_property
    def operators(self) -> tuple[Deployed, ...]:
        """Deployments that run `mofa operator`."""
        every = (glance(Deployed, body) for body in self.installed.get(DEPLOYMENT, ()))
        return tuple(one for one in every if "operator" in one.settings)

    @cached_property
    def releases(self) -> frozenset[tuple[str, str]]:
        """Helm releases of ours, by name and namespace; empty texts = applied by hand."""
        ours = (
            body
            for body in self.objects_of(*_INSTALLED)
            if at(body, "metadata", "labels", *_PART) == _PART_OF
        )
        notes = (part(body, "metadata", "annotations") for body in ours)
        return frozenset(
            (
                text_of(one.get(f"{_HELM}release-name")),
                text_of(one.get(f"{_HELM}release-namespace")),
            )
            for one in notes
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
    for kind in MONITORS:  # whoever may not see them is told nothing of them
        refused.pop(kind, None)
    return Site(
        fleet=fleet,
        definitions={
            kind: body for kind, (seen, body) in zip(OURS, definitions, strict=True) if seen
        },
        installed={
            kind: found for kind, found in zip(_INSTALLED, lists, strict=True) if found is not None
        },
        pods=await listed(POD, _OF_US) or (),
        refused=refused | dict(fleet.refused),
        monitors=tuple(body for found in monitors for body in found or ()),
    )


def _selector(kind: Kind) -> str | None:
    """Roles and bindings of anybody may concern our account; of the rest only what is ours."""
    return None if kind in {*ROLES, *BINDINGS} else _OF_US


def named(body: Body) -> str:
    """Name of an object."""
    return text_of(at(body, "metadata", "name"))


def waiting(body: Body) -> tuple[str, str]:
    """Why a pod's containers wait: reason and message; empty where none does."""
    for one in items(at(body, "status", "containerStatuses")):
        reason = text_of(at(one, "state", "waiting", "reason"))
        if reason:
            return reason, text_of(at(one, "state", "waiting", "message"))
    return "", ""


_READ: Final = ("get", "list", "watch")
_EVENT: Final = Kind("", "v1", "Event", "events")


def needed(kinds: Iterable[Kind]) -> Iterator[tuple[str, str, str]]:
    """What the operator does, as (verb, group, resource); `kinds` are those it watches."""
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
    """What it does and may not; Roles in a namespace count as much as ClusterRoles."""
    held = {
        (text_of(role.get("kind")), text_of(at(role, "metadata", "namespace")), named(role)): role
        for role in roles
    }
    rules = [
        rule
        for binding in bindings
        if _binds(binding, deployed)
        for role in [held.get(_role_of(binding))]
        if role is not None
        for rule in items(role.get("rules"))
    ]
    return [
        f"{verb} {resource}{'.' if group else ''}{group}"
        for verb, group, resource in needed(kinds)
        if not any(_allows(rule, verb, group, resource) for rule in rules)
    ]


def _binds(binding: Body, one: Deployed) -> bool:
    return any(
        (who.get("kind"), who.get("name"), who.get("namespace"))
        == ("ServiceAccount", one.account, one.namespace)
        for who in items(binding.get("subjects"))
    )


def _role_of(binding: Body) -> tuple[str, str, str]:
    kind = text_of(at(binding, "roleRef", "kind"))
    place = text_of(at(binding, "metadata", "namespace")) if kind == "Role" else ""
    return kind, place, text_of(at(binding, "roleRef", "name"))


def _allows(rule: Body, verb: str, group: str, resource: str) -> bool:
    wanted = (("verbs", verb), ("apiGroups", group), ("resources", resource))
    return not rule.get("resourceNames") and all(
        isinstance(given := rule.get(name), list) and ("*" in given or value in given)
        for name, value in wanted
    )
