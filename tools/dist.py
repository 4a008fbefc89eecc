"""What a release publishes, made in a folder: wheels, source, chart, and a bill of materials of each, with their checksums.

    python tools/dist.py dist

The workflow of a release runs this, and so does a test; what is left to the workflow is to sign and to send.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "deploy" / "local")]

from mofa_local import binaries  # noqa: E402

MATERIALS = {"package": "core", "image": "operator"}
"""What has a bill of materials, and the lock that it is made of: all that is installed, each with its hashes."""
SUMS = "SHA256SUMS"


def run(*command: str | Path) -> str:
    """What a command says; where it fails, what it says of that."""
    done = subprocess.run(
        [*map(str, command)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"dist: {command[0]}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def packages(folder: Path) -> None:
    """Wheel and source of the product and of the lab, by the locked builder."""
    for source in (ROOT, ROOT / "lab"):
        for target in ("sdist", "wheel"):
            done = subprocess.run(
                [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(folder)],
                cwd=source, capture_output=True, text=True, check=False,
            )  # fmt: skip
            if done.returncode:
                sys.exit(f"dist: {source.name}: {done.stderr.strip()}")


def chart(folder: Path) -> None:
    """The chart as one file."""
    helm = shutil.which("helm") or binaries.path("helm")
    run(helm, "package", ROOT / "charts" / "mofa-advisor", "--destination", folder)


def materials(folder: Path) -> None:
    """Bills of materials, CycloneDX; the same for the same lock, whenever they are made."""
    for what, lock in MATERIALS.items():
        bill(folder, what, lock)


def bill(folder: Path, what: str, lock: str) -> Path:
    """One of them."""
    made = folder / f"mofa-advisor-{what}.cdx.json"
    run(
        Path(sys.executable).parent / "cyclonedx-py", "requirements", ROOT / "requirements" / f"{lock}.txt",
        "--pyproject", ROOT / "pyproject.toml", "--mc-type", "application", "--output-reproducible", "--validate",
        "--output-format", "JSON", "--output-file", made,
    )  # fmt: skip
    unhashed(made)
    return made


def unhashed(made: Path) -> None:
    """Refuse a bill with a part that has no version or no hash."""
    for part in json.loads(made.read_text(encoding="utf-8"))["components"]:
        references = part.get("externalReferences", [])
        if not part.get("version") or not any(one.get("hashes") for one in [part, *references]):
            sys.exit(
                f"dist: {made.name}: {part['name']} has no version or no hash; make the lock anew with `make lock`"
            )


def sums(folder: Path) -> None:
    """A line for each file, as `sha256sum --check` reads it."""
    files = sorted(one for one in folder.iterdir() if one.is_file() and one.name != SUMS)
    lines = (f"{hashlib.sha256(one.read_bytes()).hexdigest()}  {one.name}\n" for one in files)
    (folder / SUMS).write_text("".join(lines), encoding="utf-8")


def main(given: Sequence[str]) -> int:
    """Make everything in the folder that is given."""
    if len(given) != 1:
        sys.exit("dist: give the folder in which everything is made")
    folder = Path(given[0]).resolve()
    if folder.exists() and any(folder.iterdir()):
        sys.exit(f"dist: {given[0]} is not empty; give another folder, or empty it")
    folder.mkdir(parents=True, exist_ok=True)
    for part in (packages, chart, materials, sums):
        part(folder)
    print(*sorted(one.name for one in folder.iterdir()), sep="\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
