"""The image's Dockerfile, step by step into a folder, and the operator that stands there at work on a real cluster."""

from pathlib import Path

import pytest
from advisor import Advisor, condition, until
from dockerfile import Replay
from mofa_local import nodes
from operator_objects import small_job
from queued import read

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def image(tmp_path_factory):
    text = (ROOT / "operator" / "Dockerfile").read_text("utf-8")
    return Replay(ROOT, tmp_path_factory.mktemp("replayed")).run(text)


@pytest.mark.soak
def test_what_the_steps_leave_is_the_operator_and_nothing_to_install_with(image):
    assert image.command == ["operator"]
    assert image.user == "65532:65532"
    assert list(image.root.glob("opt/mofa/lib/python*/site-packages/mofa_operator/__pycache__/*.pyc"))
    assert not list(image.root.glob("opt/mofa/lib/python*/site-packages/pip"))
    for gone in ("bin/sh", "usr/bin/apt", "usr/bin/dpkg", "usr/local/lib/python3.12/site-packages"):
        assert not image.at(gone).exists(), gone
    assert not image.at("src").exists(), "sources stay in the stage that builds"


@pytest.mark.soak
def test_the_operator_of_the_image_advises_a_job(image, cluster, processes, namespace):
    labels = {"example.org/pool": "of-the-image"}
    nodes.create(cluster, [nodes.node(f"image-{n}", labels=labels) for n in range(2)], kwok=False)
    pool = {"apiVersion": "mofa.dev/v1alpha1", "kind": "ClusterProfile", "metadata": {"name": "of-the-image"}}
    cluster.apply(pool | {"spec": {"gpu": "h100", "nodeSelector": labels}})
    environment, entry = image.started()
    assert Path(entry[0]).is_relative_to(image.root)
    words = [
        "env",
        "-i",
        "-C",
        str(image.at(image.folder)),
        *(f"{name}={value}" for name, value in environment.items()),
    ]
    advisor = Advisor(cluster, processes, name="of-the-image", program=[*words, *entry])
    advisor.start("--settle=1", "--fence")
    try:
        cluster.apply(small_job(namespace, "small", "of-the-image"))
        until(
            lambda: (
                condition(read(cluster, "trainingjob", namespace, "small"), "Ready").get("status") == "True"
            ),
            90.0,
            "advice",
        )
    finally:
        assert advisor.stop() == 0
    assert "Traceback" not in advisor.log
