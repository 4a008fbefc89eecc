"""What people have, answered: a script, a file of settings, a model, a machine, or several
of them.
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
from mofa_model.pasted.reading import Pasted, PastedFacts, read
from mofa_model.pasted.recognise import PastedKind, kind_of
from mofa_model.pasted.wrapped import RunSeen, run_seen, unwrapped
from mofa_model.records import dataclass
from mofa_model.tables import Column, Table

if TYPE_CHECKING:
    from mofa_model.answers.advise import AdviceAnswer
    from mofa_model.answers.advise_tables import BriefLine
    from mofa_model.launch import ScriptChanged

_NOTES: Final = 2
"""Notes that stand in the ten-second answer; -o wide has all. [1]"""
_SHOWN: Final = frozenset({"model", "seq", "global_batch", "gpus", "precision", "task"})
"""Facts that stand in the ten-second answer."""


@dataclass(frozen=True, kw_only=True, repr=False)
class PasteAnswer(UserAnswer):
    """What was read, what is missing, and the advice where nothing is."""

    question: PasteQuestion
    pasted_facts: PastedFacts
    asks: tuple[str, ...] = ()
    """What has to be said before there is an answer."""
    answer: AdviceAnswer | None = None
    asked: AdviceQuestion | None = None
    """The same as a question of `mofa advise`."""
    notes: tuple[str, ...] = ()
    """What was read and does not enter the answer, each in one sentence."""
    texts: tuple[Pasted, ...] = ()
    """What was pasted."""

    def script(self) -> tuple[str, ScriptChanged] | None:
        """The script that was pasted with the launch written into it, as far as that could be, by
        its name.
        """
        from mofa_model.answers.paste_script import rewritten

        if self.answer is None:
            return None
        return rewritten(self.texts, self.answer, self.pasted_facts.trainer, self.question.launch)

    def _asked(self) -> Sequence[str]:
        """Facts that somebody must still say; those that are assumed are left out once all else
        is said.
        """
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
        return [
            Table(
                title=title, columns=columns, rows=rows, notes=(*pasted_facts.disagree, *self.notes)
            )
        ]

    def brief_lines(self, folder: str = "") -> tuple[BriefLine, ...]:
        """The ten-second answer, with what was read and the command to run next; that is the launch
        itself where `folder` holds it.
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
        # What does not enter the answer stands before what was assumed for it.
        room = min(_NOTES, LONGEST - len(lines))
        for note in sorted(notes, key=lambda note: "leaves" not in note)[:room]:
            lines.insert(len(lines) - 1, BriefLine("note", note))
        return tuple(lines)

    def brief_text(self, width: int = 80, folder: str = "") -> str:
        """`brief_lines` as text for a screen of some width; empty without an answer."""
        from mofa_model.answers.advise_tables import as_text

        return as_text(self.brief_lines(folder), width) if self.answer is not None else ""

    def _next_command(self, folder: str) -> str:
        """The launch in a folder, or the command that writes it, with the trainer of the advice
        where nobody named one.
        """
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
        # An option cannot stand where a file or a model is looked for, so the verb is named before
        # it.
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
        """Raise what stands in the way: what is missing, or that nothing is trained."""
        if self.pasted_facts.other:
            raise NotTraining(f"{self.pasted_facts.other}; mofa advises language models")
        if self.asks:
            raise Missing(
                dict(ASKED[name] for name in self._asked()), also=_known(self.pasted_facts)
            )
        if self.answer is not None:
            self.answer.raise_for_status()


def _known(pasted_facts: PastedFacts) -> str:
    facts = [
        f"{WORDS.get(name, name)} {pasted_facts.facts[name].value}"
        for name in ("model", "seq", "global_batch", "gpus")
        if name in pasted_facts.facts
    ]
    named = ", ".join(name for name, _ in pasted_facts.parts)
    says = "says" if len(pasted_facts.parts) < 2 else "say"
    return f"{named} {says} {', '.join(facts) or 'none of them'}" if named else ""


def texts_of(names: Sequence[str]) -> list[Pasted]:
    """The texts of files; `-` is standard input."""
    from mofa_model import files

    folders = {
        name: f"{name.rstrip('/')}/config.json"
        for name in names
        if files.path_kind(name) == "folder"
    }
    paths = [folders.get(name, name) for name in names]
    return [
        Pasted(files.read_text(name), "standard input" if name == "-" else name) for name in paths
    ]


_BESIDE: Final = re.compile(r"[\w./~+-]+\.(?:json|ya?ml|toml|sh|sbatch|slurm)(?![\w.])")
MOST_BESIDE: Final = 8
"""Files that are read because a script names them. [1]"""


def beside(texts: Sequence[Pasted]) -> list[Pasted]:
    """The texts, with the files of settings and the scripts that a script of them names and that
    lie where it says, seen from its own folder or from here.
    """
    from mofa_model import files

    texts_read = [_taken_out(pasted) for pasted in texts]
    seen = {PurePosixPath(pasted.name).name for pasted in texts}
    for pasted in tuple(texts_read):
        if not kind_of(pasted.text, pasted.name).is_script:
            continue
        folder = PurePosixPath(pasted.name).parent
        for named in dict.fromkeys(_BESIDE.findall(pasted.text)):
            tail = PurePosixPath(named).name
            path = next(
                (p for p in (str(folder / named), named) if files.path_kind(p) == "file"), ""
            )
            if not path or tail in seen or len(texts_read) >= len(texts) + MOST_BESIDE:
                continue
            with suppress(InputError):
                text = files.read_text(path)
                if kind_of(text, path) in _NAMED_KINDS:
                    seen.add(tail)
                    texts_read.append(Pasted(text, path))
    return texts_read


def _taken_out(pasted: Pasted) -> Pasted:
    if pasted.run is not RunSeen.UNSEEN:
        return pasted
    text = unwrapped(pasted.text, pasted.name)
    is_inside = pasted.is_inside or text != pasted.text
    return pasted._replace(text=text, is_inside=is_inside, run=run_seen(pasted.text))


_NAMED_KINDS: Final = frozenset(
    {PastedKind.SHELL, PastedKind.SBATCH, PastedKind.YAML, PastedKind.TOML, PastedKind.JSON}
    | {PastedKind.DEEPSPEED, PastedKind.ACCELERATE}
)


def answered(
    question: PasteQuestion, texts: Sequence[Pasted], advance: Callable[[float], None] = lambda _: None,
    launched_by: str = "", *, assumes: bool = False,
) -> PasteAnswer:  # fmt: skip
    """Advice for texts; `assumes` a sequence and a batch where nobody says them, as it does for a
    model alone.
    """
    from mofa_model.answers.advise import advise

    if not texts and not question.model:
        raise Missing(dict([ASKED["model"]]), also="or give a file, or - for standard input")
    texts = [_taken_out(pasted) for pasted in texts]
    pasted_facts = (
        read(texts) if texts else PastedFacts(kind=PastedKind.MODEL, trainer="", facts={})
    )
    _check(pasted_facts, texts)
    _check_told(pasted_facts, texts)
    option_facts = facts_of_options(question, pasted_facts)
    if _is_another(pasted_facts, option_facts):
        pasted_facts = replace(pasted_facts, run=RunSeen.UNSEEN)
    pasted_facts = replace(pasted_facts, facts={**pasted_facts.facts, **option_facts})
    assumed = list[str]()
    pasted_facts = with_usual_nodes(question, pasted_facts, assumed)
    asks = tuple(missing(pasted_facts))
    open_facts = {*asks} - {"gpus"}
    if open_facts <= {*ASSUMED} and (assumes or not open_facts or not may_say_more(pasted_facts)):
        pasted_facts, sentences = with_usual_numbers(pasted_facts, question, sorted(open_facts))
        assumed += sentences
        if "gpus" in asks:
            pasted_facts, sentence = with_fewest(question, pasted_facts)
            question = replace(
                question,
                gpus=str(pasted_facts.facts["gpus"].value),
                constraints=(*question.constraints, ON_DEVICES),
            )
            assumed = [sentence, *assumed]
        asks = ()
    if asks:
        if question.model:
            model_called(
                question.model, []
            )  # who names several is told before anything else is asked
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
    """Whether options ask for another run than the texts describe: other size, sequence
    or batch.
    """
    facts = pasted_facts.facts
    return any(
        name in option_facts
        and name in facts
        and str(option_facts[name].value) != str(facts[name].value)
        for name in ("gpus", "nodes", "seq", "global_batch")
    )


def _check(pasted_facts: PastedFacts, texts: Sequence[Pasted]) -> None:
    for pasted, (name, kind) in zip(texts, pasted_facts.parts, strict=False):
        if not pasted.text.strip():
            raise BadFile(
                name, "is empty; give a script, a file of settings, or a model's config.json"
            )
        is_log = pasted.run is not RunSeen.UNSEEN or _CRASHED.search(pasted.text)
        if kind is PastedKind.UNKNOWN and not (is_log and len(texts) > 1):
            first = " ".join(pasted.text.split())[:60]
            raise BadFile(
                name,
                f"is nothing that is known here; it begins with {first!r}; give a shell or batch script, a file of a"
                " trainer, a config.json, a manifest, or the output of nvidia-smi, sinfo -N or scontrol show",
            )


_CRASHED: Final = re.compile(r"Traceback \(most recent|out of memory|Segmentation fault|NCCL WARN")


def _check_told(pasted_facts: PastedFacts, texts: Sequence[Pasted]) -> None:
    """Refuse a log of a crash that says nothing of its training."""
    if texts and not pasted_facts.facts and any(_CRASHED.search(pasted.text) for pasted in texts):
        raise BadFile(
            texts[0].name,
            "is a log of a crash that says nothing of its training; give the script that was started, or the"
            " log from its first line",
        )
