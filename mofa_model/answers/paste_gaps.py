"""Facts that texts leave open: options give them, usual values are assumed, or people are asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr, suppress
from dataclasses import replace
from io import StringIO
from typing import Final

from mofa_model import presets
from mofa_model.answers.paste_question import question_for, without_layout
from mofa_model.answers.questions import PasteQuestion
from mofa_model.errors import InputError, Missing
from mofa_model.identity.fact import Fact
from mofa_model.pasted.reading import PastedFacts
from mofa_model.pasted.recognise import by_program

ASKED: Final[Mapping[str, tuple[str, str]]] = {
    "gpu": ("--gpu", "h100"),
    "gpus": ("--gpus", "64"),
    "nodes": ("--nodes", "8"),
    "gpus-per-node": ("--gpus-per-node", "8"),
    "model": ("--model", "llama3-8b"),
    "seq": ("--seq", "8192"),
    "global_batch": ("--global-batch", "512"),
}
"""Facts that people may be asked for: the option that gives it, and an example."""
ASSUMED: Final = {"seq": (8192, 2048), "global_batch": (512, 64)}
"""Usual values of facts that nobody states: of pre-training, and of fine-tuning. [1]"""
MOST: Final = 2
"""Most facts that a person at a terminal is asked for. [1]"""
WORDS: Final = {
    "gpu": "device", "gpus": "devices", "nodes": "nodes", "gpus_per_node": "devices of a node",
    "seq": "sequence", "global_batch": "global batch", "micro_batch": "micro-batch",
    "lora_rank": "rank of adapters", "kv_heads": "KV heads", "top_k": "experts of a token",
    "ffn": "width of the feed-forward part", "vocab": "vocabulary",
    "dp": "data-parallel ranks", "interval": "steps between checkpoints",
}  # fmt: skip
_GIVEN: Final = {
    "gpu": "gpu", "gpus": "gpus", "nodes": "nodes", "gpus_per_node": "gpus_per_node",
    "model": "model", "seq": "sequence_length", "global_batch": "global_batch_size",
}  # fmt: skip
"""The field of the question that gives each fact."""
MOST_NODES: Final = 512
"""Nodes up to which the fewest are looked for. [1]"""
ON_DEVICES: Final = "optimizer=replicated,distributed,zero2,zero3"
"""The constraint that no state waits in the main memory of a node."""


def may_say_more(pasted_facts: PastedFacts) -> bool:
    """Whether a script starts a program of its user's own: a file that is not here may state more.

    The program of a trainer states nothing beyond its command and settings.
    """
    if not any(kind.is_script for _, kind in pasted_facts.parts):
        return False
    return pasted_facts.command is None or not by_program(pasted_facts.command)


def with_fewest(question: PasteQuestion, pasted_facts: PastedFacts) -> tuple[PastedFacts, str]:
    """Facts with the fewest devices that surely hold a training, and the sentence that says so.

    Adapters may take a part of a node; all weights take whole nodes. Each size is twice the
    one before.
    """
    from mofa_model.advice import size_of
    from mofa_model.answers.advise import request_of

    gpu = str(pasted_facts.facts["gpu"].value)
    per_node = int(presets.cluster(gpu, 1).gpus_per_node)
    tuned = bool(question.adapter_rank) or "lora_rank" in pasted_facts.facts
    sizes = [count for count in (1, 2, 4) if tuned and count < per_node]
    sizes += [per_node * 2**power for power in range(MOST_NODES.bit_length())]
    for gpus in sizes:
        sized = _of_size(pasted_facts, gpus)
        with suppress(InputError), redirect_stderr(StringIO()):
            advice_question, _ = question_for(question, sized)
            advice_question = replace(
                without_layout(advice_question),
                constraints=(*advice_question.constraints, ON_DEVICES),
            )
            if size_of(request_of(advice_question), "least-gpus").fits:
                return sized, (
                    f"nobody says how many: {gpus} {gpu} are the fewest that surely hold it, of 1,"
                    " 2, 4 and so on nodes, with nothing in main memory; --gpus changes it"
                )
    raise Missing(dict([ASKED["gpus"]]), also=f"none of up to {sizes[-1]} {gpu} surely holds it")


def _of_size(pasted_facts: PastedFacts, gpus: int) -> PastedFacts:
    return replace(pasted_facts, facts={**pasted_facts.facts, "gpus": Fact(gpus, "assumed")})


def with_usual_nodes(
    question: PasteQuestion, pasted_facts: PastedFacts, notes: list[str]
) -> PastedFacts:
    """Facts with the devices of a node of --gpu's usual system, where only nodes are stated."""
    facts = pasted_facts.facts
    if question.gpu is None or "nodes" not in facts or {"gpus", "gpus_per_node"} & facts.keys():
        return pasted_facts
    per_node = int(presets.cluster(question.gpu, 1).gpus_per_node)
    nodes = int(facts["nodes"].value)
    notes.append(
        f"nobody says devices of a node: {per_node} are taken, as of the usual {question.gpu};"
        " --gpus-per-node changes it"
    )
    more = {
        "gpus_per_node": Fact(per_node, "assumed"),
        "gpus": Fact(nodes * per_node, f"derived: {nodes} nodes x {per_node}"),
    }
    return replace(pasted_facts, facts={**facts, **more})


def with_usual_numbers(
    pasted_facts: PastedFacts, question: PasteQuestion, asks: Sequence[str]
) -> tuple[PastedFacts, list[str]]:
    """Facts with a usual sequence or batch for those of `asks`, and the sentence that says so."""
    if not asks:
        return pasted_facts, []
    task = pasted_facts.facts.get("task")
    tuned = bool(question.adapter_rank) or "lora_rank" in pasted_facts.facts
    tuned = tuned or (task is not None and task.value != "pre-training")
    usual = {name: values[tuned] for name, values in ASSUMED.items() if name in asks}
    facts = {
        **pasted_facts.facts,
        **{name: Fact(value, "assumed") for name, value in usual.items()},
    }
    values = " and ".join(f"{WORDS[name]} {value}" for name, value in usual.items())
    options = " and ".join(ASKED[name][0] for name in usual)
    are, change = ("are", "change") if len(usual) > 1 else ("is", "changes")
    note = f"nobody says {values}, which {are} assumed; {options} {change} it"
    return replace(pasted_facts, facts=facts), [note]


def facts_of_options(question: PasteQuestion, pasted_facts: PastedFacts) -> dict[str, Fact]:
    """The facts that options give, by name: they replace those that were read."""
    from mofa_model import units

    changed = question.changed_fields()
    facts = {
        fact: Fact(value, question.options[field].flag)
        for fact, field in _GIVEN.items()
        if (value := changed.get(field)) is not None
    }
    for name in ("gpus", "nodes", "gpus_per_node"):
        if name in facts:
            count = units.count(str(facts[name].value), field="--gpus")
            facts[name] = facts[name]._replace(value=count)
    both = {**pasted_facts.facts, **facts}
    factors = {"nodes", "gpus_per_node"}
    if "gpus" not in facts and factors & facts.keys() and factors <= both.keys():
        gpus = both["nodes"].value * both["gpus_per_node"].value
        facts["gpus"] = Fact(gpus, "--nodes x --gpus-per-node")
    return facts
