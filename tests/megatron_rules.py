"""What megatron-core 0.19 asserts before it trains, in our own words, for launches as they are
printed. No test by itself.

Read in the wheel megatron-core 0.19.2; each rule names the file and the function below megatron/.
The rules look at words and variables alone: they know nothing of strategies, and share no code with
what writes them.
"""

import re
from dataclasses import dataclass

MULTIPLE = {"recompute-modules", "offload-modules", "cuda-graph-modules", "cp-comm-type"}
"""Flags with more than one value."""

ARGUMENTS = "training/arguments.py:validate_args"
CONFIG = "core/transformer/transformer_config.py:TransformerConfig.__post_init__"
GROUPS = "core/parallel_state.py:initialize_model_parallel"
LAYOUT = "core/transformer/pipeline_parallel_layer_layout.py:validate_layer_layout"
FSDP = "core/distributed/fsdp/mcore_fsdp_adapter.py:FullyShardedDataParallel.__init__"
SCHEDULE = "core/pipeline_parallel/schedules.py:forward_backward_pipelining_with_interleaving"

RULES = []
"""Every rule: where it was read, and what it asks."""


@dataclass(frozen=True)
class Started:
    """A launch as Megatron meets it, with what the model brings."""

    flags: dict
    variables: dict
    gpus: int
    layers: int
    experts: int
    predictions: int
    latent: bool

    def has(self, name):
        return name in self.flags

    def number(self, name, default=1):
        return int(self.flags[name][0]) if name in self.flags else default

    def word(self, name, default=None):
        return self.flags[name][0] if name in self.flags else default

    def words(self, name):
        return set(self.flags.get(name, ()))

    @property
    def tp(self):
        return self.number("tensor-model-parallel-size")

    @property
    def pp(self):
        return self.number("pipeline-model-parallel-size")

    @property
    def cp(self):
        return self.number("context-parallel-size")

    @property
    def ep(self):
        return self.number("expert-model-parallel-size")

    @property
    def etp(self):
        return self.number("expert-tensor-parallel-size", self.tp)

    @property
    def dp(self):
        return self.gpus // (self.tp * self.pp * self.cp)

    @property
    def stages(self):
        """The layout's stages, each a string of E, t, m and L; None where layers are dealt by
        a rule.
        """
        text = self.word("pipeline-model-parallel-layout")
        if text is None:
            return None
        return re.sub(r"([tm])\*(\d+)", lambda m: m.group(1) * int(m.group(2)), text).split("|")

    @property
    def virtual(self):
        """Virtual stages of a rank, 1 where the schedule is not interleaved."""
        if self.stages is not None:
            return len(self.stages) // self.pp
        return self.number("num-virtual-stages-per-pipeline-rank")

    @property
    def full(self):
        return self.word("recompute-granularity") == "full"

    @property
    def again(self):
        return (
            self.words("recompute-modules")
            if self.word("recompute-granularity") == "selective"
            else set()
        )


def started(arguments, variables, **model):
    """Words of a command line, each flag with its values."""
    flags, name = {}, None
    for word in arguments:
        if word.startswith("--"):
            name = word[2:]
            assert name not in flags, f"--{name} is given twice"
            flags[name] = []
        else:
            flags[name].append(word)
    assert all(len(values) <= 1 for name, values in flags.items() if name not in MULTIPLE)
    return Started(flags=flags, variables=variables, **model)


def rule(where):
    def added(check):
        RULES.append((where, check))
        return check

    return added


@rule(ARGUMENTS)
def the_world_holds_whole_replicas(s):
    return s.gpus % (s.tp * s.pp * s.cp) == 0


@rule(ARGUMENTS)
def the_batch_holds_whole_rounds(s):
    return s.number("global-batch-size") % (s.number("micro-batch-size") * s.dp) == 0


@rule(GROUPS)
def experts_tile_the_ranks_of_a_stage(s):
    return s.gpus % (s.pp * s.ep * s.etp) == 0


@rule(GROUPS)
def instances_divide_data_parallel_ranks(s):
    return s.dp * s.cp % s.number("num-distributed-optimizer-instances") == 0


@rule(GROUPS)
def instances_divide_the_data_parallel_ranks_of_experts(s):
    return s.gpus // (s.pp * s.ep * s.etp) % s.number("num-distributed-optimizer-instances") == 0


@rule("core/distributed/distributed_data_parallel.py:DistributedDataParallel.__init__")
def instances_need_the_distributed_optimizer(s):
    return s.number("num-distributed-optimizer-instances") == 1 or s.has(
        "use-distributed-optimizer"
    )


@rule(ARGUMENTS)
def experts_divide_over_their_ranks(s):
    return s.ep == 1 or (s.experts > 0 and s.experts % s.ep == 0)


@rule(ARGUMENTS)
def one_way_to_virtual_stages(s):
    ways = ("num-layers-per-virtual-pipeline-stage", "num-virtual-stages-per-pipeline-rank")
    return sum(s.has(name) for name in (*ways, "pipeline-model-parallel-layout")) <= 1


@rule(CONFIG)
def layers_divide_over_stages(s):
    if s.stages is not None:
        return not s.has("account-for-embedding-in-pipeline-split")
    outer = ("account-for-embedding-in-pipeline-split", "account-for-loss-in-pipeline-split")
    return (s.layers + sum(s.has(name) for name in outer)) % (s.pp * s.virtual) == 0


@rule(LAYOUT)
def a_layout_holds_every_layer_once(s):
    if s.stages is None:
        return True
    every = "".join(s.stages)
    counts = (every.count("t"), every.count("m"), every.count("E"), every.count("L"))
    ends = every[0] == "E" and every[-1] == "L"
    return len(s.stages) % s.pp == 0 and ends and counts == (s.layers, s.predictions, 1, 1)


@rule(LAYOUT)
def prediction_modules_lie_together_after_the_layers(s):
    if s.stages is None or not s.predictions:
        return True
    holding = [at for at, stage in enumerate(s.stages) if "m" in stage]
    return (
        len(holding) == 1
        and holding[0] >= len(s.stages) - s.pp
        and "t" not in "".join(s.stages).partition("m")[2]
    )


@rule(ARGUMENTS)
def interleaving_needs_a_pipeline_and_its_hops(s):
    return s.virtual == 1 or s.pp > (2 if s.has("no-overlap-p2p-communication") else 1)


@rule(SCHEDULE)
def interleaving_takes_whole_groups_of_micro_batches(s):
    rounds = s.number("global-batch-size") // (s.number("micro-batch-size") * s.dp)
    return s.virtual == 1 or rounds % s.pp == 0


@rule(ARGUMENTS)
def gathers_overlap_beside_reductions(s):
    return not s.has("overlap-param-gather") or (
        s.has("overlap-grad-reduce")
        and (s.has("use-distributed-optimizer") or s.has("use-megatron-fsdp"))
    )


@rule(ARGUMENTS)
def fsdp_runs_with_more_than_one_connection(s):
    fsdp = s.has("use-megatron-fsdp") or s.has("use-torch-fsdp2")
    return not fsdp or s.variables.get("CUDA_DEVICE_MAX_CONNECTIONS") != "1"


@rule(ARGUMENTS)
def fsdp_has_its_checkpoint_format_and_nobody_else_has(s):
    return s.has("use-megatron-fsdp") == (s.word("ckpt-format") == "fsdp_dtensor")


@rule(ARGUMENTS)
def tensor_and_context_parallelism_run_with_one_connection(s):
    """Before Blackwell, unless FSDP or overlap of expert exchange asks for more."""
    free = (
        s.has("use-megatron-fsdp")
        or s.has("use-torch-fsdp2")
        or s.has("overlap-moe-expert-parallel-comm")
    )
    return (
        free or (s.tp == 1 and s.cp == 1) or s.variables.get("CUDA_DEVICE_MAX_CONNECTIONS") == "1"
    )


@rule(ARGUMENTS)
def tensor_overlap_needs_sequence_parallelism(s):
    return not s.has("tp-comm-overlap") or (s.has("sequence-parallel") and s.tp > 1)


@rule("core/model_parallel_config.py:ModelParallelConfig.__post_init__")
def sequence_parallelism_needs_tensor_parallelism(s):
    return s.tp > 1 or not s.has("sequence-parallel")


@rule("core/transformer/moe/moe_layer.py:MoELayer.forward")
def experts_beside_tensor_parallelism_need_sequence_parallelism(s):
    return not s.experts or s.tp == 1 or s.has("sequence-parallel")


@rule(ARGUMENTS)
def a_sequence_has_two_blocks_a_context_parallel_rank(s):
    return s.cp == 1 or s.number("seq-length") % (2 * s.cp) == 0


@rule(CONFIG)
def expert_overlap_needs_experts_elsewhere(s):
    return not s.has("overlap-moe-expert-parallel-comm") or s.ep > 1


@rule(CONFIG)
def expert_overlap_names_a_dispatcher(s):
    named = s.word("moe-token-dispatcher-type", "allgather")
    return not s.has("overlap-moe-expert-parallel-comm") or named in {"alltoall", "flex"}


@rule(CONFIG)
def expert_overlap_runs_beside_virtual_stages(s):
    return not s.has("overlap-moe-expert-parallel-comm") or s.pp == 1 or s.virtual > 1


@rule(CONFIG)
def expert_overlap_recomputes_neither_layers_nor_experts(s):
    return not s.has("overlap-moe-expert-parallel-comm") or not (s.full or "moe" in s.again)


@rule(CONFIG)
def expert_overlap_takes_one_prediction_module(s):
    return not s.has("overlap-moe-expert-parallel-comm") or s.predictions <= 1


@rule(CONFIG)
def expert_overlap_needs_half_precision(s):
    return not s.has("overlap-moe-expert-parallel-comm") or s.has("bf16") or s.has("fp16")


@rule(CONFIG)
def full_recomputation_says_how_and_how_many(s):
    is_specific = s.has("recompute-method") and s.has("recompute-num-layers")
    return (
        is_specific if s.full else not (s.has("recompute-method") or s.has("recompute-num-layers"))
    )


@rule(CONFIG)
def the_activation_of_experts_is_recomputed_in_grouped_products(s):
    return "moe_act" not in s.again or s.has("moe-grouped-gemm")


@rule(CONFIG)
def latent_projections_are_recomputed_where_there_are_some(s):
    return "mla_up_proj" not in s.again or s.latent


@rule(CONFIG)
def delayed_scaling_recomputes_no_norms_and_no_activation(s):
    delayed = s.has("fp8-format") and s.word("fp8-recipe", "delayed") == "delayed"
    return not delayed or not s.again & {"layernorm", "moe_act"}


@rule(CONFIG)
def offload_names_modules(s):
    return s.has("fine-grained-activation-offloading") == bool(s.words("offload-modules"))


@rule(CONFIG)
def offload_leaves_recomputed_experts_alone(s):
    return "moe" not in s.again or not s.words("offload-modules") & {
        "expert_fc1",
        "moe_act",
        "fused_group_mlp",
    }


@rule(CONFIG)
def the_projection_is_offloaded_with_what_it_takes(s):
    return "attn_proj" not in s.words("offload-modules") or "core_attn" in s.words(
        "offload-modules"
    )


@rule(ARGUMENTS)
def offload_keeps_weights_where_they_are(s):
    return (
        not s.has("fine-grained-activation-offloading")
        or s.variables.get("NVTE_CPU_OFFLOAD_V1") == "1"
    )


@rule(ARGUMENTS)
def a_host_optimizer_is_precision_aware(s):
    return not s.has("optimizer-cpu-offload") or s.has("use-precision-aware-optimizer")


@rule(ARGUMENTS)
def a_save_in_the_background_has_a_worker(s):
    """No assert: the save is made a synchronous one, with a warning."""
    return not s.has("async-save") or s.has("use-persistent-ckpt-worker")


@rule(CONFIG)
def graphs_capture_nothing_that_is_recomputed_around_them(s):
    if s.word("cuda-graph-impl", "none") == "none":
        return True
    whole = s.word("cuda-graph-impl") == "full_iteration"
    return whole or not (
        s.full or ("moe" in s.again and "moe_router" in s.words("cuda-graph-modules"))
    )


@rule(ARGUMENTS)
def a_graph_of_the_whole_iteration_looks_for_no_nan(s):
    whole = s.word("cuda-graph-impl") == "full_iteration"
    return not whole or (
        s.has("no-check-for-nan-in-loss-and-grad") and not s.words("cuda-graph-modules")
    )


@rule(FSDP)
def fsdp_overlaps_experts_without_graphs_of_layers(s):
    both = s.has("use-megatron-fsdp") and s.has("overlap-moe-expert-parallel-comm")
    return not both or s.word("cuda-graph-impl", "none") in {"none", "full_iteration"}


def broken(launch):
    """The rules that a launch breaks, with where they were read."""
    return [f"{check.__name__} ({where})" for where, check in RULES if not check(launch)]
