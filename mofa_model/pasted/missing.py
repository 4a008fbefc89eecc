"""What has to be asked before a layout can be recommended: as few questions as can be."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from mofa_model import presets
from mofa_model.identity.fact import Fact
from mofa_model.pasted.reading import PastedFacts

_WHOLE: Final = ("layers", "hidden", "heads")


def missing(pasted_facts: PastedFacts) -> list[str]:
    """What the texts leave open: device, number of devices, model, sequence, batch, in this
    order.
    """
    facts = pasted_facts.facts
    if pasted_facts.other:
        return ["not a language model"]
    asked = [] if "gpu" in facts and not _of_two_sizes(facts["gpu"]) else ["gpu"]
    if "gpus" not in facts:
        asked.append(
            "gpus-per-node" if "nodes" in facts else "nodes" if "gpus_per_node" in facts else "gpus"
        )
    if not has_model(facts):
        asked.append("model")
    if "seq" not in facts:
        asked.append("seq")
    says_batch = "micro_batch" in facts and not pasted_facts.is_batch_open
    if "global_batch" not in facts and not says_batch:
        asked.append("global_batch")
    return asked


def _of_two_sizes(device: Fact) -> bool:
    """Whether a device is sold with very different memory sizes, as A100 is, and the text does not
    say which.

    >>> _of_two_sizes(Fact("a100", "x")), _of_two_sizes(Fact("h100", "x"))
    (True, False)
    """
    word = str(device.value).lower()
    if device.source == "--gpu" or re.search(r"\d+ ?gb", word):
        return False
    alike = [preset for preset in presets.names("devices") if preset.startswith(f"{word}-")]
    sizes = [int(size[1]) for preset in alike if (size := re.search(r"-(\d+)gb", preset))]
    return bool(sizes) and max(sizes) > 1.5 * min(sizes)


def has_model(facts: Mapping[str, Fact]) -> bool:
    """Whether a model is named, or its shape is said."""
    return "model" in facts or all(name in facts for name in _WHOLE)
