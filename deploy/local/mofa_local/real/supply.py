"""The images of a real node: nothing can be pulled here, so what pods may run is made on this
machine and carried there.

localhost/mofa-local/advisor:1    the operator and `mofa observe`, built from this tree by its
                                  Dockerfile
localhost/mofa-local/torch:1.13   PyTorch for the CPU, with gloo
localhost/mofa-local/ray:2.60     Ray, for the clusters of KubeRay
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Final

from mofa_local import images
from mofa_local.real import archives
from mofa_local.real.containers import Containers

ADVISOR: Final = "localhost/mofa-local/advisor:1"
TORCH: Final = "localhost/mofa-local/torch:1.13"
RAY: Final = "localhost/mofa-local/ray:2.60"


def load(containers: Containers) -> None:
    """Load the images of the operator and of the toy trainer, built where they are missing."""
    load_advisor(containers)
    load_torch(containers)


def load_advisor(containers: Containers, tree: Path = images.ROOT) -> str:
    """The image of a tree, as a person builds it; the result is what podman calls it."""
    built = images.advisor_image(tree)
    with tempfile.TemporaryDirectory(prefix="mofa-image-") as folder:
        archive = Path(folder) / "advisor.tar"
        images.podman("save", "--format=docker-archive", "-o", str(archive), built)
        containers.load(archive)
    containers.name(built, ADVISOR)
    return built


def load_torch(containers: Containers) -> None:
    """Load the image of PyTorch; making it the first time takes two minutes."""
    containers.load(archives.torch_image(TORCH))


def load_ray(containers: Containers) -> None:
    """Load the image of Ray; making it the first time takes a minute."""
    containers.load(archives.ray_image(RAY))
