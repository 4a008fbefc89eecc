"""`mofa validate forecast`: predictions that are written down before their results, and scored when
these come. Not a verb.
"""

from __future__ import annotations

from argparse import Namespace, RawDescriptionHelpFormatter
from typing import Any, Final

from mofa_model import output
from mofa_model.errors import BadValue
from mofa_model.files import from_json, read_text
from mofa_model.tables import Column, Table

_ABOUT: Final = """\
FILE.json holds questions, {"name": …, "publishers": [...], "questions": [{"id": …, "model": …, "gpu": …, "gpus": …,
"strategy": …, "global_batch": …, "sequence": …, "stack": …, "precision": …, "publisher": …}]}, or a forecast that --to wrote. The
publisher of a question may be left out; where its other runs are known the band is narrower. A forecast has step times and memory with
bands, and the chance to fit, with its date and a SHA-256 over all of it; a file that was changed is refused.

examples:
  write one                       mofa validate forecast lab/data/forecasts/2026-11.questions.json --to NEW.forecast.json
  see that nobody changed it      mofa validate forecast lab/data/forecasts/2026-11.forecast.json
  score it                        mofa validate forecast NEW.forecast.json --results CASES.json --record"""  # noqa: E501


def configure(kinds: Any) -> None:
    """Add the kind `forecast` of cases, with its options."""
    parser = kinds.add_parser(
        "forecast",
        help="predictions that are written before their results",
        description=_ABOUT,
        formatter_class=RawDescriptionHelpFormatter,
    )
    parser.add_argument("file", metavar="FILE.json", help="questions, or a forecast")
    parser.add_argument(
        "--to", metavar="FILE", help="write the forecast of the questions to a new file"
    )
    parser.add_argument(
        "--results",
        metavar="CASES.json",
        help="measured runs with the ids of the forecast: score it",
    )
    parser.add_argument(
        "--record", action="store_true", help="keep these results beside the forecast"
    )
    output.add_options(parser)


def run(arguments: Namespace) -> None:
    """Write a forecast, check one, or score one against results."""
    from mofa_lab.validate import forecast

    if forecast.is_forecast(from_json(read_text(arguments.file), arguments.file)):
        _score(arguments)
        return
    for option in ("results", "record"):
        if getattr(arguments, option):
            raise BadValue(f"--{option}", arguments.file, "give a forecast, not its questions")
    document = forecast.forecast_of(arguments.file)
    if arguments.to:
        forecast.save(document, arguments.to)
    table = forecast.forecast_table(document["forecast"])
    output.emit(arguments.output, [table], document, records=table)


def _score(arguments: Namespace) -> None:
    """Compare a forecast with results, and print how good it was."""
    from mofa_lab.validate import forecast

    if arguments.to:
        raise BadValue("--to", arguments.to, "the file is a forecast already; give questions")
    content = forecast.load(arguments.file)
    results = (
        forecast.results_of(arguments.results, content)
        if arguments.results
        else forecast.kept_results(arguments.file)
    )
    if arguments.results and not results:
        first = content["jobs"][0]["question"]["id"]
        raise BadValue(
            "--results", arguments.results, f"has none of the forecast's ids, as {first}"
        )
    if arguments.record:
        forecast.record(arguments.file, results)
    outcomes = forecast.outcomes_of(content, results)
    scores = forecast.scores(content, outcomes)
    summary = Table(
        title="Scores",
        columns=(Column("figure"), Column("value")),
        rows=tuple((name, value) for name, value in scores.items() if not isinstance(value, list)),
    )
    reliability = Table(
        title="Chances to fit",
        columns=(Column("said", unit="%"), Column("was", unit="%"), Column("jobs")),
        rows=tuple(tuple(row.values()) for row in scores["fits_reliability"]),
    )
    jobs = forecast.forecast_table(content, outcomes)
    document = {
        "forecast": content,
        "scores": scores,
        "outcomes": [output.as_data(outcome) for outcome in outcomes],
    }
    output.emit(
        arguments.output,
        [jobs, *([summary, reliability] if outcomes else [])],
        document,
        records=jobs,
    )
