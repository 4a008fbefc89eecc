"""A fresh environment with the wheel and nothing else of ours: Python, the notebook and the page
work there.
"""

import json
import re
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from wheels import ROOT, built, environment, run

sys.path.insert(0, str(ROOT / "tools"))
from notebook_outputs import LOCK, NOTEBOOK, executed

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    """The Python of an environment with what a notebook needs, and the wheel."""
    return environment("notebook", LOCK, built(ROOT, tmp_path_factory.mktemp("dist")))


def outputs(notebook, kind):
    """What cells showed, of one kind."""
    told = (one for cell in notebook["cells"] for one in cell.get("outputs", ()))
    return [
        "".join(one.get("data", {}).get(kind, "")) for one in told if kind in one.get("data", {})
    ]


def test_the_notebook_runs_from_the_wheel_and_shows_what_it_is_kept_with(python, tmp_path):
    """`make transcripts` writes it: tables, pictures and an error, as this run shows them."""
    done = executed(python, tmp_path)
    shown = outputs(done, "text/html")
    assert len(shown) == 5
    assert sum("<svg" in html for html in shown) == 4
    assert all("<table" in html for html in shown)
    printed = [one.get("text", "") for cell in done["cells"] for one in cell.get("outputs", ())]
    assert any("".join(text).startswith("gpus: 63 cannot be right") for text in printed)
    kept = json.loads(NOTEBOOK.read_text("utf-8"))
    for kind in ("text/plain", "text/html"):
        assert outputs(done, kind) == outputs(kept, kind)


def test_what_the_documents_show_in_python_runs(python, tmp_path):
    pages = (ROOT / "README.md", *(ROOT / "docs").glob("*.md"), ROOT / "docs/reference/python.md")
    blocks = [
        one
        for page in pages
        for one in re.findall(r"```python\n(.*?)```", page.read_text("utf-8"), re.DOTALL)
    ]
    blocks = [one for one in blocks if "mofa." in one]
    assert len(blocks) >= 2
    run(python, "-c", "\n".join(blocks), cwd=tmp_path)


def test_the_page_is_served_from_the_wheel(python, tmp_path):
    command = [python.parent / "mofa", "ui", "--port", "0"]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=tmp_path)
    try:
        url = re.match(r"http://127\.0\.0\.1:\d+/", running.stdout.readline())[0]
        asked = "?model=llama3-8b&gpu=h100&gpus=16&sequence_length=8192&global_batch_size=64&framework=megatron"
        with urllib.request.urlopen(url + asked, timeout=60) as answer:
            assert "Where the time of a step goes" in answer.read().decode()
    finally:
        running.kill()
        running.wait()
        running.stdout.close()


def test_types_reach_whoever_imports_the_wheel(python):
    where = Path(run(python, "-c", "import mofa_model; print(mofa_model.__file__)").strip()).parent
    assert (where / "py.typed").exists()
    assert "advise as advise" in (where / "__init__.pyi").read_text("utf-8")
