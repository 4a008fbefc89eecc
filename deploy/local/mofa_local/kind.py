"""A kind cluster as another provider of the same suite: nodes are containers, and all controllers
run.

Where podman is the engine, kind is built from its Go module if it is not on PATH, and its node is
an image that is made here (`kind_node.py`): nothing is pulled. Other engines take kind from PATH,
and its published image.

python -m mofa_local.kind       says whether one can be made here, and if not, why (exit code 1)
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from mofa_local import LocalStackError, binaries, images
from mofa_local.cluster import Cluster
from mofa_local.identities import write_private

OURS: Final = "podman"
"""The engine for which an image of a node is made here."""

MODULES: Final = Path("/lib/modules")
"""Where a kernel's modules lie; kind mounts it."""

CONFIG: Final = Path(__file__).resolve().parents[2] / "kind" / "cluster.yaml"
"""What the cluster is made of."""

ENGINES: Final = ("docker", "podman", "nerdctl")
"""Container engines that kind knows, in its order."""

NEEDS: Final = (
    "Needed are podman, runc and mmdebstrap, as root; or kind with docker or nerdctl, "
    "and a network for the image of its node"
)
"""Programs that must be installed."""


class NoKind(LocalStackError):
    """kind is missing, or no container engine answers; the message says which."""


def engine() -> str:
    """The container engine that kind would use."""
    reasons = []
    for name in ENGINES:
        why = _unusable(name)
        if not why:
            return name
        reasons.append(f"{name} {why}")
    raise NoKind(f"no container engine for kind here: {'; '.join(reasons)}. {NEEDS}")


def _unusable(name: str) -> str:
    """Why kind cannot use an engine here; empty where it can."""
    if shutil.which(name) is None:
        return "is not on PATH"
    if name != OURS and shutil.which("kind") is None:
        return "is there, but kind is not on PATH"
    if name == OURS and os.geteuid() != 0:
        return "would need root, for the node of our own"
    if name == OURS and shutil.which("mmdebstrap") is None:
        return "is there, but mmdebstrap is not on PATH, which makes the node of our own"
    try:
        done = subprocess.run([name, "info"], capture_output=True, check=False, timeout=30)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"does not answer: {error}"
    return "" if done.returncode == 0 else f"info ends with {done.returncode}"


class Kind(Cluster):
    """A cluster of kind that is made when the block begins and deleted when it ends."""

    def __init__(self, folder: Path) -> None:
        self._name = f"mofa-{secrets.token_hex(3)}"
        self._engine = ENGINES[0]
        self._settings: Path | None = None
        self._made: list[Path] = []
        # kind writes into the file that stands there, and so leaves it private.
        super().__init__(write_private(folder / "admin.kubeconfig", ""), folder)

    def __enter__(self) -> Self:
        self._engine = engine()
        config = self._made_here() if self._engine == OURS else CONFIG
        try:
            self._kind("create", f"--config={config}", "--wait=180s")
        except LocalStackError:
            self._leave()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._leave()

    def _made_here(self) -> Path:
        """A cluster whose node image is built here; what podman and kind expect of the machine is
        set up for as long.
        """
        from ruamel.yaml import YAML

        from mofa_local.kind_node import node_image

        ulimits = [limit.removeprefix("--ulimit=") for limit in images.limits()]
        settings = (
            f'[containers]\ndefault_ulimits = {json.dumps(ulimits)}\n[engine]\nruntime = "runc"\n'
        )
        self._settings = write_private(self.folder / "containers.conf", settings)
        if not MODULES.exists():  # a machine whose kernel has none in files
            MODULES.mkdir(parents=True)
            self._made.append(MODULES)
        yaml = YAML(typ="safe")
        config = yaml.load(CONFIG)
        config["nodes"] = [node | {"image": node_image()} for node in config["nodes"]]
        config["networking"] |= {"disableDefaultCNI": True, "kubeProxyMode": "none"}
        patch = {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "failCgroupV1": False,
        }
        config["kubeadmConfigPatches"].append(json.dumps(patch))
        return write_private(self.folder / "kind.yaml", json.dumps(config))

    def _leave(self) -> None:
        """Delete the cluster, and what was made for it."""
        self._kind("delete")
        for place in self._made:
            place.rmdir()
        if self._settings is not None:
            images.podman(
                "network", "rm", "kind", check=False
            )  # refused while another cluster uses it

    def _kind(self, verb: str, *options: str) -> None:
        ours = {} if self._settings is None else {"CONTAINERS_CONF": str(self._settings)}
        done = subprocess.run(
            [shutil.which("kind") or binaries.path("kind"), verb, "cluster", f"--name={self._name}",
                f"--kubeconfig={self.kubeconfig}", *options],
            capture_output=True, text=True, check=False,
            env=os.environ | {"KIND_EXPERIMENTAL_PROVIDER": self._engine} | ours,
        )  # fmt: skip
        if done.returncode:
            raise LocalStackError(f"kind {verb} cluster: {done.stderr.strip()}")


def main() -> int:
    """Print which engine would be used."""
    try:
        print(f"kind on {engine()}")
    except NoKind as missing:
        print(missing)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
