"""Write what the cells of docs/notebook.ipynb show, from a run of each beside the wheel alone;
`make transcripts` calls it.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests")]
from wheels import built, environment, run  # noqa: E402 - tests make the same environment

NOTEBOOK: Final = ROOT / "docs" / "notebook.ipynb"
LOCK: Final = ROOT / "requirements" / "notebook.txt"


def executed(python: Path, folder: Path) -> dict[str, Any]:
    """The notebook with what its cells show, and without what differs from run to run: times, and
    the version of Python.
    """
    run(
        *(python, "-m", "nbconvert", "--to", "notebook", "--execute"),
        *("--output-dir", folder, NOTEBOOK),
        cwd=folder,
        env={"PATH": str(python.parent), "HOME": str(folder), "OMP_NUM_THREADS": "1"},
    )
    done = json.loads((folder / NOTEBOOK.name).read_text("utf-8"))
    kept = json.loads(NOTEBOOK.read_text("utf-8"))
    for cell, ran in zip(kept["cells"], done["cells"], strict=True):
        if cell["cell_type"] == "code":
            cell |= {part: ran[part] for part in ("execution_count", "outputs")}
    return dict(kept)


def main() -> None:
    """Run it, and write it."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        python = environment("notebook", LOCK, built(ROOT, folder))
        text = json.dumps(executed(python, folder), indent=1, ensure_ascii=False)
    NOTEBOOK.write_text(f"{text}\n", "utf-8")


if __name__ == "__main__":
    main()
