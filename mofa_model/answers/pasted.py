"""What people have, answered: a script, a file of settings, a model, a machine, or several of them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stderr, suppress
from dataclasses import replace
from io import StringIO
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Final

from mofa_model import presets
from mofa_model.answers.answer import UserAnswer
from mofa_model.answers.questions import AdviceQuestion, PasteQuestion
from mofa_model.axes.frameworks import framework, trainer_called
from mofa_model.errors import BadFile, InputError, Missing, MofaError, NotTraining
from mofa_model.identity.fact import Fact
from mofa_model.identity.secret_words import masked_line
from mofa_model.pasted.missing import has_model, missing
from mofa_model.pasted.model_names import alike, is_size, preset_named, sizes_of
from mofa_model.pasted.reading import Pasted, PastedFacts, read
from mofa_model.pasted.recognise import PastedKind, by_program, kind_of, program_at
from mofa_model.pasted.wrapped import shows_run, unwrapped
from mofa_model.records import dataclass
from mofa_model.strategy_text import format_strategy
from mofa_model.tables import Column, Table
from mofa_model.units import GIB

if TYPE_CHECKING:
    from mofa_model.answers.advise import AdviceAnswer
    from mofa_model.answers.brief import BriefLine
    from mofa_model.launch import Reading, ScriptChanged

ASKED: Final[Mapping[str, tuple[str, str]]] = {
    "gpu": ("--gpu", "h100"),
    "gpus": ("--gpus", "64"),
    "nodes": ("--nodes", "8"),
    "gpus-per-node": ("--gpus-per-node", "8"),
    "model": ("--model", "llama3-8b"),
    "seq": ("--seq", "8192"),
    "global_batch": ("--global-batch", "512"),
}
"""What may be asked: the option that answers it, and an example."""
ASSUMED: Final = {"seq": (8192, 2048), "global_batch": (512, 64)}
"""Usual values where nobody says them: of pre-training, and of fine-tuning. [1]"""
MOST: Final = 2
"""Questions that a terminal is asked. [1]"""
_GIVEN: Final = {
    "gpu": "gpu", "gpus": "gpus", "nodes": "nodes", "gpus_per_node": "gpus_per_node", "model": "model",
    "seq": "sequence_length", "global_batch": "global_batch_size",
}  # fmt: skip
"""Facts that options say, by the fields of the question."""
_STATES: Final = {"none": "replicated", "zero1": "distributed", "zero2": "zero2", "zero3": "zero3"}
_WORDS: Final = {
    "gpu": "device", "gpus": "devices", "nodes": "nodes", "gpus_per_node": "devices of a node", "seq": "sequence",
    "global_batch": "global batch", "micro_batch": "micro-batch", "lora_rank": "rank of adapters", "kv_heads": "KV heads",
    "ffn": "width of the feed-forward part", "top_k": "experts of a token", "vocab": "vocabulary",
    "dp": "data-parallel ranks", "interval": "steps between checkpoints",
}  # fmt: skip


_BY_FILE: Final = frozenset({"accelerate", "deepspeed", "trl"})
"""Trainers whose files, and not their commands, say how ranks share their work."""
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
        """The script that was pasted with the launch written into it, as far as that could be, by its name."""
        from mofa_model.identity.sbatch_written import SlurmJob
        from mofa_model.launch import ScriptChanged
        from mofa_model.pasted.in_place import in_place

        if self.answer is None or self.answer.launch is None:
            return None
        advice = self.answer.advice
        job = SlurmJob(nodes=advice.nodes, gpus_per_node=advice.gpus // advice.nodes)
        for one in self.texts:
            if not one.is_inside and kind_of(one.text, one.name).is_script:
                name = PurePosixPath(one.name).name if one.name in self._named() else "script.sh"
                if foreign := self._foreign(self.answer.launch.trainer):
                    return name, ScriptChanged(text=one.text, left=(foreign,))
                changed = in_place(one, self.answer.launch, job)
                if lost := self._lost(one, changed.text):
                    changed = ScriptChanged(text=one.text, left=(lost,))
                return name, changed
        return None

    def _foreign(self, trainer: str) -> str:
        """Why a command takes no option of the launch's trainer; empty where it is that trainer's, or like it."""
        own = self.pasted_facts.trainer
        asked = self.question.launch
        if asked is None or trainer_called(own) == trainer_called(asked):
            return ""
        whose = f"is of {own}" if own else "is of a trainer that nobody here knows"
        return f"its command {whose}, and the launch is for {trainer}: launch.sh has all of it"

    def _lost(self, script: Pasted, changed: str) -> str:
        """What of the advice the changed script would not do, where a file beside it says how ranks share their
        work; empty where it does all. A part of an advice alone may need other memory, or another batch.
        """
        if self.answer is None or self.answer.advice.strategy is None or changed == script.text:
            return ""
        if not self.answer.launch or self.answer.launch.trainer not in _BY_FILE:
            return ""
        others = [one for one in self.texts if one is not script]
        told = read([script._replace(text=changed), *others])
        text = format_strategy(self.answer.advice.strategy)
        words = dict(pair.split("=", 1) for pair in text.split(",") if "=" in pair)
        shared = [f"{name}={words[name]}" for name in ("tp", "cp") if words.get(name, "1") != "1"]
        if shared:
            return f"{' and '.join(shared)} of the advice stands in accelerate.yaml, and not in its command: launch.sh starts it"
        advised, state = words.get("optimizer", ""), _state_of(told.facts)
        deepspeed = any(one.key.startswith("deepspeed") for one in told.settings)
        if state == advised or (not state and (deepspeed or advised == "replicated")):
            return ""
        return (
            f"its command says optimizer={state or 'replicated'} and the advice {advised}, which stands in"
            " accelerate.yaml: launch.sh starts it"
        )

    def _named(self) -> set[str]:
        """Texts that are files."""
        return {one.name for one in self.texts} - {"standard input", "the command"}

    def _asked(self) -> Sequence[str]:
        """What has to be asked: nothing that is assumed once all else is said."""
        if _may_say_more(self.pasted_facts):
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
        """What was read; the advice stands in `answer`."""
        pasted_facts = self.pasted_facts
        named = ", ".join(name for name, _ in pasted_facts.parts if name)
        what = f"{named}: {pasted_facts.kind.value}" if named else "what was typed"
        rows = tuple(
            (_WORDS.get(name, name), str(fact.value), fact.source)
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
        """The ten-second answer, with what was read and the command to run next; that is the launch itself
        where `folder` holds it.
        """
        from mofa_model.answers.brief import BriefLine, brief

        if self.answer is None:
            return ()
        said = [
            f"{_WORDS.get(name, name)} {fact.value}"
            for name, fact in self.pasted_facts.facts.items()
            if name in _SHOWN
        ]
        named = ", ".join(name.rpartition("/")[2] for name, _ in self.pasted_facts.parts)
        lines = list(brief(self.answer.advice, self._next_command(folder)))
        if named:
            trainer = f" ({self.pasted_facts.trainer})" if self.pasted_facts.trainer else ""
            lines.insert(1, BriefLine("read", f"{named}{trainer}: {', '.join(said)}"))
        told = (*self.pasted_facts.disagree, *self.notes)
        # What does not enter the answer stands before what was assumed for it.
        for one in sorted(told, key=lambda one: "leaves" not in one)[:_NOTES]:
            lines.insert(len(lines) - 1, BriefLine("note", one))
        return tuple(lines)

    def brief_text(self, width: int = 80, folder: str = "") -> str:
        """The same as text for a screen of some width."""
        from mofa_model.answers.brief import as_text

        return as_text(self.brief_lines(folder), width) if self.answer is not None else ""

    def _next_command(self, folder: str) -> str:
        """The launch in a folder, or the command that writes it, with the trainer of the advice where nobody named one."""
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
        # An option cannot stand where a file or a model is looked for, so the verb is named before it.
        verb = "mofa paste" if self.again.startswith("--") else "mofa"
        return f"{verb} {self.again}{named} --save-dir out"

    @property
    def again(self) -> str:
        """What the command was given, so that it can be given again."""
        typed = {one.name: one.text for one in self.texts if one.name == "the command"}
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
    said = [
        f"{_WORDS.get(name, name)} {pasted_facts.facts[name].value}"
        for name in ("model", "seq", "global_batch", "gpus")
        if name in pasted_facts.facts
    ]
    named = ", ".join(name for name, _ in pasted_facts.parts)
    says = "says" if len(pasted_facts.parts) < 2 else "say"
    return f"{named} {says} {', '.join(said) or 'none of them'}" if named else ""


def texts_of(names: Sequence[str]) -> list[Pasted]:
    """The texts of files; `-` is standard input."""
    from mofa_model import files

    folders = {
        one: f"{one.rstrip('/')}/config.json" for one in names if files.path_kind(one) == "folder"
    }
    paths = [folders.get(one, one) for one in names]
    return [Pasted(files.read_text(one), "standard input" if one == "-" else one) for one in paths]


_BESIDE: Final = re.compile(r"[\w./~+-]+\.(?:json|ya?ml|toml|sh)(?![\w.])")
MOST_BESIDE: Final = 8
"""Files that are read because a script names them. [1]"""


def beside(texts: Sequence[Pasted]) -> list[Pasted]:
    """The texts, with the files of settings and the scripts that a script of them names and that lie
    where it says, seen from its own folder or from here.
    """
    from mofa_model import files

    found = [_taken_out(one) for one in texts]
    seen = {PurePosixPath(one.name).name for one in texts}
    for one in tuple(found):
        if not kind_of(one.text, one.name).is_script:
            continue
        folder = PurePosixPath(one.name).parent
        for named in dict.fromkeys(_BESIDE.findall(one.text)):
            tail = PurePosixPath(named).name
            path = next(
                (p for p in (str(folder / named), named) if files.path_kind(p) == "file"), ""
            )
            if not path or tail in seen or len(found) >= len(texts) + MOST_BESIDE:
                continue
            with suppress(InputError):
                text = files.read_text(path)
                if kind_of(text, path) in _NAMED_KINDS:
                    seen.add(tail)
                    found.append(Pasted(text, path))
    return found


def _taken_out(one: Pasted) -> Pasted:
    text, ran = unwrapped(one.text, one.name), one.ran or shows_run(one.text)
    return one._replace(text=text, is_inside=one.is_inside or text != one.text, ran=ran)


_NAMED_KINDS: Final = frozenset(
    {PastedKind.SHELL, PastedKind.SBATCH, PastedKind.YAML, PastedKind.TOML, PastedKind.JSON}
    | {PastedKind.DEEPSPEED, PastedKind.ACCELERATE}
)


def answered(
    question: PasteQuestion, texts: Sequence[Pasted], advance: Callable[[float], None] = lambda _: None,
    launched_by: str = "", *, assumes: bool = False,
) -> PasteAnswer:  # fmt: skip
    """Advice for texts; `assumes` a sequence and a batch where nobody says them, as it does for a model alone."""
    from mofa_model.answers.advise import advise

    if not texts and not question.model:
        raise Missing(dict([ASKED["model"]]), also="or give a file, or - for standard input")
    texts = [_taken_out(one) for one in texts]
    pasted_facts = (
        read(texts) if texts else PastedFacts(kind=PastedKind.MODEL, trainer="", facts={})
    )
    _check(pasted_facts, texts)
    _check_told(pasted_facts, texts)
    pasted_facts = replace(
        pasted_facts, facts={**pasted_facts.facts, **_said(question, pasted_facts)}
    )
    assumed = list[str]()
    pasted_facts = _with_usual_nodes(question, pasted_facts, assumed)
    asks = tuple(missing(pasted_facts))
    open_ones = {*asks} - {"gpus"}
    if open_ones <= {*ASSUMED} and (assumes or not open_ones or not _may_say_more(pasted_facts)):
        pasted_facts, usual = _assumed(pasted_facts, question, sorted(open_ones))
        assumed += usual
        if "gpus" in asks:
            pasted_facts, few = _with_fewest(question, pasted_facts)
            question = replace(
                question,
                gpus=str(pasted_facts.facts["gpus"].value),
                constraints=(*question.constraints, _ON_DEVICES),
            )
            assumed = [few, *assumed]
        asks = ()
    if asks:
        if question.model:
            _named(question.model, [])  # who names several is told before anything else is asked
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


def _may_say_more(pasted_facts: PastedFacts) -> bool:
    """Whether a text starts a program of somebody's own, which may say more in a file that is not here. What
    a trainer's own program, settings, models and machines leave open, nobody says.
    """
    if not any(kind.is_script for _, kind in pasted_facts.parts):
        return False
    return pasted_facts.command is None or not by_program(pasted_facts.command)


MOST_NODES: Final = 512
"""Nodes up to which the fewest are looked for. [1]"""
_ON_DEVICES: Final = "optimizer=replicated,distributed,zero2,zero3"
"""Nothing waits in the main memory of a node."""


def _with_fewest(question: PasteQuestion, pasted_facts: PastedFacts) -> tuple[PastedFacts, str]:
    """Facts with the fewest devices that surely hold a training, and the sentence that says so.

    Adapters may take a part of a node; all weights take whole nodes. Each size is twice the one before.
    """
    from mofa_model.advice import size_of
    from mofa_model.answers.advise import request_of

    gpu = str(pasted_facts.facts["gpu"].value)
    each = int(presets.cluster(gpu, 1).gpus_per_node)
    tuned = bool(question.adapter_rank) or "lora_rank" in pasted_facts.facts
    sizes = [one for one in (1, 2, 4) if tuned and one < each]
    sizes += [each * 2**power for power in range(MOST_NODES.bit_length())]
    for gpus in sizes:
        sized = _of_size(pasted_facts, gpus)
        with suppress(InputError), redirect_stderr(StringIO()):
            asked, _ = question_for(question, sized)
            asked = replace(
                asked, current=None, planned=None, constraints=(*asked.constraints, _ON_DEVICES)
            )
            if size_of(request_of(asked), "least-gpus").fits:
                return sized, (
                    f"nobody says how many: {gpus} {gpu} are the fewest that surely hold it, of 1, 2, 4 and so on"
                    " nodes, with nothing in main memory; --gpus changes it"
                )
    raise Missing(dict([ASKED["gpus"]]), also=f"none of up to {sizes[-1]} {gpu} surely holds it")


def _of_size(pasted_facts: PastedFacts, gpus: int) -> PastedFacts:
    return replace(pasted_facts, facts={**pasted_facts.facts, "gpus": Fact(gpus, "assumed")})


def _with_usual_nodes(
    question: PasteQuestion, pasted_facts: PastedFacts, notes: list[str]
) -> PastedFacts:
    """Facts with as many devices in a node as the usual system of a device that an option names has."""
    facts = pasted_facts.facts
    if question.gpu is None or "nodes" not in facts or {"gpus", "gpus_per_node"} & facts.keys():
        return pasted_facts
    each = int(presets.cluster(question.gpu, 1).gpus_per_node)
    nodes = int(facts["nodes"].value)
    notes.append(
        f"nobody says devices of a node: {each} are taken, as of the usual {question.gpu}; --gpus-per-node changes it"
    )
    more = {
        "gpus_per_node": Fact(each, "assumed"),
        "gpus": Fact(nodes * each, f"derived: {nodes} nodes x {each}"),
    }
    return replace(pasted_facts, facts={**facts, **more})


def _assumed(
    pasted_facts: PastedFacts, question: PasteQuestion, asks: Sequence[str]
) -> tuple[PastedFacts, list[str]]:
    """Facts with a usual sequence and batch, and the sentence that says so; nothing where both are said."""
    if not asks:
        return pasted_facts, []
    task = pasted_facts.facts.get("task")
    tuned = bool(question.adapter_rank) or "lora_rank" in pasted_facts.facts
    tuned = tuned or (task is not None and task.value != "pre-training")
    usual = {name: values[tuned] for name, values in ASSUMED.items() if name in asks}
    facts = {
        **pasted_facts.facts,
        **{name: Fact(value, "assumed") for name, value in usual.items()},
    }
    said = " and ".join(f"{_WORDS[name]} {value}" for name, value in usual.items())
    options = " and ".join(ASKED[name][0] for name in usual)
    are, change = ("are", "change") if len(usual) > 1 else ("is", "changes")
    return replace(pasted_facts, facts=facts), [
        f"nobody says {said}, which {are} assumed; {options} {change} it"
    ]


def _check(pasted_facts: PastedFacts, texts: Sequence[Pasted]) -> None:
    for one, (name, kind) in zip(texts, pasted_facts.parts, strict=False):
        if not one.text.strip():
            raise BadFile(
                name, "is empty; give a script, a file of settings, or a model's config.json"
            )
        is_log = one.ran or _CRASHED.search(one.text)
        if kind is PastedKind.UNKNOWN and not (is_log and len(texts) > 1):
            first = " ".join(one.text.split())[:60]
            raise BadFile(
                name,
                f"is nothing that is known here; it begins with {first!r}; give a shell or batch script, a file of a"
                " trainer, a config.json, a manifest, or the output of nvidia-smi, sinfo -N or scontrol show",
            )


_CRASHED: Final = re.compile(r"Traceback \(most recent|out of memory|Segmentation fault|NCCL WARN")


def _check_told(pasted_facts: PastedFacts, texts: Sequence[Pasted]) -> None:
    """Refuse a log of a crash that says nothing of its training."""
    if texts and not pasted_facts.facts and any(_CRASHED.search(one.text) for one in texts):
        raise BadFile(
            texts[0].name,
            "is a log of a crash that says nothing of its training; give the script that was started, or the"
            " log from its first line",
        )


def _said(question: PasteQuestion, pasted_facts: PastedFacts) -> dict[str, Fact]:
    """What options say, in the place of what was read."""
    given = question.changed_fields()
    said = {
        fact: Fact(value, question.options[field].flag)
        for fact, field in _GIVEN.items()
        if (value := given.get(field)) is not None
    }
    for name in ("gpus", "nodes", "gpus_per_node"):
        if name in said:
            said[name] = Fact(_whole(said[name].value), said[name].source)
    facts = {**pasted_facts.facts, **said}
    if (
        "gpus" not in said
        and {"nodes", "gpus_per_node"} & said.keys()
        and {"nodes", "gpus_per_node"} <= facts.keys()
    ):
        said["gpus"] = Fact(
            facts["nodes"].value * facts["gpus_per_node"].value, "--nodes x --gpus-per-node"
        )
    return said


def _whole(value: object) -> int:
    from mofa_model import units

    return units.count(str(value), field="--gpus")


def question_for(
    question: PasteQuestion, pasted_facts: PastedFacts
) -> tuple[AdviceQuestion, list[str]]:
    """What `mofa advise` is asked, and what of the texts does not enter it."""
    facts, notes = pasted_facts.facts, list[str]()
    given = {
        name: value
        for name, value in question.changed_fields().items()
        if name in AdviceQuestion.options
    }
    gpus = int(facts["gpus"].value)
    asked: dict[str, Any] = {**given}
    if "model" in given:
        asked["model"] = _named(str(given["model"]), notes)
    else:
        asked["model"] = _model(pasted_facts, notes)
    asked["gpu"] = str(facts["gpu"].value)
    asked.pop("nodes", None)
    asked["gpus"] = str(gpus)
    each = facts.get("gpus_per_node")
    if each is not None and "gpus_per_node" not in given and gpus % int(each.value) == 0:
        asked["gpus_per_node"] = int(each.value)
    asked["sequence_length"] = str(facts["seq"].value)
    asked["global_batch_size"] = str(
        facts["global_batch"].value if "global_batch" in facts else _batch(pasted_facts, notes)
    )
    asked["global_batch_size"] = _in_tokens(asked, notes)
    if given.get("precision") == ("fp8",):
        asked["precision"] = (_recipe("fp8", pasted_facts),)
    elif "precision" in facts and "precision" not in given:
        asked["precision"] = (_recipe(str(facts["precision"].value), pasted_facts),)
    framework = trainer_called(pasted_facts.trainer)
    if framework and not {"framework", "stack", "launch"} & given.keys():
        asked["framework"] = framework
    asked |= _tuning(pasted_facts, given, notes)
    if not {"current", "planned"} & given.keys() and (layout := _layout(pasted_facts, gpus, notes)):
        asked["current" if pasted_facts.ran else "planned"] = layout
    if pasted_facts.trainer and not framework:
        notes.append(
            f"{pasted_facts.trainer} is not priced by itself: the answer is the best of all trainers"
        )
    made = AdviceQuestion(**asked)
    made = _runnable(made, given, notes)
    return made if {"current", "planned"} & given.keys() else _believed(made, notes), notes


def _in_tokens(asked: Mapping[str, Any], notes: list[str]) -> str:
    """The batch; a number that can be none of sequences is one of tokens."""
    from mofa_model import units
    from mofa_model.spec.training import DOUBTED

    text = str(asked["global_batch_size"])
    if not re.fullmatch(r"\d[\d.]*[kKmMgG]?", text):
        return text
    sequence = units.count(str(asked["sequence_length"]), field="--seq")
    if units.count(text, field="--global-batch") * sequence <= DOUBTED:
        return text
    notes.append(
        f"a global batch of {text} is read as tokens, as nobody trains with so many sequences"
    )
    return f"{text} tokens"


def _batch(pasted_facts: PastedFacts, notes: list[str]) -> int:
    """The batch of a step, from that of a rank."""
    facts = pasted_facts.facts

    def degree(name: str) -> int:
        return int(facts[name].value) if name in facts else 1

    gpus, taken = int(facts["gpus"].value), degree("tp") * degree("pp") * degree("cp")
    ranks = max(1, gpus // taken)
    total = int(facts["micro_batch"].value) * degree("accumulation") * ranks
    notes.append(
        f"global batch: micro-batch {facts['micro_batch'].value} x accumulation {degree('accumulation')} x {ranks} ranks = {total}"
    )
    return total


def _model(pasted_facts: PastedFacts, notes: list[str]) -> str:
    """The model: a file of it, its preset, its id, or its shape."""
    facts = pasted_facts.facts
    file = next((name for name, kind in pasted_facts.parts if kind is PastedKind.MODEL), None)
    if (
        file is not None
        and has_model({k: v for k, v in facts.items() if k != "model"})
        and file != "standard input"
    ):
        return file
    named = str(facts["model"].value) if "model" in facts else ""
    if named and (preset := preset_named(named)):
        return preset
    whole = {
        name: facts[name].value
        for name in ("layers", "hidden", "heads", "kv_heads", "ffn", "vocab", "experts", "top_k")
        if name in facts
    }
    if {"layers", "hidden", "heads"} <= whole.keys():
        if _gated(pasted_facts):
            whole["gated"] = "true"
        for name, otherwise in (("vocab", 50304),):
            if name not in whole:
                whole[name] = otherwise
                notes.append(f"vocabulary: nobody says it; {otherwise} is taken")
        if "experts" in whole and "top_k" not in whole:
            whole["top_k"] = 2
            notes.append("experts of a token: nobody says them; 2 are taken")
        return ",".join(f"{name}={value}" for name, value in whole.items())
    return _named(named, notes)


def _named(named: str, notes: list[str]) -> str:
    """A model that is named: its preset, a file, a shape or an id that is known, else a preset that is like it."""
    if preset := preset_named(named):
        return preset
    try:
        presets.model_named(named)
    except MofaError:
        near = alike(named)
        if not near and (sizes := sizes_of(named)):
            raise InputError(
                f"--model: {named!r} is several models; name one of {', '.join(sizes)}"
            ) from None
        if not near:
            raise
        said = "is a size alone" if is_size(named) else "is not known here"
        notes.append(f"{named} {said}; the shape of {near} is taken; else give --model config.json")
        return near
    return named


def _gated(pasted_facts: PastedFacts) -> bool:
    """Whether the feed-forward part has a gate, as those of Llama's family have."""
    for one in pasted_facts.settings:
        if one.key in {
            "swiglu",
            "use_swiglu",
            "glu_activation",
            "is_llama_config",
        } and one.value.lower() not in {"false", "0"}:
            return True
        if one.key in {
            "activation_type",
            "hidden_act",
            "activation_function",
            "ffn_type",
            "mlp_type",
            "glu_activation",
            "type",
            "model_type",
            "model_config_name",
        } and re.search(r"swiglu|silu|geglu|llama|mistral|mixtral|qwen", one.value.lower()):
            return True
    return (
        "ffn" in pasted_facts.facts
        and "hidden" in pasted_facts.facts
        and pasted_facts.facts["ffn"].value % pasted_facts.facts["hidden"].value != 0
    )


def _recipe(word: str, pasted_facts: PastedFacts) -> str:
    """A precision by its width, in the form that the trainer has."""
    if word != "fp8":
        trainer = trainer_called(pasted_facts.trainer)
        return framework(trainer).recipe(word) if trainer else word
    told = next(
        (
            one.value.lower()
            for one in pasted_facts.settings
            if one.key in {"fp8_recipe", "float8_recipe_name", "recipe_name"}
        ),
        "",
    )
    for form, name in (
        ("mxfp8", "mxfp8"),
        ("block", "fp8-block"),
        ("row", "fp8-rowwise"),
        ("tensorwise", "fp8-tensorwise"),
        ("current", "fp8-current"),
    ):
        if form in told:
            return name
    return "fp8-tensorwise" if pasted_facts.trainer == "torchtitan" else "fp8-delayed"


def _tuning(
    pasted_facts: PastedFacts, given: Mapping[str, Any], notes: list[str]
) -> dict[str, Any]:
    facts = pasted_facts.facts
    task = str(facts["task"].value) if "task" in facts else ""
    made: dict[str, Any] = {}
    if (task in {"lora", "qlora"} or "lora_rank" in facts) and "adapter_rank" not in given:
        made["adapter_rank"] = int(facts["lora_rank"].value) if "lora_rank" in facts else 16
        if "lora_rank" not in facts:
            notes.append("rank of adapters: nobody says it; 16 is taken")
        if task == "qlora":
            made["base"] = "nf4"
    if task == "dpo" and "task" not in given:
        made["task"] = "dpo"
    elif task and task not in {"pre-training", "full fine-tune", "lora", "qlora", "dpo", "sft"}:
        notes.append(
            f"{task}: its generation and its other models are not priced; the answer is for training the model"
        )
    return made


def _state_of(facts: Mapping[str, Fact]) -> str:
    """How ranks share their states, in the words of a layout; empty where nobody says it."""
    if "sharding" not in facts:
        return ""
    host = "-cpu" if "offload" in facts and "optimizer" in str(facts["offload"].value) else ""
    state = _STATES[str(facts["sharding"].value)]
    return f"{state}{host if state != 'replicated' else ''}"


def _layout(pasted_facts: PastedFacts, gpus: int, notes: list[str]) -> str:
    """The layout that the texts say: by the trainer's own words, else by the facts."""
    from mofa_model.launch import read as read_launch
    from mofa_model.strategy_text import parse_strategy

    facts = pasted_facts.facts
    layers = int(facts["layers"].value) if "layers" in facts else None
    if pasted_facts.command is not None:
        at, _ = program_at(pasted_facts.command)
        words = pasted_facts.command.texts
        if any("$" in word for word in words[:at]):  # what starts it says nothing of the layout
            words = words[at:]
        with suppress(InputError):
            reading: Reading = read_launch(words)
            open_ended = any("$" in word for word in words if word.startswith("-"))
            if not open_ended and reading.layout and {"tp", "pp", "mbs"} & reading.layout.keys():
                reading.strategy(gpus, layers=layers, field="current")
                return shlex.join(words)
    pairs = [
        f"{name}={facts[name].value}" for name in ("tp", "pp", "cp", "ep", "vpp") if name in facts
    ]
    if "micro_batch" in facts:
        pairs.append(f"mbs={facts['micro_batch'].value}")
    if state := _state_of(facts):
        pairs.append(f"optimizer={state}")
    if "recompute" in facts:
        pairs.append(f"recompute={facts['recompute'].value}")
    if (
        any(
            one.key == "sequence_parallel" and one.value.lower() in {"true", "1"}
            for one in pasted_facts.settings
        )
        and "tp" in facts
        and facts["tp"].value > 1
    ):
        pairs.append("sp=true")
    if not {"tp", "pp", "cp", "ep", "sharding"} & facts.keys():
        return ""
    if pasted_facts.trainer.startswith("megatron") and "vpp" not in facts:
        pairs.append(
            "pp-overlap=false"
        )  # Megatron overlaps the sends of stages where they are interleaved
    text = ",".join(pairs)
    try:
        parse_strategy(text, gpus, field="its layout")
    except InputError as error:
        notes.append(f"{error}; it is not compared")
        return ""
    return text


def _runnable(asked: AdviceQuestion, given: Mapping[str, Any], notes: list[str]) -> AdviceQuestion:
    """The question without what was read and its trainer, as it is known here, would refuse; what is given by
    options stays, for who gives it wants to know.
    """
    from mofa_model.answers.advise import request_of

    def refused(one: AdviceQuestion) -> str:
        with redirect_stderr(StringIO()):  # what is not priced is said with the answer, once
            try:
                request_of(one)
            except InputError as error:
                return str(error)
        return ""

    why, layout = refused(asked), "today's layout" if asked.current else "its layout"
    is_read = not {"current", "planned"} & given.keys()
    alone = replace(asked, current=None, planned=None) if is_read else asked
    open_trainer = {} if "framework" in given else {"framework": None}
    for without, said in (
        (alone, layout),
        (replace(asked, **open_trainer), str(asked.framework)),
        (replace(alone, **open_trainer), f"{asked.framework} and {layout}"),
    ):
        if why and without != asked and not refused(without):
            notes.append(f"{why}; the answer leaves {said} out")
            return without
    return asked


BELIEVED: Final = 1.5
"""Times the memory of a device that a layout may need by the model, and still be taken for one that runs. [1]"""


def _believed(asked: AdviceQuestion, notes: list[str]) -> AdviceQuestion:
    """The question without a layout that needs so much more memory than there is that something of it, as
    sharding or offloading, cannot have been told: one that runs, or one whose sharding nobody says.
    """
    from mofa_model.advice import memory_of_today
    from mofa_model.answers.advise import request_of

    said = asked.current or asked.planned
    if said is None:
        return asked
    with redirect_stderr(StringIO()):
        request = request_of(asked)
    memory = memory_of_today(request)
    if memory is None or memory[0] <= BELIEVED * memory[1]:
        return asked
    needs, limit = (f"{one / GIB:.0f} GiB" for one in memory)
    if asked.planned and _says_sharding(said):
        return asked
    may = "it cannot start, or " if asked.planned else ""
    notes.append(
        f"{said} alone needs {needs} of {limit}: {may}not all of its layout is told; the answer leaves it out"
    )
    return replace(asked, current=None, planned=None)


def _says_sharding(layout: str) -> bool:
    """Whether a layout, or a trainer's command, says how ranks share their states."""
    from mofa_model.launch import read as read_launch
    from mofa_model.strategy_text import pairs_of

    with suppress(InputError):
        return "optimizer" in pairs_of(layout)
    with suppress(InputError):
        return "sharding" in read_launch(shlex.split(layout)).layout
    return False
