"""The operator at work: what is applied is advised, quietly, and whatever is killed when."""

import json
import re
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from datetime import datetime

import pytest
from advisor import Advisor, condition, ours, until
from kubernetes.client import ApiException
from mofa_local import nodes
from operator_objects import small_job
from pools import pool, settled

from mofa_model import VERSION
from mofa_model.annotations import OUTPUTS, PREFIX

STEADY = 8.0
"""Seconds for which a node may be away, where five minutes are usual."""
QUICK = ("--settle=1", "--resync=5", "--backoff=0.2", f"--steady={STEADY}")
"""Knobs that make a minute of production fit into seconds."""
LOOK = 4.0
"""Seconds of silence that are watched: the resync comes round, watches are idle, timers run."""


@pytest.fixture(scope="module")
def advisor(cluster, processes):
    """An operator process that runs from the first to the last test of this file; each may stop and
    start it.
    """
    made = Advisor(cluster, processes)
    made.start(*QUICK)
    yield made
    if made.name in processes:
        made.stop()


@pytest.fixture
def running(advisor, processes):
    """The operator, running, whatever the test before did with it."""
    if advisor.name not in processes:
        advisor.start(*QUICK)
    return advisor


def job(namespace, profile, name="small", **spec):
    return small_job(namespace, name, profile, **spec)


def read(cluster, namespace, name="small", kind="trainingjob"):
    return json.loads(
        cluster.kubectl("get", kind, name, *(["-n", namespace] if namespace else []), "-o", "json")
    )


def counted(cluster, profile):
    """Ready nodes and all nodes of a profile, as its status says."""
    found = (read(cluster, None, profile, "clusterprofile").get("status") or {}).get("nodes") or {}
    return found.get("ready"), found.get("total")


def reason(cluster, namespace, name="small"):
    return (condition(read(cluster, namespace, name), "Ready") or {}).get("reason")


def advised(cluster, namespace, name="small", *, strategy=True):
    """The job once it has an outcome, and a strategy unless told otherwise."""

    def look():
        found = read(cluster, namespace, name)
        is_done = condition(found, "Ready") and (not strategy or "strategy" in ours(found))
        return found if is_done else None

    return until(look, what=f"{namespace}/{name} is advised")


def said(writes):
    """Writes in a few words."""
    return [
        f"{one['verb']} {one['objectRef']['resource']}/{one['objectRef'].get('subresource', '')} {one.get('requestObject')}"
        for one in writes
    ]


def test_an_applied_job_gets_every_annotation_and_a_full_status_in_two_writes_and_one_event(
    cluster, running, namespace
):
    with pool(cluster) as profile:
        until(lambda: counted(cluster, profile) == (2, 2))
        before = settled(running)
        cluster.apply(job(namespace, profile))
        found = advised(cluster, namespace)
        written = ours(found)
        assert {key.partition("/")[2] for key in OUTPUTS} <= set(written)
        assert written["status"] in {"Recommended", "LowConfidence"}
        status = found["status"]
        assert status["inputsHash"] == written["inputs-hash"]
        assert status["observedGeneration"] == found["metadata"]["generation"]
        assert {"recommendation", "inputs", "conditions", "computedTime", "modelVersion"} <= set(
            status
        )
        assert condition(found, "Ready")["status"] == "True"
        settled(running)
        assert running.writes_by_object(before) == {f"trainingjobs/{namespace}/small": 2}
        events = json.loads(cluster.kubectl("get", "events", "-n", namespace, "-o", "json"))[
            "items"
        ]
        assert [event["reason"] for event in events] == [written["status"]]
        assert (
            f'training_job="small",training_kind="TrainingJob",training_namespace="{namespace}"'
            in running.metrics()
            or (f'training_namespace="{namespace}"' in running.metrics())
        )


def test_without_a_prometheus_the_job_and_the_profile_say_so(cluster, running, namespace):
    with pool(cluster) as profile:
        cluster.apply(job(namespace, profile))
        found = advised(cluster, namespace)
        assert condition(found, "HistoryComplete")["reason"] == "NotConfigured"
        assert (
            condition(read(cluster, None, profile, "clusterprofile"), "HistoryComplete")["reason"]
            == "NotConfigured"
        )


def test_nothing_is_written_while_nothing_happens(cluster, running, namespace):
    with pool(cluster) as profile:
        cluster.apply(job(namespace, profile))
        advised(cluster, namespace)
        before = settled(running)
        for number in range(10):  # kubelets say that they are alive
            nodes.recover(cluster, f"{profile}-{number % 2}")
        time.sleep(LOOK)
        assert said(running.writes(before)) == []


def test_a_restart_writes_nothing_and_sigterm_ends_with_0(cluster, running, namespace):
    with pool(cluster) as profile:
        cluster.apply(job(namespace, profile))
        advised(cluster, namespace)
        before = settled(running)
        assert running.stop() == 0
        running.start(*QUICK)
        time.sleep(LOOK)
        assert said(running.writes(before)) == []
        assert running.stop() == 0


@pytest.mark.parametrize("jobs", [3, pytest.param(12, marks=pytest.mark.soak)])
def test_killed_at_any_moment_it_ends_at_the_same_objects(cluster, running, namespace, jobs):
    with pool(cluster) as profile:
        start = settled(running)
        for number in range(jobs):
            cluster.apply(job(namespace, profile, f"job-{number}", batch=32 * (number + 1)))
            if number % 3 == 0:
                running.kill()
                running.start(*QUICK, wait=False)
        found = {}
        for number in range(jobs):
            found[number] = advised(cluster, namespace, f"job-{number}")
            assert condition(found[number], "Ready")["status"] == "True"
            assert found[number]["status"]["inputsHash"] == ours(found[number])["inputs-hash"]
        settled(running)
        until(
            lambda: reasons(cluster, namespace).count("Recommended") == jobs,
            what="no Event is lost",
        )
        assert max(running.writes_by_object(start).values()) <= 4
        before = settled(running)
        running.kill()
        running.start(*QUICK)
        time.sleep(LOOK)
        assert said(running.writes(before)) == []


def test_a_changed_spec_is_advised_anew_and_the_old_advice_stands_until_then(
    cluster, running, namespace
):
    with pool(cluster) as profile:
        cluster.apply(job(namespace, profile))
        first = advised(cluster, namespace)
        cluster.apply(job(namespace, profile, batch=128))
        second = until(
            lambda: (
                (found := read(cluster, namespace))["status"]["inputsHash"]
                != first["status"]["inputsHash"]
                and found
            )
        )
        until(
            lambda: (
                read(cluster, namespace)["status"]["observedGeneration"]
                == second["metadata"]["generation"]
            )
        )
        assert (
            ours(read(cluster, namespace))["inputs-hash"]
            == read(cluster, namespace)["status"]["inputsHash"]
        )


@pytest.mark.soak
def test_six_nodes_that_are_away_for_seconds_change_no_advice_and_that_stay_away_are_one_new_advice(
    cluster, running, namespace
):
    with pool(cluster, size=8) as profile:
        until(lambda: counted(cluster, profile) == (8, 8))
        made = time.monotonic()
        cluster.apply(job(namespace, profile, cluster={"profile": profile}))
        first, six = advised(cluster, namespace), [f"{profile}-{number}" for number in range(6)]
        time.sleep(
            max(0.0, made + STEADY - time.monotonic())
        )  # a new pool takes in at once what comes
        before = settled(running)

        def failed():
            began = time.monotonic()
            for node in six:
                nodes.fail(cluster, node)
            until(lambda: counted(cluster, profile) == (2, 8))
            return began

        failed()
        for node in six:
            nodes.recover(cluster, node)
        until(lambda: counted(cluster, profile) == (8, 8))
        began = failed()
        running.kill()
        running.start(*QUICK)
        if (
            time.monotonic() < began + STEADY - 2.0
        ):  # conditions are dated to the second, and a busy machine is slow
            assert set(running.writes_by_object(before)) == {f"clusterprofiles//{profile}"}
            assert read(cluster, namespace)["status"]["inputs"]["nodes"] == 8
        until(
            lambda: (
                read(cluster, namespace)["status"]["inputsHash"] != first["status"]["inputsHash"]
            )
        )
        assert time.monotonic() > began + STEADY - 2.0
        settled(running)
        assert running.writes_by_object(before) == {
            f"clusterprofiles//{profile}": 4,  # away, there, away, and for good
            f"trainingjobs/{namespace}/small": 2,
        }
        assert read(cluster, namespace)["status"]["inputs"]["nodes"] == 2


def test_a_job_before_its_profile_is_told_so_and_is_advised_when_the_profile_comes(
    cluster, running, namespace
):
    cluster.apply(job(namespace, "not-there-yet"))
    until(lambda: reason(cluster, namespace) == "ProfileMissing")
    with pool(cluster) as profile:
        cluster.apply(job(namespace, profile))
        advised(cluster, namespace)


def test_a_spec_that_cannot_be_right_says_what_would_be(cluster, running, namespace):
    with pool(cluster) as profile:
        cluster.apply(job(namespace, profile, model={"preset": "llama9-1t"}))
        found = advised(cluster, namespace, strategy=False)
        assert condition(found, "Ready")["reason"] == "InvalidInput"
        assert ours(found)["status"] == "InvalidInput"
        assert "llama9-1t" in condition(found, "Ready")["message"]
        cluster.apply(job(namespace, profile))
        assert ours(advised(cluster, namespace))["status"] != "InvalidInput"


def test_two_profiles_of_the_same_nodes_say_so_and_no_longer_when_one_goes(cluster, running):
    def exclusive(name):
        return condition(read(cluster, None, name, "clusterprofile"), "NodesExclusive")

    with pool(cluster) as one:
        cluster.kubectl("wait", f"cprof/{one}", "--for=condition=NodesExclusive", "--timeout=60s")
        other = read(cluster, None, one, "clusterprofile")
        cluster.apply({**other, "metadata": {"name": f"{one}-too"}})
        for name, beside in ((one, f"{one}-too"), (f"{one}-too", one)):
            until(lambda name=name: exclusive(name).get("status") == "False", what="both say so")
            assert exclusive(name)["reason"] == "NodesShared"
            assert f"with {beside}" in exclusive(name)["message"]
        cluster.kubectl("delete", "cprof", f"{one}-too")
        cluster.kubectl("wait", f"cprof/{one}", "--for=condition=NodesExclusive", "--timeout=60s")


def test_disabled_takes_away_everything_of_ours_and_nothing_else(cluster, running, namespace):
    with pool(cluster) as profile:
        cluster.apply(job(namespace, profile))
        advised(cluster, namespace)
        cluster.kubectl(
            "annotate", "trainingjob", "small", "-n", namespace, "example.org/owner=eddy"
        )
        cluster.apply(job(namespace, profile, mode="Disabled"))
        until(lambda: reason(cluster, namespace) == "Disabled")
        until(lambda: not ours(read(cluster, namespace)))
        assert read(cluster, namespace)["metadata"]["annotations"]["example.org/owner"] == "eddy"


def test_deletion_needs_nobody_even_with_the_operator_down(cluster, running, namespace):
    with pool(cluster) as profile:
        cluster.apply(job(namespace, profile))
        found = advised(cluster, namespace)
        assert "finalizers" not in found["metadata"]
        running.stop()
        cluster.kubectl("delete", "trainingjob", "small", "-n", namespace, "--timeout=5s")
        running.start(*QUICK)
        assert f'training_namespace="{namespace}"' not in running.metrics()


def test_series_go_with_their_job(cluster, running, namespace):
    with pool(cluster) as profile:
        cluster.apply(job(namespace, profile))
        advised(cluster, namespace)
        assert f'training_namespace="{namespace}"' in running.metrics()
        cluster.kubectl("delete", "trainingjob", "small", "-n", namespace)
        until(lambda: f'training_namespace="{namespace}"' not in running.metrics())


def test_after_an_outage_of_the_api_server_work_goes_on(cluster, running, namespace):
    with pool(cluster) as profile:
        cluster.apply(job(namespace, profile))
        advised(cluster, namespace)
        before = settled(running)
        cluster.kill_api_server()
        time.sleep(3.0)
        assert running.probe("healthz")["ok"]
        cluster.start_api_server()
        cluster.apply(job(namespace, profile, "later", batch=128))
        advised(cluster, namespace, "later")
        settled(running)
        assert running.writes_by_object(before) == {f"trainingjobs/{namespace}/later": 2}


def test_what_somebody_else_took_away_is_put_back(cluster, running, namespace):
    with pool(cluster) as profile:
        cluster.apply(job(namespace, profile))
        right = ours(advised(cluster, namespace))
        cluster.kubectl(
            "annotate", "trainingjob", "small", "-n", namespace, "advisor.mofa.dev/strategy-"
        )
        until(lambda: ours(read(cluster, namespace)) == right)


def test_what_somebody_else_changed_is_put_back_and_said_once(cluster, running, namespace):
    named = ("trainingjob", "small", "-n", namespace)
    with pool(cluster) as profile:
        cluster.apply(job(namespace, profile))
        found = advised(cluster, namespace)
        right = ours(found)
        until(lambda: reason(cluster, namespace) == condition(found, "Ready")["reason"])
        for _ in range(2):  # the same change again is no second Event
            cluster.kubectl("annotate", "--overwrite", *named, "advisor.mofa.dev/strategy=tp=1")
            until(lambda: ours(read(cluster, namespace)) == right, what="the strategy is put back")
        cluster.kubectl("annotate", "--overwrite", *named, "advisor.mofa.dev/inputs-hash=none")
        until(lambda: ours(read(cluster, namespace)) == right, what="the hash is put back")
        wrong = json.dumps({"status": {"health": "Wrong", "inputsHash": "none"}})
        cluster.kubectl("patch", *named, "--subresource=status", "--type=merge", "-p", wrong)
        until(
            lambda: read(cluster, namespace)["status"] == found["status"],
            what="the status is put back",
        )
        told = overwritten(cluster, namespace, 2)
        assert any("kubectl-annotate: strategy;" in text for text in told)
        assert any("kubectl-annotate: inputs-hash;" in text for text in told)


def overwritten(cluster, namespace, number):
    """Messages of so many Events that tell of changed annotations."""

    def look():
        events = json.loads(cluster.kubectl("get", "events", "-n", namespace, "-o", "json"))[
            "items"
        ]
        found = [event["message"] for event in events if event["reason"] == "Overwritten"]
        return found if len(found) >= number else None

    found = until(look, what=f"{number} Events")
    assert len(found) == number, found
    return found


def test_two_that_overwrite_each_other_for_ever_make_no_storm(cluster, running, namespace):
    """Somebody writes thirty times in three seconds; we write at once, and after 0.2, 0.4, 0.8,
    1.6 s.
    """
    with pool(cluster) as profile:
        cluster.apply(job(namespace, profile))
        right = ours(advised(cluster, namespace))
        before = len(running.writes())
        api = cluster.admin.resources.get(api_version="mofa.dev/v1alpha1", kind="TrainingJob")
        end, count = time.monotonic() + 3.0, 0
        while time.monotonic() < end:
            body = {"metadata": {"annotations": {"advisor.mofa.dev/strategy": f"tp={count}"}}}
            api.patch(
                name="small",
                namespace=namespace,
                body=body,
                content_type="application/merge-patch+json",
            )
            count += 1
            time.sleep(0.1)
        fought = running.writes_by_object(before)[f"trainingjobs/{namespace}/small"]
        assert count > 12
        assert 2 <= fought <= 7
        until(lambda: ours(read(cluster, namespace)) == right, what="the last word is ours")


def test_refused_annotations_are_said_and_written_when_the_refusal_ends(
    cluster, running, namespace
):
    before = len(running.writes())
    with pool(cluster) as profile, refusing(cluster, namespace) as policy:
        cluster.apply(job(namespace, profile))
        until(lambda: reason(cluster, namespace) == "AnnotationsRefused")
        found = read(cluster, namespace)
        ready = condition(found, "Ready")
        assert (ready["status"], ready["reason"]) == ("False", "AnnotationsRefused")
        assert policy in ready["message"]
        assert "robots do not write here" in ready["message"]
        assert not ours(found)
        assert "Recommended" not in json.dumps(found["status"]["conditions"])
        until(lambda: reasons(cluster, namespace) == ["AnnotationsRefused"], what="one Event")
        cluster.kubectl("delete", "validatingadmissionpolicybinding", policy)
        found = advised(cluster, namespace)
        until(lambda: condition(read(cluster, namespace), "Ready")["status"] == "True")
        assert ours(found)["inputs-hash"] == read(cluster, namespace)["status"]["inputsHash"]
        until(lambda: sorted(reasons(cluster, namespace)) == ["AnnotationsRefused", "Recommended"])
        written = running.writes_by_object(before)[f"trainingjobs/{namespace}/small"]
        assert written == 3, "the status that says so, the annotations, the status of the answer"


def reasons(cluster, namespace):
    """Reasons of the Events in a namespace."""
    found = json.loads(cluster.kubectl("get", "events", "-n", namespace, "-o", "json"))["items"]
    return [event["reason"] for event in found]


@contextmanager
def refusing(cluster, namespace):
    """An admission policy of somebody else's, that takes no annotations of ours; its name."""
    name = f"no-robots-{namespace}"
    group = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": name}}
    rule = {
        "apiGroups": ["mofa.dev"],
        "apiVersions": ["*"],
        "operations": ["CREATE", "UPDATE"],
        "resources": ["trainingjobs"],
    }
    check = {
        "expression": "!has(object.metadata.annotations) || !('advisor.mofa.dev/status' in object.metadata.annotations)",
        "message": "robots do not write here",
    }
    where = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}}
    spec = {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [rule]},
        "validations": [check],
    }
    binding = {"policyName": name, "validationActions": ["Deny"], "matchResources": where}
    cluster.apply({**group, "kind": "ValidatingAdmissionPolicy", "spec": spec})
    cluster.apply({**group, "kind": "ValidatingAdmissionPolicyBinding", "spec": binding})
    probe = job(namespace, "none", "probe")
    probe["metadata"]["annotations"] = {"advisor.mofa.dev/status": "x"}
    api = cluster.admin.resources.get(api_version="mofa.dev/v1alpha1", kind="TrainingJob")

    def holds():
        try:
            api.create(body=probe, namespace=namespace, dry_run="All")
        except ApiException as error:
            return "robots" in str(error.body)
        return False

    try:
        until(holds, what="the policy holds")
        yield name
    finally:
        cluster.kubectl("delete", "validatingadmissionpolicybinding", name, "--ignore-not-found")
        cluster.kubectl("delete", "validatingadmissionpolicy", name)


@pytest.mark.soak
def test_a_dry_run_decides_and_writes_nothing(cluster, running, namespace):
    running.stop()
    with pool(cluster) as profile:
        running.start(*QUICK, "--dry-run")
        before = settled(running)
        cluster.apply(job(namespace, profile))
        until(lambda: f"{namespace}/small" in running.log)
        until(lambda: f'training_namespace="{namespace}"' in running.metrics())
        assert said(running.writes(before)) == []
    running.stop()


@pytest.mark.soak
def test_of_two_operators_one_leads_and_the_other_takes_over(
    cluster, running, processes, namespace
):
    running.stop()
    flags = (*QUICK, "--lease-enabled", "--lease-duration=9", "--page")
    first, second = Advisor(cluster, processes, "first"), Advisor(cluster, processes, "second")
    try:
        first.start(*flags)
        second.start(*flags)
        (why,) = second.probe("readyz")["reasons"]
        assert re.fullmatch(r"standby: \S+-[0-9]+ holds the Lease mofa-system/mofa-advisor", why)
        assert second.workers, "it is ready when it could take over, and that is when its worker is"
        with pool(cluster) as profile:
            cluster.apply(job(namespace, profile))
            advised(cluster, namespace)
            for path in ("/", "/profiles", f"/jobs/trainingjobs.mofa.dev/{namespace}/small"):
                with pytest.raises(urllib.error.HTTPError, match="503") as refused:
                    urllib.request.urlopen(second.url + path)
                text = refused.value.read().decode()
                assert why.partition(": ")[2] in text, "it says who has what is asked for"
                assert "No job is advised yet" not in text
                assert urllib.request.urlopen(first.url + path).status == 200
            assert "mofa_advisor_leader 0.0" in second.metrics()
            assert not re.search(
                "^mofa_(job|pool|advisor_queue|advisor_jobs)", second.metrics(), re.MULTILINE
            )
            first.kill()
            until(lambda: not second.probe("readyz")["reasons"])
            cluster.apply(job(namespace, profile, "later", batch=128))
            advised(cluster, namespace, "later")
            assert second.stop() == 0
            first.start(*flags)  # the Lease was given back, so nobody waits for it to run out
    finally:
        for one in (first, second):
            processes.stop(one.name)


OLD = "0.0.9+older"
"""Version of a model that answered before an upgrade."""
RATE, BURST = 25.0, 5


@pytest.mark.soak
@pytest.mark.parametrize("jobs", [20, pytest.param(500, marks=pytest.mark.soak)])
def test_an_upgrade_answers_every_job_once_spread_out_and_says_why(
    cluster, running, namespace, jobs
):
    api = cluster.admin.resources.get(api_version="mofa.dev/v1alpha1", kind="TrainingJob")
    names = [f"job-{number:03}" for number in range(jobs)]

    each = {f"trainingjobs/{namespace}/{name}": 2 for name in names}

    def answered():
        found = json.loads(cluster.kubectl("get", "trainingjobs", "-n", namespace, "-o", "json"))[
            "items"
        ]
        assert {(one["status"]["modelVersion"], ours(one)["model-version"]) for one in found} == {
            (VERSION,) * 2
        }
        return {one["metadata"]["name"]: one["status"]["recommendation"] for one in found}

    with pool(cluster) as profile:
        until(lambda: counted(cluster, profile) == (2, 2))
        start = settled(running)
        for number, name in enumerate(names):
            api.create(
                job(namespace, profile, name, batch=32 * (1 + number % max(2, jobs // 20))),
                namespace=namespace,
            )
        until(lambda: running.writes_by_object(start) == each, 60 + jobs)
        before = answered()
        running.stop()
        stood = {PREFIX + "inputs-hash": "of an older model", PREFIX + "model-version": OLD}
        said = {"status": {"inputsHash": "of an older model", "modelVersion": OLD}}
        merge = {"namespace": namespace, "content_type": "application/merge-patch+json"}
        for name in names:
            api.patch(name=name, body={"metadata": {"annotations": stood}}, **merge)
            api.status.patch(name=name, body=said, **merge)
        start = len(running.writes())
        running.start(*QUICK, f"--writes-per-second={RATE:g}", f"--burst={BURST}")
        until(
            lambda: running.writes_by_object(start) == each,
            60 + jobs,
            "each its answer and its status",
        )
        settled(running)
        assert running.writes_by_object(start) == each, "and no more"
        assert answered() == before
        writes = [
            one for one in running.writes(start) if one["objectRef"]["resource"] == "trainingjobs"
        ]
        times = [datetime.fromisoformat(one["requestReceivedTimestamp"]) for one in writes]
        spread = (max(times) - min(times)).total_seconds()
        assert spread >= (2 * jobs - BURST - 1) / RATE - 1.0, "as slowly as it is told to write"

        def told():
            events = json.loads(cluster.kubectl("get", "events", "-n", namespace, "-o", "json"))[
                "items"
            ]
            found = [one for one in events if one["reason"] == "ModelChanged"]
            return len(found) >= jobs and found

        events = until(told, 60)
        assert sorted(one["involvedObject"]["name"] for one in events) == names
        assert {one.get("count", 1) for one in events} == {1}
        assert all(
            f"model {VERSION} answers anew what {OLD} had answered" in one["message"]
            for one in events
        )
