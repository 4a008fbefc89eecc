"""Every attack that we know of, at once, on one API server, one Prometheus and one operator that
may have 1 GiB; and a victim whose advice, status and figures stay as they were.

Whoever attacks may create and edit what he likes in his namespace, publish what he likes from his
pods, and reach the operator's port. What the API server refuses of it, it refuses; of the rest each
job says what is wrong with it, in one line.
"""

import contextlib
import json
import socket
import time
import urllib.error
import urllib.request

import foreign
import pytest
from advisor import ours, until
from hostile_site import EVIL, GIB, POOL, REASONS, ROOT, SECRET, TAKEN_NEVER, VICTIM, Site
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from mofa_local import LocalStackError
from mofa_local.client import Refused
from mofa_local.control_plane import ControlPlane
from mofa_local.processes import Processes
from operator_objects import small_job
from wicked import ROLES

from mofa_model.kinds import JOB_SET
from mofa_operator.keys import TRAINING_JOB
from mofa_operator.observe.jobs.run_record import Totals

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def attacked(site, tmp_path_factory):
    with Processes(tmp_path_factory.mktemp("attacked")) as processes:
        plane = ControlPlane(tmp_path_factory.mktemp("cluster"), processes)
        plane.start()
        plane.install(ROOT / "crds", ROOT / "deploy" / "manifests")
        foreign.install(plane, JOB_SET)
        made = Site(plane, processes, site)
        made.burst()
        names = [body["metadata"]["name"] for body, _ in REASONS.values()]
        until(lambda: all(made.ready(name) for name in names), 90.0, "an outcome for each")
        time.sleep(5.0)  # two more looks at what is published
        made.after = made.victims_answer()
        yield made
        made.advisor.stop()


def test_the_victim_is_told_what_it_was_told(attacked):
    assert attacked.after == attacked.before
    assert attacked.after[2]["tokensPerSecond"] == pytest.approx(attacked.tokens, rel=0.01)


def test_the_victim_s_run_is_remembered_as_its_own(attacked):
    run = attacked.after[-1]
    assert run is not None, "and there is something to compare"
    assert run[2:] == ((), Totals(), ())


GENERATED = settings(
    max_examples=4, phases=[Phase.generate], deadline=None, database=None, suppress_health_check=list(HealthCheck)
)  # fmt: skip


@pytest.mark.parametrize(
    "part", [0, *(pytest.param(n, marks=pytest.mark.soak) for n in range(1, 25))]
)
def test_whatever_is_generated_in_one_namespace_changes_nothing_in_the_other(attacked, part):
    """The same objects as the property over decisions has, put before the real API server; what it
    takes, the operator meets.
    """
    taken, before = [], attacked.victims_answer()

    @seed(part)
    @GENERATED
    @given(st.lists(ROLES, min_size=3, max_size=6))
    def put(objects):
        for kind, body in objects:
            name = f"g-{part}-{len(taken)}"
            metadata = body["metadata"] | {"name": name, "namespace": EVIL}
            for given_by_the_server in (
                "uid",
                "resourceVersion",
                "generation",
                "creationTimestamp",
            ):
                metadata.pop(given_by_the_server, None)
            metadata.pop("finalizers", None)
            with contextlib.suppress(Refused, LocalStackError, OSError, ValueError):
                attacked.cluster.apply(body | {"metadata": metadata})
                taken.append((kind, name))

    put()
    assert taken, "some of it is legal"
    jobs = [name for kind, name in taken if kind == TRAINING_JOB]
    until(lambda: all(attacked.ready(name) for name in jobs), 90.0, "an outcome for each")
    time.sleep(3.0)  # a look at what is published
    assert attacked.victims_answer() == before
    for kind, name in taken:
        attacked.cluster.kubectl("delete", kind.resource, name, "-n", EVIL, "--wait=false")


@pytest.mark.parametrize("what", REASONS)
def test_each_job_of_the_attacker_has_an_outcome_in_one_line(attacked, what):
    body, why = REASONS[what]
    told = attacked.ready(body["metadata"]["name"])
    assert why in told["message"]
    assert "\n" not in told["message"] and len(told["message"]) <= 1024  # noqa: PT018
    assert SECRET not in json.dumps(attacked.read(EVIL, body["metadata"]["name"])["status"])


@pytest.mark.parametrize("what", TAKEN_NEVER)
def test_the_api_server_refuses_for_us(attacked, what):
    assert what in attacked.refused


def test_forged_words_on_a_job_are_put_right(attacked):
    told = ours(attacked.read(EVIL, "forger"))
    assert told["strategy"] != "tp=1"
    assert not told["computed-at"].startswith("2999")
    api = attacked.cluster.admin.resources.get(api_version="mofa.dev/v1alpha1", kind="TrainingJob")
    attacked.cluster.kubectl(
        "patch",
        "tjob",
        "forger",
        "-n",
        EVIL,
        "--subresource=status",
        "--type=merge",
        "-p",
        '{"status":{"inputsHash":"forged"}}',
    )
    assert api is not None
    until(lambda: attacked.read(EVIL, "forger")["status"]["inputsHash"] != "forged", 60.0)
    assert attacked.victims_answer() == attacked.before


def test_who_names_the_victims_series_sees_his_own_or_none(attacked):
    for name in ("reader", "reader-2", "promql", "same"):
        seen = attacked.read(EVIL, name)["status"].get("observed", {})
        assert seen.get("tokensPerSecond") in {None, 7}, name


def test_lines_that_are_only_held_keep_nobody_waiting(attacked):
    port = int(attacked.advisor.url.rpartition(":")[2])
    with contextlib.ExitStack() as held:
        for _ in range(600):
            held.enter_context(socket.create_connection(("127.0.0.1", port), timeout=10))
        began = time.monotonic()
        assert "mofa_advisor_build_info" in attacked.advisor.metrics()
        assert time.monotonic() - began < 5.0
    for path in (
        "/?namespace=" + "%F0%9F%98%80" * 4000,
        f"/jobs/trainingjobs.mofa.dev/{EVIL}/..%2f..%2fetc",
        "/" + "a" * 60_000,
    ):
        with (
            contextlib.suppress(urllib.error.HTTPError, ConnectionError),
            urllib.request.urlopen(attacked.advisor.url + path, timeout=10) as answer,
        ):
            assert SECRET.encode() not in answer.read()
    assert attacked.victims_answer() == attacked.before


def test_the_page_runs_nobodys_markup(attacked):
    with urllib.request.urlopen(attacked.advisor.url + "/", timeout=10) as answer:
        assert b"<script" not in answer.read()
        assert "default-src 'none'" in answer.headers["Content-Security-Policy"]


def test_the_operator_lives_within_its_memory_and_did_not_start_anew(attacked):
    assert attacked.advisor.resident < GIB
    assert attacked.advisor.log.count("the operator has started:") == 1
    assert "our fault" not in attacked.advisor.log
    assert "Traceback" not in attacked.advisor.log


def test_a_deleted_job_that_a_finalizer_holds_holds_nobody(attacked):
    attacked.cluster.kubectl("delete", "tjob", "stays", "-n", EVIL, "--wait=false")
    attacked.cluster.apply(small_job(VICTIM, "next", POOL, batch=128))
    until(lambda: attacked.read(VICTIM, "next").get("status"), 60.0)
    attacked.cluster.kubectl(
        "patch",
        "tjob",
        "stays",
        "-n",
        EVIL,
        "--type=merge",
        "-p",
        '{"metadata":{"finalizers":null}}',
    )
