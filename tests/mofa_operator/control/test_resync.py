"""Full lists: what a watch has missed is found, and what it brings meanwhile is never undone."""

from __future__ import annotations

import asyncio
import copy

import pytest
from virtual_time import run

from mofa_model.annotations import PREFIX
from mofa_model.kinds import JOB_SET
from mofa_operator.api_errors import Busy, Gone, Refused
from mofa_operator.control.enqueuer import Enqueuer
from mofa_operator.control.resync import GRACE, Resync
from mofa_operator.control.work_queue import WorkQueue
from mofa_operator.decide.release import KUEUE
from mofa_operator.keys import CLUSTER_PROFILE, NODE, TRAINING_JOB, Key
from mofa_operator.metrics.exporter import Exporter
from mofa_operator.observe.cluster.store import Store
from mofa_operator.settings import LoopSettings

KINDS = (NODE, CLUSTER_PROFILE, JOB_SET, TRAINING_JOB)


class Server:
    """Lists and reads; a kind may be absent or forbidden, and `on_list` runs while a list
    is read.
    """

    def __init__(self):
        self.objects: dict = {}
        self.absent: set = {JOB_SET}
        self.forbidden: set = set()
        self.on_list = lambda kind: None
        self.reads = 0
        self.version = 0

    def put(self, kind, name, namespace="", uid="u", **spec):
        self.version += 1
        meta = {
            "name": name,
            "uid": uid,
            "resourceVersion": str(self.version),
            "generation": self.version,
        }
        body = {"metadata": meta | ({"namespace": namespace} if namespace else {}), "spec": spec}
        self.objects[Key(kind, namespace, name)] = body
        return copy.deepcopy(body)

    async def list(self, kind, namespace=None, label_selector=None):
        if kind in self.absent:
            raise Gone("404")
        if kind in self.forbidden:
            raise Refused("403")
        found = [
            copy.deepcopy(body)
            for key, body in self.objects.items()
            if key.kind == kind and namespace in {None, key.namespace}
        ]
        self.on_list(kind)
        for body in found:
            yield body

    async def get(self, kind, namespace, name):
        self.reads += 1
        return copy.deepcopy(self.objects.get(Key(kind, namespace, name)))


class Parts:
    def __init__(self, namespaces=()):
        self.server, self.store = Server(), Store()
        self.queue = WorkQueue(backoff=1.0, longest=300.0)
        self.enqueuer = Enqueuer(self.store, self.queue, LoopSettings())
        self.exporter = Exporter()
        self.resync = Resync(
            api=self.server, store=self.store, enqueuer=self.enqueuer, exporter=self.exporter,
            kinds=KINDS, namespaces=namespaces, interval=600.0,
        )  # fmt: skip

    async def taken(self):
        found = set()
        while len(self.queue):
            key = await self.queue.take()
            found.add(key)
            self.queue.done(key)
        return found

    def counted(self):
        return self.exporter.registry.get_sample_value(
            "mofa_advisor_watch_resync_differences_total"
        )


def key(name, namespace="n"):
    return Key(TRAINING_JOB, namespace, name)


def test_the_first_lists_fill_the_store_and_queue_everything(caplog):
    async def main():
        parts = Parts()
        for name in "abc":
            parts.server.put(TRAINING_JOB, name, "n")
        parts.server.put(CLUSTER_PROFILE, "east")
        await parts.resync.fill()
        assert parts.resync.is_filled
        assert parts.resync.absent == {JOB_SET}
        assert await parts.taken() == {
            key("a"),
            key("b"),
            key("c"),
            Key(CLUSTER_PROFILE, "", "east"),
        }
        assert await parts.resync.once() == 0
        assert parts.server.reads == 0

    run(main())


@pytest.mark.parametrize(
    "annotations, suspend, is_first",
    [
        ({f"{PREFIX}gate": "suspend"}, True, True),
        ({KUEUE: "mofa.dev/advisor"}, True, True),
        ({f"{PREFIX}mode": "Apply"}, True, True),
        ({f"{PREFIX}mode": "Apply"}, False, False),
        ({}, True, False),
    ],
)
@pytest.mark.parametrize("owned", [False, True])
def test_after_a_start_profiles_are_looked_at_first_and_then_who_stands_still_until_we_have(
    annotations, suspend, is_first, owned
):
    async def main():
        parts = Parts()
        parts.server.absent.clear()
        for name in "abcdefgh":
            parts.server.put(JOB_SET, name, "n", suspend=True)
            parts.server.put(TRAINING_JOB, name, "n")
        body = parts.server.put(JOB_SET, "last", "n", suspend=suspend)
        body["metadata"]["annotations"] = annotations
        waits = Key(JOB_SET, "n", "last")
        parts.server.objects[waits] = body | {
            "apiVersion": JOB_SET.api_version,
            "kind": JOB_SET.kind,
        }
        if owned:
            target = {"apiVersion": JOB_SET.api_version, "kind": JOB_SET.kind, "name": "last"}
            parts.server.put(TRAINING_JOB, "zz", "n", targetRef=target)
            waits = Key(TRAINING_JOB, "n", "zz")
        parts.server.put(CLUSTER_PROFILE, "east")
        await parts.resync.fill()
        order = []
        while len(parts.queue):
            order.append(await parts.queue.take())
        assert order[0] == Key(CLUSTER_PROFILE, "", "east")
        assert (order.index(waits) <= 2) == is_first

    run(main())


def test_a_foreign_kind_that_cannot_be_listed_keeps_nobody_waiting_and_one_that_is_needed_does(
    caplog,
):
    """As while the webhook is away that converts it."""

    async def fill(kind):
        def breaks(listed):
            if listed == kind:
                raise Busy("conversion webhook failed (500)")

        parts = Parts()
        parts.server.absent.clear()
        parts.server.put(TRAINING_JOB, "a", "n")
        parts.server.on_list = breaks
        await parts.resync.fill()
        return parts.resync.is_filled, await parts.taken()

    assert run(fill(JOB_SET)) == (True, {key("a")})
    assert "they cannot be listed (conversion webhook failed (500))" in caplog.text
    for kind in (NODE, CLUSTER_PROFILE, TRAINING_JOB):
        with pytest.raises(Busy):
            run(fill(kind))


def test_an_event_that_the_watch_swallowed_is_found_counted_and_queued(caplog):
    async def main():
        parts = Parts()
        parts.server.put(TRAINING_JOB, "changed", "n", nodes=1)
        parts.server.put(TRAINING_JOB, "deleted", "n")
        await parts.resync.fill()
        await parts.taken()
        parts.server.put(TRAINING_JOB, "changed", "n", nodes=2)
        parts.server.put(TRAINING_JOB, "created", "n")
        del parts.server.objects[key("deleted")]
        assert await parts.resync.once() == 3
        assert await parts.taken() == {key("changed"), key("created"), key("deleted")}
        assert parts.store.body(key("changed"))["spec"] == {"nodes": 2}
        assert parts.store.body(key("deleted")) is None
        assert parts.counted() == 3
        assert "3 objects had changed, and their watches had not reported it" in caplog.text
        assert await parts.resync.once() == 0

    run(main())


def test_an_event_that_is_only_late_is_no_miss():
    async def main():
        parts = Parts()
        parts.server.put(TRAINING_JOB, "a", "n", nodes=1)
        await parts.resync.fill()
        newer = parts.server.put(TRAINING_JOB, "a", "n", nodes=2)
        asyncio.get_running_loop().call_later(GRACE / 2, parts.enqueuer.put, TRAINING_JOB, newer)
        assert await parts.resync.once() == 0
        assert not parts.counted()

    run(main())


def test_a_list_that_is_older_than_the_watch_undoes_nothing():
    """While the list is under way, one job is created, one changed and one deleted; the watch tells
    all three at once.
    """

    async def main():
        parts = Parts()
        for name in ("changed", "deleted"):
            parts.server.put(TRAINING_JOB, name, "n", nodes=1)
        await parts.resync.fill()

        def meanwhile(kind):
            if kind == TRAINING_JOB:
                parts.enqueuer.put(TRAINING_JOB, parts.server.put(TRAINING_JOB, "created", "n"))
                parts.enqueuer.put(
                    TRAINING_JOB, parts.server.put(TRAINING_JOB, "changed", "n", nodes=2)
                )
                del parts.server.objects[key("deleted")]
                parts.enqueuer.drop(key("deleted"))

        parts.server.on_list = meanwhile
        assert await parts.resync.once() == 0
        assert parts.store.body(key("created")) is not None
        assert parts.store.body(key("changed"))["spec"] == {"nodes": 2}
        assert parts.store.body(key("deleted")) is None

    run(main())


def test_a_cluster_restored_from_a_backup_is_believed():
    async def main():
        parts = Parts()
        parts.server.version = 1000
        parts.server.put(TRAINING_JOB, "a", "n", nodes=2)
        await parts.resync.fill()
        parts.server.version = 10
        parts.server.put(TRAINING_JOB, "a", "n", nodes=1)
        assert await parts.resync.once() == 1
        assert parts.store.body(key("a"))["spec"] == {"nodes": 1}

    run(main())


def test_nodes_that_vanished_without_a_word_are_noticed():
    async def main():
        parts = Parts()
        for number in range(3):
            parts.server.put(NODE, f"node-{number}")
        await parts.resync.fill()
        del parts.server.objects[Key(NODE, "", "node-1")]
        assert await parts.resync.once() == 1
        assert parts.store.keys(NODE) == [Key(NODE, "", "node-0"), Key(NODE, "", "node-2")]

    run(main())


def test_what_may_not_be_listed_is_said_once_and_nothing_is_forgotten(caplog):
    async def main():
        parts = Parts()
        parts.server.put(TRAINING_JOB, "a", "n")
        await parts.resync.fill()
        parts.server.forbidden = {TRAINING_JOB}
        for _ in range(3):
            await parts.resync.once()
        assert parts.store.body(key("a")) is not None
        assert sum("may not list" in record.message for record in caplog.records) == 1
        parts.server.forbidden = set()
        await parts.resync.once()
        assert parts.resync.refused == {}

    run(main())


@pytest.mark.parametrize(
    "kind, matters", [(NODE, True), (CLUSTER_PROFILE, True), (TRAINING_JOB, True), (JOB_SET, False)]
)
def test_nothing_is_decided_while_nodes_or_our_kinds_may_not_be_listed(kind, matters):
    """A job would be told that its profile does not exist, although it is only unseen."""

    async def main():
        parts = Parts()
        parts.server.absent = set()
        parts.server.forbidden = {kind}
        if matters:
            with pytest.raises(Refused):
                await parts.resync.fill()
        else:
            await parts.resync.fill()
        assert parts.resync.is_filled is not matters
        parts.server.forbidden = set()
        await parts.resync.fill()
        assert parts.resync.is_filled

    run(main())


def test_an_api_server_that_is_away_is_a_warning_and_the_next_time_counts(caplog):
    async def main():
        parts = Parts()
        await parts.resync.fill()

        async def away(*_):
            raise Busy("no route")
            yield

        listed, parts.server.list = parts.server.list, away
        assert await parts.resync.once() == 0
        assert "no route" in caplog.text
        parts.server.list = listed
        assert await parts.resync.once() == 0

    run(main())


def test_kinds_of_ours_that_are_not_installed_yet_are_looked_for_every_five_seconds():
    async def main():
        parts = Parts()
        parts.server.absent = {JOB_SET, TRAINING_JOB}
        await parts.resync.fill()
        task = asyncio.create_task(parts.resync.run())
        await asyncio.sleep(7.0)
        assert TRAINING_JOB in parts.resync.absent
        parts.server.absent = {JOB_SET}
        await asyncio.sleep(5.0)
        assert TRAINING_JOB not in parts.resync.absent
        task.cancel()

    run(main())


@pytest.mark.parametrize("namespaces, seen", [((), {"m", "n", "o"}), (("m", "n"), {"m", "n"})])
def test_only_the_namespaces_that_are_named_are_looked_at(namespaces, seen):
    async def main():
        parts = Parts(namespaces)
        for place in "mno":
            parts.server.put(TRAINING_JOB, "a", place)
        parts.server.put(CLUSTER_PROFILE, "east")
        await parts.resync.fill()
        assert {one.namespace for one in parts.store.keys(TRAINING_JOB)} == seen
        assert parts.store.keys(CLUSTER_PROFILE)

    run(main())
