"""Send what `make release` made to where people fetch it: the image, the chart, the packages; image
and chart are signed there.

    python tools/publish.py dist --registry registry.example/ml --key keyless

Who we are towards the package index and the registry's signatures says the workflow's own identity.
`tools/release_check.py` sends the same image and chart to a registry on loopback with these
functions.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent)]

import dist  # noqa: E402
from mofa_local import binaries  # noqa: E402


def send_image(folder: Path, registry: str, version: str, *, plain_http: bool = False) -> str:
    """Send the image as it is, every byte; its name with the digest that the chart names."""
    (archive,) = folder.glob("mofa-advisor-image-*.tar")
    name = f"{registry}/mofa-advisor"
    dist.run(
        "skopeo", "copy", "--quiet", "--all", "--preserve-digests",
        *["--dest-tls-verify=false"] * plain_http,
        f"oci-archive:{archive}", f"docker://{name}:{version}",
    )  # fmt: skip
    return f"{name}@{dist.index_digest(archive)}"


def send_chart(folder: Path, registry: str, *, plain_http: bool = False) -> str:
    """Send the chart; its name with its digest."""
    helm = shutil.which("helm") or binaries.path("helm")
    (archive,) = folder.glob("mofa-advisor-[0-9]*.tgz")
    done = subprocess.run(
        [str(helm), "push", str(archive), f"oci://{registry}/charts",
            *["--plain-http"] * plain_http],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    output = done.stdout + done.stderr
    digest = re.findall(r"(?m)^Digest: (sha256:[0-9a-f]{64})", output)
    if done.returncode or not digest:
        dist.fail(f"helm push: {output.strip()}")
    return f"{registry}/charts/mofa-advisor@{digest[0]}"


def main() -> int:
    """Send and sign everything."""
    parser = argparse.ArgumentParser(prog="publish", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path, help="what `make release` made")
    parser.add_argument(
        "--registry", required=True, help="where image and chart go: a host and a path"
    )
    parser.add_argument("--key", default=dist.KEYLESS, help="key of cosign, or 'keyless'")
    parser.add_argument(
        "--packages", action="store_true", help="send the packages to the index too"
    )
    given = parser.parse_args()
    cosign = shutil.which("cosign") or binaries.path("cosign")
    key = [] if given.key == dist.KEYLESS else ["--key", given.key]
    (wheel,) = given.folder.glob("mofa_advisor-*.whl")
    version = re.findall(r"mofa_advisor-(.+)-py3", wheel.name)[0]
    image = send_image(given.folder, given.registry, version)
    chart = send_chart(given.folder, given.registry)
    for name in (image, chart):
        dist.run(cosign, "sign", "--yes", *key, name)
    bill = given.folder / "mofa-advisor-image.cdx.json"
    dist.run(cosign, "attest", "--yes", *key, "--type", "cyclonedx", "--predicate", bill, image)
    if given.packages:
        files = [*given.folder.glob("*.whl"), *given.folder.glob("mofa_*.tar.gz")]
        dist.run(sys.executable, "-m", "uv", "publish", "--trusted-publishing", "always", *files)
    print(image, chart, sep="\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
