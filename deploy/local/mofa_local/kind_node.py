"""An image for kind's nodes where no registry can be reached: Debian, kind's own files, and
programs that were built here.

kind brings the entrypoint, the units of systemd and the configuration; containerd, runc and CNI
plug-ins are Debian's; kubeadm, kubelet, kubectl and what the control plane's pods run are built
from their Go modules. There is no kube-proxy and no plug-in of kind's for the network: pods get
addresses of a bridge, and the suite that runs here has no pods of its own.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path
from typing import Any, Final

from mofa_local import LocalStackError, binaries, go, images
from mofa_local.modules import MODULES
from mofa_local.real import archives

PACKAGES: Final = (
    "systemd", "systemd-sysv", "dbus", "iptables", "iproute2", "containerd", "runc",
    "containernetworking-plugins", "conntrack",
    "kmod", "mount", "procps", "ethtool", "socat", "ebtables", "hostname", "jq", "rsync",
    "ca-certificates",
)  # fmt: skip
PROGRAMS: Final = ("kubelet", "kubeadm", "kubectl")
NETWORK: Final[dict[str, Any]] = {
    "cniVersion": "1.0.0",
    "name": "mofa",
    "plugins": [
        {
            "type": "bridge",
            "bridge": "mofa0",
            "isGateway": True,
            "ipMasq": True,
            "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.244.0.0/24"}]],
                "routes": [{"dst": "0.0.0.0/0"}]},
        }
    ],
}  # fmt: skip
STORAGE: Final = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "StorageClass",
    "metadata": {"name": "standard"},
    "provisioner": "kubernetes.io/no-provisioner",
}
"""kind installs what stands in this file, and an empty one is an error to it."""
CONTAINERD: Final = """\
version = 2
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause}"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
"""
LOADING: Final = """\
[Unit]
After=containerd.service
Requires=containerd.service
Before=kubelet.service
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/sh -c 'for one in /kind/images/*.tar; \
do ctr --namespace k8s.io images import $one; done'
[Install]
WantedBy=multi-user.target
"""
DOCKERFILE: Final = """\
FROM {base}
COPY root/ /
RUN chmod +x /usr/local/bin/* /kind/bin/* \
    && sed -i 's#/usr/local/bin/containerd#/usr/bin/containerd#' \
/etc/systemd/system/containerd.service \
    && systemctl enable containerd kubelet load \
&& systemctl mask getty.target systemd-logind && : > /etc/machine-id
ENV container=podman
STOPSIGNAL SIGRTMIN+3
ENTRYPOINT ["/usr/local/bin/entrypoint", "/sbin/init"]
"""


def node_image() -> str:
    """The name of the image; made in two minutes where there is none yet."""
    images.require()
    keys = [binaries.tool(name).module.key for name in (*PROGRAMS, "etcd", "coredns", "kind")]
    recipe = repr((keys, PACKAGES, NETWORK, STORAGE, CONTAINERD, LOADING, DOCKERFILE))
    name = f"localhost/mofa-kind-node:{hashlib.sha256(recipe.encode()).hexdigest()[:12]}"
    if images.podman("image", "exists", name, check=False).returncode:
        with tempfile.TemporaryDirectory(prefix="mofa-kind-") as folder:
            _build(name, Path(folder))
    return name


def _build(name: str, folder: Path) -> None:
    base, root = f"{name}-base", folder / "root"
    packages = f"--include={','.join(PACKAGES)}"
    _run(
        "mmdebstrap",
        "--quiet",
        "--format=tar",
        "--variant=minbase",
        packages,
        images.SUITE,
        folder / "base.tar",
    )
    images.podman("import", str(folder / "base.tar"), base)
    shutil.copytree(_published() / "images" / "base" / "files", root)
    for path in (root, *root.rglob("*")):
        path.chmod(path.stat().st_mode | 0o200)
    (root / "usr" / "bin").mkdir(parents=True, exist_ok=True)
    for program in PROGRAMS:
        shutil.copy(binaries.path(program), root / "usr" / "bin" / program)
    version = ".".join(str(part) for part in MODULES["kubernetes"].version)
    wanted = _run(
        binaries.path("kubeadm"), "config", "images", "list", f"--kubernetes-version=v{version}"
    ).split()
    pause = next(image for image in wanted if "/pause:" in image)
    _preload(wanted, root / "kind" / "images")
    for place, text in {
        "etc/containerd/config.toml": CONTAINERD.format(pause=pause),
        "etc/cni/net.d/10-mofa.conflist": json.dumps(NETWORK),
        "etc/systemd/system/load.service": LOADING,
        "kind/version": f"v{version}\n",
        "kind/manifests/default-storage.yaml": json.dumps(STORAGE),
    }.items():
        (root / place).parent.mkdir(parents=True, exist_ok=True)
        (root / place).write_text(text, encoding="utf-8")
    (folder / "Dockerfile").write_text(DOCKERFILE.format(base=base), encoding="utf-8")
    images.podman("build", "-t", name, str(folder))


def _preload(wanted: list[str], folder: Path) -> None:
    """What the control plane's pods are made of, as images of one program each, under the names
    that kubeadm has for them.
    """
    folder.mkdir(parents=True)
    layer = folder / "layer"
    for name in wanted:
        program = name.rpartition("/")[2].partition(":")[0]
        if program == "kube-proxy":  # it needs more than itself, and is not asked for
            continue
        if program == "pause":
            shutil.copy(archives.pause_image(name), folder / "pause.tar")
            continue
        with tarfile.open(layer, "w") as tar:
            tar.add(binaries.path(program), f"usr/local/bin/{program}")
        archives.image(
            folder / f"{program}.tar",
            name,
            [layer],
            {"Env": ["PATH=/usr/local/bin"], "Entrypoint": [program]},
        )
    layer.unlink()


def _published() -> Path:
    """The folder of kind's module, which brings the files of its images."""
    module = MODULES["kind"]
    command = (
        go.find(module.go, binaries.cache()),
        "list",
        "-m",
        "-f",
        "{{.Dir}}",
        module.requires,
    )
    return Path(_run(*command, folder=module.path).strip())


def _run(*command: str | Path, folder: Path | None = None) -> str:
    done = subprocess.run(
        [str(word) for word in command], cwd=folder, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise LocalStackError(f"{command[0]}: {done.stderr.strip()[-500:]}")
    return done.stdout
