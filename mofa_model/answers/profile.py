"""`mofa profile`: the ClusterProfile of machines, as YAML: from options, Slurm or a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from mofa_model import files, terminal
from mofa_model.answers.questions import ProfileQuestion
from mofa_model.errors import BadValue, InputError, Missing
from mofa_model.spec.recovery_classes import RecoveryClass

_TIERS: Final = ("Local", "Peer", "Remote")
_LABEL: Final = "nvidia.com/gpu.product"
_LEAST_NODE_DAYS: Final = 10.0
"""Least node-days for which counted failures are written into a profile. Ours. [node d]"""
_LARGEST: Final = 2**29
"""Bytes of one saved output of Slurm. [B]"""
_SMI: Final = ("nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader,nounits")


def proposed(question: ProfileQuestion) -> str:
    """The profile as YAML; one for each kind of node, where a site has several."""
    if question.measure:
        return _measured(question)
    if question.slurm is not None:
        return _from_slurm(question, question.slurm)
    if question.from_cluster:
        return _from_cluster(question)
    if question.show:
        from mofa_model.manifest.surroundings import bundled_text

        return bundled_text(question.show)
    return _from_options(question)


def _from_cluster(question: ProfileQuestion) -> str:
    """A profile for each pool with a known GPU; standard error names the other pools."""
    from mofa_model import presets
    from mofa_model.answers.given import live_source
    from mofa_model.errors import UnknownName

    for name in ("gpu", "gpus_per_node", "nodes", "show", "name"):
        if getattr(question, name) is not None:
            right = "--from-cluster reads it from the cluster; leave one of the two out"
            raise InputError(f"{question.options[name].flag}: {right}")
    manifests: list[dict[str, Any]] = []
    unknown: list[str] = []
    for pool in live_source("pools")():
        product, per_node = pool["product"], pool["gpus_per_node"]
        try:
            gpu = presets.resolve("devices", product, field=_LABEL)
        except UnknownName as error:
            unknown.append(str(error))
            continue
        name = f"{gpu}-{per_node}" if gpu in _names(manifests) else gpu
        manifests.append(_manifest(question, name, product, per_node, {_LABEL: product}))
    if not manifests:
        why = "; ".join(unknown) or f"no node has the label {_LABEL} and GPUs"
        raise InputError(f"--from-cluster: {why}; give --gpu and --label")
    for text in unknown:
        terminal.tell(f"left out: {text}")
    return "---\n".join(map(_checked, manifests))


def _from_slurm(question: ProfileQuestion, outputs: Sequence[str]) -> str:
    """A profile for each kind of node with a known GPU; standard error names the other nodes."""
    import time
    from collections import defaultdict

    from mofa_model import presets
    from mofa_model.errors import UnknownName
    from mofa_model.slurm import SlurmNode, ask, read
    from mofa_model.units import DAY

    if outputs:
        records = read([(files.read_text(path, largest=_LARGEST), path) for path in outputs])
    else:
        now = time.time()
        records = ask(now - 30 * DAY, now)
    groups: defaultdict[tuple[str, int], list[SlurmNode]] = defaultdict(list)
    for node in records.node_records:
        if node.devices:
            groups[node.product or next(iter(node.features), ""), node.devices].append(node)
    manifests: list[dict[str, Any]] = []
    unknown: list[str] = []
    for (product, per_node), nodes in groups.items():
        try:
            gpu = presets.resolve("devices", question.gpu or product, field="type of gpu in Gres")
        except UnknownName as error:
            unknown.append(f"{len(nodes)} nodes: {error}")
            continue
        name = question.name or gpu
        name = f"{name}-{per_node}" if name in _names(manifests) else name
        least = min((node.memory_bytes for node in nodes if node.memory_bytes), default=0.0)
        memory = question.host_memory or (f"{least / 2**30:.0f} GiB" if least else None)
        ready = sum(node.usable for node in nodes)
        manifest = _manifest(replace(question, host_memory=memory), name, gpu, per_node, {})
        manifests.append({**manifest, "status": {"nodes": {"total": len(nodes), "ready": ready}}})
    if not manifests:
        why = "; ".join(unknown) or "no node has gpu in its Gres"
        raise InputError(f"--slurm: {why}; give --gpu")
    for text in unknown:
        terminal.tell(f"left out: {text}")
    if records.runs and not question.classes and (classes := _counted(outputs)):
        for manifest in manifests:
            manifest["spec"].setdefault("failures", {})["classes"] = classes
    return "---\n".join(map(_checked, manifests))


def _names(manifests: list[dict[str, Any]]) -> set[str]:
    return {manifest["metadata"]["name"] for manifest in manifests}


def _counted(outputs: Sequence[str]) -> list[dict[str, Any]]:
    """The counted failures of a Slurm site as classes of a profile; none without the operator."""
    from mofa_model.answers.given import live_source

    try:
        observed = live_source("slurm")(outputs, None)
    except (ModuleNotFoundError, ValueError):
        terminal.tell("failures are not counted without mofa-advisor[operator]")
        return []
    days = max((evidence.node_days for evidence in observed.classes.values()), default=0.0)
    if days < _LEAST_NODE_DAYS:
        terminal.tell(f"failures are left out: {days:.3g} node-days say nothing of a rate")
        return []
    return [
        {
            "name": name,
            "failuresPerThousandNodeDays": f"{1000 * evidence.failures / evidence.node_days:.4g}",
            "recoverySeconds": round(evidence.mean_recovery or RecoveryClass(name).seconds),
        }
        for name, evidence in observed.classes.items()
        if evidence.node_days > 0 and evidence.failures
    ]


def _measured(question: ProfileQuestion) -> str:
    """The profile of this machine by nvidia-smi and the kernel, without measuring its speed."""
    import subprocess

    from mofa_model import presets
    from mofa_model.errors import UnknownName, why

    if question.gpu is not None or question.from_cluster:
        flag = "--gpu" if question.gpu is not None else "--from-cluster"
        raise InputError(f"--measure: it says what {flag} would; leave one of the two out")
    try:
        listing = subprocess.run(
            _SMI, capture_output=True, text=True, timeout=60, check=True
        ).stdout
    except FileNotFoundError:
        raise InputError("--measure: there is no nvidia-smi here; give --gpu instead") from None
    except (OSError, subprocess.SubprocessError) as error:
        reason = why(error) if isinstance(error, OSError) else "it ended with an error or was slow"
        raise InputError(f"--measure: nvidia-smi: {reason}; give --gpu instead") from None
    name, count, memory = gpus_of(listing)
    try:
        gpu = presets.resolve("devices", name, field="--measure")
    except UnknownName as error:
        sheet = f'name = "{name}", memory = "{memory} MiB", memory_bandwidth and peak_bf16'
        raise InputError(
            f"{error}; `mofa advise --device-file FILE` takes a file with {sheet}"
        ) from None
    question = replace(question, host_memory=question.host_memory or _main_memory())
    per_node = question.gpus_per_node or count
    terminal.tell(
        f"{count} x {gpu}; its kernels and links are those of the preset: "
        f"`python -m mofa_lab.kernels.measure --device {gpu}` times them"
    )
    return _checked(_manifest(question, question.name or gpu, name, per_node, {}))


def gpus_of(listing: str) -> tuple[str, int, int]:
    r"""Name, number and memory in MiB of equal GPUs, from what nvidia-smi tells.

    >>> gpus_of("NVIDIA L4, 23034\nNVIDIA L4, 23034\n")
    ('NVIDIA L4', 2, 23034)
    """
    rows = [line.rpartition(",") for line in listing.splitlines() if line.strip()]
    kinds = {(name.strip(), memory.strip()) for name, _, memory in rows}
    if len(kinds) != 1:
        names = ", ".join(sorted(name for name, _ in kinds)) or "no GPU"
        right = "give --gpu and --gpus-per-node for one kind of them"
        raise InputError(f"--measure: nvidia-smi tells of {names}; {right}")
    ((name, memory),) = kinds
    if not name or not memory.isdecimal():
        raise InputError("--measure: what nvidia-smi tells cannot be read; give --gpu instead")
    return name, len(rows), int(memory)


def _main_memory() -> str | None:
    """Main memory of this machine by its kernel; None on a system without /proc/meminfo."""
    from pathlib import Path

    try:
        first = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()[0].split()
    except (OSError, IndexError):
        return None
    is_total = first[0] == "MemTotal:" and first[-1] == "kB"
    return f"{int(first[1]) // 2**20} GiB" if is_total else None


def _from_options(question: ProfileQuestion) -> str:
    """The profile that the options describe."""
    from mofa_model import presets

    if question.gpu is None:
        also = "or --from-cluster, or --show NAME for a bundled one"
        raise Missing({"--gpu": "h100-sxm"}, also=also)
    gpu = presets.resolve("devices", question.gpu, field="--gpu")
    labels = dict(_pair(label, "--label") for label in question.labels)
    name = question.name or gpu
    manifest = _manifest(question, name, question.gpu, question.gpus_per_node, labels)
    if question.nodes is not None:
        manifest["status"] = {"nodes": {"total": question.nodes, "ready": question.nodes}}
    return _checked(manifest)


def _manifest(
    question: ProfileQuestion, name: str, gpu: str, per_node: int | None, labels: dict[str, str]
) -> dict[str, Any]:
    """The profile as a manifest; a cloud's machine brings its own network and memory."""
    from mofa_model import presets

    node = presets.instance(gpu)
    return {
        "apiVersion": "mofa.dev/v1alpha1",
        "kind": "ClusterProfile",
        "metadata": {"name": name},
        "spec": _pruned(
            {
                "nodeSelector": labels,
                "gpu": presets.resolve("devices", gpu),
                "gpusPerNode": per_node or node.get("gpus_per_node"),
                "network": {
                    "scaleUp": question.scale_up,
                    "scaleOut": question.scale_out or node.get("scale_out"),
                    "scaleUpDomain": question.domain,
                },
                "host": {"memory": question.host_memory or node.get("host_memory")},
                "checkpointStorage": {"tiers": [_tier(text) for text in question.storage]},
                "failures": {"classes": [_class(text) for text in question.classes]},
            }
        ),
    }


def _checked(manifest: dict[str, Any]) -> str:
    """The manifest as YAML; raises an error where the model cannot read it."""
    from mofa_model import output
    from mofa_model.manifest.inputs import cluster_of
    from mofa_model.manifest.parsing import cluster_profile

    cluster_of(cluster_profile(manifest).spec, 1)  # the links and sizes are what the model can read
    return output.render("yaml", (), manifest)


def _tier(text: str) -> dict[str, str]:
    name, words = _pair(text, "--storage")
    if name not in _TIERS:
        raise BadValue("--storage", name, f"one of {', '.join(_TIERS)}")
    keys = ("nodeBandwidth", "totalBandwidth", "snapshotBandwidth")
    return {"name": name, **dict(zip(keys, _parts(words, len(keys), "--storage"), strict=False))}


def _class(text: str) -> dict[str, Any]:
    name, words = _pair(text, "--class")
    if name not in list(RecoveryClass):
        raise BadValue("--class", name, f"one of {', '.join(RecoveryClass)}")
    rate, seconds = (*_parts(words, 2, "--class"), "")[:2]
    if not seconds.isdecimal():
        raise BadValue("--class", text, "write NAME=RATE:SECONDS, for example pod=3.0:262")
    return {"name": name, "failuresPerThousandNodeDays": rate, "recoverySeconds": int(seconds)}


def _pair(text: str, field: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key or not value:
        raise BadValue(field, text, "write a name, an equals sign and a value")
    return key, value


def _parts(text: str, most: int, field: str) -> list[str]:
    parts = text.split(":")
    if len(parts) > most:
        raise BadValue(field, text, f"give at most {most} values, separated by colons")
    return parts


def _pruned(value: Any) -> Any:
    """A tree without None and empty parts."""
    if isinstance(value, dict):
        tree = {key: _pruned(item) for key, item in value.items()}
        return {key: item for key, item in tree.items() if item not in (None, {}, [])}
    return value
