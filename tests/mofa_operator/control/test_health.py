"""Probes that ask for progress, and the servers that answer them."""

from __future__ import annotations

import asyncio
import json

import aiohttp
from aiohttp import web
from mofa_local.ports import free_ports
from virtual_time import run

from mofa_model.kinds import JOB_SET
from mofa_operator.control.health import Probes
from mofa_operator.control.http_server import Server
from mofa_operator.control.work_queue import WorkQueue
from mofa_operator.keys import CLUSTER_PROFILE, TRAINING_JOB, Key
from mofa_operator.metrics.exporter import Exporter
from mofa_operator.settings import LoopSettings, OperatorSettings, PrometheusSettings, ServeSettings

JOB = Key(TRAINING_JOB, "ns", "a")


class Part:
    """Queues, resync, model pool and fence, as far as probes look."""

    behind = 0.0
    is_warm = True
    is_busy = False
    is_filled = True
    failure = None

    def __init__(self):
        self.absent = {JOB_SET}
        self.refused = {}


def health():
    queue, part = WorkQueue(backoff=1.0, longest=300.0), Part()
    settings = OperatorSettings(
        loop=LoopSettings(stall=120.0), prometheus=PrometheusSettings(interval=60.0)
    )
    made = Probes(
        queue=queue, history=part, resync=part, model_pool=part, fence=part, settings=settings
    )
    return made, queue, part


def test_an_operator_with_nothing_to_do_is_well_for_ever():
    async def main():
        made, _, _ = health()
        await asyncio.sleep(1e6)
        assert made.live() == (True, [])

    run(main())


def test_work_that_stands_still_for_two_minutes_is_sick_and_says_what():
    async def main():
        made, queue, _ = health()
        await asyncio.sleep(1e6)  # idle before: that is no stall
        queue.add(JOB)
        await queue.take()
        await asyncio.sleep(119.0)
        assert made.live()[0]
        await asyncio.sleep(2.0)
        assert made.live() == (False, ["nothing was finished for 121 s, and there is work"])

    run(main())


def test_one_stuck_object_among_busy_ones_is_sick_too():
    async def main():
        made, queue, _ = health()
        queue.add(JOB)
        await queue.take()
        other = Key(TRAINING_JOB, "ns", "b")
        for _ in range(13):
            queue.add(other)
            await queue.take()
            await asyncio.sleep(10.0)
            queue.done(other)
        assert made.live() == (False, ["TrainingJob ns/a has been in work for 130 s"])

    run(main())


def test_a_long_row_of_answers_is_no_stall_while_answers_come():
    """Five thousand jobs after a restart: each waits for minutes, and one is finished every
    few seconds.
    """

    async def main():
        made, queue, part = health()
        part.is_busy = True
        waiting = [Key(TRAINING_JOB, "ns", str(number)) for number in range(100)]
        for key in waiting:
            queue.add(key)
        for _ in waiting:
            await queue.take()
        for key in waiting:
            await asyncio.sleep(5.0)
            queue.done(key)
            assert made.live()[0]

    run(main())


def test_a_look_at_history_that_takes_three_intervals_is_sick():
    async def main():
        made, _, part = health()
        part.behind = 181.0
        assert made.live() == (False, ["a look at the history of a profile takes 181 s"])

    run(main())


def test_ready_means_that_a_job_would_be_advised_now():
    async def main():
        made, _, part = health()
        assert made.ready() == (True, [])  # that JobSets are absent is no matter
        part.is_filled, part.is_warm = False, False
        part.absent.add(CLUSTER_PROFILE)
        part.refused[TRAINING_JOB] = None
        part.failure = "a write that it must refuse was allowed"
        assert made.ready() == (
            False,
            [
                "the fence does not hold: a write that it must refuse was allowed",
                "the first lists are not complete",
                "trainingjobs.mofa.dev may not be listed by this account",
                "the CustomResourceDefinition clusterprofiles.mofa.dev is not installed",
                "the process that computes advice is not ready",
            ],
        )
        made.standby = lambda: "standby: pod-1 holds the Lease"
        assert made.ready() == (
            False,
            ["standby: pod-1 holds the Lease", "the process that computes advice is not ready"],
        ), "it could not take over"
        part.is_warm = True
        assert made.ready() == (True, ["standby: pod-1 holds the Lease"])
        assert made.why_empty() == "standby: pod-1 holds the Lease"

    run(main())


def test_metrics_and_page_on_one_port_probes_on_another():
    async def page(_):
        return web.Response(text="the page")

    async def main():
        metrics, probes = free_ports(2)
        made, _, part = health()
        part.is_warm = False
        settings = ServeSettings(address="127.0.0.1", metrics_port=metrics, health_port=probes)
        measured = []
        server = Server(
            settings,
            exporter=Exporter(),
            live=made.live,
            ready=made.ready,
            measure=lambda: measured.append(True),
            routes=[web.get("/page", page)],
        )
        async with server, aiohttp.ClientSession() as session:

            async def get(port, path):
                async with session.get(f"http://127.0.0.1:{port}{path}") as answer:
                    return answer.status, await answer.text()

            status, text = await get(metrics, "/metrics")
            assert status == 200
            assert "# TYPE process_cpu_seconds_total counter" in text
            assert measured == [True]  # once a scrape
            assert (await get(metrics, "/page")) == (200, "the page")
            assert (await get(metrics, "/"))[0] == 200
            assert (await get(metrics, "/healthz"))[0] == 404
            assert (await get(probes, "/metrics"))[0] == 404
            assert await get(probes, "/healthz") == (200, '{"ok":true,"reasons":[]}')
            status, text = await get(probes, "/readyz")
            assert (status, json.loads(text)["reasons"]) == (
                503,
                ["the process that computes advice is not ready"],
            )

    asyncio.run(main())
