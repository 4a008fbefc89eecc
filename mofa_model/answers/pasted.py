"""The answer to pasted texts: scripts, files of settings, models, machines, or several of them.

`texts_of` and `beside` read the texts, `mofa_model.pasted` finds facts in them, `paste_gaps.py`
fills what they leave open, `paste_question.py` makes the question of `mofa advise`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Final

from mofa_model.answers.answer import UserAnswer
from mofa_model.answers.paste_gaps import (
    ASKED,
    ASSUMED,
    ON_DEVICES,
    WORDS,
    facts_of_options,
    may_say_more,
    with_fewest,
    with_usual_nodes,
    with_usual_numbers,
)
from mofa_model.answers.paste_question import model_called, question_for
from mofa_model.answers.questions import AdviceQuestion, PasteQuestion
from mofa_model.errors import BadFile, InputError, Missing, NotTraining
from mofa_model.identity.fact import Fact
from mofa_model.identity.secret_words import masked_line
from mofa_model.pasted.missing import missing
from mofa_model.pasted.reading import PastedFacts, PastedText, read
from mofa_model.pasted.recognise import PastedKind, kind_of
from mofa_model.pasted.wrapped import RunState, run_seen, unwrapped
from mofa_model.records import dataclass
from mofa_model.tables import Column, Table

if TYPE_CHECKING:
    from mofa_model.answers.advise import AdviceAnswer
    from mofa_model.answers.advise_tables import BriefLine
    from mofa_model.launch import ChangedScript

_NOTES: Final = 2
"""Most notes of the ten-second answer; -o wide has all. [1]"""
_SHOWN: Final = frozenset({"model", "seq", "global_batch", "gpus", "precision", "task"})
"""Facts in the ten-second answer."""
_BESIDE: Final = re.compile(r"[\w./~+-]+\.(?:json|ya?ml|toml|sh|sbatch|slurm)(?![\w.])")
"""A file that a script names."""
_KINDS_BESIDE: Final = frozenset(
    {PastedKind.SHELL, PastedKind.SBATCH, PastedKind.YAML, PastedKind.TOML, PastedKind.JSON}
    | {PastedKind.DEEPSPEED, PastedKind.ACCELERATE}
)
"""Kinds of files that are read because a script names them."""
MOST_BESIDE: Final = 8
"""Most files that are read because a script names them. [1]"""
_CRASHED: Final = re.compile(r"Traceback \(most recent|out of memory|Segmentation fault|NCCL WARN")
"""Words of the log of a crash."""


@dataclass(frozen=True, kw_only=True, repr=False)
class PasteAnswer(UserAnswer):
    """The facts of the texts, and the advice; or the facts that are missing for it."""

    question: PasteQuestion
    pasted_facts: PastedFacts
    asks: tuple[str, ...] = ()
    """The facts that are missing for an answer."""
    answer: AdviceAnswer | None = None
    asked: AdviceQuestion | None = None
    """The same as a question of `mofa advise`."""
    notes: tuple[str, ...] = ()
    """A sentence for each fact that was read and left out, and for each that was assumed."""
    texts: tuple[PastedText, ...] = ()
    """The pasted texts."""

    def script(self) -> tuple[str, ChangedScript] | None:
        """The name of the pasted script, and the script with the launch, as far as it takes it."""
        from mofa_model.answers.paste_script import rewritten

        if self.answer is None:
            return None
        return rewritten(self.texts, self.answer, self.pasted_facts.trainer, self.question.launch)

    def _needed_facts(self) -> Sequence[str]:
        """The missing facts that people are told of: without those that would be assumed."""
        if may_say_more(self.pasted_facts):
            return self.asks
        usual = {*ASSUMED, "gpus-per-node"}  # the device's usual machine has so many
        return [name for name in self.asks if name not in usual] or self.asks

    @property
    def document(self) -> dict[str, Any]:
        """Facts with their places, and the answer."""
        pasted_facts = self.pasted_facts
        return {
            "kind": pasted_facts.kind.value,
            "trainer": pasted_facts.trainer or None,
            "facts": {
                name: {"value": fact.value, "source": fact.source}
                for name, fact in sorted(pasted_facts.facts.items())
            },
            "asks": list(self.asks),
            "conflicts": list(pasted_facts.disagree),
            "notes": list(self.notes),
            "command": None if self.asked is None else self.asked.command("advise"),
            "answer": None if self.answer is None else self.answer.document,
        }

    @property
    def tables(self) -> Sequence[Table]:
        """A table of what was read from the texts; the advice itself is `answer`."""
        pasted_facts = self.pasted_facts
        named = ", ".join(name for name, _ in pasted_facts.parts if name)
        what = f"{named}: {pasted_facts.kind.value}" if named else "what was typed"
        rows = tuple(
            (WORDS.get(name, name), str(fact.value), fact.source)
            for name, fact in pasted_facts.facts.items()
        )
        columns = (Column("fact"), Column("value", align="left"), Column("where", align="left"))
        title = f"Read: {what}{f' of {pasted_facts.trainer}' if pasted_facts.trainer else ''}"
        notes = (*pasted_facts.disagree, *self.notes)
        return [Table(title=title, columns=columns, rows=rows, notes=notes)]

    def brief_lines(self, folder: str = "") -> tuple[BriefLine, ...]:
        """The ten-second answer, with the facts that were read and the command to run next.

        `folder` holds the launch, where it was saved: the command starts it.
        """
        from mofa_model.answers.advise_tables import LONGEST, BriefLine, brief

        if self.answer is None:
            return ()
        facts_read = [
            f"{WORDS.get(name, name)} {fact.value}"
            for name, fact in self.pasted_facts.facts.items()
            if name in _SHOWN
        ]
        named = ", ".join(name.rpartition("/")[2] for name, _ in self.pasted_facts.parts)
        lines = list(brief(self.answer.advice, self._next_command(folder)))
        if named:
            trainer = f" ({self.pasted_facts.trainer})" if self.pasted_facts.trainer else ""
            lines.insert(1, BriefLine("read", f"{named}{trainer}: {', '.join(facts_read)}"))
        notes = (*self.pasted_facts.disagree, *self.notes)
        # Facts that the answer leaves out stand before facts that it assumes.
        room = min(_NOTES, LONGEST - len(lines))
        for note in sorted(notes, key=lambda note: "leaves" not in note)[:room]:
            lines.insert(len(lines) - 1, BriefLine("note", note))
        return tuple(lines)

    def brief_text(self, width: int = 80, folder: str = "") -> str:
        """`brief_lines` as text for a screen of some width; empty without an answer."""
        from mofa_model.answers.advise_tables import as_text

        return as_text(self.brief_lines(folder), width) if self.answer is not None else ""

    def _next_command(self, folder: str) -> str:
        """The command that starts the launch in a folder, or the one that writes the launch."""
        from mofa_model.manifest.advised import trainer_of

        if folder:
            if (script := self.script()) is None or not script[1].changes:
                return f"bash {shlex.quote(folder)}/launch.sh"
            starts = "sbatch" if self.pasted_facts.kind is PastedKind.SBATCH else "bash"
            return f"{starts} {shlex.quote(f'{folder}/{script[0]}')}"
        if not self.again or self.answer is None or self.asked is None:
            return ""
        trainer = self.answer.advice.trainer
        is_open = not trainer_of(self.asked.framework or "") and trainer_of(trainer)
        named = f" --framework {trainer}" if is_open else ""
        # `mofa FILE` leaves the verb out, but `mofa --option` cannot.
        verb = "mofa paste" if self.again.startswith("--") else "mofa"
        return f"{verb} {self.again}{named} --save-dir out"

    @property
    def again(self) -> str:
        """The words of the command that asks this question again."""
        typed = {pasted.name: pasted.text for pasted in self.texts if pasted.name == "the command"}
        names = [
            "-" if name == "standard input" else shlex.quote(masked_line(typed.get(name, name)))
            for name, _ in self.pasted_facts.parts
        ]
        words = self.question.command("").split(" ", 2)[2:]
        return " ".join([*names, *words])

    @property
    def records(self) -> Table:
        """The facts, one in a row."""
        return self.tables[0]

    def raise_for_status(self) -> None:
        """Raise NotTraining for texts without a training, Missing for missing facts, and errors of
        the advice.
        """
        if self.pasted_facts.other:
            raise NotTraining(f"{self.pasted_facts.other}; mofa advises language models")
        if self.asks:
            examples = dict(ASKED[name] for name in self._needed_facts())
            raise Missing(examples, also=_facts_sentence(self.pasted_facts))
        if self.answer is not None:
            self.answer.raise_for_status()


def _facts_sentence(pasted_facts: PastedFacts) -> str:
    """Which of the most important facts the texts state, as a sentence."""
    facts = [
        f"{WORDS.get(name, name)} {pasted_facts.facts[name].value}"
        for name in ("model", "seq", "global_batch", "gpus")
        if name in pasted_facts.facts
    ]
    named = ", ".join(name for name, _ in pasted_facts.parts)
    says = "says" if len(pasted_facts.parts) < 2 else "say"
    return f"{named} {says} {', '.join(facts) or 'none of them'}" if named else ""


def texts_of(names: Sequence[str]) -> list[PastedText]:
    """The texts of files; `-` is standard input, a folder is the model in it."""
    from mofa_model import files

    texts = []
    for name in names:
        path = f"{name.rstrip('/')}/config.json" if files.path_kind(name) == "folder" else name
        texts.append(PastedText(files.read_text(path), "standard input" if path == "-" else path))
    return texts


def beside(texts: Sequence[PastedText]) -> list[PastedText]:
    """The texts, and the files of settings and scripts that a script of them names.

    A file is looked for in the script's folder, then in the working folder.
    """
    from mofa_model import files

    all_texts = [_taken_out(pasted) for pasted in texts]
    names = {PurePosixPath(pasted.name).name for pasted in texts}
    for script in tuple(all_texts):
        if not kind_of(script.text, script.name).is_script:
            continue
        folder = PurePosixPath(script.name).parent
        for named in dict.fromkeys(_BESIDE.findall(script.text)):
            tail = PurePosixPath(named).name
            paths = (
                path for path in (str(folder / named), named) if files.path_kind(path) == "file"
            )
            path = next(paths, "")
            if not path or tail in names or len(all_texts) >= len(texts) + MOST_BESIDE:
                continue
            with suppress(InputError):
                text = files.read_text(path)
                if kind_of(text, path) in _KINDS_BESIDE:
                    names.add(tail)
                    all_texts.append(PastedText(text, path))
    return all_texts


def _taken_out(pasted: PastedText) -> PastedText:
    """The script inside a text, such as the code of a page or of a chat, and how its run ended."""
    if pasted.run is not RunState.UNSEEN:
        return pasted
    text = unwrapped(pasted.text, pasted.name)
    is_inside = pasted.is_inside or text != pasted.text
    return pasted._replace(text=text, is_inside=is_inside, run=run_seen(pasted.text))


def answered(
    question: PasteQuestion,
    texts: Sequence[PastedText],
    advance: Callable[[float], None] = lambda _: None,
    launched_by: str = "",
    *,
    assumes: bool = False,
) -> PasteAnswer:
    """Advice for texts. With `assumes`, usual values stand for a sequence and a batch that a script
    may state in a file that is not here; of other texts they are assumed in any case.
    """
    from mofa_model.answers.advise import advise

    if not texts and not question.model:
        raise Missing(dict([ASKED["model"]]), also="or give a file, or - for standard input")
    texts = [_taken_out(pasted) for pasted in texts]
    pasted_facts = PastedFacts(kind=PastedKind.MODEL, trainer="", facts={})
    if texts:
        pasted_facts = read(texts)
    _check(pasted_facts, texts)
    option_facts = facts_of_options(question, pasted_facts)
    if _is_another(pasted_facts, option_facts):
        pasted_facts = replace(pasted_facts, run=RunState.UNSEEN)
    pasted_facts = replace(pasted_facts, facts={**pasted_facts.facts, **option_facts})
    assumed = list[str]()
    pasted_facts = with_usual_nodes(question, pasted_facts, assumed)
    asks = tuple(missing(pasted_facts))
    lacking = {*asks} - {"gpus"}
    if lacking <= {*ASSUMED} and (assumes or not lacking or not may_say_more(pasted_facts)):
        pasted_facts, notes = with_usual_numbers(pasted_facts, question, sorted(lacking))
        assumed += notes
        if "gpus" in asks:
            pasted_facts, note = with_fewest(question, pasted_facts)
            gpus, constraints = (
                pasted_facts.facts["gpus"].value,
                (*question.constraints, ON_DEVICES),
            )
            question = replace(question, gpus=str(gpus), constraints=constraints)
            assumed = [note, *assumed]
    elif asks:
        if question.model:
            model_called(question.model, [])  # an ambiguous name is refused before facts are asked
        return PasteAnswer(question=question, pasted_facts=pasted_facts, asks=asks)
    asked, notes = question_for(question, pasted_facts)
    notes = [*assumed, *notes]
    if launched_by and asked.framework is None and asked.launch is None and pasted_facts.trainer:
        raise InputError(
            f"{launched_by}: a launch of {pasted_facts.trainer} cannot be written here; "
            f"say for which other trainer: --launch TRAINER"
        )
    answer = advise.of(asked, advance, launched_by)
    return PasteAnswer(
        question=question,
        pasted_facts=pasted_facts,
        answer=answer,
        asked=asked,
        notes=tuple(notes),
        texts=tuple(texts),
    )


def _is_another(pasted_facts: PastedFacts, option_facts: Mapping[str, Fact]) -> bool:
    """Whether options ask for another run than that of the texts: other size, sequence or batch."""
    facts = pasted_facts.facts
    return any(
        name in option_facts
        and name in facts
        and str(option_facts[name].value) != str(facts[name].value)
        for name in ("gpus", "nodes", "seq", "global_batch")
    )


def _check(pasted_facts: PastedFacts, texts: Sequence[PastedText]) -> None:
    """Refuse empty texts, texts of no known kind, and the log of a crash without facts."""
    for pasted, (name, kind) in zip(texts, pasted_facts.parts, strict=False):
        if not pasted.text.strip():
            raise BadFile(
                name, "is empty; give a script, a file of settings, or a model's config.json"
            )
        is_log = pasted.run is not RunState.UNSEEN or _CRASHED.search(pasted.text)
        if kind is PastedKind.UNKNOWN and not (is_log and len(texts) > 1):
            first = " ".join(pasted.text.split())[:60]
            raise BadFile(
                name,
                f"is nothing that is known here; it begins with {first!r}; give a shell or batch"
                " script, a file of a trainer, a config.json, a manifest, or the output of"
                " nvidia-smi, sinfo -N or scontrol show",
            )
    if texts and not pasted_facts.facts and any(_CRASHED.search(pasted.text) for pasted in texts):
        raise BadFile(
            texts[0].name,
            "is a log of a crash that says nothing of its training; give the script that was"
            " started, or the log from its first line",
        )
