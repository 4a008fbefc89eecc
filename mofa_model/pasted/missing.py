"""What has to be asked before a layout can be recommended: as few questions as can be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from mofa_model.identity.facts import Fact
from mofa_model.pasted.reading import PastedFacts

_WHOLE: Final = ("layers", "hidden", "heads")


def missing(found: PastedFacts) -> list[str]:
    """What nobody says: device, number of devices, model, sequence, batch, in this order."""
    facts = found.facts
    if found.other:
        return ["not a language model"]
    asked = [] if "gpu" in facts else ["gpu"]
    if "gpus" not in facts:
        asked.append("gpus-per-node" if "nodes" in facts else "nodes" if "gpus_per_node" in facts else "gpus")
    if not has_model(facts):
        asked.append("model")
    if "seq" not in facts:
        asked.append("seq")
    if "global_batch" not in facts and "micro_batch" not in facts:
        asked.append("global_batch")
    return asked


def has_model(facts: Mapping[str, Fact]) -> bool:
    """Whether a model is named, or its shape is said."""
    return "model" in facts or all(name in facts for name in _WHOLE)
