"""One site with an attacker and a victim: what the attacker makes and publishes, and what the
victim is told.
"""

import contextlib
import json
import re
import time
from functools import cached_property, partial
from pathlib import Path

import foreign
from advisor import Advisor, condition, ours, read, until
from mofa_local import LocalStackError, nodes
from mofa_local.client import Refused
from operator_objects import small_job
from ruamel.yaml import YAML

from mofa_model.annotations import PREFIX
from mofa_model.kinds import JOB_SET
from mofa_operator.observe.jobs.run_record import from_text

ROOT = Path(__file__).parents[1]
VICTIM, EVIL, POOL, GIB = "research", "evil", "hostile", 2**30
SECRET = "hunter2-do-not-tell"
FLAGS = (
    "--settle=1", "--backoff=0.2", "--prometheus-interval=2", "--quiet=3", "--fence", "--page",
)  # fmt: skip
LONG = "n" * 253
COMPOSITE = {
    "layers": 1008, "hiddenSize": 5040, "heads": 5040, "kvHeads": 5040, "headDim": 64, "ffnSize": 20160,
    "vocabularySize": 50400, "experts": {"count": 5040, "topK": 8, "ffnSize": 2048},
}  # fmt: skip


def evil_job(name, *, annotations=None, metadata=None, **spec):
    """A job of the attacker's."""
    body = small_job(EVIL, name, POOL)
    body["metadata"] |= {"annotations": annotations or {}} | (metadata or {})
    for key, value in spec.items():
        body["spec"][key] = body["spec"][key] | value if key in {"training", "cluster"} else value
    return body


def config_map(name, text):
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": EVIL},
        "data": {"config.json": text},
    }


def target(kind, name, version="v1"):
    return {"apiVersion": version, "kind": kind, "name": name}


def secretive(value):
    return json.dumps({"model_type": "llama", "num_hidden_layers": value, "hidden_size": SECRET})


REASONS = {
    "a giant question": (evil_job("giant", model={"architecture": COMPOSITE}, training={"globalBatchSize": 8648640}, cluster={"nodes": 90090}, constraints={}), "layouts"),
    "ten million nodes": (evil_job("many", cluster={"nodes": None, "maxNodes": 10_000_000}, constraints={}, training={"globalBatchSize": 8648640}), ""),
    "a model that is not there": (evil_job("nobody", model={"preset": "no-such-model"}), "unknown name"),
    "a ConfigMap of another's words": (evil_job("spy", model={"configMapRef": {"name": "words"}}), "is not JSON"),
    "a ConfigMap with a secret in a field": (evil_job("spy-2", model={"configMapRef": {"name": "fields"}}), "cannot be right"),
    "a ConfigMap of 1 MB": (evil_job("fat", model={"configMapRef": {"name": "fat"}}), "config"),
    "brackets a megabyte deep": (evil_job("deep", model={"configMapRef": {"name": "deep"}}), "is not JSON"),
    "a ConfigMap of another namespace": (evil_job("far", model={"configMapRef": {"name": "research-model"}}), "was not found"),
    "documents with lines of their own": (evil_job("lines", training={"documents": "512:3\nstatus: Recommended\u202e"}), "documents"),
    "words of a launch, 256 of 4 kB": (evil_job("argv", current={"arguments": ["x" * 4096] * 40}), "current"),
    "a checkpoint of 10^12 EB": (evil_job("huge-save", checkpoint={"size": "999999999999 EB"}), ""),
    "a trillion failures": (evil_job("fails", failureAssumptions={"perClass": {"job": {"failuresPerThousandNodeDays": "999999999999"}}}), ""),
    "a profile that is not there": (evil_job("lost", cluster={"profile": "nobody"}), "nobody"),
    "forged answers on its own job": (evil_job("forger", annotations={PREFIX + "status": "Recommended", PREFIX + "strategy": "tp=1", PREFIX + "computed-at": "2999-01-01T00:00:00Z"}), ""),
    "annotations that are markup": (evil_job("markup", annotations={"x": "<script>alert(1)</script>", PREFIX + "config-ref": "../../secrets"}), ""),
    "annotations of 200 kB": (evil_job("wide", annotations={"example.org/x": "é" * 100_000}), ""),
    "an owner in another namespace": (evil_job("child", metadata={"ownerReferences": [{"apiVersion": "mofa.dev/v1alpha1", "kind": "TrainingJob", "name": "train", "uid": "0"}]}), ""),
    "a finalizer that nobody removes": (evil_job("stays", metadata={"finalizers": ["evil.example.org/never"]}), ""),
    "a name at the limit": (evil_job(LONG), ""),
    "a target that is a Secret": (evil_job("thief", targetRef=target("Secret", "token")), ""),
    "the victim's name as its target": (evil_job("same", targetRef=target("TrainingJob", "train", "mofa.dev/v1alpha1")), ""),
    "matchers that name another namespace": (evil_job("reader", throughput={"preset": "mofa", "matchers": {"namespace": VICTIM}}), ""),
    "another workload's series by its own label": (evil_job("reader-2", throughput={"preset": "megatron", "matchers": {"job": "research-trainer"}}), ""),
    "PromQL in a matcher": (evil_job("promql", throughput={"matchers": {"run": '"} or vector(1) or mofa{x="'}}), ""),
    "a namesake of the victim": (evil_job("train"), ""),
}  # fmt: skip
"""Jobs that the API server takes, and what their condition Ready says; empty = whatever it says, it
is an outcome.
"""
TAKEN_NEVER = {
    "a label that is none": evil_job(
        "bad-label", throughput={"matchers": {"app.kubernetes.io/name": "trainer"}}
    ),
    "720,720 layers": evil_job("deepest", model={"architecture": COMPOSITE | {"layers": 720720}}),
    "a billion tokens in a sequence": evil_job("longest", training={"sequenceLength": 10**9}),
    "a list without end": evil_job("listed", constraints={"tp": {"values": list(range(1, 5000))}}),
    "annotations beyond the limit": evil_job("too-wide", annotations={"x": "y" * 300_000}),
    "a mode that is none": evil_job("moody", mode="Root"),
    "a negative batch": evil_job("negative", training={"globalBatchSize": -1}),
    "a field that is none": evil_job("extra", hostNetwork=True),
    "a line break in a name": evil_job("two\nlines"),
    "a preset of two lines": evil_job("preset", model={"preset": "llama3.1-8b\nx: y"}),
}
"""What the API server refuses for us."""


def series(name, labels, value):
    pairs = ",".join(f'{key}="{text}"' for key, text in labels.items())
    return f"{name}{{{pairs}}} {value}\n"


def trainer(whose, name, tokens, **more):
    who = {"training_namespace": whose, "training_job": name, **more}
    return (
        series("mofa_train_step", who, "$n") + series("mofa_train_tokens_per_second", who, tokens)
        + series("mofa_train_step_seconds", who, 2) + series("mofa_train_start_timestamp_seconds", who, int(time.time()) - 100)
    )  # fmt: skip


def forged(tokens):
    """What the attacker's pod publishes: the victim's names, numbers that are none, labels without
    end, other times.
    """
    wild = "".join(
        trainer(EVIL, f"w-{n}", value)
        for n, value in enumerate(("NaN", "+Inf", "-Inf", -1, "1e308", "-1e308", 0))
    )
    labels = "".join(
        series("mofa_train_step", {"training_job": f"l-{n}", "training_namespace": EVIL}, 1)
        for n in range(2000)
    )
    future = series(
        "mofa_train_start_timestamp_seconds",
        {"training_namespace": VICTIM, "training_job": "train"},
        4e9,
    )
    pods = "".join(
        series(
            name,
            {
                "namespace": VICTIM,
                "pod": "train-0",
                "uid": "u1",
                "node": "elsewhere",
                "label_mofa_dev_trainingjob": "train",
            },
            1,
        )
        for name in ("kube_pod_info", "kube_pod_labels", "kube_pod_container_state_started")
    )
    names = {
        "namespace": VICTIM,
        "pod": "research-0",
        "job": "research-trainer",
        "instance": "a",
        "x": "y",
    }
    return (
        trainer(VICTIM, "train", tokens, **names)
        + trainer(EVIL, "train", 7)
        + wild
        + labels
        + future
        + pods
    )


def unnumbered(text):
    """A text without its numbers: how long something lasts changes by itself."""
    return re.sub(r"\d+(?:\.\d+)?", "#", str(text))


class Site:
    """The cluster with the victim in it, before and after."""

    def __init__(self, cluster, processes, prometheus, advisor=None):
        """`advisor` makes the operator; by default each of its processes may have 1 GiB
        of addresses.
        """
        self.cluster, self.prometheus = cluster, prometheus
        for name in (VICTIM, EVIL):
            cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        labels = {"example.org/pool": POOL}
        nodes.create(
            cluster, [nodes.node(f"{POOL}-{n}", labels=labels) for n in range(4)], kwok=False
        )
        profile = YAML(typ="safe").load((ROOT / "examples" / "h100-east.yaml").read_text())
        profile.pop("status", None)
        profile["metadata"] = {"name": POOL}
        profile["spec"]["nodeSelector"] = labels
        cluster.apply(profile)
        make = advisor or partial(Advisor, memory=GIB)
        self.advisor = make(cluster, processes, "operator-hostile")
        self.flags = (*FLAGS, f"--prometheus-url={prometheus.prometheus.url}")
        self.advisor.start(*self.flags)
        cluster.apply(small_job(VICTIM, "train", POOL))
        until(lambda: self.read(VICTIM, "train").get("status", {}).get("recommendation"), 150.0)
        tokens = self.read(VICTIM, "train")["status"]["recommendation"]["predicted"][
            "tokensPerSecond"
        ]["target"]
        self.honest = trainer(VICTIM, "train", tokens)
        prometheus.say(victim=self.honest)
        until(
            lambda: self.read(VICTIM, "train")["status"].get("observed", {}).get("tokensPerSecond"),
            60.0,
        )
        self.tokens = tokens
        self.before = self.victims_answer()
        self.most = 0

    @cached_property
    def tenant(self):
        """The kubeconfig of whoever may do everything in one namespace."""
        every = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]
        return self.cluster.identity("tenant", every, namespace=EVIL, everywhere=False)

    def read(self, namespace, name, kind="tjob"):
        return read(self.cluster, kind, namespace, name)

    def victims_answer(self):
        """All that the victim is told by the operator; what its steps make new every second is left out."""
        body = self.read(VICTIM, "train")
        seen = dict(body["status"]["observed"])
        for name in ("step", "time", "ettr", "lost"):
            seen.pop(name, None)
        conditions = [
            {k: unnumbered(v) for k, v in condition.items() if k != "lastTransitionTime"}
            for condition in body["status"]["conditions"]
        ]
        figures = sorted(
            line
            for line in self.advisor.metrics().splitlines()
            if f'training_namespace="{VICTIM}"' in line and "predicted" in line
        )
        rest = {k: v for k, v in body["status"].items() if k not in {"observed", "conditions"}}
        calibration = read(self.cluster, "cprof", name=POOL)["status"].get("calibration")
        words = ours(body)
        kept = from_text(words.pop("run-record", None))  # without what its own steps move
        run = kept and (kept.since, kept.earlier, kept.incidents, kept.older, kept.nodes_lost)
        return words, rest, seen, conditions, figures, calibration, run

    def ready(self, name):
        with contextlib.suppress(Exception):
            return condition(self.read(EVIL, name), "Ready")
        return {}

    def burst(self):
        """Everything at once."""
        self.cluster.apply(
            config_map("words", f"token: {SECRET}"), config_map("fields", secretive(SECRET)),
            config_map("fat", json.dumps({"model_type": "llama", "x": "y" * 900_000})), config_map("deep", "[" * 900_000),
        )  # fmt: skip
        self.cluster.apply(
            {
                **config_map("research-model", secretive(1)),
                "metadata": {"name": "research-model", "namespace": VICTIM},
            }
        )
        self.refused = {}
        for what, body in TAKEN_NEVER.items():
            try:
                self.cluster.apply(body)
            except (Refused, LocalStackError, OSError, ValueError) as error:
                self.refused[what] = str(error)
        for body, _ in REASONS.values():
            self.cluster.apply(_bare(body))
        for n in range(40):
            self.cluster.apply(evil_job(f"flood-{n}", throughput={"matchers": {"run": str(n)}}))
        self.cluster.apply(
            {
                "apiVersion": "mofa.dev/v1alpha1", "kind": "AdvisorPolicy", "metadata": {"name": "p", "namespace": EVIL},
                "spec": {"kinds": [{"apiVersion": JOB_SET.api_version, "kind": JOB_SET.kind}], "profile": POOL, "mode": "Apply"},
            },
            foreign.job(JOB_SET, EVIL, "set", annotations={PREFIX + "model": "llama3.1-8b\n<b>", PREFIX + "status": SECRET}),
        )  # fmt: skip
        self.prometheus.say(victim=self.honest, evil=forged(9e9))


def _bare(body):
    """Without fields that say nothing."""
    cluster = {key: value for key, value in body["spec"]["cluster"].items() if value is not None}
    return body | {"spec": body["spec"] | {"cluster": cluster}}
