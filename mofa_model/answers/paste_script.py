"""The pasted script with the launch written into it, where its command takes all of the advice."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Final

from mofa_model.answers.paste_question import state_of
from mofa_model.axes.frameworks import trainer_called
from mofa_model.errors import InputError
from mofa_model.identity.sbatch_written import SlurmJob
from mofa_model.launch import ChangedScript, torchtune
from mofa_model.launch.formats import document_for
from mofa_model.launch.over_file import ENGINE, KEYS, file_of, over_file
from mofa_model.pasted.in_place import in_place
from mofa_model.pasted.reading import PastedText, read
from mofa_model.pasted.recognise import kind_of
from mofa_model.strategy import Strategy, format_strategy

if TYPE_CHECKING:
    from mofa_model.answers.advise import AdviceAnswer
    from mofa_model.launch import Launch

_BY_FILE: Final = frozenset({"accelerate", "deepspeed", "trl", "llama-factory"})
"""Trainers whose files, and not their commands, state how ranks share their work."""
_ALL_IN_A_FILE: Final = "axolotl"
"""The trainer whose launch is a file alone, whatever its command states."""
_FIRST_NEMO: Final = re.compile(r"\bmegatron_(?:gpt|t5|bert)_\w+\.py\b")
"""Scripts of NeMo 1, which take no option of NeMo 2."""
_BARE_DEEPSPEED: Final = re.compile(r"(?m)^[^#\n]*--deepspeed(?:[ \t]*\\?$|[ \t]+--?[a-z])")
"""--deepspeed without a file, as in DeepSpeed's own examples; that of transformers takes a file."""
_NO_FILES: Final = frozenset({"standard input", "the command"})
"""Names of texts that are no files."""


def rewritten(
    texts: Sequence[PastedText], answer: AdviceAnswer, own: str, asked: str | None
) -> tuple[str, ChangedScript] | None:
    """The name of the first script of some texts, and the script with the launch of an answer.

    `own` is the trainer of its command, `asked` the trainer whose launch somebody wants.
    """
    advice, launch = answer.advice, answer.launch
    scripts = (text for text in texts if not text.is_inside)
    script = next((text for text in scripts if kind_of(text.text, text.name).is_script), None)
    if launch is None or script is None:
        return None
    name = "script.sh" if script.name in _NO_FILES else PurePosixPath(script.name).name
    if why := _foreign(own, asked, launch.trainer, script.text):
        return name, ChangedScript(text=script.text, left=(why,))
    if launch.trainer in KEYS:
        command = read([script]).command
        words = () if command is None else command.texts
        if why := _other_recipe(words, launch):
            return name, ChangedScript(text=script.text, left=(why,))
        launch = over_file(launch, words, _file_of(words, texts, launch.trainer))
    job = SlurmJob(nodes=advice.nodes, gpus_per_node=advice.gpus // advice.nodes)
    changed = in_place(script, launch, job)
    is_by_file = launch.trainer in _BY_FILE and changed.text != script.text
    if is_by_file and advice.strategy is not None:
        others = [text for text in texts if text is not script]
        engine = [PastedText(text, file) for file, text in launch.files.items() if file == ENGINE]
        changed_texts = [script._replace(text=changed.text), *others, *engine]
        if lost := _lost(advice.strategy, changed_texts, tuple(launch.files)):
            changed = ChangedScript(text=script.text, left=(lost,))
    return name, changed


def _foreign(own: str, asked: str | None, trainer: str, script: str) -> str:
    """Why a command cannot take the launch's options, such as that its trainer is another one; else
    empty.
    """
    if trainer == _ALL_IN_A_FILE:
        return (
            f"{trainer} reads all of the launch from its file, and the command may say other"
            " things: launch.sh starts it"
        )
    if trainer in _BY_FILE and _BARE_DEEPSPEED.search(script):
        return (
            f"its --deepspeed names no file, so its program reads other options than {trainer}"
            " writes: launch.sh starts it"
        )
    if trainer == "nemo" and _FIRST_NEMO.search(script) is not None:
        own = "NeMo 1"
    elif asked:
        if trainer_called(own) == trainer_called(asked):
            return ""
    elif trainer_called(own) or not own:  # the launch is for the command's own trainer
        return ""
    whose = f"is of {own}" if own else "is of a trainer that nobody here knows"
    return f"its command {whose}, and the launch is for {trainer}: launch.sh has all of it"


def _other_recipe(words: Sequence[str], launch: Launch) -> str:
    """Why a command of torchtune cannot take a launch, if its recipe is another one; else empty."""
    recipe = next((word for word in words if word.endswith(("_distributed", "_single_device"))), "")
    if launch.trainer != torchtune.TRAINER or not recipe or recipe in launch.arguments:
        return ""
    advised = launch.arguments[0]
    return f"its command starts {recipe}, and the launch is of {advised}: launch.sh starts it"


def _file_of(
    words: Sequence[str], texts: Sequence[PastedText], trainer: str
) -> Mapping[str, Any] | None:
    """The settings in the file that a command names, by key; None where the file was not given."""
    index = file_of(words)
    if index is None:
        return {}
    if trainer == torchtune.TRAINER and (settings := torchtune.configuration(words[index])):
        return settings
    tail = PurePosixPath(words[index]).name
    for pasted in texts:
        if PurePosixPath(pasted.name).name == tail:
            with suppress(InputError):
                return document_for(trainer, pasted.text, pasted.name)
            return None
    return None


def _lost(strategy: Strategy, changed: Sequence[PastedText], written: Sequence[str]) -> str:
    """Why a changed script would not run all of the advice; empty where it does.

    A file beside the script, with its old settings, may state how ranks share their work. `written`
    are the files of the launch.
    """
    pasted_facts = read(changed)
    text = format_strategy(strategy)
    words = dict(pair.split("=", 1) for pair in text.split(",") if "=" in pair)
    shared = [f"{name}={words[name]}" for name in ("tp", "cp") if words.get(name, "1") != "1"]
    if shared:
        degrees = " and ".join(shared)
        why = f"{degrees} of the advice stands in accelerate.yaml, and not in its command"
        return f"{why}: launch.sh starts it"
    advised, state = words.get("optimizer", ""), state_of(pasted_facts.facts)
    settings = pasted_facts.settings
    files = [setting.value for setting in settings if setting.key.startswith("deepspeed")]
    unwritten = [
        file for file in files if file.endswith(".json") and PurePosixPath(file).name not in written
    ]
    if not state and unwritten and advised != "replicated":
        why = f"{unwritten[0]} says how its ranks share their states, and the advice is {advised}"
        return f"{why}: launch.sh starts it"
    if state == advised or (not state and (files or advised == "replicated")):
        return ""
    return (
        f"its command says optimizer={state or 'replicated'} and the advice {advised}, which stands"
        f" in {' and '.join(written) or 'its file'}: launch.sh starts it"
    )
