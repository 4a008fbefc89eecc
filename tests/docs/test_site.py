"""The site is built from the documents as they are, and nothing in it leads nowhere."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("mkdocs", reason="the site is built by mkdocs, which the extra `dev` brings")

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site, built as `make site` builds it: a warning is an error."""
    folder = tmp_path_factory.mktemp("site")
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", folder],
        cwd=ROOT, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    return folder


def test_every_page_is_there_and_no_link_leads_out_of_the_tree_or_nowhere(site):
    pages = {
        path.relative_to(ROOT / "docs").with_suffix(".html")
        for path in (ROOT / "docs").rglob("*.md")
    }
    named = {path.with_name("index.html") if path.name == "README.html" else path for path in pages}
    built = {path.relative_to(site) for path in site.rglob("*.html")}
    assert named <= built
    lost = set()
    for path in site.rglob("*.html"):
        article = re.search(r"<article.*?</article>", path.read_text(encoding="utf-8"), re.DOTALL)
        for target in re.findall(r'(?:href|src)="([^"#?]+)', article[0] if article else ""):
            if (
                "://" not in target
                and not target.startswith("mailto:")
                and not (path.parent / target).exists()
            ):
                lost.add((path.name, target))
    assert lost == set()


def test_pictures_of_the_gallery_are_there(site):
    page = (site / "gallery.html").read_text(encoding="utf-8")
    assert len(re.findall(r"<img ", page)) >= 6


def test_links_to_what_is_no_page_become_names_or_lead_to_the_source(monkeypatch):
    spec = importlib.util.spec_from_file_location("tool_site", ROOT / "tools" / "site.py")
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    known = {"apply.md", "readme.md", "pictures/a.png"}
    assert (
        made.relinked("[x](../deploy/rules) [y](apply.md#a)", "install.md", known)
        == "x (`deploy/rules`) [y](apply.md#a)"
    )
    assert made.relinked("![p](docs/pictures/a.png)", "readme.md", known) == "![p](pictures/a.png)"
    assert made.relinked("`[x](../y)`", "install.md", known) == "`[x](../y)`", "code stays as it is"
    monkeypatch.setenv("MOFA_SOURCE", "https://code.example/tree/")
    assert (
        made.relinked("[x](../deploy/rules)", "install.md", known)
        == "[x](https://code.example/tree/deploy/rules)"
    )
