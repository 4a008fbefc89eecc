"""What a training step costs, what a failure costs, and which strategy is best: the engine behind every door.

The public names are imported when they are first used, so that `mofa --help` need not wait for numpy.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from mofa_model.errors import InputError, MofaError, NoFeasibleStrategy, SourceUnreachable

_HOMES: Final = {
    "InputError": "mofa_model.errors",
    "MofaError": "mofa_model.errors",
    "NoFeasibleStrategy": "mofa_model.errors",
    "SourceUnreachable": "mofa_model.errors",
}

VERSION: Final = "0.1.0"
"""Version of the product, as in pyproject.toml: to look it up in the distribution's metadata takes as long as a small answer."""

__all__ = [
    "VERSION",
    "InputError",
    "MofaError",
    "NoFeasibleStrategy",
    "SourceUnreachable",
]


def __getattr__(name: str) -> Any:
    """Import a public name from its home, once."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value
