"""JSON schemas of our kinds: editors find what the operator would refuse."""

import copy
import json
from pathlib import Path

import pytest
from jsonschema import Draft7Validator
from ruamel.yaml import YAML

from mofa_model.manifest.crds import API_VERSION, SCHEMAS

ROOT = Path(__file__).parents[3]
VALIDATORS = {
    path.name.partition("_")[0]: Draft7Validator(json.loads(path.read_text()))
    for path in (ROOT / SCHEMAS).iterdir()
}
WRITTEN = [
    (path.name, json.loads(json.dumps(body, default=str)))
    for path in sorted((ROOT / "examples").rglob("*.yaml"))
    for body in YAML(typ="safe").load_all(path)
    if isinstance(body, dict) and body.get("apiVersion") == API_VERSION
]


def test_three_kinds_are_published_and_are_json_schemas() -> None:
    assert sorted(VALIDATORS) == ["advisorpolicy", "clusterprofile", "trainingjob"]
    for one in VALIDATORS.values():
        Draft7Validator.check_schema(one.schema)


def test_every_example_is_valid() -> None:
    assert len(WRITTEN) >= 5
    for name, body in WRITTEN:
        errors = [one.message for one in VALIDATORS[body["kind"].lower()].iter_errors(body)]
        assert errors == [], name


@pytest.mark.parametrize("kind", ["trainingjob", "clusterprofile"])
def test_a_field_that_is_spelled_wrong_or_of_a_wrong_type_is_found(kind) -> None:
    body = next(copy.deepcopy(one) for _, one in WRITTEN if one["kind"].lower() == kind)
    first = next(iter(body["spec"]))
    wrong = {**body, "spec": {**body["spec"], f"{first}s": 1}}
    (error,) = VALIDATORS[kind].iter_errors(wrong)
    assert f"'{first}s' was unexpected" in error.message
    assert list(VALIDATORS[kind].iter_errors({**body, "spec": 7}))
