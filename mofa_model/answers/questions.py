"""The options of verbs: one class for each verb whose question is answered in this package.

An option is declared once, and `as_in` takes it into other questions. Its sentence stands in the
command's help, in the reference of Python and on the page; `training.py` and `job.py` turn
questions into what the model takes. Help and completion import this module, so it imports nothing
slow. A question that its verb alone reads stands beside the verb.
"""

from __future__ import annotations

import math
from dataclasses import MISSING
from typing import Final

from mofa_model.answers.options import (
    Names,
    Number,
    UserQuestion,
    Variations,
    argument,
    as_in,
    files,
    names,
    number,
    option,
    real,
    switch,
    text,
    variations,
    whole,
)

_JOB: Final = "job"
_MACHINES: Final = "machines"
_SOFTWARE: Final = "software"
_ANSWER: Final = "answer"
_FAILING: Final = "failures and checkpoints"
_FAILURES: Final = "failures"
_CHECKPOINTS: Final = "checkpoints; lists by commas, nearest tier first"
_RUNS: Final = "short runs"
_SIMULATION: Final = "simulation"
_POOL: Final = "several jobs in one pool"


class TrainingQuestion(UserQuestion):
    """A model, its training, the machines and the software."""

    model: str | None = option(
        text,
        "--model MODEL",
        "preset, a model hub's config.json, or its id there: ORG/NAME",
        group=_JOB,
        presets="models",
    )
    sequence_length: Number | None = option(
        number, "--seq S", "tokens in a sequence, for example 8192 or 8k"
    )
    global_batch_size: Number | None = option(
        number,
        "--batch-size --global-batch B",  # the first is what people call it elsewhere
        "sequences in an optimizer step, or '4M tokens'",
    )
    tokens: Number | None = option(
        number,
        "--tokens T",
        "tokens of the whole run, for example 15T (default: the objective is the step alone)",
    )
    precision: Names = option(
        names,
        "--precision P[,…]",
        "training recipe; of several the search chooses (default: bf16, or what the trainer has)",
        default=(),
        presets="precisions",
    )
    optimizer: str | None = option(
        text, "--optimizer O", "what updates the weights (default: adamw, or what the trainer has)"
    )
    adapter_rank: int = option(
        whole,
        "--lora RANK",
        "rank of adapters that are trained beside frozen weights; 0 trains all weights",
        default=0,
        bounds=(0, 1e6),
    )
    adapter_targets: Names = option(
        names,
        "--lora-targets NAME[,…]",
        "linear layers with adapters: attention, mlp, experts, all, or names as q,v,down",
        default=("attention",),
    )
    adapter_alpha: float | None = option(
        real, "--lora-alpha A", "scale of adapters, which costs nothing (default: twice the rank)"
    )
    adapter_dropout: float = option(
        real, "--lora-dropout P", "share of an adapter's inputs that is dropped", default=0.0
    )
    dora: bool = option(
        switch, "--dora", "adapters train directions and lengths apart (DoRA)", default=False
    )
    base: str | None = option(
        text,
        "--base FORMAT",
        "format of the frozen matrices (default: that of the precision's products)",
        presets="bases",
    )
    task: str = option(
        text,
        "--task",
        "what a sample teaches; a pair of dpo and reward is two sequences",
        default="sft",
        choices=("sft", "dpo", "reward", "distill"),
    )
    teacher: str | None = option(
        text, "--teacher MODEL", "model that is distilled", presets="models"
    )
    loss: str = option(
        text,
        "--loss",
        "how head and loss are computed: of all tokens at once, of chunks, or fused with the head",
        default="whole",
        choices=("whole", "chunked", "fused"),
    )
    gradient_release: bool = option(
        switch,
        "--gradient-release",
        "each gradient updates its weight in the backward pass and is gone",
        default=False,
    )
    documents: str | None = option(
        text,
        "--documents L[:SHARE],…",
        "lengths of the documents that are packed into a sequence, 512:3,8k, or a file of lengths"
        " or rows; after padded, each is a sequence, padded to the longest of its micro-batch",
    )
    imbalance: Number | None = option(
        number,
        "--imbalance MEAN[:SPREAD]",
        "load of the fullest rank of experts over the mean, and its standard deviation over"
        " layers and micro-batches: 1.4:0.3",
    )
    gpu: str | None = option(
        text,
        "--gpu GPU",
        "device, or a cloud's machine: h100-sxm, p5.48xlarge",
        group=_MACHINES,
        presets="devices",
    )
    device_file: str | None = option(
        text,
        "--device-file FILE",
        "data sheet of a device that is no preset, .toml or .yaml (docs/presets.md); in place of"
        " --gpu",
    )
    gpus: Number | None = option(
        number, "--gpus N", "devices, whole nodes or a part of one; or --nodes"
    )
    nodes: Number | None = option(number, "--nodes N", "nodes; or --gpus")
    gpus_per_node: int | None = option(
        whole,
        "--gpus-per-node N",
        "devices that share a host (default: as the device's system has)",
    )
    domain: int | None = option(
        whole,
        "--domain N",
        "devices that share a scale-up link (default: as the device's system has)",
    )
    scale_up: str | None = option(
        text,
        "--scale-up LINK",
        "fabric or bandwidth inside a node: nvlink4, '450 GB/s'",
        presets="fabrics",
    )
    scale_out: str | None = option(
        text,
        "--scale-out LINK",
        "fabric or bandwidth of one device between nodes: ndr, '400 Gbit/s'",
        presets="fabrics",
    )
    host_memory: str | None = option(
        text, "--host-memory SIZE", "main memory of a node, for example '2 TiB'"
    )
    oversubscription: float = option(
        real, "--oversubscription X", "how much thinner the spine is", default=1.0
    )
    headroom: Number = option(
        number, "--headroom PERCENT", "device memory to leave free, in percent", default="0"
    )
    framework: str | None = option(
        text,
        "--framework NAME",
        "trainer, which restricts what is searched (default: the best of all)",
        group=_SOFTWARE,
    )
    stack: str | None = option(
        text,
        "--stack NAME",
        "stack whose measured constants are used (default: the trainer's)",
        presets="stacks",
    )
    framework_version: str | None = option(
        text, "--release R", "release of the stack (default: the newest that is listed)"
    )
    roofline: str = option(
        text,
        "--roofline",
        "how compute is modelled",
        default="shaped",
        choices=("theoretical", "modified", "shaped"),
    )


LAYOUTS: Final = ("current", "planned", "failed")
"""Fields that give a layout which exists already: it runs, is written, or ran out of memory."""
OF_HOST: Final = ":host"
"""The ending of a failed layout that ran out of its node's main memory, not of a device's."""


class LayoutQuestion(TrainingQuestion):
    """The best layout of a training on machines that fail now and then."""

    max_nodes: Number | None = option(
        number,
        "--max-nodes N",
        "advise at most so many nodes, perhaps fewer; in place of --nodes and --gpus",
        group=_MACHINES,
    )
    objective: str | None = option(
        text,
        "--objective",
        "what is best (default: time, or what the manifest says)",
        choices=("time", "throughput", "cost"),
        group=_ANSWER,
    )
    risk: float = option(
        real, "--risk P", "chance of being out of memory that is taken, 0.1 or 10%", default=0.1
    )
    allow: str | None = option(
        text,
        "--allow",
        "choose also what no measured run of the stack has",
        choices=("experimental",),
    )
    by_estimate: bool = option(
        switch,
        "--by-estimate",
        "choose by the estimates alone, without measured runs: no odds, no simpler layout, nothing"
        " left out as unmeasured",
        default=False,
    )
    current: str | None = option(
        text,
        "--current LAYOUT",
        "today's layout, tp=8,pp=4,…, a trainer's flags or its file: priced beside the advice",
    )
    planned: str | None = option(
        text,
        "--planned LAYOUT",
        "the same of a layout that is written and did not run yet: it may not fit",
    )
    failed: str | None = option(
        text,
        "--failed LAYOUT[:host]",
        "the same of a layout that ran out of a device's memory, or of its node's: it is not chosen"
        " again",
    )
    constraints: Names = option(
        names, "--constraint AXIS=…", "fix, list or bound an axis: tp=1,2, pp<=8", default=()
    )
    lift: Names = option(names, "--lift RULE", "expert rule that is not applied", default=())
    failure_rate: float | None = option(
        real,
        "--failure-rate R",
        "failures per node-day (default: 0.005, the paper's)",
        bounds=(0, 1e4),  # more is a slip of the pen
        group=_FAILING,
    )
    hang: str | None = option(
        text,
        "--hang TIMEOUT[:SHARE]",
        "failures that end no process until this timeout, and their share of all, for example"
        " 15min:0.3; PAUSES:MEAN[:LAW[:CV]] after that are pauses of a day that look alike, as"
        " 24:5min (default: none; a share of 1)",
    )
    recovery: Names = option(
        names,
        "--recovery PLAN[,…]",
        "recovery plans to choose from, NAME[:KEY=VALUE…][+NAME]: restart, in-place, retry,"
        " stand-in, warm, cold, peer, replica, shrink; or any (docs/reliability.md)",
        default=(),
    )
    checkpoint_bandwidth: str | None = option(
        text, "--checkpoint-bandwidth BW", "what a node writes to storage (default: 2 GB/s)"
    )
    checkpoint_size: str | None = option(
        text,
        "--checkpoint-size SIZE",
        "size of a whole checkpoint (default: weights and optimizer states)",
    )
    sync: bool = option(
        switch, "--sync", "training waits for the write (default: only for the copy)", default=False
    )


class AdviceQuestion(LayoutQuestion):
    """Which strategy and which checkpoint interval are best."""

    file: str | None = argument(
        text,
        "FILE",
        "a job's manifest, in place of the flags, - is standard input; or a model's config.json",
        default=None,
        kw_only=False,
    )
    profile: Names = option(
        names,
        "--profile NAME|FILE",
        "ClusterProfile for FILE: a bundled one or a manifest",
        default=(),
    )
    top: int = option(
        whole, "--top K", "alternatives to find", default=5, bounds=(0, 100), group=_ANSWER
    )
    launch: str | None = option(
        text,
        "--launch TRAINER",
        "trainer whose arguments or files are printed: megatron, torchtitan, nemo, deepspeed,"
        " accelerate, trl, axolotl, llama-factory or torchtune",
    )
    probe: int = option(
        whole,
        "--probe N",
        "name the N runs of 10 to 20 steps that would make the choice surest; --save-dir writes"
        " their launches and runs.csv",
        default=0,
        bounds=(0, 10),
        group=_RUNS,
    )
    runs: str | None = option(
        text,
        "--runs FILE",
        "what such runs measured: runs.csv with step_seconds filled in (docs/search.md)",
    )


class PasteQuestion(LayoutQuestion):
    """What is best for what people have: scripts, files of settings, models, machines."""

    pasted: Names = argument(
        names,
        "FILE",
        "scripts, files of a trainer, a config.json, manifests, outputs of nvidia-smi or sinfo;"
        " - is standard input; or a model",
        default=(),
        kw_only=False,
    )
    top: int = as_in(AdviceQuestion, "top", group=_ANSWER)
    launch: str | None = as_in(
        AdviceQuestion,
        "launch",
        "trainer whose arguments or files are printed (default: the one that was read)",
    )


class ExplainQuestion(TrainingQuestion):
    """Where the time and the memory of one strategy go."""

    strategy: str | None = option(
        text,
        "--strategy TEXT",
        "the layout, tp=8,pp=4,…, or a trainer's flags; dp follows from the devices",
        group="",
    )
    evidence: bool = option(
        switch,
        "--evidence",
        "tell the measured runs that the prediction rests on, feature by feature, and no terms",
        default=False,
    )


class SweepQuestion(LayoutQuestion):
    """What if any field were different."""

    vary: Variations = option(
        variations,
        "--vary FIELD=VALUES",
        "fields and their values: gpus=64..512 mbs=1,2",
        default=(),
        group="",
    )
    strategy: str | None = as_in(
        ExplainQuestion,
        "strategy",
        "price this layout everywhere (default: search the best at each point)",
    )


class WhichQuestion(UserQuestion):
    """Which GPUs a fine-tune needs, how long it takes and what it costs."""

    model: str | None = as_in(TrainingQuestion, "model", group=_JOB)
    tokens: Number | None = as_in(
        TrainingQuestion, "tokens", "tokens of the data set, for example 15M; or --examples"
    )
    examples: Number | None = option(
        number, "--examples N", "examples of the data set, for example 52k; or --tokens"
    )
    length: Number = option(
        number, "--length L", "mean tokens of an example, with --examples", default="512"
    )
    epochs: float = option(
        real, "--epochs E", "how often the data set is seen", default=1.0, bounds=(1e-3, 1e6)
    )
    sequence_length: Number = as_in(
        TrainingQuestion, "sequence_length", "tokens of a packed sequence", default="2048"
    )
    global_batch_size: Number = as_in(
        TrainingQuestion, "global_batch_size", "sequences in an optimizer step", default="16"
    )
    method: Names = option(
        names,
        "--method M[,…]",
        "what is trained: lora, qlora or full; of several the best",
        default=("lora", "qlora", "full"),
    )
    adapter_rank: int = as_in(
        TrainingQuestion, "adapter_rank", "rank of adapters", default=16, bounds=(1, 1e6)
    )
    gpu: Names = option(
        names,
        "--gpu GPU[,…]",
        "devices and clouds' machines that there are (default: all that are known)",
        default=(),
        group=_MACHINES,
        presets="devices",
    )
    device_file: str | None = as_in(
        TrainingQuestion, "device_file", "data sheet of a device that is no preset, .toml or .yaml"
    )
    most_gpus: int = option(
        whole, "--max-gpus N", "most GPUs of one machine", default=8, bounds=(1, 16)
    )
    price: str | None = option(
        text, "--price PRICE", "what one GPU costs, for example '2.5 USD/h' (default: the cloud's)"
    )
    framework: str = as_in(
        TrainingQuestion, "framework", "trainer that is searched", default="trl", group=_SOFTWARE
    )
    by: str = option(
        text,
        "--by",
        "what is least",
        default="money",
        choices=("money", "time", "hardware"),
        group=_ANSWER,
    )
    top: int = as_in(AdviceQuestion, "top", "choices to show", default=8, bounds=(1, 100))


class ReliabilityQuestion(UserQuestion):
    """A job on nodes that fail, and how it saves."""

    nodes: float | None = option(real, "--nodes N", "nodes of the job", bounds=(1, 1e7), group=_JOB)
    step: str | None = option(text, "--step TIME", "step time without failures, for example '28 s'")
    layout: str | None = option(
        text,
        "--layout FILE",
        "what mofa advise -o json wrote, - is standard input: its nodes, step, saves, replicas,"
        " failures and recovery plan, where nothing else is said",
    )
    profile: str | None = option(
        text,
        "--profile NAME|FILE",
        "failures, recoveries, spares and storage of a ClusterProfile: a bundled one or a manifest",
        group=_FAILURES,
    )
    prometheus: str | None = option(
        text,
        "--prometheus URL",
        "a live server: the history of --profile's pool is what it counts now, and not what the"
        " profile's status says",
    )
    rate: float | None = option(
        real,
        "--rate R",
        "assumed failures per node-day (default: 0.005, the paper's)",
        bounds=(0, 1e4),  # more is a slip of the pen
    )
    ledger: str | None = option(
        text,
        "--ledger FILE",
        "failures and recovery times as a pool's FailureLedger counted them (kubectl get"
        " failureledger NAME -o yaml), as they count for the next 30 days; in place of --rate",
    )
    prior_weight: float | None = option(
        real,
        "--prior-weight W",
        "failures that the assumption is worth; inf = certain (default: 2)",
        bounds=(1e-6, math.inf),
    )
    failures: int | None = option(
        whole,
        "--failures K",
        "failures seen; with --node-days, in place of --rate",
        bounds=(0, 1e12),
    )
    node_days: float | None = option(
        real, "--node-days D", "node-days in which they were seen", bounds=(1e-6, 1e15)
    )
    classes: Names = option(
        names,
        "--class NAME:SHARE:MEAN[:LAW[:CV[:TIER]]]",
        "a recovery class, its share of failures, its recovery time (default: the paper's)",
        default=(),
    )
    mttr: str | None = option(
        text, "--mttr TIME", "one recovery time for all failures, in place of classes"
    )
    domains: Names = option(
        names,
        "--domain NAME:NODES:RATE:MEAN[:TIER]",
        "nodes that fail together; RATE per domain and day",
        default=(),
    )
    law: str = option(
        text,
        "--law LAW",
        "time between failures: exponential, weibull:SHAPE, mixture:SHARE:SHORT (short mean over"
        " mean)",
        default="exponential",
    )
    queue: str | None = option(
        text, "--queue MEAN[:LAW[:CV]]", "queue that recoveries of pods and jobs wait in"
    )
    hang: str | None = as_in(LayoutQuestion, "hang")
    recovery: Names = as_in(LayoutQuestion, "recovery")
    replicas: int = option(
        whole,
        "--replicas N",
        "whole copies of the state that the layout has, for --recovery",
        default=1,
        bounds=(1, 1e7),
    )
    idle_recovery: bool = option(
        switch, "--idle-recovery", "nothing fails while the job recovers", default=False
    )
    spares: int | None = option(
        whole,
        "--spares N",
        "spare nodes (default: a broken node is replaced at once)",
        bounds=(0, 1e7),
    )
    repair: str = option(
        text, "--repair TIME", "repair time of a node, with --spares", default="24 h"
    )
    save: str | None = option(
        text, "--save TIME[,…]", "blocking part of a save (default: 30 s)", group=_CHECKPOINTS
    )
    copy: str | None = option(
        text,
        "--copy TIME[,…]",
        "background copy until a save is durable, as many as in --save (default: 0 s)",
    )
    slowdown: float | None = option(
        real,
        "--slowdown X",
        "slowdown of steps while copying, 0.02 = 2 % (default: 0.88, as measured)",
        bounds=(0, 1e3),
    )
    storage: Names = option(
        names,
        "--storage NAME:NODE_BW[:TOTAL_BW[:SNAPSHOT_BW]]",
        "a tier by its bandwidths, in place of --save and --copy; with SNAPSHOT_BW its saves are"
        " asynchronous",
        default=(),
    )
    checkpoint_size: str | None = as_in(
        LayoutQuestion, "checkpoint_size", "size of a checkpoint, for --storage"
    )
    model: str | None = as_in(
        TrainingQuestion,
        "model",
        "preset or config.json whose size gives the checkpoint's, in place of --checkpoint-size",
    )
    precision: str = option(
        text, "--precision P", "training recipe of --model", default="bf16", presets="precisions"
    )
    shards: int | None = option(
        whole, "--shards N", "ranks that write distinct shards (default: all GPUs)", bounds=(1, 1e9)
    )
    gpus_per_node: int = as_in(
        TrainingQuestion, "gpus_per_node", "GPUs in a node", default=8, bounds=(1, 1e6)
    )


class EttrQuestion(ReliabilityQuestion):
    """How much of the wall time of a job becomes training."""

    interval: int | None = option(
        whole,
        "--interval K",
        "steps between saves (default: the best)",
        bounds=(1, 1e9),
        group=_ANSWER,
    )
    every: str | None = option(
        text, "--every 1,M,N", "saves of the nearest tier for one of each tier (default: the best)"
    )
    method: str = option(
        text, "--method", "the model that answers", default="exact", choices=("exact", "paper")
    )
    level: float = option(real, "--level P", "level of the band", default=0.9)
    curve: int = option(
        whole, "--curve N", "list N intervals around the best", default=0, bounds=(0, 10_000)
    )
    vary: str | None = option(
        text, "--vary FIELD=VALUES", "best interval at each value: rate=0.0025..0.04, save=2s,20s"
    )
    total_steps: float | None = option(
        real, "--total-steps S", "steps of the run: adds the time to finish", bounds=(1, 1e15)
    )
    deadline: str | None = option(
        text, "--deadline TIME", "time to finish in, with --total-steps: adds nodes and spares"
    )
    scaling: float = option(
        real, "--scaling X", "step time goes as nodes^-X", default=1.0, bounds=(0, 2)
    )
    window: str = option(
        text, "--window TIME", "length of the run whose scatter is told", default="7 d"
    )


class SimulateQuestion(ReliabilityQuestion):
    """What happens to runs of a job."""

    jobs: Names = option(
        names,
        "--job NAME:NODES:TRAINING[:PRIORITY[:ARRIVES]]",
        "a job of a pool of --nodes nodes, the training that it needs without any loss, who is"
        " served first, and when it comes, for example big:48:20d:2:1d",
        default=(),
        group=_POOL,
    )
    preempt: bool = option(
        switch, "--preempt", "jobs take nodes from those of lower priority", default=False
    )
    duration: str = option(
        text, "--duration TIME", "length of a run", default="7 d", group=_SIMULATION
    )
    runs: int = option(whole, "--runs N", "number of runs", default=400, bounds=(1, 100_000))
    seed: int = option(
        whole, "--seed N", "seed of the random numbers", default=1, bounds=(0, math.inf)
    )
    interval: int | None = as_in(EttrQuestion, "interval")
    every: str | None = as_in(EttrQuestion, "every")
    timeline: int = option(
        whole,
        "--timeline N",
        "show the first N stretches of one run",
        default=0,
        bounds=(0, 100_000),
    )


class RatesQuestion(UserQuestion):
    """Whether observed failures contradict the assumed rates, or what would have helped a pool."""

    failures: int | None = as_in(
        ReliabilityQuestion, "failures", "failures in all", group="observed"
    )
    count: str | None = option(
        text, "--count CLASS=K[,…]", "failures by class, in place of --failures"
    )
    node_days: float | None = as_in(
        ReliabilityQuestion,
        "node_days",
        "node-days in which the failures were counted",
        bounds=(0, 1e15),
    )
    possible_node_days: float | None = option(
        real,
        "--possible-node-days D",
        "node-days of the whole window; --node-days divided by them is the coverage",
        bounds=(0, 1e15),
    )
    events: str | None = option(text, "--events FILE", "failure events, CSV; - is standard input")
    exposure: str | None = option(text, "--exposure FILE", "node-days by node, CSV, with --events")
    prometheus: str | None = as_in(ReliabilityQuestion, "prometheus", "a live server")
    slurm: Names | None = option(
        files,
        "--slurm FILE",
        "a Slurm site: what scontrol show node, sacct and sacctmgr show event printed; without a"
        " file they are asked here",
    )
    profile: str | None = as_in(
        ReliabilityQuestion,
        "profile",
        "with --prometheus or --slurm: the pool to ask about, a bundled profile or a manifest",
    )
    assumed: float | None = option(
        real,
        "--assumed R",
        "failures per node-day (default: as --profile assumes, else 0.005)",
        bounds=(0, 1e4),  # more is a slip of the pen
        group="assumed",
    )
    shares: str | None = option(
        text,
        "--shares CLASS=P[,…]",
        "class shares (default: the paper's process=0.3,pod=0.6,job=0.1)",
    )
    prior_weight: float | None = as_in(
        ReliabilityQuestion,
        "prior_weight",
        "weight of the assumed rate, as a number of failures (default: as --profile says, else 0)",
        bounds=(0, 1e15),
    )
    level: float = as_in(EttrQuestion, "level", "level of intervals", group=_ANSWER)
    alarm: float = option(
        real,
        "--alarm P",
        "chance of a false verdict within a year of constant checking",
        default=0.05,
    )
    check: bool = option(
        switch, "--check", "exit 5 when an assumption is contradicted", default=False
    )
    what_would_help: str | None = option(
        text,
        "--what-would-help FILE",
        "in place of the rates: the past that mofa incidents --account -o json wrote, replayed"
        " through other time-outs, spares, intervals and ways to recover; - is standard input",
        group="what would help",
    )
    gpus_per_node: int = as_in(
        ReliabilityQuestion, "gpus_per_node", "GPUs of a node, for GPU-hours"
    )
    replicas: int = as_in(
        ReliabilityQuestion,
        "replicas",
        "replicas of a job that each hold all of its state",
        default=2,
    )
    recovery: Names = as_in(
        ReliabilityQuestion,
        "recovery",
        "recovery plans to replay, as mofa ettr --recovery takes them (default: watchdogs of 2"
        " to 30 min, in-place, peer, stand-in, replica, shrink)",
    )
    save: str | None = option(
        text,
        "--save TIME",
        "what a save stops training for (default: nothing is taken off for more saves)",
    )


class ProfileQuestion(UserQuestion):
    """Which ClusterProfile describes these machines."""

    from_cluster: bool = option(
        switch,
        "--from-cluster",
        "one profile for each kind of GPU node of the cluster (needs mofa-advisor[operator])",
        default=False,
    )
    slurm: Names | None = as_in(
        RatesQuestion,
        "slurm",
        "one profile for each kind of GPU node of a Slurm site, with the failures that were"
        " counted; of what scontrol show node, sacct and sacctmgr show event printed, or asked"
        " here",
    )
    measure: bool = option(
        switch,
        "--measure",
        "the GPUs and the main memory of this machine, by nvidia-smi and the kernel",
        default=False,
    )
    show: str | None = option(
        text, "--show NAME", "print a profile that comes with the package, and nothing else"
    )
    name: str | None = option(text, "--name NAME", "name of the profile (default: that of the GPU)")
    gpu: str | None = as_in(
        TrainingQuestion, "gpu", "GPU preset, or the node label nvidia.com/gpu.product"
    )
    gpus_per_node: int | None = as_in(
        TrainingQuestion, "gpus_per_node", "GPUs of a node (default: the preset's)"
    )
    nodes: int | None = option(
        whole,
        "--nodes N",
        "number of nodes, for use without a cluster; it is written to the status",
    )
    scale_up: str | None = as_in(
        TrainingQuestion,
        "scale_up",
        "fabric preset, or bandwidth of one device inside the scale-up domain",
    )
    scale_out: str | None = as_in(
        TrainingQuestion,
        "scale_out",
        "bandwidth of one device between nodes, for example '400 Gbit/s'",
    )
    domain: int | None = as_in(
        TrainingQuestion, "domain", "number of devices that the scale-up link joins"
    )
    host_memory: str | None = as_in(TrainingQuestion, "host_memory")
    storage: Names = option(
        names,
        "--storage TIER=NODE[:TOTAL[:SNAPSHOT]]",
        "a checkpoint tier (Local, Peer, Remote) by its bandwidths, nearest first",
        default=(),
    )
    classes: Names = option(
        names,
        "--class NAME=RATE:SECONDS",
        "process, pod or job: failures in a thousand node-days and mean recovery",
        default=(),
    )
    labels: Names = option(names, "--label KEY=VALUE", "node selector", default=())
    out: str | None = option(text, "--out FILE", "write here instead of standard output")


class CheckQuestion(UserQuestion):
    """What a reviewer of these launches has to know."""

    files: Names = argument(
        names, "FILE", "batch scripts, shell scripts, manifests", default=MISSING, kw_only=False
    )
    replaced: str | None = option(
        text, "--base REF", "what they replace: a commit or branch of git, or a file"
    )
    profile: str | None = as_in(
        ReliabilityQuestion, "profile", "the pool: its devices, failures and storage"
    )
    model: str | None = as_in(
        TrainingQuestion, "model", "the model, where a script does not say it"
    )
    gpu: str | None = as_in(TrainingQuestion, "gpu", "the device, likewise")
    gpus: int | None = as_in(TrainingQuestion, "gpus", "devices, likewise", reader=whole)
    sequence_length: int | None = as_in(
        TrainingQuestion, "sequence_length", "tokens of a sequence, likewise", reader=whole
    )
    global_batch_size: int | None = as_in(
        TrainingQuestion, "global_batch_size", "sequences of a step, likewise", reader=whole
    )
    slower: float = option(
        real,
        "--slower P",
        "share by which a step may be slower than before",
        default=0.05,
        bounds=(0, 10),
    )
    lost: float = option(
        real,
        "--lost P",
        "share of the time that a checkpoint interval may cost",
        default=0.02,  # ours: below it a forecast is not sure which interval is better
        bounds=(0, 10),
    )
    sarif: str | None = option(text, "--sarif FILE", "also write the findings as SARIF 2.1.0")
    annotate: bool = option(
        switch, "--annotate", "print workflow commands of GitHub Actions", default=False
    )
