"""Dashboards: made from their code, each series known, each expression read by the real promtool,
the usual lint rules kept.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from each import each
from mofa_local import binaries
from promql_names import series
from ruamel.yaml import YAML

from mofa_operator.metrics.declared import TABLE, Type

ROOT = Path(__file__).resolve().parent.parent.parent
FOLDER = ROOT / "deploy" / "grafana"
BOARDS = {
    path.stem: json.loads(path.read_text(encoding="utf-8"))
    for path in sorted(FOLDER.glob("*.json"))
}
PANELS = [
    pytest.param(board, panel, id=f"{name}: {panel['title']}")
    for name, board in BOARDS.items()
    for panel in board["panels"]
    if panel["type"] != "row"
]
SCRAPED = {"fleet": (), "job": (), "assumptions": (), "advisor": ("job", "instance")}
"""Which boards look at scrape targets, and so choose by job and instance."""
each_board = pytest.mark.parametrize("board", BOARDS.values(), ids=BOARDS.keys())
each_panel = each(PANELS)


def recorded():
    groups = YAML(typ="safe").load(ROOT / "deploy" / "rules" / "mofa-recording.yaml")["groups"]
    return {rule["record"] for group in groups for rule in group["rules"]}


def listed():
    return set(YAML(typ="safe").load(ROOT / "deploy" / "rules" / "source" / "inputs.yaml"))


KNOWN = {name for declared in TABLE for name in declared.series} | recorded() | listed()
COUNTERS = {one.name for one in TABLE if one.type is Type.COUNTER} | {"process_cpu_seconds_total"}
COUNTERS |= {name for one in TABLE if one.type is Type.HISTOGRAM for name in one.series}


def variables(board):
    return {variable["name"]: variable for variable in board["templating"]["list"]}


def expressions(board):
    """All expressions of a board: of its panels, its annotations and its variables."""
    yield from (target["expr"] for panel in board["panels"] for target in panel.get("targets", ()))
    yield from (one["expr"] for one in board["annotations"].get("list", ()))
    for variable in variables(board).values():
        if variable["type"] == "query":
            yield re.fullmatch(r"label_values\((.+), \w+\)", variable["query"]["query"])[1]


def with_times(expression):
    """An expression with Grafana's own variables filled in."""
    for name, value in (("$__rate_interval", "5m"), ("$__interval", "1m"), ("$__range", "1d")):
        expression = expression.replace(name, value)
    return expression


def test_there_is_a_board_for_each_question():
    assert set(BOARDS) == {"fleet", "job", "assumptions", "advisor"}


def test_the_files_are_what_their_code_says():
    pytest.importorskip("grafana_foundation_sdk", reason="grafana-foundation-sdk is not installed")
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / "dashboards.py", "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@each_board
def test_every_series_is_one_that_somebody_exports(board):
    for expression in expressions(board):
        assert series(expression) <= KNOWN, expression


def test_every_declared_metric_is_on_a_board_or_in_a_rule():
    rules = (ROOT / "deploy" / "rules" / "prometheusrule.yaml").read_text(encoding="utf-8")
    shown = rules + "".join(
        expression for board in BOARDS.values() for expression in expressions(board)
    )
    unused = {
        one.name
        for one in TABLE
        if not any(re.search(rf"\b{name}\b", shown) for name in one.series)
    }
    assert unused == set()


def test_every_listed_input_is_read_somewhere():
    rules = (ROOT / "deploy" / "rules" / "prometheusrule.yaml").read_text(encoding="utf-8")
    shown = rules + "".join(
        expression for board in BOARDS.values() for expression in expressions(board)
    )
    assert {name for name in listed() if not re.search(rf"\b{name}\b", shown)} == set()


@each_board
def test_a_board_is_read_only_tagged_and_has_an_address_of_its_own(board):
    assert board["editable"] is False
    assert board["tags"] == ["mofa"]
    assert re.fullmatch(r"mofa-[a-z]+", board["uid"])
    assert board["title"].startswith("MoFa / ")
    assert board["description"].endswith(".")
    assert board["schemaVersion"] >= 39


def test_addresses_and_titles_are_unique():
    for field in ("uid", "title"):
        assert len({board[field] for board in BOARDS.values()}) == len(BOARDS)


@each_board
def test_a_board_leads_to_its_siblings_with_variables_and_time(board):
    (link,) = board["links"]
    assert link["type"] == "dashboards"
    assert link["tags"] == ["mofa"]
    assert link["includeVars"]
    assert link["keepTime"]


@each_board
def test_the_data_source_is_chosen_first_and_is_a_prometheus(board):
    first = board["templating"]["list"][0]
    assert (first["name"], first["label"], first["type"], first["query"]) == (
        "datasource", "Data source", "datasource", "prometheus",
    )  # fmt: skip


@each_board
def test_a_variable_asks_the_chosen_data_source_and_follows_the_time(board):
    for variable in variables(board).values():
        if variable["type"] == "query":
            assert variable["datasource"]["uid"] == "${datasource}"
            assert variable["refresh"] == 2  # on a change of the time range
            assert variable["label"]


@each_board
def test_the_cluster_may_be_left_open(board):
    cluster = variables(board)["cluster"]
    assert cluster["includeAll"]
    assert cluster["allValue"] == ".*"


@pytest.mark.parametrize("name, wanted", SCRAPED.items())
def test_a_board_on_scrape_targets_chooses_them_by_job_and_instance(name, wanted):
    assert [each for each in ("job", "instance") if each in variables(BOARDS[name])] == list(wanted)


@each_board
def test_every_variable_is_used_and_every_used_variable_exists(board):
    text = json.dumps([board["panels"], board["annotations"], board["templating"]])
    used = set(re.findall(r"\$\{?([a-z_]+)", text)) - {
        "__rate_interval",
        "__interval",
        "__range",
        "__all",
        "__data",
        "__value",
        "__url_time_range",
    }
    assert used == set(variables(board))


@each_panel
def test_a_panel_has_a_title_a_description_and_a_unit(board, panel):
    assert panel["title"]
    assert panel["description"].endswith(".")
    assert panel["fieldConfig"]["defaults"]["unit"]
    assert panel["datasource"]["uid"] == "${datasource}"


@each_panel
def test_a_panel_asks_the_chosen_data_source_and_each_question_once(board, panel):
    references = [target["refId"] for target in panel["targets"]]
    assert references
    assert len(set(references)) == len(references)
    assert all(target["datasource"]["uid"] == "${datasource}" for target in panel["targets"])


@each_panel
def test_a_panel_picks_its_cluster_and_what_the_board_is_about(board, panel):
    for target in panel["targets"]:
        for matchers in re.findall(r"[\w:]+\{([^}]*)\}", target["expr"]):
            assert 'cluster=~"$cluster"' in matchers
            for label in set(SCRAPED[board["uid"].removeprefix("mofa-")]):
                assert f'{label}=~"${label}"' in matchers


@each_panel
def test_a_bare_series_never_stands_without_matchers(board, panel):
    for target in panel["targets"]:
        for name in series(target["expr"]):
            assert re.search(rf"{re.escape(name)}\{{", target["expr"]), target["expr"]


@each_panel
def test_a_rate_uses_the_rate_interval_and_a_counter_is_never_shown_raw(board, panel):
    for target in panel["targets"]:
        expression = target["expr"]
        for window in re.findall(r"\b(?:rate|increase|irate)\([^\[]*\[([^\]]*)\]", expression):
            assert window == "$__rate_interval"
        for name in series(expression) & COUNTERS:
            assert re.search(rf"\b(?:rate|increase)\({name}\b", expression), expression


@each_board
def test_panels_have_numbers_of_their_own_and_do_not_overlap(board):
    panels = board["panels"]
    assert [panel["id"] for panel in panels] == list(range(1, len(panels) + 1))
    cells = [
        (x, y)
        for panel in panels
        for box in [panel["gridPos"]]
        for x in range(box["x"], box["x"] + box["w"])
        for y in range(box["y"], box["y"] + box["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) < 24


@each_board
def test_links_to_other_boards_lead_to_boards(board):
    addresses = {one["uid"] for one in BOARDS.values()}
    assert set(re.findall(r"/d/([a-z-]+)", json.dumps(board))) <= addresses


@pytest.mark.slow
def test_promtool_reads_every_expression(tmp_path):
    rules = [
        {"record": f"checked:expression:{number}", "expr": with_times(expression)}
        for number, expression in enumerate(
            one for board in BOARDS.values() for one in expressions(board)
        )
    ]
    path = tmp_path / "expressions.yaml"
    path.write_text(
        json.dumps({"groups": [{"name": "dashboards", "rules": rules}]}), encoding="utf-8"
    )
    done = subprocess.run(
        [binaries.path("promtool"), "check", "rules", path],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(rules)} rules found" in done.stdout
