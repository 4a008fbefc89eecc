"""Machines as tools print them: `nvidia-smi`, `sinfo`, `scontrol show`, and what a script asks
Slurm for.
"""

from __future__ import annotations

import re
import shlex
from typing import Final

from mofa_model.identity.commands import ProgramCall
from mofa_model.identity.directives import FLAGS, SHORT, devices_of_gres
from mofa_model.identity.fact import Fact
from mofa_model.identity.sbatch import BatchScript, read_script

_PRODUCT: Final = (
    r"(?:GB200|GB300|GH200|B200|B300|H100|H200|H800|H20|A100|A800|V100|MI\d{3}X?|L40S?|L4|A10G?"
    r"|A40|A30|T4|RTX[ -]?\w+|TPU[ -]?v\d\w?)"
)
SPOKEN: Final = re.compile(
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
    directives = {
        directive.name: directive for directive in script.directives if not directive.component
    }  # the last one counts
    facts: dict[str, Fact] = {}

    def add(name: str, value: object, directive: str) -> None:
        if value:
            facts[name] = Fact(value, f"{script.name}:{directives[directive].line_number}")

    for name, word in (
        ("nodes", "nodes"),
        ("tasks_per_node", "ntasks-per-node"),
        ("tasks", "ntasks"),
    ):
        if word in directives:
            add(name, _whole(directives[word].value.text), word)
    for word in ("gres", "gpus-per-node"):
        gpus = (
            devices_of_gres(_as_gres(directives[word].value.text)) if word in directives else None
        )
        if gpus is not None:
            add("gpus_per_node", gpus[0], word)
            add("gpu", gpus[1].lower(), word)
    if "gpus" in directives and (gpus := devices_of_gres(_as_gres(directives["gpus"].value.text))):
        add("gpus", gpus[0], "gpus")
        add("gpu", gpus[1].lower(), "gpus")
    if "constraint" in directives and "gpu" not in facts:
        spoken_of = SPOKEN.search(re.sub("[_&]", " ", directives["constraint"].value.text))
        add("gpu", _device(spoken_of) if spoken_of else "", "constraint")
    if "gpus-per-task" in directives and "gpus_per_node" not in facts and "tasks_per_node" in facts:
        gpus_per_task = _whole(directives["gpus-per-task"].value.text) or 0
        add("gpus_per_node", gpus_per_task * facts["tasks_per_node"].value, "gpus-per-task")
    _counted(facts)
    return facts


def asked_of_srun(call: ProgramCall) -> dict[str, Fact]:
    """Nodes, GPUs and tasks that the options of an `srun` ask for; its command is in no
    batch script.
    """
    texts = call.texts
    start = next(
        (index for index, text in enumerate(texts) if text.rpartition("/")[2] == "srun"), -1
    )
    options, rest = list[str](), list(texts[start + 1 :]) if start >= 0 else []
    while rest and rest[0].startswith("-"):
        options.append(rest.pop(0))
        bare = "=" not in options[-1] and (options[-1].startswith("--") or len(options[-1]) == 2)
        if (
            bare
            and SHORT.get(options[-1][1:], options[-1][2:]) not in FLAGS
            and rest
            and rest[0][0] != "-"
        ):
            options.append(rest.pop(0))
    if not options:
        return {}
    script = read_script(f"#!/bin/bash\n#SBATCH {shlex.join(options)}\n", call.where)
    return {name: Fact(fact.value, call.where) for name, fact in asked_of_slurm(script).items()}


def _as_gres(text: str) -> str:
    """A number of GPUs as Slurm writes generic resources: `8`, `a100:8`."""
    return text if text.startswith(("gpu", "gres")) or "," in text else f"gpu:{text}"


def _counted(facts: dict[str, Fact]) -> None:
    """Add nodes from tasks, and devices of a node from those of the job."""
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


def spoken(text: str, name: str) -> dict[str, Fact]:
    """Devices that comments name, where all that name any name the same one."""
    facts: dict[str, Fact] = {}
    devices: dict[str, Fact] = {}
    for number, line in enumerate(text.splitlines(), 1):
        comment_match = re.search(r"(?:^|\s)#(?!SBATCH|!)(.*)", line)
        if not comment_match:
            continue
        comment, where = comment_match[1], f"{name}:{number}, a comment"
        for device in SPOKEN.finditer(comment):
            if not device["count"]:
                continue
            devices.setdefault(device["gpu"].lower(), Fact(_device(device), where))
        for pattern, fact in _IN_COMMENTS:
            if (match := re.search(pattern, comment)) and fact not in facts:
                facts[fact] = Fact(int(match[1]), where)
        if (
            match := re.search(r"(\d+) nodes?\W+(?:of|x|with|×)\W*(\d+)", comment)
        ) and "nodes" not in facts:
            facts["nodes"], facts["gpus_per_node"] = (
                Fact(int(match[1]), where),
                Fact(int(match[2]), where),
            )
        _of_nodes(facts, comment, where)
    if len(devices) == 1:
        facts["gpu"] = next(iter(devices.values()))
    return facts


def _of_nodes(facts: dict[str, Fact], comment: str, where: str) -> None:
    """`8xA100 machine` and `(8 H100/node)` say devices of a node, `16 H100 nodes` nodes, `128 H100
    GPUs` devices.
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


def of_sinfo(text: str, name: str) -> dict[str, Fact]:
    """Nodes and devices of the largest group of alike nodes that `sinfo` lists."""
    lines = [
        (number, line.split()) for number, line in enumerate(text.splitlines(), 1) if line.strip()
    ]
    head = next(
        (
            columns
            for columns, (_, words) in enumerate(lines)
            if {"NODELIST", "NODES", "STATE", "GRES"} & set(words)
        ),
        None,
    )
    if head is None:
        return {}
    names = lines[head][1]
    columns = {word: number for number, word in enumerate(names)}
    groups: dict[str, int] = {}
    where = f"{name}:{lines[head + 1][0]}" if head + 1 < len(lines) else name
    nodes = set[str]()
    gres = ""
    for _, words in lines[head + 1 :]:
        if len(words) < len(names) - 1:
            continue
        state = (
            words[columns["STATE"]]
            if "STATE" in columns and columns["STATE"] < len(words)
            else "idle"
        )
        if re.match(r"(down|drain|fail|maint|unk|inval)", state):
            continue
        resources = (
            words[columns["GRES"]] if "GRES" in columns and columns["GRES"] < len(words) else ""
        )
        if "NODES" in columns and words[columns["NODES"]].isdigit():
            listed = (
                words[columns["NODELIST"]]
                if "NODELIST" in columns and columns["NODELIST"] < len(words)
                else str(len(groups))
            )
            if listed in nodes:
                continue  # a node in two partitions is one node
            nodes.add(listed)
            count = int(words[columns["NODES"]])
        else:
            listed = words[columns["NODELIST"]] if "NODELIST" in columns else words[0]
            if listed in nodes:
                continue
            nodes.add(listed)
            count = 1
        groups[resources] = groups.get(resources, 0) + count
    facts: dict[str, Fact] = {}
    if groups:
        gres = max(groups, key=lambda resources: ("gpu" in resources, groups[resources]))
        facts["nodes"] = Fact(groups[gres], where)
        device = re.search(r"gpu:(?:([\w.-]*[a-zA-Z][\w.-]*):)?(\d+)", gres)
        if device:
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
        if (node_count := re.search(r"\bNumNodes=(\d+)", line)) and "nodes" not in facts:
            facts["nodes"] = Fact(int(node_count[1]), where)
        for pattern in (
            r"gres/gpu:?([\w.-]*?)[=:](\d+)",
            r"\bGres=gpu:(?:([\w.-]*[a-zA-Z][\w.-]*):)?(\d+)",
        ):
            for device in re.finditer(pattern, line):
                per_node = "TresPerNode" in line or "Gres=" in line or bool(nodes)
                facts.setdefault(
                    "gpus_per_node" if per_node else "gpus", Fact(int(device[2]), where)
                )
                if device[1]:
                    facts.setdefault("gpu", Fact(device[1].lower(), where))
        if resource := re.search(
            r"TresPerNode=\S*gpu[:=](?:([\w.-]*[a-zA-Z][\w.-]*)[:=])?(\d+)", line
        ):
            facts["gpus_per_node"] = Fact(int(resource[2]), where)
            if resource[1] and resource[1] != "gpu":
                facts["gpu"] = Fact(resource[1].lower(), where)
    if nodes and "nodes" not in facts:
        facts["nodes"] = Fact(len(nodes), name)
    return facts
