"""Seams between pieces of time change no answer: histories are read whole and in pieces,
and compared.
"""

import asyncio
import random
import re
from collections import defaultdict
from functools import reduce
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mofa_local.blocks import write_block
from mofa_local.prometheus import Prometheus as Server
from mofa_local.series import Run, Series, Span
from small_histories import BEGIN, END, HOUR, Cluster
from traps.every import MADE

from mofa_model.manifest.cluster_profile import IncidentRules
from mofa_operator.incidents.past import past
from mofa_operator.incidents.timelines import Span as Stretch
from mofa_operator.incidents.timelines import length
from mofa_operator.observe.history.node_names import KnownNodes, node_naming
from mofa_operator.observe.history.pool_samples import (
    StretchReader,
    merged,
    pool_timelines,
    read_stretch,
)
from mofa_operator.observe.prometheus.client import Prometheus, TooMuch
from mofa_operator.observe.prometheus.promql import Pool
from mofa_operator.settings import PrometheusSettings

HOURS = range(1, (END - BEGIN) // HOUR)


def on_the_seam(c):
    """What lies over the hours 20 and 30: an outage that is open for long, reboots in silence, a
    hang, a drain, a lost GPU.
    """
    j = c.job()
    t = c.at(20)
    c.dies(2, t - 400, t + 5 * HOUR)
    j.exit(t - 380, 1)
    j.move(2, 9, t - 60, t + 2 * HOUR)
    c.gaps.append((c.at(30) - 1500, c.at(30) + 1500))
    c.boots[c.nodes[4]].append(c.at(30))
    c.dark[c.nodes[5]].append((c.at(36) - 1900, c.at(36) + 1200))
    c.boots[c.nodes[5]].append(c.at(36) - 1600)
    c.cordon(6, c.at(40) - 300, c.at(44) + 200)
    c.dies(6, c.at(41) - 100, c.at(41) + 300)
    c.xid(7, c.at(12) - 1, 79)
    c.offered[c.nodes[8]] = {
        "nvidia_com_gpu": [
            (BEGIN, c.at(15) - 200, 8),
            (c.at(15) - 200, c.at(26), 0),
            (c.at(26), END, 8),
        ]
    }


def sampled(cluster):
    """A cluster's series with their samples; what is told of one in parts is one."""
    found = defaultdict(list)
    for metric, labels, runs in cluster.series():
        found[metric, labels] += runs
    for (metric, labels), runs in found.items():
        said = dict(re.findall(r'(\w+)="([^"]*)"', labels))
        many = [
            Run(range(first, first + count * step, step), Span(first, first + count * step, value))
            for first, count, step, value in sorted(runs)
        ]
        yield Series(metric, said, cluster.scrape, tuple(run.span for run in many)), many


@pytest.fixture(scope="module")
def url(processes, tmp_path_factory, binaries):
    binaries.path("prometheus")
    server = Server(processes, tmp_path_factory.mktemp("seams"), name="seams")
    own = Cluster("w00", "what lies on seams", True)
    on_the_seam(own)
    every = [own, *(make(number + 1) for number, make in enumerate(MADE))]
    write_block([one for cluster in every for one in sampled(cluster)], server.data)
    server.start()
    yield server.url
    server.stop()


def told(url, name, *cuts):
    """The past of a history that is read in pieces, cut at these hours from its begin."""

    async def read():
        async with Prometheus(PrometheusSettings(url=url)) as prometheus:
            pool = Pool.of({"cluster": name}, {})
            naming = await node_naming(prometheus, pool, KnownNodes(), float(END))
            bounds = [BEGIN, *(BEGIN + hour * HOUR for hour in sorted(cuts)), END]
            return [
                await read_stretch(prometheus, pool, naming, Stretch(float(a), float(b)))
                for a, b in pairwise(bounds)
            ]

    pieces = asyncio.run(read())
    half = len(pieces) // 2
    both = [reduce(merged, some) for some in (pieces[:half], pieces[half:]) if some]
    return past(pool_timelines(both), IncidentRules())


def incidents(found):
    """What is said of each incident, to its minute."""
    return [
        (one.kind, one.name, one.cause.word, one.recovery_class, round(one.start / 60))
        for one in found.incidents
    ]


def differences(whole, cut):
    """Incidents that only one of two answers has; a minute is the same."""
    left, more = list(incidents(whole)), []
    for one in incidents(cut):
        same = next((o for o in left if o[:4] == one[:4] and abs(o[4] - one[4]) <= 1), None)
        if same is None:
            more.append(one)
        else:
            left.remove(same)
    return left + more


@pytest.fixture(scope="module")
def whole(url):
    return told(url, "w00")


@pytest.mark.soak
def test_what_lies_on_the_seams_is_there_at_all(whole):
    causes = [one.cause.word for one in whole.incidents]
    assert {"node-down", "gpu-lost", "planned-drain"} <= set(causes), causes
    assert len([one for one in whole.incidents if one.cause.counts]) >= 6, incidents(whole)


@settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.sets(st.sampled_from(HOURS), min_size=1, max_size=6))
def test_a_history_in_pieces_is_the_whole_one(url, whole, cuts):
    cut = told(url, "w00", *cuts)
    assert not differences(whole, cut), sorted(cuts)
    for node, spans in whole.exposed.items():
        assert abs(length(spans) - length(cut.exposed[node])) <= 300, node


def test_a_seam_at_every_hour_changes_nothing(url, whole):
    assert not differences(whole, told(url, "w00", *HOURS))


@pytest.fixture(scope="module")
def narrow(processes, tmp_path_factory, binaries):
    """A server with the same history, of which a query may hold no day."""
    binaries.path("prometheus")
    server = Server(
        processes, tmp_path_factory.mktemp("narrow"), name="narrow", most_samples=24_000
    )
    own = Cluster("w00", "what lies on seams", True)
    on_the_seam(own)
    write_block(sampled(own), server.data)
    server.start()
    yield server.url
    server.stop()


def told_by(url, read):
    """What a coroutine of a reader of the history makes of it."""

    async def asked():
        async with Prometheus(PrometheusSettings(url=url)) as prometheus:
            pool = Pool.of({"cluster": "w00"}, {})
            naming = await node_naming(prometheus, pool, KnownNodes(), float(END))
            return await read(prometheus, pool, naming)

    return asyncio.run(asked())


def test_a_server_that_refuses_a_days_samples_is_asked_for_hours_and_tells_the_same(narrow, whole):
    all_of_it = Stretch(float(BEGIN), float(END))
    with pytest.raises(TooMuch, match="too many samples"):
        told_by(narrow, lambda *of: read_stretch(*of, all_of_it))
    pieces = told_by(narrow, lambda *of: StretchReader(*of, nodes=10).read(all_of_it))
    cut = past(pool_timelines([pieces]), IncidentRules())
    assert not differences(whole, cut)
    for node, spans in whole.exposed.items():
        assert abs(length(spans) - length(cut.exposed[node])) <= 300, node


def test_a_large_pool_is_asked_for_in_pieces_before_a_server_refuses(url, monkeypatch):
    """10,000 nodes are read six hours at a time."""
    asked = []
    monkeypatch.setattr(
        "mofa_operator.observe.history.pool_samples.read_stretch",
        lambda *of: asked.append(of[-1]) or read_stretch(*of),
    )
    found = told_by(
        url,
        lambda *of: StretchReader(*of, nodes=10_000).read(Stretch(float(BEGIN), float(END))),
    )
    assert found.stretch == (BEGIN, END)
    assert max(one.seconds for one in asked) <= 6 * HOUR
    assert [a.end for a in asked[:-1]] == [b.start for b in asked[1:]]


@pytest.mark.soak
def test_no_small_history_is_told_otherwise_in_pieces(url):
    wrong = {}
    for number in range(1, len(MADE) + 1):
        name = f"w{number:02d}"
        cuts = random.Random(name).sample(HOURS, 8)
        found = differences(told(url, name), told(url, name, *cuts))
        if found:
            wrong[name] = found
    assert not wrong
