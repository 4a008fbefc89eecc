"""`mofa validate sizes`: sizes that are picked, against what was measured to fit. Not a verb."""

from __future__ import annotations

from argparse import Namespace
from typing import Any, Final

from mofa_model import output

_ABOUT: Final = """\
Sizes of jobs are picked among measured layouts, with constants of memory that did not see them: how many would run out of memory, and
how many more GPUs they take than the least that was measured to fit. In a clone, its fine-tuning runs as well. Beside it, the device with the least memory for every run whose
memory is known, and how many of the runs that are sure to fit did not."""  # noqa: E501


def configure(kinds: Any) -> None:
    """Add the kind `sizes` of cases, with its options."""
    parser = kinds.add_parser(
        "sizes", help="sizes that are picked, against what was measured to fit", description=_ABOUT
    )
    parser.add_argument(
        "files", metavar="CASES.json", nargs="+", help="cases: a list, or an object with `cases`"
    )
    output.add_options(parser)


def run(arguments: Namespace) -> None:
    """Fit without each run, pick sizes by that, print what they would have met."""
    from mofa_lab.fitting import sizes
    from mofa_lab.validate.cases import load

    cases = [case for path in arguments.files for case in load(path)[0]]
    with output.progress("fitting") as advance:
        evidence, validated = sizes.folds_of(cases, lambda _: advance(1.0))
    document = sizes.sizes_document(sizes.left_out_runs(evidence, validated), sizes.tuning_runs())
    tables = sizes.tables(document)
    output.emit(arguments.output, tables, document, records=tables[0])
