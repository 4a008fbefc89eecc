"""Tables of measured kernels in, a file of surfaces for each device out."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import Final

from mofa_model import output
from mofa_model.tables import Column, Table

EXAMPLES: Final = """\
examples:
  ten minutes on a GPU of your own, its surfaces, and what then holds
    python -m mofa_lab.kernels.measure --device h100 --to tables
    mofa calibrate kernels tables/gemm.csv --to mine --source "node 7, PyTorch 2.9"
    MOFA_KERNELS=mine mofa presets kernels h100
    MOFA_KERNELS=mine mofa validate kernels tables/gemm.csv"""


def configure(parser: ArgumentParser) -> None:
    """Add the tables of measured calls, and where to write."""
    parser.add_argument(
        "files",
        nargs="+",
        metavar="TABLE.csv",
        help="tables of kernels, .csv or .csv.xz; see docs/calibration.md",
    )
    parser.add_argument(
        "--to", required=True, metavar="FOLDER", help="folder to write DEVICE.json to, one a device"
    )
    parser.add_argument(
        "--source",
        default="your own measurements",
        metavar="TEXT",
        help="where the calls were measured",
    )
    output.add_options(parser)


def run(arguments: Namespace) -> int:
    """Fit, write, and say what was written."""
    from mofa_lab.kernels import device

    with output.progress("fitting") as advance:
        surfaces_by_device = device.surfaces_of(
            device.calls_of(arguments.files), arguments.source, lambda _: advance(1.0)
        )
    written = device.write(surfaces_by_device, arguments.to)
    rows = tuple(
        (name, operator, form, surface.rows, surface.corrections.size)
        for name, surfaces in surfaces_by_device.items()
        for (operator, form), surface in sorted(surfaces.items())
    )
    columns = (
        Column("device"),
        Column("operator"),
        Column("form"),
        Column("calls"),
        Column("numbers"),
    )
    table = Table(
        title="Surfaces",
        columns=columns,
        rows=rows,
        notes=tuple(f"written: {name}" for name in written),
    )
    output.emit(arguments.output, [table])
    return 0
