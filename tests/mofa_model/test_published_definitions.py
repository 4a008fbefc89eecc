"""Manifests of `--save-dir --as KIND` against the definitions that the kinds' own projects publish,
where a folder of them is given.
"""

import lzma
import os
import re
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from mofa_model.cli import main

FOLDER = Path(os.environ.get("MOFA_PUBLISHED_CRDS") or "/nowhere")
"""Definitions, as PROJECT-VERSION/GROUP_PLURAL.yaml.xz."""
TYPES = {
    "object": dict,
    "array": list,
    "string": str,
    "boolean": bool,
    "integer": int,
    "number": (int, float),
}
JOB = "--model llama3-8b --gpu h100 --gpus 64 --global-batch 256 --seq 8192 --top 0"
LAYOUT = "--constraint mbs=1 --constraint cp=1 --constraint tp=1"
PLURALS = {
    "JobSet": "jobsets",
    "TrainJob": "trainjobs",
    "PyTorchJob": "pytorchjobs",
    "RayJob": "rayjobs",
}

pytestmark = pytest.mark.skipif(
    not FOLDER.is_dir(), reason="MOFA_PUBLISHED_CRDS names no folder of published definitions"
)


def against(value, schema, path=""):
    """What a structural schema has against a value, as an API server that refuses unknown fields
    would say.
    """
    if schema.get("x-kubernetes-int-or-string"):
        return [] if isinstance(value, int | str) else [f"{path}: neither a number nor text"]
    kind = schema.get("type")
    if kind and (
        not isinstance(value, TYPES[kind])
        or (kind in {"integer", "number"} and isinstance(value, bool))
    ):
        return [f"{path}: {value!r} is no {kind}"]
    found = (
        [f"{path}: {value!r} is not of {schema['enum']}"]
        if value not in schema.get("enum", [value])
        else []
    )
    if isinstance(value, str) and not re.search(schema.get("pattern", ""), value):
        found.append(f"{path}: {value!r} does not match {schema['pattern']}")
    if isinstance(value, int) and not schema.get("minimum", value) <= value <= schema.get(
        "maximum", value
    ):
        found.append(f"{path}: {value!r} is out of range")
    if isinstance(value, list):
        return found + [
            one
            for at, part in enumerate(value)
            for one in against(part, schema["items"], f"{path}[{at}]")
        ]
    if isinstance(value, dict):
        known, others = schema.get("properties", {}), schema.get("additionalProperties")
        free = schema.get("x-kubernetes-preserve-unknown-fields") or others is True
        found += [
            f"{path}.{name}: is missing" for name in schema.get("required", ()) if name not in value
        ]
        for name, part in value.items():
            inner = known.get(name) or (others if isinstance(others, dict) else None)
            if inner is not None:
                found += against(part, inner, f"{path}.{name}")
            elif not free:
                found.append(f"{path}.{name}: no such field")
    return found


@pytest.mark.parametrize("trainer", ["megatron", "torchtitan", "deepspeed", "accelerate"])
@pytest.mark.parametrize("kind", PLURALS)
def test_a_saved_manifest_is_taken_by_every_published_definition(kind, trainer, tmp_path, capsys):
    words = [
        "advise",
        *JOB.split(),
        "--framework",
        trainer,
        *LAYOUT.split(),
        "--save-dir",
        str(tmp_path / "out"),
    ]
    if main([*words, "--as", kind]):
        assert "make a JobSet or a PyTorchJob" in capsys.readouterr().err
        return
    job, *_ = YAML(typ="safe").load_all((tmp_path / "out" / f"{kind.lower()}.yaml").read_text())
    group, version = job["apiVersion"].split("/")
    definitions = sorted(FOLDER.glob(f"*/{group}_{PLURALS[kind]}.yaml.xz"))
    assert definitions
    for path in definitions:
        definition = YAML(typ="safe").load(lzma.decompress(path.read_bytes()).decode())
        served = {
            one["name"]: one["schema"]["openAPIV3Schema"] for one in definition["spec"]["versions"]
        }
        spec = served[version]["properties"]["spec"]
        assert against(job["spec"], spec, "spec") == [], path.parent.name
    broken = dict(job["spec"], noSuchField=1)
    assert against(broken, spec, "spec") == ["spec.noSuchField: no such field"]
