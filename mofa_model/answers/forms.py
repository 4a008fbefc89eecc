"""Shared by the forms of pages: reading their fields, and errors beside the fields.

Anybody who reaches a page chooses its address. So no field opens a file or a connection: models
are presets, or those that were named when the page was started.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from mofa_model import presets
from mofa_model.errors import BadValue, Missing, MofaError

LONGEST: Final = 200
"""Most characters of a field. [1]"""
KEPT: Final = 32
"""Answers that are kept for a page that is loaded or exported again. [1]"""


def written_values(sent: Mapping[str, str], field_names: Collection[str]) -> dict[str, str]:
    """The fields that are filled in, without spaces around; fields of no such name are dropped."""
    return {
        name: text.strip() for name, text in sent.items() if name in field_names and text.strip()
    }


def check_values(values: Mapping[str, str], models: Collection[str]) -> None:
    """Refuse a text that is too long, and a model that is neither named here nor a preset."""
    for name, text in values.items():
        if len(text) > LONGEST:
            raise BadValue(name, text, f"write at most {LONGEST} characters")
    if "model" in values and values["model"] not in models:
        presets.resolve("models", values["model"], field="model")


def errors_by_field(
    error: MofaError, field_names: Collection[str], field_of: Mapping[str, str]
) -> dict[str, str]:
    """The error by field; an error of no field stands under an empty name.

    `field_of` has the field of each option that an error may name.
    """
    if isinstance(error, Missing):
        return {
            field_of.get(flag, ""): f"is missing; for example {example}"
            for flag, example in error.examples.items()
        }
    name, _, why = str(error).partition(": ")
    return {name: why} if name in field_names else {"": str(error)}
