"""A job's question as it is understood, whatever kind of job it is: which spec, which profile, and the request they make."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace

from mofa_model.advice import Advice, Request
from mofa_model.errors import InputError
from mofa_model.manifest.inputs import to_inputs
from mofa_model.manifest.parsing import Profile
from mofa_model.manifest.said import Said
from mofa_model.manifest.training_job import TrainingJobSpec


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """A question that was understood."""

    spec: TrainingJobSpec
    """What shall be trained."""
    profile: Profile
    """On what."""
    config: str | None
    """Text of the model's config.json, where the spec names one."""
    path: str
    """What messages call the spec."""
    said: Said | None = None
    """Who said which part of the spec, of a job that is no TrainingJob."""
    sizes: tuple[tuple[int, Asked | InputError], ...] = ()
    """Of an elastic job, the same at each size that it may have, by its GPUs, or why that cannot be asked; fewest first."""
    assumed: str = ""
    """Why it is this profile, where nobody named one and there was none to choose from."""


def request_of(found: Asked) -> Request:
    """What the model is asked."""
    with contextlib.nullcontext() if found.said is None else found.said.told():
        return to_inputs(found.spec, found.profile, config=found.config, path=found.path)


def told(found: Asked, advice: Advice) -> Advice:
    """An answer that says what was assumed before it was asked for."""
    if not found.assumed:
        return advice
    return replace(
        advice,
        explanation=f"{advice.explanation}; {found.assumed}",
        caveats=(*advice.caveats, found.assumed),
    )
