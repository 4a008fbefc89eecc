"""What is down now is booked before it ends, and what began before the time that is read keeps
its cause.
"""

from dataclasses import replace

import pytest
from day_lines import DAY, END, JOB, START, STEP, exits, life, pod, pool_of, switched

from mofa_model.manifest.cluster_profile import IncidentRules
from mofa_model.spec import incident_causes as causes
from mofa_model.spec.account import NodeState, OpenIncident, capacity, node_days_lost, summed
from mofa_operator.incidents.incident import JobFacts
from mofa_operator.incidents.past import past
from mofa_operator.incidents.timelines import BOOT, SignalTimeline, Stall, ValueRun

RULES = IncidentRules()
WANTED = {JOB: JobFacts(wanted=True)}


def hours(found, *keys):
    return {
        (one.state.value, *(getattr(one, key) for key in keys)): 24 * one.node_days
        for one in summed(found.account, *keys)
        if one.node_days
    }


def dead_host(until=None):
    """Node b is not ready from 20 h on, and dark; a job on a and b loses both pods."""
    turns = ((72000, 0.0), (until, 1.0)) if until else ((72000, 0.0),)
    return life("b", ready=switched(*turns, first=1.0))


def test_a_job_whose_new_pod_waits_now_is_booked_as_waiting_by_its_cause_so_far():
    gang = [
        pod(slot=0, attempt="0", until=START + 72060),
        pod(slot=1, attempt="0", until=START + 72060),
        pod(slot=0, attempt="1", at=START + 72120),
        pod(slot=1, attempt="1", at=START + 72120, node="", started=None),
    ]
    found = past(pool_of(*gang, b=dead_host()), RULES)
    (out,) = [one for one in found.incidents if one.kind == "job"]
    assert (out.lasts, out.timed, out.end, out.cause) == (True, False, END, causes.KUBELET_DOWN)
    told = hours(found, "cause")
    assert told["repair", "kubelet-down"] == pytest.approx(4, abs=0.1)  # node b
    waits = sum(told.get((state, "kubelet-down"), 0.0) for state in ("queue", "spare", "image"))
    assert waits == pytest.approx(4, abs=0.1)  # node a
    assert capacity(found.account) == pytest.approx(4, abs=1e-3)

    later = [*gang[:3], pod(slot=1, attempt="1", at=START + 72120, node="c", started=START + 80000)]
    ended = past(pool_of(*later, b=dead_host(79000)), RULES)
    (closed,) = [one for one in ended.incidents if one.kind == "job"]
    assert (closed.lasts, closed.id) == (False, out.id)  # one incident, now with its end


def test_a_job_that_is_gone_waits_for_nodes_only_where_its_object_asks_for_them():
    gone = [pod(slot=n, until=START + 72000) for n in range(3)]
    assert not hours(past(pool_of(*gone), RULES)).keys() & {("queue",), ("restarting",)}
    wanted = past(pool_of(*gone), RULES, facts=WANTED)
    assert hours(wanted)[("idle",)] > 24  # nobody says that it failed: its user took it away
    failed = [replace(one, failed=True, over=START + 72000) for one in gone]
    told = hours(past(pool_of(*failed), RULES, facts=WANTED), "cause")
    assert told["queue", "process-crash"] == pytest.approx(3 * 4, abs=0.2)
    succeeded = [replace(one, failed=False, succeeded=True) for one in failed]
    assert "process-crash" not in node_days_lost(
        past(pool_of(*succeeded), RULES, facts=WANTED).account
    )


def test_a_job_whose_other_pods_train_on_is_not_out():
    pods = [pod(slot=0), pod(slot=1, until=START + 85000)]
    waits = past(pool_of(*pods), RULES)
    assert [one.lasts for one in waits.incidents if one.kind == "job"] == [True]
    moves = past(pool_of(*pods, stalls={JOB: [Stall(START + 85000, START + 85300)]}), RULES)
    assert [one for one in moves.incidents if one.kind == "job"] == []


def repaired(begin, end=None):
    """Node b behind a cordon that stands when reading begins."""
    return life(
        "b", cordon=switched((end, 0.0), first=1.0) if end else (ValueRun(START, END, 1.0),)
    )


def test_a_node_that_was_lost_twelve_days_ago_is_in_repair_for_that_cause():
    lost = OpenIncident(kind="node", name="b", since=START - 12 * DAY, cause=causes.GPU_LOST)
    for cordon, days in ((repaired(0), 1.0), (repaired(0, 43200), 0.5)):
        found = past(pool_of(pod(slot=0), b=cordon), RULES, [lost])
        assert hours(found, "cause")["repair", "gpu-lost"] == pytest.approx(24 * days, abs=0.2)
        assert set(node_days_lost(found.account)) == {"gpu-lost"}
        assert found.incidents == ()  # it was counted on the day it began
    over = past(pool_of(pod(slot=0)), RULES, [lost])  # nothing stands on it any more
    assert not node_days_lost(over.account)
    without = past(pool_of(pod(slot=0), b=repaired(0, 43200)), RULES)
    assert node_days_lost(without.account) == {"planned-drain": pytest.approx(0.5, abs=0.01)}


def test_a_host_that_was_silent_is_down_once_it_tells_another_boot():
    was = OpenIncident(kind="node", name="b", since=START - 3600, cause=causes.KUBELET_DOWN)
    down = life("b", ready=(ValueRun(START, START + 7000, 0.0), ValueRun(START + 7060, END, 1.0)))
    boot = SignalTimeline("b", BOOT, (), (ValueRun(START + 7060, END, START + 6960),))
    told = replace(
        down, timelines=(*down.timelines, boot), signals=frozenset({*down.signals, BOOT})
    )
    found = past(pool_of(pod(slot=0), b=told), RULES, [was])
    assert set(node_days_lost(found.account)) == {"node-down"}


def test_a_job_that_was_out_waits_until_it_trains_and_is_told_on():
    was = OpenIncident(
        kind="job", name=JOB, since=START - 7200, cause=causes.NODE_DOWN, nodes=("a", "b")
    )
    back = [pod(slot=n, at=START + 36000, started=START + 36030) for n in range(2)]
    told = hours(past(pool_of(*back), RULES, [was]), "cause")
    lost = sum(time for (state, cause), time in told.items() if cause == "node-down")
    assert lost == pytest.approx(2 * (36030 + 240) / 3600, abs=0.1)
    assert not [one for one in past(pool_of(*back), RULES, [was]).incidents if one.kind == "job"]

    still = past(pool_of(), RULES, [was], facts=WANTED, lasting_at=END - 3600)
    assert hours(still, "cause")["queue", "node-down"] == pytest.approx(48, abs=0.1)
    assert still.lasting == (was,)
    assert past(pool_of(), RULES, [was], lasting_at=END - 3600).lasting == ()  # nobody wants it


def test_what_lasts_at_a_moment_has_since_when_and_why():
    cordoned = life("b", cordon=switched((30000, 1.0), (60000, 0.0), first=0.0))
    broken = life(
        "c",
        xid=switched((20000, 79.0), first=0.0),
        cordon=switched((21000, 1.0), (70000, 0.0), first=0.0),
    )
    found = past(pool_of(pod(slot=0), b=cordoned, c=broken), RULES, lasting_at=START + 50000)
    assert [(one.kind, one.name, one.cause.word) for one in found.lasting] == [
        ("node", "b", "planned-drain"),
        ("node", "c", "gpu-lost"),
    ]
    assert found.lasting[1].since == pytest.approx(START + 20000, abs=2 * STEP)
    assert past(pool_of(), RULES, lasting_at=START + 80000).lasting == ()


def test_jobs_that_share_a_node_have_the_part_that_their_gpus_are():
    small, other = pod(slot=0, gpus=2.0), replace(pod(slot=0, gpus=4.0), job="research/other")
    node = replace(life("a"), gpus=8.0)
    found = past(pool_of(small, other, a=node), RULES)
    days = {(one.job, one.state.value): one.node_days for one in summed(found.account, "job")}
    assert days["research/llama", "kept"] == pytest.approx(0.25, abs=1e-3)
    assert days["research/other", "kept"] == pytest.approx(0.5, abs=1e-3)
    assert capacity(found.account) == pytest.approx(4, abs=1e-3)
    alone = past(pool_of(small, replace(other, gpus=0.0), a=node), RULES)  # of one nothing is known
    assert capacity(alone.account) == pytest.approx(4, abs=1e-3)


def test_time_in_which_a_job_saves_is_a_state_of_its_own_and_an_estimate():
    facts = {JOB: JobFacts(saves_every=1710.0, save_seconds=90.0)}
    found = past(pool_of(pod(slot=0)), RULES, facts=facts)
    told = {one.state: one for one in summed(found.account, "cause")}
    saving = told[NodeState.SAVING]
    assert (saving.cause, saving.node_days) == ("saves", pytest.approx(0.05, abs=1e-3))
    assert saving.estimated == saving.node_days
    assert told[NodeState.KEPT].node_days == pytest.approx(0.95, abs=1e-3)
    assert NodeState.SAVING not in {one.state for one in past(pool_of(pod(slot=0)), RULES).account}


def test_a_job_trains_on_while_only_the_kubelet_of_a_node_is_away():
    """Its pods are evicted five minutes later; without an exporter of the host nobody knows."""
    away = life("b", ready=switched((9000, 0.0), (16200, 1.0), first=1.0))
    speaks = replace(
        away,
        timelines=(
            *away.timelines,
            SignalTimeline("b", BOOT, (), (ValueRun(START, END, START - DAY),)),
        ),
        signals=frozenset({*away.signals, BOOT}),
    )
    gang = [
        pod(slot=0, attempt="0", until=START + 9300),
        pod(slot=1, attempt="0", until=START + 9300),
        *(pod(slot=n, attempt="1", at=START + 9400, node="ac"[n]) for n in range(2)),
    ]
    (blind,) = [one for one in past(pool_of(*gang, b=away), RULES).incidents if one.kind == "job"]
    (seen,) = [one for one in past(pool_of(*gang, b=speaks), RULES).incidents if one.kind == "job"]
    assert blind.cause is seen.cause is causes.KUBELET_DOWN
    assert blind.start < START + 9000 < START + 9250 < seen.start


def test_a_loop_of_crashes_lasts_until_its_user_makes_the_job_anew():
    loop = exits(*((10000 + 60 * n, 1) for n in range(5)), again=10.0)
    pods = [pod(slot=n, exits=loop, until=START + 14000) for n in range(2)]
    anew = [pod(slot=n, attempt="", at=START + 14060 + n) for n in range(2)]
    found = [one for one in past(pool_of(*pods, *anew), RULES).incidents if one.kind == "job"]
    assert [one.cause.word for one in found] == ["user-crash-loop"]
    assert found[0].end == pytest.approx(START + 14090 + 240, abs=30)
