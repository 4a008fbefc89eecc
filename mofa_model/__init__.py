"""The model: what a training step costs, what a failure costs, and which strategy is best.

    import mofa_model as mofa

    answer = mofa.advise(
        model="llama3-8b", gpu="h100", gpus=64, sequence_length=8192, global_batch_size=512
    )
    answer.strategy, answer.predicted.step_seconds.target

The public names are imported when they are first used, so that `mofa --help` does not wait for
numpy. Type checkers read them in `__init__.pyi`.
"""

from __future__ import annotations

import importlib
from typing import Any, Final

_HOMES: Final = {
    "InputError": "mofa_model.errors",
    "MofaError": "mofa_model.errors",
    "NoFeasibleStrategy": "mofa_model.errors",
    "SourceUnreachable": "mofa_model.errors",
    "advise": "mofa_model.answers.advise",
    "ettr": "mofa_model.answers.ettr",
    "explain": "mofa_model.answers.explain",
    "simulate": "mofa_model.answers.simulate",
    "sweep": "mofa_model.answers.sweep",
    "which": "mofa_model.answers.which",
}

VERSION: Final = "0.2.0"
"""Version of the product, as in pyproject.toml; to read it from the metadata would be slow."""

__all__ = [
    "VERSION",
    "InputError",
    "MofaError",
    "NoFeasibleStrategy",
    "SourceUnreachable",
    "advise",
    "ettr",
    "explain",
    "simulate",
    "sweep",
    "which",
]


def __getattr__(name: str) -> Any:
    """Import a public name from its home, once."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value
