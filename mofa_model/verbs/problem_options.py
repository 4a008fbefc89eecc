"""The options that `advise`, `explain` and `sweep` share: a model, its training, the machines, what is chosen. Not a verb."""

from __future__ import annotations

from argparse import ArgumentParser, _ArgumentGroup

from mofa_model.spec.roofline import Roofline


def add_options(parser: ArgumentParser) -> None:
    """Add model, training and machines; `answers.training` reads them."""
    job = parser.add_argument_group("job")
    job.add_argument(
        "--model",
        metavar="MODEL",
        help="preset, a model hub's config.json, or its id there: ORG/NAME",
    )
    job.add_argument(
        "--seq",
        dest="sequence_length",
        metavar="S",
        help="tokens in a sequence, for example 8192 or 8k",
    )
    job.add_argument(
        "--batch-size",  # as people call it elsewhere
        "--global-batch",
        dest="global_batch_size",
        metavar="B",
        help="sequences in an optimizer step, or '4M tokens'",
    )
    job.add_argument("--tokens", metavar="T", help="tokens of the whole run, for example 15T")
    job.add_argument(
        "--precision",
        default="bf16",
        metavar="P[,…]",
        help="training recipe; several let the search choose (default: bf16)",
    )
    job.add_argument(
        "--optimizer",
        default="adamw",
        metavar="O",
        help="what updates the weights (default: adamw)",
    )
    job.add_argument(
        "--lora",
        dest="adapter_rank",
        default="0",
        metavar="RANK",
        help="train adapters of this rank beside frozen weights",
    )
    job.add_argument(
        "--documents",
        metavar="L[:SHARE],…",
        help="lengths of the documents that are packed into a sequence",
    )
    job.add_argument(
        "--imbalance",
        metavar="MEAN[:SPREAD]",
        help="load of the fullest rank of experts over the mean, and its standard deviation over layers and micro-batches",
    )
    machines = parser.add_argument_group("machines")
    machines.add_argument(
        "--gpu", metavar="GPU", help="device, or a cloud's machine: h100-sxm, p5.48xlarge"
    )
    machines.add_argument(
        "--gpus", metavar="N", help="devices, whole nodes or a part of one; or --nodes"
    )
    machines.add_argument("--nodes", metavar="N", help="nodes; or --gpus")
    machines.add_argument(
        "--gpus-per-node", type=int, metavar="N", help="devices that share a host"
    )
    machines.add_argument(
        "--domain", type=int, metavar="N", help="devices that share a scale-up link"
    )
    machines.add_argument(
        "--scale-up", metavar="LINK", help="fabric or bandwidth inside a node: nvlink4, '450 GB/s'"
    )
    machines.add_argument(
        "--scale-out", metavar="LINK", help="fabric or bandwidth of one device between nodes: ndr"
    )
    machines.add_argument(
        "--host-memory", metavar="SIZE", help="main memory of a node, for example '2 TiB'"
    )
    machines.add_argument(
        "--oversubscription",
        default=1.0,
        metavar="X",
        help="how much thinner the spine is (default: 1)",
    )
    machines.add_argument(
        "--headroom",
        default="0",
        metavar="PERCENT",
        help="device memory to leave free (default: 0)",
    )
    stack = parser.add_argument_group("software")
    stack.add_argument(
        "--framework",
        metavar="NAME",
        help="trainer, which restricts what is searched (default: the best of all)",
    )
    stack.add_argument(
        "--stack",
        metavar="NAME",
        help="stack whose measured constants are used (default: the trainer's)",
    )
    stack.add_argument(
        "--release",
        dest="framework_version",
        metavar="R",
        help="release of the stack (default: the newest that is listed)",
    )
    stack.add_argument(
        "--roofline",
        default=Roofline.SHAPED.value,
        metavar="NAME",
        help=f"how compute is modelled: {', '.join(one.value for one in Roofline)} (default: shaped)",
    )


def add_choice(parser: ArgumentParser | _ArgumentGroup) -> None:
    """Add what is best, and what may be chosen: `answers.advised_training` reads them."""
    parser.add_argument(
        "--objective",
        choices=("time", "throughput", "cost"),
        default=None,
        help="what is best (default: time)",
    )
    parser.add_argument(
        "--risk",
        default=0.1,
        metavar="P",
        help="chance of being out of memory that is taken, 0.1 or 10%% (default: 0.1)",
    )
    parser.add_argument(
        "--allow",
        choices=("experimental",),
        help="choose also what no measured run of the stack has",
    )
    parser.add_argument(
        "--by-estimate",
        action="store_true",
        help="choose by the estimates alone, whatever measured runs say of them",
    )
    parser.add_argument(
        "--current",
        metavar="LAYOUT",
        help="today's layout, tp=8,pp=4,…, a trainer's flags or its file: priced beside",
    )
    parser.add_argument(
        "--constraint",
        dest="constraints",
        action="append",
        default=[],
        metavar="AXIS=…",
        help="fix, list or bound an axis; may be repeated",
    )
    parser.add_argument(
        "--lift",
        action="append",
        default=[],
        metavar="RULE",
        help="do not apply an expert rule; may be repeated",
    )


def add_failures(parser: ArgumentParser) -> None:
    """Add how nodes fail, and where checkpoints go."""
    fail = parser.add_argument_group("failures and checkpoints")
    fail.add_argument(
        "--failure-rate", metavar="R", help="failures per node-day (default: 0.005, the paper's)"
    )
    fail.add_argument(
        "--hang", metavar="TIMEOUT[:SHARE]",
        help="failures that end no process until this timeout, and their share of all (default: none; a share of 1)",
    )  # fmt: skip
    fail.add_argument(
        "--checkpoint-bandwidth",
        metavar="BW",
        help="what a node writes to storage (default: 2 GB/s)",
    )
    fail.add_argument(
        "--checkpoint-size",
        metavar="SIZE",
        help="of a whole checkpoint (default: weights and optimizer states)",
    )
    fail.add_argument(
        "--sync",
        action="store_true",
        help="training waits for the write (default: only for the copy)",
    )
