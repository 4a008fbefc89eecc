"""The hand-written pages are true: what they name exists, and every symptom leads to its cure."""

import json
import re
import tomllib
from importlib.metadata import entry_points

import pytest
from documents import PAGES, ROOT, commands
from ruamel.yaml import YAML

pytest.importorskip("aiohttp", reason="the pages are the operator's, which needs its extra")

from mofa_model import verbs
from mofa_model.launch import TRAINERS
from mofa_operator import kubectl, words
from mofa_operator.keys import OURS
from mofa_operator.verbs.operator import flags

DOCS = ROOT / "docs"


def read(name):
    return (DOCS / name).read_text(encoding="utf-8")


def ids(path):
    return path.name


def test_each_reader_has_a_page_with_commands():
    pages = set(DOCS.glob("for-*.md"))
    assert {page.stem for page in pages if commands(page)} == {
        "for-capacity",
        "for-engineers",
        "for-platform-teams",
        "for-sres",
    }


def test_the_page_of_kubectl_mofa_has_its_verbs():
    page = read("kubectl.md")
    ours = {
        point.name
        for point in entry_points(group=verbs.GROUP)
        if point.name in {"top", "why", "pools", "doctor"}
    }
    told = set(re.findall(r"^\| `(\w+)", page, re.MULTILINE))
    assert told == ours | set(kubectl.OWN)


def test_the_values_files_that_pages_name_are_there():
    there = {path.stem for path in (ROOT / "charts" / "mofa-advisor" / "values").glob("*.yaml")}
    table = re.findall(r"`([\w-]+)\.yaml`", read("for-platform-teams.md"))
    assert set(table) == there
    assert all(f"`{name}`" in read("install.md") for name in there)


def test_figures_of_the_questions_are_those_of_the_product():
    page = read("faq.md")
    values = (ROOT / "charts" / "mofa-advisor" / "values.yaml").read_text("utf-8")
    for figure in ("100m", "256Mi"):
        assert figure in page
        assert figure in values
    asked = json.loads((ROOT / "tests/data/trainer_options.json").read_text("utf-8"))
    assert asked.keys() <= {*TRAINERS}
    named = (
        re.search(r"\*\*Which trainers\?\*\* (.*) have flags", page)[1].lower().replace("-lm", "")
    )
    assert {one.strip(" ,") for one in re.split(r",|\band\b", named)} - {""} == set(asked)


def test_what_the_pages_have_people_install_is_there():
    """They printed `pip install mofa-advisor`, which is on no index, and a chart without an image,
    which no registry has.
    """
    every = {
        path: path.read_text("utf-8")
        for folder in ("docs", "charts", "examples")
        for path in (ROOT / folder).rglob("*")
        if path.suffix in {".md", ".txt", ".yaml"}
    }
    every[ROOT / "README.md"] = (ROOT / "README.md").read_text("utf-8")
    version = YAML(typ="safe").load(ROOT / "charts" / "mofa-advisor" / "Chart.yaml")["appVersion"]
    wrong = [
        (path.name, line)
        for path, text in every.items()
        for line in re.sub(r"\\\n *", "", text).splitlines()
        if re.search(r"pip install '?mofa-advisor", line)
        or ("helm install mofa-advisor " in line and "image.repository=" not in line)
        or ("docker build " in line and f":{version} ." not in line)
    ]
    assert wrong == []
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"][
        "optional-dependencies"
    ]
    told = (
        one for text in every.values() for one in re.findall(r"pip install '\.\[([a-z,]+)\]'", text)
    )
    named = {name for one in told for name in one.split(",")}
    assert {"operator", "hub"} <= named <= set(extras)


def test_the_tutorial_goes_from_the_desk_to_an_alert():
    page = read("tutorial.md")
    typed = commands(DOCS / "tutorial.md")
    assert {line.split()[1] for line in typed if line.startswith("mofa ")} >= {
        "annotate",
        "advise",
        "explain",
        "ettr",
    }
    for said in (
        "make up",
        "kubectl apply -f examples/llama3-405b.yaml",
        "kubectl get cprof",
        "MofaJobStuck",
        "make down",
    ):
        assert said in page


def test_the_index_leads_to_every_page():
    index = read("README.md")
    pages = {path.name for path in DOCS.glob("*.md")} - {"README.md"}
    assert {name for name in pages if f"]({name})" not in index} == set()
    assert all(f"](reference/{path.name})" in index for path in (DOCS / "reference").glob("*.md"))


def test_every_reason_that_asks_for_something_is_reached_by_its_symptom():
    page = read("troubleshooting.md")
    cures = tomllib.loads(read("reference/source.toml"))["reasons"]
    asks = [reason for reason, cure in cures.items() if not cure.startswith("Nothing")]
    assert len(asks) > 12
    assert [reason for reason in asks if f"`{reason}`" not in page] == []


def test_every_alert_is_reached_from_a_symptom():
    page = read("troubleshooting.md")
    runbooks = [path.stem for path in (DOCS / "runbooks").glob("Mofa*.md")]
    assert [name for name in runbooks if f"(runbooks/{name}.md)" not in page] == []


@pytest.mark.parametrize("path", PAGES, ids=ids)
def test_a_file_of_the_repository_that_a_page_names_exists(path):
    named = re.findall(
        r"`((?:tests|operator/mofa_operator|mofa_model|deploy|charts|tools|examples|crds)/[\w./-]*)`",
        path.read_text(encoding="utf-8"),
    )
    assert [name for name in named if not (ROOT / name).exists()] == []


@pytest.mark.parametrize(
    "name", ["operator.md", "security.md", "troubleshooting.md", "upgrade.md", "metrics.md"]
)
def test_a_flag_of_the_operator_that_a_page_names_exists(name):
    known = {f"--{flag.name}" for flag in flags()} | {"--print-settings", "--kubeconfig"}
    commands = {"--profile", "--from-runs", "--from-cluster"}  # of other verbs
    named = set(re.findall(r"`(--[a-z-]+)", read(name)))
    assert named <= known | commands


def test_nothing_that_is_shipped_leads_to_a_host_under_our_groups_name():
    """`mofa.dev` names our API group; nobody here owns the domain."""
    folders = ("charts", "crds", "deploy", "docs", "examples", "mofa_model", "operator", "tools")
    told = [
        path
        for folder in folders
        for path in (ROOT / folder).rglob("*")
        if path.suffix in {".json", ".md", ".py", ".toml", ".yaml"}
    ]
    named = re.compile(r"https?://[^/\s\"']*\bmofa\.dev\b")
    assert len(told) > 300
    assert [str(path) for path in told if named.search(path.read_text(encoding="utf-8"))] == []


def test_a_condition_that_the_concepts_name_exists():
    known = {
        one.value
        for kind in (words.Aspect, words.Reason, words.Health, words.Happened)
        for one in kind
    }
    known |= {"Disabled", "Annotate", "Apply", "NoRecommendation", *(kind.kind for kind in OURS)}
    for name in ("concepts.md", "operator.md", "troubleshooting.md"):
        said = set(re.findall(r"`([A-Z][a-z]+(?:[A-Z][a-z]+)*)`", read(name)))
        assert said <= known, said - known
