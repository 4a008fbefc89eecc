"""SIGTERM ends the operator within five seconds, with 0, whatever it does: nothing of it is left,
and nothing is half done.
"""

import asyncio
import contextlib
import json
import os
import signal
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from advisor import ACCOUNT, Advisor, ours, until
from faults.proxy import Fault, Proxy, behind, refusal
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
"""Of each thing that an operator can wait for, one: a server, a plugin, the Lease, a search, a
write, Prometheus.
"""
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
        return (
            refusal(self.status, self.reason, **wait)
            if self.meant(asked)
            else await proxy.through(asked)
        )


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
    "silenced": Hanging,
    "writing": lambda: Hanging(lambda asked: asked.is_write),
    "posting": lambda: Hanging(lambda asked: asked.what.endswith("/events")),
    "throttled": lambda: Answering(
        429, "TooManyRequests", wait=60, meant=lambda asked: asked.is_write
    ),
    "watching-in-silence": lambda: Hanging(lambda asked: asked.is_watch),
    "watching-nothing": lambda: Answering(403, "Forbidden", meant=lambda asked: asked.is_watch),
    "watching-what-is-gone": lambda: Answering(404, "NotFound", meant=lambda asked: asked.is_watch),
    "idle": Fault,
}
"""What it does once there is something to do."""
SOAK = {
    "at-start": ("plugin-at-start", *AT_START),
    "at-work": tuple(AT_WORK),
    "in-the-midst": ("elected", "a-rival", "searching", "gated", "cut", "looking"),
}
"""Every state, no more of them at a time than two cores end in time: what is held to five seconds
is one operator.
"""


class State:
    """An operator in a state in which it is told to stop."""

    def __init__(self, cluster, processes, proxy, name, *flags, fault=None, user=None):
        self.proxy = proxy
        self.name = name
        proxy.fault = fault or Fault()
        account = cluster.identity("advisor", service_account=ACCOUNT)
        kubeconfig = behind(account, proxy.url, user)
        self.advisor = Advisor(cluster, processes, f"stop-{name}", kubeconfig=kubeconfig)
        self.flags = flags
        self.process = None

    def start(self, processes):
        self.advisor.start(f"--namespace={self.place}", *FLAGS, *self.flags, wait=False)
        self.process = processes[self.advisor.name]

    def fail(self, fault):
        """From now on the server does something else, to watches as well."""
        self.proxy.fault = fault
        if self.watches_not:
            self.proxy.cut()  # so that they are asked for again

    @property
    def watches_not(self):
        """Whether it is told of nothing any more."""
        return self.name.startswith("watching")

    @property
    def begun(self):
        """Whether it has asked for something, be it for its plugin."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return bool(self.proxy.asked) or ("plugin" in self.name and bool(children.read_text()))

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


def held(cluster):
    """Who holds the Lease; an empty name where it was given back."""
    found = json.loads(
        cluster.kubectl("get", "lease", "mofa-advisor", "-n", "mofa-system", "-o", "json")
    )
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


def small(place, profile):
    """One TrainingJob."""
    return [small_job(place, "small", profile)]


def burst(place, _):
    """JobSets that ask for advice, more than are written at a time."""
    asked = {f"{PREFIX}mode": "Annotate"}
    return [job(JOB_SET, place, f"burst-{number}", annotations=asked) for number in range(40)]


def think(*states):
    """A search that takes long."""
    for number in [number for one in states for number in one.advisor.workers]:
        os.kill(number, signal.SIGSTOP)


def half_done(left, names):
    """Nothing is: the gated job waits, and of the burst nobody has a part of an answer."""
    found = {f"stop-{name}": [] for name in ("gated", "writing") if name in names}
    for one in (
        one for one in left if one["metadata"]["namespace"] in found
    ):  # others have JobSets as well
        found[one["metadata"]["namespace"]].append((one["spec"]["suspend"], frozenset(ours(one))))
    assert [waits for waits, _ in found.pop("stop-gated", ())] == [True] * ("gated" in names)
    assert {keys for each in found.values() for _, keys in each} <= {frozenset({"mode"})}
    assert all(map(len, found.values()))


@pytest.fixture(scope="module")
def profile(cluster):
    install(cluster, JOB_SET)
    cluster.kubectl(
        "delete", f"crd/{RAY_JOB.resource}", "--ignore-not-found"
    )  # so that one is missing
    with pool(cluster) as name:
        yield name


@pytest.fixture
def silent():
    """A server that takes connections and never says a word."""
    with socket.create_server((HOST, 0)) as listening:
        listening.listen(64)
        yield f"http://{HOST}:{listening.getsockname()[1]}"


@pytest.mark.parametrize(
    "names",
    [
        pytest.param(SAMPLE, id="sample"),
        *(pytest.param(names, marks=pytest.mark.soak, id=word) for word, names in SOAK.items()),
    ],
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
            *(
                one
                for name, fault in AT_START.items()
                for one in states(name, fault=fault(), flags=FENCE)
            ),
        ]
        rivals = states("elected", "a-rival", flags=["--lease-enabled"])  # or the other way round
        searching, gated = states("searching"), states("gated")
        cut = states("cut", until=away)
        looking = states("looking", flags=[f"--prometheus-url={silent}"])
        faulty = states(*AT_WORK)
        at_work = [*rivals, *searching, *gated, *cut, *looking, *faulty]
        every = [*at_start, *at_work]
        assert {one.name for one in every} == set(names)
        cluster.apply(
            *(
                {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": one.place}}
                for one in at_work
            )
        )
        for one in every:
            one.start(processes)
        try:
            for one in every:
                until(
                    lambda one=one: one.ready if one in at_work else one.begun,
                    what=f"{one.name} is there",
                )
            assert not rivals or held(cluster)
            think(*searching, *gated)
            for one in faulty:
                one.fail(AT_WORK[one.name]())
            away.close()
            for one in gated:
                cluster.apply(policy(one.place, profile), gate(one.place))
            for one in (*searching, *cut, *faulty):
                cluster.apply(*(burst if one.name == "writing" else small)(one.place, profile))
            for one in faulty:
                until(
                    lambda one=one: one.watches_not or one.tried("PATCH"), what=f"{one.name} writes"
                )
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
    assert not rivals or held(cluster) == ""
    assert [one.name for one in every if "by force" in one.advisor.log] == []
    half_done(left, names)
