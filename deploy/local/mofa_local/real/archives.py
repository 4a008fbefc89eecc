"""Images as files that containerd imports, made of layers that were made here; the first is of nothing but a program that waits."""

from __future__ import annotations

import hashlib
import io
import json
import os
import platform
import subprocess
import sys
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from mofa_local import LocalStackError, binaries, go

_PAUSE: Final = """\
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGINT, syscall.SIGTERM)
	<-ended
}
"""

SUITE: Final = "bookworm"
"""Debian's release, whose PyTorch is 1.13 on Python 3.11."""
PACKAGES: Final = ("python3", "python3-torch", "python3-numpy")
LEFT_OUT: Final = ("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*")


def folder() -> Path:
    """Where images wait between two nodes."""
    made = binaries.cache() / "images"
    made.mkdir(parents=True, exist_ok=True)
    return made


def pause_image(name: str) -> Path:
    """The image whose container holds the namespaces of a pod, and does nothing."""
    made = folder() / f"pause-{hashlib.sha256((_PAUSE + name).encode()).hexdigest()[:12]}.tar"
    if not made.exists():
        layer = made.with_suffix(".layer")
        with tarfile.open(layer, "w") as tar:
            _add(tar, "pause", _built(), 0o755)
        image(made, name, [layer], {"Entrypoint": ["/pause"], "User": "65535:65535"})
        layer.unlink()
    return made


def torch_image(name: str) -> Path:
    """The image of a trainer: Debian's PyTorch, which computes on the CPU and talks by gloo; made once, in two minutes."""
    made = (
        folder()
        / f"torch-{hashlib.sha256(repr((name, SUITE, PACKAGES, LEFT_OUT)).encode()).hexdigest()[:12]}.tar"
    )
    if not made.exists():
        print(
            f"mofa_local: {name}: making an image of Debian's PyTorch once (two minutes, 1.4 GB)",
            file=sys.stderr,
        )
        layer = made.with_suffix(".layer")
        command = [
            "mmdebstrap",
            "--quiet",
            "--format=tar",
            "--variant=minbase",
            f"--include={','.join(PACKAGES)}",
        ]
        options = [f"--dpkgopt=path-exclude={one}" for one in LEFT_OUT]
        try:
            done = subprocess.run(
                [*command, *options, SUITE, layer], capture_output=True, text=True, check=False
            )
            if done.returncode:
                raise LocalStackError(f"mmdebstrap: {done.stderr.strip()[-500:]}")
            image(made, name, [layer], {"Env": ["PATH=/usr/local/bin:/usr/bin:/bin"]})
        finally:
            layer.unlink(missing_ok=True)
    return made


def image(path: Path, name: str, layers: Sequence[Path], config: Mapping[str, Any]) -> Path:
    """An image of layers, each a tar, with its configuration; `name` is what pods call it."""
    machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    digests = [_digest(one) for one in layers]
    about = {
        "architecture": machine,
        "os": "linux",
        "config": dict(config),
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{one}" for one in digests]},
    }
    told = json.dumps(about).encode()
    head = hashlib.sha256(told).hexdigest()
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    listed = [
        {"Config": f"{head}.json", "RepoTags": [name], "Layers": [f"{one}.tar" for one in digests]}
    ]
    with tarfile.open(unfinished, "w") as tar:
        for digest, layer in zip(digests, layers, strict=True):
            tar.add(layer, f"{digest}.tar")
        _add(tar, f"{head}.json", told, 0o644)
        _add(tar, "manifest.json", json.dumps(listed).encode(), 0o644)
    return unfinished.replace(path)


def _built() -> bytes:
    """The program that waits, built now; it takes seconds."""
    source = folder() / "pause"
    source.mkdir(exist_ok=True)
    (source / "main.go").write_text(_PAUSE, encoding="utf-8")
    command = [
        str(go.find((1, 24), binaries.cache())),
        "build",
        *go.FLAGS[1:],
        "-ldflags",
        "-s -w",
        "-o",
        "pause",
        "main.go",
    ]
    done = subprocess.run(
        command, cwd=source, env=os.environ | {"CGO_ENABLED": "0", "GOWORK": "off", "GOFLAGS": "", "GO111MODULE": "off"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise LocalStackError(f"pause: `go build` failed: {done.stderr.strip()}")
    return (source / "pause").read_bytes()


def _add(tar: tarfile.TarFile, name: str, data: bytes, mode: int) -> None:
    about = tarfile.TarInfo(name)
    about.size, about.mode = len(data), mode
    tar.addfile(about, io.BytesIO(data))


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
