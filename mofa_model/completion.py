"""Completion in a shell: verbs, options, and names of presets. Only the typed verb is imported.

A shell that completes starts the command with _ARGCOMPLETE set. `mofa completion SHELL` prints the
script that makes it do so.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

ASKED: Final = "_ARGCOMPLETE"
"""The variable that a shell sets."""
SHELLS: Final = ("bash", "zsh", "fish")
"""Shells that we have scripts for."""
_TRAINERS: Final = ("--framework", "--launch")


def answer(program: str, load: Callable[[str], Any], summaries: Mapping[str, str]) -> None:
    """Answer the shell that asks, and leave; `load` gives the module of a verb."""
    import argcomplete

    argcomplete.autocomplete(
        _parser(program, _words(), load, summaries), always_complete_options="long"
    )


def offered(
    program: str, words: Sequence[str], load: Callable[[str], Any], summaries: Mapping[str, str]
) -> list[str]:
    """Completions of the last of the words after the program's name; kubectl asks for them."""
    import argcomplete.io
    from argcomplete.finders import CompletionFinder

    class Quiet(CompletionFinder):
        """A finder that logs to standard error; argcomplete's own takes any open file 9."""

        def _init_debug_stream(self) -> None:
            argcomplete.io.debug_stream = sys.stderr  # that of its import may be closed by now

    line = " ".join([program.rsplit(maxsplit=1)[-1], *words])
    output = io.StringIO()
    os.environ |= {
        ASKED: "1",
        "COMP_LINE": line,
        "COMP_POINT": str(len(line)),
        "_ARGCOMPLETE_IFS": "\n",
    }
    parser = _parser(program, list(words[:-1]), load, summaries)
    options: dict[str, Any] = {
        "exit_method": lambda _: None,
        "output_stream": output,
        "append_space": False,
    }
    Quiet()(parser, always_complete_options="long", **options)
    return output.getvalue().splitlines()


def script(shell: str) -> str:
    """The script that a shell reads to complete words of both names of the command."""
    from argcomplete.shell_integration import shellcode

    return shellcode(["mofa", "kubectl-mofa"], shell=shell)


def _words() -> list[str]:
    """Whole words between the program's name and the cursor."""
    line = os.environ.get("COMP_LINE", "")[: int(os.environ.get("COMP_POINT", "0"))]
    whole = line.rpartition(" ")[0]
    return whole.partition(" ")[2].split()


def _parser(
    program: str, words: Sequence[str], load: Callable[[str], Any], summaries: Mapping[str, str]
) -> argparse.ArgumentParser:
    """A parser of all verbs, with the options of only the verb that is typed."""
    parser = argparse.ArgumentParser(prog=program, allow_abbrev=False)
    parser.add_argument("--version", action="store_true", help="show the version and exit")
    below = parser.add_subparsers()
    typed = next((word for word in words if not word.startswith("-")), "")
    for name, summary in summaries.items():
        made = below.add_parser(name, help=summary)
        if name == typed:
            load(name).configure(made)
            _offer_names(made)
    return parser


def _offer_names(parser: argparse.ArgumentParser) -> None:
    """Give options that take names the list of these names."""
    from mofa_model import presets

    for action in parser._actions:  # noqa: SLF001, argparse has no other list of them
        if kind := getattr(action, "presets", ""):
            _offer(action, presets.names(kind))
        for option in action.option_strings:
            if option in _TRAINERS and action.choices is None:
                from mofa_model.launch import TRAINERS

                _offer(action, TRAINERS)
            elif option == "--profile":
                _offer(action, _profiles())


def _profiles() -> Iterable[str]:
    from mofa_model.manifest.surroundings import bundled_profiles

    return bundled_profiles()


def _offer(action: argparse.Action, names: Iterable[str]) -> None:
    choices = tuple(names)
    action.completer = lambda **_: choices  # type: ignore[attr-defined] # argcomplete reads it
