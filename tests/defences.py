"""Each defence with the threat that it meets, how it is taken out, and the test that then fails.

    MOFA_DEFENCE="answers are bounded" pytest -p defences TEST     the test, without that defence

`test_defences.py` does this for all; where a threat stands in docs/security.md, its test is the one
that is named there.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from typing import Any, NamedTuple

from mofa_operator.observe.prometheus.client import FailedQuery, QueryResult


class Defence(NamedTuple):
    """One defence."""

    threat: str
    """Words of its row in docs/security.md."""
    place: str
    """Module and name of what defends."""
    instead: Callable[[Any], Any]
    """What stands there when it is taken out, made from what stood."""
    test: str
    """What fails then."""


def _value(value):
    return lambda _: value


def _refuse_when_full(_):
    """As ports were kept before: who comes when all places are taken is refused, and nobody
    makes room.
    """

    def add(self, connection):
        if len(self._open) >= self._most:
            connection.cut()
        else:
            self._open[connection] = None

    return add


def _twice(parsed):
    """An answer with the same series twice is one like any other."""

    def lenient(raw, query, most):
        try:
            return parsed(raw, query, most)
        except FailedQuery as error:
            if "the same series twice" in str(error):
                return QueryResult(samples=())
            raise

    return lenient


def _as_it_comes(_):
    return lambda self, body, raw, before: body


async def _now(work, *given):
    return work(*given)


HTTP = "tests/mofa_operator/control/test_http_server.py"
BYTES = "tests/hostile/test_bytes.py"
EVENTS = "tests/mofa_operator/act/test_events.py"
ANSWERS = "tests/mofa_operator/observe/test_prometheus.py"
CONNECTIONS = "mofa_operator.control.connections"
CLIENT = "mofa_operator.observe.prometheus.client"
TAUGHT = "tests/hostile/test_taught.py"
DEFENCES: dict[str, Defence] = {
    "who holds most makes room": Defence("slow connections by the thousand", f"{CONNECTIONS}:ConnectionLimit.add", _refuse_when_full, f"{HTTP}::test_300_sockets_that_ask_every_two_seconds_fail_no_probe_and_no_scrape[1]"),
    "a head has five seconds": Defence("slow connections by the thousand", f"{CONNECTIONS}:_Connection.connection_made", lambda made: lambda self, transport: (made(self, transport), self._silent.cancel()), f"{HTTP}::test_slow_heads_are_cut_and_honest_ones_are_heard"),
    "a connection has a minute": Defence("slow connections by the thousand", f"{CONNECTIONS}:_Connection.connection_made", lambda made: lambda self, transport: (made(self, transport), self._longest.cancel()), f"{HTTP}::test_no_connection_lasts_for_ever"),
    "answers are sent by pieces": Defence("does not read them", f"{CONNECTIONS}:_PIECE", _value(2**40), f"{HTTP}::test_60_clients_that_do_not_read_cost_64_MiB_and_not_an_answer_each"),
    "answers that are sent have a budget": Defence("does not read them", f"{CONNECTIONS}:SENDING", _value(2**40), f"{HTTP}::test_60_clients_that_do_not_read_cost_64_MiB_and_not_an_answer_each"),
    "an object has a budget": Defence("jobs of megabytes", "mofa_operator.observe.cluster.bodies:BodyBudget.within", _as_it_comes, f"{BYTES}::test_a_job_that_is_too_large_is_told_so_once_and_gets_its_advice_once_it_is_small"),
    "a namespace has a budget": Defence("jobs of megabytes", "mofa_operator.observe.cluster.bodies:BodyBudget._fits", _value(lambda *_: True), f"{BYTES}::test_a_namespace_of_many_jobs_keeps_its_budget_and_the_rest_is_told"),
    "an event has an end": Defence("jobs of megabytes", "mofa_operator.api:LARGEST", _value(2**40), f"{BYTES}::test_an_event_without_end_is_no_memory_and_the_next_list_goes_on"),
    "namespaces have Events of their own": Defence("Events that a quota", "mofa_operator.act.events:_Posting.namespace", _value(property(lambda _: "all")), f"{EVENTS}::test_a_namespace_whose_events_are_refused_holds_no_other"),
    "a namespace has a share of Events": Defence("Events that a quota", "mofa_operator.act.events:_EACH", _value(10**9), f"{EVENTS}::test_a_namespace_has_a_share_of_the_room_for_events_that_wait"),
    "only targets of a namespace speak of it": Defence("by a target with `honorLabels`", "mofa_operator.observe.prometheus.promql:Pool.attested", _value(lambda self, query, span: query), "tests/hostile/test_attested.py::test_a_target_whose_labels_are_honoured_speaks_for_its_own_namespace_alone"),
    "sources that disagree are contested": Defence("by a target with `honorLabels`", "mofa_operator.observe.progress.telemetry:_DOUBTS", _value({}), "tests/hostile/test_attested.py::test_two_targets_that_disagree_contest_a_job_and_nothing_is_said_of_it"),
    "matchers of one's own are few": Defence("**amplify**", "mofa_operator.observe.progress.telemetry:MOST_OWN", _value(10**6), "tests/hostile/test_attested.py::test_many_matchers_cost_a_bounded_number_of_queries_and_the_others_are_told"),
    "values are quoted": Defence("quotes or PromQL in names, labels, matchers", "mofa_operator.observe.prometheus.promql:quoted", _value(lambda text: f'"{text}"'), "tests/mofa_operator/observe/test_promql.py"),
    "answers are bounded": Defence("a Prometheus that lies", f"{CLIENT}:Prometheus._read", _value(lambda self, response: response.read()), f"{ANSWERS}::test_an_answer_without_end_is_cut_off_at_the_limit"),
    "no series comes twice": Defence("a Prometheus that lies", f"{CLIENT}:parsed", _twice, f"{ANSWERS}::test_garbage_is_no_answer"),
    "one namespace, one vote": Defence("**teach**", "mofa_operator.evidence:JobEvidence.namespace", _value(property(lambda evidence: evidence.job)), f"{TAUGHT}::test_sixteen_jobs_of_one_namespace_have_one_vote"),
    "the fence is believed by its own refusal": Defence("took over the operator", "mofa_operator.control.fence:_POLICY", _value(""), "tests/mofa_operator/control/test_fence.py::test_only_the_policys_own_refusal_proves_it"),
    "no script may run": Defence("markup in names", "mofa_operator.page.server:HEADERS", _value({}), "tests/mofa_operator/page/test_pages.py::test_the_routes_answer_and_forbid_scripts"),
    "hands are shared": Defence("thousands of jobs", "mofa_operator.observe.cluster.relations:Policies.worker_share", _value(lambda *_: 1.0), "tests/hostile/test_budget.py::test_a_namespace_has_no_more_hands_than_its_policy_leaves_it"),
    "pages are written beside the loop": Defence("asks for the page", "mofa_operator.page.server:asyncio.to_thread", _value(_now), "tests/hostile/test_page.py"),
}  # fmt: skip
"""Defences by name."""


def take_out(name: str) -> None:
    """Take a defence out, in this process and for good."""
    defence = DEFENCES[name]
    module, _, path = defence.place.partition(":")
    *owners, last = path.split(".")
    owner: Any = importlib.import_module(module)
    for attribute in owners:
        owner = getattr(owner, attribute)
    setattr(owner, last, defence.instead(getattr(owner, last)))


if "MOFA_DEFENCE" in os.environ:
    take_out(os.environ["MOFA_DEFENCE"])
