"""The script that somebody pasted, with the launch that is advised written into it."""

from __future__ import annotations

from mofa_model.identity.sbatch import followed
from mofa_model.launch import Launch, ScriptChanged, changed_script
from mofa_model.pasted.reading import Pasted
from mofa_model.pasted.scripts import as_meant


def in_place(pasted: Pasted, launch: Launch) -> ScriptChanged:
    r"""A script that starts a launch, with nothing else changed.

    >>> from mofa_model.launch import Launch
    >>> script = Pasted("TP=8\nsrun python pretrain_gpt.py --tensor-model-parallel-size $TP\n", "j.sh")
    >>> words = ("--tensor-model-parallel-size", "4")
    >>> in_place(script, Launch(trainer="megatron", release="", arguments=words)).text
    'TP=4\nsrun python pretrain_gpt.py --tensor-model-parallel-size $TP\n'
    """
    return changed_script(pasted.text, launch, lambda text: followed(as_meant(text), pasted.name))
