"""The kinds of fields that our objects are made of: each text bounded, no number with a fraction.

A fraction is text (`"0.90"`), as the API conventions of Kubernetes have it. A quantity is text with
its unit (`"400 Gbit/s"`), which `mofa_model.units` alone parses.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Final, NamedTuple, TypeAlias

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    model_validator,
)
from pydantic.alias_generators import to_camel, to_snake
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

RULE: str = "rule"
"""Type of the error that a broken rule raises."""


class Rule(NamedTuple):
    """What must hold between fields, for the API server and for us."""

    cel: str
    """As an expression of the Common Expression Language."""
    message: str
    """What to do where it does not hold."""
    holds: Callable[[Any], bool]
    """The same in Python."""

    def as_schema(self) -> dict[str, str]:
        """The rule in the form of a CRD, which the API server checks."""
        return {"rule": self.cel, "message": self.message}

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Among the annotations of a type, it holds for every value of the type."""
        return core_schema.no_info_after_validator_function(self.require, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """The type's schema, with the rule."""
        return handler(schema) | {"x-kubernetes-validations": [self.as_schema()]}

    def require(self, value: Any) -> Any:
        """The value, where the rule holds for it."""
        if not self.holds(value):
            raise PydanticCustomError("rule", "{right}", {"right": self.message})
        return value


class Part(BaseModel):
    """A mapping of known fields: an unknown one is refused, and nothing is converted."""

    model_config = ConfigDict(
        strict=True, extra="forbid", frozen=True, alias_generator=to_camel, defer_build=True
    )
    rules: ClassVar[tuple[Rule, ...]] = ()
    atomic: ClassVar[bool] = False
    """Whether it is written as a whole: the API server then keeps one owner, which costs less."""

    @model_validator(mode="after")
    def _keep_rules(self) -> Part:
        """Refuse a part that breaks one of its rules, or has two items with one key."""
        for rule in self.rules:
            rule.require(self)
        for name, by in _keyed(type(self)):
            items = getattr(self, name) or ()
            keys = [
                tuple(getattr(item, to_snake(key)) for key in by) if by else item for item in items
            ]
            if len(set(keys)) < len(keys):
                each = " and ".join(by) or "value"
                right = f"give each {each} of {to_camel(name)} once"
                raise PydanticCustomError("rule", "{right}", {"right": right})
        return self

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """The schema, with the rules as the API server checks them."""
        reference = handler(schema)
        inner = handler.resolve_ref_schema(reference)
        if cls.atomic:
            inner["x-kubernetes-map-type"] = "atomic"
        if cls.rules:
            inner["x-kubernetes-validations"] = [rule.as_schema() for rule in cls.rules]
        for name, description in _descriptions(cls).items():
            if cls.model_fields[name].description is None:
                inner["properties"][cls.model_fields[name].alias]["description"] = description
        return reference


@cache
def _keyed(part: type[Part]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Lists of a part without duplicates, with the fields of an item's key; a set has none."""
    extras = ((name, field.json_schema_extra) for name, field in part.model_fields.items())
    return tuple(
        (name, tuple(str(key) for key in keys))
        for name, extra in extras
        if isinstance(extra, dict)
        and "x-kubernetes-list-type" in extra
        and isinstance(keys := extra.get("x-kubernetes-list-map-keys", []), list)
    )


def keyed(*by: str) -> Any:
    """A list, empty by default, whose items are found by a key: server-side apply merges it."""
    extra: dict[str, Any] = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [*by]}
    return Field(default_factory=list, json_schema_extra=extra)


UNIQUE: Final[dict[str, Any]] = {"x-kubernetes-list-type": "set"}
"""Schema of a list of plain values, each of them once."""


def _text(most: int, pattern: str | None, example: str | None, *, least: int = 1) -> Any:
    """Text of `least` to `most` characters."""
    examples = None if example is None else [example]
    return Field(min_length=least, max_length=most, pattern=pattern, examples=examples)


def _whole(least: int, most: int, example: int) -> Any:
    """A whole number between two bounds."""
    return Field(ge=least, le=most, examples=[example])


def _more_than_nothing(right: str) -> Rule:
    """A text whose number is more than zero."""
    return Rule("self.matches('[1-9]')", right, lambda text: bool(re.search("[1-9]", text)))


Text: TypeAlias = Annotated[str, _text(1024, None, "…", least=0)]
"""A sentence."""
Word: TypeAlias = Annotated[
    str, _text(128, r"^[A-Za-z0-9]([A-Za-z0-9._/ -]*[A-Za-z0-9])?$", "h100-80gb-sxm")
]
"""A preset's id or alias."""
Name: TypeAlias = Annotated[str, _text(253, r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$", "h100-east")]
"""The name of an object."""
Key: TypeAlias = Annotated[str, _text(253, r"^[A-Za-z0-9._-]+$", "config.json")]
"""A key of a ConfigMap."""
Version: TypeAlias = Annotated[
    str, _text(253, r"^[a-z0-9.-]+(/[a-z0-9]+)?$", "jobset.x-k8s.io/v1alpha2")
]
"""An apiVersion."""
Kind: TypeAlias = Annotated[str, _text(63, r"^[A-Z][A-Za-z0-9]*$", "JobSet")]
"""A kind."""
Reason: TypeAlias = Annotated[str, _text(64, "^[A-Z][A-Za-z0-9]*$", None)]
"""A reason in one word."""
Layout: TypeAlias = Annotated[str, _text(1000, None, "tp=8,pp=4,dp=32")]
"""A strategy as text."""
Argument: TypeAlias = Annotated[str, _text(4096, None, "--tensor-model-parallel-size", least=0)]
"""One word of a launch command."""
Label: TypeAlias = Annotated[
    str, _text(253, r"^[A-Za-z0-9]([A-Za-z0-9._/-]*[A-Za-z0-9])?$", "nvidia.com/gpu.product")
]
"""A label's key."""
SeriesLabel: TypeAlias = Annotated[str, _text(128, r"^[a-zA-Z_][a-zA-Z0-9_]*$", None)]
"""A label of series, as Prometheus has it."""
LabelValue: TypeAlias = Annotated[str, _text(256, None, "NVIDIA-H100-80GB-HBM3", least=0)]
"""A label's value."""
Decimal: TypeAlias = Annotated[str, _text(24, r"^[0-9]{1,12}(\.[0-9]{1,9})?$", "0.90")]
"""A number that may have a fraction, zero or more."""
Positive: TypeAlias = Annotated[Decimal, _more_than_nothing("give more than 0")]
"""A decimal above zero."""
Fraction: TypeAlias = Annotated[
    Decimal,
    Rule(
        "double(self) > 0.0 && double(self) <= 1.0",
        "give more than 0 and at most 1",
        lambda text: 0 < float(text) <= 1,
    ),
]
"""A decimal above zero and at most one."""
AtLeastOne: TypeAlias = Annotated[
    Decimal, Rule("double(self) >= 1.0", "give 1 or more", lambda text: float(text) >= 1)
]
"""A decimal of one or more."""
Signed: TypeAlias = Annotated[str, _text(24, r"^-?[0-9]{1,12}(\.[0-9]{1,9})?$", "-0.03")]
"""A decimal that may be negative."""
Tokens: TypeAlias = Annotated[
    str,
    _text(24, r"^[0-9]{1,18}(\.[0-9]{1,6})?[kKMGBTPE]?$", "15T"),
    _more_than_nothing("give more than 0"),
]
"""A large whole number with a suffix."""
Size: TypeAlias = Annotated[
    str,
    _text(32, r"^[0-9]{1,12}(\.[0-9]{1,6})? ?[KMGTPE]?i?B$", "6.4 TB"),
    _more_than_nothing("give more than 0 bytes"),
]
"""Bytes."""
Rate: TypeAlias = Annotated[
    str,
    _text(32, r"^[0-9]{1,12}(\.[0-9]{1,6})? ?[kKMGTPE]?i?(B|bit)/s$", "400 Gbit/s"),
    _more_than_nothing("give more than 0 B/s"),
]
"""Bytes or bits per second."""
Fabric: TypeAlias = Annotated[
    str,
    Field(
        min_length=1,
        max_length=64,
        pattern=r"^[A-Za-z0-9]([A-Za-z0-9._/ -]*[A-Za-z0-9])?$",
        examples=["ndr", "400 Gbit/s"],
    ),
    Rule(
        "!self.matches('^[0.]+ ?[A-Za-z]+/s$')",
        "give more than 0 B/s",
        lambda text: re.fullmatch(r"[0.]+ ?[A-Za-z]+/s", text) is None,
    ),
]
"""A fabric preset, or a bandwidth."""
Moment: TypeAlias = Annotated[
    str, _text(32, r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+Z$", "2026-01-31T09:30:00Z")
]
"""A point in time, in UTC."""
Degree: TypeAlias = Annotated[int, _whole(1, 65536, 8)]
"""A parallel degree."""
Devices: TypeAlias = Annotated[int, _whole(1, 1024, 8)]
"""GPUs of a node, or a part of them."""
Count: TypeAlias = Annotated[int, _whole(1, 10_000_000, 256)]
"""A whole number of one or more."""
Layers: TypeAlias = Annotated[int, _whole(1, 1024, 126)]
"""Layers of a model: eight times as many as the deepest that is trained."""
Zero: TypeAlias = Annotated[int, _whole(0, 10_000_000, 0)]
"""A whole number of zero or more."""
Big: TypeAlias = Annotated[int, _whole(0, 9_000_000_000_000_000_000, 85_899_345_920)]
"""A whole number that may need 63 bits."""
Seconds: TypeAlias = Annotated[int, _whole(0, 315_360_000, 600)]
"""Whole seconds, up to ten years."""
SomeSeconds: TypeAlias = Annotated[int, _whole(1, 315_360_000, 600)]
"""Whole seconds, at least one."""
Percent: TypeAlias = Annotated[int, _whole(0, 100, 10)]
"""A share in percent."""


def _descriptions(model: type[Part]) -> dict[str, str]:
    """Docstrings of a model's fields. Schemas alone need them, and reading them is slow."""
    descriptions: dict[str, str] = {}
    for base in reversed(model.__mro__):
        descriptions |= _descriptions_in(base)
    return {name: text for name, text in descriptions.items() if name in model.model_fields}


@cache
def _descriptions_in(model: type) -> dict[str, str]:
    """Docstrings below the fields of one class, by field."""
    try:
        (written,) = ast.parse(inspect.getsource(model)).body
    except (OSError, TypeError):  # it was made, not written
        return {}
    if not isinstance(written, ast.ClassDef) or not issubclass(model, Part):
        return {}
    return {
        field.target.id: _joined(inspect.cleandoc(str(text.value.value)))
        for field, text in pairwise(written.body)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
    }


def _joined(text: str) -> str:
    """Text of a docstring without the ends of its lines; an empty line becomes one."""
    return "\n".join(" ".join(part.splitlines()) for part in text.split("\n\n"))
