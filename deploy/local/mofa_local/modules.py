"""The tools of the local stack as data: which Go module each is built from, and how.

Versions are read from the modules' own go.mod files and stand nowhere else.
"""

from __future__ import annotations

import hashlib
import platform
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

from mofa_local import LocalStackError
from mofa_local.go import FLAGS
from mofa_local.published import Published
from mofa_model.errors import UnknownName

FOLDER: Final = Path(__file__).resolve().parent.parent
"""Where the folders with go.mod and go.sum lie."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Module:
    """A Go module whose programs are built, and the folder of `deploy/local` that pins
    its version.
    """

    name: str
    """Name of the module here."""
    folder: str
    """The folder with go.mod and go.sum."""
    requires: str
    """Path of the module whose version counts."""
    stamps: tuple[tuple[str, str], ...] = ()
    """Variables that the linker sets, and their text; `{version}`, `{major}` and `{minor}` stand
    for the version's.
    """
    tags: tuple[str, ...] = ()
    """Build tags."""

    @property
    def path(self) -> Path:
        """Path of the folder."""
        return FOLDER / self.folder

    @property
    def version(self) -> tuple[int, int, int]:
        """The version in go.mod, as the program calls itself.

        >>> MODULES["prometheus"].version[0]
        3
        """
        match = re.search(
            rf"^\s*(?:require )?{re.escape(self.requires)} v(\d+)\.(\d+)\.(\d+)",
            self._go_mod(),
            re.MULTILINE,
        )
        if match is None:
            raise LocalStackError(f"{self.path / 'go.mod'}: no requirement of {self.requires}")
        major, minor, patch = (int(part) for part in match.groups())
        # Prometheus 3.13.5 is the Go module v0.313.5: a module of major version 3 would need
        # another path.
        return (
            (minor // 100, minor % 100, patch)
            if major == 0 and minor >= 100
            else (major, minor, patch)
        )

    @property
    def go(self) -> tuple[int, int]:
        """The oldest Go that builds the module, from go.mod."""
        match = re.search(r"^go (\d+)\.(\d+)", self._go_mod(), re.MULTILINE)
        if match is None:
            raise LocalStackError(f"{self.path / 'go.mod'}: no line `go 1.x`")
        return int(match[1]), int(match[2])

    @property
    def flags(self) -> tuple[str, ...]:
        """The flags of `go build`: the same for all modules of a folder, so that their tools can be
        built at once.
        """
        beside = [module for module in MODULES.values() if module.folder == self.folder]
        tags = sorted({tag for module in beside for tag in module.tags})
        stamps = [stamp for module in beside for stamp in module.stamped()]
        named = ("-tags", ",".join(tags)) if tags else ()
        return (*FLAGS, *named, "-ldflags", " ".join(["-s", "-w", *stamps]))

    def stamped(self) -> list[str]:
        """What the linker is told of this module's version; a program without these variables takes
        no notice.
        """
        major, minor, patch = self.version
        words = {"version": f"{major}.{minor}.{patch}", "major": major, "minor": minor}
        return [f"-X {variable}={text.format(**words)}" for variable, text in self.stamps]

    @property
    def key(self) -> str:
        """Its name and a hash of all that decides what the binaries do: module files, flags,
        machine.

        The version of Go is not in it: another patch release of the toolchain is no reason to build
        for minutes.
        """
        digest = hashlib.sha256()
        for part in (
            *((self.path / name).read_bytes() for name in ("go.mod", "go.sum")),
            "\0".join(self.flags).encode(),
            f"{platform.system()} {platform.machine()}".encode(),
        ):
            digest.update(len(part).to_bytes(8, "big") + part)
        return f"{self.name}-{digest.hexdigest()[:12]}"

    @contextmanager
    def source(self, go: Path, kept: Path, kubectl: Path | None) -> Iterator[Path]:
        """The folder in which the module is built: its own."""
        del go, kept, kubectl
        yield self.path

    def _go_mod(self) -> str:
        return (self.path / "go.mod").read_text(encoding="utf-8")


@dataclass(frozen=True, kw_only=True, slots=True)
class Tool:
    """A program of the local stack."""

    name: str
    """Name of the program."""
    module: Module | Published
    """Module that it is built from."""
    package: str
    """Go package with its `main`."""
    seconds: float
    """Usual time of a build on two cores with a full module cache, told to whoever waits. [s]"""
    apart: bool = False
    """Whether it is built only on request."""


STACK: Final = "stack"
"""The folder of what `make up` runs, of a real node's programs and of Helm: packages that they
share are compiled once.
"""

MODULES: Final[Mapping[str, Module]] = MappingProxyType(
    {
        module.name: module
        for module in (
            Module(name="etcd", folder=STACK, requires="go.etcd.io/etcd/server/v3"),
            Module(
                name="kubernetes",
                folder=STACK,
                requires="k8s.io/kubernetes",
                stamps=(
                    ("k8s.io/component-base/version.gitVersion", "v{version}"),
                    ("k8s.io/component-base/version.gitMajor", "{major}"),
                    ("k8s.io/component-base/version.gitMinor", "{minor}"),
                ),
            ),
            Module(
                name="prometheus",
                folder=STACK,
                requires="github.com/prometheus/prometheus",
                stamps=(("github.com/prometheus/common/version.Version", "{version}"),),
                tags=(
                    "remove_all_sd",
                ),  # static targets and files stay; the clouds' clients halve the build
            ),
            Module(name="kwok", folder=STACK, requires="sigs.k8s.io/kwok"),
            Module(
                name="helm",
                folder=STACK,
                requires="helm.sh/helm/v3",
                stamps=(("helm.sh/helm/v3/internal/version.version", "v{version}"),),
            ),
            *(
                Module(name=name, folder=name, requires=requires)
                for name, requires in (
                    ("kube-score", "github.com/zegl/kube-score"),
                    ("kind", "sigs.k8s.io/kind"),
                    ("coredns", "github.com/coredns/coredns"),
                    ("kustomize", "sigs.k8s.io/kustomize/kustomize/v5"),
                    ("registry", "github.com/distribution/distribution/v3"),
                    ("cosign", "github.com/sigstore/cosign/v3"),
                )
            ),
        )
    }
)


def _tool(name: str, module: str, package: str, seconds: float, *, apart: bool = False) -> Tool:
    return Tool(name=name, module=MODULES[module], package=package, seconds=seconds, apart=apart)


TOOLS: Final[Mapping[str, Tool]] = MappingProxyType(
    {
        tool.name: tool
        for tool in (
            _tool("etcd", "etcd", "go.etcd.io/etcd/server/v3", 55),
            _tool("kube-apiserver", "kubernetes", "k8s.io/kubernetes/cmd/kube-apiserver", 225),
            _tool("kubectl", "kubernetes", "k8s.io/kubernetes/cmd/kubectl", 30),
            _tool(
                "kube-controller-manager",
                "kubernetes",
                "k8s.io/kubernetes/cmd/kube-controller-manager",
                70,
            ),
            _tool("kube-scheduler", "kubernetes", "k8s.io/kubernetes/cmd/kube-scheduler", 6),
            _tool(
                "prometheus", "prometheus", "github.com/prometheus/prometheus/cmd/prometheus", 120
            ),
            _tool("promtool", "prometheus", "github.com/prometheus/prometheus/cmd/promtool", 20),
            _tool("kwok", "kwok", "sigs.k8s.io/kwok/cmd/kwok", 10),
            _tool("helm", "helm", "helm.sh/helm/v3/cmd/helm", 30),
            _tool("kube-score", "kube-score", "github.com/zegl/kube-score/cmd/kube-score", 30),
            _tool("kustomize", "kustomize", "sigs.k8s.io/kustomize/kustomize/v5", 20),
            _tool(
                "registry",
                "registry",
                "github.com/distribution/distribution/v3/cmd/registry",
                60,
                apart=True,
            ),
            _tool("cosign", "cosign", "github.com/sigstore/cosign/v3/cmd/cosign", 200, apart=True),
            _tool("kubelet", "kubernetes", "k8s.io/kubernetes/cmd/kubelet", 45, apart=True),
            _tool("kubeadm", "kubernetes", "k8s.io/kubernetes/cmd/kubeadm", 20, apart=True),
            _tool("kind", "kind", "sigs.k8s.io/kind", 10, apart=True),
            _tool("coredns", "coredns", "github.com/coredns/coredns", 100, apart=True),
            _tool("kube-proxy", "kubernetes", "k8s.io/kubernetes/cmd/kube-proxy", 20, apart=True),
        )
    }
)
"""In the order in which a person who asks for all of them gets them."""


def tool(name: str) -> Tool:
    """The tool of that name.

    >>> tool("promtool").module.name
    'prometheus'
    """
    try:
        return TOOLS[name]
    except KeyError:
        raise UnknownName("tool", name, TOOLS) from None
