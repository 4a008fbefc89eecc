"""Incidents of jobs are counted once, in one class, with one cause, and what people and schedulers
did not at all.
"""

import math
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from day_lines import DAY, END, JOB, NODES, START, STEP, exits, life, pod, pool_of, stills, switched

from mofa_model.errors import BadValue
from mofa_model.manifest.cluster_profile import IncidentRules
from mofa_model.spec import incident_causes as causes
from mofa_model.spec.account import capacity, node_days_lost, summed
from mofa_model.spec.recovery_classes import RecoveryClass
from mofa_operator.incidents.incident import Incident, JobFacts
from mofa_operator.incidents.job_outages import job_outages
from mofa_operator.incidents.past import past
from mofa_operator.incidents.timelines import (
    ContainerExit,
    Span,
    Stall,
    ValueRun,
)
from mofa_operator.observe.history.history import _evidence

LOADED = 300.0
"""Longest time from a container's start until a job is said to train. [s]"""


def everything(*pods, rules=None, **around):
    return past(pool_of(*pods, **around), IncidentRules.model_validate(rules or {})).incidents


def seen(*pods, **around):
    return [one for one in everything(*pods, **around) if one.kind == "job"]


def counts(found):
    made = {"process": 0, "pod": 0, "job": 0}
    for one in found:
        if one.cause.counts:
            made[one.recovery_class.value] += 1
    return made


def only(found):
    assert len(found) == 1, found
    return found[0].cause.word


def test_a_gang_that_restarts_three_times_had_three_incidents_not_six():
    gang = [
        pod(slot=n, exits=exits((3000 + n, 137), (20000 + n, 137), (50000 + n, 139)))
        for n in range(2)
    ]
    assert counts(seen(*gang)) == {"process": 3, "pod": 0, "job": 0}


def test_restarts_before_the_window_are_not_of_the_window():
    assert counts(seen(pod(exits=exits((-5000, 137)))))["process"] == 0


def test_restarts_within_ten_minutes_are_one_incident():
    assert counts(seen(pod(exits=exits((9000, 137), (9300, 137)))))["process"] == 1


def test_a_replaced_pod_is_one_incident_of_class_pod():
    found = seen(pod(slot=0), pod(slot=1, until=START + 4990), pod(slot=1, at=START + 5000))
    assert counts(found) == {"process": 0, "pod": 1, "job": 0}
    assert found[0].start == pytest.approx(START + 5000, abs=STEP)


def test_pods_that_are_replaced_together_are_one_incident_and_apart_two():
    def replaced(later):
        return seen(
            *(pod(slot=n, until=START + 5000 + later * (n == 1)) for n in range(2)),
            pod(slot=2),
            pod(slot=0, at=START + 5000),
            pod(slot=1, at=START + 5000 + later),
        )

    assert counts(replaced(30))["pod"] == 1
    assert counts(replaced(3600))["pod"] == 2


def test_others_that_restart_while_a_pod_is_replaced_are_not_counted_again():
    gone = pod(slot=1, until=START + 4990, failed=True, over=START + 4990)
    found = seen(
        pod(slot=0, exits=exits((5100, 134), (5400, 1))), gone, pod(slot=1, at=START + 5000)
    )
    assert counts(found) == {"process": 0, "pod": 1, "job": 0}


def test_a_new_attempt_is_one_incident_of_class_job_however_many_pods():
    gang = [
        pod(
            slot=n,
            attempt=str(k),
            at=START + 20000 * k - DAY * (not k),
            until=START + 20000 * (k + 1),
        )
        for n in range(3)
        for k in range(3)
    ]
    last = [pod(slot=n, attempt="3", at=START + 60000) for n in range(3)]
    assert counts(seen(*gang, *last)) == {"process": 0, "pod": 0, "job": 3}


def test_a_whole_gang_without_attempts_that_is_deleted_and_made_again_was_submitted_anew():
    old = [pod(slot=n, attempt="", until=START + 9000) for n in range(3)]
    new = [pod(slot=n, attempt="", at=START + 9100 + n) for n in range(3)]
    assert only(seen(*old, *new)) == "resubmission"
    failed = [
        pod(slot=n, attempt="", until=START + 9000, over=START + 8990, failed=True)
        for n in range(3)
    ]
    assert counts(seen(*failed, *new)) == {"process": 0, "pod": 0, "job": 1}


@pytest.mark.parametrize("cause", ["evicted", "preempted", "drained"])
def test_what_made_room_did_not_fail(cause):
    gone = pod(until=START + 9000, **{cause: True})
    for attempt in ("0", "1"):
        assert not sum(counts(seen(gone, pod(at=START + 9020, attempt=attempt))).values())


def test_runs_that_succeed_and_come_again_under_one_name_are_no_failures():
    runs = [
        pod(
            slot=n,
            at=START + 10000 * k,
            until=START + 10000 * k + 6000,
            over=START + 10000 * k + 5000,
            succeeded=True,
        )
        for n in range(2)
        for k in range(8)
    ]
    assert {one.cause.word for one in seen(*runs)} == {"completed"}


def test_a_program_that_fails_again_and_again_is_one_incident_and_no_failure():
    loop = exits((9000, 1), (9120, 1), (9260, 1), (9480, 1), again=60.0)
    assert only(seen(*(pod(slot=n, exits=loop) for n in range(3)))) == "user-crash-loop"


@pytest.mark.parametrize(
    ("first", "others", "word"),
    [
        ((9000, 137), (9020, 134), "process-crash"),
        ((9000, 139), (9020, 1), "process-crash"),
        ((9000, 1), (9020, 134), "user-crash"),
        ((9000, 134), (9005, 134), "nccl-timeout"),
    ],
)  # fmt: skip
def test_the_first_container_that_ends_says_why_and_all_alike_a_collective(first, others, word):
    assert (
        only(seen(pod(exits=exits(first)), *(pod(slot=n, exits=exits(others)) for n in (1, 2))))
        == word
    )


def test_a_container_that_was_killed_for_memory_is_its_programs_affair():
    killed = (
        ContainerExit(
            at=START + 9000,
            restarted_at=START + 9030,
            container="main",
            code=137,
            reason="OOMKilled",
        ),
    )
    assert only(seen(pod(exits=killed), pod(slot=1, exits=exits((9020, 134))))) == "oom-killed"


def test_a_helper_that_restarts_alone_stops_no_training():
    helper = (
        ContainerExit(
            at=START + 9000, restarted_at=START + 9012, container="log-shipper", code=137
        ),
    )
    found = seen(pod(exits=helper, containers=2), *(pod(slot=n, containers=2) for n in (1, 2)))
    assert only(found) == "sidecar"


def test_a_helper_is_told_by_its_name_where_others_are_seen_to_end_together():
    helper = ContainerExit(
        at=START + 9000, restarted_at=START + 9012, container="log-shipper", code=137
    )
    first = pod(exits=(helper, *exits((9500, 137))), containers=2)
    found = seen(first, *(pod(slot=n, exits=exits((9500 + n, 134)), containers=2) for n in (1, 2)))
    assert [one.cause for one in found] == [causes.SIDECAR, causes.PROCESS_CRASH]


def test_a_node_that_failed_first_is_the_cause_and_the_time():
    fault = switched((8990, 79.0), first=0.0)
    gang = [pod(slot=n, exits=exits((9030 + n, 1))) for n in range(2)]
    found = seen(*gang, a=life("a", xid=fault))
    assert only(found) == "gpu-lost"
    assert found[0].start == pytest.approx(START + 8960, abs=STEP)
    assert found[0].nodes == ("a",)


@pytest.mark.parametrize("by", ["cordon", "removal"])
def test_a_node_that_was_cordoned_first_or_that_an_autoscaler_removes_was_drained(by):
    closed = switched((8940, 1.0), (20000, 0.0), first=0.0)
    old = [pod(slot=n, until=START + 9000) for n in range(2)]
    new = [pod(slot=n, at=START + 9040, attempt="1", node=NODES[n + 2]) for n in range(2)]
    assert only(seen(*old, *new, a=life("a", **{by: closed}))) == "planned-drain"


@pytest.mark.parametrize(("deleted", "word"), [(9120, "planned-drain"), (DAY, "process-crash")])
def test_a_job_that_leaves_a_node_long_after_its_cordon_was_drained_if_the_node_is_deleted_then(
    deleted, word
):
    node = life("a", cordon=switched((2000, 1.0), first=0.0))
    old = [pod(slot=n, until=START + 9000) for n in range(2)]
    new = [pod(slot=n, at=START + 9040, attempt="1", node=NODES[n + 2]) for n in range(2)]
    there = replace(node, presence=(Span(START, START + deleted),))
    assert only(seen(*old, *new, a=there)) == word


def test_pods_that_were_replaced_while_nothing_was_sampled_were_out_from_when_the_new_ones_were_made():
    old = [pod(slot=n, until=START + 9000) for n in range(2)]
    new = [pod(slot=n, at=START + 12000, attempt="1") for n in range(2)]
    sampled = (Span(START, START + 9120), Span(START + 16000, END))  # by the minute, pods by 15 s
    blind = replace(pool_of(*old, *new), sampled=sampled, sample_spacing=15.0)
    (found,) = job_outages(JOB, [*old, *new], [], blind)
    assert (found.start, found.running) == (START + 12000, START + 12030)


def test_work_that_stopped_long_before_the_pods_went_was_a_hang():
    old = [pod(slot=n, attempt="", until=START + 30000) for n in range(2)]
    new = [pod(slot=n, attempt="", at=START + 30040) for n in range(2)]
    busy = dict.fromkeys(NODES[:2], ((START, START + 20000), (START + 30300, END)))
    (found,) = seen(*old, *new, busy=busy)
    assert (found.cause, found.start, found.end) == (causes.HANG, START + 20000, START + 30300)


def test_a_stall_of_the_steps_is_the_time_of_the_incident_beside_it():
    found = seen(
        pod(until=START + 4990),
        pod(at=START + 5001),
        stalls={JOB: stills((1000, 1400), (4950, 5300))},
    )
    assert [(one.start, one.end, one.timed) for one in found] == [
        (START + 4950, START + 5300, True)
    ]


def test_pods_on_nodes_of_another_pool_are_not_ours():
    assert seen(pod(until=START + 8990, node="x"), pod(at=START + 9000, node="x")) == []


def test_pods_that_went_while_nobody_looked_went_when_others_came():
    assert all(
        isinstance(one, Incident) for one in seen(pod(until=START + 10), pod(at=START + 50000))
    )


def test_a_recovery_has_the_phases_that_something_shows():
    gone, new = (
        pod(slot=0, until=START + 20290, over=START + 20290, failed=True),
        pod(slot=0, at=START + 20400),
    )
    (found,) = seen(pod(slot=1), gone, new, stalls={JOB: stills((20000, 20700), redone=480.0)})
    assert found.phases == {
        "detect": 290.0,
        "drain": 0.0,
        "queue": 110.0,
        "start": 30.0,
        "load": 270.0,
        "redo": 480.0,
    }
    assert (found.seconds, found.stood, found.timed) == (700.0, 2, True)


def test_drain_lasts_until_the_last_old_pod_has_ended_and_queue_until_the_last_new_one_is_made():
    old = [pod(slot=n, until=START + 20000 + 40 * n, over=START + 20000 + 40 * n) for n in range(2)]
    new = [pod(slot=n, at=START + 20900 + n, attempt="1") for n in range(2)]
    (found,) = seen(*old, *new)
    assert {name: found.phases[name] for name in ("drain", "queue")} == {
        "drain": 40.0,
        "queue": 861.0,
    }


def test_interruptions_between_which_no_step_was_finished_are_one_and_three_of_them_a_loop():
    loop = [
        pod(slot=n, exits=exits(*((9000 + 900 * k + n, 1) for k in range(4)))) for n in range(2)
    ]
    (found,) = seen(*loop, stalls={JOB: stills((8990, 12000))})
    assert (found.cause, found.start, found.end) == (causes.CRASH_LOOP, START + 8990, START + 12000)
    (still,) = seen(*loop, stalls={JOB: [Stall(START + 8990, math.inf)]})
    assert (still.cause, still.timed) == (causes.CRASH_LOOP, False), "it has not stepped yet"
    assert len(seen(*loop)) == 4, "where nobody sees steps it may have trained"


def test_who_waits_for_a_pod_on_a_node_with_a_fault_and_gives_up_when_it_is_moved_was_interrupted_once():
    fault, cordon = switched((9000, 79.0), first=0.0), switched((10200, 1.0), first=0.0)
    moved = pod(slot=0, node="a", until=START + 10230, exits=exits((9030, 134)))
    waits = [pod(slot=n, exits=exits((9031 + n, 134), (10260 + n, 1))) for n in (1, 2)]
    came = pod(slot=0, node="d", at=START + 10240)
    (found,) = seen(moved, came, *waits, a=life("a", xid=fault, cordon=cordon))
    assert (found.cause, found.recovery_class.value) == (causes.GPU_LOST, "pod")
    assert found.start < START + 9031 < START + 10262 < found.end


def test_a_drain_from_a_node_with_a_fault_is_the_faults():
    fault, cordon = switched((9000, 79.0), first=0.0), switched((15000, 1.0), first=0.0)
    gang = [pod(slot=n, attempt="0", until=START + 15090) for n in range(2)]
    new = [pod(slot=n, attempt="1", at=START + 15100, node=NODES[n + 2]) for n in range(2)]
    assert only(seen(*gang, *new, a=life("a", xid=fault, cordon=cordon))) == "gpu-lost"


def test_who_is_moved_off_a_node_whose_fault_had_stopped_it_before_was_drained_at_the_faults_cost():
    """The fault counts once, where it began; that an hour later somebody repairs it is no second
    failure, and costs what it costs.
    """
    fault, cordon = switched((9000, 79.0), first=0.0), switched((15000, 1.0), first=0.0)
    crash = exits((9010, 134))
    others = exits((9010, 134), (15100, 143))
    gang = [pod(slot=0, until=START + 15090, exits=crash), pod(slot=1, exits=others)]
    new = pod(slot=0, at=START + 15095, node="c")
    found = past(pool_of(*gang, new, a=life("a", xid=fault, cordon=cordon)), IncidentRules())
    jobs = [one for one in found.incidents if one.kind == "job"]
    assert [(one.cause.word, one.cause.counts) for one in jobs] == [
        ("gpu-lost", True),
        ("planned-drain", False),
    ]
    assert jobs[1].evidence[0] == "moved off a, whose gpu-lost had stopped it before"
    assert (jobs[1].charged, jobs[1].share) == (causes.GPU_LOST, 1.0)
    lost = {row.cause for row in found.account if row.job == JOB and row.state != "kept"}
    assert causes.GPU_LOST.word in lost
    assert causes.DRAIN.word not in lost


def test_a_job_whose_pod_stays_on_a_host_that_is_away_was_stopped_once_however_often_others_start():
    """The pod is `Terminating` until its host is back; without it no start of the others can
    have trained.
    """
    boot = ValueRun(START, START + 9000, START - DAY), ValueRun(START + 12540, END, START + 12520)
    away = life("a", ready=switched((9060, 0.0), (12600, 1.0), first=1.0), boot=boot)
    others = [
        pod(slot=n, exits=exits((9600 + n, 134), (11000 + n, 134), (12400 + n, 134)))
        for n in range(1, 4)
    ]
    stuck = pod(slot=0, until=START + 12600)
    again = pod(slot=0, at=START + 12620)
    (found,) = [one for one in seen(stuck, again, *others, a=away) if one.cause.counts]
    assert found.nodes == ("a",)
    assert found.end >= START + 12650


def test_a_boot_that_mends_a_fault_stops_a_job_for_repair():
    """Its fault is counted where it began: at the timeout of the collective that it broke."""
    away = switched((10260, 0.0), (10500, 1.0), first=1.0)
    fault = (ValueRun(START, START + 8940, 0.0), ValueRun(START + 9000, START + 10200, 119.0))
    boot = (
        ValueRun(START, START + 10140, START - DAY),
        ValueRun(START + 10440, END, START + 10420),
    )
    gang = [
        pod(slot=0, exits=exits((10480, 255))),
        *(pod(slot=n, exits=exits((9600 + n, 134), (10230 + n, 1))) for n in range(1, 4)),
    ]
    found = seen(*gang, a=life("a", ready=away, xid=fault, boot=boot))
    assert [(one.cause.word, one.cause.counts) for one in found] == [
        ("gpu-fatal", True),
        ("planned-drain", False),
    ]
    assert found[1].evidence[0] == "a was booted, whose gpu-fatal had stopped it before"


def test_a_pod_that_went_while_its_node_ran_short_of_disk_was_evicted_also_where_its_reason_is_gone():
    """Its controller took it away within seconds, so no sample has the reason; the node says
    DiskPressure for five minutes and more.
    """
    gang = [pod(slot=n, attempt="0", until=START + 9000, failed=n == 1) for n in range(3)]
    new = [pod(slot=n, attempt="1", at=START + 9040) for n in range(3)]
    pressure = switched((8980, 1.0), (9400, 0.0), first=0.0)
    assert only(seen(*gang, *new)) == "process-crash"
    (found,) = seen(*gang, *new, a=life("a", pressure=pressure))
    assert (found.cause.word, found.evidence[0]) == (
        "eviction",
        "a pod went while a had DiskPressure",
    )
    elsewhere = seen(*gang, *new, d=life("d", pressure=pressure))
    assert only(elsewhere) == "process-crash"


def test_a_drain_is_no_fault_of_another_node_that_fails_only_after_it():
    cordon, fault = switched((9000, 1.0), first=0.0), switched((9400, 79.0), first=0.0)
    gang = [pod(slot=n, until=START + 9090) for n in range(2)]
    new = [pod(slot=n, attempt="1", at=START + 9100, node="cb"[n]) for n in range(2)]
    found = seen(*gang, *new, a=life("a", cordon=cordon), b=life("b", xid=fault))
    assert found[0].cause.word == "planned-drain"


def test_steps_that_went_on_between_two_outages_make_them_two():
    """Five minutes apart: without steps nobody could have trained between them."""
    twice = [pod(slot=n, exits=exits((9000, 137), (9300, 137))) for n in range(2)]
    coarse = [
        Stall(START + 8990, START + 9030, 600.0, 300.0, 640.0),
        Stall(START + 9290, START + 9350, 100.0, 300.0, 160.0),
    ]
    fine = [replace(one, gap=15.0, lost_seconds=None) for one in coarse]
    assert counts(seen(*twice))["process"] == 1
    assert counts(seen(*twice, stalls={JOB: fine}))["process"] == 2
    found = seen(*twice, stalls={JOB: [replace(one, gap=120.0) for one in coarse]})
    assert [one.seconds + one.phases["redo"] for one in found] == pytest.approx([640, 160], abs=1)


def test_a_pod_that_is_replaced_late_was_there_when_it_began():
    fault = switched((9000, 79.0), first=0.0)
    late = pod(slot=0, node="a", until=START + 9990)
    others = [pod(slot=n, exits=exits((9030 + n, 134), (9430, 1), (9830, 1))) for n in (1, 2)]
    (found,) = seen(late, pod(slot=0, node="d", at=START + 10000), *others, a=life("a", xid=fault))
    assert found.nodes == ("a",)


def test_an_id_that_is_overruled_and_that_no_incident_has_is_told_if_it_is_of_this_time():
    ids = [
        f"job/{JOB}@{datetime.fromtimestamp(at, UTC):%Y-%m-%dT%H:%M:%SZ}"
        for at in (START + 10, START - 9e6)
    ]
    rules = IncidentRules.model_validate({"overruled": dict.fromkeys(ids, "none")})
    told = past(pool_of(), rules)
    assert told.warnings == (f"spec.incidents.overruled names no incident that was seen: {ids[0]}",)


def test_where_nobody_saw_the_first_step_loading_lasts_as_usual_and_the_evidence_says_what_that_is():
    gang = [
        pod(slot=n, exits=exits((10000 + n, 137), (40000 + n, 137), again=20.0)) for n in range(2)
    ]
    (first, second) = seen(*gang, stalls={JOB: stills((9990, 10521))})
    assert (first.timed, first.phases["load"]) == (True, 500.0)
    assert (second.timed, second.end, "load" in second.phases) == (
        False,
        START + 40021 + 500,
        False,
    )
    assert second.evidence[-1].endswith("500 s of loading are the median of 1 that were seen")
    alone = seen(*gang)[1]
    assert (alone.end, alone.evidence[-1].rpartition(" of loading ")[2]) == (
        START + 40021 + 240,
        "are a prior, for none was ever seen",
    )


def seconds_of(account, *keys):
    """Node-seconds of an account by state and some keys, to ten seconds: a row is rounded
    to nine.
    """
    return {
        (one.state.value, *(getattr(one, key) for key in keys)): pytest.approx(
            one.node_days * DAY, abs=10
        )
        for one in summed(account, *keys)
    }


def test_every_node_second_has_one_state_and_one_cause_and_a_users_pause_is_idle():
    crash = [pod(slot=n, exits=exits((10000 + n, 137))) for n in range(3)]
    past_of = past(pool_of(*crash), IncidentRules())
    assert past_of.phases == {"start": (22.0,)}
    lost = 3 * (900 + 22 + 240)  # half of half an hour of work, the restart, and the usual loading
    assert seconds_of(past_of.account, "cause") == {
        ("kept", ""): 3 * DAY - lost,
        ("redone", "process-crash"): 3 * 900,
        ("restarting", "process-crash"): 3 * 22,
        ("rendezvous", "process-crash"): 3 * 240,
        ("idle", "no-job"): DAY,
    }
    assert capacity(past_of.account) == pytest.approx(4.0, abs=1e-3)
    assert node_days_lost(past_of.account)["process-crash"] * DAY == pytest.approx(lost, abs=30)
    guessed = sum(one.estimated for one in past_of.account)
    assert guessed * DAY == pytest.approx(3 * (900 + 240), abs=10)

    old = [pod(slot=n, attempt="", until=START + 9000) for n in range(3)]
    new = [pod(slot=n, attempt="", at=START + 12000 + n) for n in range(3)]
    told = seconds_of(past(pool_of(*old, *new), IncidentRules()).account, "cause")
    assert told["idle", "resubmission"] == 3 * 2970  # nobody wanted the nodes while it was away
    assert ("queue", "resubmission") not in told


@pytest.mark.parametrize(
    "saves, run, redone",
    [(None, 10000, 900), (None, 1000, 500), (3600, 10000, 2800), (600, 10000, 400)],
    ids=["half of half an hour", "half of a short run", "since the second save", "since the last"],
)
def test_work_done_again_is_what_came_after_the_last_save(saves, run, redone):
    crash = [
        pod(slot=n, at=START + 1000 - 30, exits=exits((1000 + 240 + run, 137))) for n in range(2)
    ]
    rules = IncidentRules.model_validate({"checkpointSeconds": saves} if saves else {})
    account = past(pool_of(*crash), rules).account
    assert seconds_of(account)[("redone",)] == 2 * redone
    if saves:  # what the job itself has goes before what is stated of all
        stated = IncidentRules.model_validate({"checkpointSeconds": 1234})
        facts = {
            JOB: JobFacts(saves_every=float(saves)),
            "ns/other": JobFacts(saves_every=77.0),
        }
        own = past(pool_of(*crash), stated, facts=facts).account
        assert own == account


def test_steps_say_what_was_done_again_and_nothing_of_it_is_estimated():
    gang = [pod(slot=n, exits=exits((10000 + n, 137))) for n in range(2)]
    pool = pool_of(*gang, stalls={JOB: stills((9990, 10521), redone=444.0)})
    account = past(pool, IncidentRules()).account
    assert seconds_of(account)[("redone",)] == 2 * 444
    assert sum(one.estimated for one in account) == 0


def test_a_node_that_is_away_is_in_repair_and_its_job_waits_for_a_spare_one_on_the_others():
    down = life("b", ready=switched((9000, 0.0), (16200, 1.0), first=1.0))
    gang = [
        pod(slot=0, exits=exits((9360, 134), again=2670.0)),
        pod(slot=1, until=START + 9300),
        pod(slot=1, at=START + 9400, node="c", started=START + 12000),
    ]
    past_of = past(pool_of(*gang, b=down), IncidentRules())
    told = seconds_of(past_of.account, "cause")
    assert {cause for _, cause in told} == {"", "kubelet-down", "no-job"}
    assert told["repair", "kubelet-down"].expected == pytest.approx(7200, abs=150)
    assert told["spare", "kubelet-down"].expected > 2 * 2000  # a and c; a start takes half a minute
    assert capacity(past_of.account) == pytest.approx(4.0, abs=1e-3)
    ids = {name for one in past_of.account for name in one.incidents}
    assert any(name.startswith("node/b@") for name in ids)


def test_nodes_that_only_their_observer_lost_cost_nothing():
    """Three idle nodes are said to be away for ten minutes, while what is on them speaks."""
    away = {
        name: life(
            name,
            ready=switched((9000, 0.0), (9600, 1.0), first=1.0),
            xid=(ValueRun(START, END, 0.0),),
        )
        for name in "bcd"
    }
    past_of = past(pool_of(pod(slot=0), **away), IncidentRules())
    assert {one.cause for one in past_of.incidents} == {causes.OBSERVER}
    assert node_days_lost(past_of.account) == {}


def test_what_somebody_overrules_counts_as_they_say_and_so_do_the_jobs_that_it_interrupted():
    down = life("b", ready=switched((9000, 0.0), (16200, 1.0), first=1.0))
    gang = [pod(slot=0), pod(slot=1, until=START + 9300), pod(slot=1, at=START + 9400, node="c")]

    def told(**stated):
        found = everything(*gang, b=down, rules={"overruled": stated})
        return {one.kind: (one.cause.word, one.deduced is not None) for one in found}

    assert told() == {"node": ("kubelet-down", False), "job": ("kubelet-down", False)}
    job, node = (one.id for one in everything(*gang, b=down))
    assert (job, node) == ("job/research/llama@1970-01-12T16:15:30Z", "node/b@1970-01-12T16:15:30Z")
    assert told(**{node: "none"}) == {"node": ("none", True), "job": ("none", False)}
    assert told(**{job: "user-crash"}) == {
        "node": ("kubelet-down", False),
        "job": ("user-crash", True),
    }
    assert told(**{node.replace("16:15", "16:20"): "planned-drain"})["node"] == (
        "planned-drain",
        True,
    )
    for other in (node.replace("16:15", "17:15"), node.replace("/b", "/c")):
        assert told(**{other: "none"}) == told()


def test_an_interruption_that_was_none_counts_where_somebody_says_so_and_a_moment_has_to_be_one():
    old = [pod(slot=n, attempt="", until=START + 9000) for n in range(3)]
    new = [pod(slot=n, attempt="", at=START + 9100 + n) for n in range(3)]
    (one,) = seen(*old, *new)
    assert one.cause is causes.RESUBMISSION
    (told,) = seen(*old, *new, rules={"overruled": {one.id: "hang"}})
    assert (told.cause, told.recovery_class.value, told.evidence[0]) == (
        causes.HANG,
        "job",
        "overruled; deduced was resubmission",
    )
    with pytest.raises(BadValue, match=r"2026-13-31.*node/gpu-17@2026-01-31T09:30:00Z"):
        seen(*old, *new, rules={"overruled": {"job/ml/a@2026-13-31T09:30:00Z": "none"}})


def ended_with(code, *times, more=()):
    """Eight pods whose containers all end with a code at these times."""
    return [
        pod(slot=n, node=f"n{n}", exits=exits(*((at + n, code) for at in times), *more))
        for n in range(8)
    ]


def judged(*pods):
    lives = {f"n{n}": life(f"n{n}") for n in range(8)}
    timelines = replace(pool_of(*pods), node_timelines=lives)
    return [one for one in past(timelines, IncidentRules()).incidents if one.kind == "job"]


def test_under_torchrun_all_exit_with_one_and_a_job_that_goes_on_unchanged_was_not_at_fault():
    (found,) = judged(*ended_with(1, 40000))
    assert (found.cause.word, found.cause.counts) == ("nccl-timeout", True)
    assert found.share > 0.8


def test_a_program_that_ends_after_the_same_time_again_and_again_is_at_fault():
    found = judged(*ended_with(1, *(10000 + 1500 * n for n in range(8))))
    assert {one.cause.counts for one in found} == {False}
    assert max(one.share for one in found) < 0.5


def test_a_crash_that_comes_back_after_twelve_good_hours_is_no_error_of_the_program():
    found = judged(*ended_with(1, 3600, 3600 + 43200, 3600 + 2 * 43000))
    assert [one.cause.counts for one in found][:2] == [True, True]


def test_runs_that_all_end_after_the_same_hours_ended_by_a_clock_or_a_leak_of_the_program():
    """A token that is valid for six hours; a process whose memory grows until the kernel
    kills it.
    """
    for code in (1, 137):
        found = judged(*ended_with(code, *(5000 + 21600 * n for n in range(4))))
        assert len(found) == 4
        assert max(one.share for one in found[1:]) < 0.1, code


def test_codes_that_differ_are_the_programs_own():
    told = [pod(slot=0, node="n0", exits=exits((40000, 1)))]
    told += [pod(slot=n, node=f"n{n}", exits=exits((40010 + n, 143))) for n in range(1, 8)]
    (found,) = judged(*told)
    assert (found.cause.word, found.share < 0.5) == ("user-crash", True)


def test_jobs_that_stop_in_the_same_minute_have_a_cause_outside():
    one = [replace(each, job="a/one") for each in ended_with(1, 40000)[:4]]
    two = [replace(each, job="b/two") for each in ended_with(1, 40020)[4:]]
    found = judged(*one, *two)
    assert len(found) == 2
    assert all(each.share > 0.9 for each in found)


def test_jobs_that_fail_at_several_starts_at_once_and_go_on_unchanged_lacked_something_outside():
    """A file system is away for five minutes. One job alone that does so is its
    program's affair.
    """
    loop = (40000, 40070, 40140, 40220, 40290)
    one = [replace(each, job="a/one") for each in ended_with(1, *loop)[:4]]
    two = [replace(each, job="b/two") for each in ended_with(1, *(at + 30 for at in loop))[4:]]
    both, alone = judged(*one, *two), judged(*one)
    assert [found.cause.counts for found in both] == [True, True]
    assert [found.cause.word for found in alone] == ["user-crash-loop"]


def test_jobs_that_begin_to_fail_one_by_one_and_go_on_together_lacked_something_outside():
    """A bucket is away for fifty minutes, and each job misses it at its own save."""
    back = 43000
    early, late = range(40000, back, 200), range(41200, back, 200)
    one = [replace(each, job="a/one") for each in ended_with(1, *early)[:4]]
    two = [replace(each, job="b/two") for each in ended_with(1, *late)[4:]]
    assert [found.cause.counts for found in judged(*one, *two)] == [True, True]
    apart = [replace(each, job="b/two") for each in ended_with(1, *(at + 9000 for at in late))[4:]]
    assert [found.cause.word for found in judged(*one, *apart)] == ["user-crash-loop"] * 2


def test_a_job_that_is_made_anew_smaller_trains_on_and_is_not_out_until_it_grows_again():
    old = [pod(slot=n, until=START + 9000) for n in range(4)]
    new = [pod(slot=n, attempt="1", at=START + 9100, until=START + 60000) for n in range(2)]
    grown = [pod(slot=n, attempt="2", at=START + 60100) for n in range(4)]
    (smaller,) = seen(*old, *new)
    assert smaller.end == pytest.approx(START + 9130, abs=LOADED)
    assert [one.end - one.start < 1000 for one in seen(*old, *new, *grown)] == [True, True]


def test_a_job_whose_new_pod_never_ran_was_out_until_it_was_taken_away():
    old = [pod(slot=n, until=START + 9000) for n in range(2)]
    new = [
        pod(slot=0, attempt="1", at=START + 9060, until=START + 30000),
        pod(slot=1, attempt="1", at=START + 9060, until=START + 30000, started=None),
    ]
    down = life("b", ready=switched((9000, 0.0), (50000, 1.0), first=1.0))
    (found,) = seen(*old, *new, b=down)
    assert (found.cause.word, found.lasts) == ("kubelet-down", False)
    assert found.end == pytest.approx(START + 30000, abs=STEP)


@pytest.mark.parametrize(
    "nodes, attempts, word",
    [
        ("abcc", "01234", "user-crash-loop"),  # it went on where it had failed
        ("abcd", "01230", "user-crash-loop"),  # somebody made it anew
        ("abcd", "01234", "process-crash"),
    ],
)
def test_who_stops_again_and_again_on_some_nodes_and_lasts_on_others_unchanged_had_a_bad_node(
    nodes, attempts, word
):
    """Four runs of a quarter of an hour, and then one of the rest of the day."""
    ends = [START + 3600 + 945 * k for k in range(4)]
    begins = [START + 2700, *(end + 45 for end in ends)]
    told = [
        pod(slot=slot, attempt=attempts[k], at=begin, until=end, node=node)
        for k, (begin, end) in enumerate(zip(begins, [*ends, END], strict=True))
        for slot, node in enumerate(nodes[:3] if k < 4 else (*nodes[:2], nodes[3]))
    ]
    found = seen(*told)
    assert {one.cause.word for one in found[:3]} == {word}


def test_places_that_give_up_on_one_that_went_out_are_the_same_incident():
    told = [pod(slot=0, node="n0", exits=exits((20000, 137)))]
    told += [pod(slot=n, node=f"n{n}", exits=exits((20610 + n, 1))) for n in range(1, 8)]
    assert len(judged(*told)) == 1


def test_evidence_tells_faults_from_interruptions_that_are_none():
    def stop(cause, at):
        return Incident(
            kind="job",
            name=JOB,
            start=at,
            end=at + 600,
            cause=cause,
            evidence=(),
            recovery_class=RecoveryClass.JOB,
        )

    told = [
        stop(causes.NODE_DOWN, 0),
        stop(causes.PREEMPTION, 5000),
        stop(causes.DRAIN, 9000),
        stop(causes.RECLAIMED, 20000),
    ]
    seen = _evidence(100.0, told)
    assert (seen.failures, seen.others, seen.interruptions) == (1, 3, 4)
    assert seen.mean_recovery == 600
    assert not causes.USER_CRASH.interrupts
