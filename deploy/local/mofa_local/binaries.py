"""Find a tool of the local stack, or build it once from its Go module into the user's cache.

    python -m mofa_local.binaries              the paths of all tools, built where they are missing, but those of a real node
    python -m mofa_local.binaries etcd kwok    of these, and of neighbours
    python -m mofa_local.binaries --for-tests  all that tests start: of all tools, and of all neighbours

The order: `TEST_ASSET_<NAME>` and `KUBEBUILDER_ASSETS` for etcd, kube-apiserver and kubectl, as Kubernetes' own test
environment reads them; then PATH for tools that people have, when their version fits; then the cache; then a build.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TextIO

from mofa_local import LocalStackError, go, modules, progress
from mofa_local.modules import TOOLS, Module, Tool
from mofa_local.neighbours import NEIGHBOURS
from mofa_local.progress import span
from mofa_local.published import NotFetched, Published
from mofa_model.errors import MofaError

ASSETS: Final = frozenset({"etcd", "kube-apiserver", "kubectl"})
"""What KUBEBUILDER_ASSETS holds by convention."""

QUESTIONS: Final = {
    "prometheus": ("--version",),
    "promtool": ("--version",),
    "helm": ("version", "--short"),
    "kubectl": ("version", "--client"),
}
"""Tools that may come from PATH, and how to ask them for their version."""

UNUSED: Final = 30 * 86400.0
"""After this long without use, a folder of an older recipe goes. [s]"""


def cache() -> Path:
    """The per-user folder that holds what was built."""
    home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(home).resolve() / "mofa-advisor"


def tool(name: str) -> Tool:
    """The tool or the neighbour of that name."""
    return NEIGHBOURS[name].tool if name in NEIGHBOURS else modules.tool(name)


def path(name: str) -> Path:
    """The program `name`: found, or built now; the first build of kube-apiserver takes minutes."""
    return find(name) or build(tool(name))


def find(name: str) -> Path | None:
    """The program `name` where it exists already."""
    wanted = tool(name)
    for place in (_asset, _on_path, _cached):
        found = place(wanted)
        if found is not None:
            return found
    return None


def build(wanted: Tool) -> Path:
    """Build a tool into the cache; whoever comes second waits, and finds it there."""
    folder = cache() / wanted.module.key
    folder.mkdir(parents=True, exist_ok=True)
    kubectl = path("kubectl") if isinstance(wanted.module, Published) else None
    with _only_one(wanted.name):
        found = _cached(wanted)
        if found is not None:
            return found
        command = go.find(wanted.module.go, cache())
        unfinished = folder / f".{wanted.name}.unfinished"
        try:
            with wanted.module.source(command, folder, kubectl) as place:
                _compile(command, wanted, place, unfinished)
            unfinished.replace(folder / wanted.name)
        finally:
            unfinished.unlink(missing_ok=True)
        _say_what_is_here(wanted.module)
        _tidy(wanted.module)
        return folder / wanted.name


def _asset(wanted: Tool) -> Path | None:
    if wanted.name not in ASSETS:
        return None
    variable = f"TEST_ASSET_{wanted.name.upper().replace('-', '_')}"
    for name, suffix in ((variable, ""), ("KUBEBUILDER_ASSETS", wanted.name)):
        if given := os.environ.get(name):
            found = Path(given) / suffix if suffix else Path(given)
            if not os.access(found, os.X_OK):
                raise LocalStackError(
                    f"{name}={given}: {found} is not a program; correct the variable or unset it"
                )
            return found.resolve()
    return None


def _on_path(wanted: Tool) -> Path | None:
    found = shutil.which(wanted.name) if wanted.name in QUESTIONS else None
    if found is None:
        return None
    question = [found, *QUESTIONS[wanted.name]]
    try:
        done = subprocess.run(question, capture_output=True, text=True, check=False, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return None
    said = re.search(r"v?(\d+)\.(\d+)\.\d+", done.stdout + done.stderr)
    if said is None:
        return None
    major, minor = int(said[1]), int(said[2])
    right, ours, _ = wanted.module.version
    near = (
        wanted.name != "kubectl" or abs(minor - ours) <= 1
    )  # kubectl's promise is one minor version
    return Path(found) if major == right and near else None


def _cached(wanted: Tool) -> Path | None:
    found = cache() / wanted.module.key / wanted.name
    if not os.access(found, os.X_OK):
        return None
    os.utime(found.parent)  # the sign of use that `_tidy` reads
    return found


@contextmanager
def _only_one(name: str) -> Iterator[None]:
    """A lock, so that this user has one build at a time: two at once would want four gigabytes."""
    with (cache() / "build.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _say(f"{name}: waiting for a build in another process")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _compile(command: Path, wanted: Tool, place: Path, target: Path) -> None:
    module = wanted.module
    version = ".".join(str(part) for part in module.version)
    usual = f"usually {span(wanted.seconds)} on two cores, more where modules have to be fetched"
    _say(f"{wanted.name} {version}: building once from its Go module ({usual})")
    environment = os.environ | go.ENVIRONMENT
    log = target.with_suffix(".log")
    start = time.monotonic()
    total = progress.to_build(command, module.flags, wanted.package, place, environment)
    with log.open("w+", encoding="utf-8") as output:
        process = subprocess.Popen(
            [str(command), "build", "-v", *module.flags, "-o", str(target), wanted.package],
            cwd=place, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
        )  # fmt: skip
        try:
            _wait(process, wanted, start, log, total)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        said = _last_lines(output)
    log.unlink()
    if process.returncode:
        raise LocalStackError(
            f"{wanted.name}: `go build` failed in {place}; its last lines:\n{said}"
        )
    _say(f"{wanted.name} {version}: built in {span(time.monotonic() - start)}")


def _wait(
    process: subprocess.Popen[bytes], wanted: Tool, start: float, log: Path, total: int
) -> None:
    person = progress.Told()
    while True:
        try:
            process.wait(person.pause)
        except subprocess.TimeoutExpired:
            done, took = progress.begun(log), time.monotonic() - start
            text = progress.told(wanted.name, done, total, took, wanted.seconds)
            person.say(text, progress.share(done, total))
        else:
            person.end()
            return


def _last_lines(output: TextIO, count: int = 20) -> str:
    output.seek(0)
    return "\n".join(output.read().splitlines()[-count:])


def _say_what_is_here(module: Module | Published) -> None:
    """Write a README into the cache, for whoever finds a gigabyte there."""
    text = (
        "Programs of MoFa Advisor's local stack, built by `python -m mofa_local.binaries` from Go modules.\n"
        f"Module: {module.requires} {'.'.join(str(part) for part in module.version)}\n"
        f"Flags:  {' '.join(module.flags)}\n"
        "This folder may be removed at any time; what is missing is built again when it is needed.\n"
    )
    (cache() / module.key / "README").write_text(text, encoding="utf-8")


def _tidy(module: Module | Published) -> None:
    """Remove folders of this module's older recipes that nothing has used for a month."""
    ours = re.compile(rf"{re.escape(module.name)}-[0-9a-f]{{12}}")
    others = [
        one for one in cache().iterdir() if ours.fullmatch(one.name) and one.name != module.key
    ]
    for folder in others:
        if time.time() - folder.stat().st_mtime > UNUSED:
            shutil.rmtree(folder, ignore_errors=True)


def _say(text: str) -> None:
    print(f"mofa_local: {text}", file=sys.stderr, flush=True)


FOR_TESTS: Final = "--for-tests"
"""Asks for what tests start, so that it is built before the first test and no test waits for a build in another one."""


def main(names: list[str]) -> int:
    """Print the path of each named tool, or of all that are not built apart."""
    tools = [name for name, one in TOOLS.items() if not one.apart]
    try:
        if names == [FOR_TESTS]:
            _for_tests([*tools, *NEIGHBOURS])
        else:
            for name in names or tools:
                print(path(name))
    except MofaError as error:
        print(f"mofa_local: {error}", file=sys.stderr)
        return error.exit_code
    return 0


def _for_tests(names: list[str]) -> None:
    """Build what is missing. A neighbour that cannot be fetched is named and left out: its tests are skipped then."""
    missing = [name for name in names if find(name) is None]
    if missing:
        usual = span(sum(tool(name).seconds for name in missing))
        _say(f"{len(missing)} programs of the tests are built once: usually {usual} on two cores")
    for name in missing:
        try:
            path(name)
        except NotFetched as error:
            _say(f"{error}; tests that need {name} are skipped")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
