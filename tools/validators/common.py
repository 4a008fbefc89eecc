"""What the validators of all trainers share: launches in, verdicts out, and what was run, by
version and hash.

A validator reads one launch a line and writes one line for each: null, or what the trainer says
against it. Its first line names the trainer, its version and the hashes of the files whose
checks ran.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterable, Iterator
from importlib import metadata, util
from pathlib import Path
from typing import Any


def hashes(modules: Iterable[str]) -> dict[str, str]:
    """The source of each module as a short SHA-256."""
    sources = {}
    for name in modules:
        spec = util.find_spec(name)
        if spec is None or spec.origin is None:
            raise LookupError(f"{name} is not installed")
        sources[name] = hashlib.sha256(Path(spec.origin).read_bytes()).hexdigest()[:16]
    return sources


def _validator() -> str:
    """The files here that ask, as a short SHA-256."""
    folder = Path(__file__).parent
    files = {
        Path(module.__file__)
        for module in sys.modules.values()
        if getattr(module, "__file__", None)
    }
    own_files = sorted(file for file in files if file.parent == folder)
    return hashlib.sha256(b"".join(file.read_bytes() for file in own_files)).hexdigest()[:16]


def serve(
    distributions: Iterable[str], modules: Iterable[str], validate: Callable[[dict[str, Any]], None]
) -> None:
    """Answer every launch on the standard input."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what else is printed goes to the standard error
    head = {
        "versions": {name: metadata.version(name) for name in distributions},
        "sources": hashes(modules),
        "validator": _validator(),
    }
    print(json.dumps(head), file=out, flush=True)
    for line in sys.stdin:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            verdict = _verdict(validate, json.loads(line), printed)
        print(json.dumps(verdict), file=out, flush=True)


def _verdict(
    validate: Callable[[dict[str, Any]], None], launch: dict[str, Any], printed: io.StringIO
) -> str | None:
    try:
        validate(launch)
    except SystemExit:  # argparse
        return " ".join(printed.getvalue().replace("│", " ").replace("─", "").split())[-400:]
    except Exception as error:  # noqa: BLE001 whatever the trainer raises is its answer
        last = traceback.extract_tb(error.__traceback__)[-1]
        text = " ".join(str(error).split()) or str(last.line)
        return f"{Path(last.filename).name}:{last.name}: {type(error).__name__}: {text}"[:400]
    return None


@contextlib.contextmanager
def files_of(launch: dict[str, Any]) -> Iterator[None]:
    """Work in a folder that holds the files of a launch and nothing else."""
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            for name, text in launch["files"].items():
                Path(name).write_text(text, encoding="utf-8")
            yield
        finally:
            os.chdir("/")


@contextlib.contextmanager
def fake_processes(count: int, rank: int = 0) -> Iterator[None]:
    """Be one process of a job of so many: PyTorch's process groups are its fake ones."""
    import torch
    from torch.testing._internal.distributed.fake_pg import FakeStore

    torch.distributed.init_process_group(
        backend="fake", store=FakeStore(), rank=rank, world_size=count
    )
    try:
        yield
    finally:
        torch.distributed.destroy_process_group()


def begin_fake_groups(*_: Any, **__: Any) -> None:
    """Stands in for `deepspeed.comm.init_distributed`: DeepSpeed's groups over fake processes."""
    from deepspeed.comm.comm import init_distributed

    init_distributed(dist_backend="fake", dist_init_required=False)
