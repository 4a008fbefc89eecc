"""An operator whose fence was taken away writes nothing, says so, and goes on by itself once it
is back.
"""

import json
import time
from pathlib import Path

from advisor import Advisor, until
from operator_objects import small_job
from ruamel.yaml import YAML

ROOT = Path(__file__).parents[2]
FENCE = "mofa-advisor-fence"


def test_without_its_fence_nothing_is_written(cluster, processes, namespace):
    manifest = [
        one
        for one in YAML(typ="safe").load_all(
            (ROOT / "deploy" / "manifests" / "admission-policy.yaml").read_text()
        )
        if one["kind"] == "ValidatingAdmissionPolicyBinding" and one["metadata"]["name"] == FENCE
    ]
    profile = YAML(typ="safe").load((ROOT / "examples" / "h100-east.yaml").read_text())
    cluster.apply(profile, small_job(namespace, "fenced", "h100-east"))
    advisor = Advisor(cluster, processes, "operator-fence")
    cluster.kubectl("delete", "validatingadmissionpolicybinding", FENCE)
    try:
        time.sleep(2.0)  # the API server has to notice
        advisor.start("--fence", wait=False)
        until(lambda: "the fence does not hold" in str(advisor.probe("readyz")["reasons"]), 60.0)
        assert advisor.probe("healthz")["ok"]
        assert "mofa_advisor_fence_holds 0.0" in advisor.metrics()
        time.sleep(3.0)
        assert "status" not in json.loads(
            cluster.kubectl("get", "tjob", "fenced", "-n", namespace, "-o", "json")
        )
        cluster.apply(*manifest)
        until(lambda: advisor.probe("readyz")["ok"], 90.0)
        assert "mofa_advisor_fence_holds 1.0" in advisor.metrics()
        until(
            lambda: (
                "status"
                in json.loads(
                    cluster.kubectl("get", "tjob", "fenced", "-n", namespace, "-o", "json")
                )
            )
        )
        assert cluster.kubectl("get", "failureledgers", "-o", "name").count("proof") == 0
    finally:
        cluster.apply(*manifest)
        advisor.stop()
