"""The launch of an answer: for which trainer, its flags alone, and saved in a folder. Not a verb."""

from __future__ import annotations

import shlex
import sys
from argparse import Namespace

from mofa_model import files, terminal
from mofa_model.answers.advise import AdviceAnswer
from mofa_model.errors import BadValue, InputError
from mofa_model.launch import Launch


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


def needed_by(a: Namespace) -> str:
    """The option that needs a launch; empty where none does."""
    return "--flags-only" if a.flags_only else "--save-dir" if a.save_dir else ""


def save(a: Namespace, found: AdviceAnswer, launch: Launch) -> None:
    """Write the folder that is asked for."""
    from mofa_model.verbs import advise_folder, advise_runs

    kind = advise_folder.kind_of(a.saved_kind or "JobSet")
    probes = advise_runs.launches(found.request, found.advice, launch.trainer)
    names = advise_folder.save(a.save_dir, found.advice, launch, found.document, kind)
    names += advise_runs.save(a.save_dir, found.request, found.advice, probes) if probes else []
    terminal.tell(f"saved: {a.save_dir}: {', '.join(names)}")


def print_flags(launch: Launch | None) -> None:
    """One line for `eval "torchrun … $(mofa advise …)"`; what it needs beside is said on standard error."""
    if launch is None:
        return
    sys.stdout.write(shlex.join(launch.arguments) + "\n")
    needs = [f"{name}={value} in the environment" for name, value in launch.environment.items()]
    needs += [f"a file {name}, which --save-dir writes" for name in launch.files]
    if needs:
        terminal.tell(f"mofa advise: the launch needs {', '.join(needs)}")
