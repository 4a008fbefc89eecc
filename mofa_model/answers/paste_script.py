"""The script that was pasted, with the launch written into it where its command takes all of the advice."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

from mofa_model.answers.paste_question import state_of
from mofa_model.axes.frameworks import trainer_called
from mofa_model.identity.sbatch_written import SlurmJob
from mofa_model.launch import ScriptChanged
from mofa_model.pasted.in_place import in_place
from mofa_model.pasted.reading import Pasted, read
from mofa_model.pasted.recognise import kind_of
from mofa_model.strategy import Strategy
from mofa_model.strategy_text import format_strategy

if TYPE_CHECKING:
    from mofa_model.answers.advise import AdviceAnswer

_BY_FILE: Final = frozenset({"accelerate", "deepspeed", "trl"})
"""Trainers whose files, and not their commands, say how ranks share their work."""
_NO_FILES: Final = frozenset({"standard input", "the command"})
"""What texts are called that are no files."""


def rewritten(
    texts: Sequence[Pasted], answer: AdviceAnswer, own: str, asked: str | None
) -> tuple[str, ScriptChanged] | None:
    """The first script of some texts with the launch of an answer, by its name; `own` is the trainer of its command,
    `asked` the one whose launch somebody wants.
    """
    advice, launch = answer.advice, answer.launch
    if launch is None:
        return None
    job = SlurmJob(nodes=advice.nodes, gpus_per_node=advice.gpus // advice.nodes)
    for one in texts:
        if not one.is_inside and kind_of(one.text, one.name).is_script:
            name = "script.sh" if one.name in _NO_FILES else PurePosixPath(one.name).name
            if foreign := _foreign(own, asked, launch.trainer):
                return name, ScriptChanged(text=one.text, left=(foreign,))
            changed = in_place(one, launch, job)
            is_by_file = launch.trainer in _BY_FILE and changed.text != one.text
            if is_by_file and advice.strategy is not None:
                others = [each for each in texts if each is not one]
                told = [one._replace(text=changed.text), *others]
                if lost := _lost(advice.strategy, told):
                    changed = ScriptChanged(text=one.text, left=(lost,))
            return name, changed
    return None


def _foreign(own: str, asked: str | None, trainer: str) -> str:
    """Why a command takes no option of the launch's trainer; empty where it is that trainer's, or like it."""
    if asked is None or trainer_called(own) == trainer_called(asked):
        return ""
    whose = f"is of {own}" if own else "is of a trainer that nobody here knows"
    return f"its command {whose}, and the launch is for {trainer}: launch.sh has all of it"


def _lost(strategy: Strategy, changed: Sequence[Pasted]) -> str:
    """What of the advice the changed script would not do, where a file beside it says how ranks share their
    work; empty where it does all. A part of an advice alone may need other memory, or another batch.
    """
    told = read(changed)
    text = format_strategy(strategy)
    words = dict(pair.split("=", 1) for pair in text.split(",") if "=" in pair)
    shared = [f"{name}={words[name]}" for name in ("tp", "cp") if words.get(name, "1") != "1"]
    if shared:
        return f"{' and '.join(shared)} of the advice stands in accelerate.yaml, and not in its command: launch.sh starts it"
    advised, state = words.get("optimizer", ""), state_of(told.facts)
    deepspeed = any(one.key.startswith("deepspeed") for one in told.settings)
    if state == advised or (not state and (deepspeed or advised == "replicated")):
        return ""
    return (
        f"its command says optimizer={state or 'replicated'} and the advice {advised}, which stands in"
        " accelerate.yaml: launch.sh starts it"
    )
