"""The options that `ettr` and `simulate` share: a job, its failures, its checkpoints. Not a verb."""

from __future__ import annotations

from argparse import ArgumentParser

from mofa_model.spec.recovery_classes import RecoveryClass
from mofa_model.spec.reliability import COPY_SLOWDOWN, PAPER_RATE, PRIOR_WEIGHT


def add_options(parser: ArgumentParser) -> None:
    """Add the job's options; `answers.job` reads them."""
    job = parser.add_argument_group("job")
    job.add_argument("--nodes", required=True, metavar="N", help="nodes of the job")
    job.add_argument(
        "--step",
        required=True,
        metavar="TIME",
        help="step time without failures, for example '28 s'",
    )
    fail = parser.add_argument_group("failures")
    fail.add_argument(
        "--profile",
        metavar="NAME|FILE",
        help="failures, recoveries, spares and storage of a ClusterProfile: a bundled one or a manifest",
    )
    fail.add_argument(
        "--rate",
        metavar="R",
        help=f"assumed failures per node-day (default: {PAPER_RATE}, the paper's)",
    )
    fail.add_argument(
        "--prior-weight", default=PRIOR_WEIGHT, metavar="W",
        help=f"failures that the assumption is worth; inf = certain (default: {PRIOR_WEIGHT:g})",
    )  # fmt: skip
    fail.add_argument(
        "--failures",
        type=int,
        metavar="K",
        help="failures seen; with --node-days, in place of --rate",
    )
    fail.add_argument("--node-days", metavar="D", help="node-days in which they were seen")
    fail.add_argument(
        "--class", dest="classes", action="append", default=[], metavar="NAME:SHARE:MEAN[:LAW[:CV[:TIER]]]",
        help="a recovery class, its share of failures, its recovery time; may be repeated"
        f" (default: the paper's {', '.join(f'{c}:{c.share:g}:{c.seconds:g}s' for c in RecoveryClass if c.share)})",
    )  # fmt: skip
    fail.add_argument(
        "--mttr", metavar="TIME", help="one recovery time for all failures, in place of classes"
    )
    fail.add_argument(
        "--domain", dest="domains", action="append", default=[], metavar="NAME:NODES:RATE:MEAN[:TIER]",
        help="nodes that fail together; RATE per domain and day; may be repeated",
    )  # fmt: skip
    fail.add_argument(
        "--law", default="exponential", metavar="LAW",
        help="time between failures: exponential, weibull:SHAPE, mixture:SHARE:SHORT (short mean over mean)",
    )  # fmt: skip
    fail.add_argument(
        "--queue", metavar="MEAN[:LAW[:CV]]", help="queue that recoveries of pods and jobs wait in"
    )
    fail.add_argument(
        "--hang", metavar="TIMEOUT[:SHARE]",
        help="failures that end no process until this timeout, and their share of all (default: none; a share of 1)",
    )  # fmt: skip
    fail.add_argument(
        "--idle-recovery", action="store_true", help="nothing fails while the job recovers"
    )
    fail.add_argument(
        "--spares",
        type=int,
        metavar="N",
        help="spare nodes (default: a broken node is replaced at once)",
    )
    fail.add_argument(
        "--repair",
        default="24 h",
        metavar="TIME",
        help="repair time of a node, with --spares (default: 24 h)",
    )
    save = parser.add_argument_group("checkpoints; lists by commas, nearest tier first")
    save.add_argument("--save", metavar="TIME[,…]", help="blocking part of a save (default: 30 s)")
    save.add_argument(
        "--copy", metavar="TIME[,…]", help="background copy until a save is durable (default: 0 s)"
    )
    save.add_argument(
        "--slowdown",
        default=COPY_SLOWDOWN,
        metavar="X",
        help="slowdown of steps while copying, 0.02 = 2 %% (default: %(default)s, as measured)",
    )
    save.add_argument(
        "--storage", action="append", default=[], metavar="NAME:NODE_BW[:TOTAL_BW[:SNAPSHOT_BW]]",
        help="a tier by its bandwidths, in place of --save and --copy; with SNAPSHOT_BW its saves are asynchronous",
    )  # fmt: skip
    save.add_argument(
        "--checkpoint-size", metavar="BYTES", help="size of a checkpoint, for --storage"
    )
    save.add_argument(
        "--model",
        metavar="MODEL",
        help="preset or config.json whose size gives the checkpoint's, in place of --checkpoint-size",
    )
    save.add_argument(
        "--precision",
        default="bf16",
        metavar="P",
        help="training recipe of --model (default: bf16)",
    )
    save.add_argument(
        "--shards",
        type=int,
        metavar="N",
        help="ranks that write distinct shards (default: all GPUs)",
    )
    save.add_argument(
        "--gpus-per-node", type=int, default=8, metavar="N", help="GPUs in a node (default: 8)"
    )
