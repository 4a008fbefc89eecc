"""Words of the documents that are written by hand, page by page, the longest first: 25,000 at most.

    python tools/page_words.py

What the tools write does not count: the pages of `GENERATED`, blocks between marks of a generator,
and what stands in fences (output of commands, and code that tests run).
"""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MOST = 25_000
"""Most words by hand, as many as people still finish. [1]"""
GENERATED = re.compile(
    r"tests/|lab/data/|changelog\.d/|docs/(reference/|validation\.md|validation/|evidence\.md"
    r"|equations\.md|nomenclature\.md|ettr-grid\.md|real-node\.md|studies/results\.md)"
    r"|charts/.*/README\.md"
)
"""Pages that are made from the code or of tables that tests compare with it, what describes data,
and sentences on their way to the changelog.
"""
BLOCKS = re.compile(r"(?s)```.*?```|<!-- (\w+) -->.*?<!-- end of \1 -->|<!--.*?-->")


def pages(root: Path = ROOT) -> Iterator[tuple[Path, int]]:
    """Every page that is written by hand, and its words."""
    listed = subprocess.check_output(["git", "ls-files", "*.md"], cwd=root, text=True)
    for name in listed.split():
        if not GENERATED.match(name):
            text = BLOCKS.sub("", (root / name).read_text("utf-8"))
            yield Path(name), sum(any(map(str.isalnum, word)) for word in text.split())


def main() -> None:
    """Print the words of each page, and their sum."""
    counts = sorted(pages(), key=lambda page: page[1], reverse=True)
    for path, words in counts:
        print(f"{words:6,}  {path}")
    print(f"{sum(words for _, words in counts):6,}  of {MOST:,}")


if __name__ == "__main__":
    main()
