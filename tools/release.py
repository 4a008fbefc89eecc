"""Write the name of a release into the tree: the version of packages and chart, and in the chart's
values the image and the address of the runbooks.

    python tools/release.py --version 0.2.0
    python tools/release.py --image registry.example/ml/mofa-advisor --digest sha256:…
        --runbooks https://docs.example/runbooks

A clone has an image without a registry, because nobody can pull what was never pushed; the release
workflow says where it pushed.
"""

import argparse
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
IMAGE = re.compile(r"[a-z0-9][a-zA-Z0-9._-]*(:[0-9]+)?(/[a-z0-9][a-z0-9._-]*)+")
"""A name with its registry."""
VERSION = re.compile(r"[0-9]+\.[0-9]+\.[0-9]+((a|b|rc)[0-9]+)?")
"""A version of Python's packages that is also one of the chart."""
NUMBER = r"[0-9]+\.[0-9]+\.[0-9]+(?:(?:a|b|rc)[0-9]+)?"
STATED = (
    ("pyproject.toml", r'^version = "'),
    ("lab/pyproject.toml", r'^version = "'),
    ("lab/pyproject.toml", r'^ +"mofa-advisor\[plot\]=='),
    ("mofa_model/__init__.py", r'^VERSION: Final = "'),
    ("charts/mofa-advisor/Chart.yaml", r"^version: "),
    ("charts/mofa-advisor/Chart.yaml", r'^appVersion: "'),
)
"""Files that state the version, and what stands before it on its line."""
NAMING = ("README.md", "docs/*.md", "examples/*.yaml", "deploy/kustomize/base/*.yaml")
"""Pages and examples that name the image of this release."""
IMAGES = r"\bIMAGE:|/mofa-advisor:|\bnewTag: "
"""What stands before the version there; a version that is told as an older one stands behind
other words.
"""


def versions(root: Path = ROOT) -> Iterator[tuple[str, str]]:
    """The version that each file states, at every place of `STATED`."""
    for name, pattern in STATED:
        text = (root / name).read_text(encoding="utf-8")
        stated = re.findall(rf"(?m){pattern}({NUMBER})", text)
        if len(stated) != 1:
            sys.exit(f"release: {name} states its version {len(stated)} times, not once")
        yield name, stated[0]


def released(values: str, image: str, digest: str = "", runbooks: str = "") -> str:
    """The chart's values with these; a value that is not there any more is an error, and not
    passed over.
    """
    for section, key, value in (
        ("image", "repository", image),
        ("image", "digest", digest),
        ("prometheusRule", "runbooks", runbooks),
    ):
        if value:
            pattern = re.compile(rf"(?m)(^{section}:\n(?:[ #].*\n)*?  {key}: ).*$")
            values, count = pattern.subn(lambda at, text=value: f'{at[1]}"{text}"', values)
            if count != 1:
                sys.exit(f"release: values.yaml has no {section}.{key}")
    return values


def write(chart: Path, image: str, digest: str = "", runbooks: str = "") -> None:
    """Write image and runbooks into the values of a chart."""
    if not IMAGE.fullmatch(image):
        sys.exit(f"release: --image: {image!r} is not right; give REGISTRY/NAME, without a tag")
    path = chart / "values.yaml"
    text = released(path.read_text(encoding="utf-8"), image, digest, runbooks)
    path.write_text(text, encoding="utf-8")


def write_version(version: str, root: Path = ROOT) -> None:
    """Write the version where the tree states it, and into the commands and examples that name the
    image of this release.
    """
    if not VERSION.fullmatch(version):
        sys.exit(f"release: --version: {version!r} is not right; give three numbers, as 0.2.0")
    for name, pattern in STATED:
        path = root / name
        text, count = re.subn(
            rf"(?m)({pattern}){NUMBER}", rf"\g<1>{version}", path.read_text(encoding="utf-8")
        )
        if count != 1:
            sys.exit(f"release: {name} states its version {count} times, not once")
        path.write_text(text, encoding="utf-8")
    for path in sorted(path for names in NAMING for path in root.glob(names)):
        before = path.read_text(encoding="utf-8")
        if (after := re.sub(rf"({IMAGES}){NUMBER}", rf"\g<1>{version}", before)) != before:
            path.write_text(after, encoding="utf-8")


def main() -> None:
    """Write the release into the tree; `make chart reference` makes the rest."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--version", default="", help="version of both packages and of the chart")
    parser.add_argument("--image", default="", help="name with its registry, without a tag")
    parser.add_argument("--digest", default="", help="digest that was pushed")
    parser.add_argument("--runbooks", default="", help="where people read docs/runbooks")
    parser.add_argument(
        "--chart", type=Path, default=ROOT / "charts" / "mofa-advisor", help="chart to write"
    )
    given = parser.parse_args()
    if not given.version and not given.image:
        parser.error("give --version, --image or both")
    if given.version:
        write_version(given.version)
    if given.image:
        write(given.chart, given.image, given.digest, given.runbooks)


if __name__ == "__main__":
    main()
