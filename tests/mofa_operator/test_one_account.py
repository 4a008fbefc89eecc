"""The account of a pool is one number at every door: ledger, metrics, page, top, why and
the command.
"""

import json
import re
from argparse import Namespace
from dataclasses import replace

import pytest
from operator_objects import ACCOUNT, NOW, job_set, known_pool, node, profile, ref, training_job
from prometheus_client import CollectorRegistry, generate_latest

from mofa_model.kinds import JOB_SET
from mofa_model.spec.account import (
    NodeState,
    NodeTime,
    OpenIncident,
    capacity,
    node_days_lost,
    summed,
)
from mofa_model.spec.incident_causes import CAUSES
from mofa_operator.control.pages import Pages
from mofa_operator.decide.ledger import ledger_status, merged, settled_days, trimmed
from mofa_operator.evidence import PROMETHEUS, Day, account_of, date_of
from mofa_operator.fleet.fleet import ClusterSeen
from mofa_operator.fleet.survey import lines_of
from mofa_operator.incidents.document import account_document
from mofa_operator.keys import CLUSTER_PROFILE, FAILURE_LEDGER, TRAINING_JOB, key_of
from mofa_operator.metrics.exporter import Exporter
from mofa_operator.objects import live
from mofa_operator.observe.cluster.store import Store
from mofa_operator.observe.nodes import facts_of
from mofa_operator.page.job import job_page
from mofa_operator.page.profiles import profile_page
from mofa_operator.verbs import top

DAY = 86400.0
YESTERDAY = date_of(NOW - DAY)


def cluster(account):
    """A pool whose ledger has this account, written by the operator; and a job on it."""
    body = profile("east", ready=3)
    fresh = replace(known_pool().snapshot.history.days[0], account=account)
    ledger = ledger_status(live(CLUSTER_PROFILE, body), [fresh], (), NOW)
    meta = {"name": "east", "ownerReferences": [{"uid": body["metadata"]["uid"]}]}
    job = job_set()
    store = Store()
    store.put(FAILURE_LEDGER, {"metadata": meta, "status": json.loads(json.dumps(ledger))})
    store.put(CLUSTER_PROFILE, body)
    store.put(JOB_SET, job)
    key = key_of(JOB_SET, job)
    return ClusterSeen(
        store=store,
        jobs={key: live(JOB_SET, job)},
        node_facts={name: facts_of(node(name)) for name in ("a", "b", "c")},
        absent=frozenset(),
        refused={},
        beside={},
        now=NOW,
    )


def test_ledger_metrics_page_top_and_command_say_the_same_to_the_digit(monkeypatch, capsys):
    account = tuple(replace(one, node_days=one.node_days + 0.1234) for one in ACCOUNT)
    lost = {"node-down": 2.5 + 1.25 + 2 * 0.1234}
    fleet = cluster(account)
    (pool,) = fleet.store.profiles()
    assert node_days_lost(pool.account) == lost

    exporter = Exporter(CollectorRegistry())
    exporter.show(replace(known_pool(), account=pool.account))
    text = generate_latest(exporter.registry).decode()
    shown = re.search(r'mofa_pool_lost_node_days[{]cause="node-down",pool=".*"[}] (.*)', text)
    assert float(shown[1]) == lost["node-down"]

    assert f"{capacity(account):.6g} node-days" in profile_page(pool)
    assert f"{lost['node-down']:.6g} of them lost" in profile_page(pool)

    monkeypatch.setattr(top.cluster_options, "read", lambda *_: (fleet, {}))
    top.run(Namespace(namespace="", all=True, told=True, output="json"))
    document = json.loads(capsys.readouterr().out)
    by_command = account_document(account)
    for name in ("capacity_node_days", "node_days", "lost_node_days"):
        assert document["accounts"]["east"][name] == by_command[name]
    top.run(Namespace(namespace="", all=True, told=True, output="table"))
    assert f"{capacity(account):.6g} node-days in all" in capsys.readouterr().out


def test_a_job_lost_what_the_account_of_its_pool_says_and_nothing_that_only_the_watch_charged():
    name = "ns/js"
    rows = (
        NodeTime(state=NodeState.KEPT, cause="", node_days=1.0, date=YESTERDAY, job=name),
        NodeTime(state=NodeState.REDONE, cause="reboot", node_days=0.25, date=YESTERDAY, job=name),
    )
    fleet = cluster(rows)
    (key,) = fleet.jobs
    assert f"{key.namespace}/{key.name}" == name
    body = fleet.jobs[key].body
    body["metadata"] |= {"creationTimestamp": "2023-11-13T10:00:00Z"}
    body["spec"] |= {"suspend": False}
    fleet = replace(fleet, jobs={key: live(JOB_SET, body)})
    (line,) = lines_of(fleet, {})
    assert line.spending.stopped_hours == pytest.approx(0.25 * 24 * 8)  # nodes of eight GPUs
    assert line.spending.since == YESTERDAY


def test_the_page_of_a_job_and_of_its_training_job_shows_what_the_ledger_says_of_it():
    rows = (
        NodeTime(state=NodeState.KEPT, cause="", node_days=1.0, date=YESTERDAY, job="ns/js"),
        NodeTime(
            state=NodeState.REDONE, cause="reboot", node_days=0.25, date=YESTERDAY, job="ns/js"
        ),
        NodeTime(
            state=NodeState.REDONE, cause="nic", node_days=7.0, date=YESTERDAY, job="ns/other"
        ),
    )
    store = cluster(rows).store
    speaking = training_job(
        "tj",
        targetRef=ref(job_set()),
        status={"observed": {"interruptions": 2, "lost": [{"cause": "failure", "seconds": 900}]}},
    )
    store.put(TRAINING_JOB, speaking)
    pages = Pages(store=store, model_pool=None, api=None, health=lambda _: "")
    shown = pages.job(TRAINING_JOB.resource, speaking["metadata"]["namespace"], "tj")
    assert node_days_lost(shown.account) == {"reboot": 0.25}
    text = job_page(shown, view=None)
    assert f"1.25 node-days from {YESTERDAY} to {YESTERDAY}, 0.25 of them lost." in text
    assert "they cost" not in text
    assert "nic" not in text


def test_a_ledger_names_the_jobs_that_lost_most_for_five_weeks_and_keeps_every_node_second():
    rows = tuple(
        NodeTime(
            state=NodeState.REDONE, cause="reboot", node_days=n / 1000, date=date, job=f"ml/{n}"
        )
        for n in range(1, 41)
        for date in (date_of(NOW), date_of(NOW - 60 * DAY))
    )
    days = [
        Day(
            date=date,
            witness=PROMETHEUS,
            covered=DAY,
            classes={},
            account=tuple(one for one in rows if one.date == date),
        )
        for date in (date_of(NOW - 60 * DAY), date_of(NOW))
    ]
    kept = trimmed(merged((), days, (), 90 * DAY, NOW), NOW)
    old, new = (
        [one for one in account_of(kept) if one.date == date]
        for date in (date_of(NOW - 60 * DAY), date_of(NOW))
    )
    assert [one.job for one in old] == [""]
    assert {one.job for one in new} == {"", *(f"ml/{n}" for n in range(21, 41))}
    assert capacity(old) == capacity(new) == 0.82
    assert [one.node_days for one in summed(new)] == [0.82]


def test_what_lasts_over_settled_days_is_kept_with_since_when_and_why():
    lasting = (
        OpenIncident(
            kind="job", name="ns/js", since=NOW - 90000, cause=CAUSES["hang"], nodes=("a", "b")
        ),
        OpenIncident(kind="node", name="c", since=NOW - 12 * DAY, cause=CAUSES["gpu-lost"]),
    )
    body = profile("east", ready=3)
    history = replace(known_pool().snapshot.history, counted_by="rules", lasting=lasting)
    day = replace(history.days[0], settled=True)
    ledger = ledger_status(live(CLUSTER_PROFILE, body), [day], (), NOW, history)

    def read_back(status):
        meta = {"name": "east", "ownerReferences": [{"uid": body["metadata"]["uid"]}]}
        store = Store()
        store.put(FAILURE_LEDGER, {"metadata": meta, "status": json.loads(json.dumps(status))})
        store.put(CLUSTER_PROFILE, body)
        (pool,) = store.profiles()
        return settled_days(pool).lasting

    assert read_back(ledger) == lasting
    nonsense = [{"kind": "rack"}, "text", {"kind": "node", "name": "x", "since": 3, "cause": "y"}]
    assert read_back({**ledger, "lasting": nonsense}) == ()
