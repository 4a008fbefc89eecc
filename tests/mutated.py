"""Inputs of every kind, mutated by a seed, and a process that takes them one by one under limits.

cases(5000)        the inputs: what is asked, and the files beside it
python mutated.py  reads cases as lines of JSON, and says of each how it went
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import resource
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path
from random import Random

ROOT = Path(__file__).parents[1]
LONGEST, MOST = 10.0, 2**30
"""What one input may take: seconds of a core, and bytes."""
NUMBERS = (
    "-1",
    "0",
    "1",
    "1e308",
    "-1e308",
    "1e-320",
    ".nan",
    "NaN",
    "inf",
    "10" * 20,
    "2147483648",
    "0x7f",
    "1_000",
    "٣",
    "1e3",
    "0.5",
    "007",
    "true",
    "null",
    "",
    "[]",
    "{}",
    "'8'",
    "8 GB",
    "1/0",
)
TEXTS = (
    "",
    "\x00",
    "\u202e",
    "\ud7ff",
    "é" * 50,
    "a" * 5000,
    "$(touch /tmp/x)",
    "`id`",
    "'; rm -rf /",
    '"',
    "\\",
    "\n",
    "\t",
    "{{",
    "}}",
    "${A:-${B}}",
    "&a",
    "*a",
    "!!python/object:os.system",
    "<<: *a",
    "../../etc/passwd",
    "-",
    "--",
    "%s%n",
    "null",
    "~",
    "😀",
    "tp=8,tp=8",
    "tp=0",
    "llama3.1-8b",
    "h100",
)
FRAMES = {
    "yaml": (["annotate", "FILE"], ["advise", "FILE", "--profile", "h100-east"]),
    "json": (["explain", "--model", "FILE", "--gpu", "h100", "--gpus", "8", "--global-batch", "64", "--seq", "4096", "--strategy", "tp=8"],),
    "log": (["calibrate", "--from-runs", "FILE", "--model", "llama3.1-8b", "--gpu", "h100", "--gpus", "64", "--stack", "torchtitan", "--strategy", "tp=1,dp=64,mbs=1,optimizer=zero3", "--global-batch", "128", "--seq", "8192", "--to", "OUT"], ["watch", "FILE"]),
    "runs": (["calibrate", "--from-runs", "FILE", "--to", "OUT"],),
    "events": (["rates", "--events", "FILE", "--exposure", "EXPOSURE"],),
    "exposure": (["rates", "--events", "EVENTS", "--exposure", "FILE"],),
    "trace": (["trace", "inspect", "FILE"], ["trace", "replay", "FILE"]),
    "prometheus": (["prometheus", "FILE"],),
    "api": (["api", "FILE"], ["watch-api", "FILE"]),
    "form": (["form", "FILE"],),
    "words": (["explain"],),
}  # fmt: skip
"""What is asked of each kind of file; the verbs that are none of the command's are below."""
RUNS = 'model,gpu,gpus,strategy,global_batch,sequence,step_seconds,stack\nllama3.1-8b,h100,64,"tp=1,dp=64,mbs=1,optimizer=zero3",128,8192,5.2,torchtitan\nllama3-70b,h100,256,"tp=8,dp=32",512,8192,21.4,megatron-core\n'  # fmt: skip
EVENTS = "time,node,class,recovery_seconds\n2026-01-01T00:00:00Z,n1,pod,300\n2026-01-05T10:00:00Z,n2,job,900\n"
EXPOSURE = "node,node_days\nn1,30\nn2,29.5\nn3,30\n"
TRACE = json.dumps({"traceEvents": [{"ph": "X", "cat": cat, "name": name, "pid": 0, "tid": 7, "ts": 10.0 * n, "dur": 8.0, "args": {"stream": 7, "External id": n}} for n, (cat, name) in enumerate([("user_annotation", "ProfilerStep#1"), ("kernel", "ampere_bf16_gemm"), ("kernel", "ncclDevKernel_AllReduce_Sum_bf16"), ("gpu_memcpy", "Memcpy HtoD"), ("cpu_op", "aten::mm")] * 8)]})  # fmt: skip
FORM = "model=llama3.1-8b&gpu=h100&gpus=64&global_batch=128&seq=8192&tokens=1T&framework=megatron&sweep=gpus"  # fmt: skip
ARGUMENTS = ["explain", "--model", "llama3.1-8b", "--gpu", "h100", "--gpus", "8", "--global-batch", "64", "--seq", "4096", "--strategy", "tp=8,pp=1", "--precision", "bf16"]  # fmt: skip


def originals() -> dict[str, list[str]]:
    """Inputs as they should be, by kind."""

    def read(pattern, most=40_000):
        files = sorted(ROOT.glob(pattern))
        return [text for file in files if len(text := file.read_text("utf-8")) < most]

    def configs(value):
        if isinstance(value, dict):
            if "model_type" in value:
                yield value
            value = list(value.values())
        for member in value if isinstance(value, list) else ():
            yield from configs(member)

    configs_found = [
        *configs(json.loads((ROOT / "tests/data/architectures.json").read_text("utf-8")))
    ]
    point = {
        "metric": {"training_namespace": "ml", "training_job": "llama"},
        "value": [1.7e9, "12"],
    }
    vector = {"status": "success", "data": {"resultType": "vector", "result": [point] * 1}}
    matrix = {"status": "success", "data": {"resultType": "matrix", "result": [{"metric": {"node": "a"}, "values": [[1, "1"], [2, "0"]]}]}}  # fmt: skip
    manifests = (
        read("examples/*.yaml")
        + read("tests/data/samples/*.yaml")
        + read("tests/data/manifests/*.yaml")
    )
    return {
        "yaml": manifests,
        "json": [json.dumps(config) for config in configs_found[:40]],
        "log": read("tests/data/logs/*.log"),
        "runs": [RUNS],
        "events": [EVENTS],
        "exposure": [EXPOSURE],
        "trace": [TRACE],
        "prometheus": [json.dumps(vector), json.dumps(matrix)],
        "api": read("examples/*.yaml"),
        "form": [FORM],
        "words": [json.dumps(ARGUMENTS)],
    }  # fmt: skip


def mutated(text: str, random: Random) -> str:
    """A text with one to four things wrong in it."""
    for _ in range(random.randint(1, 4)):
        lines = text.split("\n")
        at, line = random.randrange(len(text) + 1), random.randrange(len(lines))
        way = random.randrange(10)
        if way == 0:
            text = text[:at]
        elif way == 1:
            text = text[:at] + random.choice(TEXTS) + text[at:]
        elif way == 2:
            text = text[:at] + chr(random.randrange(0x20, 0x2100)) + text[at + 1 :]
        elif way in {3, 4}:
            spots = list(re.finditer(r"-?\d+(?:\.\d+)?", text))
            if spots:
                spot = random.choice(spots)
                text = text[: spot.start()] + random.choice(NUMBERS) + text[spot.end() :]
        elif way == 5:
            spots = list(re.finditer(r"[A-Za-z][\w.-]+", text))
            if spots:
                spot = random.choice(spots)
                text = text[: spot.start()] + random.choice(TEXTS) + text[spot.end() :]
        elif way == 6:
            del lines[line]
            text = "\n".join(lines)
        elif way == 7:
            lines.insert(line, random.choice(lines))
            text = "\n".join(lines)
        elif way == 8:
            lines[line] = " " * random.randint(0, 6) + lines[line].strip()
            text = "\n".join(lines)
        else:
            text = text[:at] + random.choice("[{") * random.choice((1, 50, 3000)) + text[at:]
    return text


def cases(count: int, seed: int = 45) -> list[dict[str, object]]:
    """So many inputs, each kind as often as its weight."""
    texts, random = originals(), Random(seed)
    weights = {"yaml": 5, "json": 2, "log": 2, "runs": 1, "events": 1, "exposure": 1, "trace": 1, "prometheus": 3, "api": 3, "form": 1, "words": 2}  # fmt: skip
    kinds = random.choices(list(weights), list(weights.values()), k=count)
    return [
        {"kind": kind, "argv": random.choice(FRAMES[kind]), "text": mutated(random.choice(texts[kind]), random)}
        for kind in kinds
    ]  # fmt: skip


# --------------------------------------------------------------------------------------- the process


def _prometheus(text: str) -> None:
    from mofa_operator.observe.prometheus.client import FailedQuery, parsed, refusal

    refusal(500, text.encode("utf-8", "replace"))
    with contextlib.suppress(FailedQuery):
        parsed(text.encode("utf-8", "replace"), "up", 1000)


def _api(text: str, *, as_watch: bool) -> None:
    import asyncio

    import orjson
    from ruamel.yaml import YAML, YAMLError

    from mofa_model.kinds import job_kind
    from mofa_operator.api import events, items_of
    from mofa_operator.api_errors import ApiError
    from mofa_operator.decide.answer import answer
    from mofa_operator.keys import ADVISOR_POLICY, CLUSTER_PROFILE, TRAINING_JOB
    from mofa_operator.observe.cluster.store import Store

    ours = {kind.kind: kind for kind in (TRAINING_JOB, CLUSTER_PROFILE, ADVISOR_POLICY)}
    try:
        bodies = [b for b in YAML(typ="safe").load_all(text) if isinstance(b, dict)]
        raw = b"".join(orjson.dumps({"type": "ADDED", "object": b}) + b"\n" for b in bodies)
    except (YAMLError, ValueError, TypeError, RecursionError, AttributeError):
        bodies, raw = [], text.encode("utf-8", "replace")

    async def heard() -> None:
        async def chunks():
            yield raw

        with contextlib.suppress(ApiError):
            async for _ in events(chunks(), "/apis/x?watch=1"):
                pass

    if as_watch or not bodies:
        asyncio.run(heard())
        return
    store = Store()
    try:
        bodies = list(items_of({"items": bodies}, "/apis/x"))
    except ApiError:
        return
    for body in bodies:
        kind = ours.get(str(body.get("kind"))) or job_kind(body.get("apiVersion"), body.get("kind"))
        if kind is not None:
            store.put(kind, body)
            for key in store.keys(kind):
                snapshot = store.snapshot(key, 1.7e9)
                question = getattr(snapshot, "question", None)
                if question is not None:
                    answer(question)


def _log(path: str) -> None:
    from mofa_operator.trainer.facts import Facts
    from mofa_operator.trainer.formats import Reader
    from mofa_operator.trainer.progress import Progress, with_line

    reader, progress = Reader(), Progress()
    for raw in Path(path).read_bytes().split(b"\n"):
        if (line := reader.read(raw)) is not None:
            progress = with_line(progress, line, Facts(), 1.7e9)


def _form(text: str) -> None:
    from urllib.parse import parse_qsl

    from mofa_model.verbs.ui_server import DeskServer

    too_many = contextlib.suppress(ValueError)  # fields, as the handler says
    with DeskServer(0) as server, too_many:
        server.answered("/", dict(parse_qsl(text, max_num_fields=64)))


def ask(case: dict[str, object], folder: str) -> int:
    """The exit code of one case; a fault is an exception."""
    from mofa_model.cli import main

    verb, *rest = case["argv"]
    text = str(case["text"])
    ending = {"trace": "json", "runs": "csv", "events": "csv", "exposure": "csv"}
    path = str(Path(folder) / f"input.{ending.get(str(case['kind']), case['kind'])}")
    Path(path).write_text(text, "utf-8", "replace")
    if verb == "prometheus":
        _prometheus(text)
    elif verb in {"api", "watch-api"}:
        _api(text, as_watch=verb != "api")
    elif verb == "watch":
        _log(path)
    elif verb == "form":
        _form(text)
    elif case["kind"] == "words":
        words = [str(word) for word in re.findall(r'"((?:[^"\\]|\\.)*)"', text)]
        return main(words[:60] or ["explain"])
    else:
        names = {"FILE": path, "OUT": str(Path(folder) / "out.toml")}
        for name, good in (("EVENTS", EVENTS), ("EXPOSURE", EXPOSURE)):
            names[name] = str(Path(folder) / f"{name}.csv")
            Path(names[name]).write_text(good, "utf-8")
        try:
            return main([names.get(word, word) for word in (verb, *rest)])
        except SystemExit as end:
            return int(end.code or 0)
    return 0


def serve() -> None:
    """Answer cases until there are none."""

    def late(*_):
        raise TimeoutError(f"more than {LONGEST:g} s of a core")

    signal.signal(signal.SIGVTALRM, late)
    os.environ["MOFA_TRACEBACK"] = "1"
    spoken = sys.stdout
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for line in sys.stdin:
            case = json.loads(line)
            Path("/proc/self/clear_refs").write_text("5")
            printed, code, why = io.StringIO(), 0, ""
            began = time.process_time()
            signal.setitimer(signal.ITIMER_VIRTUAL, 3 * LONGEST)
            try:
                with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
                    code = ask(case, folder)
            except SystemExit as end:
                code = end.code if isinstance(end.code, int) else 1
            except BaseException:  # noqa: BLE001 - this is what is looked for
                why = traceback.format_exc()
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            status = Path("/proc/self/status").read_text()
            peak = 1024 * int(re.search(r"VmHWM:\s+(\d+)", status)[1])
            text = printed.getvalue()
            if code == 1 or "Traceback" in text:
                why = why or text[-3000:]
            print(json.dumps({"code": code, "why": why, "seconds": time.process_time() - began, "peak": peak}), file=spoken, flush=True)  # fmt: skip


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    serve()
