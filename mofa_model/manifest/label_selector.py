"""Which objects a selector means, by their labels: `matchLabels` and `matchExpressions`, as everywhere in Kubernetes.

A plain map of labels, as version 0.1.0 had it, is read as its `matchLabels`. The schema lets its keys stand for that reason,
so that a misspelt `matchLabel` is not refused by the API server but by the reader, which then says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import ConfigDict, Field, ValidationError, model_validator

from mofa_model.manifest.fields import UNIQUE, Label, LabelValue, Part, Rule

_LABELS: Final = "matchLabels"
_EXPRESSIONS: Final = "matchExpressions"


class Requirement(Part):
    """What one label has to be."""

    rules = (
        Rule(
            "(self.operator in ['In', 'NotIn']) == (has(self.values) && self.values.size() > 0)",
            "In and NotIn need values, Exists and DoesNotExist have none",
            lambda one: (one.operator in {"In", "NotIn"}) == bool(one.values),
        ),
    )

    key: Label
    """The label."""
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    """What has to hold of it."""
    values: Annotated[list[LabelValue], Field(max_length=16)] | None = Field(
        default=None, json_schema_extra=UNIQUE
    )
    """Values that it has to have one of, or none of."""

    def holds(self, labels: Mapping[str, Any]) -> bool:
        """Whether labels are so; a label that is not there has none of the values."""
        if self.operator in {"Exists", "DoesNotExist"}:
            return (self.key in labels) is (self.operator == "Exists")
        return (labels.get(self.key) in (self.values or ())) is (self.operator == "In")


class LabelSelector(Part):
    """Labels that must be there, and requirements that must hold; none = everything."""

    model_config = ConfigDict(json_schema_extra={"x-kubernetes-preserve-unknown-fields": True})

    match_labels: Annotated[dict[Label, LabelValue], Field(max_length=16)] | None = None
    """Labels, each with its value."""
    match_expressions: Annotated[list[Requirement], Field(max_length=16)] | None = None
    """Requirements, all of which must hold."""

    @model_validator(mode="before")
    @classmethod
    def _plain(cls, given: Any) -> Any:
        """A plain map of labels is its matchLabels."""
        is_plain = (
            isinstance(given, Mapping) and given and not {_LABELS, _EXPRESSIONS} & given.keys()
        )
        return {_LABELS: given} if is_plain else given

    def matches(self, labels: Mapping[str, Any]) -> bool:
        """Whether labels are selected.

        >>> LabelSelector.model_validate({"team": "a"}).matches({"team": "a", "tier": "x"})
        True
        """
        return all(
            labels.get(key) == value for key, value in (self.match_labels or {}).items()
        ) and all(one.holds(labels) for one in self.match_expressions or ())

    def keys(self) -> set[str]:
        """Labels on which it depends."""
        return {*(self.match_labels or {}), *(one.key for one in self.match_expressions or ())}


def read_selector(written: Any) -> LabelSelector:
    """The selector of a policy as it stands in a cluster; one that cannot be read selects everything, so that its reader sees it."""
    try:
        return LabelSelector.model_validate(written or {})
    except ValidationError:
        return LabelSelector()
