"""Batch scripts of Slurm, written: one that people have is changed in place, or a new one is made.

    changed_batch(text, name, job)    ChangedScript: other nodes and GPUs, all else as it was
    new_batch(job, title)             a whole script that starts `launch.sh` on each node

Numbers are changed where the script gives them: in a directive, in an option of srun or of a
launcher, or in the variable that such an option names. The trainer's own options are not touched.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import Final, NamedTuple

from mofa_model.errors import BadValue, InputError
from mofa_model.identity.directives import devices_of_gres, directives, seconds_of
from mofa_model.identity.expansion import TracedText
from mofa_model.identity.sbatch import (
    BatchScript,
    is_srun,
    options_of_srun,
    read_script,
    without_variables,
)
from mofa_model.launch.edits import ChangedScript, Edit, ScriptChange, applied, word_edit
from mofa_model.records import dataclass
from mofa_model.slurm.hosts import hosts_of

_NODES: Final = frozenset({"nnodes", "num_machines", "num_nodes", "n_nodes"})
_EACH: Final = frozenset(
    {
        "nproc_per_node",
        "num_gpus",
        "gpus_per_node",
        "n_gpus_per_node",
        "num_gpus_per_node",
        "devices",
    }
)
_ALL: Final = frozenset({"num_processes", "world_size", "num_gpus_total"})
"""How launchers, trainers and variables call nodes, GPUs of a node, and GPUs of the job."""
_LAUNCHERS: Final = frozenset({"torchrun", "accelerate", "deepspeed", "tune", "colossalai"})
"""Programs that start a process for each GPU by themselves."""
_GPUS: Final = re.compile(
    r"(?P<before>(?:^|,)(?:gres[:/])?gpu(?::[A-Za-z][\w.-]*)?)(?P<count>[:=]\d+)?(?=[,(]|$)"
)
_ELASTIC: Final = re.compile(r"(?P<least>\d+):(?P<most>\d+)")
"""Nodes of an elastic torchrun."""
_MEETING: Final = frozenset({"rdzv_endpoint", "master_addr"})
"""What tells torchrun where its nodes meet."""
_LOCAL_MEETING: Final = re.compile(
    r"--(rdzv|master)[-_](endpoint|addr)=(localhost|127\.0\.0\.1)(:.*)?"
)
_AMBIGUOUS: Final[Mapping[str, int]] = {"nodes": 0, "gpus": 1, "ngpus": 1, "n_gpus": 1, "device": 1}
"""Options of unknown programs that may mean the job's nodes (0) or a node's GPUs (1)."""
_COUNT: Final = re.compile(r"(?P<before>(?:[A-Za-z][\w.-]*:)?)(?P<count>\d+)")
_SIZES: Final = frozenset({"nodes", "gres", "gpus-per-node"})
_FOLLOWS: Final = frozenset(
    {"gpus", "gpus-per-task", "ntasks", "ntasks-per-node", "ntasks-per-gpu"}
)
"""Options that follow from the layout, and may not be given."""


@dataclass(frozen=True, kw_only=True)
class SlurmJob:
    """What a batch script is to ask of Slurm."""

    nodes: int
    """[1]"""
    gpus_per_node: int
    """[1]"""
    sbatch_options: Mapping[str, str] = field(default_factory=dict)
    """Further options of sbatch by their long names, such as partition and time."""

    def __post_init__(self) -> None:
        """Refuse what contradicts the layout."""
        for name, value in (("nodes", self.nodes), ("gpus per node", self.gpus_per_node)):
            if value < 1:
                raise BadValue(name, value, "give one or more")
        for name, text in self.sbatch_options.items():
            right = _required(name, text, self.nodes, self.gpus_per_node)
            if right:
                raise BadValue(f"--sbatch: --{name}", text, right)


def asked_options(text: str) -> dict[str, str]:
    """Options of sbatch as they are typed, by their long names.

    >>> asked_options("-p h100 --time=1-0 --requeue")
    {'partition': 'h100', 'time': '1-0', 'requeue': ''}
    """
    if "\n" in text:
        raise BadValue("--sbatch", text, "give options of sbatch on one line")
    read = directives(f"#SBATCH {text}")
    if read.faults:
        raise BadValue("--sbatch", text, read.faults[0].message)
    return {directive.name: directive.value.text for directive in read.directive_list}


def _required(name: str, text: str, nodes: int, gpus: int) -> str:
    """What is wrong with an option that the layout decides; empty = nothing.

    >>> _required("gres", "gpu:h100:4", 2, 8)
    'the layout is for 8 GPUs of each node'
    """
    if name in {"gres", "gpus-per-node"}:
        gpus_and_type = devices_of_gres(text if name == "gres" else f"gpu:{text}")
        reason = f"the layout is for {gpus} GPUs of each node"
        return reason if gpus_and_type is not None and gpus_and_type[0] != gpus else ""
    if name == "nodes":
        return "" if text == str(nodes) else f"the layout is for {nodes} nodes"
    return "it follows from the layout; leave it out" if name in _FOLLOWS else ""


class _Size(NamedTuple):
    """The size of a job: nodes, and what each has."""

    nodes: int
    gpus: int
    tasks: int


def changed_batch(text: str, name: str, job: SlurmJob) -> ChangedScript:
    r"""A script that asks for a job's nodes and GPUs; doing it twice is doing it once.

    >>> text = "#!/bin/sh\n#SBATCH -N 2 --gres=gpu:h100:8 # two\nsrun torchrun --nnodes 2 t.py\n"
    >>> made = changed_batch(text, "j", SlurmJob(nodes=4, gpus_per_node=8))
    >>> made.text
    '#!/bin/sh\n#SBATCH -N 4 --gres=gpu:h100:8 # two\nsrun torchrun --nnodes 4 t.py\n'
    """
    script = read_script(text, name)
    if script.components > 1:
        return ChangedScript(text=text, left=("a heterogeneous job is left alone",))
    size, wanted = _sizes(script, job)
    head = list(_directive_edits(script, job, size, wanted))
    new = [edit for edit in head if edit.start == edit.end]
    changed = [edit for edit in head if edit.start < edit.end]
    edits = dict[int, Edit]()
    left = list[str]()
    for edit in (*changed, *_command_edits(script, size, wanted)):
        other = edits.setdefault(edit.start, edit)
        if other.text != edit.text:
            left.append(
                f"line {edit.line_number(text)}: {text[edit.start : edit.end]} says {other.name} "
                f"and {edit.name}, which differ now"
            )
    all_edits = sorted((*edits.values(), *new))
    made = applied(text, all_edits)
    changes = [_change(script, edit) for edit in all_edits]
    try:
        after = read_script(made, name)
    except InputError:  # pragma: no cover - numbers for numbers leave a script readable
        return ChangedScript(text=text, left=("its numbers could not be changed",))
    left += _contradictions(after, size, wanted)
    if wanted.nodes != size.nodes:
        left += dict.fromkeys(_launcher_gaps(after, size, wanted))
    if _layout(script) != _layout(after):
        left.append("a variable that was changed also says the layout: write that out as well")
    return ChangedScript(text=made, changes=tuple(changes), left=tuple(left))


def _sizes(script: BatchScript, job: SlurmJob) -> tuple[_Size, _Size]:
    """Nodes, GPUs and tasks that the script asks for now, and those that the job needs."""

    def number(name: str, otherwise: int) -> int:
        fact = script.facts.get(name)
        return int(fact.value) if fact is not None else otherwise

    nodes, gpus = number("nodes", 1), number("devices_per_node", 0)
    tasks = number("tasks_per_node", max(1, number("tasks", nodes) // nodes))
    if "nodes" not in script.facts and "tasks" in script.facts:
        tasks = 0  # on how many nodes they are, Slurm decides
    programs = [call.texts[0].rpartition("/")[2] for call in script.contents.program_calls]
    launched = bool(_LAUNCHERS & set(programs)) or any(
        "torch.distributed" in word for call in script.contents.program_calls for word in call.texts
    )
    by_slurm = any(program.startswith("python") for program in programs) and not launched
    is_each = tasks == gpus and (tasks > 1 or by_slurm)  # a process for each GPU, by Slurm
    tasks_then = job.gpus_per_node if is_each else tasks
    return _Size(nodes, gpus, tasks), _Size(job.nodes, job.gpus_per_node, tasks_then)


def _value(name: str, text: str, size: _Size, wanted: _Size) -> tuple[int, int, str] | None:
    """Which part of an option's value is replaced, and by what; None = it stays.

    >>> _value("gres", "gpu:h100:8,nvme:1", _Size(2, 8, 1), _Size(4, 4, 1))
    (8, 10, ':4')
    """
    plain = {
        "nodes": (size.nodes, wanted.nodes),
        "ntasks": (size.nodes * size.tasks, wanted.nodes * wanted.tasks),
        "ntasks-per-node": (size.tasks, wanted.tasks),
    }
    if name in plain:
        old, new = plain[name]
        digits = re.match(r"\d+", text)
        is_same = digits is not None and int(digits[0]) == old != new
        return (0, len(text), str(new)) if is_same else None
    if name == "gres":
        match = _GPUS.search(text)
        if match is None or size.gpus != int((match["count"] or ":1")[1:]):
            return None
        start, end = (match.end("before"), match.end())
        return (start, end, f":{wanted.gpus}") if size.gpus != wanted.gpus else None
    counted = {
        "gpus-per-node": (size.gpus, wanted.gpus),
        "gpus": (size.nodes * size.gpus, wanted.nodes * wanted.gpus),
        "gpus-per-task": (size.gpus // max(1, size.tasks), wanted.gpus // max(1, wanted.tasks)),
    }
    if name in counted and (match := _COUNT.fullmatch(text)):
        old, new = counted[name]
        if int(match["count"]) == old != new:
            return match.start("count"), match.end("count"), str(new)
    return None


def _directive_edits(
    script: BatchScript, job: SlurmJob, size: _Size, wanted: _Size
) -> Iterator[Edit]:
    last = {directive.name: directive for directive in script.directives}
    for directive in last.values():
        yield from _edits_of(directive.name, directive.value, size, wanted)
    end = _end_of_head(script)
    if not script.directives:
        return
    if wanted.nodes != size.nodes and not {"nodes", "ntasks"} & last.keys():
        yield Edit(end, end, f"#SBATCH --nodes={wanted.nodes}\n", "nodes")
    for name, text in job.sbatch_options.items():
        if name in _SIZES:
            continue
        there = last.get(name)
        if there is None:
            line = f"#SBATCH --{name}{'=' if text else ''}{_quoted(text)}\n"
            yield Edit(end, end, line, name)
        elif there.value.text != text and there.value.whole:
            places = there.value.at
            yield Edit(places[0], places[-1] + 1, text, name)


def _end_of_head(script: BatchScript) -> int:
    """Position for a new directive: behind the last one."""
    lines = script.text.split("\n")
    number = max((directive.line_number for directive in script.directives), default=1)
    return sum(len(line) + 1 for line in lines[:number])


def _edits_of(name: str, value: TracedText, size: _Size, wanted: _Size) -> Iterator[Edit]:
    """The change of one option's value, where it stands in one piece."""
    change = _value(name, value.text, size, wanted)
    if change is None or not value.whole:
        return
    begin, until, new = change
    start = value.at[begin] if begin < len(value.at) else value.at[-1] + 1
    yield Edit(start, start + until - begin, new, name)


def _command_edits(script: BatchScript, size: _Size, wanted: _Size) -> Iterator[Edit]:
    """Changes in options of srun and of launchers, and in variables."""
    calls = [part for call in script.walked.followed for part in (*call.outer_calls, call)]
    for call in calls:
        if is_srun(call):
            for option in options_of_srun(without_variables(call.traced_words)):
                yield from _edits_of(option.name, option.value, size, wanted)
        words = call.traced_words
        for at, word in enumerate(words):
            name, value = _named(word, words[at + 1] if at + 1 < len(words) else None)
            yield from _counted(name, value, size, wanted)
    for name, held in script.walked.shell_values.items():
        if isinstance(held, TracedText) and not name.startswith("SLURM_"):
            yield from _counted(name.lower(), held, size, wanted)


def _named(word: TracedText, following: TracedText | None) -> tuple[str, TracedText | None]:
    """Name and value of an option in a command, where `following` is the next word; no name where
    the word is no option.
    """
    written, equals, _ = word.text.partition("=")
    if not equals and not word.text.startswith("--"):
        return "", None
    name = written.lstrip("-+").rpartition(".")[2].replace("-", "_")
    return name, word.slice(len(written) + 1) if equals else following


def _numbers(size: _Size) -> Sequence[tuple[frozenset[str], int]]:
    """Names of options and variables, each with the number that it says of a size."""
    return (_NODES, size.nodes), (_EACH, size.gpus), (_ALL, size.nodes * size.gpus)


def _counted(name: str, value: TracedText | None, size: _Size, wanted: _Size) -> Iterator[Edit]:
    if value is None or not value.whole:
        return
    for (names, old), (_, new) in zip(_numbers(size), _numbers(wanted), strict=True):
        if name in names and value.text == str(old) != str(new):
            yield word_edit(value, str(new), name)
    elastic = _ELASTIC.fullmatch(value.text) if name in _NODES else None
    if elastic and int(elastic["most"]) != wanted.nodes:
        least = min(int(elastic["least"]), wanted.nodes)
        yield word_edit(value, f"{least}:{wanted.nodes}", name)


def _change(script: BatchScript, edit: Edit) -> ScriptChange:
    is_new = edit.start == edit.end and edit.text.startswith("#SBATCH")
    after = edit.text.strip().removeprefix("#SBATCH ") if is_new else edit.text.lstrip(":")
    before = script.text[edit.start : edit.end].lstrip(":")
    return ScriptChange(edit.line_number(script.text), edit.name, before, after)


def _contradictions(after: BatchScript, size: _Size, wanted: _Size) -> Iterator[str]:
    """Sentences on parts of the changed script that still contradict the job's size."""
    for fault in after.faults[:1]:
        yield f"line {fault.line_number}: {fault.message}"
    missing = {"nodes", "devices_per_node"} - after.facts.keys()
    on = f"start it on {wanted.nodes}"
    if len(missing) == 2:
        yield f"it says neither its nodes nor their GPUs: {on} nodes with {wanted.gpus} GPUs each"
    elif "devices_per_node" in missing:
        yield f"it does not say the GPUs of a node: start it where each has {wanted.gpus}"
    elif missing and wanted.nodes != size.nodes:
        yield f"it does not say its nodes: {on}"
    for name, option, right in (
        ("nodes", "nodes", wanted.nodes),
        ("devices_per_node", "gpus-per-node", wanted.gpus),
    ):
        fact = after.facts.get(name)
        if fact is not None and int(fact.value) != right:
            yield f"{fact.source} still says {fact.value}: start it with sbatch --{option}={right}"
    yield from _named_nodes(after, wanted)
    yield from dict.fromkeys(_other_counts(after, size, wanted))


def _named_nodes(after: BatchScript, wanted: _Size) -> Iterator[str]:
    """Lists of nodes that are longer than the job."""
    lists = [directive.value.text for directive in after.directives if directive.name == "nodelist"]
    lists += [step.options.get("nodelist", "") for step in after.script_steps]
    for listed in dict.fromkeys(lists):
        try:
            count = len(hosts_of(listed)) if "$" not in listed else 0
        except InputError:  # no list of hosts: Slurm says so
            continue
        if count > wanted.nodes:
            yield f"--nodelist={listed} names {count} nodes, and the job has {wanted.nodes}"


def _other_counts(after: BatchScript, size: _Size, wanted: _Size) -> Iterator[str]:
    """Numbers of nodes and GPUs that are computed, or stand where nothing tells what they mean."""
    for call in after.walked.followed:
        words = call.traced_words
        for at, word in enumerate(words):
            name, value = _named(word, words[at + 1] if at + 1 < len(words) else None)
            for names, right in _numbers(wanted):
                if (
                    name in names
                    and value is not None
                    and value.text.isdigit()
                    and int(value.text) != right
                ):
                    option = word.text.partition("=")[0]
                    yield f"{option} is {value.text}, and the layout needs {right}"
            old, new = [(size.nodes, wanted.nodes), (size.gpus, wanted.gpus)][
                _AMBIGUOUS.get(name, 0)
            ]
            if name in _AMBIGUOUS and value is not None and value.text == str(old) != str(new):
                yield f"--{name} is {old}: if the program means the job's, tell it {new}"
        bare = [word.text for word in without_variables(words)]
        started = [text for text in bare if text.endswith(".sh")][:1]
        if started and size.gpus != wanted.gpus > 0 and str(size.gpus) in bare:
            yield f"{started[0]} is told {size.gpus}: if these are GPUs, tell it {wanted.gpus}"
        listed = call.visible_devices
        count = listed.count(",") + 1
        if re.fullmatch(r"\d+(,\d+)*", listed) and count != wanted.gpus:
            yield (
                f"CUDA_VISIBLE_DEVICES={listed} shows {count} GPUs, "
                f"and the layout needs {wanted.gpus}"
            )


def _launcher_gaps(after: BatchScript, size: _Size, wanted: _Size) -> Iterator[str]:
    """Sentences on launchers that are not told how the changed number of nodes meets."""
    for call in after.walked.followed:
        words = [word.text for word in without_variables(call.traced_words)]
        name = next((launcher for launcher in _named_launchers(words)), "")
        if not name or wanted.nodes == 1:
            continue
        options = {word.lstrip("-").partition("=")[0].replace("-", "_") for word in words}
        is_local = any(_LOCAL_MEETING.fullmatch(word) for word in words)
        if name == "accelerate":
            by_file = "config_file" in options and "num_machines" not in options
            if by_file and "main_process_ip" not in options:
                total = wanted.nodes * wanted.gpus
                yield (
                    f"accelerate reads its machines in a file: say {wanted.nodes} there, "
                    f"and {total} processes"
                )
            elif size.nodes == 1 and "main_process_ip" not in options:
                yield (
                    f"accelerate is not told how {wanted.nodes} nodes meet: "
                    "give it --num_machines, --machine_rank and --main_process_ip"
                )
        elif is_local or (size.nodes == 1 and not options & _MEETING):
            yield (
                f"torchrun is not told how {wanted.nodes} nodes meet: "
                "give it --rdzv-backend c10d and --rdzv-endpoint with the first node's address"
            )
        by_srun = any(is_srun(outer_call) for outer_call in (*call.outer_calls, call))
        if size.nodes == 1 and after.directives and not by_srun:
            yield f"{name} is started on the first node alone: start it by srun"


def _named_launchers(words: Sequence[str]) -> Iterator[str]:
    """The launcher that a command starts, if it does."""
    for word in words:
        name = word.rpartition("/")[2]
        if name in {"torchrun", "accelerate"}:
            yield name
        elif name.startswith("torch.distributed."):
            yield "torchrun"


def _layout(script: BatchScript) -> Mapping[str, object]:
    return {} if script.launch_found is None else dict(script.launch_found.reading.layout)


# --- a new script -----------------------------------------------------------------------------

_SHARED: Final = frozenset(
    {"oversubscribe", "cpus-per-task", "cpus-per-gpu", "mem-per-gpu", "mem-per-cpu"}
)
"""Options of a job that does not take its nodes whole."""
_WARNED: Final = 300
"""How long before the time limit a job ends its turn. [s]"""
_ENDS_AFTER: Final[Mapping[str, str]] = {
    "megatron": "--exit-duration-in-mins {minutes}",
    "nemo": "train.exit_duration_in_mins={minutes}",
}
"""What makes a trainer save and end after so many minutes. Source: megatron-core 0.19.2."""
_SAVED: Final = """\
# Before the time limit the trainer saves and ends; then the job waits for its next turn.
{step}
if ((SECONDS >= {minutes} * 60)); then exec scontrol requeue "$SLURM_JOB_ID"; fi
"""
_CUT: Final = """\
# Slurm sends USR1 before the time limit.
# Then the job goes back to the queue and continues from its last checkpoint.
trap 'exec scontrol requeue "$SLURM_JOB_ID"' USR1
{step} &
wait $!
"""


def new_batch(job: SlurmJob, title: str, trainer: str = "", launch: str = "launch.sh") -> str:
    """A whole script that starts `launch` on each node, from the folder where sbatch is called.

    With a time limit it goes on in another turn after it.

    >>> print(new_batch(SlurmJob(nodes=2, gpus_per_node=8), "a model").splitlines()[4])
    #SBATCH --gpus-per-node=8
    """
    asked = dict(job.sbatch_options)
    image = asked.pop("container-image", "")
    mounts = asked.pop("container-mounts", "")
    turn = turn_seconds(job)
    minutes = (turn or 0) // 60
    ends = _ENDS_AFTER.get(trainer, "").format(minutes=minutes) if minutes else ""
    own = {
        "job-name": re.sub(r"[^\w.-]+", "-", title.split(" on ", maxsplit=1)[0]).strip("-")[:40]
        or "train",
        "nodes": str(job.nodes),
        "ntasks-per-node": "1",
    }
    if "gres" not in asked:
        own["gpus-per-node"] = str(job.gpus_per_node)
    if not _SHARED & asked.keys():
        own |= {"exclusive": "", "mem": "0"}
    if "no-requeue" not in asked:
        own |= {"requeue": "", "open-mode": "append"}
    if turn and not ends:
        own["signal"] = f"B:USR1@{_warned_seconds(job)}"
    own |= asked
    head = [
        f"#SBATCH --{name}{'=' if value else ''}{_quoted(value)}" for name, value in own.items()
    ]
    step = (
        f"srun --kill-on-bad-exit=1 --cpu-bind=none {_container(image, mounts)}"
        f'bash "$HERE"/{launch} {ends}{" " if ends else ""}"$@"'
    )
    lines = [
        "#!/bin/bash",
        *head,
        f"# {title}; {launch} starts a process for each GPU.",
        "# Call sbatch in the folder of this file; words behind it go to the trainer.",
        "set -euo pipefail",
        'HERE="$PWD"',
        'MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)',
        "MASTER_PORT=$((20000 + SLURM_JOB_ID % 20000))",
        "export HERE MASTER_ADDR MASTER_PORT",
    ]
    last = (_SAVED if ends else _CUT).format(step=step, minutes=minutes) if turn else f"{step}\n"
    return "\n".join([*lines, last])


def turn_seconds(job: SlurmJob) -> int | None:
    """How long a job works until it ends its turn, a little before its time limit; None = it has no
    limit, or another order what to do at it. [s]

    >>> turn_seconds(SlurmJob(nodes=1, gpus_per_node=8, sbatch_options={"time": "20"}))
    1080
    """
    limit = seconds_of(job.sbatch_options.get("time", ""))
    if not limit or {"signal", "no-requeue"} & job.sbatch_options.keys():
        return None
    return limit - _warned_seconds(job)


def _warned_seconds(job: SlurmJob) -> int:
    """Five minutes, or a tenth of a short limit. [s]"""
    return min(_WARNED, (seconds_of(job.sbatch_options.get("time", "")) or 0) // 10)


def saves_at_the_end(trainer: str) -> bool:
    """Whether a trainer can be told to save before its time limit."""
    return trainer in _ENDS_AFTER


def _container(image: str, mounts: str) -> str:
    """What starts the container of a step: pyxis by itself, others by their program."""
    folders = '"$HERE:$HERE' + (f",{mounts}" if mounts else "") + '"'
    if not image:
        return ""
    if image.startswith("enroot://"):
        name = image.removeprefix("enroot://")
        binds = " ".join(f"--mount {bind}" for bind in ('"$HERE:$HERE"', *_each(mounts)))
        return f"enroot start --rw {binds} {shlex.quote(name)} "
    if image.startswith("apptainer://") or image.endswith(".sif"):
        path = shlex.quote(image.removeprefix("apptainer://"))
        return f"apptainer exec --nv --bind {folders} {path} "
    return f"--container-image={shlex.quote(image)} --container-mounts={folders} "


def _each(mounts: str) -> list[str]:
    return [shlex.quote(mount) for mount in mounts.split(",") if mount]


def _quoted(value: str) -> str:
    """A value of a directive, in quotes where sbatch would split it."""
    return f'"{value}"' if re.search(r"[\s#']", value) else value
