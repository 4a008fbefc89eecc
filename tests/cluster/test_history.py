"""History from a real Prometheus, over made-up pasts whose truth is known."""

import asyncio
import dataclasses
import json
import time
import urllib.parse
import urllib.request
from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lived import samples
from mofa_local.blocks import write_block
from mofa_local.ports import HOST
from mofa_local.prometheus import Prometheus as Server
from mofa_local.series import sampled
from mofa_local.synthetic import (
    DAY,
    HOUR,
    Gap,
    Incident,
    Job,
    Past,
    Planned,
    draw,
    node_names,
    truth,
)
from operator_objects import profile_with

from mofa_model.cli import main
from mofa_model.spec.account import NodeState, node_days_lost
from mofa_operator.decide import ledger
from mofa_operator.decide.pool import profile as decide_profile
from mofa_operator.evidence import date_of
from mofa_operator.incidents.incident import JobFacts
from mofa_operator.keys import CLUSTER_PROFILE
from mofa_operator.objects import live
from mofa_operator.observe.history import history
from mofa_operator.observe.history.history import KnownPools
from mofa_operator.observe.progress.telemetry import JobSeries, running
from mofa_operator.observe.prometheus.client import Prometheus
from mofa_operator.observe.prometheus.promql import any_of, matcher, selector
from mofa_operator.settings import LoopSettings, PrometheusSettings
from mofa_operator.snapshot import NodeCount, NoHistory, ProfileSnapshot
from mofa_operator.words import Reason

END = int(time.time()) // DAY * DAY
"""The last midnight: what is cut into days is the same at every hour of ours."""
JOBS = (Job(name="pretrain-a", nodes=5), Job(name="pretrain-b", nodes=5))
COUNTS = {"process": 44, "pod": 85, "job": 15}
PAST = draw(end=END, nodes=12, days=30, jobs=JOBS)
BRIEF = draw(end=END, nodes=12, days=10, jobs=JOBS)
"""As many failures in a third of the time, for what asks nothing of a month."""
LABELS = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}


class Serving:
    """Starts a Prometheus that holds these pasts, each with the labels beside it."""

    def __init__(self, processes, factory):
        self.processes, self.factory, self.started = processes, factory, []

    def __call__(self, *pasts, without="", **labels):
        folder = self.factory.mktemp("history")
        server = Server(self.processes, folder, name=folder.name)
        series = [
            (
                one._replace(
                    labels=dict(one.labels)
                    | {key: values[number] for key, values in labels.items()}
                ),
                runs,
            )
            for number, past in enumerate(pasts)
            for one, runs in sampled(past, lambda _: True)
            if one.metric != without
        ]
        if series:
            write_block(series, server.data)
        server.start()
        self.started.append(server)
        return server.url

    def stop(self):
        for server in self.started:
            server.stop()


@pytest.fixture
def serve(processes, tmp_path_factory, binaries):
    binaries.path("prometheus")
    serving = Serving(processes, tmp_path_factory)
    yield serving
    serving.stop()


@pytest.fixture(scope="module")
def url(processes, tmp_path_factory, binaries):
    binaries.path("prometheus")
    serving = Serving(processes, tmp_path_factory)
    yield serving(PAST)
    serving.stop()


@pytest.fixture(scope="module")
def found(url):
    return look(url)


def profile(days=30, selector=LABELS, **matchers):
    prometheus = {"windowSeconds": days * DAY, "matchers": matchers}
    spec = {"gpu": "h100-80gb-sxm", "nodeSelector": selector, "prometheus": prometheus}
    return {
        "apiVersion": "mofa.dev/v1alpha1",
        "kind": "ClusterProfile",
        "metadata": {"name": "east"},
        "spec": spec,
    }


def look(url, body=None, now=END, known=None, settled=None, **more):
    async def ask():
        async with Prometheus(PrometheusSettings(url=url)) as prometheus:
            return await history.read_history(
                prometheus, body or profile(), now, known, None, settled, **more
            )

    return asyncio.run(ask())


def failures(found):
    return {name: one.failures for name, one in found.classes.items()}


# ------------------------------------------------------------------------------------- against the truth


def test_every_incident_of_thirty_days_is_counted_once_and_in_its_class(found):
    assert failures(found) == truth(PAST).failures == COUNTS
    assert dict(found.by_node) == truth(PAST).failures_by_node
    assert found.missing == ()
    hidden = {
        "reboots that are shorter than the time between two samples": "node_boot_time_seconds",
        "XIDs of GPUs": "DCGM_FI_DEV_XID_ERRORS",
    }
    assert found.warnings == tuple(
        f"{what} are not seen on 12 of 12 nodes: they have no series {series}"
        for what, series in hidden.items()
    )


def test_what_was_lost_is_put_down_by_how_often_each_job_saves(serve):
    url, asked = serve(BRIEF, without="mofa_train_step"), []
    kept = history.KnownPools()

    async def saves():
        asked.append(1)
        often = JobFacts(saves_every=60.0)
        return {"research/pretrain-a": often, "research/pretrain-b": often}

    async def ask(facts=None, known=None):
        async with Prometheus(PrometheusSettings(url=url)) as prometheus:
            return await history.read_history(
                prometheus, profile(days=9), END, known_pools=known, ask_facts=facts
            )

    def estimated(found):
        return sum(
            one.estimated
            for day in found.days
            for one in day.account
            if one.state is NodeState.REDONE
        )

    usual = asyncio.run(ask())
    often = asyncio.run(ask(saves, kept))
    again = asyncio.run(ask(saves, kept))
    assert {one.job for day in usual.days for one in day.account} >= {"research/pretrain-a"}
    assert 0 < estimated(often) < 0.1 * estimated(usual)  # at most a minute, not a quarter hour
    assert (estimated(again), asked) == (estimated(often), [1]), (
        "the account is an hour old at most"
    )


def test_exposure_is_the_time_with_a_training_pod_and_coverage_that_of_the_samples(found):
    assert found.node_days == pytest.approx(10 * 30, rel=0.01), (
        "ten of twelve nodes trained for thirty days"
    )
    from_its_start = found.window == 30 * DAY  # a sample at the very start of the window is outside
    outside = from_its_start * len(PAST.nodes) * PAST.step / DAY
    edge = len(PAST.nodes) * 600 / DAY  # the first samples stand for up to ten minutes before them
    assert sum(found.node_days_by_node.values()) == pytest.approx(
        truth(PAST).node_days - outside, abs=edge
    )
    assert found.coverage == pytest.approx(30 * DAY / found.window, abs=1e-3)


def test_recovery_times_are_those_of_the_step_series(found):
    for name, mean in truth(PAST).recovery.items():
        assert found.classes[name].mean_recovery == pytest.approx(mean, rel=0.04)


def test_the_days_of_a_history_add_up_to_it_and_are_those_of_the_truth(found):
    """Every incident is on its day, but for the few within ten minutes of a midnight."""
    days = found.days
    for name, count in COUNTS.items():
        assert sum(day.classes[name].failures for day in days) == count
        exposure = sum(day.classes[name].node_days for day in days)
        assert exposure == pytest.approx(found.node_days, rel=1e-9)
        times = sum(day.classes[name].recovery_seconds for day in days)
        number = sum(day.classes[name].recoveries for day in days)
        assert times / number == pytest.approx(found.classes[name].mean_recovery, rel=1e-9)
    assert [day.covered for day in days[1:-1]] == [pytest.approx(DAY, abs=600)] * (len(days) - 2)
    assert misplaced(days, ((one.at, one.level) for one in PAST.incidents)) <= 4


@pytest.mark.soak
def test_a_gap_within_a_long_stretch_lies_on_its_own_days(serve):
    """Sixty hours without a server, two weeks ago: stretches are seven days long there."""
    gap = Gap(at=END - 15 * DAY, until=END - 15 * DAY + 60 * HOUR, server=True)
    past = dataclasses.replace(PAST, gaps=(gap,))
    days = {day.date: day for day in look(serve(past)).days}
    start = END - 15 * DAY
    for date in {date_of(at) for at in range(start - 3 * DAY, gap.until + 3 * DAY, HOUR)}:
        hours = sum(date_of(at) == date for at in range(start, gap.until, HOUR))
        covered = days[date].covered if date in days else 0.0
        assert covered == pytest.approx(DAY - hours * HOUR, abs=900), date
    assert gap.until - start == 60 * HOUR


def test_failures_of_nodes_lie_on_their_days_where_nodes_are_the_evidence(serve):
    """And their exposure is that of all nodes."""
    found = look(
        serve(dataclasses.replace(BRIEF, missing=frozenset({"kube_pod_labels"}))), profile(days=10)
    )
    assert failures(found) == {"pod": truth(BRIEF).node_failures} == {"pod": 51}
    assert found.node_days == pytest.approx(truth(BRIEF).node_days, rel=2e-3)
    assert found.missing == ("kube_pod_labels of training pods",)
    assert sum(day.classes["pod"].failures for day in found.days) == 51
    assert (
        misplaced(
            found.days, ((one.at, "pod") for one in BRIEF.incidents if one.repair is not None)
        )
        <= 2
    )


def misplaced(days, moments):
    """Failures that are on another day than they happened, counted on both."""
    told = Counter(
        {(day.date, name): one.failures for day in days for name, one in day.classes.items()}
    )
    true = Counter((date_of(at), name) for at, name in moments)
    return sum(abs(told[key] - true[key]) for key in told.keys() | true.keys())


def test_two_replicas_of_the_exporter_count_nothing_twice(serve):
    found = look(serve(dataclasses.replace(BRIEF, replicas=2)), profile(days=10))
    assert failures(found) == COUNTS
    assert dict(found.by_node) == truth(BRIEF).failures_by_node
    assert found.node_days == pytest.approx(100, rel=0.01)


@pytest.mark.soak
def test_samples_an_hour_apart_are_too_coarse_for_time_but_not_for_counts(serve):
    found = look(serve(dataclasses.replace(PAST, pod_step=HOUR)))
    assert failures(found) == COUNTS
    assert found.node_days == pytest.approx(300, rel=0.02)


@pytest.mark.parametrize("server", [False, True], ids=["exporter-down", "prometheus-down"])
def test_a_gap_is_neither_a_failure_nor_exposure(serve, server):
    quiet = Past(
        start=END - 20 * DAY,
        end=END,
        nodes=node_names(4),
        labels=LABELS,
        jobs=(Job(name="a", nodes=3),),
    )
    gap = Gap(at=END - 12 * DAY, until=END - 10 * DAY, server=server)
    found = look(serve(dataclasses.replace(quiet, gaps=(gap,))), profile(days=20))
    assert {name: one.failures for name, one in found.classes.items()} == {
        "process": 0,
        "pod": 0,
        "job": 0,
    }
    assert found.coverage == pytest.approx(18 * DAY / found.window, abs=2e-3)
    assert found.node_days == pytest.approx(3 * 18, rel=0.01)


def test_a_node_that_was_cordoned_before_it_went_down_did_not_fail(serve):
    planned = Planned(at=END - 3 * DAY, until=END - 2 * DAY, node="gpu-001", down=True)
    past = Past(
        start=END - 9 * DAY,
        end=END,
        nodes=node_names(3),
        labels=LABELS,
        jobs=(),
        planned=(planned,),
    )
    found = look(serve(past), profile(days=9))
    assert found.classes["pod"].failures == 0
    assert found.node_days == pytest.approx(3 * 9 - 1, rel=0.01), (
        "while it is cordoned, a failure would not be seen"
    )


def test_a_failure_at_the_seam_of_two_stretches_is_counted_once(serve):
    seam = END // DAY * DAY - 2 * DAY
    for shift in (-300, -60, 0, 60, 300):
        incidents = (
            Incident(at=seam + shift - 5 * HOUR, job="a", level="process", recovery=200),
            Incident(at=seam + shift, job="a", level="pod", recovery=300, slot=1, repair=5400),
            Incident(at=seam + shift + DAY, job="a", level="process", recovery=200),
        )
        past = Past(
            start=END - 9 * DAY, end=END, nodes=node_names(4), labels=LABELS,
            jobs=(Job(name="a", nodes=3),), incidents=incidents,
        )  # fmt: skip
        found = look(serve(past), profile(days=9))
        assert failures(found) == {"process": 2, "pod": 1, "job": 0}, shift
        assert found.by_node == {"gpu-001": 1}, shift


def test_only_the_cluster_of_the_matchers_counts_and_several_are_not_mixed(serve):
    other = draw(
        end=END, nodes=4, days=10, seed=2, jobs=(Job(name="c", nodes=3),), failures={"pod": 7}
    )
    both = serve(BRIEF, other, cluster=("east", "west"))
    assert failures(look(both, profile(days=10, cluster="east"))) == COUNTS
    assert failures(look(both, profile(days=10, cluster="west"))) == {
        "process": 0,
        "pod": 7,
        "job": 0,
    }
    mixed = look(both, profile(days=10))
    assert isinstance(mixed, NoHistory)
    assert "several clusters (east, west)" in mixed.message


# ------------------------------------------------------------------------------- missing is never zero


def test_a_server_without_the_exporter_has_no_history(serve):
    found = look(serve())
    assert found == NoHistory(
        reason=Reason.SERIES_MISSING,
        message="kube_node_status_condition has no data; is kube-state-metrics scraped?",
    )


@pytest.mark.soak
def test_wrong_matchers_and_wrong_labels_say_what_to_set(url):
    assert "matchers leave none" in look(url, profile(cluster="nowhere")).message
    assert (
        "no node with nvidia.com/gpu.product=B300"
        in look(url, profile(selector={"nvidia.com/gpu.product": "B300"})).message
    )
    unknown = look(url, profile(selector={"example.com/pool": "a"}))
    assert unknown.reason == Reason.SERIES_MISSING
    assert "--metric-labels-allowlist=nodes=[example.com/pool]" in unknown.message


def test_without_restart_counters_the_process_class_is_unknown_not_zero(serve):
    name = "kube_pod_container_status_restarts_total"
    found = look(serve(dataclasses.replace(BRIEF, missing=frozenset({name}))), profile(days=10))
    assert failures(found) == {"pod": 85, "job": 15}
    assert found.missing == (name,)


def test_an_unreachable_server_is_no_history_and_no_exception():
    async def ask():
        async with Prometheus(PrometheusSettings(url=f"http://{HOST}:9"), pause=0) as prometheus:
            return await history.history(prometheus, profile(), END)

    found = asyncio.run(ask())
    assert found == NoHistory(
        reason=Reason.HISTORY_UNAVAILABLE,
        message=f"Prometheus at http://{HOST}:9: cannot be connected to",
    )


def test_stretches_that_are_over_are_asked_for_once(url):
    known = history.KnownPools()
    first = look(url, known=known, now=END)
    kept = dict(known.samples._kept)
    assert len(kept) >= 4
    again = look(url, known=known, now=END + 60)
    assert failures(again) == failures(first)
    assert all(known.samples._kept[key] is value for key, value in kept.items())


def samples_read(url):
    """Samples that the server's queries have read so far."""
    with urllib.request.urlopen(f"{url}/metrics", timeout=30) as page:
        lines = page.read().decode().splitlines()
    name = "prometheus_engine_query_samples_total "
    return float(next(line for line in lines if line.startswith(name)).removeprefix(name))


def written_at(url, now):
    """The profile with its ledger, written after a look at a moment."""
    found = look(url, now=now)
    body = profile() | {"metadata": {"name": "east", "uid": "u"}}
    days = ledger.merged((), found.days, (), 30 * DAY, now)
    status = ledger.ledger_status(profile_with(body), days, (), now, found)
    owner = {"metadata": {"name": "east", "ownerReferences": [{"uid": "u"}]}, "status": status}
    return profile_with(body, owner)


@pytest.mark.parametrize("hours", [1, 7, 30])
def test_after_a_restart_only_what_the_ledger_lacks_is_read_and_the_days_are_the_same(url, hours):
    """The days of a whole look at the end, and those of the ledger of some hours before with what
    was read after it.
    """
    before = samples_read(url)
    whole = look(url)
    between = samples_read(url)
    pool = written_at(url, END - hours * HOUR)
    settled, start = ledger.settled_days(pool), samples_read(url)
    assert END - settled.until <= hours * HOUR + 30 * HOUR, "all but the last days are settled"
    partial = look(url, settled=settled)
    cost = (samples_read(url) - start) / (between - before)
    assert cost <= (END - settled.until + 12 * HOUR) / (30 * DAY), "and six hours before them"
    joined = ledger.merged(pool.days, partial.days, (), 30 * DAY, END)
    expected = ledger.merged((), whole.days, (), 30 * DAY, END)
    assert [(day.date, day.classes) for day in joined] == [
        (
            day.date,
            {
                name: dataclasses.replace(
                    one, node_days=pytest.approx(one.node_days, abs=0.02),
                    recovery_seconds=pytest.approx(one.recovery_seconds, abs=60),
                )
                for name, one in day.classes.items()
            },
        )
        for day in expected
    ]  # fmt: skip


def test_a_replay_after_a_restart_is_of_the_whole_window_and_says_what_the_command_says(
    url, tmp_path, capsys
):
    """The command reads the same window, and replays it in two steps."""
    settled = ledger.settled_days(written_at(url, END))
    helps = look(url, settled=settled, replayed=True).helps
    assert helps.window_days == pytest.approx(30, abs=0.1)
    assert helps.standstills >= sum(COUNTS.values())
    asked = ["incidents", "--prometheus", url, "--account", "--end", str(END), "-o", "json"]
    assert main(asked) == 0
    file = tmp_path / "past.json"
    file.write_text(capsys.readouterr().out)
    assert main(["rates", "--what-would-help", str(file), "-o", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    gained = {one["name"]: one["gained_gpu_hours"] for one in told["remedies"]}
    assert helps.effective_share == pytest.approx(told["effective_share"], rel=1e-3)
    best = helps.best(5)
    assert best, "of 144 failures something is told apart"
    assert [one.gain.target for one in best] == [
        pytest.approx(gained[one.name], rel=0.01) for one in best
    ]


def test_looks_leave_out_what_the_ledger_held_at_the_first_and_after_a_replay_nothing(url):
    """What it settles later was read since, and is kept in memory."""
    known = KnownPools()
    body = profile() | {"metadata": {"name": "east", "uid": "u"}}
    held = ledger.settled_days(written_at(url, END - 3 * DAY))
    later = ledger.settled_days(written_at(url, END))
    assert later.until == held.until + 3 * DAY

    def days(settled, **more):
        found = look(url, body, known=known, settled=settled, **more)
        return [day.date for day in found.days]

    first = days(held)
    assert first[0] == date_of(held.until)
    assert days(later) == first
    whole = days(later, replayed=True)
    assert len(whole) > 25 > len(first)
    assert days(later) == whole


def test_simulated_runs_fail_by_a_server_as_they_do_by_the_status_that_the_operator_writes(
    url, tmp_path, capsys
):
    """The profile assumes 0.24 failures a day of 48 nodes, and its pool had 23; old ones count
    less, and both doors say how much. The command asks about the last 30 days until now, so the
    status is of now, too: at 23:00 the last midnight knows of 4 % more failures.
    """
    now = time.time()
    bare, told = tmp_path / "bare.json", tmp_path / "told.json"
    bare.write_text(json.dumps(profile()))
    pool = live(CLUSTER_PROFILE, profile() | {"metadata": {"name": "east", "uid": "u"}})
    nodes = NodeCount(total=12, ready=12, gpus={8: 12})
    snapshot = ProfileSnapshot(profile=pool, node_count=nodes, history=look(url, now=now), now=now)
    status = decide_profile(snapshot, LoopSettings()).status
    told.write_text(json.dumps(profile() | {"status": status}))

    def failures_a_day(*words):
        asked = [
            "--nodes",
            "48",
            "--step",
            "10s",
            "--save",
            "5s",
            "--duration",
            "1d",
            "--runs",
            "50",
        ]
        assert main(["simulate", *asked, "--json", *map(str, words)]) == 0
        return json.loads(capsys.readouterr().out)["failures"]

    by_server = failures_a_day("--profile", bare, "--prometheus", url)
    assert by_server == pytest.approx(failures_a_day("--profile", told), rel=0.02)
    assert 5 * failures_a_day("--profile", bare) < by_server < 23
    assert main(["simulate", "--nodes", "4", "--step", "9s", "--prometheus", url]) == 2
    assert "--profile" in capsys.readouterr().err


@pytest.mark.soak
def test_a_ledger_of_other_rules_is_read_anew(url):
    settled = ledger.settled_days(written_at(url, END))
    body = profile()
    body["spec"]["incidents"] = {"shortestOutageSeconds": 900}
    assert len(look(url, body, settled=settled).days) == len(look(url, body).days) > 25


# ----------------------------------------------------------------------------------------- throughput


@pytest.mark.soak
def test_steps_that_are_sampled_every_five_minutes_tell_the_same_loss_as_those_of_half_a_minute(
    serve,
):
    """A standstill falls between two of them; what the steps gained meanwhile says what it cost."""
    lost, kept = [], []
    for step in (30, 300):
        found = look(serve(dataclasses.replace(BRIEF, trainer_step=step)), profile(days=10))
        account = [one for day in found.days for one in day.account]
        causes = node_days_lost(account)
        lost.append(sum(causes[name] for name in ("process-crash", "kubelet-down")))
        kept.append(sum(one.node_days for one in account if one.state is NodeState.KEPT))
        assert sum(one.estimated for one in account) < 0.03 * sum(causes.values())
    assert lost[1] == pytest.approx(lost[0], rel=0.05)
    assert kept[1] == pytest.approx(kept[0], rel=0.005)


def test_all_running_jobs_are_seen_at_once_and_none_after_the_end(url):
    jobs = [
        JobSeries(namespace="research", name=name)
        for name in ("pretrain-a", "pretrain-b", "never-was")
    ]

    async def ask(now):
        async with Prometheus(PrometheusSettings(url=url)) as prometheus:
            return await running(prometheus, jobs, now)

    quiet = next(
        at
        for at in range(END - 300, END - DAY, -600)
        if all(abs(one.at - at) > 2 * HOUR for one in PAST.incidents)
    )
    seen = asyncio.run(ask(quiet))
    assert set(seen) == {("research", "pretrain-a"), ("research", "pretrain-b")}
    one = seen["research", "pretrain-a"]
    assert one.tokens_per_second == pytest.approx(16_777_216 / 20)
    assert one.step_seconds == 20
    lost = [i for i in PAST.incidents if i.job == "pretrain-a" and quiet - 7 * DAY < i.at < quiet]
    redone = 50 * 20 * len(lost)
    assert one.ettr == pytest.approx(
        1 - (sum(i.recovery for i in lost) + redone) / (7 * DAY), abs=0.02
    )
    assert asyncio.run(ask(END + HOUR)) == {}


# ------------------------------------------------------------------------------------- the command line


@pytest.mark.soak
def test_the_command_checks_assumptions_against_the_server(url, tmp_path, capsys):
    body = profile(days=31)
    rates = {"process": 44 / 0.3, "pod": 85 / 0.3, "job": 1}
    body["spec"]["failures"] = {
        "classes": [
            {"name": name, "failuresPerThousandNodeDays": f"{rate:.3f}", "recoverySeconds": 200}
            for name, rate in rates.items()
        ]
    }
    file = tmp_path / "east.yaml"
    file.write_text(json.dumps(body))
    words = ["rates", "--prometheus", url, "--profile", str(file)]
    assert main([*words, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert {r["name"]: (r["failures"], r["verdict"]) for r in told["rates"]} == {
        "process": (44, "Consistent"),
        "pod": (85, "Consistent"),
        "job": (15, "HigherThanAssumed"),
        "total": (144, "Consistent"),
    }
    assert told["dispersion"]["worst"][0][1] == max(truth(PAST).failures_by_node.values())
    assert 0.9 < told["coverage"] <= 1
    assert main([*words, "--check"]) == 5
    assert main(["rates", "--prometheus", f"http://{HOST}:9", "--profile", str(file)]) == 4
    assert capsys.readouterr().err.count("\n") == 1


# -------------------------------------------------------------------------------------------- injection


def test_no_text_leaves_its_quotes_as_prometheus_reads_it(url):
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def parsed(query):
        body = urllib.parse.urlencode({"query": query}).encode()
        with opener.open(f"{url}/api/v1/parse_query", data=body, timeout=30) as answer:
            return json.load(answer)["data"]

    @settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
    @given(
        st.text(st.characters(exclude_categories=["Cs"])),
        st.lists(st.text("a.|*\\()$^[]{}+?-\"'", min_size=1)),
    )
    def check(text, values):
        wanted = selector("up", [matcher("b", any_of(values), "=~")], a=text)
        found = parsed(wanted)
        assert found["type"] == "vectorSelector"
        conditions = {(one["name"], one["type"]): one["value"] for one in found["matchers"]}
        assert conditions == {
            ("__name__", "="): "up",
            ("a", "="): text,
            ("b", "=~"): any_of(values),
        }

    check()


@pytest.mark.soak
def test_samples_that_are_back_filled_into_the_last_hour_are_seen_once_the_grid_moves(
    processes, tmp_path, binaries
):
    binaries.path("prometheus")
    late = Incident(at=END - 2400, job=PAST.jobs[0].name, level="pod", recovery=280.0)
    early = tuple(one for one in PAST.incidents if one.at < END - 7200)
    past = dataclasses.replace(PAST, incidents=(*early, late))
    server, known = Server(processes, tmp_path, name="filled"), KnownPools()
    write_block(samples(past, "a", before=END - 2700), server.data)
    server.start()
    first = look(server.url, now=END - 300, known=known)
    server.stop()
    write_block(samples(past, "a", since=END - 2700), server.data)
    server.start()
    same = look(server.url, now=END - 299, known=known)
    second = look(server.url, now=END, known=known)
    counts = [sum(failures(one).values()) for one in (first, same, second)]
    assert counts == [len(early), len(early), len(early) + 1]
