"""What is read inside other texts: a notebook's cells, the code of a page, the arguments that a log
prints.

unwrapped(text, name)   the text as code or settings, each line where it stood; any other text as it
                        is
run_seen(text)          what the text shows of a run: that it has trained, or had no memory left
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from enum import Enum
from itertools import islice
from typing import Final

_FENCE: Final = re.compile(r"\s*(?:```|~~~)\s*([\w+-]*)")
_SHELLS: Final = frozenset({"bash", "sh", "shell", "console", "zsh", "shell-session", ""})
_PRINTED: Final = re.compile(r"(?:\S*\s)?\s*([A-Za-z]\w*) \.{3,} ?(.*?)\s*$")
"""A line of Megatron's arguments; a launcher may write a rank before it."""
_LEAST: Final = 5
"""Printed arguments that make a text a log. [1]"""
_TRAINER_LINES: Final[Mapping[str, re.Pattern[str]]] = {
    "per_device_train_batch_size": re.compile(r"Instantaneous batch size per device = ([\d,]+)"),
    "global_batch_size": re.compile(
        r"Total train batch size \(w\. parallel, distributed & accumulation\) = ([\d,]+)"
    ),
    "gradient_accumulation_steps": re.compile(r"Gradient Accumulation steps = ([\d,]+)"),
    "max_steps": re.compile(r"Total optimization steps = ([\d,]+)"),
}
"""What the Trainer of transformers prints before it begins. Source: transformers, trainer.py."""
_TITAN: Final[Mapping[str, Mapping[str, str]]] = {
    "Building device mesh": {
        "pp": "parallelism.pipeline_parallel_degree", "tp": "parallelism.tensor_parallel_degree",
        "cp": "parallelism.context_parallel_degree", "ep": "parallelism.expert_parallel_degree",
        "dp_replicate": "parallelism.data_parallel_replicate_degree",
        "dp_shard": "parallelism.data_parallel_shard_degree",
    },
    "Trainer is initialized": {
        "local batch size": "training.local_batch_size", "sequence length": "training.seq_len",
        "global batch size": "training.global_batch_size",
    },
}  # fmt: skip
"""What torchtitan prints before it begins: words of a line, and the settings that they are. Source:
torchtitan, train.py.
"""


def unwrapped(text: str, name: str) -> str:
    r"""The code or log inside a page, notebook or chat; its lines keep their numbers, but for
    notebooks.

    >>> unwrapped("Start it on 8 H100:\n```bash\n$ torchrun t.py\n```\n", "README.md")
    '# Start it on 8 H100:\n#\ntorchrun t.py\n#'
    >>> line = "  num_layers ......... 32\n"
    >>> unwrapped(5 * line, "x.log").splitlines()[0]
    'num_layers: 32'
    """
    code = _notebook(text)
    if code is None:
        code = _page(text, name)
    if code is None:
        code = _log(text)
    return text if code is None else code


_STEP: Final = re.compile(
    r"(?im)^.{0,120}\b(?:iteration|global_step|steps?)\b[\W_]{0,4}\d+.{0,300}?"
    r"(?:loss|elapsed|samples.?per.?sec|samples/sec|tokens.?per.?sec|tps|step_timing|throughput)"
    r"|^.{0,80}\{'(?:train_)?loss': '?[\d.]+.{0,200}'epoch':|^\W{0,3}\d+\|\d+\|Loss: \d"
)
"""A line that trainers write for a step: Megatron, NeMo, torchtitan, DeepSpeed, nanotron;
transformers; torchtune.
"""
_UNQUOTED: Final = r"(?im)^(?:(?!\b(?:echo|printf|grep)\b|#).)*?"
"""The line before such words: no comment, and no text that a script prints or searches for."""
_NO_ROOM: Final = re.compile(
    _UNQUOTED + r"(?:OutOfMemoryError: \S|RESOURCE_EXHAUSTED.{0,40}out of memory"
    r"|(?:^|: )\s*(?:CUDA|HIP|NPU|XPU|GPU)(?: error)?:? out of memory)"
)
"""What a run prints whose device had no memory left. Source: PyTorch, and XLA."""
_KILLED: Final = re.compile(
    _UNQUOTED + r"(?:\boom[ _-]?kill|out of memory: killed|\bState=OUT_OF_MEM)"
)
"""What Kubernetes, Slurm and Linux say where a node's main memory was full."""
_RUNNING: Final = re.compile(r"JobState=RUNNING\b.*?\bRunTime=(?:\d+-)?(\d+):\d\d:\d\d", re.DOTALL)
"""Hours that Slurm's job runs for; days stand before them. [h]"""


class RunState(Enum):
    """What became of a run; of several texts the last state in this list counts."""

    UNSEEN = 0
    TRAINED = 1
    HOST_FULL = 2
    """A node's main memory was full."""
    DEVICE_FULL = 3
    """The memory of a device was full."""


def run_seen(text: str) -> RunState:
    r"""What a text shows of a run: steps in a log, a job of Slurm that runs for an hour, or that
    memory was full.

    >>> steps = "step: 1 loss: 7.9\nstep: 2 loss: 7.8\n"
    >>> run_seen(steps).name, run_seen(f"{steps}torch.OutOfMemoryError: CUDA out of memory").name
    ('TRAINED', 'DEVICE_FULL')
    """
    plain = _fenced(re.sub(r"\x1b\[[\d;]*m", "", text))
    if _KILLED.search(plain):
        return RunState.HOST_FULL
    if _NO_ROOM.search(plain):
        return RunState.DEVICE_FULL
    if job := _RUNNING.search(plain):
        is_long = int(job[1]) > 0 or "-" in job[0].rpartition("=")[2]
        return RunState.TRAINED if is_long else RunState.UNSEEN
    steps = len(list(islice(_STEP.finditer(plain), 2)))
    return RunState.TRAINED if steps == 2 else RunState.UNSEEN


def _fenced(text: str) -> str:
    """The text between the fences of a page; a text without fences as it is."""
    lines = text.splitlines()
    marks = [at for at, line in enumerate(lines) if _FENCE.match(line)]
    if len(marks) < 2:
        return text
    blocks = zip(marks[::2], marks[1::2], strict=False)
    return "\n".join(line for start, end in blocks for line in lines[start + 1 : end])


def _notebook(text: str) -> str | None:
    """The code of a notebook: the lines for its shell where one starts a training, else its
    Python.
    """
    if '"cells"' not in text or text.lstrip()[:1] != "{":
        return None
    try:
        cells = json.loads(text)["cells"]
        sources = [cell["source"] for cell in cells if cell.get("cell_type") == "code"]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    lines = [
        line
        for source in sources
        for line in (source if isinstance(source, str) else "".join(map(str, source))).splitlines()
    ]
    shell = [line.lstrip()[1:] for line in lines if line.lstrip().startswith("!")]
    if re.search(r"torchrun|accelerate launch|deepspeed |tune run|\.py\b", "\n".join(shell)):
        return "\n".join(shell)
    magic = re.compile(r"\s*[%!]")
    return "\n".join("#" if magic.match(line) else line for line in lines)


def _page(text: str, name: str) -> str | None:
    """A page's blocks of code, all else as comments; those for a shell where it has some, else all
    of the language that comes first.
    """
    lines = text.splitlines()
    fences = [
        (number, fence[1].lower())
        for number, line in enumerate(lines)
        if (fence := _FENCE.match(line))
    ]
    if len(fences) < 2 or (
        not name.lower().endswith((".md", ".markdown", ".rst")) and fences[0][0] > 200
    ):
        return None
    blocks = [
        (start, end, language)
        for (start, language), (end, _) in zip(fences[::2], fences[1::2], strict=False)
    ]
    shells = [block for block in blocks if block[2] in _SHELLS]
    kept = shells or [block for block in blocks if block[2] == blocks[0][2]]
    inside = {number for start, end, _ in kept for number in range(start + 1, end)}
    marks = {number for number, _ in fences}
    return "\n".join(
        re.sub(r"^\s*\$ ", "", line)
        if number in inside
        else "#"
        if number in marks or not line.strip()
        else f"# {line}"
        for number, line in enumerate(lines)
    )


def _log(text: str) -> str | None:
    """The settings that a log prints, as YAML: Megatron's arguments, and what transformers says at
    the start.
    """
    made, count, more = list[str](), 0, list[str]()
    for line in text.splitlines():
        words = ""
        if several := _of_titan(line):
            more += several
            count += _LEAST
        if argument := _PRINTED.fullmatch(line):
            words = _setting(argument[1], argument[2])
            count += 1
        else:
            for name_of, form in _TRAINER_LINES.items():
                if value := form.search(line):
                    words = f"{name_of}: {value[1].replace(',', '')}"
                    count += _LEAST
        # A line that says several settings gives the others to lines after it.
        made.append(words or (more.pop(0) if more else "#"))
    return "\n".join([*made, *more]) if count >= _LEAST else None


def _of_titan(line: str) -> list[str]:
    """The settings in a line that torchtitan prints."""
    return [
        f"{setting}: {value[1]}"
        for begins, words in _TITAN.items()
        if begins in line
        for word, setting in words.items()
        if (value := re.search(rf"\b{word}[ =](\d+)", line))
    ]


def _setting(name: str, value: str) -> str:
    """A printed argument as a line of YAML."""
    if value in {"None", "[]", ""}:
        return ""
    if value in {"True", "False"}:
        return f"{name}: {value.lower()}"
    plain = re.fullmatch(r"[\w.+-]+", value)
    return f"{name}: {value if plain else json.dumps(value)}"
