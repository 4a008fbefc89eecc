"""What a profile assumes against what its pool lived through: four percent a day, half a history,
no failure, a series missing.
"""

import time

import pytest
from advisor import condition, until
from lived import (
    AS_ASSUMED,
    DAYS,
    FOUR_PERCENT,
    WATCHED,
    past_of,
    rates_used,
    rows,
    whole,
    world_of,
)
from mofa_local.synthetic import DAY, Gap

FEW = 10
"""Days of a past that lacks a series: more of them would say the same."""
PASTS = {
    "higher": lambda name: past_of(name, FOUR_PERCENT),
    "as assumed": past_of,
    "calm": lambda name: past_of(name, dict.fromkeys(AS_ASSUMED, 0)),
    "gap": lambda name: past_of(name, gaps=(_half(),)),
    "short": lambda name: past_of(name, {"process": 1, "pod": 1, "job": 1}, days=DAYS // 2),
    "no restarts": lambda name: past_of(name, days=FEW, missing=frozenset({"kube_pod_container_status_restarts_total"})),
    "no job pods": lambda name: past_of(name, days=FEW, missing=frozenset({"kube_pod_labels"})),
    "no nodes": lambda name: past_of(name, days=FEW, missing=frozenset({"kube_node_status_condition"})),
}  # fmt: skip


def _half():
    """Fifteen days of the thirty in which Prometheus itself was down."""
    now = int(time.time())
    return Gap(at=now - (DAYS - 8) * DAY, until=now - 7 * DAY, server=True)


@pytest.fixture(scope="module")
def lived(cluster, processes, binaries, tmp_path_factory):
    """All of these pools at once; nothing happens to them any more."""
    binaries.path("prometheus")
    folder = tmp_path_factory.mktemp("assumptions")
    with world_of(
        cluster, processes, folder, PASTS, "--prometheus-interval=60", "--quiet=5"
    ) as made:
        yield made


# ---------------------------------------------------------------------------- assumed against live


def test_four_percent_where_half_a_percent_is_assumed_is_said_everywhere(lived, capsys):
    world, names = lived
    name = names["higher"]
    found, _ = world.learned(name, "Complete")
    failures, exposure = whole(found)
    assert failures == 46
    assert exposure == pytest.approx(WATCHED, rel=0.01)
    pod = rows(found)["pod"]
    assert (pod["failures"], pod["verdict"]) == (39, "HigherThanAssumed")
    assert pod["coveragePercent"] >= 99, (
        "the window begins at a multiple of its hundredth, before the history"
    )
    assert found["status"]["total"] == {
        "assumed": "5",
        "observed": f"{1000 * 46 / exposure:.3g}",
        "coveragePercent": pod["coveragePercent"],
    }
    holds = condition(found, "AssumptionsHold")
    assert (holds["status"], holds["reason"]) == ("False", "HigherThanAssumed")
    lower, mean, upper = (float(pod["rate"][end]) for end in ("lower", "mean", "upper"))
    assert lower < mean < upper
    worth, watched = float(pod["presentFailures"]), float(pod["presentNodeDays"])
    assert worth / watched == pytest.approx(39 / exposure, rel=0.5), (
        "old failures count less, and say the same"
    )
    assert mean == pytest.approx((worth + 1.2) / (watched + 400) * 1000, rel=1e-3), (
        "two failures of prior in 400 node-days"
    )
    assert lower > 3.0, "what is assumed of class pod lies below the interval"


def test_the_metrics_say_what_the_status_says(lived):
    world, names = lived
    name = names["higher"]
    found, _ = world.learned(name, "Complete")
    pod = rows(found)["pod"]
    for end in ("lower", "mean", "upper"):
        shown = world.metric(
            "mofa_pool_failures_per_node_day", pool=name, **{"class": "pod", "bound": end}
        )
        assert shown == pytest.approx(float(pod["rate"][end]) / 1000, rel=1e-3)
    assert (
        world.metric("mofa_pool_assumed_failures_per_node_day", pool=name, **{"class": "pod"})
        == 0.003
    )
    assert world.metric("mofa_pool_exposure_node_days", pool=name) == pytest.approx(
        whole(found)[1], rel=1e-3
    )
    assert (
        100 * world.metric("mofa_pool_history_coverage_ratio", pool=name) == pod["coveragePercent"]
    )
    verdict = {"pool": name, "class": "pod", "verdict": "HigherThanAssumed"}
    assert world.metric("mofa_pool_verdict", **verdict) == 1
    assert world.metric(
        "mofa_pool_prior_weight_ratio", pool=name, **{"class": "pod"}
    ) == pytest.approx(pod["priorWeightPercent"] / 100, abs=0.006)


def test_one_event_says_it_with_exposure_interval_and_coverage(lived):
    world, names = lived
    name = names["higher"]
    found, _ = world.learned(name, "Complete")
    (reason, message), *more = until(lambda: world.events(name), what="an Event")
    assert (reason, more) == ("AssumptionContradicted", [])
    assert "39 in 1,1" in message
    assert f"{1000 * 39 / whole(found)[1]:.3g} were seen" in message
    assert f"{rows(found)['pod']['coveragePercent']} % of the window covered" in message
    assert "with 90 % confidence" in message


@pytest.mark.soak
def test_the_command_line_says_the_same_verdicts_and_figures(lived, capsys):
    world, names = lived
    for key, code in (("higher", 5), ("as assumed", 0)):
        found, _ = world.learned(names[key], "Complete")
        said_code, told, _ = world.rates(names[key], capsys, "--check")
        assert said_code == code
        said = {one["name"]: one for one in told["rates"]}
        assert set(rows(found)) == set(said) - {"total"} == {"process", "pod", "job"}
        for name, row in rows(found).items():
            assert (said[name]["failures"], said[name]["verdict"]) == (
                row["failures"],
                row["verdict"],
            ), name
            for end in ("lower", "mean", "upper"):
                assert 1000 * said[name][end] == pytest.approx(
                    float(row["rate"][end]), rel=1e-3, abs=1e-4
                )
        verdicts = {one["verdict"] for one in said.values()}
        assert condition(found, "AssumptionsHold")["reason"] in verdicts
        assert told["node_days"] == pytest.approx(whole(found)[1], rel=1e-3)
        assert round(100 * told["coverage"]) == rows(found)["pod"]["coveragePercent"]


def test_advice_names_the_rates_that_it_rests_on_and_their_verdict(lived):
    world, names = lived
    found, asked = world.learned(names["higher"], "Complete")
    used = {one["name"]: one for one in asked["status"]["inputs"]["failure"]}
    assert used["pod"]["verdict"] == "HigherThanAssumed"
    mean = float(rows(found)["pod"]["rate"]["mean"])
    assert rates_used(asked)["pod"] == pytest.approx(mean, rel=0.05), (
        "advice takes two digits of it"
    )


# ---------------------------------------------------------------------- what is missing is never zero


def test_no_failure_in_thirty_days_is_said_and_the_rate_is_not_zero(lived, capsys):
    world, names = lived
    found, asked = world.learned(names["calm"], "NoFailuresSeen")
    failures, exposure = whole(found)
    assert failures == 0
    assert exposure == pytest.approx(WATCHED, rel=0.01)
    assert (
        "no failure: rates come from the assumption"
        in condition(asked, "HistoryComplete")["message"]
    )
    for name, prior in (("process", 0.6), ("pod", 1.2), ("job", 0.2)):
        mean = float(rows(found)[name]["rate"]["mean"])
        worth, watched = (
            float(rows(found)[name][f"present{what}"]) for what in ("Failures", "NodeDays")
        )
        assert mean == pytest.approx(1000 * (worth + prior) / (watched + 400), rel=2e-3)
        assert 0 < watched <= 1.001 * exposure
    _, told, _ = world.rates(names["calm"], capsys)
    assert told["notes"][0].startswith("No failure was seen: the rate comes from the assumption")
    assert all(one["failures"] == 0 < one["mean"] for one in told["rates"])
    assert {one["verdict"] for one in told["rates"] if one["name"] != "total"} == {
        row["verdict"] for row in rows(found).values()
    }


@pytest.mark.parametrize("key", ["gap", "short"])
def test_half_a_history_is_half_the_exposure_and_says_so(lived, capsys, key):
    world, names = lived
    found, asked = world.learned(names[key], "HistoryIncomplete")
    failures, exposure = whole(found)
    assert exposure == pytest.approx(WATCHED / 2, rel=0.02), "only what was seen"
    assert rows(found)["pod"]["coveragePercent"] == pytest.approx(50, abs=1)
    assert 0 < failures <= 6
    assert condition(asked, "HistoryComplete")["status"] == "False"
    assert "only what was seen counts as exposure" in condition(asked, "HistoryComplete")["message"]
    assert [reason for reason, _ in world.events(names[key])] == ["HistoryIncomplete"]
    assert world.metric("mofa_pool_history_coverage_ratio", pool=names[key]) == pytest.approx(
        0.5, abs=0.01
    )
    _, told, _ = world.rates(names[key], capsys)
    assert told["coverage"] == pytest.approx(0.5, abs=0.01)
    assert told["node_days"] == pytest.approx(exposure, rel=0.01)
    assert "Part of the window has no data; only what was seen counts as exposure." in told["notes"]


def test_without_restart_counters_one_class_is_the_assumption_and_the_series_is_named(
    lived, capsys
):
    world, names = lived
    series = "kube_pod_container_status_restarts_total"
    found, asked = world.learned(names["no restarts"], "SeriesMissing")
    assert set(rows(found)) == {"pod", "job"}, "nothing counted is not a count of nothing"
    for one in (found, asked):
        assert (
            f"there is no series {series}" in condition(one, "HistoryComplete")["message"].lower()
        )
        assert condition(one, "HistoryComplete")["status"] == "False"
    assert rates_used(asked)["process"] == pytest.approx(1.5)
    assert world.metric("mofa_pool_verdict", pool=names["no restarts"], **{"class": "process", "verdict": "InsufficientData"}) == 1  # fmt: skip
    _, told, _ = world.rates(names["no restarts"], capsys)
    said = {one["name"]: one for one in told["rates"]}
    assert set(said) - {"total"} == {"pod", "job"}
    assert said["pod"]["mean"] * 1000 == pytest.approx(
        float(rows(found)["pod"]["rate"]["mean"]), rel=1e-3
    )
    assert told["notes"][0] == f"There is no series {series}: only class pod, job can be counted."


def test_without_labels_of_pods_failures_of_nodes_are_counted_and_that_is_said(lived, capsys):
    world, names = lived
    found, asked = world.learned(names["no job pods"], "SeriesMissing")
    assert set(rows(found)) == {"pod"}
    assert "kube_pod_labels of training pods" in condition(asked, "HistoryComplete")["message"]
    _, told, _ = world.rates(names["no job pods"], capsys)
    assert told["notes"][0].startswith("There is no series kube_pod_labels of training pods")


def test_without_nodes_nothing_is_known_the_advice_is_the_assumption_s_and_marked(lived, capsys):
    world, names = lived
    found, asked = world.learned(names["no nodes"], "SeriesMissing")
    assert not found["status"].get("failures")
    assert "kube_node_status_condition" in condition(asked, "HistoryComplete")["message"]
    assert condition(asked, "ConfidenceSufficient")["reason"] == "PriorDominated"
    assert condition(asked, "Ready")["reason"] == "PriorDominated"
    assert rates_used(asked) == {"process": 1.5, "pod": 3.0, "job": 0.5}
    assert [reason for reason, _ in world.events(names["no nodes"])] == ["HistoryUnavailable"]
    code, told, said = world.rates(names["no nodes"], capsys)
    assert (code, told) == (4, None)
    assert "kube_node_status_condition has no data" in said
