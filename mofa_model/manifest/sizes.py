"""An elastic job's sizes: the same question at each of them, and the answers as a table.

The advice itself is for the size that the job has; what it is told beside that lets its controller grow or shrink it without
a layout that no longer fits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mofa_model.advice import Advice, Request
from mofa_model.annotations import hash_of, inputs_hash
from mofa_model.errors import InputError
from mofa_model.manifest.asked import Asked, request_of
from mofa_model.strategy_text import format_strategy


@dataclass(frozen=True, kw_only=True, slots=True)
class Size:
    """A size that a job may have."""

    gpus: int
    """GPUs of all its pods. [1]"""
    request: Request | None
    """The question at this size; None where it cannot be asked."""
    why: str = ""
    """Why not."""


def sizes_of(found: Asked) -> tuple[Size, ...]:
    """The question at every size that the job may have; none where it has one size."""
    return tuple(_size(gpus, one) for gpus, one in found.sizes)


def _size(gpus: int, found: Asked | InputError) -> Size:
    if isinstance(found, InputError):
        return Size(gpus=gpus, request=None, why=str(found))
    try:
        return Size(gpus=gpus, request=request_of(found))
    except InputError as error:
        return Size(gpus=gpus, request=None, why=str(error))


def digest_of(request: Request, sizes: Sequence[Size], version: str) -> str:
    """Hash of a question, with all of its sizes."""
    digest = inputs_hash(request, version)
    if not sizes:
        return digest
    others = [
        one.why if one.request is None else inputs_hash(one.request, version) for one in sizes
    ]
    return hash_of([digest, others], version)


def table_of(
    sizes: Sequence[Size], answer: Callable[[Request], Advice], known: Mapping[Request, Advice]
) -> list[dict[str, Any]]:
    """A row for each size: layout, time of a step and steps between checkpoints, or why there is none. [s]

    `known` has the answer for the size that the job has. A row tells of no alternatives, so the others are answered without.
    """
    return [_row(one, answer, known) for one in sizes]


def _row(
    size: Size, answer: Callable[[Request], Advice], known: Mapping[Request, Advice]
) -> dict[str, Any]:
    if size.request is None:
        return {"gpus": size.gpus, "reason": size.why}
    advice = known.get(size.request) or answer(replace(size.request, top=0))
    if advice.strategy is None or advice.predicted is None:
        return {"gpus": size.gpus, "reason": advice.explanation[:200]}
    return {
        "gpus": size.gpus,
        "nodes": advice.nodes,
        "strategy": format_strategy(advice.strategy),
        "step_seconds": float(f"{advice.predicted.step_seconds.target:.4g}"),
        "checkpoint_steps": advice.checkpoint_interval_steps,
    }
