"""What our installation lacks: definitions, operator, rights, fence.

Pure; each check says what it found and what mends it.
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
    for one in site.operators:
        yield from _running(site, one)
        yield from _account(site, one)
        yield from _fence(site, one)
        yield from _settings(site, one)
    yield from _scraping(site)
    yield from pool_checks(site)


def _scraping(site: Site) -> Iterator[Diagnosis]:
    """Whether whoever is scraped may say that he is somebody else."""
    for body in site.honoured:
        namespace, name = (text_of(at(body, "metadata", word)) for word in ("namespace", "name"))
        kind = text_of(body.get("kind")).lower()
        yield weaker(
            "scraping",
            f"{kind} {namespace}/{name} has honorLabels: its targets may say that they are of another "
            "namespace, and jobs there are contested; set overrideHonorLabels in the Prometheus",
            f"kubectl edit -n {namespace} {kind} {name}",
        )


def _own_rights(site: Site) -> Iterator[Diagnosis]:
    """Kinds that the user of this command may not list, with the command that grants it."""
    for kind, said in sorted(site.refused.items()):
        place = "" if kind.namespaced else " (of the whole cluster)"
        mend = (
            f"kubectl create clusterrole see-{kind.plural} --verb=get,list "
            f"--resource={kind.resource} && kubectl create "
            f"clusterrolebinding see-{kind.plural} --clusterrole=see-{kind.plural} --user=YOU"
        )
        yield unknown("your rights", f"you may not list {kind.resource}{place}: {said}", mend)
    if not site.refused:
        yield ok("your rights", "you may read everything that is looked at here")


def _definitions(site: Site) -> Iterator[Diagnosis]:
    about = "definitions"
    apply = _CRDS
    missing = sorted(kind.resource for kind, body in site.definitions.items() if body is None)
    if missing:
        yield broken(about, f"the cluster does not know {', '.join(missing)}", apply)
    for kind, body in sorted(site.definitions.items()):
        if body is None:
            continue
        if at(body, "metadata", "deletionTimestamp"):
            yield broken(about, f"{kind.resource} is being deleted, and its objects with it", apply)
        conditions = {
            text_of(one.get("type")): one for one in items(at(body, "status", "conditions"))
        }
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
                apply,
            )
    if CRD not in site.refused and not missing:
        yield ok(about, f"all {len(site.definitions)} are there")


@cache
def _shipped() -> Mapping[str, frozenset[str]]:
    """Fields of the definitions that this command brings, by name; to make them takes a second."""
    return {one["metadata"]["name"]: _fields(one, VERSION_OF_API) for one in crds().values()}


def _fields(definition: Mapping[str, Any], version: str) -> frozenset[str]:
    """Paths of the fields of a version; none where it is not served."""
    every = items(at(definition, "spec", "versions"))
    served = next((one for one in every if one.get("name") == version and one.get("served")), {})
    return frozenset(_below(part(served, "schema", "openAPIV3Schema"), ""))


def _below(schema: Mapping[str, Any], path: str) -> Iterator[str]:
    for name, inner in part(schema, "properties").items():
        yield f"{path}{name}"
        yield from _below(inner, f"{path}{name}.")
    for inner in (part(schema, "items"), part(schema, "additionalProperties")):
        if inner:
            yield from _below(inner, path)


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
    everywhere = [one for one in site.operators if not one.settings.get("namespace")]
    if len(everywhere) > 1:
        where = " and ".join(f"{one.namespace}/{one.name}" for one in everywhere)
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


def _running(site: Site, one: Deployed) -> Iterator[Diagnosis]:
    about = "operator"
    if one.wanted == 0:
        yield broken(
            about,
            f"{one.namespace}/{one.name} has no replicas",
            f"kubectl scale {one.place} --replicas=1",
        )
        return
    if one.available:
        yield ok(about, f"{one.namespace}/{one.name} runs {one.image}")
    else:
        pods = [pod for pod in site.pods if at(pod, "metadata", "namespace") == one.namespace]
        reason, said = next((found for pod in pods if (found := waiting(pod))[0]), ("", ""))
        if "Image" in reason:
            mend = _image_command(one)
        elif reason:
            mend = f"kubectl logs {one.place} --previous"
        else:
            mend = f"kubectl describe {one.place}"
        why = f": {reason} {said}".rstrip() if reason else ""
        yield broken(about, f"{one.namespace}/{one.name} is not available{why}", mend)
    tag = one.image.rpartition(":")[2]
    if "@" not in one.image and "/" not in tag and tag != VERSION and tag[:1].isdigit():
        yield weaker(
            about,
            f"it runs release {tag}, and this command is of {VERSION}",
            _image_command(one, f":{VERSION}"),
        )


def _account(site: Site, one: Deployed) -> Iterator[Diagnosis]:
    about = "rights"
    if site.sees(ACCOUNT) and not any(
        named(body) == one.account and at(body, "metadata", "namespace") == one.namespace
        for body in site.objects_of(ACCOUNT)
    ):
        yield broken(
            about,
            f"its service account {one.namespace}/{one.account} is not there",
            f"kubectl create serviceaccount {one.account} -n {one.namespace}",
        )
    if not site.sees(*ROLES, *BINDINGS):
        return
    watched = [
        kind for kind in KINDS if kind.setting in _kinds(one) and kind not in site.fleet.absent
    ]
    if lost := lacking(site.objects_of(*ROLES), site.objects_of(*BINDINGS), one, watched):
        more = f", and {len(lost) - 1} more" if len(lost) > 1 else ""
        yield broken(
            about, f"{one.user} may not {lost[0]}{more}", _reapply_command(one, "rbac.yaml")
        )
    else:
        yield ok(about, f"{one.user} may do what the operator does")


def _fence(site: Site, one: Deployed) -> Iterator[Diagnosis]:
    about = "fence"
    if not site.sees(FENCE, FENCE_BINDING):
        return
    apply = _reapply_command(one, "admission-policy.yaml", "admissionPolicy.enabled=true")
    around = [body for body in site.objects_of(FENCE) if _names(body, one.user)]
    if not around:
        yield broken(about, f"no ValidatingAdmissionPolicy is around {one.user}", apply)
        return
    bound = [
        b
        for b in site.objects_of(FENCE_BINDING)
        if at(b, "spec", "policyName") in set(map(named, around))
    ]
    actions = {
        action
        for body in bound
        for action in at(body, "spec", "validationActions") or ()  # type: ignore[attr-defined]
    }
    if not bound:
        yield broken(about, f"{named(around[0])} has no binding, so that it refuses nothing", apply)
    elif "Deny" not in actions:
        said = ", ".join(sorted(actions)) or "nothing"
        yield broken(about, f"{named(bound[0])} does not deny: its actions are {said}", apply)
    else:
        yield ok(about, f"{named(around[0])} is around {one.user}")


def _names(policy: Body, user: str) -> bool:
    """Whether a policy's conditions name an account."""
    return any(
        f'"{user}"' in text_of(one.get("expression"))
        for one in items(at(policy, "spec", "matchConditions"))
    )


def _kinds(one: Deployed) -> frozenset[str]:
    """The kinds that an operator's settings make it watch."""
    told = one.settings.get("kinds")
    return frozenset(OperatorSettings().kinds if told is None else told.split(","))


def _settings(site: Site, one: Deployed) -> Iterator[Diagnosis]:
    """Settings of an operator that limit what it sees or writes."""
    if "dry-run" in one.settings:
        yield weaker(
            "operator",
            "it writes nothing (--dry-run)",
            _setting_command(one, "operator.dryRun=false"),
        )
    if not one.settings.get("prometheus-url"):
        yield weaker(
            "Prometheus",
            "the operator was given none: advice rests on assumed failure rates and on what "
            "nodes and jobs show, and running "
            "jobs are not observed (--prometheus-url)",
            _setting_command(one, "prometheus.url=http://prometheus.monitoring:9090"),
        )
    if "fence" not in one.settings and site.sees(FENCE):
        yield weaker(
            "fence",
            "the operator does not prove it before it writes (--fence)",
            _setting_command(one, "admissionPolicy.enabled=true"),
        )
    held = {key.kind for key in site.fleet.jobs}
    for kind in KINDS:
        if kind in held and kind.setting not in _kinds(one):
            chosen = ",".join([*sorted(_kinds(one) - {""}), kind.setting])
            yield weaker(
                "kinds",
                f"the cluster has {kind.title}s, and the operator does not look at them "
                f"(--kinds={chosen})",
                _setting_command(one, f"'rbac.kinds={{{chosen}}}'"),
            )
