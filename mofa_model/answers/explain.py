"""One strategy: every time term and memory term, per stage, with equation numbers; or what is known of runs like it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from mofa_model import output
from mofa_model.answers import evidence
from mofa_model.answers.door import Reply, asked_by
from mofa_model.answers.question import Text
from mofa_model.answers.training import TrainingWords, layout_of, problems_of, require
from mofa_model.tables import Table

if TYPE_CHECKING:
    from mofa_model.answers.documents import ExplainDocument


@dataclass(frozen=True, kw_only=True)
class ExplainQuestion(TrainingWords):
    """Where the time and the memory of one strategy go."""

    strategy: Text = ""
    """The layout, "tp=8,pp=4", or a trainer's flags; data parallelism follows from the devices."""
    evidence: bool = False
    """Tell the measured runs that the prediction rests on, feature by feature, in place of the terms."""


@dataclass(frozen=True, kw_only=True, repr=False)
class ExplainAnswer(Reply):
    """The terms of a strategy, or the measured runs that it rests on."""

    question: ExplainQuestion
    """What was asked."""
    document: Mapping[str, Any]
    """Everything that is said, as plain data."""
    tables: tuple[Table, ...]
    """What people read."""
    records: Table
    """A row for each term, in SI."""

    @property
    def step_seconds(self) -> float:
        """One optimizer step. [s]"""
        return float(self.document["summary"]["step_seconds"])

    @property
    def memory_bytes(self) -> float:
        """Device memory of the fullest stage. [B]"""
        return float(self.document["summary"]["memory_bytes"])

    @property
    def fits(self) -> bool:
        """Whether the estimate fits the device."""
        return bool(self.document["summary"]["fits"])

    def step_terms(self) -> dict[str, float]:
        """Terms of the step, by what they are called beside an advice. [s]"""
        from mofa_model.advice.reasons import NAMES

        return {NAMES[name]: term["seconds"] for name, term in self.document["step"].items()}

    def to_dict(self) -> ExplainDocument:
        """The answer as plain data, the same as `-o json`."""
        return cast("ExplainDocument", output.as_data(self.document))

    def shown(self) -> Sequence[Any]:
        """The parts of the step as a bar, and the tables."""
        from mofa_model.page.figures import parts

        drawn = (
            []
            if self.question.evidence
            else [parts("Parts of a step", self.step_terms(), "{:.3g} s")]
        )
        return [*drawn, *super().shown()]


@asked_by(ExplainQuestion)
def explain(question: ExplainQuestion) -> ExplainAnswer:
    """Where the time and the memory of one strategy go, whether it fits or not."""
    from mofa_model.explanation import explain as terms_of
    from mofa_model.explanation import records

    require(question, first={} if question.strategy else {"--strategy": "tp=2"})
    problem = problems_of(question)[0]
    strategy = layout_of(question.strategy, problem, "--strategy")
    if question.evidence:
        tables, told, rows = evidence.evidence(problem, strategy)
        return ExplainAnswer(question=question, document=told, tables=tuple(tables), records=rows)
    found = terms_of(problem.workload, problem.cluster, strategy)
    return ExplainAnswer(
        question=question,
        document=found.document,
        tables=found.tables,
        records=records(found.document),
    )
