"""Machines as tools print them: `nvidia-smi`, `sinfo`, `scontrol show`, and what a script asks
Slurm for.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from itertools import dropwhile
from operator import itemgetter
from typing import Final

from mofa_model.identity.commands import ProgramCall
from mofa_model.identity.directives import devices_of_gres
from mofa_model.identity.expansion import traced
from mofa_model.identity.fact import Fact
from mofa_model.identity.sbatch import BatchScript, options_of_srun

_PRODUCT: Final = (
    r"(?:GB200|GB300|GH200|B200|B300|H100|H200|H800|H20|A100|A800|V100|MI\d{3}X?|L40S?|L4|A10G?"
    r"|A40|A30|T4|RTX[ -]?\w+|TPU[ -]?v\d\w?)"
)
_DEVICE_IN_WORDS: Final = re.compile(
    r"(?<![\w.])(?P<count>\d+)?\s?(?:[xX×]\s?)?(?:NVIDIA |AMD )?"
    rf"(?P<gpu>{_PRODUCT})(?:s\b|(?![\w]))"
    r"(?:[ -]?(?:SXM\d?|PCIe|HBM\d?e?))*(?:[ -]?\(?(?P<memory>\d+) ?G[iB]?B?\)?)?",
    re.IGNORECASE,
)
"""A device as people write it in words: `8xA100`, `8 x H100s (80GB)`."""


def _whole(text: str) -> int | None:
    digits = re.match(r"\s*(\d+)", text)
    return int(digits[1]) if digits else None


def asked_of_slurm(script: BatchScript) -> dict[str, Fact]:
    """Nodes, GPUs and the kind of GPU that a batch script's directives ask for."""
    return _asked(
        {
            directive.name: Fact(directive.value.text, f"{script.name}:{directive.line_number}")
            for directive in script.directives
            if not directive.component
        }
    )


def asked_of_srun(call: ProgramCall) -> dict[str, Fact]:
    """Nodes, GPUs and tasks that the options of an `srun` ask for; its command is in no
    batch script.
    """
    words = list(dropwhile(lambda text: text.rpartition("/")[2] != "srun", call.texts))
    options = options_of_srun([traced(word) for word in words])
    return _asked({option.name: Fact(option.value.text, call.where) for option in options})


def _asked(options: Mapping[str, Fact]) -> dict[str, Fact]:
    facts: dict[str, Fact] = {}

    def add(name: str, value: object, option: str) -> None:
        if value:
            facts[name] = Fact(value, options[option].source)

    for name, option in (
        ("nodes", "nodes"),
        ("tasks_per_node", "ntasks-per-node"),
        ("tasks", "ntasks"),
    ):
        if option in options:
            add(name, _whole(options[option].value), option)
    for name, option in (
        ("gpus_per_node", "gres"),
        ("gpus_per_node", "gpus-per-node"),
        ("gpus", "gpus"),
    ):
        devices = devices_of_gres(_as_gres(options[option].value)) if option in options else None
        if devices is not None:
            add(name, devices[0], option)
            add("gpu", devices[1].lower(), option)
    if "constraint" in options and "gpu" not in facts:
        device = _DEVICE_IN_WORDS.search(re.sub("[_&]", " ", options["constraint"].value))
        add("gpu", _device(device) if device else "", "constraint")
    if "gpus-per-task" in options and "gpus_per_node" not in facts and "tasks_per_node" in facts:
        gpus_per_task = _whole(options["gpus-per-task"].value) or 0
        add("gpus_per_node", gpus_per_task * facts["tasks_per_node"].value, "gpus-per-task")
    _add_counts(facts)
    return facts


def _as_gres(text: str) -> str:
    """A number of GPUs as Slurm writes generic resources: `8`, `a100:8`."""
    return text if text.startswith(("gpu", "gres")) or "," in text else f"gpu:{text}"


def _add_counts(facts: dict[str, Fact]) -> None:
    """Add the nodes that follow from tasks, and the devices of a node that follow from the
    job's.
    """
    tasks_per_node, tasks = facts.get("tasks_per_node"), facts.get("tasks")
    if "nodes" not in facts and tasks_per_node and tasks and tasks.value > tasks_per_node.value:
        nodes, rest = divmod(tasks.value, tasks_per_node.value)
        if not rest:
            facts["nodes"] = Fact(nodes, tasks.source)
    if {"gpus", "nodes"} <= facts.keys() and "gpus_per_node" not in facts:
        each_node, rest = divmod(facts["gpus"].value, facts["nodes"].value)
        if not rest:
            facts["gpus_per_node"] = Fact(each_node, facts["gpus"].source)


def _device(match: re.Match[str]) -> str:
    memory = match["memory"]
    return f"{match['gpu'].lower().replace(' ', '-')}{f'-{memory}gb' if memory else ''}"


def in_comments(text: str, name: str) -> dict[str, Fact]:
    """Counts of nodes and devices in comments; also the device, where all comments name the same
    one.
    """
    facts: dict[str, Fact] = {}
    devices: dict[str, Fact] = {}
    for number, line in enumerate(text.splitlines(), 1):
        comment = re.search(r"(?:^|\s)#(?!SBATCH|!)(.*)", line)
        if comment is None:
            continue
        where = f"{name}:{number}, a comment"
        for device in _DEVICE_IN_WORDS.finditer(comment[1]):
            if device["count"]:
                devices.setdefault(device["gpu"].lower(), Fact(_device(device), where))
        for pattern, fact in _IN_COMMENTS:
            if count := re.search(pattern, comment[1]):
                facts.setdefault(fact, Fact(int(count[1]), where))
        pair = re.search(r"(\d+) nodes?\W+(?:of|x|with|×)\W*(\d+)", comment[1])
        if pair and "nodes" not in facts:
            facts["nodes"] = Fact(int(pair[1]), where)
            facts["gpus_per_node"] = Fact(int(pair[2]), where)
        _add_comment_counts(facts, comment[1], where)
    if len(devices) == 1:
        facts["gpu"] = next(iter(devices.values()))
    return facts


def _add_comment_counts(facts: dict[str, Fact], comment: str, where: str) -> None:
    """Add what a comment counts: devices of a node (`8xA100 machine`, `(8 H100/node)`), nodes (`16
    H100 nodes`), devices (`128 H100 GPUs`).
    """
    device = rf"(?<![\w.])(\d+)\s?[xX×]?\s?(?:NVIDIA )?{_PRODUCT}s?\b"
    whole = rf"(?<![\w.])(\d+) {_PRODUCT} GPUs\b(?!\W*(?:per|a|each|in|of)\b|/)"
    if job := re.search(whole, comment):
        facts.setdefault("gpus", Fact(int(job[1]), where))
    if nodes := re.search(rf"(?<![\w.])(\d+) {_PRODUCT} nodes", comment):
        facts.setdefault("nodes", Fact(int(nodes[1]), where))
    for form in (rf"{device}(?:\W*\d+GB)? (?:machine|node)\b", rf"\((\d+) {_PRODUCT}/node\)"):
        if node := re.search(form, comment):
            facts.setdefault("gpus_per_node", Fact(int(node[1]), where))


_IN_COMMENTS: Final = (
    (r"--nproc[_-]per[_-]node[= ](\d+)", "gpus_per_node"),
    (r"--nnodes[= ](\d+)", "nodes"),
    (r"--num_processes[= ](\d+)", "gpus"),
    (r"= (\d+) (?:GPUs|ranks|devices)", "gpus"),
    (r"=> (\d+) nodes", "nodes"),
)


def of_nvidia_smi(text: str, name: str) -> dict[str, Fact]:
    """The devices of one machine."""
    devices: list[tuple[str, int]] = []
    memory = 0
    for number, line in enumerate(text.splitlines(), 1):
        listed = re.match(r"\s*GPU \d+: (.+?)\s*(?:\(UUID|$)", line)
        row = re.match(
            r"\|\s+\d+\s+((?:NVIDIA|Tesla|Quadro|GeForce|A100|H100)[\w .()/-]*?)\s{2,}", line
        )
        csv = re.match(r"\s*(?:\d+, )?((?:NVIDIA|Tesla)[\w .()/-]+?)(?:, (\d+) MiB.*)?\s*$", line)
        if device := listed or row or csv:
            devices.append((device[1], number))
        if not memory and (size := re.search(r"/\s*(\d+)MiB", line)):
            memory = int(size[1])
    facts: dict[str, Fact] = {}
    if devices:
        product, line_number = devices[0]
        size = re.search(r"(\d+) ?GB", product)
        plain = re.sub(r"^(NVIDIA|Tesla|GeForce|Quadro)\s+", "", product.strip())
        plain = re.sub(r"[ .]+$", "", re.sub(r"\s+", "-", plain)).lower()
        if not size and memory and re.search(r"^(a100|h100|v100|a800)", plain):
            plain += f"-{_rounded(memory)}gb"
        facts["gpu"] = Fact(plain, f"{name}:{line_number}")
        facts["gpus"] = Fact(len(devices), f"{name}:{line_number}")
        facts["gpus_per_node"] = Fact(len(devices), f"{name}:{line_number}")
    return facts


def _rounded(memory: int) -> int:
    """Device memory rounded to the size in product names, such as 80. [GB]

    >>> _rounded(81559), _rounded(40960)
    (80, 40)
    """
    sizes = (16, 24, 32, 40, 48, 64, 80, 96, 141, 180, 192, 256, 288)
    return min(sizes, key=lambda size: abs(size - memory * 2**20 / 1e9))


_COLUMNS: Final = frozenset({"NODELIST", "NODES", "STATE", "GRES"})
_TYPE_AND_COUNT: Final = r"(?:([\w.-]*[a-zA-Z][\w.-]*)[:=])?(\d+)"
"""Type and number of GPUs."""


def of_sinfo(text: str, name: str) -> dict[str, Fact]:
    """Nodes and devices of the largest group of alike nodes that `sinfo` lists."""
    lines = [(number, line.split()) for number, line in enumerate(text.splitlines(), 1)]
    rows = list(dropwhile(lambda row: not _COLUMNS & {*row[1]}, filter(itemgetter(1), lines)))
    if not rows:
        return {}
    names = rows[0][1]
    groups, listed = Counter[str](), set[str]()
    for _, words in rows[1:]:
        row = dict(zip(names, words, strict=False))
        state = row.get("STATE", "idle")
        if len(words) < len(names) - 1 or re.match(r"(down|drain|fail|maint|unk|inval)", state):
            continue
        is_group = row.get("NODES", "").isdigit()
        hosts = row.get("NODELIST", str(len(groups)) if is_group else words[0])
        if hosts not in listed:  # a node in two partitions is one node
            listed.add(hosts)
            groups[row.get("GRES", "")] += int(row["NODES"]) if is_group else 1
    if not groups:
        return {}
    gres = max(groups, key=lambda gres: ("gpu" in gres, groups[gres]))
    where = f"{name}:{rows[1][0]}"
    facts = {"nodes": Fact(groups[gres], where)}
    if device := re.search(f"gpu:{_TYPE_AND_COUNT}", gres):
        facts["gpus_per_node"] = Fact(int(device[2]), where)
        if device[1]:
            facts["gpu"] = Fact(device[1].lower(), where)
    return facts


def of_scontrol(text: str, name: str) -> dict[str, Fact]:
    """Nodes and devices of `scontrol show job` or `scontrol show node`."""
    facts: dict[str, Fact] = {}
    nodes = re.findall(r"\bNodeName=\S+", text)
    for number, line in enumerate(text.splitlines(), 1):
        where = f"{name}:{number}"
        if node_count := re.search(r"\bNumNodes=(\d+)", line):
            facts.setdefault("nodes", Fact(int(node_count[1]), where))
        per_node = "TresPerNode" in line or "Gres=" in line or bool(nodes)
        for pattern in (r"gres/gpu:?([\w.-]*?)[=:](\d+)", rf"\bGres=gpu:{_TYPE_AND_COUNT}"):
            for device in re.finditer(pattern, line):
                count = Fact(int(device[2]), where)
                facts.setdefault("gpus_per_node" if per_node else "gpus", count)
                if device[1]:
                    facts.setdefault("gpu", Fact(device[1].lower(), where))
        if asked := re.search(rf"TresPerNode=\S*gpu[:=]{_TYPE_AND_COUNT}", line):
            facts["gpus_per_node"] = Fact(int(asked[2]), where)
            if asked[1] and asked[1] != "gpu":
                facts["gpu"] = Fact(asked[1].lower(), where)
    if nodes:
        facts.setdefault("nodes", Fact(len(nodes), name))
    return facts
