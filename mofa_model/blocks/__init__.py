"""The parts of a layer, one kind a file. Each says its parameters, its matrix products, the work of
tokens on each other, and what it keeps and sends.

Who adds a kind writes its file alone: presets, estimate, search and launches walk over `BLOCKS`, or
over what a block says of itself. `block` has the class of all of them, layers of blocks, and the
embedding and head around these. May import: checks, units, errors, numpy. Imported by: spec and
what stands above it.
"""

import inspect
from importlib import import_module
from pkgutil import iter_modules
from typing import Final

from mofa_model.blocks.block import (
    Block,
    ContextMessages,
    Core,
    Cut,
    Elementwise,
    Embedding,
    Exchange,
    Layer,
    Projection,
    Ranks,
    Rows,
    SavedTensor,
)
from mofa_model.blocks.experts import Experts
from mofa_model.blocks.feed_forward import FeedForward
from mofa_model.blocks.latent import LatentAttention
from mofa_model.blocks.linear import LinearAttention
from mofa_model.blocks.shared_kv import SharedAttention
from mofa_model.blocks.softmax import SoftmaxAttention
from mofa_model.blocks.sparse import SparseAttention
from mofa_model.blocks.state_space import SelectiveScan, StateSpace

_MODULES: Final = [import_module(f"{__name__}.{module.name}") for module in iter_modules(__path__)]
BLOCKS: Final[dict[str, type[Block]]] = {
    kind.word: kind
    for module in _MODULES
    for kind in vars(module).values()
    if inspect.isclass(kind)
    and issubclass(kind, Block)
    and kind.__module__ == module.__name__
    and kind is not Block
}
"""All kinds of blocks by the word that presets call them by: whatever this folder has."""

__all__ = [
    "BLOCKS",
    "Block",
    "ContextMessages",
    "Core",
    "Cut",
    "Elementwise",
    "Embedding",
    "Exchange",
    "Experts",
    "FeedForward",
    "LatentAttention",
    "Layer",
    "LinearAttention",
    "Projection",
    "Ranks",
    "Rows",
    "SavedTensor",
    "SelectiveScan",
    "SharedAttention",
    "SoftmaxAttention",
    "SparseAttention",
    "StateSpace",
]
