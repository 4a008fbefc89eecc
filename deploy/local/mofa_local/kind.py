"""A kind cluster as another provider of the same suite: nodes are containers, and all controllers run.

python -m mofa_local.kind       says whether one can be made here, and if not, why (exit code 1)
"""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from mofa_local import LocalStackError
from mofa_local.cluster import Cluster
from mofa_local.identities import write_private

CONFIG: Final = Path(__file__).resolve().parents[2] / "kind" / "cluster.yaml"
"""What the cluster is made of."""

ENGINES: Final = ("docker", "podman", "nerdctl")
"""Container engines that kind knows, in its order."""

NEEDS: Final = f"needed are kind, one of {', '.join(ENGINES)} whose `info` ends well, and a network for the image of its node"
"""What has to be here."""


class NoKind(LocalStackError):
    """There is no kind here, or no container engine that answers; the message says which."""


def engine() -> str:
    """The container engine that kind would use."""
    if shutil.which("kind") is None:
        raise NoKind(f"kind is not on PATH; {NEEDS}")
    found = [name for name in ENGINES if shutil.which(name)]
    for name in found:
        try:
            done = subprocess.run([name, "info"], capture_output=True, check=False, timeout=30)
        except (OSError, subprocess.TimeoutExpired):
            continue
        if done.returncode == 0:
            return name
    here = ", ".join(f"{name} info" for name in found) or f"none of {', '.join(ENGINES)} is on PATH"
    raise NoKind(f"no container engine answers ({here}); {NEEDS}")


class Kind(Cluster):
    """A cluster of kind that is made when the block begins and deleted when it ends."""

    def __init__(self, folder: Path) -> None:
        self._name = f"mofa-{secrets.token_hex(3)}"
        self._engine = ENGINES[0]
        # kind writes into the file that stands there, and so leaves it private.
        super().__init__(write_private(folder / "admin.kubeconfig", ""), folder)

    def __enter__(self) -> Self:
        self._engine = engine()
        try:
            self._kind("create", f"--config={CONFIG}", "--wait=180s")
        except LocalStackError:
            self._kind("delete")
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._kind("delete")

    def _kind(self, verb: str, *options: str) -> None:
        done = subprocess.run(
            ["kind", verb, "cluster", f"--name={self._name}", f"--kubeconfig={self.kubeconfig}", *options],
            capture_output=True, text=True, check=False,
            env=os.environ | {"KIND_EXPERIMENTAL_PROVIDER": self._engine},
        )  # fmt: skip
        if done.returncode:
            raise LocalStackError(f"kind {verb} cluster: {done.stderr.strip()}")


def main() -> int:
    """Say which engine would be used."""
    try:
        print(f"kind on {engine()}")
    except NoKind as missing:
        print(missing)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
