"""`mofa validate account`: accounts of pools against what a generator of histories knows. Not
a verb.
"""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import Any, Final

from mofa_model import output
from mofa_model.tables import Column, Table

_ABOUT: Final = """\
Each ANSWER.json is what `mofa incidents --account -o json` says of the history of the scenario of its name. The generator's own record
of nodes, steps and repairs says where every node-second went: states, and causes of more than a twentieth of what was lost, are held
against it, as node-days. Causes that no exporter shows, by the generator, are left out of the causes and stay in the sums of states."""  # noqa: E501


def configure(kinds: Any) -> None:
    """Add the kind `account` of cases, with its options."""
    parser = kinds.add_parser(
        "account", help="accounts of pools, against the generator's own", description=_ABOUT
    )
    parser.add_argument("files", metavar="ANSWER.json", nargs="+", help="answers, one a scenario")
    parser.add_argument(
        "--generator", metavar="FILE.py", required=True, help="the generator of the histories"
    )
    parser.add_argument(
        "--scenarios", metavar="FOLDER", required=True, help="its scenarios, as NAME.toml"
    )
    output.add_options(parser)


def run(arguments: Namespace) -> None:
    """Make the true account of each scenario, compare answers with it, print."""
    from mofa_lab.validate.account import read, reported_days, scored, true_account

    rows = []
    answers = read(Path(name) for name in arguments.files)
    with output.progress("making histories") as advance:
        for name, document in answers.items():
            scenario = Path(arguments.scenarios) / f"{name}.toml"
            true = true_account(Path(arguments.generator), scenario)
            rows += scored(name, true, reported_days(document))
            advance(1.0)
    figures = ("scenario", "what", "true", "told", "off")
    records = [{name: getattr(row, name) for name in figures} for row in rows]
    causes = [row for row in rows if row.what.startswith("lost to ")]
    near = sum(abs(row.off) <= 0.1 for row in causes)
    closes = max((abs(row.off) for row in rows if row.what == "capacity"), default=0.0)
    table = Table(
        title="Accounts",
        columns=(
            Column("scenario"),
            Column("what"),
            Column("true", unit="node d"),
            Column("told", unit="node d"),
            Column("off", unit="%"),
        ),
        rows=tuple(tuple(record.values()) for record in records),
        notes=(
            f"Every account closes to {closes:.2%} of the capacity.",
            f"{near} of {len(causes)} causes are within a tenth of the truth.",
        ),
    )
    document = {"rows": records, "closes": closes, "causes": len(causes), "within_a_tenth": near}
    output.emit(arguments.output, [table], document)
