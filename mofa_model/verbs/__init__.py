"""The verbs of `mofa`: one module each, named as the verb.

May import everything in `mofa_model`. Imported by `cli` and the lab, which import only the verb
that runs.

A verb is a module with two functions and the end of its help. It is found by its name here, or
through the entry-point group `mofa.verbs` (`name = "package.module"`), as those of `mofa_operator`:

    configure(parser)      add arguments to an empty `argparse.ArgumentParser`
    run(arguments) -> int  do it and return the exit code, or raise a `MofaError`
    EXAMPLES               command lines that `--help` shows after the options

`mofa --help` must not import every verb, so our one-line summaries stand here. A verb of another
distribution is listed by its name and the first line of its module. Slow imports (rich, pydantic)
belong in `run`.
"""

from __future__ import annotations

import importlib
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Final, Protocol, cast

GROUP: Final = "mofa.verbs"
"""The entry-point group in which other distributions register verbs."""

SUMMARIES: Final[Mapping[str, str]] = {
    "paste": "advice for what you have: mofa FILE, mofa -, mofa MODEL",
    "advise": "recommend a strategy and a checkpoint interval for a training job",
    "which": "which GPUs a fine-tune needs, whether it fits, how long it takes and what it costs",
    "annotate": "write the advice into manifests as annotations",
    "explain": "one strategy: every time term and memory term, with equation numbers",
    "check": "review launch scripts: fit, refusals, slower than before, checkpoint interval",
    "ettr": "effective training time ratio and the best checkpoint interval",
    "rates": "check assumed failure rates against observed ones",
    "simulate": "a run under failures, event by event",
    "sweep": "what-if over any field",
    "calibrate": "refine the constants with your own runs",
    "profile": "propose a ClusterProfile",
    "ui": "the same questions as a page on this machine: a form, pictures, sweeps",
    "presets": "list models, GPUs, fabrics and stacks with their sources",
    "completion": "make your shell complete verbs, options and names",
}
"""Our own verbs in the order of `mofa --help`; verbs without a module here are not listed."""

LAB: Final[Mapping[str, str]] = {
    "validate": "predicted against measured, for published cases",
    "fit": "fit the shipped constants to case files, and say how well they hold",
    "calibrate kernels": "a device's measured kernels, from tables of calls",
    "trace": "inspect, replay, predict or calibrate from profiler traces",
}
"""Verbs of the lab, another distribution: an error says what to install for them. A name of two
words is a verb below our verb of the first word."""

LAB_NAME: Final = "mofa-advisor-lab"
"""The distribution with the verbs of the lab."""


class Verb(Protocol):
    """The functions of a verb's module."""

    def configure(self, parser: ArgumentParser) -> None:
        """Add the verb's arguments."""

    def run(self, arguments: Namespace) -> int:
        """Run the verb; returns the exit code."""


def ours() -> dict[str, str]:
    """Our verbs, with their summaries; imports none of them."""
    return {name: summary for name, summary in SUMMARIES.items() if find_spec(f"{__name__}.{name}")}


def foreign() -> dict[str, str]:
    """Verbs of other distributions, with their modules; imports none of them."""
    from importlib.metadata import entry_points

    return {
        point.name: point.value
        for point in entry_points(group=GROUP)
        if point.name not in SUMMARIES
    }


def summary_of(module: str) -> str:
    """The first line of the docstring of a foreign verb's module, without importing it."""
    import ast
    from pathlib import Path

    spec = find_spec(module)
    if spec is None or spec.origin is None:
        return f"from {module}"
    docstring = ast.get_docstring(ast.parse(Path(spec.origin).read_text(encoding="utf-8")))
    first = (docstring or f"from {module}").partition("\n")[0].rstrip(".")
    return first[0].lower() + first[1:]


def load(name: str, module: str | None = None) -> Verb:
    """The module of a verb: ours by name, a foreign one by its module."""
    return cast("Verb", importlib.import_module(module or f"{__name__}.{name}"))
