"""What a release publishes is made here as the workflow makes it: packages, chart, bills of materials; and nothing leaves unsigned."""

import json
import re
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
RUNS = [one["run"] for one in STEPS if "run" in one]


@pytest.fixture(scope="module")
def dist(tmp_path_factory):
    (line,) = re.findall(
        r"^\.venv/bin/python (tools/dist\.py) dist$", "\n".join(RUNS), re.MULTILINE
    )
    folder = tmp_path_factory.mktemp("release") / "dist"
    done = subprocess.run(
        [sys.executable, line, folder], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == sorted(one.name for one in folder.iterdir())
    return folder


@pytest.mark.slow
@pytest.mark.soak
def test_the_steps_of_a_release_make_all_that_it_publishes(dist):
    version = re.search(
        r'^version = "(.+)"', (ROOT / "pyproject.toml").read_text("utf-8"), re.MULTILINE
    )[1]
    names = {one.name for one in dist.iterdir()}
    assert names == {
        f"mofa_advisor-{version}-py3-none-any.whl", f"mofa_advisor-{version}.tar.gz",
        f"mofa_advisor_lab-{version}-py3-none-any.whl", f"mofa_advisor_lab-{version}.tar.gz",
        f"mofa-advisor-{version}.tgz", "mofa-advisor-image.cdx.json", "mofa-advisor-package.cdx.json", "SHA256SUMS",
    }  # fmt: skip
    with tarfile.open(dist / f"mofa-advisor-{version}.tgz") as chart:
        held = set(chart.getnames())
    assert {
        "mofa-advisor/Chart.yaml",
        "mofa-advisor/values.schema.json",
        "mofa-advisor/files/rules.yaml",
    } <= held
    with tarfile.open(dist / f"mofa_advisor-{version}.tar.gz") as source:
        held = {name.partition("/")[2] for name in source.getnames()}
    assert {
        "mofa_model/units.py",
        "operator/mofa_operator/api.py",
        "pyproject.toml",
        "LICENSE",
    } <= held
    done = subprocess.run(
        ["sha256sum", "--check", "--strict", "SHA256SUMS"],
        cwd=dist,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert done.stdout.count(": OK") == len(names) - 1


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


def test_a_folder_that_is_not_empty_is_no_place_for_a_release(tmp_path):
    (tmp_path / "old.whl").touch()
    command = [sys.executable, "tools/dist.py", tmp_path]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert done.stderr.strip().endswith("is not empty; give another folder, or empty it")
    assert "Traceback" not in done.stderr


def test_whatever_a_release_publishes_is_signed_without_a_key_that_somebody_keeps():
    every = "\n".join(RUNS)
    assert (
        'for file in dist/*; do cosign sign-blob --yes --bundle "$file.sigstore.json" "$file"; done'
        in every
    )
    for published in (
        'cosign sign --yes "$IMAGE@$DIGEST"',
        "cosign sign --yes \"$CHARTS/mofa-advisor@$(sed -n 's/^Digest: //p' pushed)\"",
    ):
        assert published in every
    assert (
        "cosign attest --yes --type cyclonedx --predicate dist/mofa-advisor-image.cdx.json" in every
    )
    assert "--key" not in every
    assert WORKFLOW["jobs"]["publish"]["permissions"]["id-token"] == "write"
    order = [
        position
        for position, one in enumerate(STEPS)
        if "attest-build-provenance" in one.get("uses", "")
    ]
    assert len(order) == 2, "of the files, and of the image"
    signed = next(n for n, one in enumerate(STEPS) if "sign-blob" in one.get("run", ""))
    published = [
        n for n, one in enumerate(STEPS) if re.search(r"uv publish|helm push", one.get("run", ""))
    ]
    assert published and min(published) > signed  # noqa: PT018
    (push,) = (one["with"] for one in STEPS if "build-push-action" in one.get("uses", ""))
    assert push["sbom"] is True
    assert push["provenance"] == "mode=max"


def test_nothing_is_published_before_everything_was_tested():
    assert WORKFLOW["jobs"]["publish"]["needs"] == "test"
    assert "bash .ci/run" in [one.get("run") for one in WORKFLOW["jobs"]["test"]["steps"]]
    assert WORKFLOW["permissions"] == {"contents": "read"}
