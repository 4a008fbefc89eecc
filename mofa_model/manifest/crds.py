"""The CustomResourceDefinitions, made from the models of this room, and JSON schemas for editors.

`python -m mofa_model.manifest.crds` writes crds/ and docs/reference/schema/mofa.dev/; with --check
it compares.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from mofa_model.files import write_text
from mofa_model.manifest.advisor_policy import AdvisorPolicySpec, AdvisorPolicyStatus
from mofa_model.manifest.cluster_profile import ClusterProfileSpec, ClusterProfileStatus
from mofa_model.manifest.failure_history import FailureLedgerStatus
from mofa_model.manifest.fields import Part
from mofa_model.manifest.status import TrainingJobStatus
from mofa_model.manifest.training_job import TrainingJobSpec
from mofa_model.yaml_text import as_yaml

GROUP: Final = "mofa.dev"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"
FOLDER: Final = "crds"
SCHEMAS: Final = f"docs/reference/schema/{GROUP}"
"""Where the schemas for editors are."""

_HEADER: Final = (
    "# Made by `python -m mofa_model.manifest.crds` from the models in mofa_model/manifest; "
    "do not edit.\n"
)
_AGE: Final = ("AGE", "date", ".metadata.creationTimestamp", 0)
_READY: Final = ("READY", "string", '.status.conditions[?(@.type=="Ready")].status', 0)
_REASON: Final = ("REASON", "string", '.status.conditions[?(@.type=="Ready")].reason', 0)


def crds() -> dict[str, dict[str, Any]]:
    """The definitions by file name."""
    definitions = [
        _definition(
            kind="TrainingJob",
            plural="trainingjobs",
            short=["tjob", "tj"],
            scope="Namespaced",
            spec=TrainingJobSpec,
            status=TrainingJobStatus,
            columns=[
                ("NODES", "integer", ".status.inputs.nodes", 0),
                ("STRATEGY", "string", ".status.recommendation.summary", 0),
                ("CKPT-S", "integer", ".status.recommendation.checkpointIntervalSeconds", 0),
                ("TOK/S", "integer", ".status.recommendation.predicted.tokensPerSecond.target", 0),
                ("OBSERVED", "integer", ".status.observed.tokensPerSecond", 0),
                ("ETTR", "string", ".status.recommendation.predicted.ettr.target", 0),
                _READY,
                _REASON,
                ("HEALTH", "string", ".status.health", 0),
                ("FINISH", "string", ".status.observed.finish.days", 0),
                ("MODEL", "string", ".spec.model.preset", 1),
                ("PROFILE", "string", ".spec.cluster.profile", 1),
                ("MODE", "string", ".spec.mode", 1),
                ("MEMORY", "integer", ".status.recommendation.predicted.memoryBytes.target", 1),
                ("FITS", "string", ".status.recommendation.odds.fits", 1),
                ("VERSION", "string", ".status.modelVersion", 1),
                _AGE,
            ],
            selectable=[".spec.mode", ".spec.cluster.profile", ".status.health"],
        ),
        _definition(
            kind="ClusterProfile",
            plural="clusterprofiles",
            short=["cprof"],
            scope="Cluster",
            spec=ClusterProfileSpec,
            status=ClusterProfileStatus,
            columns=[
                ("NODES", "integer", ".status.nodes.total", 0),
                ("AVAILABLE", "integer", ".status.nodes.ready", 0),
                ("ASSUMED", "string", ".status.total.assumed", 0),
                ("OBSERVED", "string", ".status.total.observed", 0),
                ("COVERAGE", "integer", ".status.total.coveragePercent", 0),
                ("VERDICT", "string", '.status.conditions[?(@.type=="AssumptionsHold")].reason', 0),
                ("EFFECTIVE", "integer", ".status.whatWouldHelp.effectivePercent", 1),
                ("GPU", "string", ".spec.gpu", 1),
                _AGE,
            ],
            selectable=[".spec.gpu"],
        ),
        _definition(
            kind="AdvisorPolicy",
            plural="advisorpolicies",
            short=["apol"],
            scope="Namespaced",
            spec=AdvisorPolicySpec,
            status=AdvisorPolicyStatus,
            columns=[
                ("MODE", "string", ".spec.mode", 0),
                ("PROFILE", "string", ".spec.profile", 0),
                ("JOBS", "integer", ".status.jobs", 0),
                _AGE,
            ],
            selectable=[".spec.mode"],
        ),
        _definition(
            kind="FailureLedger",
            plural="failureledgers",
            short=["fled"],
            scope="Cluster",
            spec=None,
            status=FailureLedgerStatus,
            columns=[
                ("SINCE", "string", ".status.since", 0),
                ("FAILURES", "integer", ".status.failures", 0),
                ("NODE-DAYS", "string", ".status.nodeDays", 0),
                ("WRITTEN", "date", ".status.time", 0),
                _AGE,
            ],
            selectable=[],
        ),
    ]
    return {f"{GROUP}_{crd['spec']['names']['plural']}.yaml": crd for crd in definitions}


def _definition(
    *,
    kind: str,
    plural: str,
    short: list[str],
    scope: str,
    spec: type[Part] | None,
    status: type[Part],
    columns: list[tuple[str, str, str, int]],
    selectable: list[str],
) -> dict[str, Any]:
    """The definition of a kind; without a `spec` it is the operator's alone to write."""
    parts = {} if spec is None else {"spec": structural(spec)}
    schema = {
        "type": "object",
        "description": structural(spec or status)["description"],
        **({"required": [*parts]} if parts else {}),
        "properties": {
            "apiVersion": {"type": "string", "description": f"{API_VERSION}."},
            "kind": {"type": "string", "description": f"{kind}."},
            "metadata": {"type": "object"},
            **parts,
            "status": structural(status, defaults=False),
        },
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "names": {
                "kind": kind,
                "listKind": f"{kind}List",
                "plural": plural,
                "singular": kind.lower(),
                "shortNames": short,
                "categories": ["mofa"],
            },
            "scope": scope,
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": [
                        {"name": name, "type": type_, "jsonPath": path, "priority": priority}
                        for name, type_, path, priority in columns
                    ],
                    **(
                        {"selectableFields": [{"jsonPath": path} for path in selectable]}
                        if selectable
                        else {}
                    ),
                    "schema": {"openAPIV3Schema": schema},
                }
            ],
        },
    }


def editor_schemas() -> dict[str, dict[str, Any]]:
    """A JSON schema of each kind that people write, by its file's name as kubeconform looks
    for it.
    """
    schemas = dict[str, dict[str, Any]]()
    for definition in crds().values():
        names = definition["spec"]["names"]
        schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        if "spec" not in schema["properties"]:
            continue  # the operator's alone to write
        whole = _editable(schema)
        whole["properties"] |= {
            "apiVersion": {"const": API_VERSION},
            "kind": {"const": names["kind"]},
            "metadata": {"type": "object", "required": ["name"]},
        }
        schemas[f"{names['singular']}_{VERSION}.json"] = {
            "$schema": "http://json-schema.org/draft-07/schema#",
            "title": names["kind"],
            **whole,
            "required": ["apiVersion", "kind", "metadata", *schema.get("required", ())],
        }
    return schemas


def _editable(schema: Any) -> Any:
    """A schema in words that editors know; a field that it does not name is an error."""
    if isinstance(schema, list):
        return [_editable(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    fields = {
        key: _editable(value)
        for key, value in schema.items()
        if not key.startswith("x-kubernetes-")
        and key not in {"properties", "format"}
        and not (key == "default" and value == {})
    }
    if "properties" in schema:
        fields["properties"] = {
            name: _editable(part) for name, part in schema["properties"].items()
        }
        if not schema.get("x-kubernetes-preserve-unknown-fields"):
            fields["additionalProperties"] = False
    return fields


def file_text(definition: dict[str, Any]) -> str:
    """A definition as the text of its file."""
    return _HEADER + as_yaml(definition)


def main(argv: list[str] | None = None) -> int:
    """Write the files, or with --check say which differ."""
    parser = argparse.ArgumentParser(
        prog="python -m mofa_model.manifest.crds", description=__doc__, allow_abbrev=False
    )
    parser.add_argument(
        "folder", nargs="?", default=FOLDER, help="where the files are (default: crds)"
    )
    parser.add_argument(
        "--check", action="store_true", help="compare and exit 1 where a file differs"
    )
    arguments = parser.parse_args(argv)
    folder = Path(arguments.folder)
    files = {folder / name: file_text(crd) for name, crd in crds().items()}
    if arguments.folder == FOLDER:
        files |= {
            Path(SCHEMAS, name): json.dumps(schema, indent=1) + "\n"
            for name, schema in editor_schemas().items()
        }
    if arguments.check:
        stale = [p for p, text in files.items() if not p.is_file() or p.read_text("utf-8") != text]
        for path in stale:
            sys.stderr.write(
                f"{path}: differs from the models; run python -m mofa_model.manifest.crds\n"
            )
        return 1 if stale else 0
    for parent in dict.fromkeys(path.parent for path in files):
        parent.mkdir(parents=True, exist_ok=True)
    for path, text in files.items():
        write_text(path, text)
        sys.stdout.write(f"{path}\n")
    return 0


_KEPT: Final = (
    "type",
    "description",
    "format",
    "enum",
    "default",
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "pattern",
    "minItems",
    "maxItems",
    "maxProperties",
    "required",
    "x-kubernetes-validations",
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-map-type",
    "x-kubernetes-preserve-unknown-fields",
)


def structural(part: type[Part], *, defaults: bool = True) -> dict[str, Any]:
    """The self-contained schema of a model; that of a status has no `defaults`."""
    whole = part.model_json_schema(by_alias=True)
    schema = _plain(whole, whole.get("$defs", {}))
    return schema if defaults else _bare(schema)


def _plain(source: Mapping[str, Any], shared: Mapping[str, Any]) -> dict[str, Any]:
    """A JSON schema in the subset that CRDs know: references written out, lists atomic."""
    schema = _resolved(source, shared)
    fields: dict[str, Any] = {key: schema[key] for key in _KEPT if key in schema}
    if "const" in schema:
        fields |= {"type": "string", "enum": [schema["const"]]}
    if fields.get("default", ...) is None:
        del fields["default"]
    if fields.get("type") == "integer":
        fields["format"] = "int64"
    if "items" in schema:
        fields["items"] = _plain(schema["items"], shared)
        fields.setdefault("x-kubernetes-list-type", "atomic")
    if "properties" in schema:
        needed = set(schema.get("required", ()))
        fields["properties"] = {
            name: _plain(part, shared) if name in needed else _optional(part, shared)
            for name, part in schema["properties"].items()
        }
    elif "patternProperties" in schema:
        fields |= _mapping(schema, shared)
    return fields


def _mapping(schema: Mapping[str, Any], shared: Mapping[str, Any]) -> dict[str, Any]:
    """A mapping with keys of its own; structural schemas cannot bound keys, so a rule does."""
    ((pattern, values),) = schema["patternProperties"].items()
    names = schema["propertyNames"]
    least, most = names["minLength"], names["maxLength"]
    return {
        "additionalProperties": _plain(values, shared),
        "x-kubernetes-map-type": "atomic",
        "x-kubernetes-validations": [
            {
                "rule": f"self.all(k, k.size() >= {least} && k.size() <= {most} "
                f"&& k.matches('{pattern}'))",
                "message": f"keys have {least} to {most} characters and match {pattern}",
            }
        ],
    }


def _bare(schema: Any) -> Any:
    """A schema without defaults at any depth."""
    if isinstance(schema, list):
        return [_bare(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    fields = {
        key: _bare(value) for key, value in schema.items() if key not in {"default", "properties"}
    }
    if "properties" in schema:
        fields["properties"] = {name: _bare(part) for name, part in schema["properties"].items()}
    return fields


def _optional(source: Mapping[str, Any], shared: Mapping[str, Any]) -> dict[str, Any]:
    """A property that may be missing; a part of defaults alone is there without being written."""
    schema = _plain(source, shared)
    nothing = any(option.get("type") == "null" for option in source.get("anyOf", ()))
    if (
        schema.get("type") == "object"
        and not nothing
        and "required" not in schema
        and "properties" in schema
    ):
        schema["default"] = {}
    return schema


def _resolved(source: Mapping[str, Any], shared: Mapping[str, Any]) -> dict[str, Any]:
    """A schema without references and nulls; keys beside a reference win over it."""
    beside = {key: value for key, value in source.items() if key not in {"$ref", "anyOf", "allOf"}}
    if "$ref" in source:
        return _resolved(shared[source["$ref"].rpartition("/")[2]], shared) | beside
    if "anyOf" in source:
        (only,) = (option for option in source["anyOf"] if option.get("type") != "null")
        return _resolved(only, shared) | beside
    return beside


if __name__ == "__main__":
    sys.exit(main())
