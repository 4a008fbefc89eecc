"""The chart as helm renders it, and the sets of values that tests render it with."""

import json
import os
import re
import subprocess
from functools import cache
from pathlib import Path

import yaml
from mofa_local import binaries

ROOT = Path(__file__).resolve().parent.parent
CHART = ROOT / "charts" / "mofa-advisor"
RELEASE, HOME = "mofa-advisor", "mofa-system"
VERSION = ".".join(str(part) for part in binaries.tool("kubectl").module.version[:2])
"""Of Kubernetes; our helm is built without one in it."""
MONITORED = ("--api-versions=monitoring.coreos.com/v1",)
"""A cluster with the kinds of the Prometheus operator."""
KNOWN = ("--api-versions=mofa.dev/v1alpha1",)
"""A cluster with our own kinds, as every one is after the first release."""
FLAVOURS = ("prometheus", "thanos", "mimir", "victoriametrics", "google", "amazon", "azure")
DIGEST = f"sha256:{'0123456789abcdef' * 4}"
H100 = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}

SETS = {
    "default": ({}, ()),
    "namespaced": ({"watchNamespaces": ["team-a", "team-b"]}, ()),
    "namespaced with the default namespace": ({"watchNamespaces": ["team-a", "default"]}, ()),
    "highly available": (
        {
            "replicas": 2,
            "leaderElection": {"enabled": True},
            "podDisruptionBudget": {"enabled": True},
            "priorityClassName": "system-cluster-critical",
        },
        (),
    ),
    "a token and an authority": (
        {
            "prometheus": {
                "url": "https://mimir.example.org/prometheus",
                "flavour": "mimir",
                "orgId": "team a: #1",
                "auth": {"existingSecret": "prometheus", "bearerTokenKey": "token"},
                "caConfigMap": "authority",
            }
        },
        (),
    ),
    "user and password, unchecked": (
        {
            "prometheus": {
                "url": "https://prometheus.example.org",
                "auth": {"existingSecret": "prometheus", "basicAuthKey": "user-and-password"},
                "insecureSkipVerify": True,
            }
        },
        (),
    ),
    **{
        f"flavour {flavour}": (
            {"prometheus": {"url": "http://history.monitoring:9090", "flavour": flavour}},
            (),
        )
        for flavour in FLAVOURS
    },
    "monitor, rules and dashboards": (
        {
            "serviceMonitor": {"enabled": True, "interval": "1m", "labels": {"release": "stack"}},
            "prometheusRule": {"enabled": True, "labels": {"release": "stack"}},
            "dashboards": {"enabled": True, "annotations": {"grafana_folder": "Training"}},
        },
        MONITORED,
    ),
    "pod monitor": ({"podMonitor": {"enabled": True, "labels": {"release": "stack"}}}, MONITORED),
    "page behind a network policy": (
        {
            "operator": {"page": True},
            "prometheus": {"url": "http://prometheus.monitoring:9090"},
            "networkPolicy": {
                "limitEgress": True,
                "metricsFrom": [
                    {
                        "namespaceSelector": {
                            "matchLabels": {"kubernetes.io/metadata.name": "monitoring"}
                        }
                    }
                ],
                "apiServerTo": [{"ipBlock": {"cidr": "10.0.0.1/32"}}],
                "prometheusTo": [{"namespaceSelector": {}}],
                "extraEgress": [
                    {"ports": [{"port": 80}], "to": [{"ipBlock": {"cidr": "169.254.169.254/32"}}]}
                ],
            },
        },
        (),
    ),
    "profiles and policies": (
        {
            "profiles": {
                "east": {"nodeSelector": H100, "gpu": "h100-80gb-sxm", "gpusPerNode": 8},
                "west": {"gpu": "b200"},
            },
            "policies": {
                "team-a": {
                    "kinds": [{"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet"}],
                    "profile": "east",
                },
                "team-b": {"mode": "Annotate"},
            },
        },
        KNOWN,
    ),
    "scrapers are asked who they are": (
        {
            "operator": {"authenticate": True, "page": True},
            "serviceMonitor": {"enabled": True},
            "prometheus": {"url": "http://prometheus.monitoring:9090"},
            "networkPolicy": {
                "limitEgress": True,
                "metricsNamespaces": ["monitoring"],
                "prometheusNamespaces": ["monitoring"],
                "dnsTo": [
                    {
                        "namespaceSelector": {
                            "matchLabels": {"kubernetes.io/metadata.name": "kube-system"}
                        }
                    }
                ],
            },
        },
        MONITORED,
    ),
    "another house's habits": (
        {
            "global": {
                "imageRegistry": "registry.example.org:5000",
                "imagePullSecrets": [{"name": "pull-all"}],
            },
            "runtimeClassName": "gvisor",
            "dnsPolicy": "Default",
            "dnsConfig": {"options": [{"name": "ndots", "value": "2"}]},
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0}},
            "readinessProbe": {"periodSeconds": 10, "failureThreshold": 6},
            "extraObjects": [
                {
                    "apiVersion": "v1",
                    "kind": "ConfigMap",
                    "metadata": {"name": "more"},
                    "data": {"a": "b"},
                }
            ],
        },
        (),
    ),
    "Kueue asks first": ({"operator": {"admissionChecks": True}}, ()),
    "Kueue asks first, of a team": (
        {
            "operator": {"admissionChecks": True},
            "watchNamespaces": ["team-a"],
            "rbac": {"kinds": ["JobSet"]},
        },
        (),
    ),
    "JobSets only, never started": ({"rbac": {"kinds": ["JobSet"], "apply": False}}, ()),
    "all kinds": (
        {"rbac": {"kinds": ["JobSet", "TrainJob", "PyTorchJob", "VolcanoJob", "RayJob", "Job"]}},
        (),
    ),
    "our own kind only": ({"rbac": {"kinds": []}}, ()),
    "pinned, with everything extra": (
        {
            "fullnameOverride": "advisor",
            "image": {"repository": "images.example.org/ml/mofa-advisor", "digest": DIGEST},
            "imagePullSecrets": [{"name": "pull"}],
            "commonLabels": {"team": "platform"},
            "podLabels": {"sidecar.istio.io/inject": "false"},
            "podAnnotations": {"example.org/scrape": "true"},
            "extraEnv": [
                {
                    "name": "MOFA_PROMETHEUS_HEADER",
                    "valueFrom": {"secretKeyRef": {"name": "headers", "key": "all"}},
                }
            ],
            "extraVolumes": [{"name": "more", "configMap": {"name": "more"}}],
            "extraVolumeMounts": [{"name": "more", "mountPath": "/etc/more", "readOnly": True}],
            "tolerations": [{"key": "system", "operator": "Exists"}],
            "affinity": {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [
                            {
                                "matchExpressions": [
                                    {"key": "kubernetes.io/arch", "operator": "Exists"}
                                ]
                            }
                        ]
                    }
                }
            },
            "topologySpreadConstraints": [
                {
                    "maxSkew": 1,
                    "topologyKey": "topology.kubernetes.io/zone",
                    "whenUnsatisfiable": "ScheduleAnyway",
                    "labelSelector": {"matchLabels": {"app.kubernetes.io/name": "mofa-advisor"}},
                }
            ],
            "operator": {
                "dryRun": True,
                "verbose": True,
                "logFormat": "text",
                "mostJobs": 1_000_000,
                "writesPerSecond": 12.5,
                "extraArgs": ["--settle=5", "--backoff=2"],
            },
            "service": {"port": 80, "annotations": {"example.org/port": "80"}},
            "serviceAccount": {
                "name": "adviser",
                "annotations": {"example.org/role": "history-reader"},
            },
        },
        (),
    ),
    **{
        f"values/{path.name}": (yaml.safe_load(path.read_text("utf-8")), (*MONITORED, *KNOWN))
        for path in sorted((CHART / "values").glob("*.yaml"))
    },
    "as little as can be": (
        {
            "crds": {"enabled": False},
            "rbac": {"create": False},
            "serviceAccount": {"create": False, "name": "adviser"},
            "admissionPolicy": {"enabled": False, "warnings": False},
        },
        (),
    ),
}
"""Values by what they are for, each with what its cluster knows beyond the usual."""


class Refused(Exception):
    """helm would not; the message is what it said."""


@cache
def program():
    """Where helm is."""
    return str(binaries.path("helm"))


def run(*arguments, values=None, kubeconfig=None):
    """What helm prints."""
    given = ["--values=-"] if values is not None else []
    cluster = {"KUBECONFIG": str(kubeconfig)} if kubeconfig else {}
    done = subprocess.run(
        [program(), *arguments, *given],
        input=json.dumps(values or {}),
        capture_output=True, text=True, check=False, env=os.environ | cluster,
    )  # fmt: skip
    if done.returncode:
        raise Refused(done.stderr.strip())
    return done.stdout


def text(values=None, *options, namespace=HOME, release=RELEASE):
    """The chart rendered with values, as helm prints it."""
    version = f"--kube-version={VERSION}"
    return run(
        "template",
        release,
        str(CHART),
        f"--namespace={namespace}",
        version,
        *options,
        values=values or {},
    )


@cache
def documents(rendered):
    """The objects of a rendered text, for reading only: whoever asks for the same text gets the
    same objects.
    """
    return tuple(yaml.load_all(rendered, yaml.CSafeLoader))


def template(values=None, *options, **more):
    """The chart rendered with values, as objects."""
    return documents(text(values, *options, **more))


def single(objects, kind, name=None):
    """The one object of a kind, or of a kind and a name."""
    (body,) = (
        each
        for each in objects
        if each["kind"] == kind and name in {None, each["metadata"]["name"]}
    )
    return body


def plain(body):
    """An object without what tells that helm made it."""
    metadata = body["metadata"] | {
        "labels": {
            key: value
            for key, value in body["metadata"].get("labels", {}).items()
            if not re.match(r"helm\.sh/|app\.kubernetes\.io/managed-by", key)
        }
    }
    made = body | {"metadata": metadata}
    if "template" in body.get("spec", {}):
        made["spec"] = body["spec"] | {"template": plain(body["spec"]["template"])}
    return made


_TEXT = {"type": "string"}
_TEXTS = {"type": "object", "additionalProperties": _TEXT}
_ENDPOINT = {
    "type": "object",
    "required": ["port"],
    "properties": {
        "port": _TEXT,
        "interval": {"type": "string", "pattern": "^([0-9]+(ms|[smhdwy]))+$"},
    },
}
_OF_SERVICES = _ENDPOINT | {"properties": _ENDPOINT["properties"] | {"bearerTokenFile": _TEXT}}
_SELECTOR = {"type": "object", "properties": {"matchLabels": _TEXTS}}
_RULE = {
    "type": "object",
    "required": ["expr"],
    "properties": {
        **dict.fromkeys(("record", "alert", "expr", "for"), _TEXT),
        "labels": _TEXTS,
        "annotations": _TEXTS,
    },
}
_GROUP = {
    "type": "object",
    "required": ["name"],
    "properties": {"name": _TEXT, "interval": _TEXT, "rules": {"type": "array", "items": _RULE}},
}
_MONITORING = {
    "ServiceMonitor": {
        "selector": _SELECTOR,
        "endpoints": {"type": "array", "items": _OF_SERVICES},
    },
    "PodMonitor": {
        "selector": _SELECTOR,
        "podMetricsEndpoints": {"type": "array", "items": _ENDPOINT},
    },
    "PrometheusRule": {"groups": {"type": "array", "items": _GROUP}},
}
"""The parts of the Prometheus operator's kinds that we use; anything else in them is an error under
strict validation.
"""


def monitoring():
    """Definitions of the Prometheus operator's kinds, strict about what we use of them."""
    return [_definition(kind, spec) for kind, spec in _MONITORING.items()]


def _definition(kind, spec):
    plural = f"{kind.lower()}s"
    schema = {
        "type": "object",
        "required": ["spec"],
        "properties": {"spec": {"type": "object", "properties": spec, "required": list(spec)}},
    }
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.monitoring.coreos.com"},
        "spec": {
            "group": "monitoring.coreos.com",
            "names": {
                "kind": kind,
                "plural": plural,
                "singular": kind.lower(),
                "listKind": f"{kind}List",
            },
            "scope": "Namespaced",
            "versions": [version],
        },
    }
