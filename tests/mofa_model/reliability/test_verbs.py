"""`mofa ettr`, `simulate` and `rates` at the command line."""

import importlib
import json
import re
import shlex
import sys
from pathlib import Path

import pytest
from desk import GIVEN

from mofa_model.answers.questions import ProfileQuestion, RatesQuestion
from mofa_model.cli import main
from mofa_model.spec.recovery_classes import RecoveryClass

VERBS = ("ettr", "simulate", "rates")
POINT = ["--nodes", "32", "--step", "27.99s", "--rate", "0.01", "--mttr", "60s", "--save", "2s"]


def examples(verb):
    text = importlib.import_module(f"mofa_model.verbs.{verb}").EXAMPLES
    lines = re.sub(r" *\\\n *", " ", text).splitlines()
    return [line.strip() for line in lines if line.strip().startswith(f"mofa {verb} ")]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("failures.csv").write_text(
        "time,node,class,recovery_seconds,open\n"
        "2026-01-02T03:04:05,a,pod,300,\n2026-01-09T00:00:00,a,pod,200,\n"
        "2026-01-20T00:00:00,b,process,100,\n2026-01-30T00:00:00,a,job,1000,yes\n"
    )
    for name in (
        "past.json",
        "advice.json",
        "ledger.yaml",
        "nodes.txt",
        "sacct.json",
        "events.txt",
    ):
        Path(name).write_text(GIVEN[name])
    Path("nodes.csv").write_text("node,node_days,possible_node_days\na,30,31\nb,31,31\nc,31,31\n")
    return tmp_path


def run(capsys, *words):
    code = main([str(word) for word in words])
    return code, capsys.readouterr()


def answer(capsys, *words):
    code, printed = run(capsys, *words, "--json")
    assert code == 0, printed.err
    return json.loads(printed.out)


def test_help_tells_the_recovery_classes_and_their_shares_as_they_are():
    shares = ",".join(f"{one}={one.share:g}" for one in RecoveryClass if one.share)
    assert shares in RatesQuestion.options["shares"].text
    assert ProfileQuestion.options["classes"].text.startswith(
        "{}, {} or {}: ".format(*RecoveryClass)
    )


@pytest.mark.parametrize("line", [line for verb in VERBS for line in examples(verb)])
def test_every_example_of_help_runs(capsys, folder, line):
    words = shlex.split(line)[1:]
    if "--plot" in words:
        pytest.importorskip("matplotlib")
    if "--prometheus" in words:
        pytest.importorskip("aiohttp", reason="asking Prometheus needs the extra `operator`")
    if words[0] == "simulate":
        words += ["--runs", "20"]
    code, printed = run(capsys, *words)
    asks_slurm = "--slurm" in words and "nodes.txt" not in words  # none is set up here
    expected = 4 if "--prometheus" in line or asks_slurm else 0
    assert code == expected, printed.err
    assert bool(printed.out) == (code != 4)
    assert "nan" not in printed.out.lower().split()


@pytest.mark.parametrize("form", ["table", "wide", "json", "yaml", "csv", "markdown", "html"])
@pytest.mark.parametrize(
    "words",
    [
        ["ettr", *POINT, "--curve", "5"],
        ["simulate", *POINT, "--runs", "5", "--timeline", "5"],
        ["rates", "--count", "process=3,pod=6,job=1", "--node-days", "2000"],
        ["rates", "--events", "failures.csv", "--exposure", "nodes.csv"],
    ],
    ids=lambda words: "-".join(str(w) for w in words[:2]),
)
def test_every_form_of_output(capsys, folder, words, form):
    code, printed = run(capsys, *words, "-o", form)
    assert code == 0, printed.err
    assert printed.out.strip()


def test_the_papers_point(capsys):
    told = answer(capsys, "ettr", *POINT)
    assert told["interval"]["steps"] == 37
    assert told["paper"]["steps"] == 37
    assert told["ettr"]["target"] == pytest.approx(0.99593, abs=1e-5)
    assert told["ettr"]["lower"] < told["ettr"]["target"] < told["ettr"]["upper"]
    assert sum(told["budget"].values()) == pytest.approx(1)


def test_a_point_of_ones_own_and_the_papers_method(capsys):
    told = answer(capsys, "ettr", *POINT, "--interval", "370", "--method", "paper")
    assert told["model"] == "paper"
    assert told["interval"]["steps"] == 370
    assert told["ettr"]["target"] == told["paper"]["ettr"]
    tiers = [
        "--nodes",
        "2048",
        "--step",
        "10s",
        "--save",
        "1s,2s",
        "--copy",
        "0s,9s",
        "--method",
        "paper",
    ]
    assert answer(capsys, "ettr", *tiers)["model"] == "paper"


@pytest.mark.parametrize("name", ["curve.svg", "curve.png"])
def test_the_curve_is_drawn(capsys, folder, name):
    pytest.importorskip("matplotlib")
    assert run(capsys, "ettr", *POINT, "--plot", name)[0] == 0
    assert Path(name).stat().st_size > 5000


def test_without_matplotlib_the_extra_is_named(capsys, folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    code, printed = run(capsys, "ettr", *POINT, "--plot", "curve.svg")
    assert code == 2
    assert "pip install '.[plot]', in a clone" in printed.err
    assert not Path("curve.svg").exists()


def test_the_band_narrows_with_counts(capsys):
    job = ["--nodes", "2048", "--step", "10s", "--save", "20s"]
    wide = answer(capsys, "ettr", *job)["ettr"]
    narrow = answer(capsys, "ettr", *job, "--failures", "419", "--node-days", "83800")["ettr"]
    assert narrow["upper"] - narrow["lower"] < (wide["upper"] - wide["lower"]) / 5


def test_a_profile_without_the_size_of_a_checkpoint_is_refused_in_one_line(capsys):
    assert main(["ettr", "--profile", "h100-east", "--nodes", "256", "--step", "10s"]) == 2
    assert (
        "--profile: 'h100-east' cannot be right; give --checkpoint-size" in capsys.readouterr().err
    )


def test_a_profile_gives_rates_and_storage(capsys):
    words = ["ettr", "--profile", "h100-east", "--nodes", "256", "--step", "10s"]
    told = answer(capsys, *words, "--model", "llama3.1-405b")
    assert 0.9 < told["ettr"]["lower"] < told["ettr"]["upper"] < 1
    assert len(told["save_s"]["blocking"]) == len(told["interval"]["every"])
    assert answer(capsys, *words, "--save", "20s")["save_s"]["blocking"] == [20.0]
    code, printed = run(capsys, *words, "--rate", "0.01")
    assert code == 2
    assert "--rate" in printed.err


def test_nodes_and_spares_for_a_deadline(capsys):
    words = [
        "ettr",
        "--nodes",
        "2048",
        "--step",
        "10s",
        "--spares",
        "16",
        "--total-steps",
        "500000",
    ]
    told = answer(capsys, *words, "--deadline", "66d")
    assert told["finish_s"]["target"] > 57 * 86400
    assert 1900 < told["deadline"]["nodes_needed"] < 2100
    assert told["deadline"]["spares_needed"] >= 1


def test_simulated_runs_scatter_around_the_exact_model(capsys):
    told = answer(
        capsys, "simulate", *POINT, "--rate", "0.1", "--duration", "60d", "--runs", "200"
    )["ettr"]
    assert told["mean"] == pytest.approx(told["exact"], abs=5 * told["error"])
    assert told["p05"] < told["median"] < told["p95"]


def test_a_timeline_tells_what_ended_each_stretch(capsys):
    words = ["simulate", "--nodes", "2048", "--step", "10s", "--runs", "2", "--timeline", "9"]
    rows = answer(capsys, *words)["timeline"]
    assert len(rows) == 9
    assert [row["what"] for row in rows[:3]] == ["training", "recovering", "training"]
    assert rows[0]["ended_by"] in {"process", "pod", "job"}


def test_rates_of_llama_3(capsys):
    told = answer(
        capsys, "rates", "--failures", "419", "--node-days", "110592", "--assumed", "0.005"
    )
    assert told["rates"][0]["verdict"] == "LowerThanAssumed"
    assert told["contradicted"]


def test_rates_from_files_name_the_worst_node_and_the_coverage(capsys, folder):
    told = answer(capsys, "rates", "--events", "failures.csv", "--exposure", "nodes.csv")
    assert told["coverage"] == pytest.approx(92 / 93)
    assert told["dispersion"]["worst"][0][:2] == ["a", 3]
    assert [r["failures"] for r in told["rates"]] == [1, 2, 1, 4]
    assert set(told["recoveries"]) == {"process", "pod", "job"}


def test_check_exits_5_only_when_contradicted(capsys):
    words = ["rates", "--node-days", "2000", "--check", "--failures"]
    assert run(capsys, *words, "10")[0] == 0
    assert run(capsys, *words, "40")[0] == 5
    assert run(capsys, *words, "0")[0] == 5


def test_nothing_watched_is_insufficient_not_an_error(capsys):
    told = answer(capsys, "rates", "--failures", "0", "--node-days", "0")
    assert told["rates"][0]["verdict"] == "InsufficientData"
    assert told["rates"][0]["mean"] is None


@pytest.mark.parametrize(
    "words, field",
    [
        (["ettr", *POINT, "--class", "pod:0.7:60s"], "--class|--mttr"),
        (["ettr", "--nodes", "0", "--step", "1s"], "--nodes"),
        (["ettr", "--nodes", "8", "--step", "1"], "--step"),
        (["ettr", "--nodes", "8", "--step", "1s", "--class", "pod:0.7:60s"], "add to one"),
        (["ettr", "--nodes", "8", "--step", "1s", "--class", "pod:1.7:60s"], "between 0 and 1"),
        (["ettr", "--nodes", "8", "--step", "1s", "--law", "weibull"], "--law"),
        (["ettr", "--nodes", "8", "--step", "1s", "--rate", "-1"], "--rate"),
        (["ettr", "--nodes", "8", "--step", "1s", "--rate", "nan"], "--rate"),
        (["ettr", "--nodes", "8", "--step", "1s", "--failures", "3"], "--node-days"),
        (["ettr", "--nodes", "8", "--step", "1s", "--save", "1s,2s", "--copy", "1s"], "--copy"),
        (
            ["ettr", "--nodes", "8", "--step", "1s", "--save", "1s,2s", "--every", "1,2,3"],
            "--every",
        ),
        (
            ["ettr", "--nodes", "8", "--step", "1s", "--save", "1s,2s,3s", "--every", "1,2,3"],
            "divide",
        ),
        (["ettr", "--nodes", "8", "--step", "1s", "--storage", "r:2GB/s"], "--checkpoint-size"),
        (
            ["ettr", "--nodes", "8", "--step", "1s", "--storage", "r", "--checkpoint-size", "1TB"],
            "--storage",
        ),
        (["ettr", "--nodes", "8", "--step", "1s", "--level", "1"], "--level"),
        (["ettr", "--nodes", "8", "--step", "1s", "--deadline", "3d"], "--total-steps"),
        (["ettr", "--nodes", "8", "--step", "1s", "--plot", "x.gif"], "--plot"),
        (["ettr", "--nodes", "8", "--step", "1s", "--window", "0s"], "--window"),
        (["simulate", "--nodes", "8", "--step", "1s", "--runs", "0"], "--runs"),
        (["simulate", "--nodes", "8", "--step", "1s", "--duration", "-1 d"], "duration"),
        (["simulate", "--nodes", "1e7", "--step", "1s", "--rate", "1e4"], "duration"),
        (["rates"], "--failures and --node-days"),
        (["rates", "--failures", "3"], "--node-days"),
        (["rates", "--failures", "-3", "--node-days", "1"], "--failures"),
        (["rates", "--count", "pod=x", "--node-days", "1"], "--count"),
        (["rates", "--count", "pod=1.5", "--node-days", "1"], "--count"),
        (["rates", "--count", "pod=1", "--node-days", "1", "--shares", "pod=0.5"], "add to one"),
        (["rates", "--failures", "1", "--node-days", "5", "--possible-node-days", "1"], "possible"),
        (["rates", "--events", "none.csv", "--exposure", "nodes.csv"], "none.csv|nodes.csv"),
        (["rates", "--events", "failures.csv"], "--exposure"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(capsys, folder, words, field):
    code, printed = run(capsys, *words)
    assert code == 2, printed.out
    assert printed.err.count("\n") == 1
    assert any(part in printed.err for part in field.split("|")), printed.err


@pytest.mark.parametrize(
    "text, why",
    [
        ("node,class\na,\n", "class is empty"),
        ("node\na\n", "no column class"),
        ("", "no column"),
        ("node,class,time\na,pod,yesterday\n", "no time"),
        ("node,class,recovery_seconds\na,pod,-5\n", "zero or more"),
        ("node,class\nzz,pod\n", "no node-days"),
    ],
)
def test_a_bad_line_of_a_file_is_named(capsys, folder, text, why):
    Path("failures.csv").write_text(text)
    code, printed = run(capsys, "rates", "--events", "failures.csv", "--exposure", "nodes.csv")
    assert code == 2
    assert "failures.csv" in printed.err
    assert why in printed.err
