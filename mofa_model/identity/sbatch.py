"""A batch script of Slurm: what it asks for, its steps, and what it trains.

    read_script(text, name)    BatchScript: directives, steps, facts with `file:line`; nothing is
                               run

A plain shell script is read as well: it has no directives. Directives end where sbatch stops to
look for them, at the first command. Job arrays and what only a running machine knows are left alone
and said in `notes`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, Final, NamedTuple

from mofa_model.errors import BadFile, InputError
from mofa_model.identity.classes import Clue, clues_of, clues_of_runtime, trainer_clue
from mofa_model.identity.commands import Contents, PlacedVariable, PlacedWord, ProgramCall, TextFile
from mofa_model.identity.devices import DeviceRequest, product_in
from mofa_model.identity.directives import (
    Directive,
    DirectiveFault,
    WrittenOption,
    devices_of_gres,
    directives,
    option_at,
    seconds_of,
)
from mofa_model.identity.expansion import TracedText, Value, traced
from mofa_model.identity.fact import Fact
from mofa_model.identity.facts import FactSheet, FactSources, read_facts
from mofa_model.identity.identity import started
from mofa_model.identity.launch_found import LaunchFound, facts_of_launch, launch_of
from mofa_model.identity.script import Call, ScriptWalk, walk
from mofa_model.identity.secret_words import is_secret
from mofa_model.identity.settings import Setting, settings_of
from mofa_model.records import dataclass

_SIGNAL: Final = re.compile(r"(?:[RB]+:)?(?P<signal>\w+)(?:@(?P<seconds>\d+))?")
_COUNT: Final = re.compile(r"(?:(?P<type>[A-Za-z][\w.-]*):)?(?P<count>\d+)")
_MEMORY: Final = re.compile(r"(\d+)([KMGT]?)B?", re.IGNORECASE)
_PREFIX: Final = {"": 2**20, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_PROCESSES: Final = ("nproc_per_node", "nproc", "num_gpus", "nproc-per-node")
_IMAGES: Final = frozenset({"apptainer", "singularity", "enroot", "podman", "docker", "shifter"})


class Step(NamedTuple):
    """A line that starts the program: `srun` with its options, or the program itself."""

    options: Mapping[str, str]
    """Options of srun, by their long names; empty without srun."""
    container: str
    """The container's image; empty = none."""
    call: ProgramCall
    """The program with its words, without srun and without the container's runtime."""
    where: str


@dataclass(frozen=True, kw_only=True)
class BatchScript:
    """A script as Slurm and a shell read it."""

    name: str
    text: str
    directives: tuple[Directive, ...]
    faults: tuple[DirectiveFault, ...]
    """Directives that sbatch refuses, or does not read."""
    script_steps: tuple[Step, ...]
    facts: Mapping[str, Fact]
    """What it asks for and what it trains, each with `file:line`."""
    walked: ScriptWalk
    """What it would run, every character of it with its place."""
    contents: Contents
    """The same, in the form that readers of commands take."""
    settings: tuple[Setting, ...]
    """Every option, variable and key of a file, those that count first."""
    launch_found: LaunchFound | None
    """What a known trainer is told; None where there is none."""
    device_request: DeviceRequest
    disagree: tuple[str, ...] = ()
    """Contradictions, each in one sentence."""
    notes: tuple[str, ...] = ()
    """What was left alone, each in one sentence."""
    components: int = 1
    """Parts of a heterogeneous job. [1]"""
    clues: tuple[Clue, ...] = field(default=())
    """What tells of the trainer and the task, the weightiest first."""


def read_script(text: str, name: str, files: Mapping[str, str] | None = None) -> BatchScript:
    r"""Read a batch script, or a shell script; `files` are others that it names, by their names.

    >>> script = read_script("#!/bin/sh\n#SBATCH -N2 --gres=gpu:8\nsrun x\n", "j.sbatch")
    >>> script.facts["devices"]
    Fact(value=16, source='j.sbatch:2')
    """
    if "\r\n" in text:
        raise BadFile(name, "its lines end as on DOS, which sbatch refuses; run dos2unix on it")
    options, faults = directives(text)
    asked = _SlurmRequest(options, name)
    walked = _walked(text, name, asked)
    contents = _contents(walked, text, name, files or {})
    steps = tuple(_steps(walked, text, name))
    settings = settings_of(contents)
    facts = dict(asked.facts(steps, settings))
    for step in steps:
        if step.container:
            facts.setdefault("container", Fact(step.container, step.where))
    request = _request(facts)
    evidence = clues_of(contents, [])
    if "container" in facts and not any(clue.trainer for clue in evidence):
        image = facts["container"]
        evidence = [*evidence, *clues_of_runtime(str(image.value), image.source)]
    sheet = _sheet(contents, settings, evidence, request)
    launch = launch_of(contents)
    trained = dict(sheet.facts)
    if launch is not None:
        trained = {**facts_of_launch(launch, trained), **trained}
    for fact in ("nodes", "devices", "device_kind"):
        trained.pop(fact, None)
    faults = _outside_documents(faults, walked, text)
    notes = [f"{name}:{fault.line_number}: {fault.message}" for fault in faults]
    if array := next((option for option in options if option.name == "array"), None):
        notes.append(
            f"{name}:{array.line_number}: a job array, {array.value.text}: "
            "each of its tasks is a job like this one; the array is left alone"
        )
    return BatchScript(
        name=name,
        text=text,
        directives=options,
        faults=faults,
        script_steps=steps,
        facts={**trained, **facts},
        walked=walked,
        contents=contents,
        settings=tuple(settings),
        launch_found=launch,
        device_request=request,
        disagree=sheet.disagree,
        notes=(*notes, *(f"{name} {note}" for note in walked.notes)),
        components=1 + max((option.component for option in options), default=0),
        clues=tuple(evidence),
    )


def _outside_documents(
    faults: Sequence[DirectiveFault], walked: ScriptWalk, text: str
) -> tuple[DirectiveFault, ...]:
    """The faults without lines of here-documents: these are of another script."""

    def line_number(place: int) -> int:
        return 1 + text.count("\n", 0, place)

    inner = [
        range(line_number(places[0]), line_number(places[-1]) + 1)
        for _, document in walked.documents
        if (places := [place for place in document.at if place >= 0])
    ]
    return tuple(fault for fault in faults if not any(fault.line_number in rows for rows in inner))


class _SlurmRequest:
    """What the directives ask for."""

    def __init__(self, directives: Sequence[Directive], name: str) -> None:
        self._name = name
        self._all = directives
        self._by = {
            directive.name: directive for directive in directives if directive.component == 0
        }
        self._components = {directive.component for directive in directives}

    def _fact(self, value: Any, directive: Directive) -> Fact:
        return Fact(value, f"{self._name}:{directive.line_number}")

    def _number(self, name: str) -> Fact | None:
        """An option that is a number, 8 or 4k; of a range the least."""
        directive = self._by.get(name)
        if directive is None:
            return None
        count = re.fullmatch(r"(\d+)([kKmM]?)(?:-\d+[kKmM]?)?", directive.value.text)
        if count is None:
            return None
        times = {"": 1, "k": 1024, "m": 1048576}[count[2].lower()]
        return self._fact(int(count[1]) * times, directive)

    def nodes(self) -> Fact | None:
        """Nodes that are asked for, of all components; by tasks where nothing else says it."""
        if len(self._components) > 1:
            counts = [
                (directive, int(directive.value.text))
                for directive in self._all
                if directive.name == "nodes" and directive.value.text.isdigit()
            ]
            if len(counts) == len(self._components):
                return self._fact(sum(count for _, count in counts), counts[0][0])
        if (nodes := self._number("nodes")) is not None:
            return nodes
        tasks, each = self._number("ntasks"), self._number("ntasks-per-node")
        if tasks is not None and each is not None and each.value:
            return Fact(-(-tasks.value // each.value), tasks.source)
        return None

    def _gpus_of(self, name: str) -> tuple[int, str] | None:
        """GPUs and their type by an option: `8`, `a100:8`, or a list of generic resources."""
        if name not in self._by:
            return None
        text = self._by[name].value.text
        if name != "gres" and (match := _COUNT.fullmatch(text)):
            return int(match["count"]), match["type"] or ""
        return devices_of_gres(text) if name in {"gres", "gpus-per-node"} else None

    def per_node(self) -> tuple[Fact | None, str]:
        """GPUs of a node, and their type where it is said."""
        gpus, kind = None, ""
        for name in ("gres", "gpus-per-node"):
            if asked := self._gpus_of(name):
                gpus, kind = gpus or self._fact(asked[0], self._by[name]), kind or asked[1]
        if gpus is None and (asked := self._gpus_of("gpus-per-task")):
            kind, tasks = kind or asked[1], self._number("ntasks-per-node")
            nodes, all_tasks = self.nodes(), self._number("ntasks")
            if tasks is None and nodes is not None and all_tasks is not None and nodes.value:
                tasks = Fact(-(-all_tasks.value // nodes.value), all_tasks.source)
            if tasks is not None:
                gpus = self._fact(asked[0] * tasks.value, self._by["gpus-per-task"])
        if asked := self._gpus_of("gpus"):
            kind, nodes = kind or asked[1], self.nodes()
            if gpus is None and nodes is not None and asked[0] % nodes.value == 0:
                gpus = self._fact(asked[0] // nodes.value, self._by["gpus"])
        return gpus, kind

    def environment(self) -> dict[str, Value]:
        """Variables that Slurm sets by what is asked for."""
        made: dict[str, Value] = {}

        def put(names: tuple[str, ...], fact: Fact | None, *by: str) -> None:
            directive = next((self._by[name] for name in by if name in self._by), None)
            if fact is None:
                return
            same = directive is not None and directive.value.text == str(fact.value)
            for name in names:
                made[name] = (
                    directive.value if same and directive is not None else traced(str(fact.value))
                )

        nodes = self.nodes()
        gpus, _ = self.per_node()
        each, tasks = self._number("ntasks-per-node"), self._number("ntasks")
        if tasks is None and nodes is not None:
            tasks = Fact(nodes.value * (each.value if each else 1), nodes.source)
        put(("SLURM_NNODES", "SLURM_JOB_NUM_NODES"), nodes, "nodes")
        if "gpus-per-node" in self._by:
            put(("SLURM_GPUS_PER_NODE",), gpus, "gpus-per-node")
        put(("SLURM_GPUS_ON_NODE",), gpus, "gpus-per-node", "gres")
        put(("SLURM_NTASKS_PER_NODE",), each, "ntasks-per-node")
        put(("SLURM_NTASKS", "SLURM_NPROCS"), tasks, "ntasks")
        put(("SLURM_CPUS_PER_TASK",), self._number("cpus-per-task"), "cpus-per-task")
        for variable, option in (
            ("SLURM_JOB_NAME", "job-name"),
            ("SLURM_JOB_PARTITION", "partition"),
        ):
            if option in self._by:
                made[variable] = self._by[option].value
        return made

    def answer(self, words: str) -> str | None:
        """What a substitution would print, as far as the directives tell."""
        if re.search(r"scontrol\s+show\s+hostnames?\b.*\|\s*wc\s+-l", words):
            nodes = self.nodes()
            return None if nodes is None else str(nodes.value)
        if re.search(r"nvidia-smi\b.*\|.*\bwc\s+-l|nvidia-smi\b.*-L.*\|.*grep\s+-c", words):
            gpus, _ = self.per_node()
            return None if gpus is None else str(gpus.value)
        return None

    def facts(self, steps: Sequence[Step], settings: Sequence[Setting]) -> dict[str, Fact]:
        """What is asked for, by the names of facts."""
        facts: dict[str, Fact] = {}
        for name in ("partition", "constraint", "qos", "array"):
            if (directive := self._by.get(name)) and directive.value.text:
                facts[name] = self._fact(directive.value.text, directive)
        for name, option in (
            ("tasks", "ntasks"),
            ("tasks_per_node", "ntasks-per-node"),
            ("cpus_per_task", "cpus-per-task"),
        ):
            if fact := self._number(option):
                facts[name] = fact
        texts = {name: directive.value.text for name, directive in self._by.items()}
        if (limit := seconds_of(texts.get("time", ""))) is not None:
            facts["time_limit_seconds"] = self._fact(limit, self._by["time"])
        size = _MEMORY.fullmatch(texts.get("mem", ""))
        if size and int(size[1]):  # 0 = all of the node
            whole = int(size[1]) * _PREFIX[size[2].upper()]
            facts["memory_bytes"] = self._fact(whole, self._by["mem"])
        if signal := _SIGNAL.fullmatch(texts.get("signal", "")):
            name = signal["signal"].removeprefix("SIG")
            facts["signal"] = self._fact(name, self._by["signal"])
            facts["signal_seconds"] = self._fact(int(signal["seconds"] or 60), self._by["signal"])
        requeue = [
            directive for directive in self._all if directive.name in {"requeue", "no-requeue"}
        ]
        if requeue:
            facts["requeue"] = self._fact(requeue[-1].name == "requeue", requeue[-1])
        facts |= self._devices(steps, settings)
        return facts

    def _devices(self, steps: Sequence[Step], settings: Sequence[Setting]) -> dict[str, Fact]:
        facts: dict[str, Fact] = {}
        nodes = self.nodes() or _of_steps(steps) or _number_of(settings, ("nnodes", "num_machines"))
        gpus, kind = self.per_node()
        if gpus is None:
            gpus = _number_of(settings, ("nproc_per_node", "nproc", "num_gpus_per_node"))
        if gpus is None and (each := self._number("ntasks-per-node")) and each.value > 1:
            gpus = each
        if gpus is None:
            gpus = _number_of(settings, ("gpus_per_node", "num_gpus", "devices"))
        if nodes is not None and not (0 < nodes.value <= 100_000):
            nodes = None
        if nodes is not None:
            facts["nodes"] = nodes
        if gpus is not None:
            facts["devices_per_node"] = gpus
        tasks = self._number("ntasks")
        if asked := self._gpus_of("gpus"):
            facts["devices"] = self._fact(asked[0], self._by["gpus"])
        elif tasks is not None and (asked := self._gpus_of("gpus-per-task")):
            facts["devices"] = self._fact(asked[0] * tasks.value, self._by["gpus-per-task"])
        elif nodes is not None and gpus is not None:
            facts["devices"] = Fact(nodes.value * gpus.value, gpus.source)
        if product := self._product(kind):
            facts["device_kind"] = product
        return facts

    def _product(self, kind: str) -> Fact | None:
        """The device by the type of GPUs, else by what the nodes are called."""
        typed = [name for name in ("gres", "gpus-per-node", "gpus") if name in self._by][:1]
        for name in (*typed, "constraint", "partition", "nodelist"):
            directive = self._by.get(name)
            if directive is None:
                continue
            if product := product_in(kind if name in typed else directive.value.text):
                vendor = "amd" if product.startswith("mi") else "nvidia"
                return self._fact(f"{vendor}-{product}", directive)
        return None


def _of_steps(steps: Sequence[Step]) -> Fact | None:
    """Nodes of the largest step, where only srun says them."""
    having = [
        Fact(int(step.options["nodes"]), step.where)
        for step in steps
        if step.options.get("nodes", "").isdigit()
    ]
    return max(having, key=lambda fact: int(fact.value), default=None)


def _number_of(settings: Sequence[Setting], keys: Sequence[str]) -> Fact | None:
    """A whole number among settings, by the names of an option or variable; None without one."""
    for key in keys:
        for setting in settings:
            if setting.path == key and setting.value.isdigit() and int(setting.value) > 0:
                return Fact(int(setting.value), setting.where)
    return None


def followed(text: str, name: str = "script") -> ScriptWalk:
    """What a batch script would run, in the environment that Slurm gives it; nothing is run."""
    return _walked(text, name, _SlurmRequest(directives(text)[0], name))


def _walked(text: str, name: str, asked: _SlurmRequest) -> ScriptWalk:
    try:
        return walk(text, asked.environment(), asked.answer)
    except InputError as error:
        raise BadFile(name, str(error).removeprefix("launch command: ")) from error


def _request(facts: Mapping[str, Fact]) -> DeviceRequest:
    total, kind = facts.get("devices"), facts.get("device_kind")
    each, nodes = facts.get("devices_per_node"), facts.get("nodes")
    first = total or each
    if first is None and kind is None:
        return DeviceRequest(unread=True)
    product = str(kind.value) if kind else "nvidia"
    return DeviceRequest(
        vendor=product.partition("-")[0],
        product=product,
        named=first.source if first else "",
        label=kind.source if kind else "",
        each=each.value if each else None,
        total=total.value if total else None,
        pod_count=nodes.value if nodes else None,
        counted=nodes.source if nodes else "",
    )


# --- commands ---------------------------------------------------------------------------------


def _contents(walked: ScriptWalk, text: str, name: str, files: Mapping[str, str]) -> Contents:
    """What the script runs and sets, as readers of commands take it."""

    def where(place: int) -> str:
        return f"{name}:{1 + text.count(chr(10), 0, place)}" if place >= 0 else name

    contents = Contents()
    for call in walked.followed:
        words, place = list[PlacedWord](), call.place
        for word in call.traced_words:
            place = word.place if word.place >= 0 else place
            words.append(PlacedWord(word.text, where(place)))
        if words:
            words = _bare(words)
            contents.program_calls.append(ProgramCall(words=tuple(words), where=words[0].where))
            contents.files += [
                TextFile(path, files[path], path)
                for path in dict.fromkeys(word.text.rpartition("/")[2] for word in words)
                if path in files
            ]
    for key, value in walked.shell_values.items():
        if isinstance(value, list) or key.startswith("SLURM_") or is_secret(key, value.text):
            continue
        contents.variables[key] = PlacedVariable(key, value.text, where(value.place))
    for path, document in walked.documents:
        first = 1 + text.count("\n", 0, max(0, document.place))
        contents.files.append(TextFile(path or "python -c", document.text, name, first))
    contents.notes += walked.notes
    return contents


def _bare(words: list[PlacedWord]) -> list[PlacedWord]:
    """The program's own words: without variables, srun and the container's runtime before it."""
    at = 0
    while at < len(words) and re.fullmatch(r"[A-Za-z_]\w*=.*", words[at].text, re.DOTALL):
        at += 1
    at = min(at, len(words) - 1)
    texts = [word.text for word in words]
    if texts[at].rpartition("/")[2] == "srun":
        at = _after_options([traced(text) for text in texts], at + 1)
    if at < len(words) and texts[at].rpartition("/")[2] in _IMAGES:
        at = _after_image(texts, at)[0]
    return words[at:] or words


def _after_options(words: Sequence[TracedText], at: int) -> int:
    """Where srun's options end, and its program begins."""
    while at < len(words) and words[at].text != "--":
        options, following = option_at(words, at)
        if not options:
            return at
        at = following
    return at + (at < len(words))


def options_of_srun(traced_words: Sequence[TracedText]) -> Iterator[WrittenOption]:
    """The options between `srun` and its program."""
    at, end = 1, _after_options(traced_words, 1)
    while at < end and traced_words[at].text != "--":
        options, at = option_at(traced_words, at)
        yield from options


def _after_image(texts: Sequence[str], at: int) -> tuple[int, str]:
    """Where a container's runtime hands over, and which image it starts."""
    runtime = texts[at].rpartition("/")[2]
    valued = re.compile(
        r"-[BHWmevw]|--(bind|env|mount|home|pwd|overlay|env-file|volume|workdir|rc)"
    )
    at += 1
    if at < len(texts) and texts[at] in {"exec", "run", "start", "shell"}:
        at += 1
    while at < len(texts) and texts[at].startswith("-"):
        at += 2 if valued.fullmatch(texts[at]) else 1
    if at >= len(texts):
        return at, runtime
    return at + 1, texts[at]


def _steps(walked: ScriptWalk, text: str, name: str) -> Iterator[Step]:
    for call in walked.followed:
        srun = next(filter(is_srun, (*call.outer_calls, call)), None)
        traced_words = without_variables((srun or call).traced_words)
        rest, options = [word.text for word in traced_words], dict[str, str]()
        if srun is not None:
            rest = rest[_after_options(traced_words, 1) :]
            options = {option.name: option.value.text for option in options_of_srun(traced_words)}
        container = options.get("container-image") or options.get("container") or ""
        if not container and rest and rest[0].rpartition("/")[2] in _IMAGES:
            container = _after_image(rest, 0)[1]
        where = f"{name}:{1 + text.count(chr(10), 0, max(0, call.place))}"
        words = [PlacedWord(word.text, where) for word in call.traced_words]
        bare = _bare(words) if words else words
        yield Step(options, container, ProgramCall(words=tuple(bare), where=where), where)


def without_variables(traced_words: Sequence[TracedText]) -> Sequence[TracedText]:
    """The words of a command without the variables that are set for it alone."""
    at = 0
    while at < len(traced_words) and re.match(r"[A-Za-z_]\w*=", traced_words[at].text):
        at += 1
    return traced_words[at:]


def is_srun(call: Call) -> bool:
    """Whether a command is a step of Slurm."""
    words = without_variables(call.traced_words)
    return bool(words) and words[0].text.rpartition("/")[2] == "srun"


def _sheet(
    contents: Contents,
    settings: Sequence[Setting],
    evidence: Sequence[Clue],
    request: DeviceRequest,
) -> FactSheet:
    """The facts of a batch script, read from its settings, commands and the devices that it
    asks for.
    """
    by = trainer_clue(evidence)
    return read_facts(
        FactSources(
            settings=settings,
            others=[],
            words=[pair for call in contents.program_calls for pair in started(call)],
            fetched=[],
            device_request=request,
            trainer=by.trainer if by else "",
            torch=True,
            image=(by.found, by.where) if by else ("", ""),
            elsewhere=request.unread,
        )
    )
