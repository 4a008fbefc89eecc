"""The preset files as tables: parsed once when asked for, and entries found by what people call
them.

A name is an id or an alias, in any case, with blanks or _ for -, and a device's with or without its
maker before it: "NVIDIA H100 80GB HBM3" is one of h100-80gb-sxm. A device is also found by the name
of a node that a cloud rents out with it, and a model by its address on a hub. Nothing else is
guessed: a name that is not here is refused with those that are like it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, cached_property, lru_cache
from types import MappingProxyType
from typing import Any, Final, TypeVar

from mofa_model import parsed
from mofa_model.errors import BadFile, BadValue, UnknownName

KINDS: Final = ("models", "devices", "fabrics", "precisions", "optimizers", "bases", "stacks")
"""Kinds of preset, each a file of that name."""

Entry = Mapping[str, Any]
"""One preset as it stands in its file."""

_ABOUT: Final = ("aliases", "kernels", "source", "note", "derived", "from_memory")
"""Keys about an entry itself; all other keys are its facts."""


class _Entries(Mapping[str, Entry]):
    """Entries of a file. Where they are not kept, each is parsed at its first use: a command
    uses few.
    """

    def __init__(self, file: str) -> None:
        self._file = file
        path = parsed.beside(__file__, file)
        self._data = parsed.read(path)
        kept_tables = parsed.cached(path, self._data, parsed.tables_in) or {}
        self._parsed: dict[str, Entry] = {
            name: entry for name, entry in kept_tables.items() if isinstance(entry, dict)
        }
        self._names: dict[str, None] = dict.fromkeys(self._parsed or self._texts)
        self._added: set[str] = set()

    @cached_property
    def _texts(self) -> dict[str, str]:
        """Each entry's part of the file."""
        texts: dict[str, str] = {}
        for part in f"\n{self._data.decode('utf-8')}".split("\n[")[1:]:
            name = re.split(r"[\].]", part)[0] if part[0] != '"' else part.split('"')[1]
            texts[name] = f"{texts.get(name, '')}[{part}\n"
        return texts

    def add(self, name: str, entry: Entry) -> None:
        """Add an entry of a user's file, or replace one that a file added before."""
        self._names.setdefault(name)
        self._added.add(name)
        self._parsed[name] = entry

    def is_shipped(self, name: str) -> bool:
        """Whether an entry is of the file, and not of a user's."""
        return name in self._names and name not in self._added

    def mentioning(self, word: str) -> list[str]:
        """Entries in which something may be called by a word, as it is looked up: only these have
        to be parsed to find what it means.
        """
        parts = word.split("-")  # blanks and _ are - where it is looked up
        return [
            name
            for name in self._names
            if name in self._added or all(part in self._texts[name].lower() for part in parts)
        ]

    def __getitem__(self, name: str) -> Entry:
        if name not in self._parsed:
            import tomllib  # which few commands need

            try:
                self._parsed[name] = tomllib.loads(self._texts[name])[name]
            except tomllib.TOMLDecodeError as error:
                raise BadFile(self._file, f"[{name}] {error}") from None
        return self._parsed[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


@cache
def table(kind: str) -> _Entries:
    """All entries of a file, by id."""
    return _Entries(f"{kind}.toml")


def put_device(name: str, entry: Entry, path: str) -> str:
    """Add the device of a user's file, and find it by its id from now on; a preset's name
    is refused.
    """
    word = _key("devices", name)
    devices = table("devices")
    if any(devices.is_shipped(shipped) for shipped in meanings("devices", word)):
        raise BadFile(path, f"name: {name} is a preset's already; give another one")
    devices.add(word, entry)
    for read in _READ:
        read.cache_clear()
    return word


_READ: Final[list[Any]] = []
"""Cached readings of devices."""
R = TypeVar("R")


def rereads_devices(read: R) -> R:
    """A cached function that reads devices: what it kept is dropped where a file adds one."""
    _READ.append(read)
    return read


_MAKERS: Final = ("nvidia-", "amd-")
_TPU: Final = r"(google-|cloud-)?tpu.*|v[2-7][ep]?(-\d+|pod.*|lite.*)|ct\d+[a-z]*-.*"
"""What TPUs and machines with them are called."""
_ADDRESS: Final = re.compile(
    r"(?:https?://)?[\w-]+(?:\.[\w-]+)+(?::\d+)?/(?:models/)?([^/\s]+/[^/\s?#]+)(?:[/?#]\S*)?"
)
"""A model's page on a hub, or a file of it there: the id behind the host."""


def model_id(name: str) -> str:
    """What stands behind a hub's address; any other name is as it was.

    >>> hub = "https://hub.example"
    >>> model_id(f"{hub}/meta-llama/Llama-3.1-8B/blob/main/config.json"), model_id("org/name")
    ('meta-llama/Llama-3.1-8B', 'org/name')
    """
    address = _ADDRESS.fullmatch(name.strip())
    return address[1] if address else name


def hub_id(name: str) -> str:
    """The id of a model on a hub: its own name, or the last of a preset's; empty where none is
    known.

    >>> hub_id("llama3-8b"), hub_id("org/name"), hub_id("gpt3-175b")
    ('meta-llama/Llama-3.1-8B', 'org/name', '')
    """
    names_known = (*table("models").get(name, {}).get("aliases", ()), name)
    return next(
        (
            name_known
            for name_known in reversed(names_known)
            if re.fullmatch(r"[\w.-]+/[\w.-]+", name_known)
        ),
        "",
    )


def is_address(name: str) -> bool:
    """Whether a name is a model's address on a hub."""
    return model_id(name) != name and "://" in name


def _key(kind: str, name: str) -> str:
    """A name in the form by which it is looked up: lower case, with hyphens, without its maker."""
    word = re.sub(r"[\s_-]+", "-", (model_id(name) if kind == "models" else name).strip().lower())
    maker = next((prefix for prefix in _MAKERS if word.startswith(prefix)), "")
    return word.removeprefix(maker) if kind == "devices" else word


def _instances(devices: Iterable[str]) -> Mapping[str, tuple[str, Entry, str]]:
    """Nodes that clouds rent out with some devices, by the word that finds each: the device's id,
    the node's facts and name.
    """
    nodes: dict[str, tuple[str, Entry, str]] = {}
    for device in devices:
        for name, facts in table("devices")[device].get("instances", {}).items():
            for word in (name, name.removeprefix("Standard_"), *facts.get("aliases", ())):
                nodes[_key("devices", word)] = (device, facts, word)
    return nodes


def instance(name: object) -> Entry:
    """The node of a cloud by its name there: what differs from the device's usual machine; empty
    for any other name.

    >>> instance("p4d.24xlarge")["scale_out"], dict(instance("h100"))
    ('efa-p4d', {})
    """
    word = _key("devices", str(name))
    return _instances(table("devices").mentioning(word)).get(word, ("", {}, ""))[1]


def _ids(kind: str, entries: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Every alias of some entries as it is looked up, with the ids of those that it may mean: an
    alias can be that of several.
    """
    rented = _instances(entries) if kind == "devices" else {}
    ids: dict[str, tuple[str, ...]] = {word: (device,) for word, (device, _, _) in rented.items()}
    for name in entries:
        for alias in {_key(kind, alias): None for alias in table(kind)[name].get("aliases", ())}:
            ids[alias] = (*ids.get(alias, ()), name)
    return ids


@rereads_devices
@lru_cache(maxsize=1024)
def _meant(kind: str, word: str) -> tuple[str, ...]:
    """The ids that a word may mean: its own, or those of which it is an alias."""
    exactly = _own(kind).get(word)
    if exactly is not None:
        return (exactly,)
    return _ids(kind, table(kind).mentioning(word)).get(word, ())


@rereads_devices
@cache
def _own(kind: str) -> Mapping[str, str]:
    """The ids by the word that finds each; no entry is parsed for them."""
    return MappingProxyType({_key(kind, name): name for name in names(kind)})


def names(kind: str) -> tuple[str, ...]:
    """The ids of a kind, in the order of the file.

    >>> names("precisions")[0]
    'bf16'
    """
    if kind not in KINDS:
        raise UnknownName("presets", kind, KINDS)
    return tuple(table(kind))


def meanings(kind: str, name: object) -> tuple[str, ...]:
    """The ids that a name or alias may mean.

    >>> meanings("precisions", "FP8")[:2], meanings("precisions", "fp7")
    (('fp8-delayed', 'fp8-current'), ())
    """
    if not isinstance(name, str):
        return ()
    return _meant(kind, _key(kind, name))


def canonical_names(kind: str) -> dict[str, str]:
    """The name to suggest for every alias of a kind of entry, and for clouds' nodes of devices."""
    nodes = _instances(names(kind)) if kind == "devices" else {}
    ids = _ids(kind, names(kind)) | {word: (name,) for word, name in _own(kind).items()}
    return {alias: presets[0] for alias, presets in ids.items()} | {
        word: name for word, (_, _, name) in nodes.items()
    }


def resolve(kind: str, name: object, *, field: str = "", also: str = "") -> str:
    """The id of the entry that a name or alias means; `field` is what an error calls it, `also`
    what it offers beside names.

    >>> resolve("models", "Llama3-405B")
    'llama3.1-405b'
    """
    ids, field = meanings(kind, name), field or kind.removesuffix("s")
    if len(ids) > 1:
        raise BadValue(field, name, f"it may mean several: give {', '.join(ids[:-1])} or {ids[-1]}")
    if not ids and kind == "devices" and re.fullmatch(_TPU, _key(kind, str(name))):
        raise BadValue(field, name, "it is a TPU, and only GPUs are modelled so far; give a GPU")
    if not ids:
        more = ("`mofa presets " + kind + "` lists them all", also)
        raise UnknownName(
            field,
            name,
            names(kind),
            aliases=canonical_names(kind),
            also=", ".join(filter(None, more)),
        )
    return ids[0]


def entry(kind: str, name: object) -> Entry:
    """The entry that a name or alias means."""
    return table(kind)[resolve(kind, name)]


def facts(preset: Entry) -> dict[str, Any]:
    """An entry's own fields, without source, notes and aliases."""
    return {key: value for key, value in preset.items() if key not in _ABOUT}


def sources(kind: str, name: object) -> dict[str, Any]:
    """Where an entry's numbers come from: source, note, and what is derived or from memory.

    >>> sources("models", "bloom")["source"]
    'bigscience tr11-176B slurm script'
    """
    preset = entry(kind, name)
    return {key: preset[key] for key in _ABOUT if key in preset and key != "aliases"}
