"""The product's wheel and the lab's: each holds what it should; the product works and passes its
own tests alone.
"""

import os
import re
import subprocess
import zipfile
from pathlib import Path

import pytest
from wheels import ROOT, built, environment, run

LOCK = ROOT / "requirements" / "test.txt"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    return built(ROOT, tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    return built(ROOT / "lab", tmp_path_factory.mktemp("lab"))


@pytest.fixture(scope="module")
def without_extra(wheel):
    """The Python of an environment with the core's lock, the test runner's, and the wheel."""
    return environment("without-extra", LOCK, wheel)


def test_the_wheel_holds_both_packages_with_their_data_and_nothing_else(wheel):
    held = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in held if ".dist-info" not in name} == {
        "mofa_model",
        "mofa_operator",
    }
    data = {
        f"mofa_model/{path.relative_to(ROOT / 'mofa_model')}"
        for path in (ROOT / "mofa_model").rglob("*.toml")
    }
    data |= {
        f"mofa_operator/runbooks/{path.name}" for path in (ROOT / "docs" / "runbooks").glob("*.md")
    }
    assert data <= set(held)
    assert not [name for name in held if "__pycache__" in name or "/tests/" in name]


def test_the_wheel_of_the_lab_holds_the_lab_with_its_data_and_asks_for_the_product(lab):
    archive = zipfile.ZipFile(lab)
    held = {name for name in archive.namelist() if ".dist-info" not in name}
    sources = (ROOT / "lab" / "mofa_lab").rglob("*")
    kept = [
        path
        for path in sources
        if path.suffix in {".py", ".toml", ".typed"} and "__pycache__" not in path.parts
    ]
    assert held == {f"mofa_lab/{path.relative_to(ROOT / 'lab' / 'mofa_lab')}" for path in kept}
    (metadata,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
    needs = [
        line
        for line in archive.read(metadata).decode().splitlines()
        if line.startswith("Requires-Dist:")
    ]
    assert [line for line in needs if "mofa-advisor[plot]==" in line]


def test_the_image_is_built_from_the_product_alone():
    told = (ROOT / "operator" / "Dockerfile").read_text(encoding="utf-8")
    sources = re.findall(r"^COPY (?!--from)(.*) \S+$", told, re.MULTILINE)
    copied = {source for line in sources for source in line.split()}
    assert {"mofa_model", "operator"} <= copied
    assert [source for source in copied if source.split("/")[0] == "lab"] == []
    assert "!lab" not in (ROOT / ".dockerignore").read_text(encoding="utf-8")


def test_without_the_lab_its_verbs_say_what_to_install(without_extra, tmp_path):
    mofa = without_extra.parent / "mofa"
    assert "verbs of the lab (pip install ./lab, in a clone):" in run(mofa, "--help", cwd=tmp_path)
    for verb in ("validate", "fit", "trace", "calibrate kernels"):
        done = subprocess.run(
            [mofa, *verb.split(), "x.json"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr == (
            f"mofa {verb}: is a verb of the lab, which is not installed: pip install ./lab, in a clone\n"
        )


def test_without_the_extra_completion_works_and_the_verbs_of_a_cluster_say_what_to_install(
    without_extra, tmp_path
):
    folder = without_extra.parent
    assert "mofa" in run(folder / "mofa", "completion", "bash", cwd=tmp_path)
    done = subprocess.run(
        [folder / "kubectl-mofa", "top"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert re.fullmatch(
        r"kubectl mofa top: needs \w+, which is not installed; pip install '\.\[operator\]', in a clone\n",
        done.stderr,
    )


@pytest.mark.soak
def test_a_fresh_environment_with_the_extra_has_the_plugin_and_its_completion(wheel, tmp_path):
    programs = environment("plugin", ROOT / "requirements" / "operator.txt", wheel).parent
    assert "doctor" in run(programs / "kubectl-mofa", "--help", cwd=tmp_path)
    assert run(programs / "kubectl_complete-mofa", "to", cwd=tmp_path) == "top\n:4\n"
    (tmp_path / "home").mkdir()
    done = subprocess.run(
        [programs / "kubectl-mofa", "top"], cwd=tmp_path, env={"HOME": str(tmp_path / "home")},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr.count("\n")) == (4, 1)
    assert "there is no kubeconfig" in done.stderr


def test_without_the_extra_the_command_runs_from_the_wheel(without_extra, tmp_path):
    where = run(without_extra, "-c", "import mofa_model; print(mofa_model.__file__)", cwd=tmp_path)
    assert Path(where.strip()).is_relative_to(ROOT / ".cache")
    assert run(without_extra.parent / "mofa", "--version", cwd=tmp_path).startswith("mofa ")


def test_without_the_extra_kubernetes_plots_and_the_lab_are_absent(without_extra):
    program = "from importlib.util import find_spec; print([n for n in ('kopf', 'kubernetes', 'aiohttp', 'matplotlib', 'huggingface_hub', 'mofa_lab') if find_spec(n)])"
    assert run(without_extra, "-c", program).strip() == "[]"


@pytest.mark.parametrize(
    "words, extra",
    [
        ("operator", "operator"),
        ("observe train.log --job tiny", "operator"),
        ("rates --prometheus http://127.0.0.1:1 --profile h100-east", "operator"),
        ("profile --from-cluster", "operator"),
        ("ettr --nodes 4 --step 10s --plot a.svg", "plot"),
        ("advise --model org/model --gpu h100 --gpus 8 --global-batch 8 --seq 4k", "hub"),
    ],
)
def test_without_the_extra_a_verb_that_needs_it_says_so_in_one_line(
    without_extra, tmp_path, words, extra
):
    mofa = without_extra.parent / "mofa"
    done = subprocess.run(
        [mofa, *words.split()], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr
    assert f"pip install '.[{extra}]', in a clone" in done.stderr


def passed(python, folder, files, *options):
    """What pytest says of tests of the model, run against the wheel and not the working tree."""
    variables = os.environ | {"PYTHONSAFEPATH": "1"}
    variables = {
        name: value for name, value in variables.items() if not name.startswith(("PYTEST_", "COV_"))
    }
    plain = [
        "-q",
        "-m",
        "not slow",
        "-p",
        "no:cacheprovider",
        "--basetemp",
        folder / "pytest",
        "--rootdir",
        ROOT,
    ]
    return run(python, "-m", "pytest", *plain, *options, *files, cwd=ROOT, env=variables)


def test_without_the_extra_every_module_of_the_model_is_imported(without_extra, tmp_path):
    program = (
        "import importlib, pkgutil, mofa_model;"
        "found = [one.name for one in pkgutil.walk_packages(mofa_model.__path__, 'mofa_model.')"
        " if not one.name.endswith(('__main__', 'plots'))];"
        "[importlib.import_module(name) for name in found];"
        "print(len(found))"
    )
    sources = [path for path in (ROOT / "mofa_model").rglob("*.py") if path.name != "__main__.py"]
    assert (
        int(run(without_extra, "-c", program, cwd=tmp_path)) == len(sources) - 2
    )  # the package itself, plots


@pytest.mark.soak
def test_without_the_extra_a_test_of_each_room_of_the_model_passes(without_extra, tmp_path):
    every = sorted((ROOT / "tests" / "mofa_model").rglob("test_*.py"), reverse=True)
    first = {file.parent: file for file in every}  # to read all of them would take most of the time
    said = passed(without_extra, tmp_path, first.values(), "--one-a-room")
    assert int(re.search(r"(\d+) passed", said)[1]) > 0.8 * len(first)


@pytest.mark.soak
def test_without_the_extra_the_tests_of_the_model_pass(without_extra, tmp_path):
    assert " passed" in passed(without_extra, tmp_path, [ROOT / "tests" / "mofa_model"])
