"""Machines as tools print them: `nvidia-smi`, `sinfo`, `scontrol show`, and what a script asks Slurm for."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from mofa_model.identity.facts import Fact

_DIRECTIVE: Final = re.compile(r"^\s*#SBATCH\s+(.*)$")
_PRODUCT: Final = (
    r"(?:GB200|GB300|GH200|B200|B300|H100|H200|H800|H20|A100|A800|V100|MI\d{3}X?|L40S?|L4|A10G?|A40|A30"
    r"|T4|RTX[ -]?\w+|TPU[ -]?v\d\w?)"
)
SPOKEN: Final = re.compile(
    rf"(?<![\w.])(?P<count>\d+)?\s?(?:[xX×]\s?)?(?:NVIDIA |AMD )?(?P<gpu>{_PRODUCT})(?:s\b|(?![\w]))"
    r"(?:[ -]?(?:SXM\d?|PCIe|HBM\d?e?))*(?:[ -]?\(?(?P<memory>\d+) ?G[iB]?B?\)?)?",
    re.IGNORECASE,
)
"""A device as people write it in words: `8xA100`, `8 x H100s (80GB)`."""
_SHORT: Final = {
    "-N": "--nodes", "-n": "--ntasks", "-G": "--gpus", "-C": "--constraint", "-p": "--partition",
    "-c": "--cpus-per-task", "-J": "--job-name", "-t": "--time", "-A": "--account", "-w": "--nodelist",
    "-q": "--qos", "-o": "--output", "-e": "--error",
}  # fmt: skip


class Directive(NamedTuple):
    """An option that a script gives to its scheduler."""

    name: str
    value: str
    line: int
    """Counted from one. [1]"""


def directives(text: str) -> Iterator[Directive]:
    """The options in lines `#SBATCH …`.

    >>> [(one.name, one.value) for one in directives("#SBATCH -N 4 --gres=gpu:a100:8 # all")]
    [('--nodes', '4'), ('--gres', 'gpu:a100:8')]
    """
    for number, line in enumerate(text.splitlines(), 1):
        found = _DIRECTIVE.match(line)
        if not found:
            continue
        words = re.sub(r"\s#.*$", "", found[1]).split()
        yield from options(words, number)


def options(words: list[str], number: int) -> Iterator[Directive]:
    """Options of sbatch or srun among words."""
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        if not word.startswith("-"):
            continue
        name, equals, value = word.partition("=")
        if not name.startswith("--") and len(name) > 2 and not equals:
            name, value, equals = name[:2], name[2:], "="
        name = _SHORT.get(name, name)
        if not equals and at < len(words) and not words[at].startswith("-"):
            value = words[at]
            at += 1
        yield Directive(name, value.strip("\"'"), number)


def _whole(text: str) -> int | None:
    found = re.match(r"\s*(\d+)", text)
    return int(found[1]) if found else None


def asked_of_slurm(found: list[Directive], name: str) -> dict[str, Fact]:
    """Nodes, devices of a node and of the job, and the device, of a script's options."""
    said: dict[str, Fact] = {}
    tasks: dict[str, Fact] = {}
    for one in found:
        where = f"{name}:{one.line}"
        whole = _whole(one.value)
        if one.name == "--nodes" and whole:
            said["nodes"] = Fact(whole, where)
        elif one.name in {"--gpus-per-node", "--gres"}:
            each = re.search(r"(?:^|gpu:)(?:([\w.-]*[a-zA-Z][\w.-]*):)?(\d+)(?:,|\(|$)", one.value)
            if one.name == "--gres" and "gpu" not in one.value:
                continue
            if each:
                said["gpus_per_node"] = Fact(int(each[2]), where)
                if each[1] and each[1] != "gpu":
                    said["gpu"] = Fact(each[1], where)
        elif one.name == "--gpus":
            every = re.fullmatch(r"(?:([\w.-]+):)?(\d+)", one.value)
            if every:
                said["gpus"] = Fact(int(every[2]), where)
                if every[1]:
                    said["gpu"] = Fact(every[1], where)
        elif one.name in {"--ntasks-per-node", "--ntasks", "--gpus-per-task"} and whole:
            tasks[one.name] = Fact(whole, where)
        elif one.name == "--constraint":
            if spoken := SPOKEN.search(one.value.replace("_", " ").replace("&", " ")):
                said.setdefault("gpu", Fact(_device(spoken), where))
    each_task, per_node = tasks.get("--gpus-per-task"), tasks.get("--ntasks-per-node")
    if "gpus_per_node" not in said and each_task and per_node:
        said["gpus_per_node"] = Fact(each_task.value * per_node.value, per_node.source)
    if "nodes" not in said and per_node and (every := tasks.get("--ntasks")):
        if every.value % per_node.value == 0 and every.value > per_node.value:
            said["nodes"] = Fact(every.value // per_node.value, every.source)
    if per_node:
        said["tasks_per_node"] = per_node
    if "--ntasks" in tasks:
        said["tasks"] = tasks["--ntasks"]
    if "gpus" in said and "nodes" in said and "gpus_per_node" not in said:
        if said["gpus"].value % said["nodes"].value == 0:
            said["gpus_per_node"] = Fact(said["gpus"].value // said["nodes"].value, said["gpus"].source)
    return said


def _device(found: re.Match[str]) -> str:
    memory = found["memory"]
    return f"{found['gpu'].lower().replace(' ', '-')}{f'-{memory}gb' if memory else ''}"


def spoken(text: str, name: str) -> dict[str, Fact]:
    """Devices that comments name, where all that name any name the same one."""
    found: dict[str, Fact] = {}
    devices: dict[str, Fact] = {}
    for number, line in enumerate(text.splitlines(), 1):
        said = re.search(r"(?:^|\s)#(?!SBATCH|!)(.*)", line)
        if not said:
            continue
        comment, where = said[1], f"{name}:{number}, a comment"
        for one in SPOKEN.finditer(comment):
            if not one["count"]:
                continue
            devices.setdefault(one["gpu"].lower(), Fact(_device(one), where))
        for pattern, fact in _IN_COMMENTS:
            if (match := re.search(pattern, comment)) and fact not in found:
                found[fact] = Fact(int(match[1]), where)
        if (match := re.search(r"(\d+) nodes?\W+(?:of|x|with|×)\W*(\d+)", comment)) and "nodes" not in found:
            found["nodes"], found["gpus_per_node"] = Fact(int(match[1]), where), Fact(int(match[2]), where)
        one = re.search(rf"(?<![\w.])(\d+)\s?[xX×]?\s?(?:NVIDIA )?{_PRODUCT}s?\b(?:\W*\d+GB)? (?:machine|node)\b", comment)
        if many := re.search(rf"(?<![\w.])(\d+) {_PRODUCT} nodes", comment):
            found.setdefault("nodes", Fact(int(many[1]), where))
        one = one or re.search(rf"\((\d+) {_PRODUCT}/node\)", comment)
        if one:
            found.setdefault("gpus_per_node", Fact(int(one[1]), where))
    if len(devices) == 1:
        found["gpu"] = next(iter(devices.values()))
    return found


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
        row = re.match(r"\|\s+\d+\s+((?:NVIDIA|Tesla|Quadro|GeForce|A100|H100)[\w .()/-]*?)\s{2,}", line)
        csv = re.match(r"\s*(?:\d+, )?((?:NVIDIA|Tesla)[\w .()/-]+?)(?:, (\d+) MiB.*)?\s*$", line)
        if one := listed or row or csv:
            devices.append((one[1], number))
        if not memory and (size := re.search(r"/\s*(\d+)MiB", line)):
            memory = int(size[1])
    found: dict[str, Fact] = {}
    if devices:
        product, line_number = devices[0]
        size = re.search(r"(\d+) ?GB", product)
        plain = re.sub(r"^(NVIDIA|Tesla|GeForce|Quadro)\s+", "", product.strip())
        plain = re.sub(r"[ .]+$", "", re.sub(r"\s+", "-", plain)).lower()
        if not size and memory and re.search(r"^(a100|h100|v100|a800)", plain):
            plain += f"-{_rounded(memory)}gb"
        found["gpu"] = Fact(plain, f"{name}:{line_number}")
        found["gpus"] = Fact(len(devices), f"{name}:{line_number}")
        found["gpus_per_node"] = Fact(len(devices), f"{name}:{line_number}")
    return found


def _rounded(memory: int) -> int:
    """Memory as a product's name has it. [GB]

    >>> _rounded(81559), _rounded(40960)
    (80, 40)
    """
    sizes = (16, 24, 32, 40, 48, 64, 80, 96, 141, 180, 192, 256, 288)
    return min(sizes, key=lambda size: abs(size - memory * 2**20 / 1e9))


def of_sinfo(text: str, name: str) -> dict[str, Fact]:
    """Nodes and devices of the largest group of alike nodes that `sinfo` lists."""
    lines = [(number, line.split()) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    head = next((at for at, (_, words) in enumerate(lines) if {"NODELIST", "NODES", "STATE", "GRES"} & set(words)), None)
    if head is None:
        return {}
    names = lines[head][1]
    at = {word: number for number, word in enumerate(names)}
    groups: dict[str, int] = {}
    where = f"{name}:{lines[head + 1][0]}" if head + 1 < len(lines) else name
    nodes = set[str]()
    gres = ""
    for _, words in lines[head + 1 :]:
        if len(words) < len(names) - 1:
            continue
        state = words[at["STATE"]] if "STATE" in at and at["STATE"] < len(words) else "idle"
        if re.match(r"(down|drain|fail|maint|unk|inval)", state):
            continue
        each = words[at["GRES"]] if "GRES" in at and at["GRES"] < len(words) else ""
        if "NODES" in at and words[at["NODES"]].isdigit():
            listed = words[at["NODELIST"]] if "NODELIST" in at and at["NODELIST"] < len(words) else str(len(groups))
            if listed in nodes:
                continue  # a node in two partitions is one node
            nodes.add(listed)
            count = int(words[at["NODES"]])
        else:
            listed = words[at["NODELIST"]] if "NODELIST" in at else words[0]
            if listed in nodes:
                continue
            nodes.add(listed)
            count = 1
        groups[each] = groups.get(each, 0) + count
    found: dict[str, Fact] = {}
    if groups:
        gres = max(groups, key=lambda one: ("gpu" in one, groups[one]))
        found["nodes"] = Fact(groups[gres], where)
        device = re.search(r"gpu:(?:([\w.-]*[a-zA-Z][\w.-]*):)?(\d+)", gres)
        if device:
            found["gpus_per_node"] = Fact(int(device[2]), where)
            if device[1]:
                found["gpu"] = Fact(device[1].lower(), where)
    return found


def of_scontrol(text: str, name: str) -> dict[str, Fact]:
    """Nodes and devices of `scontrol show job` or `scontrol show node`."""
    found: dict[str, Fact] = {}
    nodes = re.findall(r"\bNodeName=\S+", text)
    for number, line in enumerate(text.splitlines(), 1):
        where = f"{name}:{number}"
        if (one := re.search(r"\bNumNodes=(\d+)", line)) and "nodes" not in found:
            found["nodes"] = Fact(int(one[1]), where)
        for pattern in (r"gres/gpu:?([\w.-]*?)[=:](\d+)", r"\bGres=gpu:(?:([\w.-]*[a-zA-Z][\w.-]*):)?(\d+)"):
            for device in re.finditer(pattern, line):
                per_node = "TresPerNode" in line or "Gres=" in line or bool(nodes)
                found.setdefault("gpus_per_node" if per_node else "gpus", Fact(int(device[2]), where))
                if device[1]:
                    found.setdefault("gpu", Fact(device[1].lower(), where))
        if one := re.search(r"TresPerNode=\S*gpu[:=](?:([\w.-]*[a-zA-Z][\w.-]*)[:=])?(\d+)", line):
            found["gpus_per_node"] = Fact(int(one[2]), where)
            if one[1] and one[1] != "gpu":
                found["gpu"] = Fact(one[1].lower(), where)
    if nodes and "nodes" not in found:
        found["nodes"] = Fact(len(nodes), name)
    return found
