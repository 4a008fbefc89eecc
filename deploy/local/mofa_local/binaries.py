"""Find a tool of the local stack, or build it once from its Go module into the user's cache.

    python -m mofa_local.binaries              the paths of all tools, built where they are missing,
                                               but those of a real node
    python -m mofa_local.binaries etcd kwok    of these, and of neighbours
    python -m mofa_local.binaries --for-tests  what `make test` starts: all of these, and
                                               kube-state-metrics

The order: `TEST_ASSET_<NAME>` and `KUBEBUILDER_ASSETS` for etcd, kube-apiserver and kubectl, as
Kubernetes' own test environment reads them; then PATH for tools that people have, when their
version fits; then the cache; then a build.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TextIO

from mofa_local import LocalStackError, go, modules, progress
from mofa_local.modules import TOOLS, Module, Tool
from mofa_local.neighbours import NEIGHBOURS
from mofa_local.progress import say, span
from mofa_local.published import NotFetched, Published
from mofa_model.errors import MofaError

ASSETS: Final = frozenset({"etcd", "kube-apiserver", "kubectl"})
"""Programs that KUBEBUILDER_ASSETS holds by convention."""

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
    return paths([name])[0]


def paths(names: Iterable[str]) -> list[Path]:
    """The programs of these names: found, or built now, those of one Go module at once."""
    names = list(names)
    existing = {name: find(name) for name in names}
    groups: dict[str, list[Tool]] = {}
    for name in (name for name, where in existing.items() if where is None):
        module = tool(name).module
        group = module.folder if isinstance(module, Module) else module.name
        groups.setdefault(group, []).append(tool(name))
    built = {
        member.name: where for group in groups.values() for member, where in build(*group).items()
    }
    return [existing[name] or built[name] for name in names]


def find(name: str) -> Path | None:
    """The program `name` where it exists already."""
    wanted = tool(name)
    for place in (_asset, _on_path, _cached):
        program = place(wanted)
        if program is not None:
            return program
    return None


def build(*wanted: Tool) -> dict[Tool, Path]:
    """Build tools of one Go module into the cache. Where another process builds already, wait for
    it and take its result.

    Some packages are compiled one after another: the last four of Prometheus take a minute. Go
    compiles in the order of the tools, so the largest stands first, and another core has the
    rest meanwhile.
    """
    places = {member: cache() / member.module.key / member.name for member in wanted}
    for place in places.values():
        place.parent.mkdir(parents=True, exist_ok=True)
    module = wanted[0].module
    kubectl = path("kubectl") if isinstance(module, Published) else None
    with _only_one(", ".join(member.name for member in wanted)):
        missing = sorted(
            (member for member in wanted if _cached(member) is None),
            key=lambda member: -member.seconds,
        )
        if not missing:
            return places
        command = go.find(module.go, cache())
        kept = places[missing[0]].parent
        unfinished = kept / f".{missing[0].name}.unfinished"
        try:
            with module.source(command, kept, kubectl) as source:
                _compile(command, missing, source, unfinished)
            for member in missing:
                (unfinished / _called_by_go(member) if len(missing) > 1 else unfinished).replace(
                    places[member]
                )
        finally:
            if unfinished.is_dir():
                shutil.rmtree(unfinished)
            unfinished.unlink(missing_ok=True)
        for member in missing:
            _say_what_is_here(member.module)
            _tidy(member.module)
        return places


def _called_by_go(wanted: Tool) -> str:
    """How `go build` calls a program among several: after the last part of its package that is
    no version.
    """
    parts = wanted.package.split("/")
    return parts[-2] if re.fullmatch(r"v\d+", parts[-1]) else parts[-1]


def _asset(wanted: Tool) -> Path | None:
    if wanted.name not in ASSETS:
        return None
    variable = f"TEST_ASSET_{wanted.name.upper().replace('-', '_')}"
    for name, suffix in ((variable, ""), ("KUBEBUILDER_ASSETS", wanted.name)):
        if value := os.environ.get(name):
            program = Path(value) / suffix if suffix else Path(value)
            if not os.access(program, os.X_OK):
                raise LocalStackError(
                    f"{name}={value}: {program} is not a program; correct the variable or unset it"
                )
            return program.resolve()
    return None


def _on_path(wanted: Tool) -> Path | None:
    program = shutil.which(wanted.name) if wanted.name in QUESTIONS else None
    if program is None:
        return None
    question = [program, *QUESTIONS[wanted.name]]
    try:
        done = subprocess.run(question, capture_output=True, text=True, check=False, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return None
    version = re.search(r"v?(\d+)\.(\d+)\.\d+", done.stdout + done.stderr)
    if version is None:
        return None
    major, minor = int(version[1]), int(version[2])
    right, ours, _ = wanted.module.version
    near = (
        wanted.name != "kubectl" or abs(minor - ours) <= 1
    )  # kubectl's promise is one minor version
    return Path(program) if major == right and near else None


def _cached(wanted: Tool) -> Path | None:
    program = cache() / wanted.module.key / wanted.name
    if not os.access(program, os.X_OK):
        return None
    os.utime(program.parent)  # the sign of use that `_tidy` reads
    return program


@contextmanager
def _only_one(name: str) -> Iterator[None]:
    """A lock that lets this user build once at a time, since two builds want four gigabytes."""
    with (cache() / "build.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"{name}: waiting for a build in another process")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _compile(command: Path, wanted: list[Tool], place: Path, target: Path) -> None:
    """Build one tool into the file `target`, several into the folder of that name."""
    name = _named(wanted)
    seconds = sum(member.seconds for member in wanted)
    usual = f"usually {span(seconds)} on two cores, more where modules have to be fetched"
    versions = ", ".join(f"{member.name} {_version(member.module)}" for member in wanted)
    say(f"{versions}: building once from Go modules ({usual})")
    environment = os.environ | go.ENVIRONMENT
    log = target.with_suffix(".log")
    start = time.monotonic()
    flags, packages = wanted[0].module.flags, [member.package for member in wanted]
    total = progress.to_build(command, flags, packages, place, environment)
    into = str(target) if len(wanted) == 1 else f"{target}{os.sep}"
    with log.open("w+", encoding="utf-8") as output:
        process = subprocess.Popen(
            [str(command), "build", "-v", *flags, "-o", into, *packages],
            cwd=place, env=environment, stdin=subprocess.DEVNULL, stdout=output,
            stderr=subprocess.STDOUT,
        )  # fmt: skip
        try:
            _wait(process, name, seconds, start, log, total)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        last_lines = _last_lines(output)
    log.unlink()
    if process.returncode:
        raise LocalStackError(
            f"{name}: `go build` failed in {place}; its last lines:\n{last_lines}"
        )
    say(f"{versions}: built in {span(time.monotonic() - start)}")


def _named(wanted: list[Tool]) -> str:
    return wanted[0].name if len(wanted) == 1 else f"{len(wanted)} programs"


def _version(module: Module | Published) -> str:
    return ".".join(str(part) for part in module.version)


def _wait(
    process: subprocess.Popen[bytes], name: str, usual: float, start: float, log: Path, total: int
) -> None:
    person = progress.ProgressLine()
    while True:
        try:
            process.wait(person.pause)
        except subprocess.TimeoutExpired:
            done, took = progress.begun(log), time.monotonic() - start
            text = progress.sentence(name, done, total, took, usual)
            person.say(text, progress.share(done, total))
        else:
            person.end()
            return


def _last_lines(output: TextIO, count: int = 20) -> str:
    output.seek(0)
    return "\n".join(output.read().splitlines()[-count:])


def _say_what_is_here(module: Module | Published) -> None:
    """Write a README into the cache, which explains the gigabyte there."""
    text = (
        "Programs of MoFa Advisor's local stack, built by `python -m mofa_local.binaries` from Go "
        "modules.\n"
        f"Module: {module.requires} {_version(module)}\n"
        f"Flags:  {' '.join(module.flags)}\n"
        "This folder may be removed at any time; what is missing is built again when it is "
        "needed.\n"
    )
    (cache() / module.key / "README").write_text(text, encoding="utf-8")


def _tidy(module: Module | Published) -> None:
    """Remove folders of this module's older recipes that nothing has used for a month."""
    ours = re.compile(rf"{re.escape(module.name)}-[0-9a-f]{{12}}")
    others = [
        folder
        for folder in cache().iterdir()
        if ours.fullmatch(folder.name) and folder.name != module.key
    ]
    for folder in others:
        if time.time() - folder.stat().st_mtime > UNUSED:
            shutil.rmtree(folder, ignore_errors=True)


FOR_TESTS: Final = "--for-tests"
"""Asks for what tests start, so that it is built before the first test and no test waits for a
build in another one.
"""


def main(names: list[str]) -> int:
    """Print the path of each named tool, or of all that are not built apart."""
    tools = [name for name, program in TOOLS.items() if not program.apart]
    try:
        if names == [FOR_TESTS]:
            _for_tests(tools)
        else:
            print(*paths(names or tools), sep="\n")
    except MofaError as error:
        print(f"mofa_local: {error}", file=sys.stderr)
        return error.exit_code
    return 0


_BESIDE: Final = "kube-state-metrics"
"""The neighbour that tests start. The others are for `make soak` and `make e2e`, which build what
they need.
"""


def _for_tests(tools: list[str]) -> None:
    """Build what is missing. A neighbour that cannot be fetched is named and left out: its tests
    are skipped then.
    """
    missing = [name for name in (*tools, _BESIDE) if find(name) is None]
    if missing:
        usual = span(sum(tool(name).seconds for name in missing))
        say(f"{len(missing)} programs of the tests are built once: usually {usual} on two cores")
    paths(name for name in missing if name != _BESIDE)
    if _BESIDE in missing:
        try:
            path(_BESIDE)
        except NotFetched as error:
            say(f"{error}; tests that need {_BESIDE} are skipped")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
