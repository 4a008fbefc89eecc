"""Reads what sinfo, scontrol, sacct and sacctmgr print: text in any of their forms, and JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, Final

from mofa_model.errors import BadFile
from mofa_model.slurm.hosts import hosts_of
from mofa_model.slurm.slurm_records import NodeEvent, SlurmNode, SlurmRecords, SlurmRun

_GRES: Final = re.compile(r"(?:gres[/:])?gpu(?::(?P<type>[A-Za-z][\w.-]*))?[:=](?P<count>\d+)")
_PAIR: Final = re.compile(r"(\w[\w:/]*)=")
_FLAGS: Final = {
    "*": "NOT_RESPONDING", "~": "POWERED_DOWN", "#": "POWERING_UP", "%": "POWERING_DOWN",
    "!": "POWER_DOWN", "$": "MAINT", "@": "REBOOT", "^": "REBOOT", "-": "PLANNED",
}  # fmt: skip
"""Signs behind a state. Source: sinfo(1), NODE STATE CODES."""
_SHORT: Final = {
    "drng": ("DRAINING",), "drain": ("DRAIN",), "drained": ("DRAIN", "IDLE"),
    "comp": ("COMPLETING",), "draining": ("DRAIN",), "alloc": ("ALLOCATED",), "mix": ("MIXED",),
    "resv": ("RESERVED",), "futr": ("FUTURE",), "failg": ("FAILING",), "unk": ("UNKNOWN",),
    "plnd": ("PLANNED",), "inval": ("INVAL",), "maint": ("MAINT",),
}  # fmt: skip
_ENDS: Final = frozenset(
    {"COMPLETED", "FAILED", "TIMEOUT", "CANCELLED", "NODE_FAIL", "PREEMPTED", "OUT_OF_MEMORY"}
    | {"REQUEUED", "BOOT_FAIL", "DEADLINE", "REVOKED", "RESIZING", "RUNNING", "PENDING"}
    | {"SUSPENDED"}
)
"""States of a run, which sacct may print shortened."""
_COLUMNS: Final = re.compile(r"\S+")


def read(outputs: Iterable[tuple[str, str]]) -> SlurmRecords:
    """Records in outputs of Slurm commands; each output is a text with its name."""
    records = SlurmRecords()
    for text, name in outputs:
        form = _form(text)
        if not form:
            right = "give what sinfo, scontrol show node, sacct or sacctmgr show event printed"
            raise BadFile(name, f"it is no output of Slurm that is known; {right}")
        made = _READERS[form](text, name)
        records = records.joined_with(made)
    return records


def _form(text: str) -> str:
    """Which command of Slurm printed a text, or `json`; empty where none did."""
    plain = text.lstrip()
    if plain.startswith("{"):
        return "json"
    first = next((line for line in plain.splitlines() if line.strip()), "")
    if re.match(r"[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d", first):  # sinfo -l says when
        first = plain.partition("\n")[2].lstrip().partition("\n")[0]
    words = {word.strip().upper().rstrip("+") for word in re.split(r"[|\s]+", first)}
    if re.match(r"NodeName=", first):
        return "scontrol"
    if re.search(r"(?m)^SlurmdTimeout\s*=", plain):
        return "config"
    if {"STATE", "NODELIST"} & words == {"STATE", "NODELIST"} and not {"JOBID", "JOBIDRAW"} & words:
        return "sinfo"
    if {"NODENAME"} & words and {"TIMESTART", "START"} & words:
        return "events"
    if {"JOBID", "JOBIDRAW"} & words and "STATE" in words:
        return "sacct"
    return ""


# --- text ---------------------------------------------------------------------------------------


def _table(text: str, name: str) -> Iterator[dict[str, str]]:
    """Rows of a table by its headers: separated by bars, or in columns under a line of headers."""
    lines = [line for line in text.splitlines() if line.strip()]
    if re.match(r"[A-Z][a-z]{2} [A-Z][a-z]{2} ", lines[0]):
        lines = lines[1:]
    head = lines[0]
    if "|" in head:
        names = [cell.strip().upper() for cell in head.strip().rstrip("|").split("|")]
        for line in lines[1:]:
            cells = line.rstrip("\n").split("|")
            if len(cells) > len(names) and names[-1] != "COMMENT":
                cells = cells[: len(names)]
            yield dict(zip(names, (cell.strip() for cell in cells), strict=False))
        return
    spots = [
        (heading.group().upper(), heading.start(), heading.end())
        for heading in _COLUMNS.finditer(head)
    ]
    names = [cell for cell, _, _ in spots]
    if len(lines) > 1 and re.fullmatch(r"[-\s]+", lines[1]):  # dashes say how wide each column is
        rules = [(heading.start(), heading.end()) for heading in _COLUMNS.finditer(lines[1])]
        for line in lines[2:]:
            yield {column: line[a:b].strip() for column, (a, b) in zip(names, rules, strict=False)}
        return
    for number, line in enumerate(lines[1:], 2):
        cells = line.split(None, len(names) - 1)
        if len(cells) < len(names) - 1:
            raise BadFile(name, f"line {number} has {len(cells)} columns of {len(names)}")
        yield dict(zip(names, (cell.strip() for cell in cells), strict=False))


def _of_sinfo(text: str, name: str) -> SlurmRecords:
    nodes: dict[str, SlurmNode] = {}
    for row in _table(text, name):
        devices, product = _gres(row.get("GRES", ""))
        partition = row.get("PARTITION", "").rstrip("*")
        for host in hosts_of(row.get("NODELIST", "")):
            before = nodes.get(host)
            parts = before.partitions if before else ()
            nodes[host] = SlurmNode(
                name=host,
                states=_states(row.get("STATE", "")),
                devices=devices,
                product=product,
                partitions=(*parts, partition) if partition and partition not in parts else parts,
                features=_features(row.get("AVAIL_FEATURES", row.get("AVAIL_FE", ""))),
                cpus=_whole(row.get("CPUS", "")),
                memory_bytes=_whole(row.get("MEMORY", "")) * 2.0**20,
                reason="" if row.get("REASON", "none") == "none" else row["REASON"],
            )
    return SlurmRecords(node_records=tuple(nodes.values()), sources=(name,))


def _of_scontrol(text: str, name: str) -> SlurmRecords:
    nodes = []
    for block in re.split(r"(?m)^(?=NodeName=)", text):
        if not block.strip():
            continue
        pairs = _pairs(block)
        devices, product = _gres(pairs.get("Gres", ""))
        if not devices:
            devices = _gres(pairs.get("CfgTRES", ""))[0]
        reason, since = _reason(pairs.get("Reason", ""))
        nodes.append(
            SlurmNode(
                name=pairs.get("NodeName", ""),
                states=_states(pairs.get("State", "")),
                devices=devices,
                product=product,
                partitions=tuple(
                    partition for partition in pairs.get("Partitions", "").split(",") if partition
                ),
                features=_features(pairs.get("AvailableFeatures", "")),
                cpus=_whole(pairs.get("CPUTot", "")),
                memory_bytes=_whole(pairs.get("RealMemory", "")) * 2.0**20,
                reason=reason,
                reason_since=since,
                booted=_moment(pairs.get("BootTime", "")),
            )
        )
    return SlurmRecords(node_records=tuple(nodes), sources=(name,))


def _pairs(block: str) -> dict[str, str]:
    """Pairs `Key=value` of a text; values may have blanks in them."""
    plain = re.sub(r"\s+", " ", block).strip()
    marks = [
        pair
        for pair in _PAIR.finditer(plain)
        if pair.start() == 0 or plain[pair.start() - 1] == " "
    ]
    ends = [pair.start() for pair in marks[1:]] + [len(plain)]
    made: dict[str, str] = {}
    for pair, end in zip(marks, ends, strict=True):
        made.setdefault(pair[1], plain[pair.end() : end].strip())
    return made


def _reason(text: str) -> tuple[str, float]:
    match = re.fullmatch(r"(.*?)\s*\[(?:[^\]@]*)@([^\]]+)\]", text)
    return (match[1], _moment(match[2])) if match else (text, 0.0)


def _of_sacct(text: str, name: str) -> SlurmRecords:
    runs = []
    for row in _table(text, name):
        job_id = row.get("JOBIDRAW") or row.get("JOBID", "")
        shown = row.get("JOBID") or job_id
        if not job_id or "." in job_id or "." in shown:
            continue  # a step
        words = row.get("STATE", "").split()
        state = (words[0] if words else "").rstrip("+").upper()
        if state and state not in _ENDS:
            state = next((name for name in sorted(_ENDS) if name.startswith(state)), state)
        code, _, signal = row.get("EXITCODE", "0:0").partition(":")
        runs.append(
            SlurmRun(
                job_id=shown,
                name=row.get("JOBNAME", ""),
                user=row.get("USER", ""),
                partition=row.get("PARTITION", ""),
                state=state,
                cancelled_by=words[2] if len(words) > 2 and words[1] == "by" else "",
                exit_code=_whole(code),
                exit_signal=_whole(signal),
                submitted=_moment(row.get("SUBMIT", "")),
                begun=_moment(row.get("START", "")),
                ended=_moment(row.get("END", "")),
                hosts=hosts_of(row.get("NODELIST", "")),
                devices=_gres(row.get("ALLOCTRES", row.get("TRES", "")))[0],
                limit_seconds=_limit(row.get("TIMELIMIT", "")),
                reason=row.get("REASON", ""),
                comment=row.get("COMMENT", ""),
            )
        )
    return SlurmRecords(runs=tuple(runs), sources=(name,))


def _of_events(text: str, name: str) -> SlurmRecords:
    events = []
    for row in _table(text, name):
        node = row.get("NODENAME", "")
        begun = _moment(row.get("TIMESTART", row.get("START", "")))
        if not node or not begun:
            continue  # of the whole cluster
        events.append(
            NodeEvent(
                node=node,
                begun=begun,
                ended=_moment(row.get("TIMEEND", row.get("END", ""))),
                states=_states(row.get("STATE", "")),
                reason=row.get("REASON", ""),
                user=row.get("USER", "").partition("(")[0],
            )
        )
    return SlurmRecords(node_events=tuple(events), sources=(name,))


_MESSAGE: Final = 10.0
"""Slurm's own `MessageTimeout`. [s]"""


def _of_config(text: str, name: str) -> SlurmRecords:
    seconds = {
        name: float(seconds_said[1])
        for name in ("SlurmdTimeout", "MessageTimeout")
        if (seconds_said := re.search(rf"(?m)^{name}\s*=\s*(\d+)", text))
    }
    silent = seconds_until_down(
        seconds.get("SlurmdTimeout", 0.0), seconds.get("MessageTimeout", _MESSAGE)
    )
    return SlurmRecords(silent_seconds=silent, sources=(name,))


def seconds_until_down(timeout: float, message: float) -> float:
    """How long a node is silent before slurmctld says that it is down; 0 = nobody knows. Ours. [s]

    slurmctld asks each node every third of `SlurmdTimeout`, and waits twice `MessageTimeout` for
    the answer of one that is gone. On a real Slurm 22.05 seven nodes were down 13 to 15 s (4 s and
    5 s) and 57 to 95 s, 73 in the mean (60 s and 5 s), after they had lost their power.

    >>> seconds_until_down(4, 5), seconds_until_down(60, 5)
    (14, 70.0)
    """
    return timeout + max(timeout / 6, 2 * message) if timeout else 0.0


# --- JSON ---------------------------------------------------------------------------------------


def _of_json(text: str, name: str) -> SlurmRecords:
    try:
        body = json.loads(text)
    except (ValueError, RecursionError):
        raise BadFile(name, "it is no JSON, or is cut off") from None
    errors = _rows(body, "errors")
    if errors and not (body.get("jobs") or body.get("nodes") or body.get("sinfo")):
        why = errors[0].get("description") or errors[0].get("error") or "no reason"
        raise BadFile(name, f"Slurm answered with an error: {why}")
    nodes = [_json_node(row) for row in _rows(body, "nodes")]
    nodes += [node for row in _rows(body, "sinfo") for node in _json_sinfo(row)]
    runs = [_json_run(row) for row in _rows(body, "jobs")]
    if "nodes" not in body and "jobs" not in body and "sinfo" not in body:
        raise BadFile(name, "it has neither jobs nor nodes of Slurm")
    return SlurmRecords(node_records=tuple(nodes), runs=tuple(runs), sources=(name,))


def _json_node(node: Mapping[str, Any]) -> SlurmNode:
    devices, product = _gres(str(node.get("gres") or ""))
    state = node.get("state")
    states = [str(state)] if isinstance(state, str) else [str(part) for part in _list(state)]
    states += [str(part) for part in _list(node.get("state_flags"))]
    features = node.get("features")
    return SlurmNode(
        name=str(node.get("name") or ""),
        states=tuple(dict.fromkeys(part.upper() for part in states)),
        devices=devices or _gres(str(node.get("tres") or ""))[0],
        product=product,
        partitions=tuple(str(part) for part in _list(node.get("partitions"))),
        features=_features(features)
        if isinstance(features, str)
        else tuple(map(str, _list(features))),
        cpus=int(_number(node.get("cpus"))),
        memory_bytes=_number(node.get("real_memory")) * 2.0**20,
        reason=str(node.get("reason") or ""),
        reason_since=_number(node.get("reason_changed_at")),
        booted=_number(node.get("boot_time")),
    )


def _json_sinfo(row: Mapping[str, Any]) -> list[SlurmNode]:
    """A row of `sinfo --json` since 23.02: nodes that are alike."""
    devices, product = _gres(str(_part(row, "gres").get("total") or ""))
    nodes = _part(row, "nodes")
    state = _part(row, "node").get("state")
    states = tuple(str(word).upper() for word in (_list(state) or [state]) if word)
    memory = _part(row, "memory").get("maximum")
    partition = row.get("partition")
    name = partition.get("name") if isinstance(partition, Mapping) else partition
    reason = row.get("reason")
    why = reason.get("description") if isinstance(reason, Mapping) else reason
    return [
        SlurmNode(
            name=host,
            states=states,
            devices=devices,
            product=product,
            partitions=(str(name),) if name else (),
            features=_features(str(_part(row, "features").get("total") or "")),
            cpus=int(_number(_part(row, "cpus").get("maximum"))),
            memory_bytes=_number(memory) * 2.0**20,
            reason=str(why or ""),
        )
        for listed in _list(nodes.get("nodes"))
        for host in hosts_of(str(listed))
    ]


def _json_run(run: Mapping[str, Any]) -> SlurmRun:
    """A run of a Slurm job from one entry of Slurm's JSON output."""
    state = run.get("state")
    current = state.get("current") if isinstance(state, Mapping) else run.get("job_state", state)
    states = [str(part) for part in (_list(current) or [current or ""])]
    times, code = _part(run, "time"), _part(run, "exit_code")
    signal = _part(code, "signal")
    array = _part(run, "array")
    task = array.get("task_id", array.get("task"))
    within = _number(array.get("job_id"))
    job_id = str(run.get("job_id", ""))
    if within and task is not None and not (isinstance(task, Mapping) and not task.get("set")):
        job_id = f"{int(within)}_{int(_number(task))}"
    devices = sum(
        int(_number(part.get("count")))
        for part in _list(_part(run, "tres").get("allocated"))
        if isinstance(part, Mapping) and part.get("type") == "gres" and part.get("name") == "gpu"
    )
    hosts = str(run.get("nodes") or "")
    killed = run.get("kill_request_user") or ""
    comment = run.get("comment")
    return SlurmRun(
        job_id=job_id,
        name=str(run.get("name") or ""),
        user=str(run.get("user") or _part(run, "association").get("user") or ""),
        partition=str(run.get("partition") or ""),
        state=states[0].upper(),
        cancelled_by=str(killed) if "CANCELLED" in states[0].upper() else "",
        exit_code=int(_number(code.get("return_code"))),
        exit_signal=int(_number(signal.get("signal_id", signal.get("id")))),
        submitted=_number(times.get("submission")),
        begun=_number(times.get("start")),
        ended=_number(times.get("end")),
        hosts=hosts_of(hosts),
        devices=devices,
        limit_seconds=_number(times.get("limit")) * 60.0,
        reason=str(_part(run, "state").get("reason") or ""),
        comment=str(comment.get("job") or "")
        if isinstance(comment, Mapping)
        else str(comment or ""),
    )


_READERS: Final = {
    "sinfo": _of_sinfo,
    "scontrol": _of_scontrol,
    "sacct": _of_sacct,
    "events": _of_events,
    "config": _of_config,
    "json": _of_json,
}


# --- values -------------------------------------------------------------------------------------


def _gres(text: str) -> tuple[int, str]:
    """GPUs and their type in a list of resources. TRES states the total twice: with the type and
    without.

    >>> _gres("gpu:h100:8(S:0-1),nvme:1"), _gres("billing=2,gres/gpu=16,gres/gpu:h100=16")
    ((8, 'h100'), (16, 'h100'))
    """
    plain, typed, kind = 0, 0, ""
    for resource in re.split(r",(?![^(]*\))", text):
        gpus = _GRES.match(resource.strip())
        if gpus is None:
            continue
        if gpus["type"]:
            typed, kind = typed + int(gpus["count"]), kind or gpus["type"]
        else:
            plain += int(gpus["count"])
    return (max(plain, typed), kind)


def _states(text: str) -> tuple[str, ...]:
    """States of a node by their long names.

    >>> _states("drain*"), _states("DOWN+DRAIN+NOT_RESPONDING"), _states("mixed"), _states("drng")
    (('DRAIN', 'NOT_RESPONDING'), ('DOWN', 'DRAIN', 'NOT_RESPONDING'), ('MIXED',), ('DRAINING',))
    """
    states: list[str] = []
    for part in text.strip().split("+"):
        bare = part.rstrip("*~#%!$@^-")
        states += _SHORT.get(bare.lower(), (bare.upper(),)) if bare else ()
        states += [_FLAGS[sign] for sign in part[len(bare) :] if sign in _FLAGS]
    return tuple(dict.fromkeys(states))


def _features(text: str) -> tuple[str, ...]:
    return tuple(feature for feature in text.split(",") if feature and feature != "(null)")


def _whole(text: str) -> int:
    digits = re.match(r"\d+", text.strip())
    return int(digits.group()) if digits else 0


def _number(value: Any) -> float:
    """A number; since 23.02 one may be written {"set": true, "infinite": false, "number": 5}."""
    if isinstance(value, Mapping):
        return (
            _number(value.get("number")) if value.get("set") and not value.get("infinite") else 0.0
        )
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0.0
    # The two largest of 32 bits are Slurm's "infinite" and "no value".
    return float(value) if 0 <= value < 2**32 - 2 else 0.0


def _part(body: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = body.get(name)
    return part if isinstance(part, Mapping) else {}


def _rows(body: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    return [row for row in _list(body.get(name)) if isinstance(row, Mapping)]


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _moment(text: str) -> float:
    """A moment in seconds of the epoch; 0 = none is said. Times without a zone are local. [s]"""
    plain = text.strip()
    if not plain or plain.lower() in {"unknown", "none", "n/a", "(null)"}:
        return 0.0
    if plain.isdigit():
        return float(plain)
    try:
        return datetime.fromisoformat(plain).timestamp()
    except ValueError:
        return 0.0


def _limit(text: str) -> float:
    """A time limit; 0 = none. [s]

    >>> _limit("1-02:00:00"), _limit("00:10:00"), _limit("UNLIMITED"), _limit("05:00")
    (93600.0, 600.0, 0.0, 300.0)
    """
    parts = re.fullmatch(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)(?:\.\d+)?", text.strip())
    if parts is None:
        return 0.0
    days, hours, minutes, seconds = (int(part or 0) for part in parts.groups())
    return float(days * 86400 + hours * 3600 + minutes * 60 + seconds)
