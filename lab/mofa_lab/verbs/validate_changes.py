"""`mofa validate changes`: what would have helped, against reruns of the same history. Not
a verb.
"""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import Any, Final

from mofa_model import output
from mofa_model.tables import Column, Table

_ABOUT: Final = """\
The generator makes each SCENARIO.toml once as it is, and then again with one change: restarts in place, a checkpoint every ten minutes,
a watchdog of ten minutes, bad nodes made good, or two more nodes. The table compares two gains in GPU-hours for each change: the gain that
`mofa rates --what-would-help` predicts from the first run, and the gain of the rerun. Both are means over several seeds."""  # noqa: E501


def configure(kinds: Any) -> None:
    """Add the kind `changes` of cases, with its options."""
    parser = kinds.add_parser(
        "changes", help="what would have helped, against reruns", description=_ABOUT
    )
    parser.add_argument("files", metavar="SCENARIO.toml", nargs="+", help="scenarios of histories")
    parser.add_argument(
        "--generator", metavar="FILE.py", required=True, help="the generator of the histories"
    )
    parser.add_argument(
        "--seeds", type=int, default=5, metavar="N", help="histories of each scenario (default: 5)"
    )
    parser.add_argument(
        "--days", type=float, metavar="D", help="length, in place of the scenario's"
    )
    output.add_options(parser)


def run(arguments: Namespace) -> None:
    """Simulate a past, replay it with each change, simulate again with it, compare, print."""
    from mofa_lab.validate.reruns import agreements, reruns

    tables, documents = [], []
    with output.progress("making histories") as advance:
        for name in arguments.files:
            scenario = Path(name)
            rows = agreements(
                list(
                    reruns(
                        Path(arguments.generator),
                        scenario,
                        range(1, arguments.seeds + 1),
                        days=arguments.days,
                        advance=advance,
                    )
                )
            )
            columns = (
                ("change", "change", None),
                ("histories", "histories", None),
                ("said", "told", "h"),
                ("rerun", "gained", "h"),
                ("scatter", "noise", "h"),
                ("bands that held", "held", "%"),
                ("not advised", "not_advised", None),
                ("within noise", "is_within_noise", None),
            )
            tables.append(
                Table(
                    title=f"GPU-hours gained in {scenario.stem}",
                    columns=tuple(
                        Column(title, unit="%" if unit == "%" else "") for title, _, unit in columns
                    ),
                    rows=tuple(
                        tuple(
                            round(value) if unit == "h" else value
                            for value, unit in (
                                (getattr(row, field), unit) for _, field, unit in columns
                            )
                        )
                        for row in rows
                    ),
                )
            )
            documents += [
                {
                    "scenario": scenario.stem,
                    **output.as_data(row),
                    "within_noise": row.is_within_noise,
                }
                for row in rows
            ]
    output.emit(arguments.output, tables, {"rows": documents})
