"""Make everything that a release publishes, in one folder, from a clean tree.

    python tools/dist.py dist --version 0.2.0 [--image registry.example/ml/mofa-advisor]
        [--platforms amd64,arm64] [--key cosign.key]

`make release` runs this, here and in the workflow; a second run makes the same packages, chart,
plugin and layers to the byte, because every time in them is that of the commit.
`tools/release_check.py` then installs each file as a user would.

    mofa_advisor-*.whl, .tar.gz       packages of the product and of the lab
    mofa-advisor-image-*.tar          the operator's image for all platforms, an OCI archive; needs
                                      podman
    mofa-advisor-*.tgz                the chart, with the image's name in it
    kubectl-mofa-*.tar.gz, krew.yaml  the plugin of kubectl, and what krew reads
    *.cdx.json                        bills of materials, by CycloneDX
    NOTES.md                          what changed, for users
    SHA256SUMS, *.sigstore.json       checksums, and a signature of each file where a key is given
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "deploy" / "local"), str(ROOT / "tools")]

import release  # noqa: E402
from mofa_local import LocalStackError, binaries, images  # noqa: E402

MATERIALS = {"package": "core", "image": "operator"}
"""What has a bill of materials, and the lock that it is made of: all that is installed, each with
its hashes.
"""
SUMS = "SHA256SUMS"
PLUGIN = ROOT / "deploy" / "krew"
INDEX = "application/vnd.oci.image.index.v1+json"
KEYLESS = "keyless"
"""Instead of a key: the workflow signs by its own identity."""


def fail(message: str) -> NoReturn:
    """Exit with one line of error."""
    sys.exit(f"release: {message}")


def run(*command: str | Path, folder: Path = ROOT, **more: str) -> str:
    """The output of a command; exits with its error where it fails."""
    done = subprocess.run(
        [*map(str, command)],
        cwd=folder, env={**os.environ, **more}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        fail(f"{command[0]}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def require_version(wanted: str) -> None:
    """Refuse a version that a file does not state."""
    for name, stated in release.versions():
        if stated != wanted:
            fail(
                f"--version: {wanted!r} is not the version in {name}, {stated}; "
                f"write it there with `python tools/release.py --version {wanted}`, and commit"
            )


@contextmanager
def committed() -> Iterator[Path]:
    """The tree of the last commit in a folder of its own; a tree with changes is refused."""
    if changed := run("git", "status", "--porcelain"):
        fail(f"the tree has changes that no commit has:\n{changed.rstrip()}\ncommit them first")
    with tempfile.TemporaryDirectory(prefix="mofa-release-") as folder:
        archive = Path(folder) / "tree.tar"
        run("git", "archive", "--format=tar", f"--output={archive}", "HEAD")
        tree = Path(folder) / "tree"
        with tarfile.open(archive) as held:
            held.extractall(tree, filter="data")
        archive.unlink()
        yield tree


def packages(tree: Path, folder: Path, moment: int) -> None:
    """Wheel and source of the product and of the lab, by the locked builder."""
    for source in (tree, tree / "lab"):
        for target in ("sdist", "wheel"):
            run(
                sys.executable, "-m", "hatchling", "build", "-t", target, "-d", folder,
                folder=source, SOURCE_DATE_EPOCH=str(moment),
            )  # fmt: skip


def operator_image(
    tree: Path, folder: Path, version: str, platforms: Sequence[str], moment: int, base: str
) -> str:
    """The operator's image for all platforms as one OCI archive; the digest by which a registry
    will know it.
    """
    with tempfile.TemporaryDirectory(prefix="mofa-image-") as work:
        layout = Path(work) / "layout"
        entries = []
        for platform in platforms:
            labels = {"VERSION": version, "REVISION": run("git", "rev-parse", "HEAD").strip()}
            name = images.release_image(tree, platform, labels, moment=moment, base=base)
            archive = Path(work) / f"{platform}.tar"
            images.podman("save", "--format=oci-archive", f"--output={archive}", name)
            with tarfile.open(archive) as held:
                held.extractall(layout, filter="data")
            archive.unlink()
            (entry,) = json.loads((layout / "index.json").read_text("utf-8"))["manifests"]
            kept = {key: entry[key] for key in ("mediaType", "digest", "size")}
            entries.append({**kept, "platform": {"architecture": platform, "os": "linux"}})
        index = _json({"schemaVersion": 2, "mediaType": INDEX, "manifests": entries})
        digest = hashlib.sha256(index).hexdigest()
        (layout / "blobs" / "sha256" / digest).write_bytes(index)
        reference = {
            "mediaType": INDEX,
            "digest": f"sha256:{digest}",
            "size": len(index),
            "annotations": {"org.opencontainers.image.ref.name": f"mofa-advisor:{version}"},
        }
        whole = _json({"schemaVersion": 2, "manifests": [reference]})
        (layout / "index.json").write_bytes(whole)
        with tarfile.open(folder / f"mofa-advisor-image-{version}.tar", "w") as held:
            for path in sorted(layout.rglob("*")):
                if path.is_file():
                    entry = held.gettarinfo(path, str(path.relative_to(layout)))
                    entry.mtime, entry.mode = moment, 0o644
                    with path.open("rb") as data:
                        held.addfile(entry, data)
    return f"sha256:{digest}"


def index_digest(archive: Path) -> str:
    """The digest by which a registry will know the image of an OCI archive."""
    with tarfile.open(archive) as held:
        index = held.extractfile("index.json")
        if index is None:
            fail(f"{archive.name} has no index.json")
        digest: str = json.load(index)["manifests"][0]["digest"]
    return digest


def _json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def chart(tree: Path, folder: Path, moment: int) -> None:
    """The chart as one file, which helm makes and whose times are those of the commit."""
    helm = shutil.which("helm") or binaries.path("helm")
    with tempfile.TemporaryDirectory() as made:
        run(helm, "package", tree / "charts" / "mofa-advisor", "--destination", made)
        (packed,) = Path(made).iterdir()
        with tarfile.open(packed) as held:
            files = {
                member.name: data.read()
                for member in held.getmembers()
                if (data := held.extractfile(member)) is not None
            }
        write_archive(folder / packed.name, files, moment)


def write_archive(path: Path, files: dict[str, bytes], moment: int) -> None:
    """A tar.gz of these files, each with the same time and owner; a script stays executable."""
    with (
        path.open("wb") as raw,
        gzip.GzipFile("", "wb", fileobj=raw, mtime=moment) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as held,
    ):
        for name, data in sorted(files.items()):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mtime = len(data), moment
            entry.mode = 0o755 if data.startswith(b"#!") else 0o644
            held.addfile(entry, io.BytesIO(data))


def plugin(tree: Path, folder: Path, version: str, moment: int, downloads: str) -> None:
    """The plugin of kubectl: the wheel, its lock and a script that puts both into an environment;
    and what krew reads.
    """
    (wheel,) = folder.glob("mofa_advisor-*.whl")
    archive = folder / f"kubectl-mofa-{version}.tar.gz"
    files = {
        "kubectl-mofa": (tree / PLUGIN.relative_to(ROOT) / "kubectl-mofa").read_bytes(),
        "requirements.txt": (tree / "requirements" / "operator.txt").read_bytes(),
        "LICENSE": (tree / "LICENSE").read_bytes(),
        wheel.name: wheel.read_bytes(),
    }
    write_archive(archive, files, moment)
    text = (tree / PLUGIN.relative_to(ROOT) / "krew.yaml").read_text(encoding="utf-8")
    for word, value in (
        ("VERSION", f"v{version}"),
        ("URI", f"{downloads.rstrip('/')}/{archive.name}"),
        ("SHA256", hashlib.sha256(archive.read_bytes()).hexdigest()),
    ):
        text = text.replace(f"{{{word}}}", value)
    (folder / "krew.yaml").write_text(text, encoding="utf-8")


def materials(folder: Path) -> None:
    """Bills of materials, CycloneDX; the same for the same lock, whenever they are made."""
    for what, lock in MATERIALS.items():
        bill(folder, what, lock)


def bill(folder: Path, what: str, lock: str) -> Path:
    """One bill of materials."""
    made = folder / f"mofa-advisor-{what}.cdx.json"
    run(
        Path(sys.executable).parent / "cyclonedx-py", "requirements",
        ROOT / "requirements" / f"{lock}.txt",
        "--pyproject", ROOT / "pyproject.toml", "--mc-type", "application", "--output-reproducible",
        "--validate",
        "--output-format", "JSON", "--output-file", made,
    )  # fmt: skip
    unhashed(made)
    return made


def unhashed(made: Path) -> None:
    """Refuse a bill with a part that has no version or no hash."""
    for part in json.loads(made.read_text(encoding="utf-8"))["components"]:
        references = part.get("externalReferences", [])
        if not part.get("version") or not any(
            component.get("hashes") for component in [part, *references]
        ):
            fail(
                f"{made.name}: {part['name']} has no version or no hash; make the lock anew with "
                "`make lock`"
            )


def notes(tree: Path, folder: Path, version: str) -> None:
    """The section of this version in the changelog; a release without one is refused."""
    text = (tree / "CHANGELOG.md").read_text(encoding="utf-8")
    section = re.search(rf"(?ms)^## {re.escape(version)}\b.*?(?=^## |\Z)", text)
    if section is None:
        fail(f"CHANGELOG.md has no section '## {version}'; write what changed for users there")
    (folder / "NOTES.md").write_text(section[0].rstrip() + "\n", encoding="utf-8")


def sums(folder: Path) -> None:
    """A line for each file, as `sha256sum --check` reads it."""
    files = sorted(file for file in folder.iterdir() if file.is_file() and file.name != SUMS)
    lines = (f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in files)
    (folder / SUMS).write_text("".join(lines), encoding="utf-8")


def sign(folder: Path, key: str) -> None:
    """A signature beside each file, by cosign: with a key, or by the identity of the workflow
    that runs.
    """
    cosign = shutil.which("cosign") or binaries.path("cosign")
    # A key of one's own needs no public record of its use, and a machine without a network has
    # none.
    words = (
        []
        if key == KEYLESS
        else ["--key", key, "--use-signing-config=false", "--tlog-upload=false"]
    )
    for file in sorted(file for file in folder.iterdir() if file.is_file()):
        run(cosign, "sign-blob", "--yes", *words, "--bundle", f"{file}.sigstore.json", file)


def options(given: Sequence[str]) -> argparse.Namespace:
    """The options of the command line."""
    parser = argparse.ArgumentParser(prog="release", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path, help="where everything is made; has to be empty")
    parser.add_argument("--version", required=True, help="the version that the files state")
    parser.add_argument(
        "--image", default="", help="name of the image with its registry, without a tag"
    )
    parser.add_argument("--runbooks", default="", help="where people read docs/runbooks")
    parser.add_argument(
        "--downloads", default="", help="folder that these files will be fetched from"
    )
    parser.add_argument(
        "--platforms", default="amd64", help="of the image, by commas; empty makes no image"
    )
    parser.add_argument(
        "--base", default="", help="base of the image; a base of Debian's packages without it"
    )
    parser.add_argument(
        "--key", default="", help=f"key of cosign, or {KEYLESS!r} in a workflow; none signs nothing"
    )
    return parser.parse_args(given)


def main(words: Sequence[str]) -> int:
    """Make everything in the folder that is given."""
    given = options(words)
    folder: Path = given.folder.resolve()
    if folder.exists() and any(folder.iterdir()):
        fail(f"{given.folder} is not empty; give another folder, or empty it")
    require_version(given.version)
    platforms = [platform for platform in given.platforms.split(",") if platform]
    moment = int(run("git", "log", "-1", "--format=%ct"))
    try:
        for platform in platforms:
            images.require_platform(platform)
        folder.mkdir(parents=True, exist_ok=True)
        with committed() as tree:
            packages(tree, folder, moment)
            digest = ""
            if platforms:
                digest = operator_image(tree, folder, given.version, platforms, moment, given.base)
            if given.image:
                release.write(tree / "charts" / "mofa-advisor", given.image, digest, given.runbooks)
            chart(tree, folder, moment)
            plugin(tree, folder, given.version, moment, given.downloads)
            notes(tree, folder, given.version)
    except LocalStackError as error:
        fail(str(error))
    materials(folder)
    sums(folder)
    if given.key:
        sign(folder, given.key)
    print(*sorted(file.name for file in folder.iterdir()), sep="\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
