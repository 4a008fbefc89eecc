"""`mofa trace inspect | replay | predict | calibrate`: what profiler traces tell."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING, Final

from mofa_lab.verbs import trace_calibration, trace_layout
from mofa_model import files, output, terminal
from mofa_model.errors import BadValue

if TYPE_CHECKING:
    from mofa_lab.traces.events import Trace

EXAMPLES: Final = """\
examples:
  mofa trace inspect rank0.json.gz                     where the time of each step goes
  mofa trace inspect rank*.json.gz -o html > step.html the same with a timeline
  mofa trace replay rank*.json.gz                      the execution graph, run again
  mofa trace predict rank0.json.gz rank4.json.gz --model llama3.1-8b --gpu h100 --seq 8192 \\
      --global-batch 32 --strategy tp=2,pp=2,dp=2 --to pp=4 --to-gpus 64 --to-global-batch 256
  mofa trace calibrate rank0.json.gz --model llama3.1-8b --gpu h100 --stack torchtitan --seq 8192 \\
      --global-batch 32 --strategy tp=2,pp=2,dp=2 --to mine.toml
docs/traces.md says how to record a useful trace."""


def configure(parser: ArgumentParser) -> None:
    """Add the options of each action."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    for name, summary in (
        ("inspect", "where the time of each step goes"),
        ("replay", "run the execution graph again; what the critical path is spent on"),
        ("predict", "the step time of a layout that never ran"),
    ):
        action = actions.add_parser(name, help=summary, description=summary)
        action.add_argument(
            "files", nargs="+", metavar="FILE", help="a trace, .json or .json.gz; one for each rank"
        )
        action.add_argument(
            "--picture", metavar="FILE", help="write the timeline of the first rank as SVG"
        )
        if name == "predict":
            trace_layout.add_options(action)
            trace_layout.add_targets(action)
        output.add_options(action)
    trace_calibration.add_action(actions)


def run(arguments: Namespace) -> int:
    """Answer one action."""
    if arguments.action == "calibrate":
        return trace_calibration.run(arguments)
    from mofa_lab.verbs import trace_answers

    if arguments.action == "predict":
        old = trace_layout.traced(arguments)
        new = trace_layout.asked(arguments, old)
        traces = read(arguments.files)
        tables, document = trace_answers.predicted(traces, old, new)
    else:
        traces = read(arguments.files)
        answer = (
            trace_answers.inspected if arguments.action == "inspect" else trace_answers.replayed
        )
        tables, document = answer(traces)
    from mofa_lab.traces.picture import timeline

    if arguments.picture:
        files.write_text(arguments.picture, timeline(traces[0]))
    if arguments.output == "html":
        page = output.render("html", tables)
        terminal.put(page.replace("</html>", f"{timeline(traces[0])}</html>"))
    else:
        output.emit(arguments.output, tables, document)
    return 0


def read(names: list[str]) -> list[Trace]:
    """All files, by rank."""
    from mofa_lab.traces.columns import load

    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise BadValue("FILE", twice, "give each file once")
    return sorted((load(name) for name in names), key=lambda trace: trace.rank)
