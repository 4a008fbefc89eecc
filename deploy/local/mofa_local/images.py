"""Container images where no registry can be reached: a base of Debian's packages, and the
operator's image on it.

    python -m mofa_local.images        builds both, and prints the name of the operator's image

    podman(...)             one command of podman, with the runtime and the limits that this machine
                            allows
    command(...)            the same as words, for whoever starts it
    release_image(…)        the operator's image of a release, for one platform, the same to the
                            byte whenever it is built
    base_image()            `localhost/mofa-base:…`, made once by mmdebstrap and kept in podman's
                            store
    advisor_image(tree)     `localhost/mofa-advisor:…`, built from the Dockerfile of a tree as a
                            person would

Needed are podman and mmdebstrap, and the rights to use them (root, or what rootless podman asks
for); `NoImages` says what is missing, or why no base can be made. The base has Debian's Python,
3.11, and releases have 3.12: the tests of every supported Python say what differs.
"""

from __future__ import annotations

import hashlib
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from platform import machine
from typing import Final

from mofa_local import LocalStackError
from mofa_local.progress import say

ROOT: Final = Path(__file__).resolve().parents[3]
"""The tree that this file stands in."""
SUITE: Final = "bookworm"
"""Debian's release of the base: 12, with Python 3.11."""
PACKAGES: Final = ("python3", "python3-venv", "python3-pip", "ca-certificates")
"""Packages of the base beside the smallest system that runs."""
HOOKS: Final = (
    # As in images named python: `python`, and a pip that installs where it is told to.
    'mkdir -p "$1"/usr/local/bin && ln -s /usr/bin/python3 "$1"/usr/local/bin/python',
    'rm -f "$1"/usr/lib/python3*/EXTERNALLY-MANAGED',
)
"""Commands that finish the base, after its packages are installed."""
NEEDS: Final = "needed are podman with runc, and mmdebstrap: apt-get install podman runc mmdebstrap"
"""Programs that must be installed."""
_ENOUGH: Final = (
    ("nofile", resource.RLIMIT_NOFILE, 20_000),
    ("nproc", resource.RLIMIT_NPROC, 4_096),
)
"""Open files and processes that a build or a container has enough of. [1]"""
_PLACES: Final = ("cert", "client-cert", "find-links")
"""Settings of pip that may name a place of this machine."""


PLATFORMS: Final = ("amd64", "arm64")
"""Platforms of a release's image."""
NATIVE: Final = {"x86_64": "amd64", "aarch64": "arm64"}.get(machine(), machine())
"""The platform of this machine."""
EMULATORS: Final = {
    "amd64": Path("/proc/sys/fs/binfmt_misc/qemu-x86_64"),
    "arm64": Path("/proc/sys/fs/binfmt_misc/qemu-aarch64"),
}
"""Where Linux says that it starts programs of another platform through an emulator."""


class NoImages(LocalStackError):
    """There is no podman here that works, or nothing to make a base with; the message
    says which.
    """


def podman(
    *words: str, check: bool = True, timeout: float = 600.0, folder: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """One command of podman, whose output is kept; an error where it fails and `check` is said.
    `timeout` in [s].
    """
    done = subprocess.run(
        command(*words),
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout,
    )
    if check and done.returncode:
        tail = "\n".join((done.stdout + done.stderr).splitlines()[-30:])
        raise LocalStackError(
            f"podman {words[0]} ended with {done.returncode}; its last lines:\n{tail}"
        )
    return done


def command(verb: str, *words: str) -> list[str]:
    """A command of podman with this machine's runtime; what starts processes gets limits that this
    machine grants.
    """
    runtime = (
        ["--runtime=runc"] if shutil.which("runc") else []
    )  # crun refuses a hybrid of cgroups 1 and 2
    granted = limits() if verb in {"run", "build", "create"} else []
    return ["podman", *runtime, verb, *granted, *words]


def require() -> None:
    """Raise `NoImages` where no image can be built."""
    missing = [name for name in ("podman", "mmdebstrap") if shutil.which(name) is None]
    if missing:
        raise NoImages(f"{' and '.join(missing)} not on PATH; {NEEDS}")
    if (done := podman("info", check=False, timeout=60.0)).returncode:
        raise NoImages(
            f"`podman info` ended with {done.returncode}: {done.stderr.strip()[-300:]}; {NEEDS}"
        )


def base_image(platform: str = NATIVE) -> str:
    """The name of an image with Debian's Python; made in half a minute where there is none yet,
    longer for another platform.
    """
    require()
    recipe = hashlib.sha256(repr((SUITE, PACKAGES, HOOKS)).encode()).hexdigest()[:12]
    name = f"localhost/mofa-base:{SUITE}-{recipe}" + f"-{platform}" * (platform != NATIVE)
    if podman("image", "exists", name, check=False).returncode == 0:
        return name
    say(
        f"{name}: making a base of Debian's packages once (half a minute, minutes through an "
        "emulator)"
    )
    with tempfile.TemporaryDirectory(prefix="mofa-base-") as folder:
        archive = Path(folder) / "base.tar"
        hooks = [f"--customize-hook={hook}" for hook in HOOKS]
        making = [
            "mmdebstrap",
            "--quiet",
            "--variant=minbase",
            f"--architectures={platform}",
            f"--include={','.join(PACKAGES)}",
            *hooks,
        ]
        done = subprocess.run(
            [*making, SUITE, str(archive)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            last_lines = "\n".join((done.stdout + done.stderr).splitlines()[-20:])
            raise NoImages(
                f"mmdebstrap ended with {done.returncode}; its last lines:\n{last_lines}"
            )
        settings = ("--change", "ENV PATH=/usr/local/bin:/usr/bin:/bin", f"--arch={platform}")
        podman("import", *settings, "--os=linux", str(archive), name)
    return name


def require_platform(platform: str) -> None:
    """Raise `NoImages` where no image for this platform can be built here."""
    if platform not in PLATFORMS:
        raise NoImages(f"--platforms: {platform!r} is not one of {', '.join(PLATFORMS)}")
    require()
    if platform != NATIVE and not (EMULATORS[platform].exists() and shutil.which("arch-test")):
        raise NoImages(
            f"--platforms: nothing here runs programs of {platform}: apt-get install "
            "qemu-user-static arch-test; "
            "the first registers an emulator with binfmt_misc, the second tells mmdebstrap that it "
            "works"
        )


def release_image(
    tree: Path, platform: str, arguments: Mapping[str, str], *, moment: int, base: str = ""
) -> str:
    """The name of the image of a release for one platform, whose times are all those of its commit.
    `moment` in [s].
    """
    name = f"localhost/mofa-advisor-release:{platform}"
    with _index() as mounts:
        podman(
            "build",
            "--network=host",
            "--no-cache",
            f"--platform=linux/{platform}",
            f"--timestamp={moment}",
            f"--build-arg=BASE={base or base_image(platform)}",
            *(f"--build-arg={key}={value}" for key, value in arguments.items()),
            f"--file={tree / 'operator' / 'Dockerfile'}",
            *mounts,
            f"--tag={name}",
            str(tree),
            timeout=3600.0,
        )
    return name


def advisor_image(tree: Path = ROOT, *, base: str | None = None) -> str:
    """The name of the operator's image, built from `operator/Dockerfile` of a tree; layers that are
    the same are kept by podman.
    """
    on = base or base_image()
    name = f"localhost/mofa-advisor:{hashlib.sha256(str(tree.resolve()).encode()).hexdigest()[:12]}"
    recipe = tree / "operator" / "Dockerfile"
    options = ("--network=host", "--layers", f"--build-arg=BASE={on}", f"--file={recipe}")
    with _index() as mounts:
        for tag, target in ((f"{name}-build", ("--target=build",)), (name, ())):
            before = _id(tag)
            podman("build", *options, *mounts, *target, f"--tag={tag}", str(tree), timeout=1800.0)
            if before not in {"", _id(tag)}:
                podman(
                    "rmi", before, check=False
                )  # or each build would leave another 190 MB behind
    return name


def _id(image: str) -> str:
    """The id of an image; empty where there is none."""
    return podman("image", "inspect", "--format={{.Id}}", image, check=False).stdout.strip()


def size(image: str) -> int:
    """Size of an image, its base included. [B]"""
    return int(podman("image", "inspect", "--format", "{{.Size}}", image).stdout)


def limits() -> list[str]:
    """Limits that a machine surely grants: what podman asks for by itself may be more than it
    may give.
    """
    options = []
    for name, which, enough in _ENOUGH:
        most = resource.getrlimit(which)[1]
        given = enough if most == resource.RLIM_INFINITY else min(most, enough)
        options.append(f"--ulimit={name}={given}:{given}")
    return options


@contextmanager
def _index() -> Iterator[list[str]]:
    """Mounts that give a build this machine's way to its package index: pip's settings, and the
    files that they name.
    """
    command = [sys.executable, "-m", "pip", "config", "list"]
    listing = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    settings: dict[str, str] = {}
    for line in listing.splitlines():  # of the environment come last, and hold
        name, _, value = line.partition("=")
        settings[name.rpartition(".")[2]] = value.strip().strip("'\"")
    places = {
        settings[name] for name in _PLACES if name in settings and Path(settings[name]).exists()
    }
    with tempfile.TemporaryDirectory(prefix="mofa-index-") as folder:
        written = Path(folder) / "pip.conf"
        lines = [f"{name} = {value}" for name, value in settings.items()]
        written.write_text("\n".join(["[global]", *lines, ""]), encoding="utf-8")
        yield [
            f"--volume={written}:/etc/pip.conf:ro",
            *(f"--volume={place}:{place}:ro" for place in sorted(places)),
        ]


def main() -> int:
    """Build both images."""
    try:
        print(advisor_image())
    except LocalStackError as error:
        print(f"mofa_local: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
