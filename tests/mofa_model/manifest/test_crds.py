"""The definitions are made from the models, structural, bounded, and the same as the files."""

from pathlib import Path

import pytest
from definitions import SHIPPED
from each import each

from mofa_model.manifest.crds import crds, file_text, main
from mofa_model.manifest.documents import Documents
from mofa_model.manifest.parsing import cluster_profile, training_job

ROOT = Path(__file__).parents[3]


def schemas(schema, path=""):
    """Every schema inside a schema, with its path."""
    yield path, schema
    for name, inner in schema.get("properties", {}).items():
        yield from schemas(inner, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            yield from schemas(schema[key], f"{path}[{key}]")


EVERY = [
    pytest.param(schema, id=f"{crd['spec']['names']['kind']}{path}")
    for crd in SHIPPED.values()
    for version in crd["spec"]["versions"]
    for path, schema in schemas(version["schema"]["openAPIV3Schema"])
    if path not in {"", ".apiVersion", ".kind", ".metadata"}
]


def test_the_files_are_those_that_the_models_make():
    made = crds()
    assert made == SHIPPED
    for name, crd in made.items():
        assert (ROOT / "crds" / name).read_text("utf-8") == file_text(crd)


def test_the_comparison_fails_where_a_file_differs(tmp_path, capsys):
    assert main([str(tmp_path)]) == 0
    assert main([str(tmp_path), "--check"]) == 0
    stale = next(tmp_path.iterdir())
    stale.write_text("old")
    assert main([str(tmp_path), "--check"]) == 1
    assert stale.name in capsys.readouterr().err


@each(EVERY)
def test_every_schema_is_structural_and_bounded(schema):
    assert schema["type"] in {
        "object",
        "array",
        "string",
        "integer",
        "boolean",
    }  # no floats, no unions
    assert not {"$ref", "anyOf", "oneOf", "title", "examples", "const", "nullable"} & set(schema)
    if schema["type"] == "string":
        assert "enum" in schema or "maxLength" in schema
    if schema["type"] == "integer":
        assert {"minimum", "maximum"} <= set(schema)
        assert schema["format"] == "int64"
    if schema["type"] == "array":
        assert "maxItems" in schema
        assert schema["x-kubernetes-list-type"] in {"map", "set", "atomic"}
        assert set(schema.get("x-kubernetes-list-map-keys", ())) <= set(
            schema["items"].get("required", ())
        )
    if schema["type"] == "object":
        assert ("additionalProperties" in schema) != (
            "properties" in schema
        )  # else all of it is pruned
    if "additionalProperties" in schema:
        assert "maxProperties" in schema
        assert "k.matches(" in schema["x-kubernetes-validations"][0]["rule"]  # keys have no schema
    assert set(schema.get("required", ())) <= set(schema.get("properties", ()))
    for rule in schema.get("x-kubernetes-validations", ()):
        assert rule["rule"]
        assert rule["message"]


@pytest.mark.parametrize("crd", SHIPPED.values(), ids=SHIPPED)
def test_kubectl_explain_has_a_word_for_every_field(crd):
    (version,) = crd["spec"]["versions"]
    for path, schema in schemas(version["schema"]["openAPIV3Schema"]):
        if path != ".metadata" and "[" not in path.rpartition(".")[2]:
            assert schema.get("description"), path


def test_a_status_has_no_defaults_and_the_parts_that_one_writer_owns_are_atomic():
    # Each leaf costs the API server some 50 µs a write; empty strings that it fills in are leaves
    # too.
    (version,) = SHIPPED["mofa.dev_trainingjobs.yaml"]["spec"]["versions"]
    status = version["schema"]["openAPIV3Schema"]["properties"]["status"]
    assert all("default" not in schema for _, schema in schemas(status))
    owned = {
        n for n, s in status["properties"].items() if s.get("x-kubernetes-map-type") == "atomic"
    }
    assert owned == {"recommendation", "current", "inputs", "observed"}


def test_the_files_say_everything_in_place():
    for path in sorted((ROOT / "crds").glob("*.yaml")):
        assert "&id" not in path.read_text("utf-8"), path


@pytest.mark.parametrize("crd", SHIPPED.values(), ids=SHIPPED)
def test_a_definition_has_what_the_design_names(crd):
    names, version = crd["spec"]["names"], crd["spec"]["versions"][0]
    assert crd["metadata"]["name"] == f"{names['plural']}.mofa.dev"
    assert version["subresources"] == {"status": {}}
    short = {
        "TrainingJob": ["tjob", "tj"],
        "ClusterProfile": ["cprof"],
        "AdvisorPolicy": ["apol"],
        "FailureLedger": ["fled"],
    }
    assert names["shortNames"] == short[names["kind"]]
    properties = version["schema"]["openAPIV3Schema"]["properties"]
    for path in [*(c["jsonPath"] for c in version["additionalPrinterColumns"]), *(f["jsonPath"] for f in version.get("selectableFields", ()))]:  # fmt: skip
        place = {"properties": properties}
        for step in path.split("[")[0].strip(".").split("."):
            if place.get("properties"):
                assert step in place["properties"] or step == "creationTimestamp", path
                place = place["properties"].get(step, {})


def test_columns_are_those_of_the_design():
    (version,) = SHIPPED["mofa.dev_trainingjobs.yaml"]["spec"]["versions"]
    shown = [c["name"] for c in version["additionalPrinterColumns"] if c["priority"] == 0]
    assert shown == [
        "NODES",
        "STRATEGY",
        "CKPT-S",
        "TOK/S",
        "OBSERVED",
        "ETTR",
        "READY",
        "REASON",
        "HEALTH",
        "FINISH",
        "AGE",
    ]
    (version,) = SHIPPED["mofa.dev_clusterprofiles.yaml"]["spec"]["versions"]
    shown = [c["name"] for c in version["additionalPrinterColumns"] if c["priority"] == 0]
    assert shown == ["NODES", "AVAILABLE", "ASSUMED", "OBSERVED", "COVERAGE", "VERDICT", "AGE"]
    (version,) = SHIPPED["mofa.dev_failureledgers.yaml"]["spec"]["versions"]
    shown = [c["name"] for c in version["additionalPrinterColumns"]]
    assert shown == ["SINCE", "FAILURES", "NODE-DAYS", "WRITTEN", "AGE"]


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.yaml")), ids=lambda p: p.name)
def test_the_examples_are_what_the_models_read(path):
    for item in Documents.parse(path.read_text("utf-8"), path.name).items:
        reader = {"TrainingJob": training_job, "ClusterProfile": cluster_profile}.get(item.kind)
        assert reader is None or reader(item.value).name == item.name
