"""Loose words as options: machines and how many there are, sequence and batch, a layout, and a
model.

Sentence(words, beside).read()    the options that words without dashes mean
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from mofa_model import presets
from mofa_model.pasted.model_names import is_size, newest, preset_named


@cache
def _tables() -> Mapping[str, Mapping[str, Any]]:
    return tomllib.loads(Path(__file__).with_name("spoken.toml").read_text("utf-8"))


def vocabulary(table: str) -> Mapping[str, Any]:
    """A table of `spoken.toml`."""
    return _tables()[table]


_WORDS: Final = vocabulary("words")
_FILLERS: Final = frozenset(_WORDS["fillers"])
_NODE_WORDS: Final = frozenset(_WORDS["nodes"])
_GPU_WORDS: Final = frozenset(_WORDS["gpus"])
_LENGTHS: Final = frozenset({"day", "epoch", "hour", "hr", "minute", "month", "week", "year"})
_SMALL: Final = frozenset({"micro", "local", "device", "per-device"})
"""Words before `batch` that mean the batch of one rank."""
_TODAY: Final = frozenset(_WORDS["today"])
_BETWEEN: Final = frozenset(_WORDS["between"])
_KEYED: Final = {
    word: f"--{option}" for option, words in vocabulary("keys").items() for word in words
}
_COUNTS: Final = vocabulary("counts")
_PARALLEL: Final = {"tensor": "tp", "pipeline": "pp", "context": "cp", "expert": "ep"}
_OF_DEGREE: Final = frozenset({"size", "degree", "of", "is", "=", ":"})
"""Words between a kind of parallelism and its degree."""
_JOINTS: Final = frozenset({"x", "×", "*", "of", "with", "per", "a", "/", ",", "and", "on"})
"""Words and signs between a number and what it counts."""
_QUALIFIERS: Final = frozenset({"global", "sequence", "max"})
_AFTER: Final = frozenset({"--seq", "--global-batch", "--tokens"})
"""Options whose number may stand before the word: 8k context, 1T tokens."""
_NUMBER: Final = re.compile(r"(\d+(?:[.,]\d+)*)([kmbt]?)", re.IGNORECASE)
_COLON: Final = re.compile(r"([A-Za-z][\w.-]*):(\d+)")
_LIKE_GPU: Final = re.compile(r"(?:rtx|gtx|mi)?-?[a-z]{0,2}\d{1,4}[a-z]{0,2}", re.IGNORECASE)
_SCRIPTS: Final = re.compile(
    r"[\u3000-\u9fff\uac00-\ud7af\uff00-\uffef]+|[^\u3000-\u9fff\uac00-\ud7af\uff00-\uffef]+"
)
"""Pieces of a text without spaces: each is all Chinese, Japanese or Korean, or has nothing
of these.
"""
_LONGEST: Final = 5
"""Most words that a model's name has. [1]"""
RANK: Final = "16"
"""Rank of adapters where nobody says one. [1]"""


def is_file(word: str) -> bool:
    """Whether a word is a file or a folder."""
    from mofa_model import files

    return bool(word) and bool(files.path_kind(word))


def counted_gpus(word: str) -> tuple[str, str] | None:
    """How many of which GPU a word says: `64xH100`, `H100x64`, `H100:64`.

    >>> counted_gpus("64xH100"), counted_gpus("h100:8"), counted_gpus("64")
    (('64', 'H100'), ('8', 'h100'), None)
    """
    if (counted := re.fullmatch(r"(\d+)\s*[x×*]?\s*(.+)", word, re.IGNORECASE)) and is_gpu(
        counted[2]
    ):
        return None if is_gpu(word) else (counted[1], counted[2])
    for form in (_COLON, re.compile(r"(.+?)\s*[x×*]\s*(\d+)", re.IGNORECASE)):
        if (counted := form.fullmatch(word)) and is_gpu(counted[1]):
            return counted[2], counted[1]
    return None


def is_gpu(word: str) -> bool:
    """Whether a word names a GPU."""
    return bool(presets.meanings("devices", word))


def is_command(word: str) -> bool:
    """Whether a word is a whole command line, and not a few words on a model."""
    return " " in word and bool(re.search(r"(^|\s)--?[A-Za-z]|\.(py|sh)\b|\n|^\w+=", word))


class Sentence:
    """Words without dashes, read in passes: each pass reads one kind of phrase and removes its
    words.
    """

    def __init__(self, loose: Sequence[str], kept: Sequence[str]) -> None:
        self.kept = list(kept)
        self.words = _counted_in_words(list(_pieces(loose)))
        self.unread = list[str]()
        self.devices = list[str]()
        """Devices beside the first."""
        self._options = dict[str, str]()
        self._degrees = list[str]()
        self._has = {option.partition("=")[0] for option in kept if option.startswith("--")}
        self._beside = bool(kept)
        self._has_file = any(word == "-" or is_file(word) or is_command(word) for word in kept)

    def read(self) -> list[str]:
        """The sentence as options of the command, the model last."""
        self._keyed_numbers()
        model = self._model()
        self._machines()
        self._words_of_training()
        self._number_alone(has_model=bool(model))
        layout = self._layout_option()
        left = [word for word in self.words if word and word.lower() not in {*_FILLERS, *_TODAY}]
        if not model and "--model" not in self._has and not self._has_file and left:
            model, left = _guessed(left, likely_alone=not self._options)
        if "--gpu" not in {*self._options, *self._has}:
            named = (word for word in left if not re.fullmatch(r"\d{1,3}", word))
            slip = next((word for word in named if _LIKE_GPU.fullmatch(word)), "")
            if slip:  # its error says what is near
                self._set("--gpu", slip)
                left.remove(slip)
        self.unread += left
        if self._degrees:
            self._options[layout] = ",".join(self._degrees)
        if model:
            self._options["--model"] = model
        order = ("--gpus", "--nodes", "--gpus-per-node", "--gpu")
        rest = [option for option in self._options if option not in {*order, "--model", layout}]
        names = [*order, *rest, layout, "--model"]
        return [
            word for name in names if name in self._options for word in (name, self._options[name])
        ]

    def _layout_option(self) -> str:
        """The option for a layout in the sentence: it runs now, ran out of memory, or
        is planned.
        """
        lower = [word.lower().strip(":") for word in self.words]
        at = next((at for at, pair in enumerate(pairwise(lower)) if pair == ("out", "of")), -1)
        if at >= 0 and lower[at + 2 : at + 3] == ["memory"]:
            self._remove(at, 3)
            return "--failed"
        if ooms := [
            at for at, word in enumerate(lower) if re.fullmatch(r"oom(s|ed|s?-killed)?", word)
        ]:
            self._remove(ooms[0], 1)
            return "--failed"
        return "--current" if {*lower} & _TODAY else "--planned"

    def _remove(self, at: int, number: int) -> None:
        for index in range(at, at + number):
            self.words[index] = ""

    def _set(self, option: str, value: str) -> None:
        if option not in self._has:
            self._options.setdefault(option, value)

    def _keyed_numbers(self) -> None:
        """Read numbers with their names: `seq 8192`, `8k context`, `1T tokens`,
        `gpus=256`, `tp8`.
        """
        self._beside_words()
        self._parallel_words()
        for at, word in enumerate(self.words):
            key, equals, value = word.partition("=")
            option = _KEYED.get(key.lower(), "")
            if equals and value and option:
                self._set_keyed(option, key, value)
                self._remove(at, 1)
            elif degree := re.fullmatch(r"(tp|pp|cp|ep|mbs)[-:]?(\d+)", word.lower()):
                self._set_keyed("--planned", degree[1], degree[2])
                self._remove(at, 1)
        for at, word in enumerate(self.words):
            option, key = _KEYED.get(word.lower(), ""), word
            if not option or option in {"--gpu", "--model", "--framework", "--precision"}:
                continue
            until = at + 1
            while until < len(self.words) and self.words[until].lower() in _BETWEEN:
                until += 1
            first = at - (2 if at > 1 and self.words[at - 1].lower() in _QUALIFIERS else 1)
            before = self.words[first] if first >= 0 else ""
            after = self.words[until] if until < len(self.words) else ""
            if self._of_tokens(at, until):
                continue
            if option == "--global-batch" and at and self.words[at - 1].lower() in _SMALL:
                option, key = "--planned", "mbs"
                self._remove(at - 1, 1)
            if option in _AFTER and _NUMBER.fullmatch(before):
                self._set_keyed(option, key, before)
                self._remove(first, at + 1 - first)
            elif _NUMBER.fullmatch(after) and not _NUMBER.fullmatch(before):
                self._set_keyed(option, key, after)
                self._remove(at, until + 1 - at)

    def _beside_words(self) -> None:
        """Read `1024 sequences of 8192`; skip times and numbers of epochs, which change nothing."""
        for at, word in enumerate(self.words):
            lower, before = word.lower(), self.words[at - 1] if at else ""
            if not _NUMBER.fullmatch(before):
                continue
            if lower in {"seqs", "sequences"}:
                self._set("--global-batch", before.replace(",", ""))
                self._remove(at - 1, 2)
                of, after = (*self.words[at + 1 : at + 3], "", "")[:2]
                if of.lower() == "of" and _NUMBER.fullmatch(after):
                    self._set("--seq", _sequence_length(after))
                    self._remove(at + 1, 2)
            elif lower.removesuffix("s") in _LENGTHS:
                self.unread.append(f"{before} {word}")
                self._remove(at - 1, 2)

    def _parallel_words(self) -> None:
        """Read degrees in words: `expert parallel 8`, `8-way tensor parallelism`."""
        for at, word in enumerate(self.words):
            first, _, second = word.lower().partition("-")
            key = _PARALLEL.get(first, "")
            behind = at + (1 if second else 2)
            parallel = second or (self.words[at + 1].lower() if at + 1 < len(self.words) else "")
            if not key or not parallel.startswith("parallel"):
                continue
            before = self.words[at - 1].lower().removesuffix("-way") if at else ""
            if at and before.isdigit() and self.words[at - 1] != before:
                self._set_keyed("--planned", key, before)
                self._remove(at - 1, behind - at + 1)
                continue
            until = behind
            while until < len(self.words) and self.words[until].lower() in _OF_DEGREE:
                until += 1
            if until < len(self.words) and self.words[until].isdigit():
                self._set_keyed("--planned", key, self.words[until])
                self._remove(at, until + 1 - at)

    def _of_tokens(self, at: int, until: int) -> bool:
        """Whether the word says a batch in tokens, `batch of 4M tokens` or `4M tokens batch`, which
        is then read.
        """
        if _KEYED[self.words[at].lower()] == "--tokens":
            following = self.words[at + 1 : at + 2]
            return bool(following) and _KEYED.get(following[0].lower()) == "--global-batch"
        if _KEYED[self.words[at].lower()] != "--global-batch":
            return False
        number, unit, behind = (*self.words[until : until + 3], "", "", "")[:3]
        span = (at, until + 2 - at)
        if not _NUMBER.fullmatch(number) and at > 1:
            (number, unit), behind, span = self.words[at - 2 : at], "", (at - 2, 3)
        counted = _NUMBER.fullmatch(number) and unit.lower() in {"token", "tokens"}
        if not counted or _NUMBER.fullmatch(behind):
            return False
        self._set("--global-batch", f"{number} tokens")
        self._remove(*span)
        return True

    def _set_keyed(self, option: str, key: str, value: str) -> None:
        if option == "--planned":
            self._degrees.append(
                f"{'mbs' if key.lower().startswith('micro') else key.lower()}={value}"
            )
        elif option == "--gpu" and value.isdigit() and not is_gpu(value):
            self._set("--gpus", value)
        else:
            self._set(
                option, _sequence_length(value) if option == "--seq" else value.replace(",", "")
            )

    def _model(self) -> str:
        """Find the model: the longest run of words that names one, a hub's id, or a size alone."""
        if "--model" in self._options:
            return self._options.pop("--model")
        if "--model" in self._has:
            self._with_size()
            return ""
        for length in range(min(_LONGEST, len(self.words)), 0, -1):
            for at in range(len(self.words) + 1 - length):
                run = self.words[at : at + length]
                if name := _model_named(run):
                    self._remove(at, length)
                    return name
        for at, word in enumerate(self.words):
            if re.fullmatch(r"[A-Za-z0-9][\w.-]*/[\w.-]+", word) or presets.is_address(word):
                self._remove(at, 1)
                return word
        for at, word in enumerate(self.words):
            if is_size(word) and not (
                at + 1 < len(self.words) and self.words[at + 1].lower() == "tokens"
            ):
                before = self.words[at - 1] if at else ""
                family = before if before.lower() not in _FILLERS and before.isalpha() else ""
                self._remove(at, 1)
                if family:
                    self._remove(at - 1, 1)
                return "-".join(filter(None, (family, word)))
        return ""

    def _with_size(self) -> None:
        """Join a model's family and its size in two options: `--model llama3 --size 70b`."""
        at = next(
            (at for at, option in enumerate(self.kept) if option.partition("=")[0] == "--model"), -1
        )
        size = next((at for at, word in enumerate(self.words) if is_size(word)), -1)
        if at < 0 or size < 0:
            return
        inside = "=" in self.kept[at]
        if not inside and at + 1 >= len(self.kept):
            return
        place = at if inside else at + 1
        whole = f"{self.kept[place]}-{self.words[size]}"
        if preset_named(whole.partition("=")[2] or whole) or newest(whole.lower()):
            self.kept[place] = whole
            self._remove(size, 1)

    def _machines(self) -> None:
        """Find GPUs, their number, and nodes, by the kinds of neighbouring words."""
        self._join_gpus()
        kinds = "".join(self._kind(at) for at in range(len(self.words)))
        for form, options in _FORMS:
            for phrase in re.finditer(form, kinds):
                if any(not self.words[at] for at in range(*phrase.span())):
                    continue
                shown = [self.words[at] for at in range(*phrase.span()) if kinds[at] in "ngi"]
                for option, word in zip(options, shown, strict=True):
                    value = _gpu_of(word) if option == "--gpu" else word.replace(",", "")
                    self._set(option, value)
                    if option == "--gpu" and self._options.get(option, value) != value:
                        self.devices.append(value)
                self._remove(phrase.start(), phrase.end() - phrase.start())

    def _join_gpus(self) -> None:
        """Join the two words of a GPU's name: `a100 80gb`, `rtx 4090`."""
        for at in range(len(self.words) - 2, -1, -1):
            word, following = self.words[at], self.words[at + 1]
            if (
                (word and following and not following.isdigit())
                or word.lower() in {"rtx", "tesla", "nvidia", "dgx", "hgx"}
            ) and _kind_of_gpu(f"{word} {following}"):
                self.words[at : at + 2] = [f"{word} {following}"]

    def _kind(self, at: int) -> str:
        """The kind of the word at an index, as a letter of `_FORMS`."""
        word = self.words[at].lower()
        singular = word.removesuffix("s")
        if not word:
            return "_"
        if kind := _kind_of_gpu(self.words[at]):
            return kind
        if re.fullmatch(r"-?\d+", word):
            return "n"
        if singular in _NODE_WORDS:
            return "p" if at and self.words[at - 1].lower() in {"per", "a", "each", "/"} else "N"
        if singular in _GPU_WORDS:
            return "G"
        if word == "each":
            return "p"
        return "x" if word in _JOINTS else "o"

    def _words_of_training(self) -> None:
        """Find words for adapters, precisions and trainers."""
        from mofa_model.axes.frameworks import trainer_called

        for at, word in enumerate(self.words):
            lower = word.lower()
            if lower in {"lora", "qlora"}:
                self._set("--lora", RANK)
                if lower == "qlora":
                    self._set("--base", "nf4")
            elif lower == "dpo":
                self._set("--task", "dpo")
            elif sharding := re.fullmatch(r"(?:zero[-_]?([123])|(fsdp2?))", lower):
                state = {"1": "distributed", "2": "zero2"}.get(sharding[1] or "", "zero3")
                self._degrees.append(f"optimizer={state}")
            elif trainer := trainer_called(lower):
                self._set("--framework", trainer)
            elif re.fullmatch(r"bf16|fp8|fp16|mxfp8|nvfp4", lower):
                self._set("--precision", lower)
            else:
                continue
            self._remove(at, 1)

    def _number_alone(self, *, has_model: bool) -> None:
        """A number alone counts GPUs where a model, a file or an option stands beside it."""
        if {"--gpus", "--nodes"} & {*self._options, *self._has}:
            return
        alone = [at for at, word in enumerate(self.words) if re.fullmatch(r"\d+x?", word.lower())]
        if len(alone) == 1 and (has_model or self._beside):
            self._set("--gpus", self.words[alone[0]].lower().rstrip("x"))
            self._remove(alone[0], 1)


_FORMS: Final[Sequence[tuple[str, tuple[str, ...]]]] = (
    (r"nx?g+G?x+nN", ("--gpus-per-node", "--gpu", "--nodes")),
    (r"nx*nx*g", ("--nodes", "--gpus-per-node", "--gpu")),
    (r"nx*Nx*nx?g", ("--nodes", "--gpus-per-node", "--gpu")),
    (r"nx*Nx*nx?G", ("--nodes", "--gpus-per-node")),
    (r"nx?gG?x*p", ("--gpus-per-node", "--gpu")),
    (r"nx?G?x*p", ("--gpus-per-node",)),
    (r"nN", ("--nodes",)),
    (r"nx?i", ("--nodes", "--gpu")),
    (r"ix?n(?!N|G)", ("--gpu", "--nodes")),
    (r"nx?gG?", ("--gpus", "--gpu")),
    (r"gG?x?n(?!N)G?", ("--gpu", "--gpus")),
    (r"nG", ("--gpus",)),
    (r"[gi]", ("--gpu",)),
)
"""Ways to say machines: n a number, g a GPU, i a node of GPUs, N and G the words for them, p "per
node", x a joint; and the options that the n, g and i are.
"""


def _counted_in_words(words: list[str]) -> list[str]:
    """The words, with a number that is written in letters before a node or a GPU as digits."""
    for at, (word, following) in enumerate(pairwise(words)):
        bare = following.lower().removesuffix("s")
        before = words[at - 1].lower() if at else ""
        counted = bare in {*_NODE_WORDS, *_GPU_WORDS} or (
            word.lower() != "a"
            and any(map(_kind_of_gpu, (following, " ".join(words[at + 1 : at + 3]))))
        )
        if counted and word.lower() in _COUNTS and before != "per" and not before.isdigit():
            words[at] = _COUNTS[word.lower()]
    return words


def _pieces(words: Sequence[str]) -> Iterator[str]:
    """Words without punctuation; a word such as `8xH100` becomes a number and a GPU."""
    for word in (piece for text in words for piece in _SCRIPTS.findall(text)):
        plain = word.strip("\"'()?!;,").rstrip(".") or word
        lower = plain.lower()
        if counted := counted_gpus(plain) or counted_gpus(re.sub(r"s$", "", plain)):
            yield from counted
        elif parts := re.fullmatch(r"(\d+)[x×*](\d+)([x×*](.+))?", lower):
            yield from (parts[1], "x", parts[2])
            if parts[4]:
                yield from ("x", parts[4])
        elif re.fullmatch(r"x\d+", lower):
            yield from ("x", lower[1:])
        elif parts := re.fullmatch(r"(\d+)x", lower):
            yield from (parts[1], "x")
        elif parts := re.fullmatch(r"(\d+)[-x]?((?:node|gpu|card|host)s?)", lower):
            yield from (parts[1], parts[2])
        elif parts := re.fullmatch(r"(gpus?)/(node|host|machine)", lower):
            yield from (parts[1], "per", parts[2])
        else:
            yield plain


def _kind_of_gpu(word: str) -> str:
    """`g` for a GPU, `i` for a node of several, nothing for any other word."""
    if not word:
        return ""
    bare = _gpu_of(word)
    if not is_gpu(bare):
        return ""
    return (
        "i"
        if (bare != word.removesuffix("s") and re.match(r"(dgx|hgx)", word, re.IGNORECASE))
        or presets.instance(bare)
        else "g"
    )


def _gpu_of(word: str) -> str:
    """A GPU's name, freed from other words and marks around it.

    >>> _gpu_of("H100s"), _gpu_of("DGX-H100"), _gpu_of("A100")
    ('H100', 'H100', 'A100')
    """
    bare = re.sub(r"^(dgx|hgx|nvidia|tesla)[-_ ]", "", word, flags=re.IGNORECASE)
    bare = re.sub(r"(?<=\d)g$", "gb", bare, flags=re.IGNORECASE)  # 40g
    if is_gpu(bare):
        return bare
    return bare.removesuffix("s") if is_gpu(bare.removesuffix("s")) else word


def _sequence_length(value: str) -> str:
    """A sequence length in digits: k is 1024.

    >>> _sequence_length("8k"), _sequence_length("8192"), _sequence_length("1M")
    ('8192', '8192', '1048576')
    """
    length = _NUMBER.fullmatch(value)
    if length is None or not length[2] or "." in length[1]:
        return value.replace(",", "")
    return (
        str(int(length[1].replace(",", "")) * 1024 ** "_km".index(length[2].lower()))
        if length[2].lower() in "km"
        else value
    )


def _model_named(run: Sequence[str]) -> str:
    """The model that neighbouring words name together; empty where they name none."""
    if not all(run) or any(word.lower() in _FILLERS or is_gpu(word) for word in run):
        return ""
    if not re.search(r"[A-Za-z]", run[0]) or (len(run) == 1 and run[0].isdigit()):
        return ""
    if len(run) > 1 and any("://" in word for word in run):
        return ""
    for joint in ("-", ""):
        joined = joint.join(run)
        if presets.meanings("models", joined):
            return joined
        if preset := newest(joined.lower()):
            return preset
    return preset_named(" ".join(run)) if len(run) > 1 and is_size(run[-1]) else ""


def _guessed(left: list[str], *, likely_alone: bool) -> tuple[str, list[str]]:
    """The unknown words that look most like a model's name, and the rest. Words without a digit are
    no name where the sentence has nothing else.
    """
    likely = [word for word in left if re.search(r"[A-Za-z].*\d|\d.*[A-Za-z]|/", word)]
    if len(likely) == 1:
        return likely[0], [word for word in left if word != likely[0]]
    return ("", left) if likely_alone else ("-".join(left), [])
