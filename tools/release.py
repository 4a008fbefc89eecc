"""Set what a release is called, once: image and runbooks in the chart's values, from which manifests and packages follow.

    python tools/release.py --image registry.example/ml/mofa-advisor --digest sha256:… --runbooks https://docs.example/runbooks

A clone has an image without a registry, because nobody can pull what was never pushed; the release workflow says where it pushed.
"""

import argparse
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
IMAGE = re.compile(r"[a-z0-9][a-zA-Z0-9._-]*(:[0-9]+)?(/[a-z0-9][a-z0-9._-]*)+")
"""A name with its registry."""


def released(values: str, image: str, digest: str = "", runbooks: str = "") -> str:
    """The chart's values with these; a value that is not there any more is an error, and not passed over."""
    for section, key, value in (
        ("image", "repository", image),
        ("image", "digest", digest),
        ("prometheusRule", "runbooks", runbooks),
    ):
        if value:
            pattern = re.compile(rf"(?m)(^{section}:\n(?:[ #].*\n)*?  {key}: ).*$")
            values, found = pattern.subn(lambda at, text=value: f'{at[1]}"{text}"', values)
            if found != 1:
                sys.exit(f"release: values.yaml has no {section}.{key}")
    return values


def main() -> None:
    """Write it; `make chart` makes the rest."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--image", required=True, help="name with its registry, without a tag")
    parser.add_argument("--digest", default="", help="digest that was pushed")
    parser.add_argument("--runbooks", default="", help="where people read docs/runbooks")
    parser.add_argument(
        "--chart", type=Path, default=ROOT / "charts" / "mofa-advisor", help="chart to write"
    )
    given = parser.parse_args()
    if not IMAGE.fullmatch(given.image):
        sys.exit(
            f"release: --image: {given.image!r} is not right; give REGISTRY/NAME, without a tag"
        )
    path = given.chart / "values.yaml"
    path.write_text(
        released(path.read_text(encoding="utf-8"), given.image, given.digest, given.runbooks),
        encoding="utf-8",
    )


if __name__ == "__main__":
    main()
