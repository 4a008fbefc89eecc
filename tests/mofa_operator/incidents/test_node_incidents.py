"""What happens to nodes: outages, faults while they stay ready, and what is planned."""

from dataclasses import replace

import pytest

from mofa_model.errors import InputError
from mofa_model.manifest.cluster_profile import IncidentRules
from mofa_model.manifest.parsing import parse
from mofa_model.spec.incident_causes import XidMeaning, meaning
from mofa_operator.incidents.node_incidents import node_incidents as incidents_of
from mofa_operator.incidents.past import past
from mofa_operator.incidents.shared_incidents import domains, seen_by_observer
from mofa_operator.incidents.timelines import (
    ALLOCATABLE,
    BOOT,
    CORDON,
    COUNTED,
    DETECTED,
    PROBLEM,
    READY,
    TAINT,
    XID,
    XID_COUNT,
    ContainerExit,
    NodeTimeline,
    PodTimeline,
    PoolTimelines,
    SignalTimeline,
    Span,
    ValueRun,
    length,
)
from mofa_operator.observe.history.history import _no_exposure_warning

START, DAY = 1_000_000.0, 86400.0
END = START + DAY
WORDS = {
    "ready": (READY, ()), "cordon": (CORDON, ()), "taint": (TAINT, ("gpu-health",)), "boot": (BOOT, ()),
    "xid": (XID, ("0", "u0")), "other": (XID, ("1", "u1")), "offered": (ALLOCATABLE, ("nvidia_com_gpu",)),
    "link": (DETECTED, ("NICProblem", "NICLinkDown")), "counted": (COUNTED, ("XidError",)),
}  # fmt: skip


def switched(*turns, first=1.0, step=60.0, until=DAY):
    made, at, value = [], START, first
    for turn, then in turns:
        made.append(ValueRun(at, START + turn - step, value))
        at, value = START + turn, then
    return (*made, ValueRun(at, START + until, value))


def booted(at, dark=300.0):
    """The boot time, silent while the host is down."""
    return ValueRun(START, START + at - dark, START - DAY), ValueRun(
        START + at + 30, END, START + at
    )


def life(name="a", step=60.0, labels=None, seen=DAY, **told):
    told.setdefault("ready", switched(until=seen))
    return NodeTimeline(
        name=name,
        timelines=tuple(SignalTimeline(name, *WORDS[word], runs) for word, runs in told.items()),
        signals=frozenset(WORDS[word][0] for word in told),
        spacing={one: step for one, _ in WORDS.values()},
        labels=labels or {},
        presence=(Span(START, START + seen),),
        sampled=(Span(START, END),),
    )


def node_incidents(of, **rules):
    return incidents_of(of, IncidentRules.model_validate(rules))


def words(found):
    return [one.cause.word for one in found]


def failures(*, rules=None, **told):
    return [one for one in node_incidents(life(**told), **rules or {}) if one.cause.counts]


def problem(name):
    """Failures of a node that has a condition for some hours, under the cordon that answers it."""
    line = SignalTimeline("a", PROBLEM, (name,), switched((9000, 1.0), (20000, 0.0), first=0.0))
    one = life(cordon=switched((9060, 1.0), (21000, 0.0), first=0.0))
    found = node_incidents(replace(one, timelines=(*one.timelines, line)))
    return [incident for incident in found if incident.cause.counts]


def test_not_ready_for_long_with_another_boot_time_is_a_host_that_was_down():
    (found,) = failures(ready=switched((9000, 0.0), (16200, 1.0)), boot=booted(16000, 7000))
    assert found.cause.word == "node-down"
    assert found.start == pytest.approx(START + 8930, abs=30)
    assert found.seconds == pytest.approx(7240, abs=60)


@pytest.mark.parametrize(("seconds", "word"), [(120, "flap"), (240, "flap"), (900, "kubelet-down")])
def test_on_the_same_boot_only_what_outlasts_the_toleration_of_pods_is_a_failure(seconds, word):
    boot = (ValueRun(START, END, START - DAY),)
    assert words(
        node_incidents(life(ready=switched((9000, 0.0), (9000 + seconds, 1.0)), boot=boot))
    ) == [word]


def test_a_short_outage_with_another_boot_time_is_a_reboot_even_where_no_sample_was_not_ready():
    assert words(failures(ready=switched((9000, 0.0), (9240, 1.0)), boot=booted(9200))) == [
        "reboot"
    ]
    assert words(failures(step=300.0, boot=booted(9200))) == ["reboot"]


def test_a_cordon_before_the_outage_makes_it_planned_and_one_after_it_does_not():
    down, boot = switched((9000, 0.0), (12000, 1.0)), booted(11900, 3000)
    assert not failures(
        ready=down, boot=boot, cordon=switched((8400, 1.0), (20000, 0.0), first=0.0)
    )
    (found,) = failures(
        ready=down, boot=boot, cordon=switched((9180, 1.0), (20000, 0.0), first=0.0)
    )
    assert found.end == pytest.approx(START + 20000, abs=60), (
        "it lasts until the cordon for it ends"
    )


def test_a_drain_that_is_uncordoned_before_the_node_is_ready_is_planned():
    down, boot = switched((9000, 0.0), (9600, 1.0)), booted(9500)
    assert not failures(ready=down, boot=boot, cordon=switched((7000, 1.0), (9300, 0.0), first=0.0))


def test_a_cordon_may_be_a_taint_of_an_agent():
    down, boot = switched((9000, 0.0), (12000, 1.0)), booted(11900, 3000)
    assert not failures(ready=down, boot=boot, taint=(ValueRun(START + 8400, START + 20000, 1.0),))


def test_an_xid_of_hardware_is_a_failure_until_its_repair_ends_and_that_of_a_program_is_none():
    repair = switched((9600, 1.0), (20000, 0.0), first=0.0)
    (found,) = failures(xid=switched((9000, 48.0), (19000, 0.0), first=0.0), cordon=repair)
    assert (found.cause.word, round((found.end - START) / 100)) == ("gpu-fatal", 200)
    assert not failures(xid=switched((9000, 31.0), first=0.0))
    assert words(node_incidents(life(xid=switched((9000, 63.0), first=0.0)))) == ["xid-warning"]


def test_a_profile_says_what_an_xid_means_and_how_short_an_outage_is_none():
    note, program = switched((9000, 63.0), first=0.0), switched((9000, 31.0), first=0.0)
    assert words(failures(xid=note, rules={"xids": {"63": "hardware"}})) == ["gpu-fatal"]
    assert words(failures(xid=program, rules={"xids": {"31": "hardware"}})) == ["gpu-fatal"]
    assert not failures(xid=switched((9000, 48.0), first=0.0), rules={"xids": {"48": "program"}})
    down, boot = switched((9000, 0.0), (9900, 1.0)), (ValueRun(START, END, START - DAY),)
    assert not failures(ready=down, boot=boot, rules={"shortestOutageSeconds": 1200})
    brief = switched((9000, 0.0), (9240, 1.0))
    assert words(failures(ready=brief, boot=boot, rules={"shortestOutageSeconds": 120})) == [
        "kubelet-down"
    ]


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        ({"xids": {"48": "bad"}}, ("spec.incidents.xids.48", "'bad'", "hardware")),
        ({"xids": {"many": "note"}}, ("spec.incidents.xids.many", "'many'", "94")),
        (
            {"shortestOutageSeconds": 5},
            ("spec.incidents.shortestOutageSeconds", "5", "give 30 or more"),
        ),
        (
            {"overruled": {"gpu-17": "none"}},
            ("spec.incidents.overruled.gpu-17", "node/gpu-17@2026"),
        ),
        (
            {"overruled": {"node/a@2026-01-31T09:30:00Z": "luck"}},
            ("T09:30:00Z", "'luck'", "planned-drain"),
        ),
    ],
)
def test_a_rule_that_cannot_be_is_refused_by_field_value_and_what_would_be_right(rules, words):
    with pytest.raises(InputError) as refused:
        parse(IncidentRules, rules, "spec.incidents")
    assert all(word in str(refused.value) for word in words), refused.value
    assert "\n" not in str(refused.value)


def test_a_gauge_that_holds_on_to_an_xid_tells_it_once():
    told = (ValueRun(START, START + 500, 48.0), ValueRun(START + 4000, END, 48.0))
    assert not failures(xid=told)


def test_a_clean_up_over_an_xid_hides_it_from_the_gauge_but_not_from_who_counts():
    told = switched((9000, 45.0), first=0.0)
    assert not failures(xid=told)
    assert words(failures(xid=told, counted=switched((9000, 1.0), first=0.0))) == ["gpu-fatal"]
    assert words(failures(xid=told, cordon=switched((9300, 1.0), first=0.0))) == ["gpu-fatal"]


def test_a_gpu_that_is_gone_while_others_stay_is_lost_and_an_exporter_that_restarts_loses_none():
    short = (ValueRun(START, START + 9000, 0.0), ValueRun(START + 20000, END, 0.0))
    whole = (ValueRun(START, END, 0.0),)
    assert words(failures(xid=short, other=whole)) == ["gpu-lost"]
    assert not failures(xid=short, other=short)
    assert words(failures(offered=switched((9000, 7.0), (20000, 8.0), first=8.0))) == ["gpu-lost"]
    assert not failures(offered=switched((9000, 0.0), (9120, 8.0), first=8.0)), (
        "the device plugin restarted"
    )


def test_a_link_that_is_down_is_a_failure_of_the_network():
    assert words(failures(link=switched((9000, 1.0), (20000, 0.0), first=0.0))) == ["nic"]


def test_a_node_that_is_deleted_was_lost_if_it_was_not_ready_and_else_taken_away():
    lost = life(
        ready=(ValueRun(START, START + 8940, 1.0), ValueRun(START + 9000, START + 9900, 0.0)),
        seen=9900.0,
    )
    assert words(node_incidents(lost)) == ["node-lost"]
    assert words(node_incidents(life(seen=9900.0))) == ["scale-down"]


def test_an_xid_just_before_the_host_dies_is_the_same_incident():
    down, boot = switched((9000, 0.0), (12000, 1.0)), booted(11900, 3000)
    assert words(
        failures(ready=down, boot=boot, xid=(*switched((8900, 79.0), first=0.0, until=8960),))
    ) == ["node-down"]


@pytest.mark.parametrize(
    "later, words_of_both",
    [(600, ["gpu-fatal"]), (1500, ["gpu-fatal"]), (3000, ["gpu-fatal", "reboot"])],
)
def test_a_reboot_soon_after_a_fault_of_a_gpu_mends_it_and_is_no_second_failure(
    later, words_of_both
):
    away = switched((9000 + later, 0.0), (9360 + later, 1.0))
    told = (*switched((9000, 48.0), first=0.0, until=9000 + later),)
    found = failures(ready=away, boot=booted(9300 + later, 200), xid=told)
    assert words(found) == words_of_both
    assert found[-1].end == pytest.approx(START + 9360 + later, abs=60)


def test_a_fault_that_is_told_when_the_host_is_back_is_of_the_outage():
    down, boot = switched((9000, 0.0), (12000, 1.0)), booted(11900, 3000)
    told = (ValueRun(START, START + 8940, 0.0), ValueRun(START + 12060, END, 48.0))
    (found,) = failures(ready=down, boot=boot, xid=told)
    assert (found.cause.word, found.evidence[-1]) == ("node-down", "XID 48")


def test_conditions_of_nvsentinel_are_failures_of_gpus_where_they_are_fatal():
    """As its integration guide names them: of what is not fatal, and of its own daemon, none
    is one.
    """
    said = {"GpuMemWatch": "gpu-fatal", "SysLogsXIDError": "gpu-fatal", "SysLogsGPUFallenOff": "gpu-lost", "NVSwitchDown": "gpu-fatal"}  # fmt: skip
    for name, word in said.items():
        assert words(problem(name)) == [word], name
    for name in ("NVSwitchNonFatalError", "DCGMError", "CSPMaintenance"):
        assert not problem(name), name


def test_what_an_agent_tells_of_a_node_is_no_failure_where_work_went_on():
    """Heat for five hours: clocks are lower. The same is one where a container ended, where it is
    cordoned, and where nothing runs.
    """
    line = SignalTimeline(
        "a", PROBLEM, ("GPUThermalThrottling",), switched((9000, 1.0), (27000, 0.0), first=0.0)
    )
    trains = PodTimeline(job="j", node="a", created=START - 9, started=START, last=END)
    killed = replace(trains, exits=(ContainerExit(at=START + 9600, restarted_at=START + 9610),))
    cordon = switched((20000, 1.0), (30000, 0.0), first=0.0)

    def told(*pods, **more):
        one = life(**more)
        one = replace(one, timelines=(*one.timelines, line), pod_timelines=pods)
        found = node_incidents(one)
        return [one.cause.word for one in seen_by_observer(found, {"a": one}, 60.0)]

    assert told(trains) == ["xid-warning"]
    assert told(killed) == told(trains, cordon=cordon) == told() == ["gpu-fatal"]


def test_nodes_of_a_rack_that_go_down_at_once_are_one_incident():
    def found(racks):
        down = dict(ready=switched((9000, 0.0), (16200, 1.0)), boot=booted(16000, 7000))
        lives = [
            life(str(n), labels={"rack": rack, "pool": "x"}, **(down if rack == "r1" else {}))
            for n, rack in enumerate(racks)
        ]
        every = [one for each in lives for one in node_incidents(each)]
        return domains(every, {each.name: each.labels for each in lives}, 60.0)

    (one,) = found(["r1"] * 4 + ["r2"] * 4)
    assert (one.kind, one.cause.word, one.nodes) == ("domain", "rack-outage", ("0", "1", "2", "3"))
    # at 6.5 failures in 1,000 node-days the other of two fails within two minutes once in 100,000
    assert words(found(["r1"] * 2 + ["r2"] * 6)) == ["rack-outage"]
    few = found(["r1"] * 2 + ["r2"] * 6 + [None])
    assert [one.nodes for one in few] == [("0", "1")]


def pool_past(*nodes, pods=(), **rules):
    """The past of a pool of these nodes and pods."""
    timelines = PoolTimelines(
        node_timelines={node.name: node for node in nodes},
        pod_timelines={f"uid-{number}": pod for number, pod in enumerate(pods)},
        gpu_busy={},
        stalls={},
        sampled=(Span(START, END),),
        sample_spacing=60.0,
    )
    return past(timelines, IncidentRules.model_validate(rules))


def trained(node, slot=0, until=DAY, at=-DAY, **more):
    return PodTimeline(
        job="ml/big",
        attempt="0",
        slot=str(slot),
        node=node,
        created=START + at,
        started=START + at + 30,
        last=START + until,
        containers=1,
        **more,
    )


def test_a_taint_that_stands_throughout_is_configuration_and_hides_no_failure():
    stands = (ValueRun(START, END, 1.0),)
    down = dict(ready=switched((9000, 0.0), (12000, 1.0)), boot=booted(11900, 3000))
    found = pool_past(
        *(life(str(n), taint=stands) for n in range(3)), life("9", taint=stands, **down)
    )
    assert words(found.incidents) == ["node-down"]
    assert sum(map(length, found.exposed.values())) == pytest.approx(4 * DAY - 3000, abs=200)


def test_nodes_that_are_there_and_never_exposed_are_said_loudly():
    cordoned = pool_past(life(cordon=(ValueRun(START, END, 1.0),)), life("b", cordon=(ValueRun(START, END, 1.0),)), life("c", ready=(ValueRun(START, END, 0.0),)))  # fmt: skip
    open_for_pods = pool_past(life())
    nodes = frozenset(cordoned.exposed)
    assert "look at their taints" in _no_exposure_warning(nodes, replace(cordoned, exposed=dict.fromkeys(nodes, ())))  # fmt: skip
    assert not _no_exposure_warning(nodes, open_for_pods)


def test_a_taint_under_which_pods_are_placed_cordons_nothing():
    taint = (ValueRun(START + 8000, START + 20000, 1.0),)
    down = dict(ready=switched((9000, 0.0), (12000, 1.0)), boot=booted(11900, 3000))
    assert words(pool_past(life(taint=taint, **down), life("b")).incidents) == ["planned-drain"]
    placed = trained("b", at=9000, until=20000)
    other = life("b", taint=taint)
    assert "node-down" in words(
        pool_past(life(taint=taint, **down), other, pods=[placed]).incidents
    )


def test_a_cordon_within_a_minute_before_the_first_sign_of_a_fault_answers_it():
    cordon = switched((8940, 1.0), (20000, 0.0), first=0.0)
    (found,) = failures(xid=switched((9000, 79.0), first=0.0), cordon=cordon)
    assert found.cause.word == "gpu-lost"
    early = switched((8400, 1.0), (20000, 0.0), first=0.0)
    assert not failures(xid=switched((9000, 79.0), first=0.0), cordon=early)


def test_nodes_that_all_go_quiet_while_their_pods_go_on_were_lost_by_whoever_watches():
    quiet = dict(
        ready=switched((9000, 0.0), (9480, 1.0)), boot=(ValueRun(START, END, START - DAY),)
    )
    nodes = [life(str(n), **quiet) for n in range(4)]
    pods = [trained(str(n), n) for n in range(4)]
    (found,) = pool_past(*nodes, pods=pods).incidents
    assert (found.cause.word, found.cause.counts, len(found.nodes)) == ("observer-failed", False, 4)
    ended = [trained(str(n), n, until=9300, over=START + 9300, failed=True) for n in range(4)]
    assert "kubelet-down" in words(pool_past(*nodes, pods=ended).incidents)


@pytest.mark.parametrize(("code", "word"), [(95, "gpu-fatal"), (31, "user-xid")])
def test_xids_that_only_a_count_of_the_last_minutes_tells_are_seen(code, word):
    line = SignalTimeline("a", XID_COUNT, (str(code), "0", "u"), (ValueRun(START + 9000, START + 9300, 1.0),))  # fmt: skip
    one = life()
    assert words(node_incidents(replace(one, timelines=(*one.timelines, line)))) == [word]


def test_the_only_gpu_of_a_node_may_be_lost_and_a_plugin_that_starts_anew_loses_none():
    gone = switched((9000, 0.0), (20000, 1.0), first=1.0)
    assert words(failures(offered=gone)) == ["gpu-lost"]
    rolled = switched((9000, 0.0), (9120, 4.0), (9300, 8.0), first=8.0)
    assert not failures(offered=rolled)


def test_gpus_that_are_divided_anew_are_not_lost():
    one = life(offered=switched((9000, 0.0), (20000, 8.0), first=8.0))
    mig = SignalTimeline("a", ALLOCATABLE, ("nvidia_com_mig_1g_10gb",), switched((9060, 56.0), (20000, 0.0), first=0.0))  # fmt: skip
    assert not words(node_incidents(replace(one, timelines=(*one.timelines, mig))))


def test_a_condition_that_is_true_where_all_is_well_is_a_fault_while_it_is_not():
    line = SignalTimeline("a", PROBLEM, ("AcceleratedHardwareReady",), switched((9000, 0.0), (12000, 1.0)))  # fmt: skip
    one = life()
    assert words(node_incidents(replace(one, timelines=(*one.timelines, line)))) == ["gpu-fatal"]


def test_a_machine_that_is_taken_away_idle_and_made_again_did_not_reboot():
    there = (Span(START, START + 20000), Span(START + 40000, END))
    ready = (ValueRun(START, START + 20000, 1.0), ValueRun(START + 40000, END, 1.0))
    boot = (
        ValueRun(START, START + 20000, START - DAY),
        ValueRun(START + 40000, END, START + 39950),
    )
    one = replace(life(ready=ready, boot=boot), presence=there)
    assert words(node_incidents(one)) == ["scale-down"]
    taken = trained("a", until=19990, over=START + 19990, failed=True)
    (found,) = node_incidents(replace(one, pod_timelines=(taken,)))
    assert (found.cause.word, found.cause.by.value) == ("reclaimed", "preemption")


@pytest.mark.parametrize(
    ("notice", "drained", "word"),
    [(110, True, "reclaimed"), (230, True, "planned-drain"), (230, False, "reclaimed")],
)
def test_a_machine_whose_pods_are_evicted_longer_than_a_notice_before_was_swapped_by_its_owner(
    notice, drained, word
):
    line = switched((20000 - notice, 1.0), first=0.0)[:2]
    one = life(taint=(line[0], ValueRun(START + 20000 - notice, START + 20000, 1.0)), seen=20000.0)
    gone = trained("a", until=19950, drained=drained)
    assert words(node_incidents(replace(one, pod_timelines=(gone,)))) == [word]


def swapped(joins, *, ends=20100.0, left=()):
    """What is told of a node that is tainted at 20000 s and deleted two minutes later, in a pool
    where others join and leave.
    """
    old = life(
        taint=(ValueRun(START + 20000, START + 20120, 1.0),), seen=20120.0, ready=switched(until=20120.0)
    )  # fmt: skip
    new = [
        replace(life(f"n{at:.0f}"), presence=(Span(START + at, END),), timelines=()) for at in joins
    ]
    gone = [life(f"g{at:.0f}", seen=at) for at in left]
    pods = [trained("a", until=ends)]
    return [
        one.cause.word
        for one in pool_past(old, *new, *gone, pods=pods).incidents
        if one.name == "a"
    ]


@pytest.mark.parametrize(
    ("joins", "more", "word"),
    [
        ([20040.0], {}, "planned-drain"),
        ([19880.0], {}, "planned-drain"),
        ([20160.0], {}, "reclaimed"),
        ([20040.0], {"ends": 20010.0}, "reclaimed"),
        ([20040.0], {"left": [18000.0]}, "reclaimed"),
        ([19000.0], {}, "reclaimed"),
        ([], {}, "reclaimed"),
    ],
    ids=[
        "the new one came before the pods went",
        "it came before the taint",
        "it came after the machine",
        "the pods went at once",
        "it came for another that is missing",
        "it came long before",
        "none came",
    ],
)
def test_a_machine_whose_place_is_taken_before_its_pods_go_was_swapped_by_its_owner(
    joins, more, word
):
    assert swapped(joins, **more) == [word]


def test_a_node_that_waits_hours_for_its_job_is_swapped_if_another_came_first_and_else_its_host_died():
    taint = (ValueRun(START + 2000, START + 20160, 1.0),)
    ready = (ValueRun(START, START + 20000, 1.0), ValueRun(START + 20060, START + 20160, 0.0))
    old, pods = life(taint=taint, ready=ready, seen=20160.0), [trained("a", until=20000)]
    new = replace(life("n"), presence=(Span(START + 2400, END),), timelines=())
    told = [pool_past(*nodes, pods=pods).incidents for nodes in ((old, new), (old,))]
    assert [[one.cause.word for one in found if one.name == "a"] for found in told] == [
        ["planned-drain"],
        ["node-lost"],
    ]


def test_a_machine_that_ends_within_its_notice_was_reclaimed_however_late_its_node_is_deleted():
    taint = (ValueRun(START + 19860, START + 20160, 1.0),)
    ready = (ValueRun(START, START + 19980, 1.0), ValueRun(START + 20040, START + 20160, 0.0))
    one = life(taint=taint, ready=ready, seen=20160.0)
    evicted = trained("a", until=19920, drained=True)
    assert words(node_incidents(replace(one, pod_timelines=(evicted,)))) == ["reclaimed"]


def test_a_node_that_is_cordoned_just_before_its_machine_ends_was_not_lost():
    taint = (ValueRun(START + 8940, START + 9120, 1.0),)
    ready = (ValueRun(START, START + 8940, 1.0), ValueRun(START + 9000, START + 9120, 0.0))
    one, gone = life(ready=ready, seen=9120.0), trained("a", until=8940)
    line = SignalTimeline("a", TAINT, ("leaving",), taint)
    told = replace(one, timelines=(*one.timelines, line), pod_timelines=(gone,))
    assert words(node_incidents(told)) == ["reclaimed"]
    assert words(node_incidents(replace(one, pod_timelines=(gone,)))) == ["node-lost"]


def test_a_host_that_ends_its_pods_in_order_and_is_deleted_was_taken_back():
    ready = (ValueRun(START, START + 8940, 1.0), ValueRun(START + 9000, START + 9060, 0.0))
    one, gone = life(ready=ready, seen=9060.0), trained("a", until=8950, over=START + 8950)
    by_order = replace(one, pod_timelines=(replace(gone, failed=True, shut_down=True),))
    assert words(node_incidents(by_order)) == ["reclaimed"]
    assert words(node_incidents(replace(one, pod_timelines=(gone,)))) == ["node-lost"]


def test_a_machine_that_joins_may_take_its_time():
    ready = (
        ValueRun(START + 20000, START + 20600, 0.0),
        ValueRun(START + 20660, END, 1.0),
    )
    one = replace(life(ready=ready), presence=(Span(START + 20000, END),))
    assert words(node_incidents(one)) == []


def test_a_reboot_while_nothing_was_sampled_costs_what_a_reboot_costs():
    silent = Span(START + 20000, START + 40000)
    ready = (ValueRun(START, silent.start, 1.0), ValueRun(silent.end, END, 1.0))
    boot = (
        ValueRun(START, silent.start, START - DAY),
        ValueRun(silent.end, END, START + 30000),
    )
    seen = (Span(START, silent.start), Span(silent.end, END))
    (found,) = node_incidents(replace(life(ready=ready, boot=boot), presence=seen, sampled=seen))
    assert found.cause.word == "reboot"
    assert found.start == pytest.approx(START + 29760, abs=10)
    assert found.seconds == pytest.approx(330, abs=10)


def test_at_coarse_samples_an_eviction_tells_a_failure_from_a_flap():
    ready = switched((9000, 0.0), (9300, 1.0), step=300.0)
    boot = (ValueRun(START, END, START - DAY),)
    one = replace(life(step=300.0, ready=ready, boot=boot))
    assert words(node_incidents(one)) == ["flap"]
    evicted = trained("a", until=9250, over=START + 9250, failed=True)
    assert words(node_incidents(replace(one, pod_timelines=(evicted,)))) == ["kubelet-down"]


def test_faults_of_any_cause_that_begin_at_once_are_one_of_their_domain():
    def found(count):
        nodes = [
            life(
                str(n),
                labels={"clique": f"q{n // 4}", "pool": "x"},
                **({"xid": switched((9000 + 10 * n, 137.0), first=0.0)} if n < count else {}),
            )
            for n in range(12)
        ]
        return [i for i in pool_past(*nodes).incidents if i.cause.counts]

    (one,) = found(4)
    assert (one.kind, one.name, one.cause.word) == ("domain", "q0", "gpu-fatal")
    (many,) = found(8)
    assert (many.name, len(many.nodes)) == ("0 and 7 more", 8), "two domains have a cause above"


def test_a_node_is_exposed_while_it_is_ready_not_cordoned_and_not_failing():
    one = life(
        ready=switched((10000, 0.0), (20000, 1.0)),
        cordon=switched((30000, 1.0), (40000, 0.0), first=0.0),
    )
    assert length(one.exposed([(START + 50000, START + 60000)], 300.0)) == pytest.approx(
        DAY - 30000, abs=120
    )


@pytest.mark.parametrize(
    ("code", "what"),
    [(48, "hardware"), (79, "hardware"), (13, "program"), (31, "program"), (63, "note"), (45, "clean-up"), (999, "hardware")],
)  # fmt: skip
def test_what_an_xid_means(code, what):
    assert meaning(code, {}) is XidMeaning(what)


def test_a_host_that_is_silent_and_not_ready_now_is_down_until_it_tells_the_same_boot():
    silent = (ValueRun(START, START + 60000, START - DAY),)
    (down,) = failures(ready=switched((60060, 0.0)), boot=silent)
    assert (down.cause.word, down.end) == ("node-down", pytest.approx(END, abs=60))
    speaks = (ValueRun(START, END, START - DAY),)
    (away,) = failures(ready=switched((60060, 0.0)), boot=speaks)
    assert away.cause.word == "kubelet-down"
    back = (*silent, ValueRun(START + 63000, END, START - DAY))
    (same,) = failures(ready=switched((60060, 0.0), (63000, 1.0)), boot=back)
    assert same.cause.word == "kubelet-down"
