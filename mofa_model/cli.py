"""`mofa VERB`: find the verb, run it, turn what goes wrong into one line and an exit code.

    0 answered · 1 our fault · 2 bad input · 3 no feasible strategy · 4 a source is unreachable
    5 an assumption is contradicted (rates --check) · 130 interrupted

Nothing slow is imported here; of the verbs only the one that was asked for is imported.
"""

from __future__ import annotations

import argparse
import atexit
import contextlib
import gc
import io
import os
import re
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import pairwise
from types import MappingProxyType
from typing import Any, Final, NoReturn

from mofa_model import VERSION, completion, terminal, verbs
from mofa_model.errors import InputError, Missing, MofaError, UnknownName, install_of, lacking
from mofa_model.verbs import unknown_options

OURS: Final = "mofa-advisor"
"""The distribution that holds this command."""

TRACEBACK: Final = "MOFA_TRACEBACK"
"""The environment variable that shows the traceback of an unexpected error."""

INTERRUPTED: Final = 130
"""128 + SIGINT, as shells report it."""

THREADS: Final = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
"""Variables that set the number of threads. On small matrices and busy cores, many threads take
thirty times as long as one."""

SELDOM: Final = 100_000
"""New objects between two collections of garbage: more than an answer leaves, 58,000. With Python's
own 700 they took a sixth of every start, for the modules that are imported then all stay. [1]"""

_RESERVED: Final = 64 * 2**20
"""Address space of the heap that large pages may fill: more than a search needs. None of it is
taken before it is used. [B]"""
_NEVER: Final = 2**30
"""A threshold that no array reaches. [B]"""

_SYNONYMS: Final = {
    **{word: ["--version"] for word in ("version", "-v", "-V")},
    **{f"{verb}{word}": ["presets", kind] for verb in ("", "list ", "show ", "ls ")
       for word, kind in (("models", "models"), ("gpus", "devices"), ("devices", "devices"))},
}  # fmt: skip
"""What the whole of a command line means."""

_EPILOGUE: Final = """\
exit codes: 0 answered, 1 our fault, 2 bad input, 3 no feasible strategy, 4 a source is unreachable,
5 an assumed rate is contradicted (rates --check), or check found something, 130 interrupted
`mofa VERB --help` shows a verb's options."""


def main(
    argv: Sequence[str] | None = None,
    *,
    program: str = "mofa",
    instead: Mapping[str, str] = MappingProxyType({}),
) -> int:
    """Run the command line; `argv` without the program's name. The result is the exit code.

    `program` is what people called, and `instead` has modules of verbs in place of ours.
    """
    for variable in THREADS:
        os.environ.setdefault(variable, "1")
    _collect_seldom()
    terminal.never_fail(sys.stdout, sys.stderr)
    words = list(sys.argv[1:] if argv is None else argv)
    first_word = words[:1]
    words = _SYNONYMS.get(" ".join(words), words)  # as people say it to other commands
    if (words[:1] == ["help"] and len(words) < _QUESTION_WORDS) or words[1:] == ["help"]:
        words = [*(word for word in words[:2] if word != "help"), "--help"]
    if completion.ASKED in os.environ:
        completion.answer(program, _loader(instead), _summaries())
    words = pasted_words(words, instead)
    name = next((word for word in words[:1] if not word.startswith("-")), "")
    try:
        first_two = " ".join(words[:2])
        if first_two in verbs.LAB:
            name = first_two
        rest = words[len(name.split()) :]
        code = (
            _run_verb(name, rest, program, instead.get(name)) if name else _run_bare(words, program)
        )
        sys.stdout.flush()
    except Missing as error:
        # What needs no verb is shown without one.
        from mofa_model.identity.secret_words import masked, masked_line

        shown_words = words[1:] if name == PASTE and first_word != [PASTE] else words
        message = error.beside(f"{program} {shlex.join(map(masked_line, masked(shown_words)))}")
        return _fail(_called(program, name, first_word), message, error.exit_code)
    except MofaError as error:
        return _fail(_called(program, name, first_word), str(error), error.exit_code)
    except ModuleNotFoundError as error:
        extra = extra_of(error.name or "")
        if extra is None:
            return _unexpected(f"{program} {name}", error)
        return _fail(
            f"{program} {name}",
            f"needs {error.name}, which is not installed; {install_of(extra)}",
            2,
        )
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        return _reader_went_away()
    except Exception as error:
        return _unexpected(f"{program} {name}", error)
    return code


def _called(program: str, verb: str, first_word: list[str]) -> str:
    """The program with the verb that was typed: of words that `paste` reads, there may be none."""
    if verb == PASTE and first_word != [PASTE]:
        verb = _ADVISE if first_word == [_ADVISE] else ""
    return f"{program} {verb}".rstrip()


_LAUNCHERS: Final = frozenset(
    {"torchrun", "deepspeed", "accelerate", "srun", "sbatch", "python", "python3", "mpirun"}
    | {"tune", "trl", "axolotl", "llamafactory-cli", "composer", "nemo", "litgpt", "swift"}
)
"""Programs that begin a command which somebody pastes."""


def pasted_words(words: list[str], instead: Mapping[str, str]) -> list[str]:
    """The words with the verb `paste` before them, where they begin with no verb but with what it
    reads: a file, `-`, a model, or a command line. A verb's name goes before a file's.
    """
    first = words[0] if words else ""
    if not words and not instead and _is_piped():
        return [PASTE, "-"]
    if not first or instead or first in verbs.LAB:
        return words
    if first == _ADVISE:
        return _advise_or_paste(words)
    return words if first != PASTE and first in verbs.ours() else _as_paste(words)


def _advise_or_paste(words: list[str]) -> list[str]:
    """Words behind `advise`: as they are where they are its own and say all, else as `paste`
    understands them, which takes a usual sequence and batch where a model is all that is trained.
    """
    typed = words[1:]
    if _are_advise_options(typed):
        named = {word.partition("=")[0] for word in typed}
        is_complete = {"--seq"} & named and {"--batch-size", "--global-batch"} & named
        for_program = {"-o", "--output", "--json"} & named  # a program wants its own document
        if (
            is_complete
            or for_program
            or "--model" not in named
            or named & _advise_only()
            or _has_file(typed)
        ):
            return words
    from mofa_model.pasted import spoken

    if any(word.partition("=")[0] in {*_advise_only(), *spoken.DEGREES} for word in typed):
        return words
    advise_options = ["--global-batch" if word == "--batch-size" else word for word in typed]
    options = spoken.as_options(advise_options)
    is_script = any(re.search(r"\.(sh|toml|py|sbatch|slurm)$", word) for word in typed[:1])
    # Words that are its own got here because they name a model and leave something out.
    understood = options != advise_options or not _has_file(typed)
    if is_script or (understood and (_names_model(options) or any(map(_is_input, options)))):
        return _as_paste([PASTE, *typed])
    return words


def _has_file(words: Sequence[str]) -> bool:
    """Whether a manifest is among them, or standard input, which brings one."""
    return any(word == "-" or re.search(r"\.(ya?ml|json)$", word) for word in words)


def _are_advise_options(words: Sequence[str]) -> bool:
    """Whether all words are options of `advise` with their values, or a manifest: then the readers
    of other programs' words are not even imported.
    """
    from mofa_model.answers.options import switch
    from mofa_model.answers.questions import AdviceQuestion

    options = AdviceQuestion.options.values()
    takes = {flag: option.reader is not switch for option in options for flag in option.flags}
    takes |= OF_BOTH | OF_ADVISE
    remaining = iter(words)
    for word in remaining:
        flag, equals, value = word.partition("=")
        if takes.get(flag) and not equals:
            value = next(remaining, "-")
        if flag in takes:
            # `--gpu 8xH100` and the like are for who reads counts.
            if value.startswith("-") or (flag in {"--gpu", "--gpus"} and _COUNTED.match(value)):
                return False
        elif not re.fullmatch(r"[^-].*\.ya?ml", word):
            return False
    return True


OF_BOTH: Final = {
    **dict.fromkeys(("-o", "--output", "--save-dir"), True),
    **dict.fromkeys(("--json", "--overwrite"), False),
}
"""What `advise` and `paste` have beside the options of their questions, and whether a value stands
behind it.
"""
OF_ADVISE: Final = {
    **dict.fromkeys(("--as", "--plots", "--sbatch"), True),
    **dict.fromkeys(("--flags-only", "-h", "--help"), False),
}
"""The same of `advise` alone, and its help."""


def _advise_only() -> set[str]:
    """Options that `mofa advise` has and `mofa paste` has not, and its help."""
    from mofa_model.answers.questions import AdviceQuestion, PasteQuestion

    advise, paste = (
        {flag for option in question.options.values() for flag in option.flags}
        for question in (AdviceQuestion, PasteQuestion)
    )
    return (advise - paste) | OF_ADVISE.keys()


_QUESTION_WORDS: Final = 4
"""Words from which `help` asks for an answer, and not for how to use a verb. [1]"""
_COUNTED: Final = re.compile(r"\d+ *[^\d\s]|.* ")
"""A number with something behind it, or several words."""


def _as_paste(words: list[str]) -> list[str]:
    """The words as options, whatever somebody calls them who does not know ours."""
    from mofa_model import files
    from mofa_model.pasted import spoken

    first, rest = words[0], words[1:]
    starts_file = first in _SHELLS and bool(rest) and bool(files.path_kind(rest[0]))
    command = rest if first == "--" else words
    if not starts_file and command and command[0] in _LAUNCHERS and _starts_program(command):
        return _typed_command(command)
    if first != PASTE and (first in verbs.foreign() or _is_misspelt_verb(first)):
        return words
    spoken_words = rest if first in {PASTE, *_SHELLS, *spoken.ASKED} else words
    options, unread, gpus = spoken.read_words(spoken_words)
    names_option = any(word.partition("=")[0] in spoken.OPTIONS for word in options)
    if not (first == PASTE or names_option or any(_is_input(word) for word in options)):
        return words
    if unread:
        left_out = ", ".join(map(repr, unread))
        terminal.tell(f"mofa: the answer leaves out {left_out}")
    if gpus:
        several = f"--vary gpu={','.join(gpus)}"
        terminal.tell(f"mofa: the answer is for {gpus[0]}; mofa sweep {several} compares them")
    needs_devices = not {"--gpu", "--gpus", "--nodes"} & {
        word.partition("=")[0] for word in options
    }
    has_input = any(word == "-" or files.path_kind(word) or " " in word for word in options)
    if (needs_devices or not _names_model(options)) and not has_input and _is_piped():
        return [PASTE, "-", *options]
    return [PASTE, *options]


def _starts_program(words: Sequence[str]) -> bool:
    """Whether a launcher's name has options or a file behind it, and not a few words on a model."""
    return any(
        word.startswith("-") or re.search(r"\.(py|sh|ya?ml|json|toml)$", word) for word in words[1:]
    )


def _typed_command(words: Sequence[str]) -> list[str]:
    """A command that was typed without quotes; a GPU behind it is for us, because no trainer asks
    for one.
    """
    from mofa_model.pasted.sentence import is_gpu

    place = next(
        (
            place
            for place, pair in enumerate(pairwise(words))
            if pair[0] == "--gpu" and is_gpu(pair[1])
        ),
        -1,
    )
    if place < 0:
        return [PASTE, shlex.join(words)]
    return [PASTE, shlex.join([*words[:place], *words[place + 2 :]]), *words[place : place + 2]]


def _is_misspelt_verb(word: str) -> bool:
    """Whether a word is nearly a verb's name, as `adivse` is."""
    from difflib import get_close_matches

    return word.isalpha() and bool(get_close_matches(word, [*verbs.ours(), *verbs.LAB], 1, 0.8))


def _names_model(words: Sequence[str]) -> bool:
    return "--model" in {word.partition("=")[0] for word in words} or (
        bool(words) and not words[0].startswith("-")
    )


_ADVISE: Final = "advise"
_SHELLS: Final = frozenset({"bash", "sh", "zsh", "sbatch", "source", "cat"})
"""Programs behind which a file of ours may stand."""


def _is_piped() -> bool:
    """Whether something is handed over by a pipe or a file; a terminal and an idle pipe are not."""
    import select
    import stat

    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode
        waits = _PIPE_WAIT if stat.S_ISFIFO(mode) else 0.0
        if sys.stdin.isatty() or not select.select([sys.stdin], [], [], waits)[0]:
            return False
        text = sys.stdin.read()
    except (OSError, ValueError, AttributeError):
        return False
    sys.stdin = io.TextIOWrapper(io.BytesIO(text.encode()), encoding="utf-8")
    return bool(text.strip())


_PIPE_WAIT: Final = 10.0
"""How long a program before a pipe may take to say its first word, as nvidia-smi or kubectl
do. [s]
"""
PASTE: Final = "paste"
"""The verb of what has no verb."""


def _is_input(word: str) -> bool:
    """Whether a word is a file, standard input, several words of a command, or a model."""
    if word == "-" or " " in word.strip():
        return True
    if not word or word.startswith("-"):
        return False
    from mofa_model import files

    if files.path_kind(word) or re.search(r"\.(sh|ya?ml|json|toml|py|sbatch|slurm)$", word):
        return True
    if not re.search(r"[\d/]", word):  # a verb with a slip of the pen is no model
        return False
    from mofa_model import presets

    return (
        bool(presets.meanings("models", word))
        or presets.is_address(word)
        or bool(re.fullmatch(r"[A-Za-z0-9][\w.-]*/[\w.-]+", word))
    )


@cache
def _collect_seldom() -> None:
    """Look for garbage seldom, and not through all that is there once more when Python ends: that
    took as long as a tenth of an answer.
    """
    gc.set_threshold(SELDOM)
    atexit.register(gc.freeze)


@cache
def prefer_large_pages() -> bool:
    """Let the heap take large pages and keep what is freed. The result is whether this system can.

    Linux gives memory in pages of 4 KB. A search fills thousands of arrays of 100 KB, and in a
    virtual machine a quarter of its time went to finding those pages: DeepSeek-V3 on 2,048 GPUs
    took 2.6 s of a core, and takes 1.9 s in pages of 2 MB, with the same peak memory. Not for a
    process that lasts: memory that was needed once is never given back.
    """
    if not sys.platform.startswith("linux"):
        return False
    import ctypes

    with contextlib.suppress(AttributeError):  # another C library than glibc knows no mallopt
        libc = ctypes.CDLL(None)
        libc.malloc.restype = ctypes.c_void_p
        libc.malloc.argtypes = [ctypes.c_size_t]
        libc.free.argtypes = [ctypes.c_void_p]
        libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        trim, mapped, large = -1, -3, 14  # M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, MADV_HUGEPAGE
        # An array that is mapped by itself would lie outside the heap.
        if not all(libc.mallopt(name, _NEVER) for name in (mapped, trim)):
            return False
        start = libc.malloc(_RESERVED)
        if not start:
            return False
        page = os.sysconf("SC_PAGE_SIZE")
        first = -(-start // page) * page
        taken: int = libc.madvise(first, start + _RESERVED - first, large)
        libc.free(start)
        return taken == 0
    return False


def extra_of(module: str) -> str | None:
    """The smallest extra of our distribution that brings a module; None where no extra does.

    >>> extra_of("prometheus_client.core"), extra_of("matplotlib"), extra_of("nowhere")
    ('operator', 'plot', None)
    """
    from importlib.metadata import requires

    package = module.partition(".")[0].replace("_", "-").lower()
    packages_of: dict[str, list[str]] = {}
    for line in requires(OURS) or ():
        requirement, _, marker = line.partition(";")
        if extra := re.search(r"extra == ['\"]([\w-]+)", marker):
            packages_of.setdefault(extra[1], []).append(
                re.split(r"[^\w.-]", requirement)[0].replace("_", "-").lower()
            )
    return min(
        (e for e in packages_of if package in packages_of[e]),
        key=lambda e: len(packages_of[e]),
        default=None,
    )


def _run_verb(name: str, rest: list[str], program: str, instead: str | None) -> int:
    """Find the verb's module, read its options and run it; returns the exit status."""
    if instead is not None:
        verb = verbs.load(name, instead)
    elif name in verbs.ours():
        verb = verbs.load(name)
    else:
        foreign = verbs.foreign()
        if name not in foreign:
            if name in verbs.LAB:
                raise InputError(
                    "is a verb of the lab, which is not installed: pip install ./lab, in a clone"
                )
            raise UnknownName("verb", name, [*verbs.ours(), *verbs.LAB, *foreign])
        verb = verbs.load(name, foreign[name])
    parser = _Parser(
        prog=f"{program} {name}",
        description=verb.__doc__
        if instead
        else verbs.SUMMARIES.get(name) or verbs.LAB.get(name, verb.__doc__),
        epilog=getattr(verb, "EXAMPLES", None),
        formatter_class=_Help,
    )
    verb.configure(parser)
    arguments, unknown = parser.parse_known_args(rest)
    if unknown:
        unknown_options.refuse(parser, unknown)
    if name in {*verbs.ours(), *verbs.LAB}:
        _refuse_empty(rest)
    if name in verbs.ours():  # these compute and end; the operator lasts
        prefer_large_pages()
    return verb.run(arguments)


def _refuse_empty(words: Sequence[str]) -> None:
    """Refuse empty values; a shell makes them of variables that are not set."""
    for before, word in zip(["argument", *words], words, strict=False):
        if not word or (word.startswith("--") and word.endswith("=")):
            raise InputError(
                f"{(word or before).removesuffix('=')}: is empty; give it a value or leave it out"
            )


def offered(program: str, words: Sequence[str], instead: Mapping[str, str]) -> list[str]:
    """What may stand in place of the last of these words, which follow the program's name."""
    return completion.offered(program, words, _loader(instead), _summaries())


def _loader(instead: Mapping[str, str]) -> Callable[[str], verbs.Verb]:
    foreign = verbs.foreign()
    return lambda name: verbs.load(name, instead.get(name) or foreign.get(name))


def _summaries() -> dict[str, str]:
    return verbs.ours() | {
        name: verbs.summary_of(module) for name, module in verbs.foreign().items()
    }


def _run_bare(words: list[str], program: str) -> int:
    parser = _Parser(
        prog=program,
        usage=f"{program} VERB [options]",
        description=_listing(),
        epilog=_EPILOGUE,
        formatter_class=_Help,
    )
    parser.add_argument("--version", action="store_true", help="show the version and exit")
    arguments, unknown = parser.parse_known_args(words)
    if unknown:
        unknown_options.refuse(parser, unknown)
    if arguments.version:
        sys.stdout.write(f"mofa {VERSION}\n")
    else:
        parser.print_help()
    return 0


def _listing() -> str:
    plugins = verbs.foreign()
    lab = {name: summary for name, summary in verbs.LAB.items() if name in plugins}
    others = {
        n: verbs.summary_of(module) for n, module in sorted(plugins.items()) if n not in verbs.LAB
    }
    parts = [
        ["Advice for training large models: layout, checkpoints, goodput."],
        ["verbs:", *_lines(verbs.ours() | lab | others)],
    ]
    absent = {name: summary for name, summary in verbs.LAB.items() if name not in lab}
    if absent:
        parts.append(["verbs of the lab (pip install ./lab, in a clone):", *_lines(absent)])
    return "\n\n".join("\n".join(part) for part in parts)


def _lines(summaries: Mapping[str, str]) -> list[str]:
    return [f"  {name:<10} {summary}" for name, summary in summaries.items()]


class _Help(argparse.RawDescriptionHelpFormatter):
    """Help as wide as the terminal. argparse makes one for each option, and would import `shutil`,
    with every form of archive, to ask for the width.
    """

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=_columns() - 2)


@cache
def _columns() -> int:
    """Columns of the terminal: what COLUMNS says, else what the terminal does, else 80."""
    text = os.environ.get("COLUMNS", "")
    if text.isdecimal() and int(text):
        return int(text)
    try:
        return os.get_terminal_size(1).columns or 80
    except OSError:
        return 80


class _Parser(argparse.ArgumentParser):
    """An argument parser with our errors: one line, exit code 2. Options cannot be abbreviated."""

    def __init__(self, **words: Any) -> None:
        super().__init__(**words, allow_abbrev=False)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse as argparse does, and keep the words for a message about unknown ones."""
        self._words = [*args]
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        """Say it, and where something is missing show a command that has all."""
        _, _, names = message.partition("the following arguments are required: ")
        if names:
            if strange := unknown_options.among(self, self._words):
                unknown_options.refuse(self, strange)
            examples = (
                line.strip() for line in (self.epilog or "").splitlines() if not line.endswith("\\")
            )
            example = next(
                (line for line in examples if line.startswith(f"{self.prog} ")),
                f"{self.prog} --help",
            )
            message = f"{lacking(names.split(', '))}; for example {example}"
        self.exit(_fail(self.prog, message, 2))


def _unexpected(name: str, error: Exception) -> int:
    """One line that asks to report it; the traceback where it is asked for."""
    if os.environ.get(TRACEBACK):
        raise error
    kind = type(error).__name__
    return _fail(
        name, f"{kind}: {error}; this is our fault: please report it, with {TRACEBACK}=1 set", 1
    )


def _fail(name: str, message: str, code: int) -> int:
    sys.stderr.write(" ".join(terminal.printable(f"{name.strip()}: {message}").split()) + "\n")
    return code


def _reader_went_away() -> int:
    """Point stdout at nothing, so that Python's own flush at exit stays silent as well."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0
