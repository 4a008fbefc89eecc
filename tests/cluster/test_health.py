"""A job that never makes a first step, beside one that trains: status, kubectl, metric, page and
the alert of the shipped rules.

Thresholds of minutes are seconds here; everything else is as it is shipped, and each part is a
process of its own.
"""

import json
import urllib.request
from pathlib import Path

import pytest
from advisor import condition, until
from live_site import Site
from mofa_local.prometheus import Scrape
from operator_objects import small_job
from ruamel.yaml import YAML

RULES = Path(__file__).resolve().parents[2] / "deploy" / "rules" / "mofa-alerts.yaml"
FLAGS = (
    "--settle=0.5",
    "--backoff=0.2",
    "--prometheus-interval=1",
    "--quiet=2",
    "--start-least=1",
    "--stuck-least=4",
    "--page",
)


@pytest.fixture
def site(cluster, processes, binaries, tmp_path):
    binaries.path("prometheus")
    made = Site(cluster, processes, tmp_path, FLAGS, name="health")
    yield made
    made.stop()


def stuck_rule(folder):
    """The shipped alert, evaluated each second and at once."""
    alerts = YAML(typ="safe").load(RULES)["groups"][0]["rules"]
    (rule,) = [one for one in alerts if one["alert"] == "MofaJobStuck"]
    path = folder / "rule.json"
    path.write_text(
        json.dumps({"groups": [{"name": "one", "interval": "1s", "rules": [rule | {"for": "0s"}]}]})
    )
    return path


def test_a_job_without_a_first_step_is_stuck_everywhere_and_one_that_trains_is_healthy(
    site, namespace, tmp_path
):
    operator = Scrape(
        job="operator", target=site.advisor.url.removeprefix("http://"), interval="1s"
    )
    site.prometheus.configure([site.scrape, operator], [stuck_rule(tmp_path)])
    site.prometheus.reload()
    quick = {"classes": [{"name": "job", "failuresPerThousandNodeDays": "1", "recoverySeconds": 1}]}
    pool = site.pool(failures=quick)
    site.workload.loading.add(f"{namespace}/hangs")
    site.cluster.apply(*(small_job(namespace, name, pool) for name in ("hangs", "trains")))

    def health(name):
        return (site.read("tjob", name, namespace).get("status") or {}).get("health", "")

    until(lambda: health("trains") == "Healthy", what="one trains")
    until(lambda: health("hangs") == "Stuck", what="the other does not")
    told = condition(site.read("tjob", "hangs", namespace), "PredictionAccurate")
    assert (told["status"], told["reason"]) == ("False", "Stuck")
    shown = site.cluster.kubectl("get", "tjob", "-n", namespace).splitlines()
    assert "HEALTH" in shown[0]
    assert all(len(line) <= 120 for line in shown), "it fits on a terminal"
    assert [line.split()[-2] for line in shown[1:]] == ["Stuck", "Healthy"]
    late = site.cluster.kubectl(
        "get", "tjob", "-n", namespace, "--field-selector=status.health=Stuck", "-o", "name"
    )
    assert late.split() == ["trainingjob.mofa.dev/hangs"]
    firing = until(
        lambda: site.prometheus.ask('ALERTS{alertname="MofaJobStuck",alertstate="firing"}'),
        what="the alert",
    )
    assert [labels["training_job"] for labels, _ in firing] == ["hangs"]
    with urllib.request.urlopen(f"{site.advisor.url}/?namespace={namespace}", timeout=30) as answer:
        page = answer.read().decode()
    first, second = page.index(f"{namespace}/hangs"), page.index(f"{namespace}/trains")
    assert (
        first
        < page.index('<span class="bad">Stuck</span>')
        < second
        < page.index('<span class="good">Healthy</span>')
    )
