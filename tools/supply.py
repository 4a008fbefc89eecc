"""Licences and known vulnerabilities of what a release installs, from files in the tree alone.

    python tools/supply.py

The locks say which versions, the installed packages what their licence is, requirements/supply.toml
what may be. Whoever has a network asks an advisory database too, and writes what is new there into
that file.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from packaging.version import Version

ROOT = Path(__file__).resolve().parent.parent
LOCKS = ("core", "operator")
"""Locks of what people install: the command, and the image."""
_NAMED = {"Apache 2.0": "Apache-2.0", "Apache Software License": "Apache-2.0"}
_PART = re.compile(r"^([A-Za-z0-9._-]+)==([^ \\;]+)", re.MULTILINE)


def locked(folder: Path = ROOT / "requirements") -> dict[str, str]:
    """Versions by package, of all locks of a release."""
    versions: dict[str, str] = {}
    for lock in LOCKS:
        versions |= dict(_PART.findall((folder / f"{lock}.txt").read_text(encoding="utf-8")))
    return versions


def licence(name: str, stated: Mapping[str, str]) -> str:
    """The licence of a package, as its metadata or this project say; empty where nobody does."""
    if name in stated:
        return stated[name]
    try:
        fields = metadata.metadata(name)
    except metadata.PackageNotFoundError:
        return ""
    words = fields.get("License-Expression") or fields.get("License") or ""
    return _NAMED.get(words, words)


def errors_of(parts: Mapping[str, str], rules: Mapping[str, Any]) -> Iterator[str]:
    """What may not be in a release, in sentences.

    >>> rules = {"licences": ["MIT"], "stated": {"a": "MIT", "b": "AGPL-3.0"}}
    >>> rules["fixed"] = {"a": {"CVE-1": "2.0"}}
    >>> for sentence in errors_of({"a": "1.9", "b": "1"}, rules):
    ...     print(sentence)
    a 1.9: CVE-1 is fixed in 2.0; move to it with make lock
    b: AGPL-3.0 is no licence that a part may have
    """
    allowed = set(rules["licences"])
    for name, version in sorted(parts.items()):
        given = licence(name, rules["stated"])
        words = {word for word in re.split(r"[()\s]+|\bAND\b|\bOR\b", given) if word}
        if not words:
            yield f"{name}: it names no licence; read it, and state it in requirements/supply.toml"
        elif not words <= allowed:
            yield f"{name}: {given} is no licence that a part may have"
        for advisory, fixed in rules["fixed"].get(name, {}).items():
            if Version(version) < Version(fixed):
                yield f"{name} {version}: {advisory} is fixed in {fixed}; move to it with make lock"


def main() -> int:
    """Say what is wrong; the result is the exit code."""
    rules = tomllib.loads((ROOT / "requirements" / "supply.toml").read_text(encoding="utf-8"))
    errors = list(errors_of(locked(), rules))
    for line in errors:
        print(f"supply: {line}")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
