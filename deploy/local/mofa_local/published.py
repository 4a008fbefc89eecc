"""A Go module as its project publishes it: fetched at its version, held against its hash, built in
a copy of its own folder.

So its own go.mod and go.sum say what goes into it. Of the folder nothing stays but the program and
what the project's own kustomizations make of its definitions, roles and webhooks.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from mofa_local import LocalStackError
from mofa_local.go import FLAGS

MANIFESTS: Final = "manifests.json"
"""File beside the program, with the objects that its project installs."""
_FETCH: Final = 300.0
"""Longest time of a download. [s]"""


class NotFetched(LocalStackError):
    """A module cannot be had here: no network, or an index that does not serve it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Published:
    """A Go module as its project publishes it."""

    name: str
    """Name of the module here."""
    requires: str
    """Path of the module."""
    release: str
    """Its version."""
    sum: str
    """Hash of its files, as go.sum has it."""
    go: tuple[int, int]
    """The oldest Go that builds it, from its go.mod."""
    installs: tuple[str, ...]
    """Folders whose kustomizations make what it installs."""
    namespace: str = ""
    """The namespace that they leave open."""

    @property
    def version(self) -> tuple[int, int, int]:
        """The version as numbers.

        >>> from mofa_local.neighbours import NEIGHBOURS
        >>> NEIGHBOURS["jobset"].tool.module.version > (0, 10, 0)
        True
        """
        major, minor, patch = (int(part) for part in self.release.removeprefix("v").split("."))
        return major, minor, patch

    @property
    def flags(self) -> tuple[str, ...]:
        """The flags of `go build`."""
        return (*FLAGS, "-ldflags", "-s -w")

    @property
    def key(self) -> str:
        """Its name and a hash of all that decides what is built."""
        parts = (
            self.requires, self.release, self.sum, *self.flags, *self.installs, self.namespace,
            platform.system(), platform.machine(),
        )  # fmt: skip
        return f"{self.name}-{hashlib.sha256(chr(0).join(parts).encode()).hexdigest()[:12]}"

    @contextmanager
    def source(self, go: Path, kept: Path, kubectl: Path | None) -> Iterator[Path]:
        """A copy of its files to build in; what it installs is written to the folder `kept`."""
        copy = kept / ".source"
        shutil.rmtree(copy, ignore_errors=True)
        try:
            shutil.copytree(self._fetch(go), copy)
            for path in (copy, *copy.rglob("*")):
                path.chmod(path.stat().st_mode | 0o200)
            if kubectl is not None:
                manifests = [
                    install
                    for place in self.installs
                    for install in self._installs(copy / place, kubectl)
                ]
                unfinished = kept / f".{MANIFESTS}"
                unfinished.write_text(json.dumps(manifests), encoding="utf-8")
                unfinished.replace(kept / MANIFESTS)
            yield copy
        finally:
            shutil.rmtree(copy, ignore_errors=True)

    def _fetch(self, go: Path) -> Path:
        """Fetch the module; returns its folder in Go's module cache."""
        command = [str(go), "mod", "download", "-json", f"{self.requires}@{self.release}"]
        environment = os.environ | {"GOWORK": "off", "GOFLAGS": "-mod=mod"}
        try:
            done = subprocess.run(
                command,
                cwd="/",
                env=environment,
                capture_output=True,
                text=True,
                check=False,
                timeout=_FETCH,
            )
            module = json.loads(done.stdout or "{}")
        except (subprocess.TimeoutExpired, json.JSONDecodeError) as error:
            raise NotFetched(
                f"{self.requires}@{self.release}: cannot be fetched: {error}"
            ) from error
        if done.returncode or "Dir" not in module:
            why = module.get("Error") or done.stderr.strip() or "go says nothing"
            raise NotFetched(
                f"{self.requires}@{self.release}: cannot be fetched: {why.splitlines()[-1]}"
            )
        if module.get("Sum") != self.sum:
            raise LocalStackError(
                f"{self.requires}@{self.release}: its hash is {module.get('Sum')}, and {self.sum} "
                "would be right"
            )
        return Path(module["Dir"])

    def _installs(self, place: Path, kubectl: Path) -> list[dict[str, Any]]:
        from ruamel.yaml import YAML

        if self.namespace:
            outer = place.with_name(f".{place.name}-here")
            outer.mkdir()
            text = f"namespace: {self.namespace}\nresources: [../{place.name}]\n"
            (outer / "kustomization.yaml").write_text(text, encoding="utf-8")
            place = outer
        made = subprocess.run(
            [str(kubectl), "kustomize", str(place)], capture_output=True, text=True, check=False
        )
        if made.returncode:
            raise LocalStackError(f"{self.name}: {place}: {made.stderr.strip()}")
        return [manifest for manifest in YAML(typ="safe").load_all(made.stdout) if manifest]
