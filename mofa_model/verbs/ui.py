"""`mofa ui`: the what-if page on this machine."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from typing import Final

from mofa_model.errors import BadValue, why

EXAMPLES: Final = """\
examples:
  mofa ui
  with models of your own beside the presets, on another port
    mofa ui --model config.json --port 9000
  on a login node: `ssh -L 8642:127.0.0.1:8642 NODE`, and then there
    mofa ui"""


def configure(parser: ArgumentParser) -> None:
    """Add what may be asked for, and the port."""
    parser.add_argument(
        "--model",
        action="append",
        default=[],
        metavar="MODEL",
        help="a config.json, or a model hub's id, to offer beside the presets; may be repeated",
    )
    parser.add_argument(
        "--port", type=int, default=8642, metavar="N", help="port, 0 = any (default: 8642)"
    )


def run(arguments: Namespace) -> int:
    """Serve until Ctrl-C."""
    from mofa_model import presets
    from mofa_model.verbs.ui_server import DeskServer

    if not 0 <= arguments.port <= 65535:
        raise BadValue("--port", arguments.port, "give a port from 0 to 65535")
    for name in arguments.model:
        presets.model_named(name)  # refused before anybody asks
    try:
        server = DeskServer(arguments.port, arguments.model)
    except OSError as error:
        raise BadValue("--port", arguments.port, f"{why(error)}; give another one") from error
    with server:
        sys.stdout.write(f"http://127.0.0.1:{server.server_port}/ answers; Ctrl-C ends it\n")
        sys.stdout.flush()
        server.serve_forever()
    return 0
