"""What running jobs do, from answers that a server could give. Beside a real server:
tests/cluster/test_history.py.
"""

import asyncio

import pytest

from mofa_model.errors import BadValue, UnknownName
from mofa_operator.observe.progress.telemetry import JobSeries, ettr, running
from mofa_operator.observe.prometheus.client import QueryResult, Sample

NOW = 1_000_000.0


class Server:
    """Answers a query by the first of these texts that stands in it; what it is not told of, it
    does not have.
    """

    def __init__(self, **answers):
        self.answers = answers
        self.asked = []

    async def query(self, query, at=None):
        self.asked.append(query)
        found = next((answer for text, answer in self.answers.items() if text in query), {})
        found = found(at) if callable(found) else found
        names = ("training_namespace", "training_job")
        return QueryResult(
            samples=tuple(
                Sample(dict(zip(names, job, strict=False)), ((NOW, value),))
                for job, value in found.items()
            )
        )


def look(server, *jobs, now=NOW):
    return asyncio.run(running(server, jobs, now))


def job(name="llama", **more):
    return JobSeries(namespace="ml", name=name, **more)


LLAMA, OTHER = ("ml", "llama"), ("ml", "other")


def test_jobs_of_our_exporter_share_their_queries():
    server = Server(
        changes={LLAMA: 5000, OTHER: 7}, mofa_train_tokens_per_second={LLAMA: 8e5}, mofa_train_step_seconds={LLAMA: 20}
    )  # fmt: skip
    one = look(server, job())
    many = look(server, *(job(f"j{n}") for n in range(500)), job(), job("other"))
    assert len(server.asked) == 24, "twelve for one job, twelve for 502"
    assert one == {LLAMA: many[LLAMA]}
    assert set(many) == {LLAMA, OTHER}
    assert (one[LLAMA].tokens_per_second, one[LLAMA].step_seconds, one[LLAMA].step) == (
        8e5,
        20,
        5000,
    )


class Labelled(Server):
    """A server whose series of the model's shape have these labels."""

    def __init__(self, *shapes):
        super().__init__(changes={LLAMA: 5000})
        self.shapes = shapes

    async def query(self, query, at=None):
        if "mofa_train_model_shape" not in query:
            return await super().query(query, at)
        names = dict(zip(("training_namespace", "training_job"), LLAMA, strict=True))
        return QueryResult(samples=tuple(Sample(names | one, ((NOW, 1.0),)) for one in self.shapes))


def test_the_shape_of_a_model_is_read_from_labels_and_of_two_shapes_none():
    said = {"layers": "32", "hidden": "4096", "heads": "32", "kv_heads": "", "ffn": "x"}
    assert look(Labelled(said), job())[LLAMA].shape == {"layers": 32, "hidden": 4096, "heads": 32}
    assert look(Labelled(said, said | {"layers": "16"}), job())[LLAMA].shape == {}
    assert look(Labelled(), job())[LLAMA].shape == {}


def test_what_an_exporter_does_not_say_is_none_and_not_zero():
    found = look(Server(changes={LLAMA: 7}), job())[LLAMA]
    assert (found.tokens_per_second, found.step_seconds, found.ettr, found.since) == (
        None,
        None,
        None,
        None,
    )


def test_a_job_whose_steps_stand_still_does_not_run():
    assert look(Server(mofa_train_tokens_per_second={LLAMA: 8e5}), job()) == {}


def test_series_of_other_exporters_belong_to_the_job_whose_matchers_pick_them():
    server = Server(changes={(): 70}, trainer_throughput={(): 3e5})
    picked = look(server, job(preset="prime-rl", matchers={"pod": 'llama"} or up{a="'}))[LLAMA]
    assert (picked.step, picked.tokens_per_second, picked.source) == (70, 3e5, "prime-rl")
    assert all('pod="llama\\"} or up{a=\\""' in query for query in server.asked)
    assert look(server, job(preset="prime-rl")) == {}, "without matchers it could be anybody's"


def test_megatron_publishes_speed_in_tokens_and_milliseconds_but_no_step():
    server = Server(step_duration_ms={(): 21.5}, tokens_per_sec={(): 4e5})
    found = look(server, job(preset="megatron", matchers={"pod": "llama-0"}))[LLAMA]
    assert (found.tokens_per_second, found.step_seconds, found.step, found.ettr) == (
        4e5,
        21.5,
        None,
        None,
    )
    assert any("* 0.001" in query for query in server.asked)


def test_a_profiles_own_queries_name_the_job():
    server = Server(
        my_step=lambda at: {(): 130 if at == NOW else 100}, my_speed={(): 5e5}
    )  # fmt: skip
    queries = {"step_query": 'my_step{job="$job"}', "tokens_query": 'my_speed{ns="$namespace"}'}
    found = look(server, job(**queries))[LLAMA]
    assert (found.step, found.tokens_per_second, found.step_seconds) == (130, 5e5, 20)
    assert set(server.asked) == {'my_step{job="llama"}', 'my_speed{ns="ml"}'}
    assert look(Server(my_step={(): 130}, my_speed={(): 5e5}), job(**queries)) == {}, (
        "its steps stand still"
    )


def test_names_that_are_none_never_reach_an_administrators_query():
    with pytest.raises(BadValue):
        look(Server(), job('a"} or up', tokens_query='speed{job="$job"}'))


def test_an_exporter_that_nobody_knows_is_bad_input():
    with pytest.raises(UnknownName, match="known: megatron, mofa, prime-rl"):
        look(Server(), job(preset="torchtitan"))


def test_ettr_is_at_most_one_and_says_nothing_at_first():
    assert ettr(1000, 2.0, 1900.0) == 1.0
    assert ettr(3, 2.0, 10.0) is None


def test_what_an_allocator_reserved_is_the_largest_of_its_series():
    server = Server(
        mofa_train_reserved_memory_bytes={LLAMA: 5e10}, changes={LLAMA: 5000}, mofa_train_tokens_per_second={LLAMA: 8e5}
    )  # fmt: skip
    seen = look(server, job())[LLAMA]
    assert (seen.memory_bytes, seen.whole_device) == (5e10, False)
    (query,) = [one for one in server.asked if "reserved_memory" in one]
    assert query.startswith("max by (training_namespace, training_job) (max_over_time(")
