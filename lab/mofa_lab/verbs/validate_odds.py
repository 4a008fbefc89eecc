"""`mofa validate odds`: what the rule picks, and how true its odds are. Not a verb."""

from __future__ import annotations

from argparse import Namespace
from typing import Any, Final

from mofa_model import output
from mofa_model.tables import Column, Table

_ABOUT: Final = """\
Published jobs are asked for with their layouts hidden and without what runs of their group say; runs of sweeps tell how true the
odds of being faster and of fitting are, and what the rule's pick loses against the least estimate."""  # noqa: E501
_JOBS: Final = ("id", "gain", "out_of_memory", "strategy", "published")


def configure(kinds: Any) -> None:
    """Add the kind `odds` of cases, with its options."""
    parser = kinds.add_parser(
        "odds", help="what the rule picks, and how true its odds are", description=_ABOUT
    )
    parser.add_argument(
        "files", metavar="CASES.json", nargs="+", help="cases: a list, or an object with `cases`"
    )
    parser.add_argument(
        "--record", metavar="FILE.json", help="keep the figures for docs/validation.md"
    )
    output.add_options(parser)


def run(arguments: Namespace) -> None:
    """Ask for advice on measured runs, score the odds, print."""
    from mofa_lab.validate import odds, odds_report
    from mofa_lab.validate.cases import load

    with output.progress("asking", total=1.0) as advance:
        document = odds.odds_document(
            [case for path in arguments.files for case in load(path)[0]], advance
        )
    if arguments.record:
        odds_report.record(arguments.record, document)
    rows = tuple(tuple(job.get(name) for name in _JOBS) for job in document["jobs"])
    jobs = Table(title="Published jobs", columns=tuple(map(Column, _JOBS)), rows=rows)
    tables = [table for table in (*odds_report.tables(document), jobs) if table.rows]
    output.emit(arguments.output, tables or [jobs], document, records=jobs)
