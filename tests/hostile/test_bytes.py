"""Jobs of megabytes: they are read few at a time, within a budget of their namespace, and are told
so; others feel nothing.

Seventeen Jobs of 1.38 MB once took the operator from 138 to 474 MiB, and fifty would have ended it
at each of its starts.
"""

import asyncio
import json
import subprocess
import sys

import orjson
import pytest
from faults.loopback import Loopback
from giants import SIZE, Lists, giant
from kubernetes import client
from operator_objects import World, profile

from mofa_model.annotations import PREFIX
from mofa_model.kinds import BATCH_JOB
from mofa_operator.api import Api, events
from mofa_operator.api_errors import Expired
from mofa_operator.credentials import Credentials
from mofa_operator.keys import CLUSTER_PROFILE, Key
from mofa_operator.objects import UNREAD
from mofa_operator.observe.cluster.store import Store
from mofa_operator.settings import ApiSettings

MIB = 2**20
SETTINGS = ApiSettings()
LISTING = """
import asyncio, json, resource, sys
from kubernetes import client
from mofa_model.kinds import BATCH_JOB
from mofa_operator.api import Api
from mofa_operator.credentials import Credentials
from mofa_operator.observe.cluster.store import Store

async def main():
    configuration = client.Configuration()
    configuration.host = sys.argv[1]
    store, seen = Store(), 0
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    async with Api(Credentials(configuration)) as api:
        for _ in range(2):
            async for body in api.list(BATCH_JOB):
                store.put(BATCH_JOB, body)
                seen += 1
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    whole = sorted(f"{k.namespace}/{k.name}" for k in store.keys(BATCH_JOB) if "unread" not in store.body(k))
    print(json.dumps({"seen": seen, "grown": 1024 * (most - before), "whole": whole}))

asyncio.run(main())
"""


def listed(objects):
    """What a process that lists them twice has read, and how its memory grew [B]."""
    lists = Lists(
        "batch/v1", "Job", {(o["metadata"]["namespace"], o["metadata"]["name"]): o for o in objects}
    )
    with Loopback(lists.answer) as server:
        done = subprocess.run([sys.executable, "-c", LISTING, server.url], capture_output=True, text=True, check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout) | {"sent": lists.sent}


@pytest.mark.parametrize("empty", [False, True], ids=["text", "empty objects"])
def test_60_jobs_of_1_38_MB_cost_150_MiB_at_most_and_no_others_job_is_lost(empty):
    shared = giant("evil", "x", empty=empty)
    many = [shared | {"metadata": giant("evil", f"g-{n:03}", size=3)["metadata"]} for n in range(60)]  # fmt: skip
    honest = [giant(place, f"h-{n:03}", size=300) for place in ("aaa", "zzz") for n in range(100)]
    said = listed([*many, *honest])
    assert said["seen"] == 2 * 260
    assert said["whole"] == sorted(f"{o['metadata']['namespace']}/{o['metadata']['name']}" for o in honest)  # fmt: skip
    assert said["grown"] < 150 * MIB
    assert said["sent"] < 4 * SETTINGS.namespace_bytes, "and what is not kept is not asked for"


def test_a_namespace_of_many_jobs_keeps_its_budget_and_the_rest_is_told():
    """100 jobs of 200 kB are 20 MB; what does not fit is known by name, and has a reason."""
    store = Store(settings=ApiSettings(namespace_bytes=10 * MIB))
    for n in range(100):
        store.put(BATCH_JOB, giant("evil", f"g-{n}", size=200_000))
        store.put(BATCH_JOB, giant("good", f"h-{n}", size=2_000))
    keys = store.keys(BATCH_JOB)
    unread = {key for key in keys if UNREAD in store.body(key)}
    assert {key.namespace for key in unread} == {"evil"}
    assert 45 < len(unread) < 55
    for key in unread:
        assert "namespace evil have more than 10240 KiB together" in store.body(key)[UNREAD]
        assert store.body(key)["metadata"]["annotations"] == {PREFIX + "advise": "true"}
    gone = [key for key in keys if key.namespace == "evil" and key not in unread][:10]
    for key in gone:
        store.drop(key.kind, key.namespace, key.name)
    again = min(unread, key=str)
    body = giant("evil", again.name, size=200_000)
    assert store.differs(BATCH_JOB, body), "a resync finds that there is room now"
    store.put(BATCH_JOB, body)
    assert UNREAD not in store.body(again)
    assert not store.differs(BATCH_JOB, body)


def test_a_job_above_its_budget_is_known_by_name_alone():
    store = Store(settings=ApiSettings(largest_object=100 * 1024))
    store.put(BATCH_JOB, giant("good", "small", size=2_000))
    store.put(BATCH_JOB, giant("good", "large", size=200_000))
    told = {key.name: store.body(key).get(UNREAD, "") for key in store.keys(BATCH_JOB)}
    assert told["small"] == ""
    assert "100 KiB" in told["large"]


def test_where_all_is_full_only_who_has_more_than_his_share_is_held():
    store = Store(settings=ApiSettings(namespace_bytes=10 * MIB, all_bytes=20 * MIB))
    for n in range(60):
        for place in ("evil-1", "evil-2", "evil-3"):
            store.put(BATCH_JOB, giant(place, f"g-{n}", size=200_000))
    for n in range(100):
        store.put(BATCH_JOB, giant("good", f"h-{n}", size=2_000))
    unread = [key for key in store.keys(BATCH_JOB) if UNREAD in store.body(key)]
    assert {key.namespace for key in unread} <= {"evil-1", "evil-2", "evil-3"}
    assert unread


def test_a_job_that_is_too_large_is_told_so_once_and_gets_its_advice_once_it_is_small():
    world = World()
    world.put(CLUSTER_PROFILE, profile())
    body = {"apiVersion": "batch/v1", "kind": "Job"} | giant("ns", "big")
    body["metadata"]["annotations"] |= {PREFIX + "model": "llama3.1-8b", PREFIX + "profile": "east"}
    key = Key(BATCH_JOB, "ns", "big")
    world.put(BATCH_JOB, body)
    world.rest()
    told = world.store.live(key).annotations
    assert told[PREFIX + "status"] == "InvalidInput"
    assert "too large to read: it has more than 512 KiB" in told[PREFIX + "explanation"]
    writes = world.writes
    world.edit(key, lambda body: body["metadata"].update(labels={"example.org/x": "y"}))
    world.rest()
    assert world.writes == writes
    world.edit(key, lambda body: body["spec"].pop("filler"))
    world.rest()
    assert "too large" not in json.dumps(world.store.live(key).annotations)


def test_an_event_without_end_is_no_memory_and_the_next_list_goes_on():
    line = b'{"type":"ADDED","object":{"metadata":{"name":"' + b"x" * MIB

    async def chunks():
        yield line
        for _ in range(64):
            yield b"x" * MIB

    async def main():
        with pytest.raises(Expired, match="more than 16777216 bytes"):
            async for _ in events(chunks(), "/apis/x?watch=1"):
                pass

    asyncio.run(main())


def test_one_object_that_no_list_can_hold_is_known_by_its_name():
    objects = {("evil", "g"): giant("evil", "g", size=17 * MIB), ("good", "h"): giant("good", "h", size=300)}  # fmt: skip
    lists = Lists("batch/v1", "Job", objects)

    async def main(url):
        configuration = client.Configuration()
        configuration.host = url
        async with Api(Credentials(configuration)) as api:
            return [body async for body in api.list(BATCH_JOB)]

    with Loopback(lists.answer) as server:
        evil, good = asyncio.run(main(server.url))
    assert "too large to read" in evil[UNREAD]
    assert UNREAD not in good
    assert len(orjson.dumps(evil)) < 1000
    assert evil["kind"] == good["kind"] == "Job"
    assert SIZE < 17 * MIB
