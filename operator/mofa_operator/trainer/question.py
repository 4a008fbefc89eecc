"""The options of `mofa observe`: a log, the job that writes it, and how its figures are served."""

from __future__ import annotations

from dataclasses import MISSING
from typing import Final

from mofa_model.answers.options import UserQuestion, argument, as_in, option, switch, text, whole
from mofa_model.answers.questions import TrainingQuestion
from mofa_operator.trainer.formats import FAMILIES

PORT: Final = 9400
"""Port of /metrics."""
_COUNT: Final = (1, 1e15)


class ObserveQuestion(UserQuestion):
    """What a trainer's log tells of its job."""

    log: str = argument(
        text,
        "LOG",
        "file, quoted pattern of files that follow one another, or - for standard input",
        default=MISSING,
        kw_only=False,
    )
    format: str | None = option(
        text, "--format FORMAT", f"trainer: {', '.join(FAMILIES)} (default: as the lines say)"
    )
    once: bool = option(
        switch, "--once", "read to the end, print what it holds, and exit", default=False
    )
    append: bool = option(
        switch,
        "--append",
        "with --once: write it behind the log's last line too",
        default=False,
    )
    job: str | None = option(
        text, "--job NAME", "name of the job (default: TRAINING_JOB)", group="job"
    )
    namespace: str | None = option(
        text, "--namespace NAME", "its namespace (default: POD_NAMESPACE)"
    )
    job_file: str | None = option(
        text, "--job-file FILE", "TrainingJob that says name, sequence, batch and GPUs"
    )
    sequence: int | None = option(whole, "--sequence N", "tokens in a sequence", bounds=_COUNT)
    global_batch_size: int | None = as_in(
        TrainingQuestion, "global_batch_size", "sequences in a step", reader=whole, bounds=_COUNT
    )
    gpus: int | None = as_in(
        TrainingQuestion, "gpus", "GPUs of the whole job", reader=whole, bounds=_COUNT
    )
    script: str | None = option(
        text,
        "--script FILE",
        "batch script or manifest that started it: says the same, and what is predicted",
    )
    model: str | None = as_in(
        TrainingQuestion, "model", "its model, where the script does not say it"
    )
    gpu: str | None = as_in(TrainingQuestion, "gpu", "its device, likewise")
    address: str = option(
        text,
        "--address ADDRESS",
        "address to listen on",
        default="0.0.0.0",  # noqa: S104
        group="serving",
    )
    port: int = option(whole, "--port PORT", "port of /metrics; 0 = any", default=PORT)
    textfile: str | None = option(
        text, "--textfile FILE.prom", "write a file for node-exporter instead of serving"
    )
    poll: str = option(text, "--poll TIME", "time between looks at the file", default="0.5 s")
    stale: str = option(text, "--stale TIME", "silence after which speeds go", default="10 min")
