"""What a release is called is set once, and everything that is rendered follows."""

import importlib.util
import re
import shutil
import subprocess
import sys

import helm
import pytest
from helm import CHART, ROOT, documents, single

from mofa_model import VERSION

IMAGE, DIGEST, RUNBOOKS = (
    "registry.example:5000/ml/mofa-advisor",
    f"sha256:{'0a' * 32}",
    "https://docs.example/runbooks",
)
TOOL = ROOT / "tools" / "release.py"


def test_the_image_of_a_release_is_set_once(tmp_path):
    shutil.copytree(CHART, tmp_path / "chart")
    words = [
        TOOL,
        "--image",
        IMAGE,
        "--digest",
        DIGEST,
        "--runbooks",
        RUNBOOKS,
        "--chart",
        tmp_path / "chart",
    ]
    subprocess.run([sys.executable, *map(str, words)], check=True)
    rendered = helm.run(
        "template", "mofa-advisor", str(tmp_path / "chart"), f"--namespace={helm.HOME}", f"--kube-version={helm.VERSION}",
        *helm.MONITORED, "--set=prometheusRule.enabled=true",
    )  # fmt: skip
    found = documents(rendered)
    assert set(re.findall(r"image: (\S+)", rendered)) == {f"{IMAGE}@{DIGEST}"}
    rules = [
        rule
        for group in single(found, "PrometheusRule")["spec"]["groups"]
        for rule in group["rules"]
    ]
    links = {rule["alert"]: rule["annotations"]["runbook_url"] for rule in rules if "alert" in rule}
    assert links
    assert all(link.startswith(RUNBOOKS + "/") for link in links.values())
    pages = {path.stem for path in (ROOT / "docs" / "runbooks").glob("*.md")}
    assert all(re.search(r"/runbooks/(\w+)", link)[1] in pages for link in links.values())


def test_a_name_without_a_registry_is_refused():
    done = subprocess.run(
        [sys.executable, TOOL, "--image", "mofa-advisor:1"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, "REGISTRY/NAME" in done.stderr) == (1, True)


@pytest.fixture(scope="module")
def tool():
    spec = importlib.util.spec_from_file_location("tool_release", TOOL)
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def test_a_value_that_went_is_an_error(tool):
    with pytest.raises(SystemExit, match=r"image\.repository"):
        tool.released("image:\n  tag: x\n", IMAGE)


@pytest.fixture
def tree(tool, tmp_path):
    """The files that name the version, in a folder of their own."""
    for name in {name for name, _ in tool.STATED} | {
        path.relative_to(ROOT).as_posix() for names in tool.NAMING for path in ROOT.glob(names)
    }:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, tmp_path / name)
    return tmp_path


def test_a_new_version_is_written_everywhere_and_what_is_told_of_older_ones_stays(tool, tree):
    tool.write_version("9.8.7rc6", tree)
    for name, before in tool.STATED:
        assert re.search(rf"(?m){before}9\.8\.7rc6\b", (tree / name).read_text("utf-8")), name
    for name in ("docs/install.md", "examples/sidecar.yaml"):
        assert f":{VERSION}" not in (tree / name).read_text("utf-8")
        assert ":9.8.7rc6" in (tree / name).read_text("utf-8")
    for name in ("docs/upgrade.md", "docs/versions.md"):
        assert (tree / name).read_text("utf-8") == (ROOT / name).read_text("utf-8")


def test_a_file_that_states_no_version_is_an_error(tool, tree):
    (tree / "mofa_model" / "__init__.py").write_text("", "utf-8")
    with pytest.raises(SystemExit, match=r"mofa_model/__init__\.py states its version 0 times"):
        tool.write_version("9.8.7", tree)


def test_nothing_else_of_the_release_names_an_image():
    """The workflow hands the one name on; the tag is the version that the chart asks for."""
    text = (ROOT / ".github" / "workflows" / "release.yml").read_text("utf-8")
    assert text.count("/mofa-advisor") == 2, "the image, and the folder of the local tools"
    assert 'IMAGE="$REGISTRY/mofa-advisor"' in text
