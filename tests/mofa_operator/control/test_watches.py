"""Watches of all kinds, each by itself: what ends one, and what becomes of it then."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import logging

from virtual_time import run

from mofa_model.kinds import JOB_SET, RAY_JOB, TRAIN_JOB
from mofa_operator.api_errors import Busy, Expired, Gone, Refused
from mofa_operator.control.enqueuer import Enqueuer
from mofa_operator.control.watches import LATE, Watch, Watches
from mofa_operator.control.work_queue import WorkQueue
from mofa_operator.keys import Key
from mofa_operator.metrics.exporter import Exporter
from mofa_operator.observe.cluster.store import Store
from mofa_operator.settings import LoopSettings

KINDS = (JOB_SET, TRAIN_JOB, RAY_JOB)


class Server:
    """Lists and watches; a kind may be refused with an error, and its open watches may be ended
    with one.
    """

    def __init__(self):
        self.objects = {}
        self.version = 0
        self.no = {}
        self.oldest = 0
        self.streams = {kind: [] for kind in KINDS}
        self.lists = dict.fromkeys(KINDS, 0)

    def put(self, kind, name):
        self.version += 1
        meta = {"name": name, "namespace": "n", "uid": name, "resourceVersion": str(self.version)}
        body = self.objects[Key(kind, "n", name)] = {
            "metadata": meta,
            "spec": {"seen": self.version},
        }
        self._tell(kind, "ADDED", body)

    def drop(self, kind, name, *, tell=True):
        self.version += 1
        body = self.objects.pop(Key(kind, "n", name))
        body["metadata"]["resourceVersion"] = str(self.version)
        if tell:
            self._tell(kind, "DELETED", body)

    def end(self, kind, error=None):
        for stream in self.streams[kind]:
            stream.put_nowait(error)

    def _tell(self, kind, what, body):
        for stream in self.streams[kind]:
            stream.put_nowait((what, copy.deepcopy(body)))

    async def pages(self, kind, place, size=500):
        if kind in self.no:
            raise self.no[kind]
        self.lists[kind] += 1
        yield (
            [copy.deepcopy(body) for key, body in self.objects.items() if key.kind == kind],
            str(self.version),
        )

    @contextlib.asynccontextmanager
    async def watch(self, kind, place, version):
        if kind in self.no:
            raise self.no[kind]
        if int(version) < self.oldest:
            raise Expired("410")
        stream = asyncio.Queue()
        self.streams[kind].append(stream)
        for key, body in self.objects.items():
            if key.kind == kind and int(body["metadata"]["resourceVersion"]) > int(version):
                stream.put_nowait(("MODIFIED", copy.deepcopy(body)))

        async def events():
            while (found := await stream.get()) is not None:
                if isinstance(found, Exception):
                    raise found
                yield found

        try:
            yield events()
        finally:
            self.streams[kind].remove(stream)


class Parts:
    def __init__(self):
        self.server, self.store, self.exporter = Server(), Store(), Exporter()
        self.queue = WorkQueue(backoff=1.0, longest=300.0)
        enqueuer = Enqueuer(self.store, self.queue, LoopSettings())
        watches = [
            Watch(kind, None, api=self.server, store=self.store, enqueuer=enqueuer)
            for kind in KINDS
        ]
        self.watches = Watches(watches, store=self.store, enqueuer=enqueuer, exporter=self.exporter)

    def names(self, kind=JOB_SET):
        return {key.name for key in self.store.keys(kind)}

    @property
    def up(self):
        return {kind for kind in KINDS if self.series(kind)}

    def series(self, kind):
        return self.exporter.registry.get_sample_value(
            "mofa_advisor_watch_up", {"kind": kind.resource}
        )


def played(play):
    async def main():
        parts = Parts()
        task = asyncio.create_task(parts.watches.run())
        try:
            await play(parts, parts.server)
            assert not task.done()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    run(main())


def test_what_is_there_is_listed_and_what_happens_then_is_told():
    async def play(parts, server):
        server.put(JOB_SET, "old")
        await asyncio.sleep(1)
        assert parts.up == set(KINDS)
        server.put(JOB_SET, "new")
        server.drop(JOB_SET, "old")
        await asyncio.sleep(1)
        assert parts.names() == {"new"}
        assert server.lists[JOB_SET] == 1

    played(play)


def test_a_forbidden_kind_and_an_absent_one_end_no_other_and_are_watched_once_they_may_be():
    async def play(parts, server):
        server.no = {JOB_SET: Refused("403"), RAY_JOB: Gone("404")}
        await asyncio.sleep(60)
        assert [parts.series(kind) for kind in KINDS] == [0, 1, None]
        assert server.lists[TRAIN_JOB] == 1
        server.put(TRAIN_JOB, "other")
        await asyncio.sleep(0.1)
        assert parts.names(TRAIN_JOB) == {"other"}
        server.no = {}
        server.put(JOB_SET, "job")
        await asyncio.sleep(LATE)
        assert parts.up == set(KINDS)
        assert parts.names() == {"job"}

    played(play)


def test_a_right_that_is_lost_keeps_what_was_seen_and_comes_back(caplog):
    async def play(parts, server):
        server.put(JOB_SET, "job")
        await asyncio.sleep(60)
        server.no = {JOB_SET: Refused("403: may not")}
        server.end(JOB_SET)
        await asyncio.sleep(60)
        assert parts.up == {TRAIN_JOB, RAY_JOB}
        assert parts.names() == {"job"}
        server.drop(JOB_SET, "job")
        server.no = {}
        server.oldest = server.version  # meanwhile the version was forgotten
        await asyncio.sleep(LATE + 1)
        assert parts.up == set(KINDS)
        assert parts.names() == set()

    with caplog.at_level(logging.INFO, "mofa_operator"):
        played(play)
    told = [record.message for record in caplog.records if record.levelno >= logging.INFO]
    assert len([one for one in told if "403: may not" in one]) == 1
    assert told[-1] == "jobsets.jobset.x-k8s.io: watched now"


def test_a_kind_that_is_no_more_takes_its_objects_along_and_one_that_comes_again_is_watched():
    async def play(parts, server):
        server.put(JOB_SET, "first")
        await asyncio.sleep(60)
        server.no = {JOB_SET: Gone("404")}
        server.drop(JOB_SET, "first", tell=False)
        server.end(JOB_SET)
        await asyncio.sleep(LATE + 1)
        assert parts.names() == set()
        server.no = {}
        server.put(JOB_SET, "second")
        await asyncio.sleep(LATE)
        assert parts.names() == {"second"}

    played(play)


def test_a_kind_that_is_gone_for_a_moment_keeps_its_objects():
    async def play(parts, server):
        server.put(JOB_SET, "job")
        await asyncio.sleep(60)
        server.no = {JOB_SET: Gone("a server that starts does not know it yet")}
        server.end(JOB_SET)
        await asyncio.sleep(1)
        assert parts.names() == {"job"}
        server.no = {}
        await asyncio.sleep(LATE)
        assert parts.up == set(KINDS)
        assert parts.names() == {"job"}

    played(play)


def test_a_watch_that_is_cut_goes_on_from_where_it_was():
    async def play(parts, server):
        await asyncio.sleep(60)
        server.no = {JOB_SET: Busy("no route")}
        server.end(JOB_SET, Busy("reset"))
        await asyncio.sleep(0.05)
        assert parts.up == {TRAIN_JOB, RAY_JOB}
        server.put(JOB_SET, "meanwhile")
        server.no = {}
        await asyncio.sleep(1)
        assert parts.names() == {"meanwhile"}
        assert server.lists[JOB_SET] == 1

    played(play)


def test_a_version_that_is_too_old_costs_a_list_which_shows_what_is_no_more():
    async def play(parts, server):
        server.put(JOB_SET, "a")
        server.put(JOB_SET, "b")
        await asyncio.sleep(60)
        server.drop(JOB_SET, "a", tell=False)
        server.end(JOB_SET, Expired("410"))
        await asyncio.sleep(1)
        assert parts.names() == {"b"}
        assert server.lists[JOB_SET] == 2

    played(play)


def test_a_server_that_ends_every_watch_at_once_is_asked_every_few_seconds_and_no_more():
    async def play(parts, server):
        asked = []

        @contextlib.asynccontextmanager
        async def watch(kind, place, version):
            asked.append(kind)

            async def events():
                return
                yield

            yield events()

        server.watch = watch
        await asyncio.sleep(600)
        assert 100 < len(asked) / len(KINDS) < 150

    played(play)


def test_a_fault_of_ours_that_ends_a_watch_is_warned_of_once_also_where_the_watch_never_stood(
    caplog,
):
    """In the image every one of kopf's watches ended with a KeyError, forever, and the log said it
    to debuggers alone.
    """

    async def play(parts, server):
        server.no = {JOB_SET: KeyError("getpwuid(): uid not found: 65532")}
        server.end(JOB_SET, KeyError("getpwuid(): uid not found: 65532"))
        await asyncio.sleep(60)

    with caplog.at_level(logging.WARNING, "mofa_operator.control.watches"):
        played(play)
    said = [
        one.getMessage() for one in caplog.records if "fault of this program" in one.getMessage()
    ]
    assert len(said) == 1, said
    assert "KeyError" in said[0]
