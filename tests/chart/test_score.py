"""kube-score reads what helm makes; everything that it would have otherwise is explained here, and
nowhere else.
"""

import json
import subprocess

import pytest
from helm import SETS, VERSION, text
from mofa_local import binaries

EXPLAINED = {
    ("container-resources", "CPU limit is not set"): (
        "A limit throttles the process that computes advice although the node is idle; the request says its share."
    ),
    ("container-image-pull-policy", "ImagePullPolicy is not set to Always"): (
        "A release's tag never moves, and image.digest pins it; a node that has the image starts without its registry."
    ),
    ("pod-networkpolicy", "The pod does not have a matching NetworkPolicy"): (
        "The pod of `helm test` lives for a second and has none."
    ),
    ("pod-networkpolicy", "The pod does not have a matching egress NetworkPolicy"): (
        "networkPolicy.limitEgress limits egress: where API server and Prometheus are, the chart cannot know."
    ),
    ("deployment-strategy", "Deployment update strategy"): (
        "Recreate: two operators would write against each other. With leaderElection.enabled it is RollingUpdate."
    ),
    ("deployment-replicas", "Deployment few replicas"): (
        "One replica, since only one writes; what it missed while it restarted it finds by listing."
    ),
    (
        "deployment-has-host-podantiaffinity",
        "Deployment does not have a host podAntiAffinity set",
    ): (
        "Replicas are spread over nodes by a topology spread constraint, which does not keep them pending on one node."
    ),
}
SCORED = (
    "default",
    "highly available",
    "page behind a network policy",
    "a token and an authority",
    "pinned, with everything extra",
)


@pytest.fixture(scope="module")
def findings():
    """What kube-score does not like in each set of values."""

    def score(name):
        values, options = SETS[name]
        done = subprocess.run(
            [binaries.path("kube-score"), "score", f"--kubernetes-version=v{VERSION}", "-o", "json", "-"],
            input=text(values, *options), capture_output=True, text=True, check=False,
        )  # fmt: skip
        return {
            (check["check"]["id"], comment["summary"])
            for scored in json.loads(done.stdout)
            for check in scored["checks"]
            if check["grade"] < 10 and not check["skipped"]
            for comment in check["comments"] or [{"summary": ""}]
        }

    return {name: score(name) for name in SCORED}


@pytest.mark.parametrize("name", SCORED)
def test_every_finding_is_explained(findings, name):
    assert findings[name] - set(EXPLAINED) == set()


def test_nothing_is_explained_that_is_not_found(findings):
    assert set().union(*findings.values()) == set(EXPLAINED)
