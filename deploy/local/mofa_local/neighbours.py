"""The neighbours: controllers of other projects that run beside the operator, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from mofa_local import LocalStackError
from mofa_local.modules import Tool
from mofa_local.published import Published


@dataclass(frozen=True, kw_only=True, slots=True)
class Neighbour:
    """A controller, and how it is told where to listen; `{health}`, `{webhook}`, `{metrics}` and
    `{certs}` stand for ports and a folder.
    """

    tool: Tool
    """The program."""
    needs: tuple[str, ...] = ()
    """Neighbours that have to be there before it."""
    config: Mapping[str, Any] = field(default_factory=dict)
    """What is written over its own configuration file; empty = it reads none."""
    flags: tuple[str, ...] = ()
    """Its flags."""
    ready: str = "http://127.0.0.1:{health}/readyz"
    """Path by which it reports that it is ready."""
    mounts: str = "{certs}"
    """The folder in which it looks for the certificate that it makes itself."""
    without: tuple[str, ...] = ()
    """Definitions of its project that are another neighbour's here."""
    rotates: bool = False
    """Whether it makes its webhooks' certificate itself, and waits until its Secret is mounted."""


def _neighbour(
    name: str,
    module: tuple[str, str, str],
    package: str,
    seconds: float,
    *,
    go: tuple[int, int],
    installs: tuple[str, ...],
    namespace: str = "",
    **more: Any,
) -> Neighbour:
    requires, release, checksum = module
    published = Published(
        name=name,
        requires=requires,
        release=release,
        sum=checksum,
        go=go,
        installs=installs,
        namespace=namespace,
    )
    return Neighbour(
        tool=Tool(name=name, module=published, package=package, seconds=seconds), **more
    )


_WEBHOOK: Final = {"host": "127.0.0.1", "port": "{webhook}"}
_MOUNTED: Final = _WEBHOOK | {"certDir": "{certs}"}
"""For those that look for their certificate in one place, wherever temporary files are."""
_LISTENS: Final = {
    "health": {"healthProbeBindAddress": "127.0.0.1:{health}"},
    "metrics": {"bindAddress": "0"},
    "webhook": _WEBHOOK,
    "leaderElection": {"leaderElect": False},  # another one starts at once
}
_GIVEN: Final = {"internalCertManagement": {"enable": False}}
_CONFIG: Final = ("--config={config}", "--zap-log-level=info")

NEIGHBOURS: Final[Mapping[str, Neighbour]] = MappingProxyType(
    {
        neighbour.tool.name: neighbour
        for neighbour in (
            _neighbour(
                "kube-state-metrics",
                ("k8s.io/kube-state-metrics/v2", "v2.20.0",
                    "h1:edO7hyGs1MqZhbUbzWW1YRTV3afZOIbvHNvOCaJjuU4="),
                ".", 56, go=(1, 26), installs=("examples/standard",),
                flags=(
                    "--host=127.0.0.1", "--port={metrics}", "--telemetry-host=127.0.0.1",
                    "--telemetry-port={health}", "--kubeconfig={kubeconfig}",
                    "--resources=nodes,pods",
                    "--metric-labels-allowlist=nodes=[*],pods=[*]",
                ),
                ready="http://127.0.0.1:{metrics}/healthz",
            ),
            _neighbour(
                "jobset",
                ("sigs.k8s.io/jobset", "v0.11.0",
                    "h1:1r2uTNQmylnqG/WCSSDADgNkHryvyUaCNCOgvSPWpN8="),
                ".", 74, go=(1, 25), installs=("config/default",), config=_LISTENS | _GIVEN,
                flags=_CONFIG,
            ),
            _neighbour(
                "jobset-0.10",  # the release before
                ("sigs.k8s.io/jobset", "v0.10.1",
                    "h1:u8QKifNsrWVrlRFe6w2ofYTqFT9ma2DRHxfeB2m9xyU="),
                ".", 74, go=(1, 24), installs=("config/default",), config=_LISTENS | _GIVEN,
                flags=_CONFIG,
            ),
            _neighbour(
                "kueue",
                ("sigs.k8s.io/kueue", "v0.15.0", "h1:9Khzc2ne6/eWuZx5o+R4KlVBzh3kZkTIMzpPC2e8Spg="),
                "./cmd/kueue", 134, go=(1, 25), installs=("config/default",),
                config=_LISTENS | {"webhook": _MOUNTED,
                    "featureGates": {"VisibilityOnDemand": False}},
                flags=_CONFIG, rotates=True,
            ),
            _neighbour(
                "trainer",
                ("github.com/kubeflow/trainer/v2", "v2.1.0",
                    "h1:jRABD9ZYToamNH2atHze3L/VC/v6KCAqUEqsOQOjVTg="),
                "./cmd/trainer-controller-manager", 100, go=(1, 24), namespace="kubeflow-system",
                installs=tuple(f"manifests/base/{part}" for part in ("crds", "manager", "rbac",
                    "webhook")),
                config=_LISTENS | {"certManagement": {"enable": False}}, flags=_CONFIG,
                needs=("jobset",),
            ),
            _neighbour(
                "trainer-2.2",  # has runtimePatches, which Kueue does not know yet
                ("github.com/kubeflow/trainer/v2", "v2.2.1",
                    "h1:GsM80cgxnLnd8j8+lrX/Dpcvw7DYqpxkL0ni4XA/U7Y="),
                "./cmd/trainer-controller-manager", 100, go=(1, 24), namespace="kubeflow-system",
                installs=tuple(f"manifests/base/{part}" for part in ("crds", "manager", "rbac",
                    "webhook")),
                config=_LISTENS | {"certManagement": {"enable": False}}, flags=_CONFIG,
                needs=("jobset",),
            ),
            _neighbour(
                "training-operator",
                ("github.com/kubeflow/training-operator", "v1.8.1",
                    "h1:mVvoBSCInbMBX0gGSn4+Ihj3ycwoLO1iEAw+0qPhQfc="),
                "./cmd/training-operator.v1", 73, go=(1, 22),
                installs=("manifests/overlays/standalone",),
                flags=(
                    "--metrics-bind-address=127.0.0.1:{metrics}",
                    "--health-probe-bind-address=127.0.0.1:{health}",
                    "--webhook-server-port={webhook}", "--enable-scheme=pytorchjob",
                ),
                rotates=True,
                mounts="/tmp/k8s-webhook-server/serving-certs",  # noqa: S108 - its own constant
                without=("mpijobs.kubeflow.org",),
            ),
            _neighbour(
                "kuberay",
                ("github.com/ray-project/kuberay/ray-operator", "v1.4.2",
                    "h1:A4tGzbIky8sInAUxZBdBb+rrpZ7fbqoxdsOtm559Zqg="),
                ".", 68, go=(1, 24), installs=("config/default",),
                flags=(
                    "--metrics-addr=127.0.0.1:{metrics}",
                    "--health-probe-bind-address=127.0.0.1:{health}",
                    "--enable-leader-election=false", "--use-kubernetes-proxy=true",
                ),
            ),
            _neighbour(
                "kuberay-1.5",  # the release after
                ("github.com/ray-project/kuberay/ray-operator", "v1.5.0",
                    "h1:KCjCQ7PSsvs9Ke+90CZbbs498nuaIJ/JkXk4vd54EVg="),
                ".", 68, go=(1, 24), installs=("config/default",),
                flags=(
                    "--metrics-addr=127.0.0.1:{metrics}",
                    "--health-probe-bind-address=127.0.0.1:{health}",
                    "--enable-leader-election=false", "--use-kubernetes-proxy=true",
                ),
            ),
            _neighbour(
                "leaderworkerset",
                ("sigs.k8s.io/lws", "v0.7.0", "h1:qWfzX8+UBak+Hq0+m/PuE3uO0mp/3dmm5q/h/7z31A8="),
                "./cmd", 75, go=(1, 24), installs=("config/default",), flags=_CONFIG,
                config=_LISTENS | _GIVEN | {"webhook": _MOUNTED},
            ),
            _neighbour(
                "mpi-operator",
                ("github.com/kubeflow/mpi-operator", "v0.6.0",
                    "h1:RzzG03oyQIiHe/SH2k19N+Hp4QkxEsG2l9G1T7US+ys="),
                "./cmd/mpi-operator", 81, go=(1, 23), installs=("manifests/overlays/standalone",),
                flags=("-kubeConfig={kubeconfig}", "-monitoring-port={metrics}",
                    "-lock-namespace=mpi-operator"),
                ready="http://127.0.0.1:{metrics}/metrics",
            ),
        )
    }
)  # fmt: skip
"""In the order in which they start."""


def chosen(names: tuple[str, ...]) -> list[Neighbour]:
    """Neighbours by name, each after what it needs.

    >>> [one.tool.name for one in chosen(("trainer",))]
    ['jobset', 'trainer']
    """
    unknown = [name for name in names if name not in NEIGHBOURS]
    if unknown:
        raise LocalStackError(
            f"neighbours: {', '.join(unknown)}: {', '.join(NEIGHBOURS)} would be right"
        )
    wanted = {*names, *(need for name in names for need in NEIGHBOURS[name].needs)}
    return [neighbour for name, neighbour in NEIGHBOURS.items() if name in wanted]
