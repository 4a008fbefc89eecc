"""Every time and memory term of a cluster's job, in its advised layout or today's."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import Final

from mofa_model import output
from mofa_model.answers.options import as_in, option, question_of, switch
from mofa_model.answers.questions import ExplainQuestion
from mofa_model.errors import BadValue, NoFeasibleStrategy
from mofa_operator.verbs import cluster_options

EXAMPLES: Final = """\
Reads, and writes nothing. `mofa explain` does the same for a job that is in no cluster.

examples:
  kubectl mofa explain jobset/llama3-70b -n team-a
  today's layout, which its command says
    kubectl mofa explain llama3-70b --current
  another one
    kubectl mofa explain llama3-70b --strategy tp=8,pp=2"""


class JobLayoutQuestion(cluster_options.ClusterJobQuestion):
    """Which layout of a job is explained; without one, that which is advised."""

    current: bool = option(
        switch,
        "--current",
        "explain today's layout in place of the advised one",
        default=False,
        group="",
    )
    strategy: str | None = as_in(
        ExplainQuestion, "strategy", "another layout: tp=8,pp=4,… or a trainer's flags"
    )


def configure(parser: ArgumentParser) -> None:
    """Add the question."""
    cluster_options.add_job_options(parser, JobLayoutQuestion)
    output.add_options(parser)


def run(arguments: Namespace) -> int:
    """Ask as the operator would, and explain the layout."""
    from mofa_model.advice import Unplaced, advise
    from mofa_model.answers.explain import term_records, term_tables, terms
    from mofa_model.answers.training import layout_of
    from mofa_model.manifest.jobs import request_of
    from mofa_model.search import ANY
    from mofa_operator.decide.question import parsed_question

    question = question_of(JobLayoutQuestion, arguments)
    if question.current and question.strategy is not None:
        raise BadValue("--strategy", question.strategy, "leave it out, or --current")
    seen = cluster_options.read_job(question)
    request = request_of(parsed_question(seen.snapshot.question))
    is_given, current = question.strategy is not None or question.current, request.current
    # A job that names no trainer is estimated for the trainer that is advised for it.
    advice = None if is_given and request.framework != ANY else advise(request)
    problem = request.for_trainer(advice.trainer if advice else "").problems[0]
    if question.strategy is not None:
        strategy = layout_of(question.strategy, problem, "--strategy")
    elif question.current:
        if current is None or isinstance(current, Unplaced):
            hint = "the job's command holds no layout; give one by --strategy"
            if current is not None:
                hint = f"today's layout does not fit its machines: {current.why}"
            raise BadValue("--current", question.job, hint)
        strategy = current
    elif advice is None or advice.strategy is None:
        raise NoFeasibleStrategy(advice.explanation if advice else "")
    else:
        strategy = advice.strategy
    document = terms(problem.workload, problem.cluster, strategy)
    tables, records = term_tables(document), term_records(document)
    output.emit(arguments.output, tables, document=document, records=records)
    return 0
