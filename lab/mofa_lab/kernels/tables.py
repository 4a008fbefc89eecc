"""Tables of measured kernels, a row a call: which operator each row is, in which form, and with
which sizes it is called.
"""

from __future__ import annotations

import lzma
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from mofa_model.errors import BadFile
from mofa_model.files import from_csv
from mofa_model.kernels.surface import Floats

Texts = NDArray[np.str_]
Columns = Mapping[str, Texts]

FORMATS: Final = {"bf16": "bf16", "fp16": "bf16", "fp8": "fp8", "nvfp4": "fp4"}
"""Format of the matrix units by the first word of a recipe."""
WIDTHS: Final = {"bf16": 2.0, "fp8": 1.0, "fp4": 0.5}
"""Bytes of an element."""
LARGEST: Final = 2**25
"""Text of a table beyond this is refused: nearly twice the largest one that is known. [B]"""
MOST: Final = 2**29
"""Columns beyond this are refused: every cell of one takes the room of the longest. [B]"""
PACKED: Final = b"\xfd7zXZ\0"
"""How a file of xz begins."""
MEMORY: Final = 2**27
"""What unpacking may hold beside the text; xz by itself needs half of it. [B]"""


@dataclass(frozen=True, kw_only=True)
class Calls:
    """Measured calls of one operator in one form on one device."""

    device: str
    """Preset id."""
    operator: str
    """Name in `mofa_model.kernels.OPERATORS`."""
    form: str
    """Recipe, mask and what else makes another kernel."""
    format: str
    """Format of the matrix units."""
    given: Mapping[str, float]
    """Sizes that all calls share."""
    sizes: Mapping[str, Floats]
    """The other sizes."""
    seconds: Floats
    """Measured times. [s]"""
    families: Texts
    """Family of shapes that is left out as one."""
    ids: Texts
    """What each row is called in a comparison."""

    def rows(self, chosen: NDArray[np.bool_]) -> Calls:
        """The calls that a mask selects."""
        sizes = {name: values[chosen] for name, values in self.sizes.items()}
        return Calls(
            device=self.device, operator=self.operator, form=self.form, format=self.format,
            given=self.given, sizes=sizes,
            seconds=self.seconds[chosen], families=self.families[chosen], ids=self.ids[chosen],
        )  # fmt: skip


Number = Callable[[str], Floats]
"""A column of the rows as numbers."""
CallShape = tuple[str, str, Mapping[str, float], Mapping[str, Floats]]
"""What a call is: operator, form, sizes that all rows share, sizes by row."""


@dataclass(frozen=True, kw_only=True)
class KernelTable:
    """How to read one kind of table."""

    forms: tuple[str, ...]
    """Columns of which each combination is a form of its own; with `sizes` they tell the kind of
    a table.
    """
    sizes: tuple[str, ...]
    """Columns with sizes of a call."""
    family: tuple[str, ...]
    """Columns that make a family of shapes."""
    call: Callable[[Mapping[str, str], Number], CallShape | None]
    """What the rows of one combination are; None where no surface is made of such rows."""
    seconds: Mapping[str, str] = field(default_factory=lambda: {"seconds_best": ""})
    """Columns of time, with the operator that each is of; "" for what `call` says."""


def read(file: str) -> list[Calls]:
    """All calls of a table, `.csv` or `.csv.xz`."""
    columns = _columns(file)
    for table in TABLES:
        needs = {"device", *table.forms, *table.sizes, *table.seconds}
        if needs <= set(columns):
            return list(_calls(file, table, columns))
    tables = "; ".join(
        ", ".join(("device", *table.forms, *table.sizes, *table.seconds)) for table in TABLES
    )
    raise BadFile(
        file,
        f"has the columns {', '.join(columns)}, which is no table of kernels; these are: {tables}",
    )


def _columns(file: str) -> Columns:
    try:
        text = _unpacked(file).decode("utf-8")
    except (OSError, lzma.LZMAError, UnicodeDecodeError) as error:
        raise BadFile(file, f"cannot be read: {error}") from None
    rows: list[list[str]] = []
    for line, row in from_csv(text, file):
        if rows and len(row) != len(rows[0]):
            raise BadFile(file, f"line {line} has {len(row)} cells, not {len(rows[0])}")
        rows.append(row)
    if len(rows) < 2:
        raise BadFile(file, "has no rows; give a header and a row a call")
    columns = list(zip(*rows, strict=True))
    room = 4 * len(rows) * sum(max(map(len, column)) for column in columns)
    if room > MOST:
        raise BadFile(
            file,
            f"takes {room // 2**20} MiB as columns, as wide as their longest cells; shorten them",
        )
    return {name: np.array(column) for name, *column in columns}


def _unpacked(file: str) -> bytes:
    """The text of a table: no more of it is unpacked than may be there, whatever the packed
    file says.
    """
    with Path(file).open("rb") as packed:
        data = packed.read(LARGEST + 1)
        if data.startswith(PACKED):
            left, data = data, b""
            while left and len(data) <= LARGEST:  # one stream behind the other, as xz joins files
                stream = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=MEMORY)
                data += stream.decompress(left, LARGEST + 1 - len(data))
                left = stream.unused_data.lstrip(b"\0")
                if not stream.eof and len(data) <= LARGEST:
                    raise BadFile(file, "is truncated: its packed text breaks off")
    if len(data) > LARGEST:
        raise BadFile(file, f"holds more than {LARGEST // 2**20} MiB of text; give a smaller table")
    return data


def _calls(file: str, table: KernelTable, columns: Columns) -> Iterator[Calls]:
    """Measured calls of a table, one record for each device, operator and form."""
    keys = ("device", *table.forms)
    joined, families = _joined(columns, keys), _joined(columns, table.family)
    ids = _joined(columns, (*keys, *table.sizes))
    for key in dict.fromkeys(joined.tolist()):
        rows = joined == key
        words = dict(zip(keys, (columns[name][rows][0] for name in keys), strict=True))

        def number(name: str, rows: NDArray[np.bool_] = rows) -> Floats:
            return _numbers(file, name, columns[name][rows])

        call = table.call(words, number)
        if call is None:
            continue
        operator, form, given, sizes = call
        for column, of in table.seconds.items():
            calls = Calls(
                device=words["device"],
                operator=of or operator,
                form=form,
                format=format_of(form),
                given=given,
                sizes=sizes,
                seconds=_numbers(file, column, columns[column][rows], empty=0.0),
                families=families[rows],
                ids=np.char.add(ids[rows], f"/{of}" if of else ""),
            )
            yield calls.rows(calls.seconds > 0.0)


def _joined(columns: Columns, names: Sequence[str]) -> Texts:
    return np.array(
        ["/".join(cells) for cells in zip(*(columns[name].tolist() for name in names), strict=True)]
    )


def _numbers(file: str, name: str, cells: Texts, empty: float | None = None) -> Floats:
    try:
        values = np.array(
            [empty if not cell and empty is not None else float(cell) for cell in cells.tolist()]
        )
    except ValueError as error:
        raise BadFile(file, f"column {name}: {error}; give numbers") from None
    if np.any(values < 0.0):
        raise BadFile(file, f"column {name} has {values.min():g}; give numbers of zero or more")
    return values


def format_of(form: str) -> str:
    """Format of the matrix units that a form computes in: its first word says."""
    return FORMATS.get(re.split("[- ]", form)[0], "bf16")


def _width(form: str) -> dict[str, float]:
    return {"width": WIDTHS[format_of(form)]}


def _gemm(row: Mapping[str, str], number: Number) -> CallShape:
    return "gemm", row["recipe"], _width(row["recipe"]), _named(number, "m", "n", "k")


def _sustained(row: Mapping[str, str], number: Number) -> CallShape | None:
    """Operands that were never initialised are no training's."""
    if row["operands"] != "random":
        return None
    return (
        "gemm",
        f"{row['recipe']} sustained",
        _width(row["recipe"]),
        _named(number, "m", "n", "k"),
    )


def _attention(row: Mapping[str, str], number: Number) -> CallShape:
    """A head of 192 for keys has 128 for values, as in every model that has one."""
    form, head = f"{row['dtype']} {row['head_dim']}", float(row["head_dim"])
    sizes = _named(number, "batch", "sequence", "heads")
    if row["causal"] == "0":
        return "full-attention", form, {"head_dim": head}, sizes
    given = {
        "head_dim": head,
        "value_dim": 128.0 if head == 192.0 else head,
        **_width(row["dtype"]),
    }
    sizes = {**sizes, **_named(number, "kv_heads")}
    window = number("window")
    if not window.any():
        return "causal-attention", form, given, sizes
    return "window-attention", form, given, {**sizes, "window": window}


def _latent(row: Mapping[str, str], number: Number) -> CallShape:
    sizes = _named(number, "batch", "sequence", "heads")
    if row["what"] == "attention":
        return "latent-attention", "bf16", {}, sizes
    return "latent-block", row["gemm"], _width(row["gemm"]), sizes


def _sparse(row: Mapping[str, str], number: Number) -> CallShape:
    sizes = _named(number, "batch", "sequence", "heads")
    return "sparse-block", f"{row['gemm']} {row['block']}", _width(row["gemm"]), sizes


def _experts(row: Mapping[str, str], number: Number) -> CallShape:
    sizes = _named(number, "tokens", "hidden", "intermediate", "topk", "experts", "tp", "ep")
    sizes["matrices"] = 2.0 + number("gated")
    return "grouped-gemm", f"{row['recipe']} {row['distribution']}", _width(row["recipe"]), sizes


def _recurrent(row: Mapping[str, str], number: Number) -> CallShape:
    form = f"bf16 {row['op']} {row['kernel']}"
    sizes = _named(number, "batch", "sequence")
    heads = _named(number, "k_heads", "k_dim", "v_heads", "v_dim")
    if "conv1d" not in row["kernel"]:
        return "scan", form, {}, {**sizes, **heads}
    channels = 2.0 * heads["k_heads"] * heads["k_dim"] + heads["v_heads"] * heads["v_dim"]
    return "convolution", form, {}, {**sizes, "channels": channels}


def _movement(row: Mapping[str, str], number: Number) -> CallShape:
    cast = row["op"].startswith("cast")
    sizes = _named(number, "tokens", "width")
    return ("cast" if cast else "hyper-connection"), row["kernel"], {}, sizes


def _collective(row: Mapping[str, str], number: Number) -> CallShape:
    return row["op"].replace("_", "-"), f"nccl {row['nccl']}", {}, _transfer(number)


def _custom(row: Mapping[str, str], number: Number) -> CallShape:
    return "all-reduce", f"{row['implementation']} {row['launch']}", {}, _transfer(number)


def _transfer(number: Number) -> dict[str, Floats]:
    return {"size": number("bytes"), "ranks": number("ranks")}


def _exchange(row: Mapping[str, str], number: Number) -> CallShape:
    """Tokens on their way to experts and back, taken as two bytes a number. DeepEP sends FP8 out,
    which is less: what the surface says of the link makes up for it.
    """
    sizes = _named(number, "hidden", "topk", "ranks", "multiprocessors")
    return (
        "dispatch",
        f"{row['library']} {row['mode']}",
        {"width": 2.0},
        {**sizes, "tokens": number("tokens_per_rank")},
    )


def _named(number: Number, *names: str) -> dict[str, Floats]:
    return {name: number(name) for name in names}


TABLES: Final = (
    KernelTable(
        forms=("recipe", "operands"), sizes=("m", "n", "k"), family=("n", "k"), call=_sustained,
        seconds={"seconds_sustained": ""},
    ),
    KernelTable(forms=("recipe",), sizes=("m", "n", "k"), family=("n", "k"), call=_gemm),
    KernelTable(
        forms=("causal", "dtype", "head_dim", "window"),
        sizes=("batch", "sequence", "heads", "kv_heads"),
        family=("heads", "kv_heads", "head_dim", "causal"), call=_attention,
    ),
    KernelTable(
        forms=("what", "gemm"), sizes=("batch", "sequence", "heads"),
        family=("heads",), call=_latent,
    ),
    KernelTable(
        forms=("block", "gemm"), sizes=("batch", "sequence", "heads"),
        family=("heads",), call=_sparse,
    ),
    KernelTable(
        forms=("recipe", "distribution"),
        sizes=("gated", "tokens", "hidden", "intermediate", "topk", "experts", "tp", "ep"),
        family=("experts", "hidden", "intermediate", "topk"), call=_experts,
    ),
    KernelTable(
        forms=("op", "nccl"), sizes=("ranks", "dtype", "bytes"),
        family=("bytes",), call=_collective,
    ),
    KernelTable(
        forms=("implementation", "launch"), sizes=("ranks", "bytes"),
        family=("bytes",), call=_custom,
    ),
    KernelTable(
        forms=("library", "mode"),
        sizes=("ranks", "hidden", "tokens_per_rank", "topk", "experts", "multiprocessors"),
        family=("hidden", "topk", "experts"), call=_exchange,
        seconds={"dispatch_seconds": "dispatch", "combine_seconds": "combine"},
    ),
    KernelTable(
        forms=("op", "kernel"),
        sizes=("batch", "sequence", "d_model", "k_heads", "k_dim", "v_heads", "v_dim", "chunk"),
        family=("op", "d_model", "v_heads"), call=_recurrent,
    ),
    KernelTable(
        forms=("op", "kernel"), sizes=("tokens", "width"), family=("width",), call=_movement,
    ),
)  # fmt: skip
"""Every kind of table, the particular before the general."""
