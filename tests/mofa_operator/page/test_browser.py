"""A real browser shows the page: markup in names stays text, and both colour schemes are drawn."""

import html
import importlib
import sys
from pathlib import Path

import pytest

pytest.importorskip("aiohttp", reason="the page needs the extra `operator`")

from operator_objects import shown

from mofa_operator.page.jobs import job_page, jobs_page

ROOT = Path(__file__).resolve().parents[3]
MARKUP = "<script>document.title='run'</script><h1 onclick=x>& \"quoted\"</h1>"
BODY = {
    "apiVersion": "mofa.dev/v1alpha1",
    "kind": "TrainingJob",
    "metadata": {"namespace": "ml", "name": MARKUP, "annotations": {"advisor.mofa.dev/explanation": MARKUP}},
    "status": {
        "conditions": [{"type": "Ready", "status": "True", "reason": "Recommended"}],
        "recommendation": {"predicted": {"tokensPerSecond": {"lower": 90, "target": 100, "upper": 110}}},
        "observed": {"tokensPerSecond": 95},
    },
}


@pytest.fixture(scope="module")
def tool():
    """tools/screenshots.py, where there is a browser."""
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        found = importlib.import_module("screenshots")
    finally:
        sys.path.remove(str(ROOT / "tools"))
    if found.browser() is None:
        pytest.skip(f"none of {', '.join(found.BROWSERS)} is on PATH")
    return found


def test_what_a_browser_makes_of_markup_in_names_is_text(tool, tmp_path):
    page = tmp_path / "jobs.html"
    page.write_text(jobs_page([shown(BODY)]), encoding="utf-8")
    dom = tool.chromium("--dump-dom", url=page.as_uri())
    assert "<title>Jobs · MoFa Advisor</title>" in dom
    assert "<script>" not in dom
    assert dom.count("<h1") == 1
    assert html.escape(MARKUP, quote=False) in dom


def test_light_and_dark_are_two_pictures_with_something_on_them(tool, tmp_path):
    image = pytest.importorskip("PIL.Image")
    page = tmp_path / "job.html"
    page.write_text(job_page(shown(BODY), None), encoding="utf-8")
    corners, colors = {}, {}
    for scheme in tool.SCHEMES:
        path = tmp_path / f"{scheme}.png"
        tool.shoot(page.as_uri(), scheme, path, width=600, height=500)
        shot = image.open(path).convert("RGB")
        corners[scheme] = sum(shot.getpixel((0, 0)))
        colors[scheme] = len(shot.getcolors(100_000))
    assert corners["light"] > 700
    assert corners["dark"] < 100
    assert min(colors.values()) > 10


def test_the_pictures_of_the_documents_are_there_and_small(tool):
    names = {f"{name}-{scheme}.png" for name in tool.PAGES for scheme in tool.SCHEMES}
    assert {path.name for path in tool.PICTURES.glob("*.png")} == names
    assert max(path.stat().st_size for path in tool.PICTURES.glob("*.png")) <= tool.LARGEST
