"""Every panel of every dashboard has data on the local stack, asked as Grafana asks: after `make
up`, one job, and what befalls it.
"""

import importlib.util
import json
import re
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from advisor import until
from mofa_local import nodes, stack
from mofa_local.cluster import Cluster
from mofa_local.gang import KINDS
from operator_objects import small_job

from mofa_operator.metrics.declared import TABLE, Type

pytestmark = [pytest.mark.cluster, pytest.mark.soak]

GRAFANA = Path(__file__).resolve().parents[2] / "deploy" / "grafana"
BOARDS = {path.stem: json.loads(path.read_text("utf-8")) for path in sorted(GRAFANA.glob("*.json"))}
PANELS = [
    pytest.param(board, panel, id=f"{name}: {panel['title']}")
    for name, board in BOARDS.items()
    for panel in board["panels"]
    if panel["type"] != "row"
]
TIMES = {"$__rate_interval": "5m", "$__interval": "5m", "$__range": "30d"}
SHOWN = {"m": 60, "h": 3600, "d": 86400}
SIZE = ("--nodes=48", "--days=30", "--speed=8", "--with=kube-state-metrics")
FLAGS = ("--prometheus-interval=5", "--quiet=10", "--settle=1", "--fence")
"""Of the operator: minutes of production fit into seconds."""
QUICK = {
    "interval": "15s", "slow_interval": "30s", "smoothing": "1m", "window": "1d", "resolution": "1m",
}  # fmt: skip
"""Of the rules: the same expressions, with shorter times. tests/rules holds them to the times of
deploy/rules.
"""
JOB = "default/small"
BACK = 20.0
"""Time of an injected recovery. [s]"""
PATIENCE = 900.0
"""Longest wait for a panel, on a machine whose speed is not ours to know. [s]"""


class Stack:
    """A local stack of our own, and questions to its Prometheus."""

    def __init__(self, folder):
        self.folder = folder
        state = json.loads((folder / "state.json").read_text("utf-8"))
        self.prometheus, self.page = state["PROMETHEUS_URL"], state["ADVISOR_URL"]
        self.cluster = Cluster(Path(state["KUBECONFIG"]), folder / "test")
        self.until = time.monotonic() + PATIENCE

    def asked(self, path, **form):
        body = urllib.parse.urlencode(form).encode()
        with urllib.request.urlopen(f"{self.prometheus}/api/v1/{path}", body, timeout=60) as answer:
            return json.load(answer)["data"]

    def labels(self, query, label):
        """Values of a label, as the variable of a board offers them."""
        return sorted({one["metric"][label] for one in self.asked("query", query=query)["result"]})

    def variables(self, board):
        """Every way to fill a board's variables: each with all of its values, or with one of them
        where it takes one.
        """
        ways = [{}]
        for one in board["templating"]["list"]:
            if one["type"] != "query":
                continue
            more = []
            for way in ways:
                query, label = re.fullmatch(
                    r"label_values\((.+), (\w+)\)", filled(one["query"]["query"], way)
                ).groups()
                every = [".*"] if one.get("includeAll") else self.labels(query, label)
                more += [way | {one["name"]: value} for value in every]
            ways = more
        return ways

    def series(self, board, panel):
        """How many series each question of a panel gives, for the variables that give most."""
        best = [0]
        for way in self.variables(board):
            found = [self._count(filled(one["expr"], way), one, board) for one in panel["targets"]]
            best = max(best, found, key=sum)
        return best

    def _count(self, expression, target, board):
        if target.get("instant") and not target.get("range"):
            return len(self.asked("query", query=expression)["result"])
        number, unit = re.fullmatch(r"now-(\d+)([mhd])", board["time"]["from"]).groups()
        now, span = time.time(), int(number) * SHOWN[unit]
        asked = {"query": expression, "start": now - span, "end": now, "step": max(60, span // 300)}
        return len(self.asked("query_range", **asked)["result"])


def filled(expression, way):
    """An expression with a board's and Grafana's variables in it."""
    for name, value in TIMES.items():
        expression = expression.replace(name, value)
    for name, value in way.items():
        expression = re.sub(
            rf"\$(?:\{{{name}(?::\w+)?\}}|{name}\b)", lambda _, value=value: value, expression
        )
    return expression


@pytest.fixture(scope="module")
def live(tmp_path_factory):
    """The stack, with a job that was interrupted in every way there is, and a node that failed and
    came back.
    """
    folder = tmp_path_factory.mktemp("panels") / "up"
    try:
        told = mofa_local("up", f"--folder={folder}", *SIZE, "--", *FLAGS)
        assert told.returncode == 0, told.stderr
        made = Stack(folder)
        hasten(made)
        live_through(made)
        yield made
    finally:
        mofa_local("down", f"--folder={folder}")


def mofa_local(*words):
    """As a person would."""
    command = [sys.executable, "-m", "mofa_local", *words]
    folder = stack.ROOT / "deploy" / "local"
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, timeout=900
    )


def hasten(made):
    """Our rules once more, with other parameters, in the place of those that the stack
    came with.
    """
    spec = importlib.util.spec_from_file_location("tool_rules", stack.ROOT / "tools" / "rules.py")
    rules = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(rules)
    quick = made.folder / "quick-rules.yaml"
    quick.write_text(rules.written(rules.groups(rules.parameters() | QUICK)), "utf-8")
    file = made.folder / "prometheus" / "prometheus.json"
    file.write_text(
        json.dumps(json.loads(file.read_text("utf-8")) | {"rule_files": [str(quick)]}), "utf-8"
    )
    urllib.request.urlopen(f"{made.prometheus}/-/reload", b"", timeout=60).close()


def live_through(made):
    made.cluster.apply(job())
    name = JOB.rpartition("/")[2]
    until(
        lambda: made.asked(
            "query", query=f'mofa_job_observed_tokens_per_second{{training_job="{name}"}}'
        )["result"],
        240,
    )
    node = inject(made, "node")
    time.sleep(2 * BACK)
    for kind in KINDS:
        if kind != "node":
            inject(made, kind)
            time.sleep(2 * BACK)
    until(
        lambda: made.asked("query", query=f'mofa:node_unplanned_up:bool{{node="{node}"}} == 0')[
            "result"
        ],
        600,
    )
    nodes.recover(made.cluster, node)
    foretell(made)


def foretell(made):
    """Write two months of forecasts into the ledger, of which only one band in ten held, so that
    the operator calls them too narrow.
    """
    band = {"p10": "0.90", "p50": "0.93", "p90": "0.96"}
    stops = {"p10": "1", "p50": "3", "p90": "6"}
    today = datetime.now(UTC).date()
    rows = [
        {
            "date": f"{today - timedelta(days=number)}",
            "ettr": band,
            "interruptions": stops,
            "cameEttr": "0.93" if number % 10 == 0 else "0.80",
            "cameInterruptions": "4",
        }
        for number in range(59, 6, -1)
    ]
    status = json.dumps({"status": {"forecasts": rows}})

    def is_told():
        made.cluster.kubectl(
            *("patch", "failureledger", "h100-east", "--subresource=status", "--type=merge", "-p"),
            status,
        )
        name = "mofa_pool_forecast_held_ratio"
        return made.asked("query", query=name)["result"]

    until(lambda: time.sleep(5.0) or is_told(), 300, "forecasts that are over are counted")


def inject(made, kind):
    """Interrupt the job; the node where one is lost."""
    done = mofa_local("inject", kind, JOB, f"--seconds={BACK:g}", f"--folder={made.folder}")
    assert done.returncode == 0, done.stderr
    found = re.search(r"node (\S+) is lost", done.stdout)
    return found and found[1]


def job():
    """A TrainingJob with next to nothing to search, that runs what it is advised and has
    an objective.
    """
    return small_job(
        *JOB.split("/"),
        "h100-east",
        cluster={"profile": "h100-east", "nodes": 8},
        checkpoint={"mode": "Async", "maxIntervalSeconds": 60},
        slo={"ettr": "0.90"},
    )


@pytest.mark.parametrize("board, panel", PANELS)
def test_a_panel_has_data(live, board, panel):
    left = max(1.0, live.until - time.monotonic())
    until(
        lambda: any(live.series(board, panel)),
        left,
        what=f"{panel['title']}: {[one['expr'] for one in panel['targets']]}",
    )


ELSEWHERE = {
    "mofa_advisor_admission_checks_total": "cluster/test_real_controllers.py",
    "mofa_advisor_gate_wait_seconds": "cluster/test_apply.py",
    "mofa_advisor_queue_depth": "cluster/test_watches.py",
    "mofa_advisor_queue_oldest_age_seconds": "cluster/test_watches.py",
    "mofa_advisor_jobs_without_series": "cluster/test_watches.py",
    "mofa_advisor_events_dropped_total": "mofa_operator/act/test_events.py",
    "mofa_advisor_series_dropped_total": "cluster/test_watches.py",
    "mofa_advisor_watch_resync_differences_total": "cluster/test_watches.py",
}
"""Metrics that stay at zero while all is well, and the tests in which they move."""


@pytest.mark.parametrize("name", ELSEWHERE)
def test_a_metric_that_rests_here_moves_elsewhere(name):
    assert name in {declared.name for declared in TABLE}
    assert name in (Path(__file__).resolve().parents[1] / ELSEWHERE[name]).read_text("utf-8")


@pytest.mark.parametrize(
    "declared",
    [one for one in TABLE if one.name not in ELSEWHERE],
    ids=lambda declared: declared.name,
)
def test_every_metric_that_is_declared_moves(live, declared):
    name = f"{declared.name}_count" if declared.type is Type.HISTOGRAM else declared.name
    found = live.asked("query", query=f"max(max_over_time({name}[1h])) != 0")["result"]
    assert found, f"{name} was never other than 0"


def test_the_page_draws_a_job_s_last_day(live):
    def lines():
        with urllib.request.urlopen(
            f"{live.page}/jobs/trainingjobs.mofa.dev/{JOB}", timeout=60
        ) as answer:
            found = answer.read().decode()
        return {
            name
            for name in ("predicted", "observed")
            if re.search(rf"from now [-0-9.]+, {name}: [\d,]+", found)
        }

    until(
        lambda: lines() == {"predicted", "observed"},
        330,
        what="a point of each line, of which there is one in five minutes",
    )


def test_an_assumption_that_does_not_hold_is_on_its_way_to_an_alert(live):
    # One afternoon's failures may be one burst, which contradicts no rate at once; a rate of
    # nothing it does.
    classes = [
        {"name": name, "failuresPerThousandNodeDays": rate, "recoverySeconds": 300}
        for name, rate in (("process", "0"), ("pod", "0"), ("job", "0"))
    ]
    patch = {"spec": {"failures": {"classes": classes}}}
    live.cluster.kubectl(
        "patch", "clusterprofile", "h100-east", "--type=merge", "-p", json.dumps(patch)
    )
    query = 'ALERTS{alertname="MofaFailureRateAboveAssumption", pool="h100-east"}'
    until(lambda: live.asked("query", query=query)["result"], 240, what="the alert is pending")
