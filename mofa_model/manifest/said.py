"""Who said what of a job that is no TrainingJob: so that what is missing, or wrong, is told in its own words and at its own place."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterator, Mapping
from typing import Any, Final

from mofa_model.annotations import PREFIX
from mofa_model.errors import InputError, shown
from mofa_model.kinds import Demand
from mofa_model.manifest.spoken import model_said

PATH: Final = "job"
"""What the spec that a job amounts to is called before its fields are told by their own places."""
_FACTS: Final = {"sequenceLength": "sequence length", "globalBatchSize": "global batch size"}
"""Fields of the training without which there is no question, and what they are called."""
_MODEL: Final = f"the annotation {PREFIX}model"
_ELSEWHERE: Final = (
    f"an AdvisorPolicy of the namespace, or in the spec behind the annotation {PREFIX}config-ref"
)


class Said:
    """Where each part of a spec was said; what is said later stands over what was said before."""

    def __init__(self, kind: str, demand: Demand) -> None:
        """Nothing was said yet; `demand` is what the job asks for."""
        self._kind = kind
        self._demand = demand
        self._places: dict[str, str] = {}

    def add(
        self, given: dict[str, Any], over: Mapping[str, Any], place: str, model: str = ""
    ) -> None:
        """Put one spec over another, section by section; `place` is where it stands, `model` where its model does, if elsewhere."""
        for key, value in over.items():
            if isinstance(value, Mapping) and key != "model":
                own = given.get(key)
                given[key] = {**(own if isinstance(own, dict) else {}), **value}
                self._places |= {
                    f"{PATH}.{key}.{one}": f"{place}{_under(place)}{key}.{one}" for one in value
                }
            else:
                given[key] = value
                self._places[f"{PATH}.{key}"] = f"{place}{_under(place)}{key}"
                if key == "model":
                    self._places |= dict.fromkeys(
                        (f"{PATH}.model.preset", f"{PATH}.model"), model or place
                    )

    def check(self, given: Mapping[str, Any]) -> None:
        """Refuse a job of which nobody says the model, or the size of a step: by the place where it would say so."""
        training = given.get("training")
        known = training if isinstance(training, Mapping) else {}
        missing = [field for field in _FACTS if field not in known]
        words = f"{shown(shlex.join(self._demand.words))} says" if self._demand.words else "says"
        if "model" not in given:
            name = model_said(self._demand.words, self._demand.model)
            why = (
                f"names {shown(name)}, which is no model that is known"
                if name
                else f"{words} no model"
            )
            right = f"give the {self._kind} {_MODEL}, for example llama3-8b, or training.model in {_ELSEWHERE}"
            raise InputError(f"{self._demand.said}: {why}; {right}")
        if missing:
            nouns = " and no ".join(_FACTS[field] for field in missing)
            fields = " and ".join(f"training.{field}" for field in missing)
            raise InputError(
                f"{self._demand.said}: {words} no {nouns}; give {fields} in {_ELSEWHERE}"
            )

    @contextlib.contextmanager
    def told(self) -> Iterator[None]:
        """Errors within are told by the place where the field was said."""
        try:
            yield
        except InputError as error:
            text = str(error)
            if not text.startswith(PATH):
                raise
            for field in sorted(self._places, key=len, reverse=True):
                if text.startswith(field):
                    raise InputError(self._places[field] + text.removeprefix(field)) from None
            raise InputError(f"{self._kind}{text.removeprefix(PATH)}") from None


def _under(place: str) -> str:
    """What stands between a place and a field of it: the spec of an object goes on, anything else holds a spec."""
    return "." if place.endswith("spec") else ": "
