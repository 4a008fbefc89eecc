"""Images as files that containerd imports, made of layers that were made here; the first is of
nothing but a program that waits.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import platform
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from mofa_local import LocalStackError, binaries, go
from mofa_local.progress import say

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
    """The image of a trainer: Debian's PyTorch, which computes on the CPU and talks by gloo; made
    once, in two minutes.
    """
    made = _made("torch", name, SUITE, PACKAGES, LEFT_OUT)
    if not made.exists():
        say(f"{name}: making an image of Debian's PyTorch once (two minutes, 1.4 GB)")
        layer = made.with_suffix(".layer")
        try:
            _debian(layer, PACKAGES)
            image(made, name, [layer], {"Env": [_PATH]})
        finally:
            layer.unlink(missing_ok=True)
    return made


RAY: Final = "ray[default]==2.60.0"
"""The release of Ray, with what its dashboard needs, for that starts the jobs of a cluster."""
RAY_PACKAGES: Final = ("python3", "ca-certificates", "wget", "procps")
"""Python for it, and what KubeRay asks a pod's health with."""
_RAY: Final = """\
#!/usr/bin/python3
import sys

from ray.scripts.scripts import main

sys.exit(main())
"""


def ray_image(name: str) -> Path:
    """The image of a Ray cluster: its wheels on Debian's Python; made once, in a minute."""
    made = _made("ray", name, SUITE, RAY_PACKAGES, RAY, _RAY)
    if not made.exists():
        say(f"{name}: making an image of Ray's wheels once (a minute, 0.6 GB)")
        layers = [made.with_suffix(f".{part}") for part in ("debian", "wheels")]
        try:
            _debian(layers[0], RAY_PACKAGES)
            _wheels(layers[1])
            image(made, name, layers, {"Env": [_PATH, "PYTHONDONTWRITEBYTECODE=1"]})
        finally:
            for layer in layers:
                layer.unlink(missing_ok=True)
    return made


_PATH: Final = "PATH=/usr/local/bin:/usr/bin:/bin"


def _made(kind: str, *recipe: object) -> Path:
    """Where an image is, by all that decides what is in it."""
    return folder() / f"{kind}-{hashlib.sha256(repr(recipe).encode()).hexdigest()[:12]}.tar"


def _debian(layer: Path, packages: Sequence[str]) -> None:
    """A layer of Debian's packages."""
    options = [f"--dpkgopt=path-exclude={pattern}" for pattern in LEFT_OUT]
    command = ["mmdebstrap", "--quiet", "--format=tar", "--variant=minbase"]
    _run([*command, f"--include={','.join(packages)}", *options, SUITE, str(layer)])


def _wheels(layer: Path) -> None:
    """A layer of Ray's wheels for Debian's Python, with the command of that name."""
    with tempfile.TemporaryDirectory(prefix="mofa-wheels-") as place:
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        system = f"--platform=manylinux2014_{platform.machine()}"
        target = ["--only-binary=:all:", "--python-version=3.11", system, "--no-compile"]
        _run([*command, *target, f"--target={place}", RAY])
        with tarfile.open(layer, "w") as tar:
            tar.add(place, "usr/local/lib/python3.11/dist-packages")
            _add(tar, "usr/local/bin/ray", _RAY.encode(), 0o755)


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise LocalStackError(f"{Path(command[0]).name}: {done.stderr.strip()[-500:]}")


def image(path: Path, name: str, layers: Sequence[Path], config: Mapping[str, Any]) -> Path:
    """An image of layers, each a tar, with its configuration; `name` is what pods call it."""
    machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    digests = [_digest(layer) for layer in layers]
    about = {
        "architecture": machine,
        "os": "linux",
        "config": dict(config),
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}" for digest in digests]},
    }
    about_json = json.dumps(about).encode()
    head = hashlib.sha256(about_json).hexdigest()
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    listed = [
        {
            "Config": f"{head}.json",
            "RepoTags": [name],
            "Layers": [f"{digest}.tar" for digest in digests],
        }
    ]
    with tarfile.open(unfinished, "w") as tar:
        for digest, layer in zip(digests, layers, strict=True):
            tar.add(layer, f"{digest}.tar")
        _add(tar, f"{head}.json", about_json, 0o644)
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
        command, cwd=source, env=os.environ | go.ENVIRONMENT | {"GO111MODULE": "off"},
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
