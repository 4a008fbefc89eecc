"""Follow a trainer's log and serve what it tells: speed, steps, checkpoints, restarts."""

from __future__ import annotations

import os
import signal
from argparse import ArgumentParser, Namespace
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any, Final

from mofa_model import output, terminal, units
from mofa_model.answers.options import add_options, question_of
from mofa_model.errors import BadFile, BadValue, InputError
from mofa_model.files import append_text
from mofa_model.tables import Column, Table
from mofa_operator.trainer.follow import follow
from mofa_operator.trainer.formats import FAMILIES, Reader
from mofa_operator.trainer.job import TrainerJob, job_of, with_name
from mofa_operator.trainer.progress import Progress, with_line
from mofa_operator.trainer.question import ObserveQuestion

PATIENCE: Final = 3
"""Lines with a speed that may come before tokens per second must be known, which may need the next
lines. [1]"""
_REMEMBERED: Final = 10_000
"""Most lines whose step times make the median of --once. [1]"""

EXAMPLES: Final = """\
examples:
  beside the trainer, which writes to a shared volume; serves http://0.0.0.0:9400/metrics
    mofa observe /logs/train.log --job llama3-405b --namespace research --sequence 8192
  the attempts of one run, as they come; sequence, batch and GPUs from the TrainingJob
    mofa observe '/logs/attempt_*/rank0.log' --job-file examples/llama3-405b.yaml
  what a finished log holds
    mofa observe train.log --once --sequence 4096
  at the end of a batch script, or in its epilog: predicted and observed, at the end of the log
    mofa observe train.log --once --append --script train.sbatch --model llama3-8b --gpu h100
  while training, without a file
    torchrun train.py 2>&1 | tee >(mofa observe - --job tiny --gpus 8)

tokens/s are those of the whole job: numbers for one GPU are multiplied by --gpus. What the log
says itself (batch, GPUs or sequence length, when the trainer starts) need not be given."""


def configure(parser: ArgumentParser) -> None:
    """Add the question."""
    add_options(parser, ObserveQuestion)
    output.add_options(parser)


def run(arguments: Namespace) -> int:
    """Read the log; serve its figures, or print them."""
    question = question_of(ObserveQuestion, arguments)
    if question.append and not (question.once and Path(question.log).is_file()):
        raise BadValue("--append", question.log, "give --once and one file, which is written to")
    reader, job = Reader(question.format), job_of(question, os.environ)
    if question.once:
        return _print(question, reader, job, arguments.output)
    return _serve(question, reader, with_name(job))


def _serve(question: ObserveQuestion, reader: Reader, job: TrainerJob) -> int:
    from mofa_operator.trainer.serve import LogExporter, Served, Textfile

    poll, stale = (
        units.parse(getattr(question, name), "s", field=f"--{name}") for name in ("poll", "stale")
    )
    if not 0 < poll <= units.HOUR:
        raise BadValue("--poll", question.poll, "give a time above zero and at most an hour")
    exporter = LogExporter(namespace=job.namespace, job=job.name, stale=stale)
    progress = Progress()
    target = (
        Textfile(exporter, question.textfile)
        if question.textfile
        else Served(exporter, question.address, question.port)
    )
    with _ended_by_sigterm(), target as server:
        _tell(f"serving {server.url} for {job.namespace}/{job.name}")
        for moment, lines in follow(question.log, once=False, poll=poll, waiting=_tell):
            for raw in lines:
                if (line := reader.read(raw)) is not None:
                    progress = with_line(progress, line, job.facts, moment)
            if exporter.progress is not progress:
                exporter.progress = progress
                server.write()
                _check(progress, question.log)
    return 0


def _print(question: ObserveQuestion, reader: Reader, job: TrainerJob, form: str) -> int:
    progress, times = Progress(), deque[float](maxlen=_REMEMBERED)
    for moment, lines in follow(question.log, once=True):
        for raw in lines:
            if (line := reader.read(raw)) is not None:
                progress = with_line(progress, line, job.facts, moment)
                if line.has_speed and progress.step_seconds is not None:
                    times.append(progress.step_seconds)
    _check(progress, question.log, patience=1)
    if progress.step is None:
        raise BadFile(
            question.log,
            f"holds no steps in the format of {question.format or ', '.join(FAMILIES)}; "
            "give a trainer's log",
        )
    answer = _answer(progress, job, median(times) if times else None)
    answer["predicted"] = _predicted(question)
    table = _table(question.log, progress, answer)
    if question.append:
        text = "".join(f"mofa observe: {line}\n" for line in _lines(table))
        append_text(question.log, text)
    output.emit(form, [table], answer, records=output.as_record(answer))
    return 0


def _check(progress: Progress, log: str, patience: int = PATIENCE) -> None:
    """Raise where enough lines hold a speed and tokens per second are still unknown."""
    if progress.missing and progress.speeds == 0 and progress.unknown >= patience:
        raise InputError(
            f"{log}: its {progress.family} lines do not say all that tokens per second need;"
            f" give {progress.missing}, or --job-file"
        )


def _answer(progress: Progress, job: TrainerJob, step_seconds: float | None) -> dict[str, Any]:
    return {
        "job": job.name or None,
        "namespace": job.namespace,
        "format": progress.family,
        "step": progress.step,
        "tokens_per_second": progress.tokens_per_second,
        "step_seconds": progress.step_seconds,
        "median_step_seconds": step_seconds,
        "basis": progress.basis or None,
        "checkpoints": progress.saves,
        "checkpoint_step": progress.saved,
        "checkpoint_interval_steps": progress.save_spacing,
        "restarts": progress.restarts,
        "steps_redone": progress.redone,
    }


def _predicted(question: ObserveQuestion) -> dict[str, float] | None:
    """Predictions for the launch in a script; None where no script is given."""
    if question.script is None:
        return None
    from mofa_model.answers.check import forecast
    from mofa_operator.trainer.job import launch_in

    predicted = forecast(launch_in(question.script), question.model, question.gpu)
    return {
        "step_seconds": predicted.step_seconds,
        "tokens_per_second": predicted.tokens_per_second,
        "memory_bytes": predicted.memory_bytes,
    }


def _lines(table: Table) -> Iterator[str]:
    """A table as lines of a log."""
    names = [column.name for column in table.columns[1:]]
    for fact, *values in table.rows:
        texts = [
            str(value) if len(names) == 1 else f"{value} {name}"
            for value, name in zip(values, names, strict=True)
            if value
        ]
        yield f"{fact}: {', '.join(texts)}"


def _table(log: str, progress: Progress, answer: dict[str, Any]) -> Table:
    """The figures of a trainer's log as a table, beside the predicted ones where there are any."""
    forecast = answer["predicted"] or {}
    predicted = {
        "tokens per second": _tokens(forecast.get("tokens_per_second")),
        "median step time": _time(forecast.get("step_seconds")),
        "device memory": _memory(forecast.get("memory_bytes")),
    }
    observed = {
        "trainer": progress.family,
        "last step": progress.step,
        "tokens per second": _tokens(answer["tokens_per_second"]),
        "step time": _time(progress.step_seconds),
        "median step time": _time(answer["median_step_seconds"]),
        "device memory": _memory(progress.memory_bytes),
        "checkpoints": progress.saves,
        "last checkpoint": progress.saved,
        "steps between checkpoints": progress.save_spacing,
        "restarts": progress.restarts,
        "steps redone": progress.redone,
    }
    return Table(
        title="standard input" if log == "-" else log,
        columns=(
            Column("what"),
            Column("observed" if forecast else "value", align="left"),
            *([Column("predicted", align="left")] if forecast else ()),
        ),
        rows=tuple(
            (
                fact,
                "" if value is None else str(value),
                *([predicted.get(fact) or ""] if forecast else ()),
            )
            for fact, value in observed.items()
            if value is not None or predicted.get(fact) is not None
        ),
        notes=(f"Tokens per second: {progress.basis}.",) if progress.basis else (),
    )


def _tokens(rate: float | None) -> str | None:
    return None if rate is None else f"{rate:.4g}"


def _memory(size: float | None) -> str | None:
    return None if size is None else units.format(size, "B")


def _time(seconds: float | None) -> str | None:
    return None if seconds is None else units.format(seconds, "s")


def _tell(text: str) -> None:
    terminal.tell(f"mofa observe: {text}")


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """SIGTERM ends the verb in order, with exit code 0, from whatever it waits for."""

    def end(*_: object) -> None:
        raise SystemExit(0)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
