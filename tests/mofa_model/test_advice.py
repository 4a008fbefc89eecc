"""The answer: whole, ordered, explained, deterministic, and honest where there is none."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import fields, replace

import numpy as np
import pytest
from shapes import decoder

from mofa_model import units
from mofa_model.advice import Request, Status, advise, assumed_reliability
from mofa_model.advice.predictions import job_of, least_score, priced, score_of, steps_to_finish
from mofa_model.advice.reasons import gained, why_not
from mofa_model.blocks import Experts, SoftmaxAttention
from mofa_model.cli import main
from mofa_model.errors import BadValue
from mofa_model.estimate import estimate
from mofa_model.estimate.model_states import checkpoint_replicas, checkpoint_size
from mofa_model.launch import read
from mofa_model.presets import cluster, model, precision
from mofa_model.reliability.model import ettr
from mofa_model.search import SearchCase
from mofa_model.spec import Cluster, Device, Link, Training, Workload
from mofa_model.spec.reliability import CheckpointTier
from mofa_model.strategy import Sharding, Strategy, parse_strategy, short_strategy


def request(
    name="llama3-8b",
    nodes=8,
    batch=256,
    sequence=8192,
    tokens=1e12,
    stack="megatron-core",
    **changes,
):
    training = Training(
        sequence=sequence, global_batch=batch, precision=precision("bf16"), tokens=tokens
    )
    machines = cluster("h100", nodes * 8, stack=stack)
    given = {
        "problems": (
            SearchCase(workload=Workload(model=model(name), training=training), cluster=machines),
        ),
        "reliability": assumed_reliability(machines.gpus_per_node * machines.host.link.bandwidth),
        "nodes": nodes,
        "framework": "megatron",
    }
    return Request(**given | changes)


@pytest.fixture(scope="module")
def answer():
    return advise(request(current=parse_strategy("tp=4,pp=2", gpus=64)))


def test_every_combination_is_accounted_for(answer):
    rejected = sum(answer.rejected.values())
    assert answer.raw == answer.searched + answer.pruned + rejected
    assert answer.status is Status.RECOMMENDED


def crowded(trainer, *constraints, memory=2.3e9, **changes):
    """A small mixture whose experts fit in chunks alone; of so few words that its loss takes less
    than a layer.
    """
    experts = Experts(count=4, top_k=2, width=2048, imbalance=1.5, imbalance_spread=0.1)
    attention = SoftmaxAttention(heads=16, kv_heads=4, head_dim=128)
    mixture = decoder(
        "mixture", layers=4, hidden=2048, attention=attention, ffn=8192, vocabulary=8000, experts=experts, dense_layers=1
    )  # fmt: skip
    device = Device(name="test", peak_bf16=400e12, memory=memory, memory_bandwidth=2e12)
    machines = Cluster(
        device=device, gpus=16, scale_up=Link(bandwidth=300e9), scale_out=Link(bandwidth=25e9)
    )
    training = Training(sequence=4096, global_batch=16, precision=precision("bf16"), tokens=1e9)
    case = SearchCase(workload=Workload(model=mixture, training=training), cluster=machines)
    limits = ("cp=1", "tp=1", "pp=1", "optimizer=device", *constraints)
    return advise(
        request(problems=(case,), nodes=2, framework=trainer, constraints=limits, **changes)
    )


def test_what_fits_in_chunks_alone_is_said_to_whom_no_trainer_offers_them():
    nothing = crowded("megatron")
    assert nothing.status is Status.NO_RECOMMENDATION
    assert re.search(
        r"; experts in 2 chunks would fit, as tp=1,.*; no trainer offers chunks=2$",
        nothing.explanation,
    )
    assert "chunks" not in crowded("megatron", memory=1.6e9).explanation.split("nothing fits")[0]
    assert crowded("any").explanation.endswith("; no trainer offers chunks=2")
    for built in (crowded("any", lifted=("NotMeasured",)), crowded("any", "chunks=2,4,8")):
        assert built.trainer == ""
        assert built.strategy.chunks == 2
        built_first = r"; no trainer offers [^;]*chunks=2[^;]*, so it has to be built"
        assert re.search(built_first, built.explanation)
        assert "; by its routing a run is out of memory with a probability of " in built.explanation


def test_bounds_hold_their_targets(answer):
    for item in fields(answer.predicted):
        band = getattr(answer.predicted, item.name)
        assert 0 <= band.lower <= band.target <= band.upper


def test_predictions_agree_with_each_other(answer):
    p = answer.predicted
    tokens = 256 * 8192
    assert p.tokens_per_second.target == pytest.approx(tokens / p.step_seconds.target)
    steps = -(-1e12 // tokens)
    assert p.duration_seconds.target == pytest.approx(steps * p.step_seconds.target / p.ettr.target)
    assert (
        answer.checkpoint_interval_seconds
        == answer.checkpoint_interval_steps * p.step_seconds.target
    )
    assert p.memory_bytes.target <= answer.memory_limit_bytes


def test_alternatives_are_named_and_differ_in_kind_with_terms_that_add_up(answer):
    assert 1 < len(answer.alternatives) <= 5
    names = [one.name for one in answer.alternatives]
    kinds = [name for name in names if name.startswith(("with ", "without "))]
    assert names == [name for name in ("most likely best", "worth a try") if name in names] + kinds
    for other in answer.alternatives:
        assert 0 < other.odds.fits < 1
        assert 0 < other.odds.beats < 1
        more = other.predicted.step_seconds.target - answer.predicted.step_seconds.target
        assert sum(other.terms.values()) == pytest.approx(more, abs=1e-9)
        assert "step" in other.reason
    assert len({short_strategy(one.strategy) for one in (answer, *answer.alternatives)}) == 1 + len(
        names
    )


def test_todays_layout_is_priced_beside(answer):
    today = answer.current
    assert today.predicted.step_seconds.target > answer.predicted.step_seconds.target
    ratio = (today.predicted.step_seconds.target / today.predicted.ettr.target) / (
        answer.predicted.step_seconds.target / answer.predicted.ettr.target
    )
    assert today.gain == pytest.approx(ratio - 1)


@pytest.mark.parametrize("nodes", [64, pytest.param(512, marks=pytest.mark.soak)])
def test_under_cost_the_reason_is_gpu_hours_with_the_sign_of_each_term(nodes):
    """The question at which failures were blamed: 70B at most on 512 nodes, where the cheapest is
    32 GPUs.
    """
    given = request(
        "llama3-70b", nodes, 512, tokens=2e12, stack="default", framework="any", fewer_nodes=True
    )
    today = parse_strategy("tp=8,pp=4,sp=true", gpus=8 * nodes)
    answer = advise(replace(given, objective="cost", current=today))

    def hours(one, gpus):
        return gpus * one.predicted.step_seconds.target / one.predicted.ettr.target

    others = [
        one
        for one in answer.alternatives
        if one.strategy.gpus != answer.gpus and "no measured run" not in one.reason
    ]
    for one in others:
        more = hours(one, one.strategy.gpus) / hours(answer, answer.gpus) - 1
        assert more > 0
        pace = (
            "slower"
            if one.predicted.step_seconds.target > answer.predicted.step_seconds.target
            else "faster"
        )
        start = f"{pace} a step on {one.strategy.gpus} GPUs in place of {answer.gpus}, +{100 * more:.2g} % GPU-hours: "
        assert start in one.reason
        told = [
            float(text.replace("−", "-"))
            for text in re.findall(r" ([+−][\d.]+) %(?:,|$)", one.reason)
        ]
        assert sum(told) == pytest.approx(100 * more, abs=0.9 * 100 * more)
    less = 1 - hours(answer, answer.gpus) / hours(answer.current, 8 * nodes)
    assert gained(answer).startswith(f"{100 * less:.3g} % fewer GPU-hours for the same work, in ")


def test_what_the_advice_gains_is_a_speed_up_and_a_share_of_the_time_that_it_saves(answer):
    ratio = 1 + answer.current.gain
    assert (
        gained(answer)
        == f"{ratio:.3g} times as fast: {100 * (1 - 1 / ratio):.3g} % less time for the same work"
    )
    worse = replace(answer, current=replace(answer.current, gain=-0.2))
    assert gained(worse) == "slower: 25 % more time for the same work"
    assert gained(replace(answer, predicted=None)) == ""


def test_failures_and_checkpoints_are_blamed_exactly_where_they_decide():
    problem = request().problems[0]
    fast, slow = (
        priced(problem, parse_strategy(text, gpus=64)) for text in ("tp=2,sp=true", "tp=4,pp=2")
    )
    lost = fast.step_time * (1 / 0.5 - 1) - slow.step_time * (1 / 0.99 - 1)
    told = why_not("time", fast, 0.5, slow, 0.99)
    assert re.fullmatch(
        r"[\d.]+ m?s faster a step \(.*−.*\), but failures and checkpoints \+[\d.]+ s", told
    )
    assert told.endswith(f"+{units.format(lost, 's', 3)}")
    assert "failures" not in why_not("time", slow, 0.99, fast, 0.99)
    assert "failures and checkpoints +" in why_not("time", slow, 0.6, fast, 0.99)
    assert "failures" not in why_not("throughput", slow, 0.6, fast, 0.99)
    assert (
        why_not("time", fast, 0.99, fast, 0.99) == "as fast a step, with more features switched on"
    )
    assert why_not("time", fast, 0.9, fast, 0.99).startswith(
        "as fast a step, but failures and checkpoints +"
    )


def test_the_answer_is_not_worse_than_todays_layout_where_that_is_in_the_space():
    given = request(current=parse_strategy("tp=2,pp=2,sp=true,tp-overlap=true", gpus=64))
    assert advise(given).current.gain > -1e-9


def test_the_same_question_has_the_same_answer(answer):
    assert advise(request(current=parse_strategy("tp=4,pp=2", gpus=64))) == answer


def test_bands_widen_where_nobody_measured_and_confidence_falls_where_an_input_is_in_doubt():
    """Bands are made to hold four runs of five wherever they are: what is less known has a
    wider one.
    """
    known, unknown = (
        advise(request(framework="any", stack=stack, constraints=("pp=1", "cp=1")))
        for stack in ("nemo", "default")
    )
    assert known.confidence == unknown.confidence == 0.8
    assert known.basis.within < unknown.basis.within
    assert any("calibrat" in text for text in unknown.caveats)
    doubted = advise(
        request(caveats=("fewer nodes are ready than are asked for",), constraints=("pp=1",))
    )
    assert doubted.status is Status.LOW_CONFIDENCE
    assert doubted.strategy is not None
    assert doubted.confidence <= 0.4


def test_how_the_question_was_read_is_said_and_no_doubt():
    plain, told = (
        advise(request(constraints=("pp=1", "cp=1"), notes=notes))
        for notes in ((), ("fp8 is read so",))
    )
    assert (told.confidence, told.status, told.strategy) == (
        plain.confidence,
        plain.status,
        plain.strategy,
    )
    assert told.caveats == ("fp8 is read so", *plain.caveats)
    assert told.explanation.replace("; fp8 is read so", "") == plain.explanation
    assert told.explanation != plain.explanation


def test_what_running_jobs_taught_lengthens_every_step_and_is_said(answer):
    slow = advise(request(learned=1.25, current=parse_strategy("tp=4,pp=2", gpus=64)))
    assert slow.predicted.step_seconds.target == pytest.approx(
        1.25 * answer.predicted.step_seconds.target
    )
    assert slow.predicted.tokens_per_second.target == pytest.approx(
        0.8 * answer.predicted.tokens_per_second.target
    )
    assert "taught a factor of 1.25" in slow.explanation
    assert "taught" not in answer.explanation
    assert slow.current.gain == pytest.approx(answer.current.gain, abs=0.01)
    asked = request(learned=1.25)
    saved = checkpoint_size(asked.problems[0].workload, Strategy())
    score = score_of(asked, asked.problems[0], 8)
    least = least_score(asked, asked.problems[0], 8, saved)
    steps = np.geomspace(0.1, 100, 50)
    assert np.all(score(steps, np.full(50, saved), np.ones(50)) >= least * steps * (1 - 1e-12))


def test_no_answer_names_the_binding_reason():
    lean = advise(request("llama3.1-405b", nodes=1))
    assert lean.status is Status.NO_RECOMMENDATION
    assert lean.strategy is None
    assert lean.predicted is None
    assert "GiB" in lean.explanation
    odd = advise(request(batch=7, constraints=("dp=8..64",)))
    assert odd.status is Status.NO_RECOMMENDATION
    assert "batch" in odd.explanation


def test_fewer_nodes_give_a_front_of_time_against_gpus():
    found = advise(request(nodes=8, fewer_nodes=True, constraints=("pp=1", "cp=1")))
    nodes = [one.nodes for one in found.frontier]
    paces = [
        one.predicted.step_seconds.target / one.predicted.ettr.target for one in found.frontier
    ]
    assert nodes == sorted(nodes)
    assert paces == sorted(paces, reverse=True)
    cheap = advise(
        request(nodes=8, fewer_nodes=True, objective="cost", constraints=("pp=1", "cp=1"))
    )
    assert cheap.nodes <= found.nodes


def test_the_score_is_the_time_to_finish_and_its_bound_holds():
    given = request(nodes=256)
    problem = given.problems[0]
    strategy = Strategy(tp=4, pp=4, dp=128, sharding=Sharding.NONE)
    saved = checkpoint_size(problem.workload, strategy)
    score = score_of(given, problem, 256)
    least = least_score(given, problem, 256, saved)
    import numpy as np

    for step in (0.5, 5.0, 50.0):
        replicas = np.array([float(checkpoint_replicas(problem.workload, strategy))])
        found = float(score(np.array([step]), np.array([saved]), replicas)[0])
        assert found >= step * least
        job = job_of(given, problem, 256, strategy, step)
        exact = min(steps_to_finish(problem) * step / float(ettr(job, k)) for k in range(1, 4000))
        assert found == pytest.approx(exact, rel=1e-6)


def test_replicated_states_are_written_by_one_rank_of_each_shard():
    workload = request().problems[0].workload
    assert checkpoint_replicas(workload, Strategy(tp=2, dp=32, sharding=Sharding.NONE)) == 32
    assert checkpoint_replicas(workload, Strategy(tp=2, dp=32, shard=8)) == 4
    assert checkpoint_replicas(workload, Strategy(tp=2, dp=32)) == 1


def test_an_interval_stays_inside_its_bounds():
    slow = CheckpointTier(name="slow", node_bandwidth=1e8, asynchronous=False)
    given = request()
    given = replace(
        given, reliability=replace(given.reliability, tiers=(slow,)), constraints=("pp=1", "cp=1")
    )
    free = advise(given)
    assert free.checkpoint_interval_seconds > 600
    short = advise(replace(given, most_interval=600.0))
    assert short.checkpoint_interval_seconds <= 600
    long = advise(replace(given, least_interval=1e5))
    assert long.checkpoint_interval_seconds >= 1e5


def test_a_replay_keeps_every_other_term_and_never_beats_the_slowest_stage():
    problem = request().problems[0]
    strategy = Strategy(tp=2, pp=4, dp=8, sequence_parallel=True)
    full = priced(problem, strategy)
    closed = estimate(problem.workload, problem.cluster, strategy)
    assert full.replayed
    assert full.step_terms.terms()["data"] == float(closed.step_terms.data)
    assert full.step_time >= float(closed.step_terms.stages)
    assert full.step_time == pytest.approx(float(closed.step_time), rel=0.05)


@pytest.mark.parametrize(
    "change, field",
    [
        ({"objective": "speed"}, "objective"),
        ({"lifted": ("OutOfMemory",)}, "lift"),
        ({"least_interval": -1.0}, "least_interval"),
        ({"top": -1}, "top"),
    ],
)
def test_a_request_that_cannot_be_is_refused_by_name(change, field):
    with pytest.raises(BadValue, match=field):
        request(**change)


FLAGS = [
    "--model",
    "llama3-8b",
    "--gpu",
    "h100",
    "--gpus",
    "64",
    "--global-batch",
    "256",
    "--seq",
    "8192",
    "--framework",
    "megatron",
]


def test_the_command_prints_the_answer_in_every_form(capsys, asked_once):
    few = ["--constraint", "pp=1", "--constraint", "cp=1"]
    for form in ("table", "wide", "json", "yaml", "csv", "markdown", "html"):
        assert main(["advise", *FLAGS, *few, "-o", form]) == 0
        assert "llama3-8b" in capsys.readouterr().out or form == "csv"
    assert (
        main(["advise", *FLAGS, *few, "--json", "--launch", "megatron", "--current", "tp=2"]) == 0
    )
    told = json.loads(capsys.readouterr().out)
    assert (
        told["counts"]["raw"]
        == told["counts"]["searched"] + told["counts"]["pruned"] + told["counts"]["rejected"]
    )
    assert "--tensor-model-parallel-size" in told["launch"]["arguments"]
    assert told["current"]["gain"] > -1
    assert parse_strategy(told["strategy"]).gpus == 64


def test_todays_layout_beside_a_manifest_is_read_and_one_that_does_not_fit_is_an_error(
    capsys, tmp_path
):
    """What a manifest says of it is old, and costs the comparison; what is typed now is
    an error.
    """
    file = tmp_path / "job.yaml"
    spec = {
        "model": {"preset": "llama3.1-8b"},
        "training": {"sequenceLength": 4096, "globalBatchSize": 64, "tokens": "1T"},
        "cluster": {"profile": "h100-east", "nodes": 2},
        "constraints": {"pp": {"values": [1]}, "cp": {"values": [1]}, "tp": {"values": [8]}},
        "current": {"strategy": "tp=8,pp=3"},
    }
    job = {
        "apiVersion": "mofa.dev/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": "a"},
        "spec": spec,
    }
    file.write_text(json.dumps(job))
    assert main(["advise", str(file), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["strategy"].startswith("tp=8,")
    assert told["current"]["strategy"] == "tp=8,pp=3"
    assert told["current"]["predicted"] is None
    assert told["current"]["reason"] == "tp x pp x cp = 24: it must divide the 16 devices"
    assert main(["advise", str(file), "--json", "--current", "tp=8"]) == 0
    assert json.loads(capsys.readouterr().out)["current"]["predicted"]["step_seconds"]
    assert main(["advise", str(file), "--json", "--planned", "tp=8"]) == 0
    planned = json.loads(capsys.readouterr().out)["current"]
    assert (planned["planned"], 0 < planned["odds"]["fits"] < 1) == (True, True)
    for given in ("tp=8,pp=3", "--tensor-model-parallel-size 8 --pipeline-model-parallel-size 3"):
        assert main(["advise", str(file), "--current", given]) == 2
        assert capsys.readouterr().err.startswith(
            "mofa advise: --current: 'tp x pp x cp = 24' cannot be right"
        )


BARE = FLAGS[: FLAGS.index("--framework")]


@pytest.mark.parametrize("trainer", ["megatron", "nemo", "torchtitan", "deepspeed"])
def test_a_launch_implies_its_trainer(trainer, capsys):
    """Everything that some trainer runs was searched before: DualPipe won, and no trainer could
    be told.
    """
    few = ["--model", "mixtral-8x7b", "--constraint", "cp=1", "--constraint", "mbs=1"]
    assert main(["advise", *BARE, *few, "--launch", trainer, "--json", "--top", "0"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["launch"]["trainer"] == trainer
    back = read(told["launch"]["arguments"], told["launch"]["files"].get).strategy(64, layers=32)
    assert (back.tp, back.pp, back.sharding) == (
        parse_strategy(told["strategy"]).tp,
        parse_strategy(told["strategy"]).pp,
        parse_strategy(told["strategy"]).sharding,
    )


def test_a_launch_of_one_family_goes_with_either_name(capsys):
    few = [
        "--constraint",
        "pp=1",
        "--constraint",
        "cp=1",
        "--constraint",
        "sharding=distributed",
        "--top",
        "0",
    ]
    for framework, trainer in (
        ("megatron-core", "nemo"),
        ("nemo", "megatron"),
        ("Megatron-LM", "megatron"),
    ):
        assert (
            main(["advise", *BARE, *few, "--framework", framework, "--launch", trainer, "--json"])
            == 0
        )
        assert json.loads(capsys.readouterr().out)["launch"]["trainer"] == trainer


def test_flags_alone_are_one_line_for_a_shell(capsys):
    few = ["--constraint", "pp=2", "--constraint", "tp=2", "--constraint", "cp=1", "--top", "0"]
    assert main(["advise", *FLAGS, *few, "--launch", "megatron", "--json"]) == 0
    launch = json.loads(capsys.readouterr().out)["launch"]
    assert main(["advise", *FLAGS, *few, "--flags-only"]) == 0
    printed = capsys.readouterr()
    assert printed.out.count("\n") == 1
    assert shlex.split(printed.out) == launch["arguments"]
    assert printed.err.count("\n") == 1
    assert all(f"{name}={value}" in printed.err for name, value in launch["environment"].items())


def test_a_launch_that_cannot_be_written_costs_no_answer(capsys):
    words = ["--framework", "deepspeed", "--launch", "deepspeed", "--precision", "fp8-current"]
    few = ["--constraint", "mbs=1", "--constraint", "cp=1"]
    assert main(["advise", *BARE, *few, *words]) == 2
    printed = capsys.readouterr()
    said = " ".join(printed.out.split())
    assert "verdict try this before you rely on it" in said
    assert "why evidence: none of deepspeed or its relatives" in said
    assert "evidence weak: none of deepspeed" in said
    assert printed.err.count("\n") == 1
    assert "deepspeed has no argument for it; choose another precision" in printed.err
    assert main(["advise", *BARE, *few, *words, "--json"]) == 2
    told = json.loads(capsys.readouterr().out)
    assert told["strategy"]
    assert "launch" not in told
    assert "strategy.precision" in told["launch_refused"]


def test_kimi_k2_on_eight_stages_of_four_is_launched(capsys):
    """61 layers, embedding and head are 63 places for 32 chunks: the last holds the loss alone."""
    words = [
        "--model",
        "kimi-k2",
        "--gpus",
        "512",
        "--global-batch",
        "8192",
        "--seq",
        "4096",
        "--top",
        "0",
    ]
    few = ["--constraint", "pp=8", "--constraint", "vpp=4", "--constraint", "cp=1"]
    assert main(["advise", *FLAGS, *words, *few, "--launch", "megatron", "--json"]) == 0
    arguments = json.loads(capsys.readouterr().out)["launch"]["arguments"]
    layout = arguments[arguments.index("--pipeline-model-parallel-layout") + 1]
    assert layout == "Et*1|" + "t*2|" * 30 + "L"


def test_activations_are_offloaded_only_where_somebody_asks(capsys):
    few = [
        "--constraint",
        "pp=1",
        "--constraint",
        "cp=1",
        "--constraint",
        "mbs=2",
        "--top",
        "9",
        "--json",
    ]

    def told(*words):
        assert main(["advise", *FLAGS, *few, *words]) == 0
        return json.loads(capsys.readouterr().out)

    plain = told()
    every = [plain["strategy"], *(one["strategy"] for one in plain["alternatives"])]
    assert all("offload=none" in strategy for strategy in every)
    assert plain["rejected"]["OffloadUnproven"] > 0
    lifted = told("--lift", "OffloadUnproven", "--allow", "experimental")
    assert "OffloadUnproven" not in lifted["rejected"]
    assert lifted["counts"]["searched"] > plain["counts"]["searched"]
    inputs = "offload=attn_norm+attn_proj+core_attn+mlp_norm+qkv_linear"
    for asked in ("offload=activations", inputs):
        assert f",{inputs}," in told("--constraint", asked)["strategy"]
    assert ",offload=core_attn," in told("--constraint", "offload=core_attn")["strategy"]


@pytest.mark.parametrize(
    "words, code, text",
    [
        (["--launch", "megatron", "--framework", "torchtitan"], 2, "--launch torchtitan"),
        (["--launch", "nemo", "--framework", "nanotron"], 2, "nanotron"),
        (["--gpus", "12"], 2, "--gpus"),
        (["--model", "llama9"], 2, "--model"),
        (["--constraint", "tp=0"], 2, "constraint.tp"),
        (["--lift", "Gravity"], 2, "lift"),
        (["--precision", "fp4"], 2, "precision"),
        (["--top", "-1"], 2, "--top"),
        (["--seq", "many"], 2, "--seq"),
        (["--nodes", "8"], 2, "--gpus"),
        (["--flags-only", "--json"], 2, "--flags-only"),
        (["--flags-only", "--framework", "any"], 2, "say for which trainer: --launch"),
        (["--launch", "slurm", "--constraint", "pp=1"], 2, "slurm"),
        (["--model", "llama3.1-405b", "--gpus", "8"], 3, "GiB"),
        (
            ["--constraint", "sharding=replicated", "--framework", "torchtitan"],
            2,
            "torchtitan has no argument for it",
        ),
    ],
)
def test_what_cannot_be_is_one_line_and_an_exit_code(words, code, text, capsys):
    assert main(["advise", *FLAGS, *words]) == code
    error = capsys.readouterr().err
    assert text in error
    assert error.count("\n") == 1
