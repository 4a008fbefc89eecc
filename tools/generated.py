"""Files that a tool makes from a source: `main` writes those that differ, or with --check names
them.
"""

import argparse
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def differing(files: Mapping[Path, str]) -> list[Path]:
    """Paths of files that are not there, or whose text is another one."""
    return [
        path
        for path, text in files.items()
        if not path.exists() or path.read_text(encoding="utf-8") != text
    ]


def main(tool: str, description: str, files: Callable[[], Mapping[Path, str]]) -> int:
    """Write the files, or with --check fail where one differs; tools/TOOL.py makes them anew."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument(
        "--check", action="store_true", help="write nothing; fail where a file differs"
    )
    check = parser.parse_args().check
    texts = files()
    stale = differing(texts)
    for path in stale:
        name = path.relative_to(ROOT)
        if check:
            print(
                f"{tool}: {name} is not what its source says; run `python tools/{tool}.py`",
                file=sys.stderr,
            )
        else:
            path.parent.mkdir(exist_ok=True)
            path.write_text(texts[path], encoding="utf-8")
            print(name)
    return 1 if check and stale else 0
