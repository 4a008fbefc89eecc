"""SIGTERM ends the operator within five seconds, with 0, whatever it does: nothing of it is left, and nothing is half done."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from advisor import ACCOUNT, Advisor, ours, until
from faults.proxy import Fault, Proxy, refusal
from foreign import example, install, job
from mofa_local.ports import HOST
from operator_objects import small_job
from pools import EXAMPLES, pool
from ruamel.yaml import YAML

from mofa_model.annotations import PREFIX
from mofa_model.kinds import JOB_SET, RAY_JOB

LONGEST = 5.0
"""From the signal to the end. [s]"""
FLAGS = ("--settle=0.2", "--backoff=0.2", "--prometheus-interval=1")
SAMPLE = ("silent-at-start", "plugin-at-start", "elected", "a-rival", "gated", "writing", "looking")
"""Of each thing that an operator can wait for, one: a server, a plugin, the Lease, a search, a write, Prometheus."""
PLUGIN = {
    "apiVersion": "client.authentication.k8s.io/v1",
    "command": "sleep",
    "args": ["60"],
    "interactiveMode": "Never",
}
FENCE = ("--fence",)


@dataclass
class Hanging(Fault):
    """Requests of some sort are not answered any more, all of them by default."""

    meant: Callable = lambda asked: True

    async def answer(self, asked, proxy):
        return await (asyncio.Event().wait() if self.meant(asked) else proxy.through(asked))


@dataclass
class Answering(Fault):
    """Requests of some sort are refused, all of them by default."""

    status: int
    reason: str
    wait: int = 0
    """What the server asks to wait. [s]"""
    meant: Callable = lambda asked: True

    async def answer(self, asked, proxy):
        wait = {"Retry-After": str(self.wait)} if self.wait else {}
        return refusal(self.status, self.reason, **wait) if self.meant(asked) else await proxy.through(asked)


AT_START = {
    "silent-at-start": Hanging,
    "unauthorized-at-start": lambda: Answering(401, "Unauthorized"),
    "forbidden-at-start": lambda: Answering(403, "Forbidden"),
    "throttled-at-start": lambda: Answering(429, "TooManyRequests", wait=60),
    "failing-at-start": lambda: Answering(500, "InternalError"),
    "listing-jobs": lambda: Hanging(
        lambda asked: asked.what.endswith("/trainingjobs") and not asked.is_watch
    ),
    "proving-the-fence": lambda: Hanging(lambda asked: "dryRun" in asked.request.query),
}
"""What the server does from the beginning, so that it is never ready."""
AT_WORK = {
    "posting": lambda: Hanging(lambda asked: asked.what.endswith("/events")),
    "throttled": lambda: Answering(429, "TooManyRequests", wait=60, meant=lambda asked: asked.is_write),
    "watching-in-silence": lambda: Hanging(lambda asked: asked.is_watch),
    "watching-nothing": lambda: Answering(403, "Forbidden", meant=lambda asked: asked.is_watch),
    "watching-what-is-gone": lambda: Answering(404, "NotFound", meant=lambda asked: asked.is_watch),
    "idle": Fault,
}
"""What it does once there is something to do."""
ALL = tuple(dict.fromkeys((*SAMPLE, *AT_START, *AT_WORK, "searching", "silenced", "cut")))


class State:
    """An operator in a state in which it is told to stop."""

    def __init__(self, cluster, processes, proxy, name, *flags, fault=None, **kubeconfig):
        self.proxy = proxy
        self.name = name
        proxy.fault = fault or Fault()
        self.advisor = Advisor(
            cluster, processes, f"stop-{name}", kubeconfig=behind(cluster, proxy.url, name, **kubeconfig)
        )
        self.flags = flags
        self.process = None

    def start(self, processes):
        self.advisor.start(f"--namespace={self.place}", *FLAGS, *self.flags, wait=False)
        self.process = processes[self.advisor.name]

    def fail(self, fault):
        """From now on the server does something else, to watches as well."""
        self.proxy.fault = fault
        if self.name.startswith("watching"):
            self.proxy.cut()  # so that they are asked for again

    @property
    def place(self):
        return f"stop-{self.name}"

    def tried(self, method):
        """Whether it has asked for something."""
        return any(one == method for one, _ in self.proxy.asked)

    @property
    def ready(self):
        return self.advisor.probe("readyz")["ok"]

    def stop(self):
        os.kill(self.process.pid, signal.SIGTERM)  # as a kubelet does: the first process alone
        self.since = time.monotonic()

    def ended(self, within):
        """How long it took, and its exit code."""
        code = self.process.child.wait(max(within - time.monotonic() + self.since, 0.01))
        return time.monotonic() - self.since, code


def behind(cluster, server, name, user=None):
    """The operator's kubeconfig, with another server, and another way to say who it is."""
    made = json.loads(cluster.identity("advisor", service_account=ACCOUNT).read_text())
    made["clusters"][0]["cluster"] = {"server": server}
    if user is not None:
        made["users"][0]["user"] = user
    path = cluster.folder / f"stop-{name}.kubeconfig"
    path.write_text(json.dumps(made))
    return path


def held(cluster):
    """Who holds the Lease; an empty name where it was given back."""
    found = json.loads(cluster.kubectl("get", "lease", "mofa-advisor", "-n", "mofa-system", "-o", "json"))
    return found["spec"]["holderIdentity"]


def policy(place, profile):
    """The example's policy, which says what launch commands do not."""
    body = YAML(typ="safe").load((EXAMPLES / "policy.yaml").read_text("utf-8"))
    body["metadata"]["namespace"] = place
    del body["spec"]["selector"]
    body["spec"]["profile"] = profile
    return body


def gate(place):
    """A JobSet that is suspended until it has its arguments."""
    body = example(JOB_SET, place)
    told = {"mode": "Apply", "gate": "suspend", "framework-version": "0.19.2"}
    body["metadata"]["annotations"] |= {PREFIX + key: value for key, value in told.items()}
    body["spec"]["suspend"] = True
    return body


@pytest.fixture(scope="module")
def profile(cluster):
    install(cluster, JOB_SET)
    cluster.kubectl("delete", f"crd/{RAY_JOB.resource}", "--ignore-not-found")  # so that one is missing
    with pool(cluster) as name:
        yield name


@pytest.fixture
def silent():
    """A server that takes connections and never says a word."""
    with socket.create_server((HOST, 0)) as listening:
        listening.listen(64)
        yield f"http://{HOST}:{listening.getsockname()[1]}"


@pytest.mark.parametrize(
    "names", [pytest.param(SAMPLE, id="sample"), pytest.param(ALL, marks=pytest.mark.soak, id="all")]
)
def test_sigterm_ends_it_in_every_state(cluster, processes, profile, silent, names):
    with contextlib.ExitStack() as stack:
        away = stack.enter_context(contextlib.ExitStack())

        def states(*asked, flags=(), until=stack, **how):
            """Those of these that are among the names."""
            return [
                State(cluster, processes, until.enter_context(Proxy(cluster)), name, *flags, **how)
                for name in asked
                if name in names
            ]

        at_start = [
            *states("plugin-at-start", user={"exec": PLUGIN}),
            *(one for name, fault in AT_START.items() for one in states(name, fault=fault(), flags=FENCE)),
        ]
        rivals = states("elected", "a-rival", flags=["--lease-enabled"])  # or the other way round
        searching, gated, silenced = states("searching"), states("gated"), states("silenced")
        (writing,) = states("writing")
        cut = states("cut", until=away)
        looking = states("looking", flags=[f"--prometheus-url={silent}"])
        faulty = states(*AT_WORK)
        at_work = [*rivals, *searching, *gated, *silenced, writing, *cut, *looking, *faulty]
        every = [*at_start, *at_work]
        assert {one.name for one in every} == set(names)
        cluster.apply(
            *({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": one.place}} for one in at_work)
        )
        for one in every:
            one.start(processes)
        try:
            for one in at_work:
                until(lambda one=one: one.ready, what=f"{one.name} is ready")
            assert held(cluster)
            for one in (*searching, *gated):  # a search that takes long
                for number in one.advisor.workers:
                    os.kill(number, signal.SIGSTOP)
            for one in silenced:
                one.proxy.fault = Hanging()
            writing.proxy.fault = Hanging(lambda asked: asked.is_write)
            for one in faulty:
                one.fail(AT_WORK[one.name]())
            away.close()
            asked = {f"{PREFIX}mode": "Annotate"}
            cluster.apply(
                *(made for one in gated for made in (policy(one.place, profile), gate(one.place))),
                *(small_job(one.place, "small", profile) for one in (*searching, *silenced, *cut, *faulty)),
                *(job(JOB_SET, writing.place, f"burst-{number}", annotations=asked) for number in range(40)),
            )
            at_it = [*silenced, writing, *(one for one in faulty if not one.name.startswith("watching"))]
            until(lambda: all(one.tried("PATCH") for one in at_it), what="writes have begun")
            time.sleep(1.0)  # the others have their objects too
            for one in every:
                one.stop()
            ends = {one.name: one.ended(2 * LONGEST) for one in every}
            until(lambda: not any(one.advisor.workers for one in every), 2.0, "no process is left")
        finally:
            for one in every:
                processes.stop(one.advisor.name, grace=1.0)
            left = json.loads(cluster.kubectl("get", "jobsets", "-A", "-o", "json"))["items"]
            for one in at_work:
                cluster.empty(one.place)
    print({name: f"{seconds:.1f} s, {code}" for name, (seconds, code) in ends.items()})  # noqa: T201
    assert {one.name: one.advisor.log.splitlines()[-1:] for one in every if ends[one.name][1]} == {}
    assert {name: seconds for name, (seconds, _) in ends.items() if seconds > LONGEST} == {}
    assert held(cluster) == ""
    assert [one.name for one in every if "by force" in one.advisor.log] == []
    waits = [
        one["spec"]["suspend"]
        for one in left
        for state in gated
        if one["metadata"]["namespace"] == state.place
    ]
    assert waits == [True]
    assert {frozenset(ours(one)) for one in left if one["metadata"]["namespace"] == writing.place} == {
        frozenset({"mode"})
    }
