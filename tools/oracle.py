"""Parameters and FLOPs of published models as PyTorch builds them: those of
tests/data/architectures.json and of the presets that have a `config`, into
tests/data/architectures_counted.json.

Run it with an environment of its own that has torch and transformers (`pip install torch
transformers`, gigabytes, so in no lock): `make oracle-counts ORACLE=PATH/bin/python`. Published
models are built on the meta device and never get memory. Tiny ones run, under PyTorch's FLOP
counter. `saved` is what transformers itself writes as config.json, one for each architecture.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tomllib
from pathlib import Path
from typing import Any, Final

os.environ["HF_HUB_OFFLINE"] = "1"
# Without fla, whose kernels need a GPU, PyTorch's own count.
sys.modules["fla"] = None  # type: ignore[assignment]

try:
    import torch
    import transformers
    from torch.utils.flop_counter import FlopCounterMode
    from transformers import AutoModelForCausalLM, AutoModelForImageTextToText
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING
except ImportError as error:
    sys.exit(
        f"oracle: {error.name} is missing; run it with a Python that has torch and transformers"
    )

ROOT: Final = Path(__file__).parents[1]
DATA: Final = ROOT / "tests" / "data"
PRESETS: Final = ROOT / "mofa_model" / "presets" / "models.toml"
TOKENS: Final = 256
"""Length of the sequence that tiny models run on."""
PARTS: Final = {
    "encoder": re.compile(r"vis(ion|ual)|multi_modal_projector"),
    "experts": re.compile(r"experts\.mlp\."),
    "head": re.compile(r"lm_head|embed_out"),
    "embedding": re.compile(
        r"embed_(tokens|in|positions|tokens_per_layer)\.|\.embeddings\.|w[tp]e\.|word_embeddings\."
    ),
}
"""Names of parameters by what they belong to; the first that fits counts. Other stacks of matrices
are experts, too.
"""


def main() -> None:
    """Count all models and write the table."""
    transformers.logging.set_verbosity_error()
    given = json.loads((DATA / "architectures.json").read_text(encoding="utf-8"))
    table: dict[str, Any] = {
        "transformers": transformers.__version__,
        "torch": torch.__version__.partition("+")[0],
    }
    presets = tomllib.loads(PRESETS.read_text(encoding="utf-8"))
    configs = {name: preset["config"] for name, preset in presets.items() if "config" in preset}
    table["published"] = published(configs | given["published"])
    table["tiny"] = {name: tiny(config) for name, config in given["tiny"].items()}
    lines = [f" {json.dumps(key)}: {_lines(value)}" for key, value in table.items()]
    text = "{\n" + ",\n".join(lines) + "\n}\n"
    (DATA / "architectures_counted.json").write_text(text, encoding="utf-8")
    print(
        f"oracle: {len(table['published'])} published and {len(table['tiny'])} tiny models counted"
    )


def published(configs: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Parameters of each model by part, and of each architecture the file that transformers
    would save.
    """
    models: dict[str, Any] = {}
    saved: set[str] = set()
    for name, config in configs.items():
        settings = _settings(config)
        with torch.device("meta"):
            model = _model(settings)
        models[name] = parameters(model)
        if config["model_type"] not in saved:
            saved.add(config["model_type"])
            models[name]["saved"] = settings.to_diff_dict()
    return models


def parameters(model: torch.nn.Module) -> dict[str, int]:
    """Numbers of parameters, tied ones once."""
    counted = {"parameters": 0} | dict.fromkeys([*PARTS, "layers"], 0)
    for name, parameter in model.named_parameters():
        rest = "experts" if parameter.dim() == 3 and "conv" not in name else "layers"
        counted["parameters"] += parameter.numel()
        counted[next((part for part, names in PARTS.items() if names.search(name)), rest)] += (
            parameter.numel()
        )
    return {part: number for part, number in counted.items() if number}


def tiny(config: dict[str, Any]) -> dict[str, Any]:
    """Parameters and forward FLOPs a token by what does them: matrices, products of
    tokens, convolutions.
    """
    settings = _settings(config)
    settings._experts_implementation = "eager"  # noqa: SLF001 - grouped kernels are not counted
    model = AutoModelForCausalLM.from_config(settings, attn_implementation="eager").eval()
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        model(torch.zeros((1, TOKENS), dtype=torch.long), use_cache=False)
    by = {
        str(operation): flops / TOKENS
        for operation, flops in counter.get_flop_counts()["Global"].items()
    }
    return {
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "tokens": TOKENS,
        "matrices": by.get("aten.mm", 0) + by.get("aten.addmm", 0),
        "cores": by.get("aten.bmm", 0) + by.get("aten.baddbmm", 0),
        "convolutions": by.get("aten.convolution", 0),
    }


def _settings(config: dict[str, Any]) -> Any:
    return CONFIG_MAPPING[config["model_type"]].from_dict(json.loads(json.dumps(config)))


def _model(settings: Any) -> torch.nn.Module:
    try:
        return AutoModelForImageTextToText.from_config(settings)
    except ValueError:
        return AutoModelForCausalLM.from_config(settings)


def _lines(value: Any) -> str:
    """A value as JSON, of a table a line for each of its rows."""
    if not isinstance(value, dict):
        return json.dumps(value)
    return (
        "{\n"
        + ",\n".join(f"  {json.dumps(key)}: {json.dumps(row)}" for key, row in value.items())
        + "\n }"
    )


if __name__ == "__main__":
    main()
