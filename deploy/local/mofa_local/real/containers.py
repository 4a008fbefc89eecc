"""containerd in a machine of its own, and the images that it is given: nothing is pulled, for
everything was made here.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from mofa_local.processes import Processes
from mofa_local.real.archives import pause_image
from mofa_local.real.machine import PLUGINS, Machine

SOCKET: Final = "/run/containerd/containerd.sock"
"""Socket of containerd, in the machine."""
PAUSE: Final = "localhost/mofa-local/pause:1"
"""Image of the container that holds the namespaces of a pod."""
PODS: Final = "10.65.0.0/24"
"""Addresses of pods."""
_CONFIG: Final = """\
version = 2
root = "{root}"
state = "/run/containerd/state"
imports = []
[grpc]
  address = "{socket}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause}"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{plugins}"
    conf_dir = "{network}"
"""


class Containers:
    """containerd and its network of pods."""

    def __init__(self, machine: Machine, processes: Processes) -> None:
        self._machine = machine
        self._processes = processes
        self._folder = machine.folder

    def start(self) -> None:
        """Start containerd, and load the image that holds pods."""
        network = self._folder / "cni"
        network.mkdir(exist_ok=True)
        (network / "10-mofa.conflist").write_text(
            json.dumps(_network(), indent=2) + "\n", encoding="utf-8"
        )
        config = self._folder / "containerd.toml"
        config.write_text(
            _CONFIG.format(
                root=self._folder / "containerd",
                socket=SOCKET,
                pause=PAUSE,
                plugins=PLUGINS,
                network=network,
            ),
            encoding="utf-8",
        )
        self._processes.start(
            "containerd",
            self._machine.inside("containerd", f"--config={config}", "--log-level=warn"),
            ready=self._answers,
        )
        self.load(pause_image(PAUSE))

    def load(self, archive: Path) -> None:
        """Load an image from the file that a build has left."""
        self._ctr("images", "import", str(archive))

    def name(self, image: str, other: str) -> None:
        """Have pods find an image by another name as well."""
        self._ctr("images", "tag", "--force", image, other)

    def images(self) -> list[str]:
        """Names of the images in containerd."""
        return [
            image
            for image in self._ctr("images", "list", "-q").split()
            if not image.startswith("sha256:")
        ]

    def _answers(self) -> bool:
        from mofa_local import LocalStackError

        try:
            self._ctr("version")
        except LocalStackError:
            return False
        return True

    def _ctr(self, *words: str) -> str:
        return self._machine.run("ctr", f"--address={SOCKET}", "--namespace=k8s.io", *words)


def _network() -> dict[str, object]:
    """A bridge in the machine: pods reach one another, the machine, and through it what wires
    carry; nothing else.
    """
    addresses = {
        "type": "host-local",
        "ranges": [[{"subnet": PODS}]],
        "routes": [{"dst": "0.0.0.0/0"}],
        "dataDir": "/run/cni",
    }
    bridge = {
        "type": "bridge",
        "bridge": "mofa0",
        "isGateway": True,
        "hairpinMode": True,
        "ipam": addresses,
    }
    return {"cniVersion": "1.0.0", "name": "mofa", "plugins": [bridge]}
