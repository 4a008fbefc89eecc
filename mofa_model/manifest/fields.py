"""The kinds of fields that our objects are made of: each text bounded, no number with a fraction.

A fraction is text (`"0.90"`), as the API conventions of Kubernetes have it, and a quantity is text with its unit
(`"400 Gbit/s"`), which `mofa_model.units` alone parses.
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
    StringConstraints,
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
        """As the API server checks it."""
        return {"rule": self.cel, "message": self.message}

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Among the annotations of a type, it holds for every value of the type."""
        return core_schema.no_info_after_validator_function(self.kept, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """The type's schema, with the rule."""
        return handler(schema) | {"x-kubernetes-validations": [self.as_schema()]}

    def kept(self, value: Any) -> Any:
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
    """Whether it is written as a whole: the API server then keeps one owner for all of it, which costs it less."""

    @model_validator(mode="after")
    def _keep_rules(self) -> Part:
        for rule in self.rules:
            rule.kept(self)
        for name, by in _keyed(type(self)):
            given = getattr(self, name) or ()
            keys = [
                tuple(getattr(item, to_snake(one)) for one in by) if by else item for item in given
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
        made = handler(schema)
        inner = handler.resolve_ref_schema(made)
        if cls.atomic:
            inner["x-kubernetes-map-type"] = "atomic"
        if cls.rules:
            inner["x-kubernetes-validations"] = [rule.as_schema() for rule in cls.rules]
        for name, told in _told(cls).items():
            if cls.model_fields[name].description is None:
                inner["properties"][cls.model_fields[name].alias]["description"] = told
        return made


@cache
def _keyed(part: type[Part]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """The lists of a part that hold nothing twice, each with the fields that make an item's key: none where it is a set."""
    extras = ((name, field.json_schema_extra) for name, field in part.model_fields.items())
    return tuple(
        (name, tuple(str(key) for key in keys))
        for name, extra in extras
        if isinstance(extra, dict)
        and "x-kubernetes-list-type" in extra
        and isinstance(keys := extra.get("x-kubernetes-list-map-keys", []), list)
    )


def keyed(*by: str) -> dict[str, Any]:
    """Schema of a list whose items are found by a key, so that server-side apply merges it."""
    return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [*by]}


UNIQUE: Final[dict[str, Any]] = {"x-kubernetes-list-type": "set"}
"""Schema of a list of plain values, each of them once."""


def _more_than_nothing(right: str) -> Rule:
    """A text whose number is more than zero."""
    return Rule(
        "self.matches('[1-9]')", right, lambda text: any(digit in text for digit in "123456789")
    )


Text: TypeAlias = Annotated[
    str, StringConstraints(min_length=0, max_length=1024), Field(examples=["…"])
]
"""A sentence."""
Word: TypeAlias = Annotated[
    str,
    StringConstraints(
        min_length=1, max_length=128, pattern=r"^[A-Za-z0-9]([A-Za-z0-9._/ -]*[A-Za-z0-9])?$"
    ),
    Field(examples=["h100-80gb-sxm"]),
]
"""A preset's id or alias."""
Name: TypeAlias = Annotated[
    str,
    StringConstraints(min_length=1, max_length=253, pattern=r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$"),
    Field(examples=["h100-east"]),
]
"""The name of an object."""
Key: TypeAlias = Annotated[
    str,
    StringConstraints(min_length=1, max_length=253, pattern=r"^[A-Za-z0-9._-]+$"),
    Field(examples=["config.json"]),
]
"""A key of a ConfigMap."""
Version: TypeAlias = Annotated[
    str,
    StringConstraints(min_length=1, max_length=253, pattern=r"^[a-z0-9.-]+(/[a-z0-9]+)?$"),
    Field(examples=["jobset.x-k8s.io/v1alpha2"]),
]
"""An apiVersion."""
Kind: TypeAlias = Annotated[
    str,
    StringConstraints(min_length=1, max_length=63, pattern=r"^[A-Z][A-Za-z0-9]*$"),
    Field(examples=["JobSet"]),
]
"""A kind."""
Layout: TypeAlias = Annotated[
    str, StringConstraints(min_length=1, max_length=1000), Field(examples=["tp=8,pp=4,dp=32"])
]
"""A strategy as text."""
Argument: TypeAlias = Annotated[
    str,
    StringConstraints(min_length=0, max_length=4096),
    Field(examples=["--tensor-model-parallel-size"]),
]
"""One word of a launch command."""
Label: TypeAlias = Annotated[
    str,
    StringConstraints(
        min_length=1, max_length=253, pattern=r"^[A-Za-z0-9]([A-Za-z0-9._/-]*[A-Za-z0-9])?$"
    ),
    Field(examples=["nvidia.com/gpu.product"]),
]
"""A label's key."""
SeriesLabel: TypeAlias = Annotated[
    str, StringConstraints(min_length=1, max_length=128, pattern=r"^[a-zA-Z_][a-zA-Z0-9_]*$")
]
"""A label of series, as Prometheus has it."""
LabelValue: TypeAlias = Annotated[
    str, StringConstraints(min_length=0, max_length=256), Field(examples=["NVIDIA-H100-80GB-HBM3"])
]
"""A label's value."""
Decimal: TypeAlias = Annotated[
    str,
    StringConstraints(min_length=1, max_length=24, pattern=r"^[0-9]{1,12}(\.[0-9]{1,9})?$"),
    Field(examples=["0.90"]),
]
"""A number that may have a fraction, zero or more."""
Positive: TypeAlias = Annotated[Decimal, _more_than_nothing("give more than 0")]
"""The same, more than nothing."""
Fraction: TypeAlias = Annotated[
    Decimal,
    Rule(
        "double(self) > 0.0 && double(self) <= 1.0",
        "give more than 0 and at most 1",
        lambda text: 0 < float(text) <= 1,
    ),
]
"""The same, more than nothing and at most the whole."""
AtLeastOne: TypeAlias = Annotated[
    Decimal, Rule("double(self) >= 1.0", "give 1 or more", lambda text: float(text) >= 1)
]
"""The same, at least one."""
Signed: TypeAlias = Annotated[
    str,
    StringConstraints(min_length=1, max_length=24, pattern=r"^-?[0-9]{1,12}(\.[0-9]{1,9})?$"),
    Field(examples=["-0.03"]),
]
"""The same with a sign."""
Tokens: TypeAlias = Annotated[
    str,
    StringConstraints(
        min_length=1, max_length=24, pattern=r"^[0-9]{1,18}(\.[0-9]{1,6})?[kKMGBTPE]?$"
    ),
    Field(examples=["15T"]),
    _more_than_nothing("give more than 0"),
]
"""A large whole number with a suffix."""
Size: TypeAlias = Annotated[
    str,
    StringConstraints(
        min_length=1, max_length=32, pattern=r"^[0-9]{1,12}(\.[0-9]{1,6})? ?[KMGTPE]?i?B$"
    ),
    Field(examples=["6.4 TB"]),
    _more_than_nothing("give more than 0 bytes"),
]
"""Bytes."""
Rate: TypeAlias = Annotated[
    str,
    StringConstraints(
        min_length=1, max_length=32, pattern=r"^[0-9]{1,12}(\.[0-9]{1,6})? ?[kKMGTPE]?i?(B|bit)/s$"
    ),
    Field(examples=["400 Gbit/s"]),
    _more_than_nothing("give more than 0 B/s"),
]
"""Bytes or bits per second."""
Fabric: TypeAlias = Annotated[
    str,
    StringConstraints(
        min_length=1, max_length=64, pattern=r"^[A-Za-z0-9]([A-Za-z0-9._/ -]*[A-Za-z0-9])?$"
    ),
    Field(examples=["ndr", "400 Gbit/s"]),
    Rule(
        "!self.matches('^[0.]+ ?[A-Za-z]+/s$')",
        "give more than 0 B/s",
        lambda text: re.fullmatch(r"[0.]+ ?[A-Za-z]+/s", text) is None,
    ),
]
"""A fabric preset, or a bandwidth."""
Moment: TypeAlias = Annotated[
    str,
    StringConstraints(
        min_length=1, max_length=32, pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+Z$"
    ),
    Field(examples=["2026-01-31T09:30:00Z"]),
]
"""A point in time, in UTC."""
Degree: TypeAlias = Annotated[int, Field(ge=1, le=65536, examples=[8])]
"""A parallel degree."""
Devices: TypeAlias = Annotated[int, Field(ge=1, le=1024, examples=[8])]
"""GPUs of a node, or a part of them."""
Count: TypeAlias = Annotated[int, Field(ge=1, le=10_000_000, examples=[256])]
"""A whole number of one or more."""
Layers: TypeAlias = Annotated[int, Field(ge=1, le=1024, examples=[126])]
"""Layers of a model: eight times as many as the deepest that is trained."""
Zero: TypeAlias = Annotated[int, Field(ge=0, le=10_000_000, examples=[0])]
"""A whole number of zero or more."""
Big: TypeAlias = Annotated[
    int, Field(ge=0, le=9_000_000_000_000_000_000, examples=[85_899_345_920])
]
"""A whole number that may need 63 bits."""
Seconds: TypeAlias = Annotated[int, Field(ge=0, le=315_360_000, examples=[600])]
"""Whole seconds, up to ten years."""
SomeSeconds: TypeAlias = Annotated[int, Field(ge=1, le=315_360_000, examples=[600])]
"""Whole seconds, at least one."""
Percent: TypeAlias = Annotated[int, Field(ge=0, le=100, examples=[10])]
"""A share in percent."""


def _told(model: type[Part]) -> dict[str, str]:
    """What stands below a model's fields. Schemas alone need it: read at every import, it took a fifth of that time."""
    told: dict[str, str] = {}
    for one in reversed(model.__mro__):
        told |= _told_by(one)
    return {name: text for name, text in told.items() if name in model.model_fields}


@cache
def _told_by(model: type) -> dict[str, str]:
    """What stands below the fields that one class writes itself."""
    try:
        (written,) = ast.parse(inspect.getsource(model)).body
    except (OSError, TypeError):  # it was made, not written
        return {}
    if not isinstance(written, ast.ClassDef) or not issubclass(model, Part):
        return {}
    return {
        field.target.id: inspect.cleandoc(str(text.value.value))
        for field, text in pairwise(written.body)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
    }
