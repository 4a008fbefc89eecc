"""Data sheets of devices that no preset has, from a TOML or YAML file of a user.

    name = "my-card"
    memory = "48 GB"
    memory_bandwidth = "864 GB/s"
    peak_bf16 = "181 TFLOP/s"

Every other field of devices.toml may stand beside these four. A field that is left out has
the value of a card without NVLink, on PCIe 4 and a network of 10 Gb/s.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from mofa_model import files, units, yaml_text
from mofa_model.checks import positive, whole
from mofa_model.errors import BadFile, BadValue, UnknownName
from mofa_model.presets import clusters, entries

NEEDED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "name": "my-card",
        "memory": "48 GB",
        "memory_bandwidth": "864 GB/s",
        "peak_bf16": "181 TFLOP/s",
    }
)
"""Fields that a data sheet has to say, with an example of each."""
USUAL: Final[Mapping[str, Any]] = MappingProxyType(
    {
        "class": "other",
        "scale_up": "pcie4",
        "scale_out": "10 Gbit/s",
        "host_link": "pcie4",
        "gpus_per_node": 8,
    }
)
"""The box around a card where the file says nothing of it."""
_QUANTITIES: Final = {
    "memory": "B",
    "memory_bandwidth": "B/s",
    "peak_bf16": "FLOP/s",
    "peak_fp8": "FLOP/s",
    "peak_fp4": "FLOP/s",
    "host_memory": "B",
    "price": "USD/s",
}
_LINKS: Final = ("scale_up", "scale_out", "host_link")
_COUNTS: Final = ("gpus_per_node", "domain")
_TEXTS: Final = ("name", "class", "kernels", "source", "note", "priced")
LARGEST: Final = 2**16
"""A data sheet beyond this is refused unread. [B]"""


def device_of_file(path: str) -> str:
    """The id under which the device of a file can be asked for from now on."""
    text = files.read_text(path, largest=LARGEST)
    document = files.from_toml(text, path) if str(path).endswith(".toml") else _yaml(text, path)
    if not isinstance(document, Mapping):
        raise BadFile(path, f"is no data sheet; write {_example()}")
    sheet = {**USUAL, "source": f"the file {path}", **{str(k): v for k, v in document.items()}}
    _check(path, sheet)
    name = str(sheet.pop("name"))
    sheet.setdefault("domain", sheet["gpus_per_node"])
    return entries.put_device(name, sheet, path)


def _yaml(text: str, path: str) -> Any:
    """The one document of a YAML file."""
    reader = yaml_text.StreamReader(path)
    return next((reader.value(node) for node in reader.documents(text)), None)


def _example() -> str:
    return ", ".join(f'{name} = "{value}"' for name, value in NEEDED.items())


def _check(path: str, sheet: Mapping[str, Any]) -> None:
    """Refuse a field that is missing, unknown or not what it should be."""
    lacking = [name for name in NEEDED if not sheet.get(name)]
    if lacking:
        raise BadFile(path, f"lacks {', '.join(lacking)}; a data sheet has {_example()}")
    fields = (*_TEXTS, *_QUANTITIES, *_LINKS, *_COUNTS)
    for name, value in sheet.items():
        if name not in fields:
            raise UnknownName(f"{path}: field", name, fields)
        if name in _QUANTITIES:
            quantity = units.parse(value, _QUANTITIES[name], field=f"{path}: {name}")
            positive(**{f"{path}: {name}": quantity})
        elif name in _LINKS:
            clusters.link(value, field=f"{path}: {name}")
        elif name in _COUNTS:
            if isinstance(value, bool) or not isinstance(value, int):
                raise BadValue(f"{path}: {name}", value, "give a whole number")
            whole(**{f"{path}: {name}": value})
        elif name in _TEXTS and not isinstance(value, str):
            raise BadValue(f"{path}: {name}", value, "give text")
    if "kernels" in sheet:
        entries.resolve("devices", sheet["kernels"], field=f"{path}: kernels")
