"""The profiles, policies and ConfigMaps around a job, and which profile the job means.

In a cluster only its own ClusterProfiles count. On the desk those of the streams and of `--profile`
count first, and after them those that come with the package.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from functools import cache
from pathlib import Path
from typing import Any, Final

from mofa_model import presets
from mofa_model.annotations import ADVISE
from mofa_model.bands.coordinates import ALONE
from mofa_model.errors import BadFile, BadValue, InputError, UnknownName
from mofa_model.files import read_text
from mofa_model.identity import DeviceRequest, agrees
from mofa_model.kinds import BESIDE, RAY_CLUSTER, Body, ReferencedObjects
from mofa_model.kinds.pods import PRODUCT
from mofa_model.kinds.shape import part
from mofa_model.manifest.advisor_policy import AdvisorPolicySpec
from mofa_model.manifest.cluster_profile import ClusterProfileSpec
from mofa_model.manifest.crds import API_VERSION
from mofa_model.manifest.documents import LARGEST, Documents, Item
from mofa_model.manifest.parsing import Object, Profile, advisor_policy, cluster_profile, is_ours
from mofa_model.records import dataclass


@cache
def bundled_profiles() -> Mapping[str, Profile]:
    """All profiles that the package brings, by name."""
    profiles = [
        cluster_profile(item.value)
        for name, text in _texts().items()
        for item in Documents.parse(text, f"{name}.yaml").items
    ]
    return {profile.name: profile for profile in profiles}


def bundled_text(name: str) -> str:
    """The manifest of one bundled profile as text, comments included."""
    if name not in _texts():
        raise UnknownName("profile", name, _texts())
    return _texts()[name]


def named_profiles(word: str) -> list[Profile]:
    """The profiles that a word means: the bundled one of that name, else all of a file."""
    return [cluster_profile(value) for value in manifests_of(word)]


def named_profile(word: str) -> Profile:
    """The one profile that a word means."""
    profiles = named_profiles(word)
    if len(profiles) != 1:
        count = f"{len(profiles)} ClusterProfiles"
        raise BadFile(word, f"holds {count}; give one, or a bundled name: {_bundled_names()}")
    return profiles[0]


def manifests_of(word: str, field: str = "--profile") -> list[Mapping[str, Any]]:
    """Manifests by name or file, or of a pool of nodes with a GPU; a word that is none of these is
    refused with the known names.
    """
    if word not in _texts() and not Path(word).exists() and presets.meanings("devices", word):
        pool = {"apiVersion": API_VERSION, "kind": PROFILE}
        return [{**pool, "metadata": {"name": word}, "spec": {"gpu": word}}]
    if word in _texts():
        text = _texts()[word]
    elif word == "-" or Path(word).exists():
        text = read_text(word, largest=LARGEST)
    else:
        raise BadValue(field, word, f"give a file, or a bundled name: {_bundled_names()}")
    manifests = [
        item.value for item in Documents.parse(text, word).items if item.kind == "ClusterProfile"
    ]
    if not manifests:
        raise BadFile(
            word, f"holds no ClusterProfile; give one, or a bundled name: {_bundled_names()}"
        )
    return manifests


def _bundled_names() -> str:
    return ", ".join(_texts())


@cache
def _texts() -> Mapping[str, str]:
    """Manifests by file name, which is the profile's name."""
    files = sorted(Path(presets.__file__).with_name("profiles").glob("*.yaml"))
    return {path.stem: path.read_text("utf-8") for path in files}


PRODUCTS: Final = (PRODUCT, "amd.com/gpu.product-name", "cloud.google.com/gke-accelerator")
"""Labels of nodes that say which GPU they have."""
PROFILE, POLICY = "ClusterProfile", "AdvisorPolicy"
_NAME_ONE: Final = "name one in an AdvisorPolicy, or give one with --profile"


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """What stands around a job: profiles, policies, ConfigMaps and other objects."""

    profiles: Mapping[str, Profile]
    """Profiles of the streams and of --profile, or of the cluster, by name."""
    bundled: Mapping[str, Profile] = field(default_factory=dict)
    """On the desk, profiles that come with the package."""
    policies: Sequence[Object[AdvisorPolicySpec]] = ()
    """Policies."""
    config_maps: Mapping[tuple[str, str], Mapping[str, Any]] = field(default_factory=dict)
    """Data of ConfigMaps, by namespace and name."""
    beside: Mapping[str, Sequence[Body]] = field(default_factory=dict)
    """Objects that jobs and pods may name, by namespace; empty for those of the whole cluster."""
    opted_in: frozenset[str] = frozenset()
    """Namespaces whose label opts all their jobs in."""
    refused: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """What is wrong with profiles (by kind and name) and policies (by kind and namespace)."""

    def profile(self, name: str, where: str) -> Profile:
        """A profile by name."""
        if why := self.refused.get((PROFILE, name)):
            raise InputError(why)
        profile = self.profiles.get(name) or self.bundled.get(name)
        if profile is None:
            names = ", ".join(sorted({*self.profiles, *self.bundled}))
            raise BadValue(where, name, f"known: {names}; give it with --profile FILE")
        return profile

    def around(self, namespace: str) -> ReferencedObjects:
        """What a job of a namespace may name."""
        return ReferencedObjects([*self.beside.get("", ()), *self.beside.get(namespace, ())])

    def text(self, namespace: str, name: str, key: str) -> str | None:
        """The text behind a key of a ConfigMap; None where it is not here."""
        value = self.config_maps.get((namespace, name), {}).get(key)
        return value if isinstance(value, str) else None


def surroundings(streams: Sequence[Documents], desk_profiles: Sequence[Profile]) -> Surroundings:
    """What streams hold; their profiles stand before those of the same name in `desk_profiles`."""
    items = [item for stream in streams for item in stream.items]
    configs = _function_configs(streams)
    profiles = {profile.name: profile for profile in desk_profiles}
    policies: list[Object[AdvisorPolicySpec]] = []
    refused: dict[tuple[str, str], str] = {}
    for item in (*items, *configs):
        if why := refusal(item):
            if item in configs:
                raise InputError(why)
            refused[item.kind, item.name if item.kind == PROFILE else item.namespace] = why
        elif is_ours(item.value) and item.kind == PROFILE:
            profiles[item.name] = cluster_profile(item.value)
        elif is_ours(item.value) and item.kind == POLICY:
            policies.append(advisor_policy(item.value))
    return Surroundings(
        profiles=profiles,
        bundled=bundled_profiles(),
        policies=policies,
        config_maps={
            (item.namespace, item.name): part(item.value, "data")
            for item in items
            if item.kind == "ConfigMap"
        },
        beside=_beside(items),
        opted_in=frozenset(item.name for item in items if opts_in(item.value)),
        refused=refused,
    )


def opts_in(body: Body) -> bool:
    """Whether an object is a Namespace whose label opts all its jobs in.

    >>> labels = {"advisor.mofa.dev/advise": "true"}
    >>> opts_in({"kind": "Namespace", "metadata": {"name": "research", "labels": labels}})
    True
    """
    is_namespace = body.get("kind") == "Namespace"
    return is_namespace and part(body, "metadata", "labels").get(ADVISE) == "true"


def _beside(items: Iterable[Item]) -> dict[str, list[Body]]:
    """The objects of kinds that jobs may name, by namespace."""
    kinds = {(kind.group, kind.kind): kind for kind in (*BESIDE, RAY_CLUSTER)}
    objects = dict[str, list[Body]]()
    for item in items:
        kind = kinds.get((item.api_version.rpartition("/")[0], item.kind))
        if kind is not None:
            objects.setdefault(item.namespace if kind.namespaced else "", []).append(item.value)
    return objects


def refusal(item: Item) -> str:
    """What is wrong with a profile or a policy; empty where nothing is, or where it is neither."""
    reader = (
        {PROFILE: cluster_profile, POLICY: advisor_policy}.get(item.kind)
        if is_ours(item.value)
        else None
    )
    try:
        if reader is not None:
            reader(item.value)
    except InputError as error:
        return str(error)
    return ""


def profile_of(name: Any, selector: Mapping[str, str], around: Surroundings) -> tuple[Profile, str]:
    """The profile of a job, and why that one, where it was assumed.

    It is the one that is named, else the only one, else the only one whose nodes the pods select.
    Where there is none at all, it is the one of the package whose GPU the pods select.
    """
    if isinstance(name, str):
        return around.profile(name, "profile"), ""
    if why := next((why for (kind, _), why in around.refused.items() if kind == PROFILE), ""):
        raise InputError(why)
    profiles = list(around.profiles.values())
    fitting = [
        profile for profile in profiles if profile.spec.node_selector.items() <= selector.items()
    ]
    for candidates in (profiles, fitting):
        if len(candidates) == 1:
            return candidates[0], ""
    if profiles or not around.bundled:
        choices = f", and {_with_gpus(fitting or profiles)} could be meant" if profiles else ""
        raise InputError(f"profile: is missing{choices}; {_NAME_ONE}")
    return _bundled_with_gpu(selector, around.bundled)


def _bundled_with_gpu(
    selector: Mapping[str, str], bundled: Mapping[str, Profile]
) -> tuple[Profile, str]:
    """The one profile of the package with the GPU that pods select."""
    choices = f"bundled are {_with_gpus(bundled.values())}"
    label = next((label for label in PRODUCTS if label in selector), "")
    if not label:
        raise InputError(
            f"profile: is missing, and the pods do not select a GPU by {PRODUCTS[0]}; "
            f"{_NAME_ONE}, or the GPU of its nodes with --gpu ({choices})"
        )
    device = _device(selector[label])
    matches = [
        profile for profile in bundled.values() if device and _device(profile.spec.gpu) == device
    ]
    if len(matches) != 1:
        many = "several bundled profiles have" if matches else "no bundled profile has"
        raise InputError(
            f"profile: is missing, and {many} the GPU that the pods select by {label}, "
            f"{selector[label]!r}; {_NAME_ONE} ({choices})"
        )
    why = (
        f"profile {matches[0].name} of the package is assumed: none is named, and the pods select "
        f"the GPU {selector[label]}"
    )
    return matches[0], why


def profile_with(
    device_request: DeviceRequest, around: Surroundings
) -> tuple[Profile, bool] | None:
    """Another profile with the devices that pods ask for, and whether it is surely that one.

    It is the only one that is given; on the desk, where none is, the GPU of the package that could
    be meant: of several one of a class on which runs were measured, and of these the one with the
    least memory, so that what fits it fits the others.
    """
    profiles = around.profiles.values()
    matches = [profile for profile in profiles if agrees(device_request, profile.spec.gpu)]
    if len(matches) == 1:
        return matches[0], True
    if matches or not around.bundled:
        return None
    exact = _device(device_request.word) if device_request.word else ""
    names = (
        [exact]
        if exact
        else [device for device in presets.names("devices") if agrees(device_request, device)]
    )
    if not names:
        return None
    measured = [device for device in names if presets.device_class(device) != ALONE] or names
    least = min(measured, key=lambda device: float(presets.device(device).memory))
    # A vendor alone is no product, be there one preset of its devices only, as of AMD's.
    sure = len(names) == 1 and device_request.product != device_request.vendor
    return Profile(name=least, spec=ClusterProfileSpec(gpu=least)), sure


def _device(product: str) -> str:
    """The preset of a GPU by any of its names; empty where none is known."""
    try:
        return presets.resolve("devices", product)
    except InputError:
        return ""


def _with_gpus(profiles: Iterable[Profile]) -> str:
    return ", ".join(f"{profile.name} ({profile.spec.gpu})" for profile in profiles)


def _function_configs(streams: Sequence[Documents]) -> list[Item]:
    """What configures KRM functions."""
    around = [stream.resource_list.value for stream in streams if stream.resource_list is not None]
    return [
        Item(config["functionConfig"], None)
        for config in around
        if isinstance(config.get("functionConfig"), dict)
    ]
