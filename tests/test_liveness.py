"""Nothing is built and inert: every setting is read by the operator, and a test gives it another value than its own."""

import ast
import re
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import pytest

from mofa_operator.api import Api
from mofa_operator.control.run import Operator
from mofa_operator.decide import health, observation
from mofa_operator.settings import ApiSettings, LoopSettings, OperatorSettings, ServeSettings
from mofa_operator.snapshot import Alive
from mofa_operator.verbs import flags

ROOT = Path(__file__).resolve().parent.parent
PARSING = {"test_flags.py"}
"""A test of how settings are given, and not of what they do."""


@cache
def attributes():
    """Names of attributes that the operator reads, outside of the rooms that only hand settings on."""
    sources = [
        path for path in (ROOT / "operator").rglob("*.py") if path.name not in {"settings.py", "flags.py"}
    ]
    trees = [ast.parse(path.read_text("utf-8")) for path in sources]
    return {node.attr for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Attribute)}


@cache
def given():
    """Flags that tests give, and keyword arguments in files that make such settings."""
    found = set()
    for path in (ROOT / "tests").rglob("*.py"):
        if path.name not in PARSING:
            text = path.read_text("utf-8")
            found |= set(re.findall(r"--(?:no-)?([a-z][a-z-]+)", text))
            calls = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call))
            keywords = {one.arg for call in calls for one in call.keywords}
            rooms = set(re.findall(r"\b[A-Z][a-z]+Settings\b", text))
            found |= {f"{room}.{word}" for room in rooms for word in keywords}
    return found


@pytest.mark.parametrize("flag", flags.flags(), ids=lambda flag: flag.name)
def test_every_setting_is_read_and_a_test_changes_it(flag):
    room = f"{flag.group.capitalize() or 'Operator'}Settings"
    assert flag.field.name in attributes()
    assert {flag.name, f"{room}.{flag.field.name}"} & given()


LOOPS = LoopSettings(material=0.5, stuck_steps=100.0, workers=3)
"""Settings of the loop that differ from their defaults."""


def put_together(**settings):
    """The operator with these settings, none of its parts at work."""
    given = OperatorSettings(**settings)
    credentials = SimpleNamespace(access=None)
    apis = [Api(credentials, given.api) for _ in range(2)]
    return Operator(given, *apis, credentials, None, SimpleNamespace(heed=None)), apis[0]


def test_as_many_workers_as_settings_say_and_as_many_jobs_with_series():
    operator, _ = put_together(loop=LOOPS, serve=ServeSettings(most_jobs=2))
    assert len(operator.decider._workers) == 3
    assert operator._exporter._most_jobs == 2


def test_writes_keep_to_the_rate_and_the_burst_of_the_settings():
    _, api = put_together(api=ApiSettings(writes_per_second=2.0, burst=3))
    waits = [api.bucket.reserve() for _ in range(5)]
    assert waits == pytest.approx([0, 0, 0, 0.5, 1.0], abs=0.1)


def test_kinds_that_settings_name_are_watched_and_no_others():
    operator, _ = put_together(kinds=("RayJob",))
    assert {"RayJob"} == {kind.kind for kind in operator._resync._kinds} & {"JobSet", "PyTorchJob", "RayJob"}


def test_what_changes_by_less_than_is_material_is_not_written():
    stands = {"tokensPerSecond": "100", "time": "2026-01-01T00:00:00Z"}
    fresh = stands | {"tokensPerSecond": "140"}
    assert observation._wait(stands, fresh, 2e9, LoopSettings()) == 0.0
    assert observation._wait(stands, fresh, 2e9, LOOPS) is None


def test_a_job_is_stuck_after_as_many_steps_as_settings_say():
    alive = Alive(at=0.0, since=0.0, watched=True, step_at=10.0, step_seconds=60.0)
    seen, answer = SimpleNamespace(alive=alive, running=None), SimpleNamespace(figures={}, status={})
    assert health.due(seen, answer, LoopSettings()) == 10.0 + 5 * 60.0
    assert health.due(seen, answer, LOOPS) == 10.0 + 100 * 60.0
