"""Another release of JobSet and of KubeRay than those beside which everything else is tested, on
the real node.
"""

import pytest
from started import checked, event_lines, job_set, on_real_node, ray_job

pytestmark = pytest.mark.soak
CONTROLLERS = ("jobset-0.10", "kuberay-1.5")
MADE = {"jobset": job_set, "rayjob": ray_job}


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    with on_real_node(tmp_path_factory.mktemp("releases"), *CONTROLLERS) as made:
        yield made


@pytest.mark.parametrize("kind", MADE)
def test_what_is_said_of_a_job_is_what_its_process_was_started_with(site, kind):
    site.cluster.apply(MADE[kind]("ml-1", "other"))
    assert checked(site, kind, "ml-1", "other"), event_lines(site, "ml-1", "other")
    site.gone(kind, "ml-1", "other")
