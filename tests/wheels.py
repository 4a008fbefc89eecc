"""Wheels of this repository, and environments that hold one of them and a lock."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PIP = ("-m", "pip", "--quiet", "--disable-pip-version-check")
UV = Path(sys.executable).with_name("uv")


def run(*command, **options):
    """What a command prints; its last words where it fails."""
    done = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, check=False, **options
    )
    assert done.returncode == 0, (
        f"{' '.join(map(str, command))}\n{done.stdout[-6000:]}\n{done.stderr[-3000:]}"
    )
    return done.stdout


def built(source, folder):
    """The wheel of a distribution."""
    run(
        sys.executable,
        *PIP,
        "wheel",
        "--no-deps",
        "--no-build-isolation",
        "--wheel-dir",
        folder,
        source,
    )
    (wheel,) = folder.glob("*.whl")
    return wheel


def environment(name, lock, wheel):
    """The Python of an environment with a lock and a wheel.

    The locked part is kept in `.cache/` under the hash of the lock, so that only its first use
    takes long.
    """
    key = hashlib.sha256(lock.read_bytes() + sys.version.encode()).hexdigest()[:12]
    folder = ROOT / ".cache" / f"{name}-{key}"
    python, done = folder / "bin" / "python", folder / "complete"
    if not done.exists():
        run(sys.executable, "-m", "venv", "--clear", folder)
        try:
            run(UV, "pip", "install", "--quiet", "--python", python, "--require-hashes", "-r", lock, env=_with_index())  # fmt: skip
        except AssertionError:  # as `make setup`: where uv cannot reach the index that pip can
            run(python, *PIP, "install", "--no-compile", "--require-hashes", "-r", lock)
        done.touch()
    run(
        UV,
        "pip",
        "install",
        "--quiet",
        "--offline",
        "--python",
        python,
        "--no-deps",
        "--reinstall",
        wheel,
    )
    return python


def _with_index():
    """The environment in which uv asks the index that pip is told."""
    if "UV_DEFAULT_INDEX" in os.environ:
        return dict(os.environ)
    command = [sys.executable, "-m", "pip", "config", "get", "global.index-url"]
    asked = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    index = os.environ.get("PIP_INDEX_URL") or asked
    return {**os.environ, **({"UV_DEFAULT_INDEX": index} if index else {})}
