"""What `advise` and each point of `sweep` ask in words: one question and one request, so that their answers are one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from mofa_model import units
from mofa_model.answers import job, training
from mofa_model.answers.question import Names, Number, Real, Text
from mofa_model.answers.training import FailingTraining
from mofa_model.errors import BadValue, UnknownName

if TYPE_CHECKING:
    from mofa_model.advice import Request

_ALLOWED: Final = ("experimental",)


@dataclass(frozen=True, kw_only=True)
class AdvisedTraining(FailingTraining):
    """A training that fails now and then, and what the best layout for it is."""

    max_nodes: Number | None = None
    """Advise at most so many nodes, perhaps fewer; in place of `nodes` and `gpus`."""
    objective: Text | None = None
    """What is best: time, throughput or cost; without it time, or what the manifest says."""
    risk: Real = 0.1
    """Chance of being out of memory that is taken."""
    allow: Text | None = None
    """"experimental": choose also what no measured run of the stack has."""
    by_estimate: bool = False
    """Choose by the estimates alone, whatever measured runs say of them: no odds, no simpler layout, nothing left out as unmeasured."""
    current: Text | None = None
    """Today's layout, "tp=8,pp=4" or a trainer's flags: priced beside the advice."""
    constraints: Names = ()
    """What fixes, lists or bounds an axis: "tp=1,2", "pp<=8"."""
    lift: Names = ()
    """Expert rules that are not applied."""
    checkpoint_size: Text | None = None
    """Size of a whole checkpoint; without it weights and optimizer states."""
    sync: bool = False
    """Whether training waits for the write, and not only for the copy."""


def request_in_words(asked: AdvisedTraining) -> Request:
    """What the model is asked."""
    from mofa_model.advice import Request

    if asked.max_nodes is not None and (asked.nodes is not None or asked.gpus is not None):
        raise BadValue("--max-nodes", asked.max_nodes, "give --max-nodes, or --nodes, or --gpus")
    most = asked.max_nodes
    nodes = units.count(most, field="--max-nodes") if most else training.nodes_of(asked)
    problems = training.problems_of(asked, nodes)
    reliability = training.reliability_of(asked, problems[0].cluster)
    tier = replace(reliability.tiers[0], asynchronous=not asked.sync)
    return Request(
        problems=problems,
        reliability=replace(reliability, tiers=(tier,)),
        nodes=nodes,
        fewer_nodes=most is not None,
        objective=asked.objective or "time",
        framework=training.framework_of(asked),
        trainers=training.trainers_of(asked, problems),
        constraints=tuple(asked.constraints),
        lifted=lifted(asked),
        risk=asked.risk,
        odds=not asked.by_estimate,
        checkpoint_bytes=job.size_of(asked.checkpoint_size) if asked.checkpoint_size else None,
        current=training.layout_of(asked.current, problems[0], "--current")
        if asked.current
        else None,
    )


def lifted(asked: AdvisedTraining) -> tuple[str, ...]:
    """Expert rules that are not applied, with that of what nobody measured."""
    from mofa_model.search import Rejection

    if asked.allow not in {None, *_ALLOWED}:
        raise UnknownName("--allow", str(asked.allow), _ALLOWED)
    return (*asked.lift, *((Rejection.NOT_MEASURED.value,) if asked.allow else ()))
