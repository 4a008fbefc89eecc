"""What can go wrong with an input, as one small tree.

    MofaError                   anything we raise on purpose
    ├── InputError (ValueError) what was given cannot be right: exit code 2
    │   ├── NotTraining         an object that trains no language model
    │   ├── NotApplicable       a training job on machines that are not known here
    │   ├── FactsMissing        a job that does not say what the answer needs
    │   ├── FactsDisagree       a job whose words contradict each other
    │   ├── Missing             what a question needs and nobody said, all of it at once
    │   ├── UnknownName         a preset, field or option that does not exist
    │   ├── BadValue            a known field with a value that cannot be
    │   │   ├── NotRead         a value that stands where nobody looked
    │   │   └── DoesNotFit      a layout that could be, but not on this many devices, or layers
    │   ├── BadUnit             text that is not a quantity of the asked dimension
    │   ├── BadFile             a file that cannot be read as what it should be
    │   ├── BadShell            a command that no shell can read
    │   └── TooLarge            a question with more layouts than can be looked at
    ├── NoFeasibleStrategy      the search space holds nothing that runs: exit code 3
    └── SourceUnreachable       a cluster or server did not answer: exit code 4

A strategy that does not fit is not an error: it is an answer with a reason (`axes.rejection`).
Every message names the field, the value, and what would be right, on one line.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

_SHOWN = 80
_NEAR = 0.7
"""Likeness below which a known name is no suggestion: gemma3-27b and llama3-70b have 0.6. [1]"""
_APART = 0.08
"""Likeness by which a suggestion may stay behind the best one. [1]"""


def shown(value: object) -> str:
    """A value as it may stand in a one-line message: printable and short."""
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"


def install_of(extra: str) -> str:
    """The command that brings an extra. The package is on no index yet, so it is installed from a
    clone.

    >>> install_of("plot")
    "pip install '.[plot]', in a clone"
    """
    return f"pip install '.[{extra}]', in a clone"


def lacking(names: Sequence[str]) -> str:
    """The beginning of a message: which options are missing.

    >>> lacking(["--gpu"]), lacking(["--gpu", "--gpus", "--seq"])
    ('--gpu: is missing', '--gpu, --gpus and --seq: are missing')
    """
    *before, last = names
    return f"{', '.join(before)} and {last}: are missing" if before else f"{last}: is missing"


def why(error: OSError) -> str:
    """What the operating system says of a call that it refused, as the end of a sentence."""
    return (error.strerror or str(error)).lower()


class MofaError(Exception):
    """Anything that we raise on purpose; `exit_code` is what the command line returns."""

    exit_code = 1


class InputError(MofaError, ValueError):
    """What was given cannot be right; `status` is what its annotation says."""

    exit_code = 2
    status = "InvalidInput"


class NotTraining(InputError):
    """An object that trains no language model, or not in a way that is priced."""

    status = "NotTraining"


class NotApplicable(InputError):
    """A training job that runs on what is not known here."""

    status = "NotApplicable"


class FactsMissing(InputError):
    """A training job that does not say what the answer needs."""

    status = "FactsMissing"


class FactsDisagree(InputError):
    """A job whose words contradict each other, or those of its policy."""

    status = "FactsDisagree"


class Missing(InputError):
    """What a question needs and nobody said, all of it at once.

    `examples` has an option and a value of it for each, so that a command line with them added is
    answered; `also` says what would be right in their place.
    """

    def __init__(self, examples: Mapping[str, str], *, also: str = "") -> None:
        self.examples, self._also = examples, also and f"; {also}"
        super().__init__(self.beside(""))

    def beside(self, command: str) -> str:
        """The message, with the command that somebody typed as it would be answered."""
        words = [command, *(f"{name} {value}" for name, value in self.examples.items())]
        return (
            f"{lacking([*self.examples])}; for example {' '.join(filter(None, words))}{self._also}"
        )


class UnknownName(InputError):
    """A name that is not in the list of known ones; those that are near it are suggested, by their
    own names where `aliases` led there. `also` says what else would be right.
    """

    def __init__(
        self,
        field: str,
        name: object,
        known: Iterable[str],
        *,
        aliases: Mapping[str, str] = MappingProxyType({}),
        also: str = "",
    ) -> None:
        candidates = sorted(set(known))
        spelled = {**aliases, **{candidate.lower(): candidate for candidate in candidates}}
        near = list(
            dict.fromkeys(spelled[word] for word in _near(str(name).lower()[:200], spelled))
        )[:3]
        right = (
            f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(candidates[:12])}"
        )
        if not near and len(candidates) > 12:
            right += f" and {len(candidates) - 12} more"
        super().__init__(f"{field}: unknown name {shown(name)}; {right}{also and f'; {also}'}")
        self.field, self.right = field, right


def _near(name: str, words: Iterable[str]) -> list[str]:
    """Names that are like this one, best first: none that is much less like it than the best."""
    from difflib import SequenceMatcher

    likeness = SequenceMatcher()
    likeness.set_seq2(name)
    matches: list[tuple[float, str]] = []
    for word in words:
        likeness.set_seq1(word)
        if likeness.quick_ratio() >= _NEAR:
            matches.append((-likeness.ratio(), word))
    best = min(matches, default=(0.0, ""))[0]
    return [word for like, word in sorted(matches) if like <= min(-_NEAR, best + _APART)]


class BadValue(InputError):
    """A known field with a value that cannot be."""

    def __init__(self, field: str, value: object, right: str) -> None:
        problem = "is missing" if value is None else f"{shown(value)} cannot be right"
        super().__init__(f"{field}: {problem}; {right}")
        self.field, self.right = field, right


class NotRead(BadValue):
    """A value that stands where nobody looked: in a file that was not given, in a
    shell's variable.
    """


class DoesNotFit(BadValue):
    """A layout that could be, but not on this many devices, or layers."""

    def __init__(self, field: str, value: str, right: str) -> None:
        super().__init__(field, value, right)
        self.why = f"{value}: {right}"


class BadUnit(InputError):
    """Text that is not a quantity of the asked dimension."""

    def __init__(self, field: str, text: object, right: str) -> None:
        super().__init__(f"{field}: {shown(text)} is not a quantity here; {right}")
        self.field = field


class BadFile(InputError):
    """A file that cannot be read as what it should be."""

    def __init__(self, path: object, why: str) -> None:
        super().__init__(f"{path}: {why}")


class BadShell(InputError):
    """A command or script that no shell can read; `line` is where reading ends, 0 where nobody
    says. [1]
    """

    def __init__(self, parser_says: str) -> None:
        super().__init__(f"launch command: no shell can read it: {parser_says}")
        number = parser_says.partition(":")[0]
        self.line = int(number) if number.isdecimal() else 0


class TooLarge(InputError):
    """A question with more layouts than can be looked at in the memory and time that one question
    may have.
    """


class NoFeasibleStrategy(MofaError):
    """The search space holds nothing that runs; the message names the binding reason."""

    exit_code = 3


class SourceUnreachable(MofaError):
    """A cluster or server did not answer."""

    exit_code = 4
