"""Whether a change has its sentence for users: python tools/changelog.py --since origin/main.

A change of what users meet (the packages, the chart, the definitions, the rules, the dashboards)
adds or changes a file of `changelog.d/`. One that users do not notice says so in a commit, with a
line `Changelog: none`.
"""

import argparse
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MET = (
    "mofa_model/",
    "operator/mofa_operator/",
    "lab/mofa_lab/",
    "charts/",
    "crds/",
    "deploy/rules/",
    "deploy/grafana/",
)
"""Paths of what users meet."""


def git(*arguments: str) -> str:
    """The output of git."""
    done = subprocess.run(
        ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"changelog: git {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout


def missing(changed: list[str], messages: str) -> list[str]:
    """Changed files that need a sentence in the changelog, where there is none.

    >>> missing(["mofa_model/units.py", "docs/faq.md"], "Units are read faster")
    ['mofa_model/units.py']
    >>> missing(["mofa_model/units.py", "changelog.d/units.md"], "")
    []
    """
    has_entry = (
        any(name.startswith("changelog.d/") for name in changed) or "CHANGELOG.md" in changed
    )
    if has_entry or re.search(r"^Changelog: none$", messages, re.MULTILINE):
        return []
    return [name for name in changed if name.startswith(MET)]


def main() -> int:
    """Print what needs a sentence."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--since", required=True, help="the commit or branch that the change is for"
    )
    base = git("merge-base", parser.parse_args().since, "HEAD").strip()
    paths = missing(
        git("diff", "--name-only", base).split("\n"), git("log", "--format=%B", f"{base}..HEAD")
    )
    if not paths:
        return 0
    print(
        f"changelog: {', '.join(paths[:5])} changed and changelog.d/ did not: add a sentence for "
        "users, or"
    )
    print("changelog: a line `Changelog: none` to a commit if they will not notice")
    return 1


if __name__ == "__main__":
    sys.exit(main())
