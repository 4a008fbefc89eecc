"""Habits that nobody has to remember: actions are pinned, every Python that we promise is tested, a
change has its sentence.
"""

import importlib.util
import os
import re
from pathlib import Path

import pytest
from hypothesis import settings
from ruamel.yaml import YAML

ROOT = Path(__file__).resolve().parent.parent
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def tool():
    spec = importlib.util.spec_from_file_location("tool_changelog", ROOT / "tools" / "changelog.py")
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def test_a_clean_clone_draws_the_same_examples_as_every_other():
    assert settings().derandomize is (os.environ.get("HYPOTHESIS_PROFILE", "same") == "same")


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_every_action_is_pinned_by_commit_and_says_its_version(path):
    used = re.findall(r"uses: (.*)", path.read_text("utf-8"))
    assert [
        one for one in used if not re.fullmatch(r"[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", one)
    ] == []


def test_one_commit_of_an_action_is_one_version_everywhere():
    pins = {
        pin
        for path in WORKFLOWS
        for pin in re.findall(r"@([0-9a-f]{40}) # (\S+)", path.read_text("utf-8"))
    }
    assert len(pins) == len({commit for commit, _ in pins})


def test_all_that_is_tested_is_tested_on_every_python_from_the_oldest_to_the_newest():
    jobs = YAML(typ="safe").load(ROOT / ".github" / "workflows" / "ci.yml")["jobs"]
    assert jobs["test"]["strategy"]["matrix"]["python"] == ["3.11", "3.12", "3.13", "3.14"]
    assert jobs["test"]["steps"][-1]["run"] == "bash .ci/run"
    assert 'requires-python = ">=3.11"' in (ROOT / "pyproject.toml").read_text("utf-8")


@pytest.mark.parametrize(
    "changed, messages, wanting",
    [
        (["mofa_model/units.py", "docs/faq.md"], "Units are read faster", ["mofa_model/units.py"]),
        (["mofa_model/units.py", "changelog.d/units.md"], "", []),
        (["crds/trainingjob.yaml"], "Names\n\nChangelog: none\n", []),
        (["tests/test_docs.py", "Makefile"], "", []),
    ],
)
def test_what_users_meet_wants_a_sentence(changed, messages, wanting):
    assert tool().missing(changed, messages) == wanting


def test_a_bot_renews_every_program_but_the_stack_and_leaves_the_lock_to_make_lock():
    bot = YAML(typ="safe").load(ROOT / ".github" / "dependabot.yml")["updates"]
    updates = {one["package-ecosystem"]: one for one in bot}
    assert set(updates) == {"github-actions", "gomod"}
    modules = {f"/{path.parent.relative_to(ROOT)}" for path in ROOT.glob("deploy/local/*/go.mod")}
    assert set(updates["gomod"]["directories"]) == modules - {"/deploy/local/stack"}
    renewing = YAML(typ="safe").load(ROOT / ".github" / "workflows" / "renew.yml")
    steps = [step["run"] for step in renewing["jobs"]["lock"]["steps"] if "run" in step]
    assert "tools/lock.py --upgrade" in steps[0]
    assert steps[1].rstrip().endswith("gh workflow run ci.yml --ref renew-lock")


def test_the_citation_names_this_software_and_the_paper():
    cited = YAML(typ="safe").load(ROOT / "CITATION.cff")
    paper = cited["preferred-citation"]
    assert cited["license"] == "Apache-2.0"
    assert paper["url"].endswith("/2511.09837")
    assert len(paper["authors"]) == 17


def test_an_issue_s_form_asks_for_more_than_one_thing():
    for path in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"):
        form = YAML(typ="safe").load(path)
        if path.name != "config.yml":
            assert form["name"]
            assert form["description"]
            asked = [one for one in form["body"] if one["type"] != "markdown"]
            assert len({one["id"] for one in asked}) == len(asked) > 1


def test_commit_hooks_are_the_programs_of_make_check():
    (own,) = YAML(typ="safe").load(ROOT / ".pre-commit-config.yaml")["repos"]
    asked = (ROOT / "Makefile").read_text("utf-8")
    for hook in own["hooks"]:
        program = hook["entry"].split()[0].replace(".venv/bin", "$(BIN)")
        assert f"{program} " in asked
