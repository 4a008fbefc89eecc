"""Every manifest that is shipped is answered on the desk, without any other file: by `mofa
annotate` and by `mofa advise`.
"""

import io
import json
import sys
from contextlib import redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path

import pytest

from mofa_model import cli
from mofa_model.annotations import PREFIX
from mofa_model.kinds import KINDS, job_kind
from mofa_model.manifest.documents import Documents

ROOT = Path(__file__).parents[3]
FILES = sorted([*(ROOT / "examples").glob("*.yaml"), *(ROOT / "deploy" / "kind").glob("*.yaml")])
DOUBTED = {
    "deepseek-v3.yaml": "no measured run has recompute=",
    "pytorchjob.yaml": "no measured run has pp=",
}
"""Files whose first choice is a fifth faster than what surely fits and runs have, and says what
it risks.
"""
OURS = ("ClusterProfile", "AdvisorPolicy")

pytestmark = pytest.mark.usefixtures("asked_once")


def items_of(text):
    return Documents.parse(text, "x").items


def is_job(item):
    return item.kind == "TrainingJob" or job_kind(item.api_version, item.kind)


WITH_JOBS = [path for path in FILES if any(map(is_job, items_of(path.read_text("utf-8"))))]
WITHOUT = [path for path in FILES if path not in WITH_JOBS]


def run(capsys, *argv):
    code = cli.main(list(argv))
    said = capsys.readouterr()
    return code, said.out, said.err


@cache
def annotated(path):
    """Exit code, output and errors of `mofa annotate` on a file as it is shipped."""
    with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as err:
        code = cli.main(["annotate", str(path)])
    return code, out.getvalue(), err.getvalue()


def shown(path):
    return path.name


def test_there_are_jobs_of_every_kind():
    kinds = {
        item.kind
        for path in WITH_JOBS
        for item in items_of(path.read_text("utf-8"))
        if is_job(item)
    }
    assert kinds == {"TrainingJob", *(kind.kind for kind in KINDS)}


@pytest.mark.parametrize("path", WITH_JOBS, ids=shown)
def test_annotate_answers_every_job(path):
    code, out, err = annotated(path)
    jobs = [item for item in items_of(out) if is_job(item)]
    said = [item.annotations[PREFIX + "explanation"] for item in jobs]
    doubt = DOUBTED.get(path.name, "")
    status = "LowConfidence" if doubt else "Recommended"
    assert {item.annotations[PREFIX + "status"] for item in jobs} == {status}, err
    assert all(text.startswith(doubt) for text in said)
    assert (code, err) == (0, "")


@pytest.mark.parametrize("path", WITH_JOBS, ids=shown)
def test_advise_gives_each_job_the_strategy_that_annotate_writes(capsys, monkeypatch, path):
    text = path.read_text("utf-8")
    parts = [part for part in text.split("---\n") if items_of(part)]
    jobs = [part for part in parts if any(map(is_job, items_of(part)))]
    beside = [part for part in parts if part not in jobs]
    answered = [item for item in items_of(annotated(path)[1]) if is_job(item)]
    for part, item in zip(jobs, answered, strict=True):
        given = text if len(jobs) == 1 else "---\n".join([part, *beside])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given.encode())))
        code, out, err = run(capsys, "advise", "-", "--json")
        assert (code, err) == (0, "")
        assert json.loads(out)["strategy"] == item.annotations.get(PREFIX + "strategy")


@pytest.mark.parametrize("path", WITHOUT, ids=shown)
def test_what_is_no_job_passes_through_annotate_unchanged(path):
    code, out, err = annotated(path)
    assert (code, out) == (0, path.read_text("utf-8"))
    assert "nothing to annotate" in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("path", WITHOUT, ids=shown)
def test_advise_says_what_a_file_without_a_job_holds(capsys, path):
    code, out, err = run(capsys, "advise", str(path))
    assert (code, out, err.count("\n")) == (2, "", 1)
    kinds = {item.kind for item in items_of(path.read_text("utf-8"))}
    assert "holds no job but" in err
    for kind, verb in (("ClusterProfile", "--profile"), ("AdvisorPolicy", "mofa annotate")):
        assert (verb in err) == (kind in kinds)


def test_two_jobs_in_a_file_are_named(capsys, tmp_path):
    jobs = [
        (ROOT / "examples" / name).read_text("utf-8")
        for name in ("llama3-405b.yaml", "deepseek-v3.yaml")
    ]
    (tmp_path / "two.yaml").write_text("---\n".join(jobs))
    code, _, err = run(capsys, "advise", str(tmp_path / "two.yaml"))
    assert code == 2
    assert (
        "holds 2 jobs, TrainingJob llama3-405b, TrainingJob deepseek-v3; `mofa advise` answers for one"
        in err
    )


def test_a_profile_without_a_manifest_is_refused_and_not_passed_over(capsys):
    words = (
        "--model",
        "llama3-8b",
        "--gpu",
        "h200",
        "--nodes",
        "1",
        "--global-batch",
        "64",
        "--seq",
        "4096",
    )
    code, out, err = run(capsys, "advise", *words, "--profile", "h100-east")
    assert (code, out) == (2, "")
    assert "--profile: 'h100-east' cannot be right; it goes with a manifest" in err


def test_what_is_assumed_of_a_profile_stands_below_the_answer(capsys):
    _, out, _ = run(capsys, "advise", str(ROOT / "examples" / "pytorchjob.yaml"))
    assert "profile h100-east of the package is assumed" in " ".join(out.split())
