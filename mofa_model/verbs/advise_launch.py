"""The launch of an answer: for which trainer, and its flags alone. Not a verb."""

from __future__ import annotations

import shlex
import sys
from argparse import Namespace

from mofa_model.advice import Advice, Request
from mofa_model.errors import BadValue, InputError
from mofa_model.launch import Launch
from mofa_model.manifest.launches import launch_of, trainer_of


def check(a: Namespace) -> None:
    """Refuse what does not go together before anything is searched."""
    if a.flags_only and a.output != "table":
        raise BadValue("--flags-only", a.output, "it is a form of output itself; leave -o out")


def trainer_for(a: Namespace, request: Request) -> str:
    """The trainer that is asked for, or else that of the framework, where its flags are; empty where nobody asks."""
    trainer = a.launch or (trainer_of(request.framework) if a.flags_only else "")
    if a.flags_only and not trainer:
        right = "say for which trainer: --launch TRAINER"
        raise BadValue("--flags-only", f"framework {request.framework}", right)
    return str(trainer)


def launched(request: Request, advice: Advice, trainer: str) -> tuple[Launch | None, InputError | None]:
    """The launch, or why there is none: the answer stands, whatever this trainer can be told."""
    if not trainer or advice.strategy is None:
        return None, None
    try:
        return launch_of(request, advice, trainer), None
    except InputError as error:
        return None, error


def print_flags(launch: Launch | None) -> None:
    """One line for `eval "torchrun … $(mofa advise …)"`; what it needs beside is said on standard error."""
    if launch is None:
        return
    sys.stdout.write(shlex.join(launch.arguments) + "\n")
    needs = [f"{name}={value} in the environment" for name, value in launch.environment.items()]
    needs += [f"a file {name}, which --save-dir writes" for name in launch.files]
    if needs:
        sys.stderr.write(f"mofa advise: the launch needs {', '.join(needs)}\n")
