"""Install each file of a release as a user would, on this machine, and run README's commands
against what was installed.

    python tools/release_check.py dist

Every line it prints is a thing that was done and held; the first that does not hold ends it with 1.
It needs a package index for dependencies, Go for the tools of the local stack, and podman for the
image; what a machine lacks is said, and is an error.

    checksums          SHA256SUMS fits every file; a signature of a throw-away key is made and
                       verified
    packages           from the folder of files, into an environment of its own; README's commands;
                       the source makes the same wheel
    clone              README's line that installs, in the unpacked source
    without a network  from a folder of wheels, in a network namespace that has nothing
    plugin             the archive that krew installs: set up by itself, called through a link as
                       krew calls it
    image              pushed to a registry on loopback under the digest that the chart names,
                       pulled, and asked without a network
    chart              pushed to the same registry, installed on a real API server; the operator of
                       the pulled image advises README's job
    removal            nothing of the chart is left but what it says that it leaves
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [
    str(ROOT / "deploy" / "local"),
    str(ROOT / "tools"),
    str(ROOT / "operator"),
    str(ROOT),
]

import publish  # noqa: E402
from dist import run  # noqa: E402
from mofa_local import LocalStackError, binaries, images, ports  # noqa: E402
from mofa_local.cluster import Cluster  # noqa: E402
from mofa_local.control_plane import ControlPlane  # noqa: E402
from mofa_local.processes import Processes, answers  # noqa: E402
from studies import commands  # noqa: E402

QUESTION = ("--model=llama3.1-8b", "--gpus=16", "--gpu=h100", "--global-batch=64", "--seq=4096")
CONFINED = (
    "--rm",
    "--network=none",
    "--memory=512m",
    "--read-only",
    "--tmpfs=/tmp",
    "--cap-drop=all",
)
HOME = "mofa-system"
EXAMPLES = ("examples/h100-east.yaml", "examples/llama3-405b.yaml")


def fail(message: str) -> NoReturn:
    """Exit with one line of error."""
    sys.exit(f"release-check: {message}")


def say(what: str, result: str) -> None:
    """Print one line of what held."""
    print(f"{what:18s} {result}", flush=True)


def only(folder: Path, pattern: str) -> Path:
    """The one file of that name."""
    files = sorted(folder.glob(pattern))
    if len(files) != 1:
        fail(f"{folder}: {len(files)} files named {pattern}, not one; make it with `make release`")
    return files[0]


def environment(folder: Path) -> Path:
    """Make an environment; returns its Python."""
    run(sys.executable, "-m", "venv", folder)
    return folder / "bin" / "python"


def checksums(dist: Path, work: Path) -> None:
    """Each file is what SHA256SUMS says, and a signature can be made and verified."""
    output = run("sha256sum", "--check", "--strict", "SHA256SUMS", folder=dist)
    say("checksums", f"{output.count(': OK')} files")
    cosign = shutil.which("cosign") or binaries.path("cosign")
    key = {"COSIGN_PASSWORD": ""}
    run(cosign, "generate-key-pair", "--output-key-prefix", work / "key", **key)
    local = ("--use-signing-config=false", "--tlog-upload=false")
    verify = ("verify-blob", "--key", work / "key.pub", "--insecure-ignore-tlog=true")
    bundle = work / "sums.sigstore.json"
    sums = dist / "SHA256SUMS"
    run(
        cosign,
        "sign-blob",
        "--yes",
        "--key",
        work / "key.key",
        *local,
        "--bundle",
        bundle,
        sums,
        **key,
    )
    run(cosign, *verify, "--bundle", bundle, sums)
    changed = work / "SHA256SUMS"
    changed.write_text(sums.read_text("utf-8").replace("a", "b", 1), encoding="utf-8")
    refused = subprocess.run(
        [str(word) for word in (cosign, *verify, "--bundle", bundle, changed)],
        capture_output=True, check=False,
    )  # fmt: skip
    if not refused.returncode:
        fail("cosign verifies a file that was changed")
    say("signature", "made with a throw-away key, verified; of a changed file refused")


def packages(dist: Path, work: Path) -> None:
    """The wheel from the folder of files, README's commands, and the source."""
    python = environment(work / "installed")
    version = re.findall(r"mofa_advisor-(.+)-py3", only(dist, "mofa_advisor-*.whl").name)[0]
    wanted = f"mofa-advisor[plot,operator]=={version}"
    run(python, "-m", "pip", "install", "--quiet", "--find-links", dist, wanted)
    desk = work / "desk"
    shutil.copytree(ROOT / "examples", desk / "examples")
    mofa = python.parent / "mofa"
    asked = commands((ROOT / "README.md").read_text(encoding="utf-8"))
    for words in asked:
        if not run(mofa, *words, folder=desk).strip():
            fail(f"mofa {' '.join(words)} prints nothing")
    say("packages", f"installed from {dist.name}; {len(asked)} commands of README answer")
    made = work / "from-source"
    run(
        python,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--wheel-dir",
        made,
        only(dist, "mofa_advisor-*.tar.gz"),
    )
    held = [
        {
            member.filename: member.CRC
            for member in zipfile.ZipFile(only(at, "mofa_advisor-*.whl")).infolist()
        }
        for at in (dist, made)
    ]
    if held[0] != held[1]:
        fail(
            "the wheel of the source differs in "
            f"{sorted(set(held[0].items()) ^ set(held[1].items()))[:5]}"
        )
    say("source", f"makes the same wheel, {len(held[0])} files")
    with tarfile.open(only(dist, "mofa_advisor-[0-9]*.tar.gz")) as source:
        source.extractall(work / "clone", filter="data")
    (clone,) = (work / "clone").iterdir()
    line = re.search(r"(?m)^    pip install (.+)$", (ROOT / "README.md").read_text("utf-8"))
    if line is None:
        fail("README.md has no line `pip install …`")
    own = environment(work / "of-clone")
    run(own, "-m", "pip", "install", "--quiet", *shlex.split(line[1]), folder=clone)
    run(own.parent / "mofa", *asked[0], folder=desk)
    say("clone", f"`pip install {line[1]}` in the source installs, and answers")


def without_network(dist: Path, work: Path) -> None:
    """Install as on a machine without a network: from one folder of wheels, without an index."""
    wheels = work / "wheels"
    lock = ROOT / "requirements" / "operator.txt"
    run(
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--require-hashes",
        "--only-binary",
        ":all:",
        "--dest",
        wheels,
        "-r",
        lock,
    )
    shutil.copy(only(dist, "mofa_advisor-*.whl"), wheels)
    python = environment(work / "alone")
    alone = ("unshare", "--net", "--map-root-user")
    run(
        *alone,
        python,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-index",
        "--find-links",
        wheels,
        "mofa-advisor[operator]",
    )
    answer = json.loads(run(*alone, python.parent / "mofa", "advise", *QUESTION, "-o", "json"))
    say(
        "without a network",
        f"{len(list(wheels.iterdir()))} wheels installed; an answer of {len(answer)} parts",
    )


def plugin(dist: Path, work: Path) -> None:
    """What krew unpacks, called through a link, sets itself up and answers kubectl."""
    home, links = work / "krew" / "store", work / "krew" / "bin"
    archive = only(dist, "kubectl-mofa-*.tar.gz")
    with tarfile.open(archive) as held:
        held.extractall(home, filter="data")
    links.mkdir(parents=True)
    (links / "kubectl-mofa").symlink_to(home / "kubectl-mofa")
    path = {"PATH": f"{links}:{os.environ['PATH']}"}
    kubectl = binaries.path("kubectl")
    first = run(kubectl, "mofa", "--version", **path)
    listed = run(kubectl, "plugin", "list", **path)
    if "kubectl-mofa" not in listed:
        fail(f"kubectl does not list the plugin: {listed}")
    manifest = (dist / "krew.yaml").read_text(encoding="utf-8")
    stated = re.findall(r"sha256: ([0-9a-f]{64})", manifest)
    summed = run("sha256sum", archive).split()[0]
    if stated != [summed]:
        fail(f"krew.yaml names {stated}, and the archive is {summed}")
    say("plugin", f"kubectl mofa --version: {first.strip()}")


def registry(processes: Processes, work: Path) -> str:
    """A registry on loopback, empty; its address."""
    port = ports.free_ports(1)[0]
    settings = work / "registry.yaml"
    settings.write_text(
        json.dumps(
            {
                "version": 0.1,
                "storage": {"filesystem": {"rootdirectory": str(work / "registry")}},
                "http": {"addr": f"127.0.0.1:{port}"},
            }
        ),
        encoding="utf-8",
    )
    processes.start(
        "registry",
        [str(binaries.path("registry")), "serve", str(settings)],
        ready=answers(f"http://127.0.0.1:{port}/v2/"),
        deadline=60.0,
    )
    return f"127.0.0.1:{port}"


def image(dist: Path, address: str, version: str) -> str:
    """Push, pull and ask the image; the name of what was pulled."""
    sent = publish.send_image(dist, address, version, plain_http=True)
    raw = run("skopeo", "inspect", "--raw", "--tls-verify=false", f"docker://{sent}")
    platforms = [manifest["platform"]["architecture"] for manifest in json.loads(raw)["manifests"]]
    images.podman("pull", "--quiet", "--tls-verify=false", sent)
    answer = json.loads(
        images.podman("run", *CONFINED, sent, "advise", *QUESTION, "-o", "json").stdout
    )
    say(
        "image",
        f"{', '.join(platforms)}; pulled by its digest, an answer of {len(answer)} parts without a "
        "network",
    )
    return sent


def wait(what: str, there: Callable[[], Any], seconds: float = 120.0) -> Any:
    """Ask `there` until it returns something, and return that; after `seconds` the check fails."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if answer := there():
            return answer
        time.sleep(0.5)
    return fail(f"{what}: not after {seconds:.0f} s")


def chart(dist: Path, work: Path, address: str, name: str, version: str) -> None:
    """Install the chart from the registry, let the pulled image's operator advise, and
    remove it.
    """
    helm = shutil.which("helm") or binaries.path("helm")
    publish.send_chart(dist, address, plain_http=True)
    with (
        Processes(work / "processes") as processes,
        ControlPlane(work / "plane", processes) as cluster,
    ):
        place = (f"--namespace={HOME}", f"--kubeconfig={cluster.kubeconfig}")
        run(
            helm, "install", "mofa-advisor", f"oci://{address}/charts/mofa-advisor", "--plain-http",
            f"--version={version}", "--create-namespace",
            f"--set=image.repository={address}/mofa-advisor", *place,
        )  # fmt: skip
        deployed = json.loads(cluster.kubectl("get", "deployment", "-n", HOME, "-o", "json"))
        asked = deployed["items"][0]["spec"]["template"]["spec"]["containers"][0]["image"]
        if not asked.startswith(f"{address}/mofa-advisor"):
            fail(f"the Deployment asks for {asked}")
        say(
            "chart",
            f"installed from the registry on a real API server; its Deployment asks for {asked}",
        )
        advise(cluster, processes, work, name)
        run(helm, "uninstall", "mofa-advisor", *place)
        kinds = "deployment,service,serviceaccount,configmap,role,rolebinding,networkpolicy"
        named = cluster.kubectl(
            "get", kinds, "-n", HOME, "-l", "app.kubernetes.io/instance=mofa-advisor", "-o", "name"
        )
        whole = (
            "clusterrole,clusterrolebinding,"
            "validatingadmissionpolicy,validatingadmissionpolicybinding"
        )
        named += cluster.kubectl(
            "get", whole, "-l", "app.kubernetes.io/instance=mofa-advisor", "-o", "name"
        )
        if named.split():
            fail(f"helm uninstall leaves {', '.join(named.split())}")
        say("removal", "nothing is left but the definitions, which people's objects need")


def advise(cluster: Cluster, processes: Processes, work: Path, name: str) -> None:
    """The operator in the container of the pulled image, under the account and the rights of the
    chart, advises README's job.
    """
    access = work / "kubeconfig"
    account = cluster.identity("advisor", service_account=f"{HOME}/mofa-advisor")
    access.write_text(account.read_text("utf-8"), encoding="utf-8")
    access.chmod(0o644)  # the container's user is none of this machine
    for example in EXAMPLES:
        if (ROOT / example).exists():
            cluster.kubectl("apply", "-f", ROOT / example)
    health = ports.free_ports(2)
    words = images.command(
        "run", "--rm", "--network=host", "--memory=512m", "--read-only", "--tmpfs=/tmp",
        "--cap-drop=all",
        f"--volume={access}:{access}:ro", name, "operator", f"--kubeconfig={access}",
        "--address=127.0.0.1",
        f"--metrics-port={health[0]}", f"--health-port={health[1]}", "--settle=1",
    )  # fmt: skip
    processes.start(
        "operator", words, ready=answers(f"http://127.0.0.1:{health[1]}/readyz"), deadline=120.0
    )

    def advised() -> list[str]:
        jobs = json.loads(cluster.kubectl("get", "trainingjobs", "-A", "-o", "json"))["items"]
        return [
            job["metadata"]["annotations"]["advisor.mofa.dev/strategy"]
            for job in jobs
            if "advisor.mofa.dev/strategy" in job["metadata"].get("annotations", {})
        ]

    say("operator", f"in a container of the pulled image: {wait('advice', advised)[0]}")
    processes.stop("operator", grace=30.0)


def main(given: Sequence[str]) -> int:
    """Check the release in the folder that is given."""
    if len(given) != 1 or not Path(given[0]).is_dir():
        fail("give the folder that `make release` made")
    dist = Path(given[0]).resolve()
    version = re.findall(r"mofa_advisor-(.+)-py3", only(dist, "mofa_advisor-*.whl").name)[0]
    with tempfile.TemporaryDirectory(prefix="mofa-release-check-") as folder:
        work = Path(folder)
        try:
            checksums(dist, work)
            packages(dist, work)
            without_network(dist, work)
            plugin(dist, work)
            with Processes(work / "services") as processes:
                address = registry(processes, work)
                name = image(dist, address, version)
                chart(dist, work, address, name, version)
        except LocalStackError as error:
            fail(str(error))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
