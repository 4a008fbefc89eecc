"""What a release publishes is made here as the workflow makes it: packages, chart, bills of
materials; and nothing leaves unsigned.
"""

import json
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from ruamel.yaml import YAML

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))
import dist as tool

ROOT = Path(__file__).resolve().parent.parent
WORKFLOW = YAML(typ="safe").load(ROOT / ".github" / "workflows" / "release.yml")
STEPS = WORKFLOW["jobs"]["publish"]["steps"]
VERSION = re.search(
    r'^version = "(.+)"', (ROOT / "pyproject.toml").read_text("utf-8"), re.MULTILINE
)[1]


@pytest.fixture(scope="module")
def clone(tmp_path_factory):
    """A clean clone with what is changed here, committed."""
    tree = tmp_path_factory.mktemp("clone") / "tree"
    git("clone", "--quiet", ROOT, tree, folder=ROOT)
    for name in git(
        "ls-files", "--modified", "--others", "--exclude-standard", folder=ROOT
    ).split():
        if (ROOT / name).exists():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, tree / name)
    git("add", "--all", folder=tree)
    author = ("-c", "user.name=Test", "-c", "user.email=test@example.org")
    git(*author, "commit", "--quiet", "--allow-empty", "--message", "As it is here", folder=tree)
    return tree


def git(*words, folder):
    return subprocess.run(
        ["git", *map(str, words)], cwd=folder, capture_output=True, text=True, check=True
    ).stdout


def made(clone, folder, *words):
    """What `make release` makes, without an image."""
    command = [sys.executable, clone / "tools" / "dist.py", folder, "--version", VERSION]
    return subprocess.run(
        [*command, "--platforms", "", "--image", "registry.example/ml/mofa-advisor", *words],
        cwd=clone, capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.soak
def test_two_releases_of_one_commit_are_the_same_to_the_byte(clone, tmp_path):
    folders = [tmp_path / "one", tmp_path / "two"]
    for folder in folders:
        done = made(clone, folder)
        assert done.returncode == 0, done.stderr
        assert done.stdout.split() == sorted(one.name for one in folder.iterdir())
    names = {one.name for one in folders[0].iterdir()}
    assert names == {
        f"mofa_advisor-{VERSION}-py3-none-any.whl", f"mofa_advisor-{VERSION}.tar.gz",
        f"mofa_advisor_lab-{VERSION}-py3-none-any.whl", f"mofa_advisor_lab-{VERSION}.tar.gz",
        f"mofa-advisor-{VERSION}.tgz", f"kubectl-mofa-{VERSION}.tar.gz", "krew.yaml", "NOTES.md",
        "mofa-advisor-image.cdx.json", "mofa-advisor-package.cdx.json", "SHA256SUMS",
    }  # fmt: skip
    for name in names:
        assert (folders[0] / name).read_bytes() == (folders[1] / name).read_bytes(), name
    with tarfile.open(folders[0] / f"mofa-advisor-{VERSION}.tgz") as chart:
        values = chart.extractfile("mofa-advisor/values.yaml").read().decode("utf-8")
        assert {"mofa-advisor/Chart.yaml", "mofa-advisor/values.schema.json"} <= set(
            chart.getnames()
        )
    assert 'repository: "registry.example/ml/mofa-advisor"' in values
    with tarfile.open(folders[0] / f"mofa_advisor-{VERSION}.tar.gz") as source:
        held = {name.partition("/")[2] for name in source.getnames()}
    assert {"mofa_model/units.py", "operator/mofa_operator/api.py", "LICENSE"} <= held


@pytest.mark.parametrize(
    "words, message",
    [
        (("--version", "9.9.9"), "--version: '9.9.9' is not the version in pyproject.toml"),
        (("--image", "no registry"), "--image: 'no registry' is not right"),
    ],
)
def test_a_release_that_contradicts_the_tree_is_refused_in_one_line(
    clone, tmp_path, words, message
):
    done = made(clone, tmp_path / "dist", *words)
    assert done.returncode == 1
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_a_tree_with_changes_makes_no_release(clone, tmp_path):
    stray = clone / "stray.txt"
    stray.touch()
    try:
        done = made(clone, tmp_path / "dist")
    finally:
        stray.unlink()
    assert done.returncode == 1
    assert "stray.txt" in done.stderr
    assert done.stderr.endswith("commit them first\n")


@pytest.mark.slow
@pytest.mark.parametrize(
    "what, lock", [pytest.param("image", "operator", marks=pytest.mark.soak), ("package", "core")]
)
def test_a_bill_of_materials_names_every_locked_package_with_version_and_hashes(
    tmp_path, what, lock
):
    bill = json.loads(tool.bill(tmp_path, what, lock).read_text("utf-8"))
    assert (bill["bomFormat"], bill["metadata"]["component"]["name"]) == (
        "CycloneDX",
        "mofa-advisor",
    )
    assert bill["metadata"]["component"]["version"] in (ROOT / "pyproject.toml").read_text("utf-8")
    text = (ROOT / "requirements" / f"{lock}.txt").read_text("utf-8")
    locked = dict(re.findall(r"^([a-z0-9][a-z0-9._-]*)==([^ ;\\]+)", text, re.MULTILINE))
    assert {one["name"]: one["version"] for one in bill["components"]} == locked
    hashes = {
        each["content"]
        for one in bill["components"]
        for each in (
            h for reference in one["externalReferences"] for h in reference.get("hashes", [])
        )
    }
    assert hashes == set(re.findall(r"--hash=sha256:([0-9a-f]{64})", text))


def test_a_folder_that_is_not_empty_is_no_place_for_a_release(clone, tmp_path):
    (tmp_path / "old.whl").touch()
    done = made(clone, tmp_path)
    assert done.returncode == 1
    assert done.stderr.strip().endswith("is not empty; give another folder, or empty it")


def test_the_workflow_of_a_release_calls_the_targets_that_a_person_calls():
    publish = [one["run"] for one in STEPS if "make " in one.get("run", "")]
    targets = re.findall(r"make (release-check|release|publish)\b", "\n".join(publish))
    assert targets == ["release", "release-check", "publish"]
    assert WORKFLOW["jobs"]["publish"]["permissions"]["id-token"] == "write"
    assert "KEY=keyless" in "\n".join(publish), "nobody keeps a key"
    proved = next(
        n for n, one in enumerate(STEPS) if "attest-build-provenance" in one.get("uses", "")
    )
    sent = next(n for n, one in enumerate(STEPS) if "make publish" in one.get("run", ""))
    assert proved < sent


def test_nothing_is_published_before_everything_was_tested():
    assert WORKFLOW["jobs"]["publish"]["needs"] == "test"
    assert "bash .ci/run" in [one.get("run") for one in WORKFLOW["jobs"]["test"]["steps"]]
    assert WORKFLOW["permissions"] == {"contents": "read"}
