"""What a trainer is not told, because it would refuse it: the search's own rules, asked of one strategy.

A search whose axes have one value each finds the strategy or says which rule stands against it, so what was searched for a trainer
is never refused here. Files and functions in which a trainer's rules were read stand in `axes/frameworks.toml`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from mofa_model.axes.axis import Axis
from mofa_model.axes.frameworks import Framework, framework
from mofa_model.axes.rules import AxisContext
from mofa_model.errors import BadValue
from mofa_model.search import LIFTABLE, Rejection, SearchCase
from mofa_model.search.axes import FEATURES, SHAPE, Axes
from mofa_model.search.bundles import bundles, judged
from mofa_model.search.space import shapes_of
from mofa_model.strategy import AXES, Strategy

_OURS: Final = frozenset({*LIFTABLE, Rejection.DUPLICATE})
"""Reasons that are no trainer's."""
_AXES: Final = {axis.name: axis for axis in AXES}


def refuse(strategy: Strategy, problem: SearchCase, trainer: str) -> None:
    """Refuse what a trainer cannot be told or does not start, by the name of a field and with what would be right."""
    known, gpus = framework(trainer), int(strategy.gpus)
    # No rule of a trainer asks where devices stand: they are one node.
    cluster = replace(problem.cluster, gpus=gpus, gpus_per_node=gpus)
    given = AxisContext(workload=problem.workload, cluster=cluster, framework=known, lifted=_OURS)
    recipe = problem.workload.training.precision.name
    axes = Axes(
        {"precision": (recipe,), "nodes": (1,)}
        | {one.name: (one.value_of(strategy),) for one in AXES}
    )
    _had(strategy, known, SHAPE, trainer)
    shapes = shapes_of(axes, given, 1)
    if shapes.stuck is not None:
        name, reason = shapes.stuck
        raise _refused(strategy, _AXES[name], _told(reason, trainer))
    found = judged(axes, given, shapes.rows)
    acting = {axis.name: axis for axis in FEATURES if not found[axis.name].idle[0]}
    _had(strategy, known, acting.values(), trainer)
    (bundle,) = bundles(axes, known, found)
    for axis in acting.values():  # what acts on nothing is not said
        for reason, bad in found[axis.name].against[0]:
            if bad[0]:
                raise _refused(strategy, axis, _told(reason, trainer))
        beside = bundle.barred.get(axis.name, {}).get(0, frozenset()) & set(acting)
        if beside:
            others = " and ".join(_said(strategy, acting[name]) for name in sorted(beside))
            raise _refused(strategy, axis, f"{trainer} does not start it beside {others}")


def _had(strategy: Strategy, known: Framework, some: Iterable[Axis], trainer: str) -> None:
    for axis in some:
        if not axis.supported_by(known, axis.value_of(strategy)):
            raise _refused(strategy, axis, f"{trainer} has no argument for it")


def _told(reason: Rejection, trainer: str) -> str:
    if reason is Rejection.NOT_IN_FRAMEWORK:
        return f"{trainer} cannot run it beside the rest of the layout"
    return f"{trainer}: {reason.meaning}"


def _refused(strategy: Strategy, axis: Axis, why: str) -> BadValue:
    key, _, value = _said(strategy, axis).partition("=")
    return BadValue(
        f"strategy.{key}", value, f"{why}; constrain {' or '.join(word.key for word in axis.keys)}"
    )


def _said(strategy: Strategy, axis: Axis) -> str:
    """What a strategy says on an axis: the last of its words that is not the plain one."""
    told = [word for word in axis.keys if word.write(strategy) != word.write(Strategy())]
    word = told[-1] if told else axis.keys[0]
    return f"{word.key}={word.write(strategy)}"
