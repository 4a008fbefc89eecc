"""Files and servers that options of reliability name: a layout of `mofa advise -o json`, a pool's
FailureLedger, and what the operator package reads of a live server or of Slurm.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

from mofa_model.errors import BadFile, Missing
from mofa_model.files import read_text
from mofa_model.spec.recovery_classes import RecoveryClass
from mofa_model.units import DAY

if TYPE_CHECKING:
    from mofa_model.advice import Advice, Request
    from mofa_model.answers.questions import ReliabilityQuestion
    from mofa_model.manifest.parsing import Profile
    from mofa_model.spec.evidence import ByClass
    from mofa_model.spec.reliability import FailureMode

    Q = TypeVar("Q", bound=ReliabilityQuestion)

GROUP: Final = "mofa.sources"
"""Entry-point group of live sources. Each is a function: `prometheus` (url, profile) and `slurm`
(files, profile) return ObservedFailures, `profile` (name) the manifest of a ClusterProfile, and
`pools` () pools with product, gpus_per_node, nodes and ready."""
_MONTH: Final = 30.0
"""Days ahead for which counted failures are taken to hold. [d]"""
_LEAST: Final = 1e-9
_RIGHT: Final = "write it by mofa advise … -o json"
_RATES: Final = frozenset({"rate", "failures", "node_days", "classes", "mttr", "profile", "ledger"})
"""Fields of how often something fails: if one is given, those of the layout are not taken."""
_SAVES: Final = frozenset({"save", "copy", "storage"})
"""Fields of what a save costs: likewise."""


def of_layout(request: Request, advice: Advice) -> dict[str, Any]:
    """The job of an advised layout, as fields of `mofa ettr` and `simulate`; empty without one."""
    from mofa_model.advice.predictions import job_of
    from mofa_model.estimate.model_states import checkpoint_size

    if advice.strategy is None or advice.predicted is None:
        return {}
    request = request.for_trainer(advice.trainer)
    problem = request.problem_in(advice.precision)
    step = float(advice.predicted.step_seconds.target)
    job = job_of(request, problem, advice.nodes, advice.strategy, step)
    rate = sum(mode.rate.mean for mode in advice.failures) * DAY
    size = request.checkpoint_bytes or float(checkpoint_size(problem.workload, advice.strategy))
    replicas = 1.0 if job.redundancy is None else float(job.redundancy.count)
    fields = {
        "nodes": advice.nodes,
        "step": f"{step:.6g} s",
        "interval": advice.checkpoint_interval_steps,
        "save": ",".join(f"{float(seconds):.6g} s" for seconds in job.blocking),
        "copy": ",".join(f"{float(seconds):.6g} s" for seconds in job.background),
        "slowdown": float(request.reliability.slowdown),
        "replicas": max(1, int(replicas)),
        "gpus_per_node": int(problem.cluster.gpus_per_node),
        "checkpoint_size": f"{float(size):.6g} B",
        "rate": float(f"{rate:.6g}"),
        "classes": [_class_text(mode, rate) for mode in advice.failures],
    }
    if job.plan is not None:
        fields["recovery"] = job.plan.name
    return fields


def _class_text(mode: FailureMode, rate: float) -> str:
    """A recovery class as --class takes it; `rate` is of all classes, per node-day."""
    share, time = mode.rate.mean * DAY / max(rate, _LEAST), mode.recovery
    return f"{mode.name}:{share:.9g}:{float(time.mean):g} s:{time.law}:{time.cv:g}:{mode.tier}"


def with_layout(question: Q) -> Q:
    """The question with the fields of the file of `--layout`, where no option gives them."""
    if question.layout is not None:
        options, changed = question.options, question.changed_fields().keys()
        dropped = {*changed}
        if changed & _RATES:
            dropped |= _RATES
        if changed & _SAVES:
            dropped |= _SAVES
        if "recovery" in changed:  # another plan has another best interval
            dropped.add("interval")
        layout = _read(question.layout)
        try:
            fields = {
                name: options[name].read(value)
                for name, value in layout.items()
                if name in options and name not in dropped
            }
            question = replace(question, layout=None, **fields)
        except TypeError as error:
            raise BadFile(question.layout, f"holds no job ({error}); {_RIGHT}") from None
    if question.nodes is None or question.step is None:
        needed = {"nodes": "32", "step": "27.99s"}
        lacking = {
            f"--{name}": example
            for name, example in needed.items()
            if getattr(question, name) is None
        }
        raise Missing(lacking, also="or --layout with what mofa advise -o json wrote")
    return question


def _read(path: str) -> Mapping[str, Any]:
    try:
        document = json.loads(read_text(path))
    except ValueError as error:
        raise BadFile(path, f"is no JSON ({error}); {_RIGHT}") from None
    job = document.get("job") if isinstance(document, dict) else None
    if not isinstance(job, dict) or not job:
        raise BadFile(path, f"holds no layout under the key job; {_RIGHT}")
    return job


def live_source(name: str) -> Callable[..., Any]:
    """The function of an installed live source; raises ModuleNotFoundError for what it lacks."""
    from importlib.metadata import entry_points

    (point,) = entry_points(group=GROUP, name=name)
    source: Callable[..., Any] = point.load()
    return source


def live_profile(name: str) -> Profile:
    """A profile of the cluster; of a file or of the package where no operator is installed."""
    from mofa_model.manifest.parsing import cluster_profile
    from mofa_model.manifest.surroundings import named_profile

    try:
        source = live_source("profile")
    except ModuleNotFoundError:
        return named_profile(name)
    return cluster_profile(source(name))


def live_evidence(url: str, profile: Profile, word: str) -> ByClass:
    """A server's counts of failures in a profile's pool, weighted as they hold for 30 days.

    `word` is the name or file by which people gave the profile. Where an operator runs, the
    profile's status holds the same counts.
    """
    from mofa_model.manifest.failures import assumed_rates
    from mofa_model.reliability.observed import rate_reports

    assumed = assumed_rates(profile.spec.failures)
    observed = live_source("prometheus")(url, word)
    weight = float(profile.spec.failures.prior_weight)
    return {
        report.name: replace(
            observed.classes[report.name],
            failures=report.present.failures,
            node_days=report.present.node_days,
        )
        for report in rate_reports(observed, assumed, prior_weight=weight)
        if report.name in observed.classes
    }


def modes_of_ledger(path: str, deepest: int) -> tuple[FailureMode, ...]:
    """Failures by class that a FailureLedger counted, weighted as they hold for the next month."""
    import numpy as np

    from mofa_model.manifest.documents import LARGEST, Documents
    from mofa_model.manifest.failure_history import FailureLedgerStatus, number
    from mofa_model.manifest.parsing import parse
    from mofa_model.reliability.forecast import mixture, present_evidence
    from mofa_model.reliability.rates import JEFFREYS
    from mofa_model.spec.reliability import FailureMode, FailureRate, RecoveryTime

    right = "write it by kubectl get failureledger NAME -o yaml"
    stream = Documents.parse(read_text(path, largest=LARGEST), path)
    ledgers = [item for item in stream.items if item.kind == "FailureLedger"]
    if len(ledgers) != 1:
        raise BadFile(path, f"holds {len(ledgers)} FailureLedgers; {right}")
    name = f"FailureLedger {ledgers[0].name}: status"
    status = parse(FailureLedgerStatus, ledgers[0].value.get("status"), name)
    counts: defaultdict[str, defaultdict[str, Any]] = defaultdict(
        lambda: defaultdict(lambda: np.zeros(4))
    )
    for day in status.days:
        for row in day.classes:
            counts[row.name][day.date] += (
                number(row.exposure_node_days),
                row.failures + (row.others or 0),
                row.recoveries or 0,
                float(row.recovery_seconds or 0),
            )
    modes = []
    for tier, recovery_class in enumerate(RecoveryClass):
        by_date = sorted(counts[recovery_class.value].items(), key=lambda pair: pair[0])
        days = np.array([sums for _, sums in by_date]).reshape(-1, 4)
        exposures, failed, recoveries, seconds = days.T
        if not exposures.sum():
            continue
        failures, exposure = present_evidence(
            mixture(np.ones(len(days)), exposures, failed, ahead=_MONTH)
        )
        mean = seconds.sum() / recoveries.sum() if recoveries.any() else recovery_class.seconds
        modes.append(
            FailureMode(
                name=recovery_class.value,
                rate=FailureRate(failures=failures + JEFFREYS, exposure=exposure * DAY),
                recovery=RecoveryTime(mean=mean),
                tier=min(tier, deepest),
                queues=not recovery_class.keeps_pods,
            )
        )
    if not modes:
        raise BadFile(path, f"counts no node-days; {right}")
    return tuple(modes)
