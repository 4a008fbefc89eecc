"""What a scrape shows: figures as they were last shown, nothing for what is missing, counters that
never fall.
"""

import math
import time
import tracemalloc
from dataclasses import replace
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from operator_objects import NOW, known_pool
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families as parse

from mofa_model.kinds import JOB_SET
from mofa_model.units import Range
from mofa_operator.decision import JobFigures, PoolFigures
from mofa_operator.keys import CLUSTER_PROFILE, TRAINING_JOB, Key
from mofa_operator.metrics.declared import POOLS, TABLE, Type
from mofa_operator.metrics.exporter import Exporter
from mofa_operator.objects import Chances, live
from mofa_operator.snapshot import NodeCount, ProfileSnapshot, Running

BAND = Range(lower=0.8, target=1.0, upper=1.2)
WHO = {"training_namespace": "research", "training_job": "llama", "training_kind": "TrainingJob"}


def running(**seen):
    return Running(**(dict(source="mofa", tokens_per_second=1e6, step_seconds=3.5, step=7) | seen))


def job(name="llama", kind=TRAINING_JOB, **figures):
    return JobFigures(key=Key(kind, "research", name), profile="h100-east", **figures)


def full_job(name="llama"):
    return job(
        name,
        predicted=dict.fromkeys(
            ("tokens_per_second", "step_seconds", "ettr", "mfu", "memory_bytes"), BAND
        ),
        strategy={"tp": "8", "pp": "16", "dp": "16", "recompute": "selective"},
        chances=Chances(fits=0.94, beats=0.6),
        checkpoint_interval=600.0,
        objective_ettr=0.9,
        residual=-0.05,
        memory_limits={"prediction": 6e10, "device": 7.5e10},
        step_due=1300.0,
        should_train=True,
        running=running(
            ettr=0.93,
            memory_bytes=5e10,
            checkpoint_interval=720.0,
            interruptions={("pod", "failure"): 2, ("process", "failure"): 1},
            recoveries={"pod": (100.0, 200.0)},
            lost={"failure": 300.0},
        ),
    )


def profile(nodes=("a", "b", "c"), ready=2):
    """A pool of which nothing is known but its nodes."""
    snapshot = ProfileSnapshot(
        profile=live(CLUSTER_PROFILE, {"metadata": {"name": "h100-east"}}),
        node_count=NodeCount(total=len(nodes), ready=ready, names=nodes),
        now=NOW,
    )
    return PoolFigures(snapshot=snapshot)


@pytest.fixture
def clock():
    class Clock:
        now = 1000.0

        def __call__(self):
            return self.now

    return Clock()


@pytest.fixture
def exporter(clock):
    return Exporter(CollectorRegistry(), clock=clock)


def samples(exporter):
    """Every sample by name and labels."""
    text = exporter.page()[0].decode()
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in parse(text)
        for sample in family.samples
    }


def value(exporter, name, **labels):
    return samples(exporter).get((name, frozenset(labels.items())))


def names(exporter):
    return {name for name, _ in samples(exporter)}


def all_of_it(exporter):
    """Everything that can be exported is exported."""
    exporter.show(full_job())
    exporter.show(known_pool())
    exporter.build("0.1.0", "7")
    exporter.success("resync")
    exporter.lead(leads=True)
    exporter.fence(holds=True)
    exporter.queue(3, 1.5)
    exporter.watch(JOB_SET, up=True)
    exporter.count_write("apply", "ok")
    exporter.count_recommendation("TrainingJob", "Recommended", "Recommended")
    exporter.count_history("prometheus", "ok")
    exporter.count_differences(2)
    exporter.count_check("Ready")
    exporter.observe_decision(0.2)
    exporter.observe_gate(12.0, "released")
    exporter._most_jobs = 1
    exporter.show(job("one-too-many"))


def test_every_declared_metric_is_exported_with_its_type_and_labels(exporter):
    all_of_it(exporter)
    families = {family.name: family for family in parse(exporter.page()[0].decode())}
    for declared in TABLE:
        family = families[declared.family if declared.type is Type.COUNTER else declared.name]
        assert family.type == ("gauge" if declared.type is Type.INFO else declared.type.value)
        assert family.documentation == declared.help
        for sample in family.samples:
            assert set(sample.labels) - {"le"} == set(declared.labels), declared.name
            assert sample.name in declared.series


def test_nothing_is_exported_that_is_not_declared(exporter):
    all_of_it(exporter)
    assert names(exporter) == {name for declared in TABLE for name in declared.series}


def test_labels_that_scraping_sets_are_never_ours():
    for declared in TABLE:
        assert not {"job", "instance", "namespace", "pod", "cluster", "le"} & set(declared.labels)


def test_a_prediction_has_three_bounds(exporter):
    exporter.show(job(predicted={"tokens_per_second": Range(lower=1e6, target=2e6, upper=3e6)}))
    found = [
        value(exporter, "mofa_job_predicted_tokens_per_second", **WHO, bound=bound)
        for bound in ("lower", "target", "upper")
    ]
    assert found == [1e6, 2e6, 3e6]


def reads_nodes_alone(declared):
    """Whether a metric of pools can be read where there is nothing but nodes."""
    try:
        declared.read(
            SimpleNamespace(snapshot=SimpleNamespace(node_count=profile().snapshot.node_count))
        )
    except AttributeError:
        return False
    return True


def test_missing_figures_have_no_series_and_never_a_zero(exporter):
    exporter.show(job())
    exporter.show(profile())
    objects = {name for name in names(exporter) if not name.startswith("mofa_advisor_")}
    assert objects == {declared.name for declared in POOLS if reads_nodes_alone(declared)}
    assert objects >= {"mofa_pool_nodes", "mofa_pool_ready_nodes", "mofa_pool_member"}


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf])
def test_what_is_no_finite_number_is_missing(exporter, wrong):
    seen = running(
        tokens_per_second=wrong,
        ettr=wrong,
        lost={"failure": wrong},
        recoveries={"pod": (wrong, 20.0)},
    )
    exporter.show(
        job(
            residual=wrong,
            checkpoint_interval=wrong,
            predicted={"ettr": Range(lower=wrong, target=0.9, upper=wrong)},
            running=seen,
        )
    )
    found = samples(exporter)
    assert all(math.isfinite(number) for number in found.values())
    assert value(exporter, "mofa_job_recovery_seconds_count", **WHO, **{"class": "pod"}) == 1
    assert value(exporter, "mofa_job_predicted_ettr_ratio", **WHO, bound="lower") is None


def test_series_go_when_the_object_goes(exporter):
    before = samples(exporter)
    exporter.show(full_job())
    exporter.show(known_pool())
    exporter.forget(full_job().key)
    exporter.forget(known_pool().key)
    assert samples(exporter) == before


def test_forgetting_what_was_never_shown_does_no_harm(exporter):
    exporter.forget(Key(JOB_SET, "research", "nobody"))


def test_members_that_leave_the_pool_leave_the_join_series(exporter):
    exporter.show(profile())
    exporter.show(profile(nodes=("a",)))
    assert value(exporter, "mofa_pool_member", pool="h100-east", node="a") == 1
    assert value(exporter, "mofa_pool_member", pool="h100-east", node="b") is None


def test_a_job_that_stops_running_keeps_its_counters_and_loses_what_is_observed(exporter):
    exporter.show(full_job())
    exporter.show(replace(full_job(), running=None))
    assert (
        value(exporter, "mofa_job_interruptions_total", **WHO, **{"class": "pod"}, cause="failure")
        == 2
    )
    assert value(exporter, "mofa_job_observed_step", **WHO) is None
    assert (
        value(exporter, "mofa_job_checkpoint_interval_seconds", **WHO, source="recommended") == 600
    )
    assert value(exporter, "mofa_job_checkpoint_interval_seconds", **WHO, source="observed") is None


def test_a_source_that_forgets_does_not_make_counters_fall(exporter):
    exporter.show(full_job())
    exporter.show(
        job(
            running=running(
                interruptions={("pod", "failure"): 1},
                recoveries={"pod": (100.0,)},
                lost={"failure": 10.0},
            )
        )
    )
    assert (
        value(exporter, "mofa_job_interruptions_total", **WHO, **{"class": "pod"}, cause="failure")
        == 2
    )
    assert value(exporter, "mofa_job_lost_seconds_total", **WHO, cause="failure") == 300
    assert value(exporter, "mofa_job_recovery_seconds_sum", **WHO, **{"class": "pod"}) == 300


@given(
    st.lists(st.tuples(st.integers(0, 50), st.lists(st.floats(0, 1e4), max_size=5)), max_size=12)
)
@settings(deadline=None, max_examples=40)
def test_counters_are_monotone_while_the_job_lives(seen):
    exporter = Exporter(CollectorRegistry())
    last = {}
    for interruptions, recoveries in seen:
        exporter.show(
            job(
                running=running(
                    interruptions={("pod", "failure"): interruptions},
                    recoveries={"pod": tuple(recoveries)},
                )
            )
        )
        now = {
            key: number
            for key, number in samples(exporter).items()
            if key[0].startswith(("mofa_job_int", "mofa_job_rec"))
        }
        assert all(now[key] >= number for key, number in last.items())
        last = now


def test_recoveries_fall_into_cumulative_buckets(exporter):
    exporter.show(full_job())  # 100 s and 200 s
    found = {
        edge: value(
            exporter, "mofa_job_recovery_seconds_bucket", **WHO, **{"class": "pod"}, le=edge
        )
        for edge in ("60.0", "120.0", "240.0", "+Inf")
    }
    assert found == {"60.0": 0, "120.0": 1, "240.0": 2, "+Inf": 2}


def test_a_source_that_keeps_only_the_last_recoveries_loses_none(exporter):
    for recoveries in (
        (60.0, 90.0),
        (90.0, 60.0),
        (60.0, 60.0),
        (60.0, 60.0),
        (),
        (60.0,),
        (60.0, 30.0),
    ):
        exporter.show(job(running=running(recoveries={"pod": recoveries})))
    labels = WHO | {"class": "pod"}
    assert value(exporter, "mofa_job_recovery_seconds_count", **labels) == 5  # 60, 90, 60, 60, 30
    assert value(exporter, "mofa_job_recovery_seconds_sum", **labels) == 300


def test_the_last_step_is_dated_when_it_changes(exporter, clock):
    for moment, step in ((1000.0, 7), (1060.0, 8), (1120.0, 8), (1180.0, None)):
        clock.now = moment
        exporter.show(job(running=running(step=step)))
    assert value(exporter, "mofa_job_last_step_timestamp_seconds", **WHO) == 1060
    assert value(exporter, "mofa_job_observed_step", **WHO) == 8


def test_a_job_that_rests_has_no_series_of_what_it_does_now_and_keeps_its_counts(exporter):
    exporter.show(full_job())
    exporter.rest(full_job().key)
    exporter.rest(Key(TRAINING_JOB, "research", "unknown"))
    found = {name for name, _ in samples(exporter)}
    assert (
        not {
            "mofa_job_step_due_timestamp_seconds",
            "mofa_job_last_step_timestamp_seconds",
            "mofa_job_observed_step",
        }
        & found
    )
    assert (
        value(exporter, "mofa_job_interruptions_total", **WHO, **{"class": "pod"}, cause="failure")
        == 2
    )


def test_jobs_beyond_the_cap_are_counted_and_not_exported():
    exporter = Exporter(CollectorRegistry(), most_jobs=2)
    for _ in range(3):
        for name in ("a", "b", "c"):
            exporter.show(job(name, objective_ettr=0.9))
    exporter.show(job("d", kind=JOB_SET, objective_ettr=0.9))
    exported = {
        labels for name, labels in samples(exporter) if name == "mofa_job_ettr_objective_ratio"
    }
    assert {dict(labels)["training_job"] for labels in exported} == {"a", "b"}
    assert value(exporter, "mofa_advisor_series_dropped_total") == 2
    assert value(exporter, "mofa_advisor_jobs", training_kind="TrainingJob") == 3
    assert value(exporter, "mofa_advisor_jobs_without_series", training_kind="TrainingJob") == 1
    assert value(exporter, "mofa_advisor_jobs_without_series", training_kind="JobSet") == 1


def test_room_below_the_cap_goes_to_the_next_that_is_shown():
    exporter = Exporter(CollectorRegistry(), most_jobs=1)
    for name in ("a", "b"):
        exporter.show(job(name, objective_ettr=0.9))
    exporter.forget(job("a").key)
    exporter.show(job("b", objective_ettr=0.9))
    assert value(exporter, "mofa_job_ettr_objective_ratio", **(WHO | {"training_job": "b"})) == 0.9
    assert value(exporter, "mofa_advisor_jobs_without_series", training_kind="TrainingJob") is None


def test_names_with_quotes_and_newlines_stay_valid_exposition(exporter):
    exporter.show(job('a"b\\c\nd', objective_ettr=0.9))
    assert (
        value(exporter, "mofa_job_ettr_objective_ratio", **(WHO | {"training_job": 'a"b\\c\nd'}))
        == 0.9
    )


def test_unknown_predictions_and_loops_do_not_become_series(exporter):
    exporter.show(job(predicted={"colour": BAND}))
    assert not {name for name in names(exporter) if name.startswith("mofa_job_")}
    with pytest.raises(ValueError, match="coffee"):
        exporter.success("coffee")
    with pytest.raises(ValueError, match="coffee"):
        exporter.observe_gate(1.0, "coffee")


def test_two_exporters_do_not_know_each_other(exporter):
    other = Exporter()
    exporter.count_write("apply", "ok")
    assert value(other, "mofa_advisor_api_writes_total", verb="apply", outcome="ok") is None


def test_an_exporter_of_its_own_shows_the_process_as_well():
    assert "process_resident_memory_bytes" in names(Exporter())


def test_the_cost_of_a_scrape_grows_with_the_jobs_and_no_faster():
    def cost(jobs):
        exporter = Exporter(CollectorRegistry(), most_jobs=jobs)
        for number in range(jobs):
            exporter.show(full_job(f"job-{number}"))
        times = []
        for _ in range(3):
            start = time.process_time()
            exporter.page()
            times.append(time.process_time() - start)
        return min(times)

    assert cost(800) < 16 * cost(100)  # eight times the jobs, and as much again for noise


def test_memory_is_bounded_by_the_cap():
    exporter = Exporter(CollectorRegistry(), most_jobs=50)
    figures = [full_job(f"job-{number}") for number in range(1000)]
    tracemalloc.start()
    for one in figures[:100]:
        exporter.show(one)
    first = tracemalloc.get_traced_memory()[0]
    for one in figures:
        exporter.show(one)
    grown = tracemalloc.get_traced_memory()[0] - first
    tracemalloc.stop()
    assert grown < 900 * 200  # of a job beyond the cap only its key is kept


def test_the_table_has_each_name_once():
    assert len({declared.name for declared in TABLE}) == len(TABLE)
