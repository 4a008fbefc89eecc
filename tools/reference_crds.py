"""Part of tools/reference.py: the custom resources, field by field, and how tables are written."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from mofa_model.manifest.crds import crds

HEAD = "<!-- Made by `python tools/reference.py`; do not edit. -->\n"
ON_EVERY_OBJECT = {"apiVersion", "kind", "metadata"}
CRDS = """\
Group `mofa.dev`, version `v1alpha1`. `kubectl explain tjob.spec` shows the same text. Numbers with
a fraction are text, because the API server stores no floats; an unknown field is refused under
strict validation.
"""


def table(headings: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table of markdown."""
    lines = [list(headings)]
    lines += [["---"] * len(lines[0])]
    lines += [[cell.replace("|", "\\|").replace("\n", " ") for cell in row] for row in rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def shown(value: Any) -> str:
    """A default, as people would write it; nothing where there is none."""
    if isinstance(value, tuple):
        value = ",".join(value)
    if value in (None, "", {}):
        return ""
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"`{value:g}`" if isinstance(value, float) else f"`{value}`"


def fields(
    schema: Mapping[str, Any], path: str = ""
) -> Iterator[tuple[str, Mapping[str, Any], bool]]:
    """Every field below a schema: path, its schema, whether it is required."""
    for name, inner in schema.get("properties", {}).items():
        if not path and name in ON_EVERY_OBJECT:
            continue
        inside = f"{path}.{name}" if path else name
        yield inside, inner, name in schema.get("required", [])
        yield from _within(inner, inside)


def _within(schema: Mapping[str, Any], path: str) -> Iterator[tuple[str, Mapping[str, Any], bool]]:
    if isinstance(schema.get("items"), Mapping):
        yield from _within(schema["items"], f"{path}[]")
    yield from fields(schema, path)


def kind_of_field(schema: Mapping[str, Any]) -> str:
    """The type of a field in words."""
    if schema["type"] == "array":
        return f"list of {kind_of_field(schema['items'])}"
    if isinstance(schema.get("additionalProperties"), Mapping):
        return "map of string"
    return str(schema["type"])


def bounds(schema: Mapping[str, Any]) -> str:
    """Bounds of the values of a field."""
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    limits = []
    for low, high, unit in (
        ("minimum", "maximum", ""), ("minLength", "maxLength", " characters"),
        ("minItems", "maxItems", " items"), ("minProperties", "maxProperties", " keys"),
    ):  # fmt: skip
        if low in schema and high in schema:
            limits.append(f"{schema[low]:,} to {schema[high]:,}{unit}")
        elif high in schema:
            limits.append(f"at most {schema[high]:,}{unit}")
    if "pattern" in schema:
        limits.append(f"`{schema['pattern']}`")
    if isinstance(schema.get("items"), Mapping) and (each := bounds(schema["items"])):
        limits.append(f"each {each}")
    inner = schema.get("additionalProperties")
    if isinstance(inner, Mapping) and (each := bounds(inner)):
        limits.append(f"values of {each}")
    return "; ".join(limits)


def default(schema: Mapping[str, Any], required: bool) -> str:
    """The default of a field."""
    if required:
        return "required"
    return shown(schema.get("default"))


def crd_page() -> str:
    """docs/reference/crds.md."""
    text = [
        HEAD, "# The custom resources\n",
        CRDS,
    ]  # fmt: skip
    for crd in crds().values():
        text += _crd(crd)
    return "\n".join(text)


def _crd(crd: Mapping[str, Any]) -> list[str]:
    names, version = crd["spec"]["names"], crd["spec"]["versions"][0]
    schema = version["schema"]["openAPIV3Schema"]
    short = ", ".join(f"`{name}`" for name in names["shortNames"])
    scope = crd["spec"]["scope"].lower()
    text = [
        f"## {names['kind']}\n",
        f"{schema['description']} {scope.capitalize()}; short names: {short}.\n",
    ]
    columns = [
        (
            f"`{column['name']}`",
            f"`{column['jsonPath']}`",
            "" if column.get("priority", 0) == 0 else "with `-o wide`",
        )
        for column in version.get("additionalPrinterColumns", [])
    ]
    text += [table(("column", "shows", ""), columns), ""]
    if chosen := [
        f"`{selected['jsonPath'][1:]}`" for selected in version.get("selectableFields", [])
    ]:
        text += [f"Field selectors: {', '.join(chosen)}.\n"]
    rules = []
    for part in (half for half in ("spec", "status") if half in schema["properties"]):
        rows = []
        for path, field, required in fields({"properties": {part: schema["properties"][part]}}):
            rows.append(
                (
                    f"`{path}`",
                    kind_of_field(field),
                    default(field, required),
                    bounds(field),
                    field.get("description", ""),
                )
            )
            rules += [
                (f"`{place}`", f"`{rule['rule']}`", f"`{rule['message']}`")
                for place, schema_there in ((path, field), (f"{path}[]", field.get("items", {})))
                for rule in schema_there.get("x-kubernetes-validations", [])
            ]
        text += [
            f"### {names['kind']}: {part}\n",
            table(("field", "type", "default", "bounds", "meaning"), rows),
            "",
        ]
    if rules:
        text += [
            f"### {names['kind']}: rules\n",
            table(("field", "rule (CEL)", "what is said when it is broken"), rules),
            "",
        ]
    return text
