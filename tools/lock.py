"""Make `requirements/*.txt` anew from pyproject.toml and lab/pyproject.toml: every version and
hash, no URL, for every platform.

    dev.txt       everything, the lab's part included; `make setup` installs it
    core.txt      what `pip install mofa-advisor` brings
    test.txt      the same, and what runs its tests
    notebook.txt  the same as core, and what runs a notebook
    operator.txt  the same as core, and what the operator needs: what the image installs
    build.txt     what builds our wheel in the image
    uv.txt        what installs dev.txt in seconds
    models.txt    published models of job kinds whose own requirements are older than ours:
                  installed without them

All but the last agree, because the others are resolved under dev.txt's versions. Versions that
still fit stay; `--upgrade` moves all of them.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "requirements"
OPTIONS = ("--universal", "--generate-hashes", "--no-emit-index-url", "--no-header", "--quiet")
TITLE = "# Made by `make lock` from pyproject.toml; do not edit.\n"


ALONE = FOLDER / "models.in"
"""What is locked and installed without its requirements."""


def lock(name: str, *options: str, sources: tuple[str, ...] = ("pyproject.toml",)) -> None:
    """Resolve one lock; an earlier one of the same name says which versions to keep."""
    target = FOLDER / name
    command = [sys.executable, "-m", "uv", "pip", "compile", *OPTIONS, *options, *sources]
    done = subprocess.run(
        [*command, "--output-file", str(target)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(f"lock: {name}: {done.stderr.strip()}")
    text = target.read_text(encoding="utf-8").removeprefix(TITLE)
    target.write_text(TITLE + text, encoding="utf-8")
    print(
        f"{target.relative_to(ROOT)}: {sum(line[:1].isalnum() for line in text.splitlines())} "
        "packages"
    )


def main() -> None:
    """Lock everything first, then the parts under its versions."""
    FOLDER.mkdir(exist_ok=True)
    upgrade = ["--upgrade"] if "--upgrade" in sys.argv[1:] else []
    # The lab asks for the product, which stands beside it and comes from no registry.
    options = ("--extra", "dev", "--no-emit-package", "mofa-advisor", *upgrade)
    lock("dev.txt", *options, sources=("pyproject.toml", "lab/pyproject.toml"))
    under = ("--constraint", str(FOLDER / "dev.txt"))
    lock("core.txt", *under)
    lock("test.txt", "--extra", "test", *under)
    lock("notebook.txt", "--extra", "notebook", *under)
    lock("operator.txt", "--extra", "operator", *under)
    lock("build.txt", *under, sources=(str((FOLDER / "build.in").relative_to(ROOT)),))
    lock("uv.txt", *under, sources=(str((FOLDER / "uv.in").relative_to(ROOT)),))
    lock("models.txt", "--no-deps", sources=(str(ALONE.relative_to(ROOT)),))


if __name__ == "__main__":
    main()
