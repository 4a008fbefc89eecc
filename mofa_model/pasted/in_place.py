"""The script that somebody pasted, with the launch that is advised written into it."""

from __future__ import annotations

from mofa_model.identity.sbatch import followed
from mofa_model.identity.sbatch_written import SlurmJob, changed_batch
from mofa_model.launch import ChangedScript, Launch, changed_script
from mofa_model.pasted.reading import PastedText
from mofa_model.pasted.scripts import as_meant


def in_place(pasted: PastedText, launch: Launch, job: SlurmJob) -> ChangedScript:
    r"""A script that starts a launch on a job's nodes, with nothing else changed.

    >>> from mofa_model.launch import Launch
    >>> text = "TP=8\nsrun python pretrain_gpt.py --tensor-model-parallel-size $TP\n"
    >>> words = ("--tensor-model-parallel-size", "4")
    >>> launch = Launch(trainer="megatron", release="", arguments=words)
    >>> in_place(PastedText(text, "j.sh"), launch, SlurmJob(nodes=1, gpus_per_node=8)).text
    'TP=4\nsrun python pretrain_gpt.py --tensor-model-parallel-size $TP\n'
    """
    sized = changed_batch(pasted.text, pasted.name, job)
    made = changed_script(sized.text, launch, lambda text: followed(as_meant(text), pasted.name))
    return ChangedScript(
        text=made.text,
        changes=(*sized.changes, *made.changes),
        left=(*sized.left, *made.left),
        files=launch.files,
    )
