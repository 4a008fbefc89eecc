"""Decisions as writes, on the real API server, as the operator's own account with its own role."""

import asyncio
import json
from dataclasses import replace

import pytest
from foreign import install, job

from mofa_model.annotations import PREFIX
from mofa_model.kinds import JOB_SET
from mofa_operator import api as module
from mofa_operator.act import writes as acts
from mofa_operator.act.events import EVENT, EventPoster
from mofa_operator.act.writes import DRY, GONE, REFUSED, SILENT, WRITTEN
from mofa_operator.api import Api
from mofa_operator.api_errors import Busy, Conflict, Gone, Invalid
from mofa_operator.decision import Decision, Note
from mofa_operator.keys import CLUSTER_PROFILE, CONFIG_MAP, TRAINING_JOB, Key
from mofa_operator.objects import live

SPEC = {
    "model": {"preset": "llama3-405b"},
    "training": {"sequenceLength": 8192, "globalBatchSize": 2048},
    "cluster": {"profile": "h100-east"},
}
HELD = {
    f"{PREFIX}status": "Recommended",
    f"{PREFIX}inputs-hash": "0123",
    f"{PREFIX}strategy": "tp=8,pp=16,dp=16",
}
STATUS = {
    "inputsHash": "0123",
    "conditions": [
        {
            "type": "Ready",
            "status": "True",
            "reason": "Recommended",
            "message": "tp8 pp16 dp16",
            "lastTransitionTime": "2026-01-31T09:30:00Z",
        }
    ],
}


@pytest.fixture(scope="module")
def operator(cluster):
    install(cluster)
    return cluster.identity("operator", service_account="mofa-system/mofa-advisor")


@pytest.fixture
def act(cluster, operator, monkeypatch):
    """Run something with a session and a poster of Events, as the operator."""
    monkeypatch.setenv("KUBECONFIG", str(operator))

    def run(use):
        async def whole():
            async with Api.from_environment() as api, EventPoster(api, pause=0.0) as events:
                api.standing = lambda key: _standing(cluster, key)
                return await use(api, events)

        return asyncio.run(whole())

    return run


@pytest.fixture
def train(cluster, namespace):
    """A TrainingJob: its key and its uid."""
    return _made(cluster, TRAINING_JOB, namespace, SPEC)


def _made(cluster, kind, namespace, spec, **metadata):
    body = {"apiVersion": kind.api_version, "kind": kind.kind, "spec": spec}
    cluster.apply({**body, "metadata": {"name": "train", "namespace": namespace, **metadata}})
    return Key(kind, namespace, "train"), _read(cluster, Key(kind, namespace, "train"))["metadata"][
        "uid"
    ]


def _read(cluster, key):
    address = f"{key.kind.plural}.{key.kind.group}" if key.kind.group else key.kind.plural
    place = ["-n", key.namespace] if key.namespace else []
    return json.loads(
        cluster.kubectl("get", address, key.name, *place, "-o", "json", "--show-managed-fields")
    )


def _standing(cluster, key):
    """An object as the operator has seen it; None where there is none."""
    place = ["-n", key.namespace] if key.namespace else []
    found = cluster.kubectl(
        "get", key.kind.resource, key.name, *place, "-o", "json", "--ignore-not-found"
    )
    return live(key.kind, json.loads(found)) if found else None


def perform(decision, api, events, **more):
    """What was decided is done, of objects as they stand."""
    return acts.perform(decision, api, events, **{"standing": api.standing, **more})


def decided(key, uid, **given):
    hold = given.pop("hold", HELD)
    drop = given.pop("drop", ())
    return Decision(key=key, uid=uid, hold=hold, drop=drop, **{"status": STATUS} | given)


def writes_of(cluster, name, namespace):
    """Our writes on an object, from the API server's own log."""
    user = "system:serviceaccount:mofa-system:mofa-advisor"
    return [
        event["requestURI"].partition("?")[0].rpartition("/")[2]
        for event in cluster.audit()
        if event["user"]["username"] == user
        and event["verb"] in {"patch", "update", "create"}
        and event.get("objectRef", {}).get("namespace") == namespace
        and event["objectRef"].get("name") == name
    ]


def test_a_first_advice_is_two_writes_and_one_event(cluster, namespace, train, act):
    note = Note(reason="Recommended", message="tp8 pp16 dp16")

    versions = []

    def wrote(_, body):
        versions.append(body["metadata"]["resourceVersion"])

    async def use(api, events):
        done = await perform(decided(*train, notes=(note,)), api, events, wrote=wrote)
        await perform(decided(*train, notes=(note,)), api, events, wrote=wrote)
        return done

    done = act(use)
    assert done.outcome == WRITTEN
    assert done.writes == (
        "annotations",
        "status",
    )  # where Ready says Recommended, the annotations stand
    assert writes_of(cluster, "train", namespace)[:2] == ["train", "status"]
    body = _read(cluster, train[0])
    assert body["metadata"]["annotations"].items() >= HELD.items()
    assert body["status"] == STATUS
    # A repeat changes nothing, not even the resourceVersion, and its Event is the same one.
    assert versions[1:] == [body["metadata"]["resourceVersion"]] * 3
    (event,) = cluster.kubectl(
        "get", "events", "-n", namespace, "-o", "jsonpath={.items[*].reason}"
    ).split()
    assert event == "Recommended"
    assert "tp8 pp16 dp16" in cluster.kubectl("describe", "tjob", "train", "-n", namespace)


def test_everything_we_write_has_one_owner(cluster, train, act):
    act(lambda api, events: perform(decided(*train), api, events))
    owners = {
        (one["manager"], one["operation"], one.get("subresource"))
        for one in _read(cluster, train[0])["metadata"]["managedFields"]
        if one["manager"] != "mofa-local"
    }
    assert owners == {("mofa-advisor", "Apply", None), ("mofa-advisor", "Update", "status")}


def test_what_is_no_longer_held_goes_without_a_further_write(cluster, train, act):
    less = {key: HELD[key] for key in list(HELD)[:2]}

    async def use(api, events):
        await perform(decided(*train), api, events)
        return await perform(
            decided(*train, hold=less, drop=(f"{PREFIX}strategy",), status=None), api, events
        )

    assert act(use).writes == ("annotations",)
    assert _read(cluster, train[0])["metadata"]["annotations"] == less


def test_annotations_that_came_with_the_manifest_are_taken_over_and_can_go(cluster, namespace, act):
    before = {f"{PREFIX}status": "InvalidInput", f"{PREFIX}old": "x", "example.org/owner": "eddy"}
    train = _made(cluster, TRAINING_JOB, namespace, SPEC, annotations=before)

    async def use(api, events):
        taken = await perform(decided(*train, drop=(f"{PREFIX}old",), status=None), api, events)
        held = _read(cluster, train[0])["metadata"]["annotations"]
        gone = await perform(decided(*train, hold={}, drop=tuple(HELD), status=None), api, events)
        return taken, held, gone

    taken, held, gone = act(use)
    assert taken.writes == ("annotations", "removal")
    assert held == {**HELD, "example.org/owner": "eddy"}
    # What the manifest's owner also holds is removed by name; what only we held went with the
    # apply.
    assert gone.writes[0] == "annotations"
    assert _read(cluster, train[0])["metadata"]["annotations"] == {"example.org/owner": "eddy"}


def test_a_crash_between_the_writes_is_mended_by_the_next_decision(cluster, train, act):
    class Dies(Exception):
        pass

    async def use(api, events):
        async def dies(*args, **kwargs):
            raise Dies

        merge, api.merge = api.merge, dies
        with pytest.raises(Dies):
            await perform(decided(*train), api, events)
        api.merge = merge
        await perform(decided(*train), api, events)

    act(use)
    body = _read(cluster, train[0])
    assert body["status"] == STATUS
    assert body["metadata"]["annotations"] == HELD


def test_an_object_of_the_same_name_that_came_later_is_left_alone(cluster, namespace, train, act):
    cluster.kubectl("delete", "tjob", "train", "-n", namespace)
    _made(cluster, TRAINING_JOB, namespace, SPEC)
    told = []
    done = act(
        lambda api, events: perform(
            decided(*train), api, events, wrote=lambda *said: told.append(said)
        )
    )
    assert (done.outcome, done.writes, told) == (GONE, (), [])
    body = _read(cluster, train[0])
    assert "annotations" not in body["metadata"]
    assert "status" not in body


def test_a_status_never_falls_upon_a_successor_or_upon_what_somebody_changed(
    cluster, namespace, train, act
):
    stood = _standing(cluster, train[0])
    cluster.kubectl("delete", "tjob", "train", "-n", namespace)
    _made(cluster, TRAINING_JOB, namespace, SPEC)
    decision = decided(*train, hold=None)
    with pytest.raises(Conflict):
        act(lambda api, events: perform(decision, api, events, standing=lambda _: stood))
    assert "status" not in _read(cluster, train[0])


def test_of_a_status_only_what_changes_is_sent_and_what_is_wanted_no_more_goes(cluster, train, act):
    async def use(api, events):
        await perform(decided(*train), api, events)
        sent, merge = [], api.merge

        async def noted(*args, **more):
            sent.append(args[3]["status"])
            return await merge(*args, **more)

        api.merge = noted
        changed = {"modelVersion": "0.3.0", "conditions": STATUS["conditions"]}
        await perform(decided(*train, hold=None, status=changed), api, events)
        return changed, sent

    changed, sent = act(use)
    assert sent == [{"inputsHash": None, "modelVersion": "0.3.0"}]
    assert _read(cluster, train[0])["status"] == changed


def test_an_object_that_is_gone_is_not_made_anew(cluster, namespace, train, act):
    cluster.kubectl("delete", "tjob", "train", "-n", namespace)
    note = Note(reason="Recommended", message="m")
    done = act(lambda api, events: perform(decided(*train, notes=(note,)), api, events))
    assert done.outcome == GONE
    assert cluster.kubectl("get", "tjob,events", "-n", namespace, "-o", "name") == ""


def test_a_target_is_annotated_as_well_and_one_that_is_gone_stops_nothing(
    cluster, namespace, train, act
):
    key, uid = Key(JOB_SET, namespace, "train"), "00000000-0000-0000-0000-000000000000"
    missing = Decision(key=key, uid=uid, hold=HELD)
    done = act(
        lambda api, events: perform(
            decided(*train, hold=None, target_decision=missing), api, events
        )
    )
    assert (done.outcome, done.writes) == (WRITTEN, ("status",))
    cluster.apply(job(JOB_SET, namespace, "train"))
    there = Decision(key=key, uid=_read(cluster, key)["metadata"]["uid"], hold=HELD)
    done = act(
        lambda api, events: perform(
            decided(*train, hold=None, target_decision=there, status=None), api, events
        )
    )
    assert done.writes == ("annotations",)
    body = _read(cluster, key)
    assert body["metadata"]["annotations"] == HELD
    assert body["spec"] == {"suspend": True}


def test_where_an_annotation_is_refused_the_others_are_written_and_no_status_says_that_all_is_well(
    cluster, namespace, train, act
):
    cluster.apply(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "train", "namespace": namespace},
        }
    )
    key = Key(CONFIG_MAP, namespace, "train")
    foreign = Decision(key=key, uid=_read(cluster, key)["metadata"]["uid"], hold=HELD)
    done = act(lambda api, events: perform(decided(*train, target_decision=foreign), api, events))
    assert (done.outcome, done.refused, done.writes) == (REFUSED, True, ("annotations",))
    assert "status" not in _read(cluster, train[0])
    (failure,) = done.failures
    assert "cannot patch resource" in str(failure)


def test_a_dry_run_and_silence_write_nothing(cluster, train, act):
    before = _read(cluster, train[0])

    async def use(api, events):
        dry = await perform(decided(*train), api, events, dry_run=True)
        silent = await perform(decided(*train, hold=None, status=None), api, events)
        return dry, silent

    dry, silent = act(use)
    assert (dry.outcome, dry.writes) == (DRY, ("annotations", "status"))
    assert silent.outcome == SILENT
    assert _read(cluster, train[0]) == before


def test_a_profile_has_a_status_and_its_events_are_in_default(cluster, act):
    name = "act-east"
    body = {
        "apiVersion": CLUSTER_PROFILE.api_version,
        "kind": "ClusterProfile",
        "metadata": {"name": name},
    }
    cluster.apply({**body, "spec": {"gpu": "h100"}})
    key = Key(CLUSTER_PROFILE, "", name)
    uid = _read(cluster, key)["metadata"]["uid"]
    note = Note(reason="HistoryUnavailable", message="Prometheus did not answer", warning=True)
    status = {"nodes": {"total": 256, "ready": 250}}
    done = act(
        lambda api, events: perform(
            decided(key, uid, hold=None, status=status, notes=(note,)), api, events
        )
    )
    assert done.writes == ("status",)
    assert "Prometheus did not answer" in cluster.kubectl("describe", "cprof", name)
    cluster.kubectl("delete", "cprof", name)


def test_a_server_that_cannot_be_reached_is_busy_and_a_second_try_writes(train, act):
    async def use(api, events):
        there, api._credentials.access = api._credentials.access, _elsewhere(api)
        with pytest.raises(Busy):
            await perform(decided(*train), api, events)
        api._credentials.access = there
        return await perform(decided(*train), api, events)

    assert act(use).outcome == WRITTEN


def _elsewhere(api):
    return replace(api._credentials.access, server="https://127.0.0.1:9")


def test_reads_and_errors_are_those_of_the_real_server(cluster, namespace, train, act):
    _, uid = train

    async def use(api, events):
        assert await api.get(TRAINING_JOB, namespace, "nobody") is None
        assert (await api.get(TRAINING_JOB, namespace, "train"))["metadata"]["uid"] == uid
        names = [item["metadata"]["name"] async for item in api.list(TRAINING_JOB, namespace)]
        assert names == ["train"]
        with pytest.raises(Gone):
            await api.merge(
                TRAINING_JOB,
                namespace,
                "nobody",
                {"metadata": {"annotations": {f"{PREFIX}x": "y"}}},
            )
        other = {"metadata": {"uid": "another", "annotations": {f"{PREFIX}x": "y"}}}
        with pytest.raises(Gone):
            await api.merge(TRAINING_JOB, namespace, "train", other)
        bad = {
            "apiVersion": TRAINING_JOB.api_version,
            "kind": "TrainingJob",
            "status": {"observedGeneration": -1},
        }
        with pytest.raises(Invalid):
            await api.apply(TRAINING_JOB, namespace, "train", bad, status=True)
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": "e", "namespace": namespace},
            "involvedObject": {"namespace": namespace},
        }
        await api.create(EVENT, namespace, event)
        with pytest.raises(Conflict):
            await api.create(EVENT, namespace, event)

    act(use)


def test_a_list_longer_than_a_page_is_complete(cluster, namespace, act):
    maps = [
        {
            "apiVersion": TRAINING_JOB.api_version,
            "kind": "TrainingJob",
            "metadata": {"name": f"t{i:03}"},
            "spec": SPEC,
        }
        for i in range(7)
    ]
    for one in maps:
        one["metadata"]["namespace"] = namespace
    cluster.apply(*maps)

    async def use(api, events):
        module._PAGE, page = 3, module._PAGE
        try:
            return [item["metadata"]["name"] async for item in api.list(TRAINING_JOB, namespace)]
        finally:
            module._PAGE = page

    assert act(use) == [f"t{i:03}" for i in range(7)]
