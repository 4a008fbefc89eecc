"""What our installation lacks: definitions, operator, rights, fence. Pure.

Each check says what it found, and with which command that is mended.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Final

from mofa_model import VERSION
from mofa_model.kinds import KINDS
from mofa_model.kinds.shape import Body, at, items, part, text_of
from mofa_model.manifest.crds import VERSION as VERSION_OF_API
from mofa_model.manifest.crds import crds
from mofa_operator.fleet.findings import Diagnosis, broken, ok, unknown, weaker
from mofa_operator.fleet.pools import is_kept, pool_checks
from mofa_operator.fleet.site import (
    ACCOUNT,
    BINDINGS,
    CRD,
    DEPLOYMENT,
    FENCE,
    FENCE_BINDING,
    ROLES,
    Deployed,
    Site,
    lacking,
    named,
    waiting,
)
from mofa_operator.settings import OperatorSettings

INSTALL: Final = (
    "helm install mofa-advisor charts/mofa-advisor --namespace mofa-system --create-namespace "
    "--set "
    "image.repository=IMAGE"
)
_APPLY: Final = "kubectl apply --server-side --force-conflicts -f"
_CRDS: Final = f"{_APPLY} crds"
_MANIFESTS: Final = "deploy/manifests"


def _upgrade_command(release: str, namespace: str, sets: str = "") -> str:
    """The helm command that upgrades a release to this chart, with the values in `sets`."""
    command = f"helm upgrade {release} charts/mofa-advisor --namespace {namespace}"
    command += " --reset-then-reuse-values"
    return f"{command} --set {sets}" if sets else command


def _reapply_command(operator: Deployed, manifest: str, sets: str = "") -> str:
    """The command that restores a part of an installation: helm, or kubectl apply without helm."""
    return (
        _upgrade_command(operator.release, operator.namespace, sets)
        if operator.release
        else f"{_APPLY} {_MANIFESTS}/{manifest}"
    )


def _setting_command(operator: Deployed, sets: str) -> str:
    """The command that changes a setting of an operator: helm, or kubectl edit without helm."""
    return (
        _upgrade_command(operator.release, operator.namespace, sets)
        if operator.release
        else f"kubectl edit {operator.place}"
    )


def _image_command(operator: Deployed, tag: str = "") -> str:
    """The command that sets an operator's image."""
    if operator.release:
        return _upgrade_command(operator.release, operator.namespace, "image.repository=IMAGE")
    name = operator.containers[0].name if operator.containers else "operator"
    return f"kubectl set image {operator.place} {name}=IMAGE{tag}"


def checks(site: Site) -> Iterator[Diagnosis]:
    """All checks of an installation, in the order in which faults should be mended."""
    yield from _own_rights(site)
    yield from _definitions(site)
    yield from _operators(site)
    for operator in site.operators:
        yield from _running(site, operator)
        yield from _account(site, operator)
        yield from _fence(site, operator)
        yield from _settings(site, operator)
    yield from _scraping(site)
    yield from pool_checks(site)


def _scraping(site: Site) -> Iterator[Diagnosis]:
    """Monitors whose targets may publish series in the name of another namespace."""
    for body in site.honoured:
        namespace, name = (text_of(at(body, "metadata", word)) for word in ("namespace", "name"))
        kind = text_of(body.get("kind")).lower()
        yield weaker(
            "scraping",
            f"{kind} {namespace}/{name} has honorLabels: its targets may say that they are of "
            "another namespace, and jobs there are contested; set overrideHonorLabels in the "
            "Prometheus",
            f"kubectl edit -n {namespace} {kind} {name}",
        )


def _own_rights(site: Site) -> Iterator[Diagnosis]:
    """Kinds that the user of this command may not list, with the command that grants it."""
    for kind, refusal in sorted(site.refused.items()):
        place = "" if kind.namespaced else " (of the whole cluster)"
        mend = (
            f"kubectl create clusterrole see-{kind.plural} --verb=get,list "
            f"--resource={kind.resource} && kubectl create "
            f"clusterrolebinding see-{kind.plural} --clusterrole=see-{kind.plural} --user=YOU"
        )
        yield unknown("your rights", f"you may not list {kind.resource}{place}: {refusal}", mend)
    if not site.refused:
        yield ok("your rights", "you may read everything that is looked at here")


def _definitions(site: Site) -> Iterator[Diagnosis]:
    about = "definitions"
    missing = sorted(kind.resource for kind, body in site.definitions.items() if body is None)
    if missing:
        yield broken(about, f"the cluster does not know {', '.join(missing)}", _CRDS)
    for kind, body in sorted(site.definitions.items()):
        if body is None:
            continue
        if at(body, "metadata", "deletionTimestamp"):
            yield broken(about, f"{kind.resource} is being deleted, and its objects with it", _CRDS)
        rows = items(at(body, "status", "conditions"))
        conditions = {text_of(row.get("type")): row for row in rows}
        if at(conditions.get("Established"), "status") != "True":
            why = text_of(at(conditions.get("NamesAccepted"), "message")) or "no condition says why"
            yield broken(
                about,
                f"{kind.resource} is not served: {why}",
                f"kubectl describe crd {kind.resource}",
            )
        if lost := sorted(_shipped()[kind.resource] - _fields(body, kind.version)):
            yield broken(
                about,
                f"{kind.resource} is that of another release: it lacks {lost[0]}"
                + (f" and {len(lost) - 1} more fields" if len(lost) > 1 else ""),
                _CRDS,
            )
    if CRD not in site.refused and not missing:
        yield ok(about, f"all {len(site.definitions)} are there")


@cache
def _shipped() -> Mapping[str, frozenset[str]]:
    """Fields of the definitions that this command brings, by name. Cached: they take a second."""
    return {crd["metadata"]["name"]: _fields(crd, VERSION_OF_API) for crd in crds().values()}


def _fields(definition: Mapping[str, Any], version: str) -> frozenset[str]:
    """Paths of the fields of a version; none where it is not served."""
    for row in items(at(definition, "spec", "versions")):
        if row.get("name") == version and row.get("served"):
            return frozenset(_paths(part(row, "schema", "openAPIV3Schema"), ""))
    return frozenset()


def _paths(schema: Mapping[str, Any], path: str) -> Iterator[str]:
    """Paths of the fields of a schema, each behind `path`."""
    for name, inner in part(schema, "properties").items():
        yield f"{path}{name}"
        yield from _paths(inner, f"{path}{name}.")
    for inner in (part(schema, "items"), part(schema, "additionalProperties")):
        if inner:
            yield from _paths(inner, path)


def _operators(site: Site) -> Iterator[Diagnosis]:
    about = "operator"
    if not site.sees(DEPLOYMENT):
        return
    if not site.operators and is_kept(site):
        yield unknown(
            about,
            "no Deployment runs `mofa operator`, and what stands on every ClusterProfile is of "
            "now: an operator runs outside of this "
            "cluster, as that of `make up` does, and only its own /readyz says how it is",
        )
    elif not site.operators:
        yield broken(about, "no Deployment of a release runs `mofa operator`", _install(site))
    everywhere = [operator for operator in site.operators if not operator.settings.get("namespace")]
    if len(everywhere) > 1:
        where = " and ".join(f"{operator.namespace}/{operator.name}" for operator in everywhere)
        yield broken(
            about,
            f"{where} both watch all namespaces, and write against each other",
            f"kubectl delete {everywhere[-1].place}",
        )


def _install(site: Site) -> str:
    """The command that installs the operator, by helm or kubectl as the rest was installed."""
    for name, namespace in sorted(site.releases):
        return (
            _upgrade_command(name, namespace)
            if name
            else f"{_APPLY} {_MANIFESTS} -f {_MANIFESTS}/operator"
        )
    return INSTALL


def _running(site: Site, operator: Deployed) -> Iterator[Diagnosis]:
    about = "operator"
    if operator.wanted == 0:
        yield broken(
            about,
            f"{operator.namespace}/{operator.name} has no replicas",
            f"kubectl scale {operator.place} --replicas=1",
        )
        return
    if operator.available:
        yield ok(about, f"{operator.namespace}/{operator.name} runs {operator.image}")
    else:
        pods = [pod for pod in site.pods if at(pod, "metadata", "namespace") == operator.namespace]
        reason, message = next(filter(any, map(waiting, pods)), ("", ""))
        if "Image" in reason:
            mend = _image_command(operator)
        elif reason:
            mend = f"kubectl logs {operator.place} --previous"
        else:
            mend = f"kubectl describe {operator.place}"
        why = f": {reason} {message}".rstrip() if reason else ""
        yield broken(about, f"{operator.namespace}/{operator.name} is not available{why}", mend)
    tag = operator.image.rpartition(":")[2]
    if "@" not in operator.image and "/" not in tag and tag != VERSION and tag[:1].isdigit():
        yield weaker(
            about,
            f"it runs release {tag}, and this command is of {VERSION}",
            _image_command(operator, f":{VERSION}"),
        )


def _account(site: Site, operator: Deployed) -> Iterator[Diagnosis]:
    about = "rights"
    if site.sees(ACCOUNT) and not any(
        named(body) == operator.account and at(body, "metadata", "namespace") == operator.namespace
        for body in site.objects_of(ACCOUNT)
    ):
        yield broken(
            about,
            f"its service account {operator.namespace}/{operator.account} is not there",
            f"kubectl create serviceaccount {operator.account} -n {operator.namespace}",
        )
    if not site.sees(*ROLES, *BINDINGS):
        return
    kinds = _kinds(operator)
    watched = [kind for kind in KINDS if kind.setting in kinds and kind not in site.fleet.absent]
    if lost := lacking(site.objects_of(*ROLES), site.objects_of(*BINDINGS), operator, watched):
        more = f", and {len(lost) - 1} more" if len(lost) > 1 else ""
        yield broken(
            about,
            f"{operator.user} may not {lost[0]}{more}",
            _reapply_command(operator, "rbac.yaml"),
        )
    else:
        yield ok(about, f"{operator.user} may do what the operator does")


def _fence(site: Site, operator: Deployed) -> Iterator[Diagnosis]:
    about = "fence"
    if not site.sees(FENCE, FENCE_BINDING):
        return
    apply = _reapply_command(operator, "admission-policy.yaml", "admissionPolicy.enabled=true")
    policies = [body for body in site.objects_of(FENCE) if _names(body, operator.user)]
    if not policies:
        yield broken(about, f"no ValidatingAdmissionPolicy is around {operator.user}", apply)
        return
    names = set(map(named, policies))
    bindings = [
        body for body in site.objects_of(FENCE_BINDING) if at(body, "spec", "policyName") in names
    ]
    actions = {
        action
        for body in bindings
        for action in at(body, "spec", "validationActions") or ()  # type: ignore[attr-defined]
    }
    if not bindings:
        yield broken(
            about, f"{named(policies[0])} has no binding, so that it refuses nothing", apply
        )
    elif "Deny" not in actions:
        words = ", ".join(sorted(actions)) or "nothing"
        yield broken(about, f"{named(bindings[0])} does not deny: its actions are {words}", apply)
    else:
        yield ok(about, f"{named(policies[0])} is around {operator.user}")


def _names(policy: Body, user: str) -> bool:
    """Whether a policy's conditions name an account."""
    return any(
        f'"{user}"' in text_of(condition.get("expression"))
        for condition in items(at(policy, "spec", "matchConditions"))
    )


def _kinds(operator: Deployed) -> frozenset[str]:
    """The kinds that an operator's settings make it watch."""
    kinds = operator.settings.get("kinds")
    return frozenset(OperatorSettings().kinds if kinds is None else kinds.split(","))


def _settings(site: Site, operator: Deployed) -> Iterator[Diagnosis]:
    """Settings of an operator that limit what it sees or writes."""
    if "dry-run" in operator.settings:
        yield weaker(
            "operator",
            "it writes nothing (--dry-run)",
            _setting_command(operator, "operator.dryRun=false"),
        )
    if not operator.settings.get("prometheus-url"):
        yield weaker(
            "Prometheus",
            "the operator was given none: advice rests on assumed failure rates and on what "
            "nodes and jobs show, and running "
            "jobs are not observed (--prometheus-url)",
            _setting_command(operator, "prometheus.url=http://prometheus.monitoring:9090"),
        )
    if "fence" not in operator.settings and site.sees(FENCE):
        yield weaker(
            "fence",
            "the operator does not prove it before it writes (--fence)",
            _setting_command(operator, "admissionPolicy.enabled=true"),
        )
    present = {key.kind for key in site.fleet.jobs}
    for kind in KINDS:
        if kind in present and kind.setting not in _kinds(operator):
            chosen = ",".join([*sorted(_kinds(operator) - {""}), kind.setting])
            yield weaker(
                "kinds",
                f"the cluster has {kind.title}s, and the operator does not look at them "
                f"(--kinds={chosen})",
                _setting_command(operator, f"'rbac.kinds={{{chosen}}}'"),
            )
