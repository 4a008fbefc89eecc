"""Names keep Prometheus' conventions, as the real promtool judges them; the documents list what
is declared.
"""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from mofa_local import binaries
from operator_objects import known_pool
from prometheus_client import CollectorRegistry

from mofa_model.units import Range
from mofa_operator.decision import JobFigures
from mofa_operator.keys import TRAINING_JOB, Key
from mofa_operator.metrics.declared import ADVISOR, JOBS, POOLS, TABLE, Type
from mofa_operator.metrics.exporter import Exporter
from mofa_operator.snapshot import Running

ROOT = Path(__file__).resolve().parent.parent.parent.parent
EXCEPTIONS = {
    f'{one.name} use base unit "seconds" instead of "{unit}"'
    for one in TABLE
    for end, unit in (("_node_days", "days"), ("_gpu_hours", "hours"))
    if one.name.endswith(end)
}
"""Reliability is counted in node-days everywhere, and what it costs in GPU-hours; docs/metrics.md
says so.
"""


@pytest.mark.parametrize("declared", TABLE, ids=lambda declared: declared.name)
def test_a_name_ends_as_its_type_and_unit_demand(declared):
    name = declared.name
    assert name.endswith("_total") == (declared.type is Type.COUNTER)
    assert name.endswith("_info") == (declared.type is Type.INFO)
    if declared.unit == "s":
        assert name.removesuffix("_total").endswith("_seconds")
    if declared.unit == "B":
        assert name.endswith("_bytes")
    assert declared.help.endswith(".")
    assert (declared.buckets != ()) == (declared.type is Type.HISTOGRAM)


def test_each_part_of_the_table_has_its_prefix():
    for part, prefix in ((JOBS, "mofa_job_"), (POOLS, "mofa_pool_"), (ADVISOR, "mofa_advisor_")):
        assert all(declared.name.startswith(prefix) for declared in part)


def test_the_page_lists_what_is_declared_recorded_and_read():
    command = [sys.executable, ROOT / "tools" / "metrics.py", "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_page_names_no_metric_that_is_not_declared():
    page = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    runbooks = "".join(
        path.read_text(encoding="utf-8") for path in (ROOT / "docs" / "runbooks").glob("*.md")
    )
    known = {name for declared in TABLE for name in (declared.name, *declared.series)}
    assert set(re.findall(r"\bmofa_(?:job|pool|advisor)_[a-z_]+\b", page + runbooks)) <= known


@pytest.mark.slow
def test_promtool_finds_nothing_to_say_but_that_node_days_and_gpu_hours_are_no_base_units():
    exporter = Exporter(CollectorRegistry())
    band = Range(lower=0.8, target=1.0, upper=1.2)
    seen = Running(
        source="mofa", tokens_per_second=1e6, step_seconds=3.5, step=7, ettr=0.9, checkpoint_interval=600.0,
        interruptions={("pod", "failure"): 1}, recoveries={"pod": (90.0,)}, lost={"failure": 90.0},
    )  # fmt: skip
    predicted = dict.fromkeys(
        ("tokens_per_second", "step_seconds", "ettr", "mfu", "memory_bytes"), band
    )
    job = JobFigures(
        key=Key(TRAINING_JOB, "r", 'j"'), profile="east", predicted=predicted, strategy={"tp": "8"},
        checkpoint_interval=600.0, objective_ettr=0.9, running=seen, residual=-0.05,
    )  # fmt: skip
    exporter.show(job)
    exporter.show(known_pool())
    exporter.success("history")
    exporter.observe_decision(0.1)
    exporter.observe_gate(1.0, "released")
    exporter.count_recommendation("TrainingJob", "Recommended", "Recommended")
    exporter.count_write("apply", "ok")
    exporter.count_history("prometheus", "ok")
    exporter.build("0.1.0", "1")
    exporter.lead(leads=True)
    exporter.queue(0, 0.0)
    exporter.watch(TRAINING_JOB, up=False)
    done = subprocess.run(
        [binaries.path("promtool"), "check", "metrics"],
        input=exporter.page()[0],
        capture_output=True,
        check=False,
    )
    assert set((done.stdout + done.stderr).decode().splitlines()) == EXCEPTIONS


def test_every_metric_of_a_job_or_a_pool_says_what_it_reads():
    assert [one.name for one in (*JOBS, *POOLS) if one.read is None] == []
