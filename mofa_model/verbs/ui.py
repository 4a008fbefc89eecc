"""`mofa ui`: the what-if page on this machine."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from typing import Final

from mofa_model.answers.options import (
    Names,
    UserQuestion,
    add_options,
    as_in,
    names,
    option,
    question_of,
    whole,
)
from mofa_model.answers.questions import TrainingQuestion
from mofa_model.errors import BadValue, why

EXAMPLES: Final = """\
examples:
  mofa ui
  with models of your own beside the presets, on another port
    mofa ui --model config.json --port 9000
  on a login node: `ssh -L 8642:127.0.0.1:8642 NODE`, and then there
    mofa ui"""


class UiQuestion(UserQuestion):
    """What the page offers, and where it is served."""

    models: Names = as_in(
        TrainingQuestion,
        "model",
        "a config.json, or a model hub's id, to offer beside the presets",
        reader=names,
        default=(),
    )
    port: int = option(whole, "--port N", "port, 0 = any", default=8642, bounds=(0, 65535))


def configure(parser: ArgumentParser) -> None:
    """Add the question."""
    add_options(parser, UiQuestion)


def run(arguments: Namespace) -> int:
    """Serve until Ctrl-C."""
    from mofa_model import presets
    from mofa_model.verbs.ui_server import DeskServer

    question = question_of(UiQuestion, arguments)
    for name in question.models:
        presets.model_named(name)  # refused before anybody asks
    try:
        server = DeskServer(question.port, question.models)
    except OSError as error:
        raise BadValue("--port", question.port, f"{why(error)}; give another one") from error
    with server:
        sys.stdout.write(f"http://127.0.0.1:{server.server_port}/ answers; Ctrl-C ends it\n")
        sys.stdout.flush()
        server.serve_forever()
    return 0
