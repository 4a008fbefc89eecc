"""Events: one for each (object, reason, inputs hash), beside the work, in bounded room."""

import asyncio
from datetime import UTC, datetime

import pytest
import virtual_time
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from mofa_operator.act.events import EventPoster, event
from mofa_operator.api_errors import Busy, Conflict, Refused, Taken
from mofa_operator.decision import Note
from mofa_operator.keys import CLUSTER_PROFILE, TRAINING_JOB, Key
from mofa_operator.metrics.exporter import Exporter

KEY = Key(TRAINING_JOB, "ml", "llama")
NOTE = Note(reason="Recommended", message="tp8 pp16 dp16")
NOW = datetime(2026, 1, 31, 9, 30, tzinfo=UTC)


class Server:
    """Takes Events as an API server does: a name once; `troubles` come first."""

    def __init__(self, *troubles):
        self.troubles = list(troubles)
        self.events = {}
        self.asked = 0

    async def create(self, kind, namespace, body):
        self.asked += 1
        await asyncio.sleep(0)
        if self.troubles:
            raise self.troubles.pop(0)
        name = namespace, body["metadata"]["name"]
        if name in self.events:
            raise Taken("AlreadyExists")
        self.events[name] = body
        return body


def lost_of(server, *posts, **settings):
    """Post some Events, then stop in order; the result is how many the metrics show as lost."""
    exporter = Exporter(CollectorRegistry())

    async def whole():
        async with EventPoster(server, **{"pause": 0.0} | settings) as poster:
            poster.count = exporter.count_dropped_events
            for post in posts:
                poster.post(*post)

    asyncio.run(whole())
    return exporter.registry.get_sample_value("mofa_advisor_events_dropped_total")


def test_a_repeat_is_the_same_event():
    server = Server()
    lost = lost_of(server, *[(KEY, "1", NOTE, "hash")] * 3)
    assert (len(server.events), lost) == (1, 0)


@pytest.mark.parametrize(
    "other",
    [
        (Key(TRAINING_JOB, "ml", "other"), "1", NOTE, "hash"),
        (KEY, "2", NOTE, "hash"),
        (KEY, "1", Note(reason="PredictionDrift", message=NOTE.message), "hash"),
        (KEY, "1", NOTE, "another hash"),
    ],
    ids=["object", "uid", "reason", "hash"],
)
def test_another_object_reason_or_hash_is_another_event(other):
    server = Server()
    lost_of(server, (KEY, "1", NOTE, "hash"), other)
    assert len(server.events) == 2


def test_without_a_hash_the_message_counts():
    server = Server()
    other = Note(reason=NOTE.reason, message="something else")
    lost_of(server, (KEY, "1", NOTE, ""), (KEY, "1", NOTE, ""), (KEY, "1", other, ""))
    assert len(server.events) == 2


def test_what_waits_is_bounded_and_the_rest_is_counted():
    server = Server()
    notes = [(KEY, str(uid), NOTE, "hash") for uid in range(10)]
    lost = lost_of(server, *notes, most=4)
    assert (len(server.events), lost) == (4, 6)


def test_a_busy_server_is_asked_again_and_a_refusal_is_final():
    server = Server(Busy("429", 0.001), Conflict("a quota was used meanwhile"), Busy("503", 0.001))
    lost = lost_of(server, (KEY, "1", NOTE, "hash"))
    assert (len(server.events), lost, server.asked) == (1, 0, 4)
    server = Server(Refused("the namespace is being terminated"))
    lost = lost_of(server, (KEY, "1", NOTE, "hash"), (KEY, "2", NOTE, "hash"))
    assert (len(server.events), lost) == (1, 1)


def test_an_event_outlives_an_outage_and_the_first_moments_of_a_new_server():
    server = Server(*[Busy("connection refused", 0.001)] * 20, Refused("roles are not read yet"))
    lost = lost_of(server, (KEY, "1", NOTE, "hash"), grace=10.0)
    assert (len(server.events), lost, server.asked) == (1, 0, 22)


def test_a_server_that_never_answers_does_not_hold_up_the_end():
    class Silent:
        async def create(self, kind, namespace, body):
            await asyncio.sleep(3600)

    lost = lost_of(Silent(), (KEY, "1", NOTE, "hash"), (KEY, "2", NOTE, "hash"), grace=0.05)
    assert lost == 2


def test_events_of_cluster_scoped_objects_are_where_kubectl_looks():
    made = event(Key(CLUSTER_PROFILE, "", "east"), "1", NOTE, "", NOW)
    assert made["metadata"]["namespace"] == "default"
    assert "namespace" not in made["involvedObject"]


LABELS = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,40}[a-z0-9])?", fullmatch=True)
NAMES = (
    st.lists(LABELS, min_size=1, max_size=12).map(".".join).filter(lambda name: len(name) <= 253)
)


@given(
    name=NAMES,
    message=st.text(max_size=3000),
    uid=st.uuids(),
)
def test_every_event_is_one_that_the_api_server_takes(name, message, uid):
    made = event(
        Key(TRAINING_JOB, "ml", name),
        str(uid),
        Note(reason="Recommended", message=message),
        "h",
        NOW,
    )
    assert len(made["metadata"]["name"]) <= 253
    assert all(
        part and part[0] != "-" and part[-1] != "-" for part in made["metadata"]["name"].split(".")
    )
    assert len(made["message"].encode()) <= 1024


def said(server, *, first=()):
    """Say one Event after others were queued; what the server had at that moment, and how many it
    has in the end.
    """

    async def whole():
        async with EventPoster(server, pause=0.0) as poster:
            for post in first:
                poster.post(*post)
            await poster.post_at_once(KEY, "1", NOTE, "hash")
            at_once = len(server.events)
        return at_once, len(server.events)

    return virtual_time.run(whole())


def test_what_is_said_stands_before_anything_else_is_done_and_a_repeat_of_it_is_none():
    server = Server()
    assert said(server) == (1, 1)
    assert said(server) == (1, 1)


def test_what_is_said_waits_for_its_turn_behind_those_that_wait():
    server = Server()
    assert said(server, first=[(KEY, "2", NOTE, "hash")]) == (0, 2)


@pytest.mark.parametrize("trouble", [Busy("away"), Refused("a quota")])
def test_what_cannot_be_said_at_once_is_said_later_and_nobody_waits(trouble):
    server = Server(trouble)
    assert said(server) == (0, 1)


def test_a_server_that_does_not_answer_keeps_nobody_for_long():
    class Silent(Server):
        async def create(self, kind, namespace, body):
            await asyncio.Event().wait()

    async def whole():
        async with EventPoster(Silent()) as poster:
            before = asyncio.get_running_loop().time()
            await poster.post_at_once(KEY, "1", NOTE)
            return asyncio.get_running_loop().time() - before

    assert virtual_time.run(whole()) <= 2.0


@pytest.mark.parametrize("trouble", [Busy("429", 300.0), Refused("a quota"), Conflict("a quota")])
def test_a_namespace_whose_events_are_refused_holds_no_other(trouble):
    """One queue for all held everybody for up to 300 s behind one Event."""

    class Quota(Server):
        async def create(self, kind, namespace, body):
            if namespace == "evil":
                await asyncio.sleep(0)
                raise trouble
            return await super().create(kind, namespace, body)

    async def whole():
        server = Quota()
        async with EventPoster(server) as poster:
            for number in range(50):
                poster.post(Key(TRAINING_JOB, "evil", f"e-{number}"), "1", NOTE)
            await asyncio.sleep(5.0)
            poster.post(KEY, "1", NOTE)
            poster.post(Key(TRAINING_JOB, "evil", "later"), "1", NOTE)
            await asyncio.sleep(1.0)
            queued = len(server.events)
            before = asyncio.get_running_loop().time()
            await poster.post_at_once(Key(TRAINING_JOB, "ml", "other"), "1", NOTE)
            return queued, len(server.events), asyncio.get_running_loop().time() - before

    assert virtual_time.run(whole()) == (1, 2, 0.0)


def test_a_namespace_has_a_share_of_the_room_for_events_that_wait():
    server = Server()
    notes = [(Key(TRAINING_JOB, "evil", f"e-{n}"), "1", NOTE) for n in range(3000)]
    lost = lost_of(server, *notes, (KEY, "1", NOTE), most=2000, grace=30.0)
    assert (len(server.events), lost) == (1001, 2000)
    assert any(namespace == "ml" for namespace, _ in server.events)
