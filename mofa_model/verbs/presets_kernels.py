"""`mofa presets kernels`: what a device's surfaces hold, where each is from, and what a call of given sizes takes."""

from __future__ import annotations

import math

from mofa_model import presets
from mofa_model.errors import BadValue
from mofa_model.presets.kernels import kernels, sheet
from mofa_model.tables import Column, Table


def devices() -> Table:
    """Devices that have surfaces, their own or a relative's."""
    rows = []
    for name in presets.names("devices"):
        held = kernels(name)
        if held.surfaces:
            of = sorted(set(held.measured.values()), key=lambda device: device != name)
            rows.append(
                (
                    name,
                    len(held.surfaces),
                    sum(one.rows for one in held.surfaces.values()),
                    ", ".join(of),
                )
            )
    columns = (Column("device"), Column("surfaces"), Column("calls"), Column("measured on"))
    note = "`mofa presets kernels DEVICE` lists its surfaces; --call prices one call."
    return Table(title="Kernels", columns=columns, rows=tuple(rows), notes=(note,))


def surfaces(device: str) -> Table:
    """Every surface of a device."""
    held = kernels(device)
    rows = tuple(
        (
            operator,
            form,
            one.rows,
            one.corrections.size,
            float(one.law.start),
            one.law.matrix,
            held.measured[operator, form],
            one.source,
        )
        for (operator, form), one in sorted(held.surfaces.items())
    )
    if not rows:
        raise BadValue(
            "NAME",
            held.device,
            "nobody measured its kernels, nor a relative's: `mofa presets kernels`",
        )
    columns = (
        Column("operator"),
        Column("form"),
        Column("calls"),
        Column("numbers", wide=True),
        Column("start", unit="s"),
        Column("of the peak", unit="%", wide=True),
        Column("measured on"),
        Column("source", wide=True),
    )
    return Table(title=f"Kernels: {held.device}", columns=columns, rows=rows)


def call(device: str, text: str) -> Table:
    """One call by its text, for example `gemm bf16 m=4096 n=4096 k=4096`."""
    example = "write for example 'gemm bf16 m=4096 n=8192 k=8192'"
    operator, *words = text.split() or [""]
    form = " ".join(word for word in words if "=" not in word)
    sizes: dict[str, float] = {}
    for word in words:
        name, equals, value = word.partition("=")
        try:
            sizes |= {name: float(value)} if equals else {}
        except ValueError:
            raise BadValue(f"--call {name}", value, "give a number") from None
    wrong = next(
        (name for name, value in sizes.items() if not (math.isfinite(value) and value > 0.0)), None
    )
    if wrong:
        raise BadValue(f"--call {wrong}", sizes[wrong], "give a finite number above zero")
    held = kernels(device)
    timer = held.timer(operator, form)
    try:
        work = timer.work(**timer.surface.given, **sizes)
    except TypeError as error:
        raise BadValue("--call", text, f"{str(error).partition('() ')[2]}; {example}") from None
    seconds = float(timer.seconds(**sizes))
    promised = sheet(held.device, timer.surface.format)
    rows = (
        ("time [s]", seconds),
        ("rate of the matrix units [FLOP/s]", float(work.flops) / seconds or None),
        ("share of their peak", float(work.flops) / seconds / float(promised.peak) or None),
        ("measured on", held.measured[operator, form]),
    )
    columns = (Column("figure"), Column("value", align="left"))
    return Table(title=f"{held.device}: {text}", columns=columns, rows=rows)
