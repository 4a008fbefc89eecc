"""The launch of an answer: for which trainer, its flags alone, and saved in a folder. Not a verb."""

from __future__ import annotations

import shlex
import sys
from argparse import Namespace

from mofa_model import files
from mofa_model.advice import Advice, Request
from mofa_model.errors import BadValue, InputError
from mofa_model.launch import Launch
from mofa_model.manifest.launches import launch_of, trainer_of


def check(a: Namespace) -> None:
    """Refuse what does not go together before anything is searched."""
    if a.flags_only and a.output != "table":
        raise BadValue("--flags-only", a.output, "it is a form of output itself; leave -o out")
    if a.flags_only and a.probe:
        raise InputError("--flags-only: it prints one launch; leave --probe out")
    if not a.save_dir:
        for option, said in (("--as", a.saved_kind), ("--overwrite", a.overwrite)):
            if said:
                raise InputError(f"{option}: it goes with --save-dir FOLDER")
        return
    from mofa_model.verbs import advise_folder

    advise_folder.kind_of(a.saved_kind or "JobSet")
    files.check_folder(a.save_dir, overwrite=a.overwrite)


def trainer_for(a: Namespace, request: Request) -> str:
    """The trainer that is asked for, or else that of the framework, where its flags are; empty where nobody asks."""
    option = "--flags-only" if a.flags_only else "--save-dir" if a.save_dir else ""
    trainer = a.launch or (trainer_of(request.framework) if option else "")
    if option and not trainer:
        right = "say for which trainer: --launch TRAINER"
        raise BadValue(option, f"framework {request.framework}", right)
    return str(trainer)


def launched(request: Request, advice: Advice, trainer: str) -> tuple[Launch | None, InputError | None]:
    """The launch, or why there is none: the answer stands, whatever this trainer can be told."""
    if not trainer or advice.strategy is None:
        return None, None
    try:
        return launch_of(request, advice, trainer), None
    except InputError as error:
        return None, error


def save(a: Namespace, request: Request, advice: Advice, launch: Launch) -> None:
    """Write the folder that is asked for."""
    from mofa_model.verbs import advise_answer, advise_folder, advise_runs

    kind = advise_folder.kind_of(a.saved_kind or "JobSet")
    probes = advise_runs.launches(request, advice, launch.trainer)
    found = advise_folder.save(a.save_dir, advice, launch, advise_answer.document(advice, launch), kind)
    found += advise_runs.save(a.save_dir, request, advice, probes) if probes else []
    sys.stderr.write(f"saved: {a.save_dir}: {', '.join(found)}\n")


def print_flags(launch: Launch | None) -> None:
    """One line for `eval "torchrun … $(mofa advise …)"`; what it needs beside is said on standard error."""
    if launch is None:
        return
    sys.stdout.write(shlex.join(launch.arguments) + "\n")
    needs = [f"{name}={value} in the environment" for name, value in launch.environment.items()]
    needs += [f"a file {name}, which --save-dir writes" for name in launch.files]
    if needs:
        sys.stderr.write(f"mofa advise: the launch needs {', '.join(needs)}\n")
