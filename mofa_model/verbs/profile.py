"""`mofa profile`: a ClusterProfile as YAML, from flags, this machine, Slurm or a cluster."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import Final

from mofa_model import files, terminal
from mofa_model.answers.options import add_options, question_of
from mofa_model.answers.questions import ProfileQuestion

EXAMPLES: Final = """\
examples:
  mofa profile --name pool --gpu h100-sxm --nodes 256 --scale-out "400 Gbit/s"
  mofa profile --name lab --gpu a100 --storage Remote=1GB/s:10GB/s
  mofa profile --gpu h100 --class pod=3.0:262 --out pool.yaml
  mofa profile --show h100-east     one that comes with the package
  mofa profile --measure            of the machine that this runs on
  mofa profile --slurm              one for each kind of GPU node of this Slurm, with its failures
  mofa profile --slurm nodes.txt sacct.txt events.txt
  mofa profile --from-cluster       one for each kind of GPU node, by KUBECONFIG"""


def configure(parser: ArgumentParser) -> None:
    """Add the question."""
    add_options(parser, ProfileQuestion)


def run(arguments: Namespace) -> int:
    """Print or write the profile."""
    from mofa_model.answers.profile import proposed

    question = question_of(ProfileQuestion, arguments)
    text = proposed(question)
    if question.out:
        files.write_text(question.out, text)
    else:
        terminal.put(text)
    return 0
