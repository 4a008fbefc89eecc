"""The documents as a site: hooks of mkdocs (mkdocs.yml), so that docs/ stays what it is and nothing
is kept twice.

Pages that lie elsewhere in the tree become pages of the site. A link to a file that is no page
becomes the file's name; with the environment variable MOFA_SOURCE, which a release sets, it leads
to the file there.
"""

import os
import re
from pathlib import Path, PurePosixPath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
ELSEWHERE = {
    "README.md": "readme.md",
    "ARCHITECTURE.md": "architecture.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "CODE_OF_CONDUCT.md": "conduct.md",
    "SECURITY.md": "reporting.md",
    "charts/mofa-advisor/README.md": "chart.md",
    "deploy/local/README.md": "local-stack.md",
    "lab/README.md": "lab.md",
}
"""Pages that do not lie in docs/, and what they are called on the site."""
_HOME = {name: path for path, name in ELSEWHERE.items()}
_LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s#]+)(#[^)\s]*)?\)")
_FENCE = re.compile(r"(?ms)^```.*?^```|`[^`\n]*`")


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the pages that lie outside of docs/ to the site."""
    for path, name in ELSEWHERE.items():
        files.append(
            File.generated(config, name, content=(ROOT / path).read_text(encoding="utf-8"))
        )
    return files


def on_page_markdown(
    markdown: str,
    *,
    page: Page,
    config: MkDocsConfig,  # noqa: ARG001
    files: Files,
) -> str:
    """The text of a page, its links changed so that they lead to pages of the site."""
    return relinked(markdown, page.file.src_uri, {file.src_uri for file in files})


def relinked(markdown: str, uri: str, site_files: set[str]) -> str:
    """A page's text with links of the tree changed to links of the site; `uri` is the page's,
    `site_files` are all files of the site.

    >>> relinked("[a](docs/apply.md) [b](tests/x.py)", "readme.md", {"apply.md"})
    '[a](apply.md) b (`tests/x.py`)'
    """
    kept = [markdown[at.start() : at.end()] for at in _FENCE.finditer(markdown)]
    parts = _FENCE.split(markdown)
    made = [_LINK.sub(lambda at: _link(at, uri, site_files), part) for part in parts]
    return "".join(text + code for text, code in zip(made, [*kept, ""], strict=True))


def _link(at: re.Match[str], uri: str, site_files: set[str]) -> str:
    picture, text, target, anchor = at[1], at[2], at[3], at[4] or ""
    if "://" in target or target.startswith("mailto:"):
        return at[0]
    path = _in_tree(uri, target)
    inside = ELSEWHERE.get(path) or path.removeprefix("docs/")
    if inside in site_files and (path in ELSEWHERE or path.startswith("docs/")):
        return f"{picture}[{text}]({_from(uri, inside)}{anchor})"
    if source := os.environ.get("MOFA_SOURCE"):
        return f"[{text}]({source.rstrip('/')}/{path})"
    return text if text.strip("`") == path else f"{text} (`{path}`)"


def _in_tree(uri: str, target: str) -> str:
    """Where a link of a page leads, from the root of the tree."""
    page = PurePosixPath(_HOME.get(uri, f"docs/{uri}"))
    return os.path.normpath(page.parent / target).replace(os.sep, "/")


def _from(uri: str, inside: str) -> str:
    """A file of the site, as a page names it."""
    return os.path.relpath(inside, PurePosixPath(uri).parent).replace(os.sep, "/")
