"""What would win back what a job loses, in one line. Pure."""

from __future__ import annotations

from typing import Final

from mofa_model import presets
from mofa_model.annotations import INVALID, PREFIX
from mofa_model.errors import InputError
from mofa_model.kinds import JobKind, demand_of
from mofa_model.manifest.command_facts import model_of
from mofa_operator.decide.stance import Stance
from mofa_operator.fleet.answers import Told
from mofa_operator.fleet.spending import JobState, Spending
from mofa_operator.keys import Key
from mofa_operator.objects import LiveObject, LiveTrainingJob
from mofa_operator.shapes import figure

_FAR: Final = 1.5
"""How far the interval that is used may be from the advised one, either way. Ours. [1]"""
_SMALL: Final = 0.02
"""Share of its GPU-hours below which a loss is not worth anybody's time. Ours. [1]"""


def named(key: Key) -> str:
    """A job as kubectl tells it from others of the same short name.

    >>> from mofa_model.kinds import VOLCANO_JOB
    >>> named(Key(VOLCANO_JOB, "ml", "llama"))
    'jobs.batch.volcano.sh/llama'
    """
    return f"{key.kind.resource}/{key.name}"


def change(
    spent: Spending,
    told: Told,
    stance: Stance,
    job: LiveObject,
    speaker: LiveTrainingJob | None,
    *,
    shown: bool = False,
) -> str:
    """What to do about a job; empty where there is nothing to do. `shown` says that its interruptions stand beside it."""
    if spent.state is JobState.ENDED:
        return ""
    if spent.wrong:
        return spent.wrong
    if not told:
        return _unasked(stance, job)
    if spent.status == INVALID:
        return told.get("explanation", "")
    if spent.stuck:
        return "its steps have stopped: look at its pods' logs"
    parts = [
        (spent.slow or 0.0, _layout(told)),
        (spent.stopped or 0.0, _fails(job.key, shown=shown)),
        _saves(spent, told, speaker),
    ]
    share, found = max(parts)
    return found if share > _SMALL * spent.held or spent.status == "NoRecommendation" else ""


def _layout(told: Told) -> str:
    return f"take {told['strategy']}" if "strategy" in told else told.get("explanation", "")


def _fails(key: Key, *, shown: bool) -> str:
    """What helps where interruptions take the time."""
    if shown:
        return "end what interrupts it: the causes stand above"
    return f"see what interrupts it: kubectl mofa why -n {key.namespace} {named(key)}"


def _saves(spent: Spending, told: Told, speaker: LiveTrainingJob | None) -> tuple[float, str]:
    """GPU-hours that another interval of checkpoints would save, and what to do for them. [h]

    Saves and lost steps cost one as much as the other at the best interval; r times as far apart they cost (r + 1/r) / 2 of that.
    """
    advised, share = (
        figure(told.get("checkpoint-interval-seconds")),
        figure(told.get("predicted-ettr")),
    )
    used = None if speaker is None else speaker.status.observed.checkpoint_interval_seconds
    if not used or not advised or share is None or 1 / _FAR < used / advised < _FAR:
        return 0.0, ""
    ratio = used / advised
    costs = (1.0 - share) * ((ratio + 1.0 / ratio) / 2.0 - 1.0)
    return min(1.0, costs) * spent.held, f"save every {advised:.0f} s, not every {used:.0f} s"


def _unasked(stance: Stance, job: LiveObject) -> str:
    if stance is Stance.DISABLED:
        return ""
    if stance is Stance.PAUSED:
        return f"paused: take away the annotation {PREFIX}paused"
    if stance is not Stance.NOT_ASKED:
        return ""
    if not (model := likely_model(job)):
        return f"say its model in the annotation {PREFIX}model: one of `mofa presets models`, or its name on a hub"
    return f"say its model: kubectl annotate -n {job.key.namespace} {named(job.key)} {PREFIX}model={model}"


def likely_model(job: LiveObject) -> str:
    """The model that a job's command or its name names; a guess for people, and empty where there is none."""
    if not isinstance(job.key.kind, JobKind):
        return ""
    try:
        demand = demand_of(job.body)
    except InputError:
        return ""
    if said := model_of(demand.words, demand.model):
        return said
    parts = job.key.name.split("-")
    ends = range(len(parts), 0, -1)
    called = ("-".join(parts[start:end]) for end in ends for start in range(end))
    meant = (presets.meanings("models", name) for name in called)
    return next((one[0] for one in meant if len(one) == 1), "")
