"""The folder of `--save-dir`: launch script, manifest, answer and README. Not a verb."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mofa_model import files, output, presets
from mofa_model.advice import Advice
from mofa_model.annotations import PREFIX
from mofa_model.answers.advise_tables import restarts_line
from mofa_model.errors import InputError, UnknownName
from mofa_model.kinds import KINDS, JobKind
from mofa_model.kinds.kind import MOUNTED, NewJob
from mofa_model.kinds.pods import gpu_resource
from mofa_model.launch import (
    ChangedScript,
    Launch,
    Start,
    accelerate,
    launch_script,
    program_of,
    unverified,
)
from mofa_model.reliability.interval import timeouts
from mofa_model.terminal import printable

if TYPE_CHECKING:
    from mofa_model.advice import Request
    from mofa_model.answers.advise import AdviceAnswer

SCRIPT: Final = "launch.sh"
SBATCH: Final = "sbatch"
"""The name of a batch script of Slurm in `--as`."""
SMOKE: Final = "launch-smoke.sh"
_IMAGE: Final = "registry.example/{trainer}:VERSION"


def kind_of(name: str) -> JobKind | None:
    """The kind of jobs to write, by its name in any case; None = a script of Slurm."""
    if name.lower() == SBATCH:
        return None
    written_kinds = {
        kind.kind.lower(): kind for kind in KINDS if type(kind).manifests is not JobKind.manifests
    }
    if name.lower() not in written_kinds:
        raise UnknownName("--as", name, [*(kind.kind for kind in written_kinds.values()), SBATCH])
    return written_kinds[name.lower()]


def launch_texts(
    answer: AdviceAnswer,
    kind: JobKind | None,
    own_script: tuple[str, ChangedScript] | None = None,
    sbatch_text: str = "",
) -> tuple[dict[str, str], list[str]]:
    """The files of an answer's launch by their names, and the names of those that are programs.

    `own_script` is a script that people have, with the launch written into it; `sbatch_text` has
    options of sbatch. Without a launch both results are empty.
    """
    from mofa_model.manifest.advised import launch_of

    advice, launch = answer.advice, answer.launch
    if launch is None:
        return {}, []
    batch = ""
    if kind is None:
        batch, steps = _batch(answer, sbatch_text)
        launch = launch_of(
            answer.request, replace(advice, checkpoint_interval_steps=steps), launch.trainer
        )
    manifest = f"train.{SBATCH}" if kind is None else f"{kind.word}.yaml"
    texts = {
        "README.md": _readme(advice, launch, manifest, kind, own_script),
        SCRIPT: launch_script(launch, advice.nodes, advice.gpus // advice.nodes),
        manifest: batch
        if kind is None
        else "---\n".join(map(_yaml, kind.manifests(_job(advice, launch)))),
        "advice.json": output.as_json(answer.document),
        **launch.all_files,
    }
    if accelerate.FILE in texts:
        texts[accelerate.FILE] = accelerate.with_machines(texts[accelerate.FILE], advice.nodes)
    programs = [SCRIPT]
    if launch.beside is not None:
        texts[SMOKE] = launch.beside.smoke_script(SCRIPT)
        programs.append(SMOKE)
    if own_script is not None:
        texts = {own_script[0]: own_script[1].text, **own_script[1].files, **texts}
        programs.append(own_script[0])
    return texts, programs


def save(
    folder: str,
    answer: AdviceAnswer,
    kind_name: str,
    own_script: tuple[str, ChangedScript] | None = None,
    sbatch_text: str = "",
) -> list[str]:
    """Write the launches of an answer and of its short runs into a folder; returns all names."""
    from mofa_model.manifest.advised import launch_of

    advice, launch, kind = answer.advice, answer.launch, kind_of(kind_name)
    if launch is None:
        return []
    probes = [
        launch_of(
            answer.request,
            replace(advice, strategy=probe.strategy, precision=probe.precision),
            launch.trainer,
        )
        for probe in advice.probes
    ]
    texts, programs = launch_texts(answer, kind, own_script, sbatch_text)
    files.write_folder(folder, texts, programs=programs)
    names = list(texts)
    for probe, launch_of_probe in zip(advice.probes, probes, strict=True):
        name = probe.name.replace(" ", "-")
        script = launch_script(
            launch_of_probe, probe.nodes, int(probe.strategy.gpus) // probe.nodes
        )
        files.write_folder(
            f"{folder}/{name}", {SCRIPT: script, **launch_of_probe.all_files}, programs=[SCRIPT]
        )
        names.append(name)
    if probes:
        files.write_text(f"{folder}/runs.csv", _runs_to_fill_in(answer.request, advice))
        names.append("runs.csv")
    return names


def _batch(answer: AdviceAnswer, sbatch_text: str) -> tuple[str, int | None]:
    """A batch script of Slurm, and steps between checkpoints that suit its time limit."""
    from mofa_model.identity.directives import seconds_of
    from mofa_model.identity.sbatch_written import (
        SlurmJob,
        asked_options,
        new_batch,
        saves_at_the_end,
        turn_seconds,
    )
    from mofa_model.reliability.checkpoint import interval_within
    from mofa_model.spec.recovery_classes import RecoveryClass

    advice, steps = answer.advice, answer.advice.checkpoint_interval_steps
    trainer = answer.launch.trainer if answer.launch is not None else ""
    job = SlurmJob(
        nodes=advice.nodes,
        gpus_per_node=advice.gpus // advice.nodes,
        sbatch_options=asked_options(sbatch_text),
    )
    turn = turn_seconds(job)
    limit = turn or seconds_of(job.sbatch_options.get("time", ""))
    interval, figures = advice.checkpoint_interval_seconds, advice.predicted
    cut = limit is not None and not (turn and saves_at_the_end(trainer))
    if cut and limit is not None and interval and figures is not None:
        step = figures.step_seconds.target
        within = interval_within(limit, RecoveryClass.JOB.seconds, step, interval)
        steps = max(1, int(within / step))
    title = f"{printable(advice.model)} on {advice.gpus} {advice.device}"
    return new_batch(job, title, trainer, SCRIPT), steps


def _job(advice: Advice, launch: Launch) -> NewJob:
    """The launch as a job; it names a model that is a preset, for the advisor in the cluster."""
    annotations = dict[str, str]()
    with suppress(InputError):
        annotations = {f"{PREFIX}model": presets.model(advice.model).name}

    def mounted(words: Sequence[str]) -> tuple[str, ...]:
        return tuple(f"{MOUNTED}/{word}" if word in launch.files else word for word in words)

    # Not every kind of jobs has a place for a recipe beside the script.
    begin = launch.beside or Start()
    shape = () if any(Path(file).stem in begin.shape for file in begin.extra_files) else begin.shape
    return NewJob(
        name=re.sub(r"[^a-z0-9]+", "-", advice.model.lower()).strip("-")[:40].strip("-")
        or "training",
        nodes=advice.nodes,
        gpus=advice.gpus // advice.nodes,
        resource=gpu_resource(advice.device),
        image=_IMAGE.format(trainer=launch.trainer),
        annotations=annotations,
        words=(*program_of(launch.trainer), *shape, *mounted(launch.arguments)),
        environment=launch.environment,
        files=launch.files,
        starter=mounted(launch.starter),
        restarts=advice.restarts or 0,
    )


def _yaml(manifest: Mapping[str, Any]) -> str:
    """An object of a manifest; files in it are blocks."""
    from ruamel.yaml.scalarstring import LiteralScalarString

    data = {name: LiteralScalarString(text) for name, text in manifest.get("data", {}).items()}
    return output.render("yaml", [], {**manifest, **({"data": data} if data else {})})


def _changes(own_script: tuple[str, ChangedScript] | None) -> str:
    """Sentences on the changes in a person's own script."""
    if own_script is None:
        return ""
    name, changed = own_script
    lines = [*map(str, changed.changes), *(f"**not changed**: {reason}" for reason in changed.left)]
    return f"- `{name}`: yours, with this launch written into it:\n" + "".join(
        f"  - {printable(reason)}\n" for reason in lines
    )


def _readme(
    advice: Advice,
    launch: Launch,
    manifest: str,
    kind: JobKind | None,
    own_script: tuple[str, ChangedScript] | None,
) -> str:
    """The text of README.md: which files the folder holds, and how to start them."""
    image = _IMAGE.format(trainer=launch.trainer)
    why = unverified(launch.trainer, launch.arguments, launch.release)
    verified = f"Not verified: {why}." if why else "The trainer's own checks took such launches."
    notes = "".join(f"\nNote: {note}." for note in launch.notes)
    if kind is None:
        started = (
            f"call `sbatch {manifest}` in this folder, with the same arguments behind it; options"
            " of sbatch\n  before it, such as the partition and the time"
        )
    else:
        started = (
            f"a {kind.kind}; put your image in place of `{image}`, "
            f"add the same arguments, `kubectl apply -f {manifest}`"
        )
    config = "".join(f"- `{name}`: read by {launch.trainer}\n" for name in launch.all_files)
    smoke = f"- `{SMOKE}`: the same for ten steps on mock data, to see that it starts\n" * (
        launch.beside is not None
    )
    return f"""\
# {printable(advice.model)} on {advice.gpus} {advice.device}

{advice.explanation}

{_changes(own_script)}- `{SCRIPT}`: run it on each of {advice.nodes} nodes; {_needs(launch)}
{smoke}- `{manifest}`: {started}
{config}- `advice.json`: the whole answer, in SI units
{_restarts(advice, kind)}
Written for {launch.release}. {verified}{notes}
"""


def _restarts(advice: Advice, kind: JobKind | None) -> str:
    """The number of restarts, the field that holds it, and time-outs that suit the job."""
    line = restarts_line(advice)
    if not line or advice.hang_timeout is None:
        return ""
    limit = None if kind is None else kind.restart_limit
    field = "" if limit is None else f" (`spec.{'.'.join(limit.path)}`)"
    heartbeat = timeouts(advice.hang_timeout)["heartbeat"]
    return (
        f"\nRestarts{field}: {line}. The heartbeat is the variable "
        f"`TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC={heartbeat:.0f}`, "
        "the collective your trainer's time-out of a process group.\n"
    )


def _needs(launch: Launch) -> str:
    """A sentence on the parts of the launch that a person must fill in before it starts."""
    if launch.beside is None:
        return "with arguments of your own (model, data, folders), which come before the layout"
    names = ", ".join(variable.name for variable in launch.beside.variables)
    return f"{names} stand at its top. {launch.beside.default_run}"


def _runs_to_fill_in(request: Request, advice: Advice) -> str:
    """The short runs as a table, with empty cells for their measurements."""
    from mofa_model.calibrate.short_runs import COLUMNS
    from mofa_model.strategy import format_strategy

    first = request.problems[0]
    shared: dict[str, Any] = {
        "model": first.workload.model.name,
        "gpu": first.cluster.device.name,
        "global_batch": int(first.workload.training.global_batch),
        "sequence": int(first.workload.training.sequence),
    }
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, restval="", lineterminator="\n")
    writer.writeheader()
    for probe in advice.probes:
        run = {"id": probe.name, "gpus": int(probe.strategy.gpus), "precision": probe.precision}
        writer.writerow({**shared, **run, "strategy": format_strategy(probe.strategy)})
    return text.getvalue()
