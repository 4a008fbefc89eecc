"""The page of one job: what was predicted, what is observed, and the reasons of its advice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Final
from urllib.parse import quote
from xml.etree import ElementTree as ET

from mofa_model import units
from mofa_model.annotations import PREFIX
from mofa_model.answers.what_if import form_fields
from mofa_model.page import AdviceView, advice_sections, in_short
from mofa_model.page.figures import LineDrawing, band, lines
from mofa_model.page.markup import FormField, Node, el, form, form_errors, page, table, text
from mofa_model.spec.account import NodeTime, capacity, node_days_lost, summed
from mofa_model.units import GIB, HOUR, Range
from mofa_operator.objects import JobStatus, LiveObject, LiveTrainingJob
from mofa_operator.snapshot import Curves, Refusal
from mofa_operator.words import Aspect

LINKS: Final = (("Jobs", "/"), ("Profiles", "/profiles"), ("Metrics", "/metrics"))
"""Navigation of every page."""
_ACCOUNT: Final = ("state", "cause", "node-days", "share")
_NOTHING: Final[Mapping[str, str]] = {}
BAD: Final = (
    "NoRecommendation",
    "InvalidInput",
    "FactsMissing",
    "FactsDisagree",
    "NoFeasibleLayout",
    "ProfileMissing",
    "InternalError",
)
"""States of a job that wants advice and has none."""
_ACCURATE: Final = (Aspect.PREDICTION_ACCURATE, Aspect.MEMORY_ACCURATE)
"""Conditions that compare predictions with observations."""
_HEALTH: Final = {"Healthy": "good", "Drifting": "warn", "Stuck": "bad", "NotSeen": "warn"}
"""Class of style for the health of a running job."""
_ROWS: Final = 24
"""Most rows of the table of the last day. [1]"""
LONGEST: Final = 200
"""Most characters of a field. [1]"""
_NODES: Final = FormField(name="nodes", label="Nodes", hint="of the job's pool")
_ASKED: Final = (
    "sequence_length",
    "global_batch_size",
    "tokens",
    "framework",
    "precision",
    "objective",
    "current",
    "planned",
)
_AS_IT_IS: Final = "as the job says"


@dataclass(frozen=True, slots=True)
class ShownJob:
    """A job, its health and its account."""

    job: LiveObject
    """The job as it stands."""
    judged: str = ""
    """Its `Health` as the operator judged last; empty where it does not run, or was not judged."""
    account: tuple[NodeTime, ...] = ()
    """Rows of the job in its pool's ledger."""

    @property
    def name(self) -> str:
        """Namespace and name."""
        return self.job.key.full_name

    @property
    def status(self) -> JobStatus:
        """The status of a TrainingJob; empty for other kinds, whose status is not ours."""
        return self.job.status if isinstance(self.job, LiveTrainingJob) else JobStatus()

    @property
    def predicted(self) -> Mapping[str, Range]:
        """What its status predicts of the advised layout."""
        return self.job.predicted if isinstance(self.job, LiveTrainingJob) else {}

    @property
    def health(self) -> str:
        """Health of a TrainingJob by its status; of other kinds as the operator judged last."""
        return self.status.health if isinstance(self.job, LiveTrainingJob) else self.judged

    @property
    def state(self) -> str:
        """Its state in one word: the reason of Ready, or the status annotation."""
        reason = reason_of(self.job, "Ready") if isinstance(self.job, LiveTrainingJob) else ""
        return reason or self.annotation("status") or "Pending"

    @property
    def is_well(self) -> bool:
        """Whether the job needs no attention."""
        return self.state == "Recommended" and self.health in {"", "Healthy"}

    def annotation(self, name: str) -> str:
        """The text of an annotation of ours; empty where it is missing."""
        return self.job.annotations.get(PREFIX + name, "")


def job_page(
    shown: ShownJob,
    view: AdviceView | Refusal | str | None,
    curves: Curves | str | None = None,
    changes: Mapping[str, str] = _NOTHING,
) -> str:
    """One job: predicted and observed, its last day, the form, the advice, the conditions."""
    sections: list[Node] = [el("h1", shown.name)]
    health = (", ", el("strong", health_word(shown))) if shown.health else ()
    explanation = shown.annotation("explanation")
    if explanation and not explanation.endswith("."):
        explanation += "."
    kind, state = f"{shown.job.key.kind.kind}, ", el("strong", state_word(shown))
    sections.append(el("p", kind, state, *health, f". {in_short(explanation)}"))
    sections += [*_inaccurate(shown), *_observed(shown), *account_sections(shown.account)]
    sections += history_sections(curves)
    if view is not None:
        errors = view.why if isinstance(view, Refusal) else {}
        sections += what_if_sections(changes, errors, address(shown))
    if isinstance(view, AdviceView):
        heading = "Advice with your changes" if changes else "Advice"
        sections += [el("h2", heading), *advice_sections(view, without_status=not changes)]
    else:
        sections += [el("p", view)] if isinstance(view, str) else []
        if strategy := shown.annotation("strategy"):
            sections += [el("h2", "Strategy"), el("p", el("code", strategy))]
    if isinstance(shown.job, LiveTrainingJob):
        sections += conditions(shown.job)
    return text(page(shown.name, *sections, links=LINKS, foot=_foot(shown)))


def account_sections(account: Sequence[NodeTime]) -> list[ET.Element]:
    """Where the node-time of a pool or of a job went, as the FailureLedger has it."""
    if not account:
        return []
    whole = capacity(account) or 1.0
    rows: list[tuple[Node, ...]] = [
        (row.state.value, row.cause or "-", f"{row.node_days:.6g}", f"{row.node_days / whole:.1%}")
        for row in summed(account, "cause")
    ]
    first, last = min(row.date for row in account), max(row.date for row in account)
    lost = sum(node_days_lost(account).values())
    note = f"{whole:.6g} node-days from {first} to {last}, {lost:.6g} of them lost."
    return [
        el("h2", "Where the node-time went"),
        table(_ACCOUNT, rows, numbers=(2, 3)),
        el("p", note),
    ]


def _inaccurate(shown: ShownJob) -> list[ET.Element]:
    """Messages of a running job's predictions that do not hold."""
    if not isinstance(shown.job, LiveTrainingJob) or shown.health in {"", "Healthy"}:
        return []
    return [
        el("p", f"{in_short(condition.message)}.")
        for condition in shown.job.conditions
        if condition.type in _ACCURATE and condition.status == "False"
    ]


def address(shown: ShownJob) -> str:
    """Path of a job's page."""
    key = shown.job.key
    pieces = (key.kind.resource, key.namespace, key.name)
    return "/jobs/" + "/".join(quote(piece, safe="") for piece in pieces)


def _observed(shown: ShownJob) -> list[ET.Element]:
    """Predicted bands of the layout that runs, with the observed values on them."""
    current, observed = shown.status.current, shown.status.observed
    predicted = shown.predicted if current is None else current.predicted
    rows = []
    for title, name, value, unit, pattern in (
        ("Tokens a second", "tokens_per_second", observed.tokens_per_second, 1.0, "{:,.0f}"),
        ("Effective training time", "ettr", observed.ettr, 1.0, "{:.3f}"),
        ("Device memory, GiB", "memory_bytes", observed.memory_bytes, GIB, "{:.1f}"),
    ):
        if name in predicted:
            expected = predicted[name].times(1 / unit)
            scaled = None if value is None else value / unit
            value_text = "-" if scaled is None else pattern.format(scaled)
            drawing = band(title, expected, scaled, pattern)
            rows.append((title, pattern.format(expected.target), value_text, drawing))
    if not rows:
        return []
    sections = [
        el("h2", "Predicted and observed"),
        table(("", "predicted", "observed", "band"), rows, numbers=(1, 2)),
    ]
    if current is not None:
        layout = in_short(current.strategy)
        sections.append(el("p", f"Predicted of the layout that the job is said to run: {layout}."))
    if (odds := shown.status.odds).fits is not None:
        beats = "" if odds.beats is None else f", and beats today's layout with {odds.beats:.0%}"
        fits = f"By measured runs the advice fits with a probability of {odds.fits:.0%}"
        sections.append(el("p", f"{fits}{beats}."))
    if observed.interruptions is not None:
        since = observed.since or "the start"
        cost = ""
        if observed.lost and not shown.account:  # the table of the account has the cost
            cost = f"; they cost {units.format(observed.lost, 's')}"
        sections.append(
            el("p", f"Interruptions since {since}: {observed.interruptions:.0f}{cost}.")
        )
    return sections


def reason_of(live: LiveObject, type_: str) -> str:
    """Reason of a condition of an object; empty where it has no such condition."""
    return next((condition.reason for condition in live.conditions if condition.type == type_), "")


def conditions(live: LiveObject) -> list[ET.Element]:
    """The conditions of an object, each with its reason."""
    rows = [
        (condition.type, condition.status, condition.reason, in_short(condition.message))
        for condition in live.conditions
    ]
    headings = ("condition", "holds", "reason", "message")
    return [el("h2", "Conditions"), table(headings, rows)] if rows else []


def _foot(shown: ShownJob) -> str:
    moment, inputs, model = (
        shown.annotation(name) or "-" for name in ("computed-at", "inputs-hash", "model-version")
    )
    return f"Computed at {moment} for inputs {inputs} by model {model}."


def state_word(shown: ShownJob) -> ET.Element:
    """The job's state as a coloured word."""
    state = shown.state
    style = "good" if state == "Recommended" else "bad" if state in BAD else "warn"
    return el("span", state, class_=style)


def health_word(shown: ShownJob) -> Node:
    """The job's health as a coloured word; a hyphen where it does not run."""
    word = shown.health
    return el("span", word, class_=_HEALTH.get(word, "warn")) if word else "-"


def history_sections(curves: Curves | str | None) -> list[ET.Element]:
    """The history of a job, or why there is none."""
    if curves is None:
        return []
    heading = el("h2", "The last day")
    if isinstance(curves, str):
        return [heading, el("p", curves)]
    if not (curves.predicted or curves.observed):
        return [heading, el("p", "Prometheus holds nothing of this job yet.")]
    latest = max(moment for points in (curves.predicted, curves.observed) for moment, _ in points)

    def in_hours(points: tuple[tuple[float, float], ...]) -> list[tuple[Any, float]]:
        return [(round((moment - latest) / HOUR, 2), value) for moment, value in points]

    curve_points = {"predicted": in_hours(curves.predicted), "observed": in_hours(curves.observed)}
    drawing = LineDrawing(
        lines={name: points for name, points in curve_points.items() if points},
        across="hours from now",
        up="tokens a second",
    )
    by_hour = {name: dict(points) for name, points in curve_points.items()}
    hours = sorted({hour for values in by_hour.values() for hour in values})
    rows = [
        (
            f"{hour:g}",
            *(f"{values[hour]:,.0f}" if hour in values else "-" for values in by_hour.values()),
        )
        for hour in hours[:: max(1, len(hours) // _ROWS)]
    ]
    numbers = table(("hours from now", *by_hour), rows, numbers=(0, 1, 2))
    return [
        heading,
        lines("Tokens a second, predicted and observed", drawing),
        el("details", el("summary", "The lines as a table"), numbers),
    ]


@cache
def fields() -> tuple[FormField, ...]:
    """The fields of the form; an empty field keeps what the job says."""
    by_name = {field.name: field for field in form_fields()}
    return (_NODES, *(_optional(by_name[name]) for name in _ASKED))


def _optional(field: FormField) -> FormField:
    """A field that may stay empty."""
    choices = ("", *filter(None, field.choices)) if field.only else field.choices
    return replace(field, choices=choices, empty=_AS_IT_IS)


def changes_in(query: Mapping[str, str]) -> dict[str, str]:
    """The values that the query of a page's address changes, by field."""
    texts = {field.name: query.get(field.name, "").strip()[:LONGEST] for field in fields()}
    return {name: text for name, text in texts.items() if text}


def what_if_sections(
    changes: Mapping[str, str], errors: Mapping[str, str], address: str
) -> list[Node]:
    """The form that asks the same job with other values, with the errors of the last values."""
    note = f"Ask the same for other values; what is empty stays {_AS_IT_IS}. Nothing is written."
    return [
        el("h2", "What if", id="what-if"),
        el("p", note),
        *form_errors(errors, fields()),
        form(fields(), changes, errors, action=address, button="Answer"),
    ]
