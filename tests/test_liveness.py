"""Nothing is built and inert: every setting, set otherwise, changes a decision, a request, a wait
or a figure.

`BEHAVIOUR` has for each setting another value and what is done with it, without a cluster. `SERVED`
are those whose work is to open a port or to hold a real process; it names the test against real
servers that sets them.
"""

import asyncio
import dataclasses
import logging
import re
import ssl
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import parse_qs

import pytest
from operator_objects import job_set, node
from virtual_time import run

from mofa_model.errors import MofaError
from mofa_model.kinds import JOB_SET
from mofa_operator.api import Api
from mofa_operator.control import logs
from mofa_operator.control.enqueuer import Enqueuer
from mofa_operator.control.health import Probes
from mofa_operator.control.lease import Lease
from mofa_operator.control.run import Operator
from mofa_operator.control.work_queue import WorkQueue
from mofa_operator.decide.observation import _wait
from mofa_operator.decide.observation import due as step_due
from mofa_operator.decide.pool_size import pool_size
from mofa_operator.decide.release import deadline
from mofa_operator.keys import CLUSTER_PROFILE, NODE, Key
from mofa_operator.objects import ObservedFigures, live
from mofa_operator.observe.cluster.store import Store
from mofa_operator.observe.nodes import Pools, facts_of
from mofa_operator.observe.prometheus.client import Prometheus, _trust
from mofa_operator.settings import OperatorSettings
from mofa_operator.snapshot import Alive, ProfileSnapshot
from mofa_operator.verbs.operator import flags

ROOT = Path(__file__).resolve().parent.parent
KEY = Key(CLUSTER_PROFILE, "", "east")
ACCESS = SimpleNamespace(server="http://localhost:1", context=lambda: None, proxy=None)
SERVED = {
    "largest-object": "tests/hostile/test_bytes.py",
    "namespace-bytes": "tests/hostile/test_bytes.py",
    "all-bytes": "tests/hostile/test_bytes.py",
    "pods": "tests/started.py",
    "prometheus-interval": "tests/faults/test_prometheus.py",
    "resync": "tests/cluster/test_watches.py",
    "dry-run": "tests/cluster/test_operator.py",
    "verbose": "tests/advisor.py",
    "lease-enabled": "tests/cluster/test_stop.py",
    "address": "tests/advisor.py",
    "metrics-port": "tests/advisor.py",
    "health-port": "tests/advisor.py",
    "page": "tests/cluster/test_page.py",
    "authenticate": "tests/cluster/test_scrapers.py",
    "fence": "tests/cluster/test_fence_proof.py",
}
"""Settings that only a whole operator obeys, and where one does."""


def put_together(settings):
    """The operator with these settings, none of its parts at work."""
    credentials = SimpleNamespace(access=ACCESS, token=None)
    apis = [Api(credentials, settings.api) for _ in range(2)]
    return Operator(settings, *apis, credentials, None, SimpleNamespace(take_signals=None))


def asked(settings):
    """The form and the headers of a query, what becomes of an answer of two series, and how far
    back one goes.
    """

    async def ask():
        sent = {}

        async def answered(body):
            sent.update(parse_qs(body.decode()))
            series = '{"metric":{"a":"%d"},"value":[1,"1"]}'
            return (
                f'{{"status":"success","data":{{"resultType":"vector","result":[{series % 1},{series % 2}]}}}}'
            ).encode()

        given = (
            settings.prometheus
            if settings.prometheus.url
            else dataclasses.replace(settings.prometheus, url="http://a")
        )
        prometheus = Prometheus(given)
        prometheus._persistent = answered
        try:
            told = len((await prometheus.query("up")).samples)
        except MofaError as error:
            told = str(error)
        return prometheus.address, prometheus.longest, sent, told, prometheus._credentials.headers()

    return run(ask())


def read(settings):
    """An answer of a hundred bytes."""

    class Content:
        async def iter_any(self):
            yield b"x" * 100

    response = SimpleNamespace(status=200, headers={}, content=Content())
    prometheus = Prometheus(dataclasses.replace(settings.prometheus, url="http://a"))
    try:
        return run(prometheus._read(response))
    except Exception as error:  # noqa: BLE001 - that it is refused is the behaviour
        return str(error)


def trusted(settings):
    """What a certificate of the server has to be."""
    try:
        context = _trust(settings.prometheus)
    except MofaError as error:
        return str(error)
    return context.verify_mode is ssl.CERT_NONE


def writes(settings):
    """Waits of writes, one after the other. [s]"""
    bucket = put_together(settings)._api.bucket
    return [round(bucket.next_turn(), 1) for _ in range(2000)]


def session(settings):
    """Connections at once, and the longest request."""

    async def opened():
        async with put_together(settings)._api as api:
            return api._session.connector.limit, api._session.timeout.total

    return asyncio.run(opened())


def settled(settings):
    """When a profile is queued whose node came, and when where its nodes change every second."""

    async def wait(changes):
        store, queue = Store(), WorkQueue(backoff=1.0, longest=1.0)
        enqueuer = Enqueuer(store, queue, settings.loop)
        profile = {"metadata": {"name": "east"}, "spec": {"nodeSelector": {}}}
        store.put(CLUSTER_PROFILE, profile)
        for number in range(changes):
            enqueuer.put(NODE, node(f"n{number}"))
            await asyncio.sleep(1.0)
            if len(queue):
                break
        await queue.take()
        return asyncio.get_running_loop().time()

    return [round(run(wait(changes)), 3) for changes in (1, 100)]


def steady(settings):
    """For how long a pool of two nodes keeps its size where one of them goes. [s]"""
    now = [1e9]
    pools = Pools(settings.loop.steady, lambda: now[0])
    pools.select("east", {})
    for name in "ab":
        pools.put(name, facts_of(node(name)))
    pools.listed()
    now[0] += 1e6
    pools.put("a", None)
    body = {
        "metadata": {"name": "east"},
        "status": {"nodes": {"ready": 2, "total": 2, "steady": 2}},
    }
    seen = ProfileSnapshot(
        profile=live(CLUSTER_PROFILE, body), node_count=pools.count("east"), now=now[0]
    )
    return pool_size(seen, settings.loop).requeue_after


def failing(settings):
    """Waits after the first and after the hundredth failure, as far as chance leaves them
    alike. [s]
    """

    async def waits():
        queue, found = put_together(settings)._queue, []
        for _ in range(100):
            queue.add(KEY)
            found.append(queue.failed(await queue.take()))
        return round(found[0]), round(found[-1], -2)

    return run(waits())


def stalled(settings):
    """Whether an operator is well that has had work for a minute and a half, and
    finished nothing.
    """

    async def live_after():
        queue, part = WorkQueue(backoff=1.0, longest=1.0), SimpleNamespace(behind=0.0, is_busy=True)
        probes = Probes(
            queue=queue, history=part, resync=part, model_pool=part, fence=part, settings=settings
        )
        queue.add(KEY)
        await asyncio.sleep(90.0)
        return probes.live()

    return run(live_after())


def leased(settings):
    """The Lease that is made, and where."""
    made = []

    class Server:
        async def get(self, *where):
            made.append(where)

        async def create(self, kind, namespace, body):
            made.append((namespace, body["metadata"], body["spec"]["leaseDurationSeconds"]))

    run(Lease(Server(), settings.lease, "me")._try())
    return made


def due(settings, *, stepped=True, seconds=600.0):
    """Until when the next step of a job is due."""
    alive = Alive(
        at=0.0, since=0.0, watched=True, step_at=10.0 if stepped else None, step_seconds=seconds
    )
    answer = SimpleNamespace(predicted={}, says=SimpleNamespace(current=None, rates=()))
    return step_due(SimpleNamespace(alive=alive, running=None), answer, settings.loop)


def shown(settings):
    """How long a reading waits that differs by four percent, ten seconds after the last; and one
    that differs by half.
    """
    stands = ObservedFigures.model_validate(
        {"tokensPerSecond": 100, "time": "1970-01-01T00:00:00Z"}
    )
    return [
        _wait(stands, stands.model_copy(update={"tokens_per_second": n}), 10.0, settings.loop)
        for n in (104, 150)
    ]


def capped(settings):
    """Jobs that have series of their own."""
    return put_together(settings)._exporter._most_jobs


def logged(settings):
    """A line of the log."""
    every = [logging.getLogger(name) for name in ("", "mofa_operator", "kopf")]
    handlers, levels = every[0].handlers[:], [one.level for one in every]
    try:
        logs.set_up(settings.log_format, verbose=False)
        record = logging.LogRecord("mofa_operator", logging.INFO, "f", 1, "said", None, None)
        return every[0].handlers[-1].format(record)[:1]
    finally:
        every[0].handlers[:] = handlers
        for one, level in zip(every, levels, strict=True):
            one.setLevel(level)


def kinds(settings):
    """Kinds that are listed and watched."""
    return {kind.kind for kind in put_together(settings)._resync.kinds}


def places(settings):
    """Where each kind is watched."""
    return {(watch.kind.kind, watch.namespace) for watch in put_together(settings)._watches._states}


def hands(settings):
    """Processes that compute."""
    return len(put_together(settings).model_pool._workers)


def gated(settings):
    """When a job at our gate must have been let go."""
    body = job_set()
    body["metadata"]["creationTimestamp"] = "2023-11-14T22:13:20Z"
    return deadline(live(JOB_SET, body), settings.loop)


BEHAVIOUR = {
    "prometheus-url": ("http://b", asked),
    "prometheus-flavour": ("mimir", asked),
    "prometheus-bearer-token-file": ("FILE", asked),
    "prometheus-basic-auth-file": ("FILE", asked),
    "prometheus-header": (("X-Team=a",), asked),
    "prometheus-org-id": ("a", asked),
    "prometheus-ca-file": ("FILE", trusted),
    "prometheus-insecure-skip-verify": (True, trusted),
    "prometheus-timeout": (5.0, asked),
    "prometheus-largest-answer": (10, read),
    "prometheus-most-series": (1, asked),
    "writes-per-second": (2.0, writes),
    "burst": (3, writes),
    "concurrency": (2, session),
    "api-timeout": (1.0, session),
    "settle": (5.0, settled),
    "settle-longest": (9.0, settled),
    "steady": (60.0, steady),
    "quiet": (60.0, shown),
    "material": (0.01, shown),
    "backoff": (20.0, failing),
    "backoff-longest": (3000.0, failing),
    "stall": (60.0, stalled),
    "workers": (3, hands),
    "gate-longest": (10.0, gated),
    "stuck-steps": (100.0, due),
    "stuck-least": (9000.0, lambda settings: due(settings, seconds=1.0)),
    "start-least": (9000.0, lambda settings: due(settings, stepped=False)),
    "lease-namespace": ("elsewhere", leased),
    "lease-name": ("other", leased),
    "lease-duration": (60.0, leased),
    "most-jobs": (2, capped),
    "namespace": (("ml",), places),
    "kinds": (("RayJob",), kinds),
    "admission-checks": (True, kinds),
    "log-format": ("json", logged),
}
"""By flag: another value, and what the operator does with it."""


def changed(flag, value):
    """The settings with one of them set otherwise."""
    if not flag.group:
        return dataclasses.replace(OperatorSettings(), **{flag.field.name: value})
    room = dataclasses.replace(getattr(OperatorSettings(), flag.group), **{flag.field.name: value})
    return dataclasses.replace(OperatorSettings(), **{flag.group: room})


@pytest.mark.parametrize("flag", flags(), ids=lambda flag: flag.name)
def test_every_setting_changes_what_the_operator_does(flag, tmp_path):
    if flag.name in SERVED:
        text = (ROOT / SERVED[flag.name]).read_text("utf-8")
        assert re.search(rf"--{flag.name}\b|\b{flag.field.name}=", text), (
            "that test does not set it"
        )
        return
    value, behaviour = BEHAVIOUR[flag.name]
    if value == "FILE":
        value = str(tmp_path / "secret")
        Path(value).write_text("user:secret")
    assert behaviour(changed(flag, value)) != behaviour(OperatorSettings())


def test_what_the_parts_count_is_in_the_metrics():
    operator = put_together(OperatorSettings())
    operator._api.count("apply", "ok")
    operator.model_pool.count()
    operator._events.count(2)
    page = operator._exporter.page()[0].decode().splitlines()
    assert {
        'mofa_advisor_api_writes_total{outcome="ok",verb="apply"} 1.0',
        "mofa_advisor_searches_total 1.0",
        "mofa_advisor_events_dropped_total 2.0",
    } <= set(page)
