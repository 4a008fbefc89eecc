"""Every axis has one row, and none is built and inert: each of its values reaches a strategy that
is priced.
"""

from dataclasses import fields, replace

import numpy as np
import pytest
from shapes import decoder

from mofa_model.axes.axis import Choice
from mofa_model.axes.frameworks import framework, frameworks
from mofa_model.axes.rules import AxisContext
from mofa_model.blocks import Experts, SoftmaxAttention
from mofa_model.records import varied
from mofa_model.search import SearchCase, SearchQuestion, parse_constraint, search
from mofa_model.search.axes import EVERY, QUESTION, known_axes
from mofa_model.search.explore import strategy_of
from mofa_model.search.rank import Leaders
from mofa_model.spec import (
    Cluster,
    Device,
    Link,
    Precision,
    Training,
    Workload,
)
from mofa_model.strategy import (
    ACTIVATIONS,
    AXES,
    Strategy,
    format_strategy,
    parse_strategy,
    short_strategy,
)

ATTENTION = SoftmaxAttention(heads=64, kv_heads=64, head_dim=64)
MODEL = decoder(
    "mixture", layers=32, hidden=4096, attention=ATTENTION, ffn=8192,
    vocabulary=32000, experts=Experts(count=4, top_k=2, width=2048), dense_layers=1,
)  # fmt: skip
DENSE = decoder("dense", layers=32, hidden=4096, attention=ATTENTION, ffn=8192, vocabulary=32000)
PER_NODE = 64
CLUSTER = Cluster(
    device=Device(name="roomy", peak_bf16=400e12, memory=1e15, memory_bandwidth=2e12),
    gpus=2 * PER_NODE, gpus_per_node=PER_NODE, domain=PER_NODE,
    scale_up=Link(bandwidth=300e9), scale_out=Link(bandwidth=25e9),
)  # fmt: skip
TRAINING = Training(sequence=131072, global_batch=8192, precision=Precision(name="bf16"))
ASKED = AxisContext(workload=Workload(model=MODEL, training=TRAINING), cluster=CLUSTER, nodes=(2,))


def values_of(axis):
    """What is tried, and what only a constraint names."""
    named = [
        word.choices for word in axis.words if isinstance(word, Choice) and len(axis.fields) == 1
    ]
    return tuple(dict.fromkeys([*axis.tried(ASKED), *(value for some in named for value in some)]))


def test_every_field_of_a_strategy_belongs_to_one_axis_and_dp_follows_from_them():
    owned = [name for axis in AXES for name in axis.fields]
    assert sorted([*owned, "dp"]) == sorted(field.name for field in fields(Strategy))


def test_axes_have_names_keys_and_an_order_of_their_own():
    assert set(known_axes(ASKED).values) == {axis.name for axis in EVERY}
    assert len({axis.name for axis in EVERY}) == len(EVERY)
    assert len({axis.complexity for axis in EVERY}) == len(EVERY)
    for keys in (
        [word.key for axis in AXES for word in axis.words],
        [w.key for axis in EVERY for w in axis.keys],
    ):
        assert len(keys) == len(set(keys))
    assert all(axis.keys for axis in AXES)


class Noted:
    """A strategy that notes which of its fields somebody reads."""

    def __init__(self, strategy):
        self.strategy, self.read = strategy, set()

    def __getattr__(self, name):
        self.read.add(name)
        return getattr(self.strategy, name)


def test_a_word_says_which_fields_it_reads():
    """So the words of the plainest fields need not be written again."""
    for axis in AXES:
        for value in values_of(axis):
            for word in (word for one in AXES for word in one.words):
                noted = Noted(varied(Strategy(), **axis.chosen(value)))
                word.write(noted)
                assert noted.read <= {*word.reads}, (word.key, value)


def test_words_of_what_is_refused_together_are_those_of_axes():
    known = {word for axis in AXES for word in axis.apart}
    for name in frameworks():
        assert {word for pair in framework(name).apart for word in pair} <= known


@pytest.mark.parametrize("axis", AXES, ids=lambda axis: axis.name)
@pytest.mark.parametrize("printed", [format_strategy, short_strategy])
def test_every_value_is_read_back_as_it_is_printed(axis, printed):
    for value in values_of(axis):
        chosen = axis.chosen(value)
        if chosen.get("shard", 0) < 0:
            chosen["shard"] = 2  # as many as a scale-up domain holds
        strategy = replace(Strategy(), **chosen)
        assert parse_strategy(printed(strategy)) == strategy
        assert format_strategy(parse_strategy(format_strategy(strategy))) == format_strategy(
            strategy
        )


PLAIN = (
    *("recompute=none", "sharding=distributed", "optimizer=device", "offload=none", "graphs=none"),
    *("pp-overlap=true", "dp-overlap=true"),
)
SHAPES = (*PLAIN, "sp=true", "tp-overlap=true", "ep-overlap=true")
SMALL = ("tp=4", "cp=1", "pp=1,2", "mbs=1", "ep=2", "etp=1", "chunks=1", "schedule=1f1b", "vpp=1")
QUESTIONS = {
    "tensor and experts": ("any", (*SHAPES, "cp=1", "pp=1", "mbs=1")),
    "pipelines": ("any", (*SHAPES, "tp=1", "cp=1", "ep=1", "etp=1", "chunks=1")),
    "a pipeline that is searched where it is named": (
        "any",
        (*SHAPES, "tp=1", "cp=1", "ep=1", "etp=1", "chunks=1", "schedule=v-half"),
    ),
    "contexts": (
        "any",
        (
            *SHAPES,
            "cp-mode=ring,a2a,allgather,usp",
            "pp=1",
            "mbs=1",
            "ep=1",
            "etp=1",
            "chunks=1",
            "tp=1",
        ),
    ),
    "features": ("any", (*SMALL, f"offload=none,{ACTIVATIONS}", "graphs=none,partial,full")),
    "weights on the host": (
        "any",
        (*SMALL, *PLAIN[:1], "sharding=zero3", "optimizer=cpu", "host-weights=true"),
    ),
    "no overlap of gradients": ("any", (*PLAIN[:-1], *SMALL, "dp-overlap=false")),
    "no overlap in Megatron": ("megatron", (*PLAIN[:-2], *SMALL)),
    "no overlap in llm-foundry": ("llm-foundry", ("optimizer=device", "recompute=none", "ep=2")),
    "a dense model without sequence parallelism": (
        "megatron",
        (*PLAIN[:-2], *SMALL[:4], "sp=false"),
    ),
}


def priced(trainer, limits, monkeypatch, model):
    """Every strategy that a question prices, as positions on the axes."""
    taken = []
    offer = Leaders.offer

    def noted(self, step, index, shapes, state, columns, fits, memory):
        group, column = np.nonzero(fits)
        taken.append(index[column] + state.offset[group, 0])
        offer(self, step, index, shapes, state, columns, fits, memory)

    monkeypatch.setattr(Leaders, "offer", noted)
    question = SearchQuestion(
        problems=(SearchCase(workload=Workload(model=model, training=TRAINING), cluster=CLUSTER),),
        nodes=(2,),
        framework=framework(trainer),
        constraints=tuple(parse_constraint(text) for text in limits),
        keep=10**6,
    )
    found = search(question)
    monkeypatch.undo()
    return found.axes, np.concatenate(taken)


def acts(axis, strategy, model):
    """Whether an axis has something to act on."""
    if axis.idle is None:
        return True
    s = strategy
    copies = s.data_ranks if model.experts is None else s.expert_data_ranks
    columns = {
        "tp": s.tp,
        "pp": s.pp,
        "ep": s.ep,
        "data_ranks": s.data_ranks,
        "expert_data_ranks": copies,
    }
    return not axis.idle({name: np.array([float(value)]) for name, value in columns.items()})[0]


def test_every_value_of_every_axis_reaches_a_strategy_that_is_priced(monkeypatch):
    missing = {(axis.name, value) for axis in AXES for value in values_of(axis)}
    for name, (trainer, limits) in QUESTIONS.items():
        model = DENSE if "dense" in name else MODEL
        axes, index = priced(trainer, limits, monkeypatch, model)
        strides = axes.strides
        for axis in AXES:
            positions = index // strides[axis.name] % len(axes[axis.name])
            for at, value in enumerate(axes[axis.name]):
                if (axis.name, value) in missing:
                    rows = index[positions == at]
                    some = rows[:: max(1, len(rows) // 50)]
                    found = (strategy_of(one, CLUSTER, 2) for one in axes.fields_of(some))
                    if any(acts(axis, strategy, model) for strategy in found):
                        missing.discard((axis.name, value))
    assert missing == set()


def test_micro_batches_are_powers_of_two_and_three_times_those_that_divide_the_batch():
    """63 sequences of a rank can be taken three at a time, and by no even number."""

    def tried_of(batch):
        workload = replace(ASKED.workload, training=replace(TRAINING, global_batch=batch))
        return known_axes(replace(ASKED, workload=workload))["mbs"]

    assert tried_of(8192) == (1, 2, 4, 8, 16, 32)
    assert tried_of(504) == (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
    assert tried_of(510) == (1, 2, 3, 4, 6, 8, 16, 32)


def test_axes_of_the_question_are_no_part_of_a_strategy():
    assert {name for axis in QUESTION for name in axis.fields}.isdisjoint(
        field.name for field in fields(Strategy)
    )


@pytest.mark.parametrize(
    "name", [name for name in frameworks() if framework(name).entry.get("expert_overlap") is False]
)
def test_a_trainer_without_overlap_of_experts_has_it_off_and_nothing_else(name):
    (axis,) = (axis for axis in AXES if axis.name == "expert_overlap")
    assert [value for value in axis.tried(ASKED) if axis.supported_by(framework(name), value)] == [
        False
    ]
