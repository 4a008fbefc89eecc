"""The operator in a container of its own image, at work on a real cluster."""

from pathlib import Path

import pytest
from advisor import Advisor, condition, read, until
from mofa_local import images, nodes
from operator_objects import small_job

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.soak
def test_the_operator_in_its_container_advises_a_job(cluster, processes, namespace, tmp_path):
    try:
        images.base_image()
    except images.NoImages as missing:
        pytest.skip(f"no image can be built here: {missing}")
    labels = {"example.org/pool": "of-the-image"}
    nodes.create(cluster, [nodes.node(f"image-{n}", labels=labels) for n in range(2)], kwok=False)
    pool = {
        "apiVersion": "mofa.dev/v1alpha1",
        "kind": "ClusterProfile",
        "metadata": {"name": "of-the-image"},
    }
    cluster.apply(pool | {"spec": {"gpu": "h100", "nodeSelector": labels}})
    access = tmp_path / "kubeconfig"
    access.write_text(
        cluster.identity("advisor", service_account="mofa-system/mofa-advisor").read_text("utf-8")
    )
    access.chmod(0o644)  # the container's user is none of this machine
    program = images.command(
        *(
            "run",
            "--rm",
            "--network=host",
            "--memory=512m",
            "--read-only",
            "--tmpfs=/tmp",
            "--cap-drop=all",
        ),
        *(f"--volume={access}:{access}:ro", images.advisor_image(ROOT)),
    )
    advisor = Advisor(cluster, processes, name="of-the-image", program=program, kubeconfig=access)
    advisor.start("--settle=1", "--fence")
    try:
        cluster.apply(small_job(namespace, "small", "of-the-image"))
        until(
            lambda: (
                condition(read(cluster, "trainingjob", namespace, "small"), "Ready").get("status")
                == "True"
            ),
            90.0,
            "advice",
        )
    finally:
        assert advisor.stop() == 0
    assert "Traceback" not in advisor.log
