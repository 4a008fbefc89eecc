"""Who speaks of nodes, devices and other people's pods, where an administrator names nobody."""

from typing import Final

EXPORTERS: Final = (
    "amazon-cloudwatch", "cattle-monitoring-system", "gke-managed-cim", "gke-managed-system", "gmp-public", "gmp-system", "gpu-operator",
    "kube-prometheus-stack", "kube-system", "monitoring", "node-problem-detector", "nvidia-gpu-operator", "nvsentinel", "observability",
    "openshift-monitoring", "openshift-nfd", "prometheus", "prometheus-operator",
)  # fmt: skip
"""Namespaces in which exporters of a cluster usually run, and its tenants do not."""
