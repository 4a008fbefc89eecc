"""python -m mofa_local up | down | status | inject KIND JOB: the whole local stack, for
a person.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from mofa_local import stack, up
from mofa_local.gang import KINDS
from mofa_local.neighbours import NEIGHBOURS
from mofa_model.errors import MofaError


def main() -> int:
    """Run the verb of the command line."""
    parser = argparse.ArgumentParser(prog="python -m mofa_local", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    for verb, what in (
        ("up", "start it"),
        ("down", "stop it"),
        ("status", "what runs"),
        ("inject", "interrupt a job"),
    ):
        command = verbs.add_parser(verb, help=what)
        command.add_argument("--folder", type=Path, default=up.FOLDER, help="where it lives")
        if verb == "up":
            command.add_argument("--nodes", type=int, default=256, help="fake nodes")
            command.add_argument("--days", type=int, default=120, help="days of history")
            command.add_argument(
                "--speed", type=float, default=1.0, help="steps of trained jobs are so much shorter"
            )
            command.add_argument(
                "--node",
                choices=("", "fake", "real"),
                default="",
                help="real: one node more, whose pods run; needs root",
            )
            command.add_argument(
                "--with",
                dest="beside",
                default="",
                metavar="NAMES",
                help=f"real controllers beside it, of {', '.join(NEIGHBOURS)}",
            )
            command.add_argument(
                "flags", nargs="*", metavar="FLAG", help="further flags of the operator, after --"
            )
        if verb == "inject":
            command.add_argument("kind", choices=KINDS, help="what happens")
            command.add_argument(
                "job", metavar="NAMESPACE/NAME", help="a TrainingJob that is trained"
            )
            command.add_argument(
                "--seconds", type=float, default=120.0, help="until it trains again"
            )
    arguments = parser.parse_args()
    try:
        if arguments.verb == "inject":
            _say(up.inject(arguments.folder, arguments.kind, arguments.job, arguments.seconds))
        elif arguments.verb == "up":
            size = stack.Size(
                nodes=arguments.nodes,
                days=arguments.days,
                speed=arguments.speed,
                flags=tuple(arguments.flags),
                beside=tuple(name for name in arguments.beside.split(",") if name),
                real=arguments.node == "real",
            )
            up.up(arguments.folder, size, say=_say)
        elif arguments.verb == "down":
            stopped = up.down(arguments.folder)
            _say(f"down: stopped {', '.join(stopped)}" if stopped else "down: nothing was up")
        else:
            _say(up.status(arguments.folder))
    except MofaError as error:
        sys.stderr.write(f"{arguments.verb}: {error}\n")
        return error.exit_code
    except KeyboardInterrupt:
        sys.stderr.write(f"{arguments.verb}: interrupted; what was started is stopped\n")
        return 130
    return 0


def _say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
